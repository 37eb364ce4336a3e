"""The context of one request: its target, query, options and body, parsed and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import Act
from seatrial.harness.apiserver.attempts import FIRST, Attempt
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.field_errors import shown
from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from seatrial.harness.apiserver.request.bodies import decode, duplicate_fields, values_limit
from seatrial.harness.apiserver.request.negotiation import PLAIN, Format
from seatrial.harness.apiserver.request.options import DeleteOptions, Options
from seatrial.harness.apiserver.schemas.shapes import conform, report_problems, unknown_fields
from seatrial.harness.apiserver.storage.paging import flag, number
from seatrial.harness.apiserver.storage.store import Key, Object
from seatrial.harness.apiserver.text_cache import cached
from seatrial.scheduler.api.integers import MAX_INT64
from seatrial.scheduler.api.transport import APPLY_PATCH, Request

_ORPHANING = frozenset({("batch", "jobs"), ("", "replicationcontrollers")})  # their pods stay unless a client asks
_ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set"
    " propagationPolicy=Orphan to suppress this warning"
)
_MANAGER_LIMIT = 128  # bytes of a field manager's name, as upstream


_NOTHING = Act("")


class Target(msgspec.Struct, frozen=True):
    """The resource, object and subresource that a path names."""

    resource: Resource
    namespace: str | None  # None: all namespaces, or cluster scope
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace or "", self.name)


@dataclass(slots=True)
class RequestContext:
    """One request with its identity, query and response format. `warnings` collects warnings for the response."""

    request: Request
    identity: Identity
    query: Mapping[str, str]
    formats: tuple[Format, ...]  # that the client accepts, best first
    format: Format = PLAIN  # the one that the resource has
    warnings: list[str] = field(default_factory=list)
    attempt: Attempt = FIRST
    act: Act = _NOTHING
    only_access: bool = False

    @property
    def named(self) -> bool:
        """Whether the client sends a User-Agent. In-process clients send none and get no `managedFields` in lists."""
        return bool(self.request.headers.get("user-agent"))

    @property
    def wants_watched_fields(self) -> bool:
        """Whether watches of this client have `managedFields`.

        Schedulers, ours and others, do not read them and would pay for each change of each pod.
        """
        program = self.request.headers.get("user-agent", "").partition("/")[0]
        return bool(program) and program != "seatrial" and "scheduler" not in program

    def options(self) -> Options:
        """The options of a write.

        Raises:
            ApiStatusError: a query parameter has an unsupported value.
        """
        query = self.query
        dry = query.get("dryRun")
        kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(self.request.method, "PatchOptions")
        if dry not in {None, "All"}:
            raise _unsupported(kind, "dryRun", str(dry), '"All"')
        if "fieldManager" in query:
            _check_manager(kind, query["fieldManager"])
        strictness = query.get("fieldValidation", "Warn") or "Warn"
        if strictness not in {"Strict", "Warn", "Ignore"}:
            raise _unsupported(kind, "fieldValidation", strictness, '"", "Ignore", "Strict", "Warn"')
        return Options(
            dry_run=bool(dry),
            manager=query.get("fieldManager") or _manager(self.request.headers.get("user-agent", "")),
            force=bool(flag(query, "force")),
            field_validation=strictness,
            warnings=self.warnings,
            by=self.identity,
            attempt=self.attempt,
        )

    def delete_options(self, resource: Resource) -> DeleteOptions:
        """The options of a delete: those in the body or, as upstream, the query parameters if there is no body.

        Raises:
            ApiStatusError: an option has an unsupported value.
        """
        query, queries = self.query, self._delete_body()
        if not queries:
            queries = {name: query[name] for name in ("gracePeriodSeconds", "propagationPolicy") if name in query}
            queries |= {"dryRun": [query["dryRun"]]} if "dryRun" in query else {}
        seconds = queries.get("gracePeriodSeconds")
        if isinstance(seconds, str):
            seconds = number(queries, "gracePeriodSeconds", least=-1, most=MAX_INT64)
        check_delete_options(queries)
        policy = queries.get("propagationPolicy") or ("Orphan" if queries.get("orphanDependents") is True else "")
        if not policy and queries.get("orphanDependents") is None and resource.key in _ORPHANING:
            policy = "Orphan"
            if resource.key == ("batch", "jobs"):
                self.warnings.append(_ORPHANED)
        policy = policy or "Background"
        conditions = queries.get("preconditions") or {}
        return DeleteOptions(
            grace=seconds,
            propagation=policy,
            uid=conditions.get("uid") or "",
            version=conditions.get("resourceVersion") or "",
            dry_run=bool(queries.get("dryRun")),
            by=self.identity,
            attempt=self.attempt,
            warnings=self.warnings,
        )

    def _delete_body(self) -> Object:
        """The DeleteOptions in the body; empty if there is no body.

        Raises:
            ApiStatusError: 400, it is another kind of object.
        """
        if not self.request.body.strip():
            return {}
        sent = self.decoded()
        kind = sent.get("kind")
        if kind not in (None, "", "DeleteOptions"):  # a list cannot be hashed
            raise errors.bad_request(f"expected DeleteOptions in the body of the request, found the kind {kind!r:.100}")
        body, _ = conform("v1", "DeleteOptions", {**sent, "apiVersion": "v1", "kind": "DeleteOptions"})
        options: Object = body
        return options

    def body(self, resource: Resource, *, kind: str = "", api_version: str = "") -> Object:
        """The object in the body, of the resource's own kind unless `kind` names another.

        Raises:
            ApiStatusError: there is no object, or it does not conform to the schema of its kind.
        """
        decoded = self.decoded(resource, expected=kind or resource.kind)
        if not kind:
            check_kind(resource, decoded)
        problems = [f'duplicate field "{path}"' for path in self.duplicate_fields(decoded)]
        body, unknown = conform(
            api_version or resource.api_version,
            kind or resource.kind,
            decoded,
            custom=resource.custom is not None and not kind,
        )
        problems += unknown_fields(unknown)
        if problems:
            strictness = self.options().field_validation
            report_problems(kind or resource.kind, resource.version, problems, strictness, self.warnings)
        checked: Object = body
        return checked

    def duplicate_fields(self, decoded: Any) -> list[str]:
        """Fields that the body names twice; `decoded` is the decoded body.

        Found for clients that read warnings or name a `fieldValidation`. Looking takes 2 µs for a pod, which our own
        clients need not pay: they encode dictionaries.
        """
        field_validation = self.query.get("fieldValidation") or ("Warn" if self.wants_watched_fields else "Ignore")
        if field_validation == "Ignore" or self.request.content_type == PROTOBUF:
            return []
        return duplicate_fields(self.request.body, self.request.content_type, decoded)

    def decoded(
        self, resource: Resource | None = None, *, yaml_too: bool = False, any_type: bool = False, expected: str = ""
    ) -> Any:
        """The body; `resource` is that of the object or patch in it, `expected` the kind of the object."""
        return decode(
            self.request.body,
            self.request.content_type,
            yaml_too=yaml_too,
            any_type=any_type,
            max_values=values_limit(resource.key if resource is not None else None),
            expected=expected,
        )


def _unsupported(kind: str, field: str, value: str, supported: str) -> errors.ApiStatusError:
    """422 for an option with an unsupported value."""
    text = f'Unsupported value: "{value}": supported values: {supported}'
    return _option_refused(kind, field, "FieldValueNotSupported", text)


def _option_refused(kind: str, field: str, reason: str, text: str) -> errors.ApiStatusError:
    return errors.invalid(
        kind,
        "meta.k8s.io",
        "",
        f'{kind}.meta.k8s.io "" is invalid: {field}: {text}',
        [{"reason": reason, "message": text, "field": field}],
    )


def check_delete_options(values: Object) -> None:
    """
    Raises:
        ApiStatusError: 422, an option of a deletion has an unsupported value, or two exclude each other.
    """
    policy = values.get("propagationPolicy")
    if policy is not None and values.get("orphanDependents") is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise _option_refused("DeleteOptions", "propagationPolicy", "FieldValueInvalid", text)
    if policy and policy not in {"Background", "Foreground", "Orphan"}:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise _unsupported("DeleteOptions", "propagationPolicy", str(policy), supported)
    for stage in values.get("dryRun") or ():
        if stage != "All":
            raise _unsupported("DeleteOptions", "dryRun", str(stage), '"All"')


def _check_manager(kind: str, manager: str) -> None:
    if len(manager.encode()) > _MANAGER_LIMIT:
        text = f"Too long: may not be more than {_MANAGER_LIMIT} bytes"
        raise _option_refused(kind, "fieldManager", "FieldValueTooLong", text)
    if not manager.isprintable():
        text = f"Invalid value: {shown(manager)}: should only contain printable characters"
        raise _option_refused(kind, "fieldManager", "FieldValueInvalid", text)


def check_patch_options(query: Mapping[str, str], media: str) -> None:
    """Check the parameters that depend on the type of a patch.

    Raises:
        ApiStatusError: 422, `force` without an apply, an apply without a field manager, or its name is too long.
    """
    field = "fieldManager"
    manager = query.get(field, "")
    if media != APPLY_PATCH and "force" in query:
        field, reason = "force", "FieldValueForbidden"
        text = "Forbidden: may not be specified for non-apply patch"
    elif media == APPLY_PATCH and not manager:
        reason, text = "FieldValueRequired", "Required value: is required for apply patch"
    else:
        return
    raise _option_refused("PatchOptions", field, reason, text)


def check_applied(config: Any, api_version: str, kind: str) -> dict[str, Any]:
    """The configuration of an apply.

    Raises:
        ApiStatusError: 400, it does not state exactly this version and kind.
    """
    result = {} if config is None else config
    if not isinstance(result, dict):
        raise errors.bad_request("an apply patch must be an object")
    if (result.get("apiVersion"), result.get("kind")) != (api_version, kind):
        stated = str(result.get("apiVersion") or "")
        stated = stated if "/" in stated else f"/{stated}"
        raise errors.bad_request(f"invalid object type: {stated}, Kind={result.get('kind') or ''}")
    return result


def check_kind(resource: Resource, body: Mapping[str, Any]) -> None:
    """Check the kind and the version that the object states. Only objects of custom resources have to state them.

    Raises:
        ApiStatusError: 400, the object is of another kind or version.
    """
    kind, version = body.get("kind"), body.get("apiVersion")
    if resource.custom is not None and not kind:
        raise errors.bad_request("Object 'Kind' is missing in the object of the request")
    if resource.custom is not None and not version:
        raise errors.bad_request(
            f"the API version in the data () does not match the expected API version ({resource.api_version})"
        )
    if (kind and kind != resource.kind) or (version and version != resource.api_version):
        raise errors.bad_request(
            f"{kind or resource.kind} in version {str(version or resource.api_version)!r} cannot be handled as a"
            f" {resource.kind}: expected {resource.api_version}, Kind={resource.kind}"
        )


@cached()
def _manager(agent: str) -> str:
    """The field manager of a client that names none: its User-Agent up to the first slash, as upstream."""
    return "".join(letter for letter in agent.partition("/")[0] if letter.isprintable())[:128] or "unknown"
