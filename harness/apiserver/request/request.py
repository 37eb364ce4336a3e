"""A request taken apart: what its path means, what its query and its body say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from harness.apiserver import errors
from harness.apiserver.access.identity import Identity
from harness.apiserver.access.rbac import Act
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.request.bodies import decode
from harness.apiserver.request.negotiation import Format
from harness.apiserver.request.options import DeleteOptions, Options
from harness.apiserver.schemas.shapes import conform, tell_unknown
from harness.apiserver.storage.paging import flag
from harness.apiserver.storage.store import Key, Object
from harness.apiserver.webhooks.attempts import FIRST, Attempt
from scheduler.api.transport import Request

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update"}


class Target(msgspec.Struct, frozen=True):
    """What a path means."""

    resource: Resource
    namespace: str | None  # None: all namespaces, or cluster scope
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace or "", self.name)


@dataclass(slots=True)
class Asked:
    """One request, taken apart."""

    request: Request
    identity: Identity
    query: Mapping[str, str]
    format: Format
    warnings: list[str] = field(default_factory=list)
    attempt: Attempt = FIRST

    @property
    def named(self) -> bool:
        """Whether the client says what program it is. Ours do not: they have no use for what that brings."""
        return bool(self.request.headers.get("user-agent"))

    def options(self) -> Options:
        """
        Raises:
            ApiStatusError: a parameter has no such value.
        """
        query = self.query
        dry = query.get("dryRun", "")
        if dry not in {"", "All"}:
            text = f'Unsupported value: "{dry}": supported values: "All"'
            raise errors.invalid(
                "CreateOptions", "meta.k8s.io", "", f'CreateOptions.meta.k8s.io "" is invalid: dryRun: {text}',
                [{"reason": "FieldValueNotSupported", "message": text, "field": "dryRun"}],
            )  # fmt: skip
        strictness = query.get("fieldValidation", "Warn") or "Warn"
        if strictness not in {"Strict", "Warn", "Ignore"}:
            raise errors.bad_request(
                f'fieldValidation: Unsupported value: "{strictness}": supported values: "Ignore", "Warn", "Strict"'
            )
        return Options(
            dry_run=bool(dry),
            manager=query.get("fieldManager") or _manager(self.request.headers.get("user-agent", "")),
            force=bool(flag(query, "force")),
            field_validation=strictness,
            warnings=self.warnings,
            by=self.identity,
            attempt=self.attempt,
        )

    def act(self, target: Target) -> Act:
        """What is wanted, in the words of roles."""
        method, resource = self.request.method, target.resource
        verb = _VERBS.get(method, method.lower())
        if not target.name:
            if method in {"GET", "HEAD"}:
                verb = "watch" if flag(self.query, "watch") else "list"
            elif method == "DELETE":
                verb = "deletecollection"
        namespace = target.namespace or ""
        if resource.key == ("", "namespaces"):
            namespace = target.name  # who may see all of a namespace may see it
        return Act(verb, resource.group, resource.plural, target.subresource, namespace, target.name)

    def delete_options(self) -> DeleteOptions:
        body: Object = {}
        if self.request.body.strip():
            body, _ = conform("v1", "DeleteOptions", {**self.decoded(), "apiVersion": "v1", "kind": "DeleteOptions"})
        query = self.query
        given = {**body, **{name: query[name] for name in ("gracePeriodSeconds", "propagationPolicy") if name in query}}
        grace = given.get("gracePeriodSeconds")
        try:
            seconds = None if grace is None else int(grace)
        except (TypeError, ValueError) as error:
            raise errors.bad_request(f"gracePeriodSeconds: expected an integer, found {grace!r}") from error
        policy = given.get("propagationPolicy") or ("Orphan" if given.get("orphanDependents") is True else "Background")
        if policy not in {"Background", "Foreground", "Orphan"}:
            text = f'Unsupported value: "{policy}": supported values: "Orphan", "Background", "Foreground"'
            raise errors.bad_request(f"propagationPolicy: {text}")
        conditions = given.get("preconditions") or {}
        return DeleteOptions(
            grace=seconds,
            propagation=policy,
            uid=conditions.get("uid") or "",
            version=conditions.get("resourceVersion") or "",
            dry_run=bool(query.get("dryRun") or body.get("dryRun")),
            by=self.identity,
            attempt=self.attempt,
            warnings=self.warnings,
        )

    def body(self, resource: Resource, *, kind: str = "", api_version: str = "") -> Object:
        """The object in the request, of the resource's own kind unless another is named.

        Raises:
            ApiStatusError: there is none, or it has not the shape of its kind.
        """
        found = self.decoded()
        if not kind:
            check_kind(resource, found)
        body, unknown = conform(
            api_version or resource.api_version,
            kind or resource.kind,
            found,
            custom=resource.custom is not None and not kind,
        )
        if unknown:
            strictness = self.options().field_validation
            tell_unknown(kind or resource.kind, resource.version, unknown, strictness, self.warnings)
        checked: Object = body
        return checked

    def decoded(self, *, yaml_too: bool = False, any_type: bool = False) -> Any:
        return decode(self.request.body, self.request.content_type, yaml_too=yaml_too, any_type=any_type)


def check_kind(resource: Resource, body: Mapping[str, Any]) -> None:
    """
    Raises:
        ApiStatusError: 400, the object says that it is of another kind or version.
    """
    kind, version = body.get("kind"), body.get("apiVersion")
    if (kind and kind != resource.kind) or (version and version != resource.api_version):
        raise errors.bad_request(
            f"{kind or resource.kind} in version {str(version or resource.api_version)!r} cannot be handled as a"
            f" {resource.kind}: expected {resource.api_version}, Kind={resource.kind}"
        )


@lru_cache(maxsize=256)
def _manager(agent: str) -> str:
    """Who writes, of a client that does not say it: the first word of its User-Agent header."""
    return "".join(letter for letter in agent.partition("/")[0] if letter.isprintable())[:128] or "unknown"
