"""What a write comes with besides its object."""

from dataclasses import dataclass, field
from typing import Any

from harness.apiserver.access.identity import CONTROLLERS, Identity
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.storage.store import Object
from harness.apiserver.webhooks.attempts import Attempt
from harness.apiserver.webhooks.dispatch import Write


@dataclass(slots=True)
class Options:
    """What query parameters say of a write, and what there is to warn of."""

    dry_run: bool = False
    manager: str = ""
    force: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    by: Identity = CONTROLLERS
    attempt: Attempt | None = None  # None: whoever writes cannot wait
    told: bool = False  # webhooks have had their word, as of a subresource that is an object of another kind


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The body or the query of a delete."""

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
    """The write as webhooks are told of it; `key` is namespace and name."""
    said: dict[str, Any] = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if isinstance(options, DeleteOptions):
        said["propagationPolicy"] = options.propagation
        if options.grace is not None:
            said["gracePeriodSeconds"] = options.grace
    elif options.manager:
        said["fieldManager"] = options.manager
    if options.dry_run:
        said["dryRun"] = ["All"]
    if operation == "CONNECT":
        said = {}
    return Write(
        operation,
        resource,
        # a namespace is, for its webhooks, in itself
        key[1] if resource.key == ("", "namespaces") else key[0],
        key[1],
        subresource,
        options.by,
        options.dry_run,
        said,
        options.attempt,
        options.warnings,
        kind,
        generated,
    )


def grace_of(resource: Resource, obj: Object, asked: int | None) -> int:
    """Seconds that a pod is given to end; everything else goes at once."""
    if resource.key != ("", "pods"):
        return 0
    spec = obj.get("spec", {})
    if not spec.get("nodeName") or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    grace = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return max(int(grace), 0)
