"""A request taken apart: what its path means, what its query and its body say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
import yaml

from harness.apiserver import errors
from harness.apiserver.identity import Identity
from harness.apiserver.negotiation import Format
from harness.apiserver.objects import DeleteOptions, Options
from harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from harness.apiserver.protobuf.decoding import decode
from harness.apiserver.protobuf.wire import Malformed
from harness.apiserver.rbac import Act
from harness.apiserver.resources import Resource
from harness.apiserver.store import Key, Object
from scheduler.api.transport import Request

BODY_LIMIT = 3 * 1024 * 1024
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update"}


@dataclass(frozen=True, slots=True)
class Target:
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

    def options(self) -> Options:
        """
        Raises:
            Refused: a parameter has no such value.
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
            force=query.get("force", "") in {"true", "1"},
            field_validation=strictness,
            warnings=self.warnings,
        )

    def act(self, target: Target) -> Act:
        """What is wanted, in the words of roles."""
        method, resource = self.request.method, target.resource
        verb = _VERBS.get(method, method.lower())
        if not target.name:
            if method in {"GET", "HEAD"}:
                verb = "watch" if self.query.get("watch") in {"1", "true"} else "list"
            elif method == "DELETE":
                verb = "deletecollection"
        namespace = target.namespace or ""
        if resource.key == ("", "namespaces"):
            namespace = target.name  # who may see all of a namespace may see it
        return Act(verb, resource.group, resource.plural, target.subresource, namespace, target.name)

    def delete_options(self) -> DeleteOptions:
        body = self.decoded() if self.request.body.strip() else {}
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
        )

    def body(self) -> Object:
        found: Object = self.decoded()
        return found  # an object: `decoded` refuses everything else

    def decoded(self, *, yaml_too: bool = False, any_type: bool = False) -> Any:
        request = self.request
        if len(request.body) > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)
        kind = request.content_type.partition(";")[0].strip() or "application/json"
        try:
            found = _decode(request.body, kind, yaml_too=yaml_too)
        except (Malformed, orjson.JSONDecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise errors.bad_request(f"the body of the request cannot be read: {error}") from error
        if not any_type and not isinstance(found, dict):
            raise errors.bad_request(f"expected an object in the body of the request, found {_type_name(found)}")
        return found


@lru_cache(maxsize=256)
def _manager(agent: str) -> str:
    """Who writes, of a client that does not say it: the first word of its User-Agent header."""
    return "".join(letter for letter in agent.partition("/")[0] if letter.isprintable())[:128] or "unknown"


def _decode(body: bytes, kind: str, *, yaml_too: bool) -> Any:
    if kind.endswith(("/json", "+json")):
        return orjson.loads(body)
    if kind == "application/yaml" or (yaml_too and kind.endswith("+yaml")):
        return yaml.load(body, Loader=_Loader)  # noqa: S506 a safe loader, in C where there is one
    if kind == PROTOBUF:
        return decode(body)
    raise errors.unsupported_media(["application/json", "application/yaml", PROTOBUF])


def _type_name(value: Any) -> str:
    names = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "something else")
