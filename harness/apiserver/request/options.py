"""Options of writes: query parameters, delete options, and the identity of the writer."""

from dataclasses import dataclass, field
from typing import Any

from seatrial.harness.apiserver.access.identity import CONTROLLERS, Identity
from seatrial.harness.apiserver.attempts import Attempt
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Object
from seatrial.harness.apiserver.webhooks.dispatch import Write

CONTROLLER_MANAGER = "kube-controller-manager"  # the field manager of the built-in controllers


@dataclass(slots=True)
class Options:
    """Options of a create, update or patch. `warnings` collects what the response warns of."""

    dry_run: bool = False
    manager: str = ""
    force: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    by: Identity = CONTROLLERS
    attempt: Attempt | None = None  # None: the writer cannot wait for webhooks
    webhooks_done: bool = False  # webhooks have been called already, as for a subresource with a kind of its own


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a delete, from its body or its query. `grace` is in seconds; `uid` and `version` are preconditions."""

    grace: int | None = None
    propagation: str = "Background"
    uid: str = ""
    version: str = ""
    dry_run: bool = False
    by: Identity = CONTROLLERS
    attempt: Attempt | None = None
    warnings: list[str] = field(default_factory=list)


def write_of(
    operation: str,
    resource: Resource,
    key: tuple[str, str],
    options: Options | DeleteOptions,
    *,
    subresource: str = "",
    generated: bool = False,
    kind: tuple[str, str, str] | None = None,
) -> Write:
    """The write as an admission webhook sees it. `key` is namespace and name."""
    encoded: dict[str, Any] = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if isinstance(options, DeleteOptions):
        encoded["propagationPolicy"] = options.propagation
        if options.grace is not None:
            encoded["gracePeriodSeconds"] = options.grace
    elif options.manager:
        encoded["fieldManager"] = options.manager
    if options.dry_run:
        encoded["dryRun"] = ["All"]
    if operation == "CONNECT":
        encoded = {}
    return Write(
        operation,
        resource,
        # webhooks see a namespace as an object within itself
        key[1] if resource.key == ("", "namespaces") else key[0],
        key[1],
        subresource,
        options.by,
        options.dry_run,
        encoded,
        options.attempt,
        options.warnings,
        kind,
        generated,
    )


def grace_of(resource: Resource, obj: Object, requested: int | None) -> int:
    """The grace period of a deletion in seconds: 0 for everything but pods that are bound and not finished.

    A negative one becomes a second, as upstream.
    """
    if resource.key != ("", "pods"):
        return 0
    spec = obj.get("spec", {})
    if not spec.get("nodeName") or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    grace = spec.get("terminationGracePeriodSeconds", 30) if requested is None else requested
    return int(grace) if grace >= 0 else 1
