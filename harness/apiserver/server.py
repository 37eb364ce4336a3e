"""The API server without a socket: a request in, an answer (or the beginning of a stream) out.

Whatever transport a request came by, it goes through here: path → resource and verb, then the object verbs, then the
shape of answer that the client asked for.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

import orjson

from harness.apiserver import errors, events
from harness.apiserver.admission import Admission, tell_unknown
from harness.apiserver.bodies import decode
from harness.apiserver.definitions import Definitions
from harness.apiserver.discovery import Discovery, version
from harness.apiserver.errors import Refused
from harness.apiserver.identity import ADMIN, Identity
from harness.apiserver.negotiation import PLAIN, Format, negotiate
from harness.apiserver.objects import PATCHES, DeleteOptions, Objects, Options, check_kind
from harness.apiserver.openapi import OpenApi
from harness.apiserver.paging import flag
from harness.apiserver.reads import Reads
from harness.apiserver.resources import EVENTS_GROUP, Registry, Resource
from harness.apiserver.reviews import review
from harness.apiserver.shapes import conform
from harness.apiserver.store import Item, Key, Object, Store
from harness.apiserver.streaming import Streaming
from harness.apiserver.subresources import bind, evict, rescaled, scale_of
from scheduler.api.clock import Clock
from scheduler.api.transport import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH, Request, Response

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN_HEADERS = {"content-type": "application/json"}
_TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8"}

Logs = Callable[[str, str, str], bytes | None]  # namespace, pod, container → what it has printed


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
            manager=query.get("fieldManager", ""),
            force=bool(flag(query, "force")),
            field_validation=strictness,
            warnings=self.warnings,
        )


def _no_logs(_namespace: str, _pod: str, _container: str) -> bytes | None:
    return None


class ApiServer:
    """One store and everything in front of it."""

    def __init__(self, clock: Clock, *, seed: int = 0, history: int | None = None) -> None:
        self.clock = clock
        self.store = Store() if history is None else Store(history=history)
        self.registry = Registry()
        self.admission = Admission(self.store, self.registry, clock)
        self.objects = Objects(self.store, self.admission, clock, seed=seed)
        self.definitions = Definitions(self.objects, self.registry)
        self.discovery = Discovery(self.registry)
        self.openapi = OpenApi(self.registry)
        self.reads = Reads(self.store, clock)
        self.logs: Logs = _no_logs
        self.requests = 0

    # -- the way in ---------------------------------------------------------------------------------------------------

    def handle(self, request: Request, identity: Identity = ADMIN) -> Response | Streaming:
        """Carry out a request. Refusals are answers, never exceptions."""
        self.requests += 1
        try:
            path, _, query_text = request.path.partition("?")
            query = (
                {name: values[-1] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
                if query_text
                else {}
            )
            accept = request.headers.get("accept", "")
            asked = Asked(request, identity, query, negotiate(accept) if accept else PLAIN)
            answer = self._route(path, asked)
        except RecursionError:
            refused = errors.bad_request("the request leads too deep into an object")
            return Response(refused.code, refused.encoded(), _PLAIN_HEADERS)
        except orjson.JSONEncodeError as error:
            refused = errors.bad_request(f"the object cannot be stored: {error}")
            return Response(refused.code, refused.encoded(), _PLAIN_HEADERS)
        except Refused as refused:
            return Response(refused.code, refused.encoded(), {**_PLAIN_HEADERS, **refused.headers})
        if asked.warnings and isinstance(answer, Response):
            texts = ", ".join(f'299 - "{_quoted(text)}"' for text in asked.warnings)
            return Response(answer.code, answer.body, {**answer.headers, "warning": texts})
        return answer

    def _route(self, path: str, asked: Asked) -> Response | Streaming:
        parts = path.strip("/").split("/")
        if "%" in path:
            if _BAD_ESCAPE.search(path):
                raise errors.bad_request(f"invalid URL escape in the path {path!r}")
            parts = [unquote(part) for part in parts]
        if parts[0] == "api" and len(parts) > 2:
            return self._resource("", parts[1], parts[2:], asked)
        if parts[0] == "apis" and len(parts) > 3:
            return self._resource(parts[1], parts[2], parts[3:], asked)
        if asked.request.method not in {"GET", "HEAD"}:
            raise errors.unknown_path() if parts[0] not in {"api", "apis"} else errors.method_not_allowed()
        return self._document(parts, asked)

    def _document(self, parts: list[str], asked: Asked) -> Response:
        """Everything that is no resource."""
        head, rest = parts[0], parts[1:]
        aggregated = asked.format.shape == "APIGroupDiscoveryList"
        found: Object | None = None
        if head in {"healthz", "livez", "readyz"}:
            return Response(200, _health(head, verbose="verbose" in asked.query), _TEXT_HEADERS)
        if head == "metrics" and not rest:
            return Response(200, self._metrics(), {"content-type": "text/plain; version=0.0.4"})
        if head == "version" and not rest:
            found = version()
        elif head in {"api", "apis"} and not rest:
            if aggregated:
                return self._aggregated(asked, core=head == "api")
            found = self.discovery.core_versions() if head == "api" else self.discovery.groups()
        elif head == "api" and len(rest) == 1:
            found = self.discovery.resources("", rest[0])
        elif head == "apis" and len(rest) == 1:
            found = self.discovery.group(rest[0])
        elif head == "apis" and len(rest) == 2:
            found = self.discovery.resources(rest[0], rest[1])
        elif head == "openapi":
            data = self.openapi.document(rest)
            if data is not None:
                return Response(200, data, _PLAIN_HEADERS)
        elif not head:
            paths = [
                "/api",
                "/apis",
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v2",
                "/openapi/v3",
                "/readyz",
                "/version",
            ]
            found = {"paths": paths}
        if found is None:
            raise errors.unknown_path()
        return Response(200, orjson.dumps(found), _PLAIN_HEADERS)

    def _aggregated(self, asked: Asked, *, core: bool) -> Response:
        data, tag = self.discovery.aggregated(core=core)
        kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        headers = {"content-type": kind, "etag": tag, "vary": "Accept"}
        if asked.request.headers.get("if-none-match") == tag:
            return Response(304, b"", headers)
        return Response(200, data, headers)

    def _metrics(self) -> bytes:
        lines = ["# TYPE apiserver_requests_total counter", f"apiserver_requests_total {self.requests}"]
        lines.append("# TYPE apiserver_storage_objects gauge")
        for (group, plural), collection in self.store:
            name = errors.qualified(plural, group)
            lines.append(f'apiserver_storage_objects{{resource="{name}"}} {len(collection)}')
        return ("\n".join(lines) + "\n").encode()

    # -- resources ----------------------------------------------------------------------------------------------------

    def _target(self, group: str, version: str, parts: list[str]) -> Target:
        namespace: str | None = None
        if parts[0] == "namespaces" and len(parts) > 2 and not (len(parts) == 3 and parts[2] in {"status", "finalize"}):
            namespace, parts = parts[1], parts[2:]
        resource = self.registry.find(group, version, parts[0])
        if resource is None or len(parts) > 3 or (namespace is not None and not resource.namespaced):
            raise errors.unknown_path()
        subresource = parts[2] if len(parts) == 3 else ""
        if subresource and subresource not in resource.subresources:
            raise errors.unknown_path()
        if len(parts) > 1 and resource.namespaced and namespace is None:
            raise errors.unknown_path()
        return Target(resource, namespace, parts[1] if len(parts) > 1 else "", subresource)

    def _resource(self, group: str, version: str, parts: list[str], asked: Asked) -> Response | Streaming:
        target = self._target(group, version, parts)
        method = asked.request.method
        if target.subresource:
            return self._subresource(target, asked)
        if method == "POST" and not target.name:
            return self._create(target, asked)
        if target.resource.verbs == ("create",):
            raise errors.method_not_allowed()
        if method in {"GET", "HEAD"}:
            if target.name and not flag(asked.query, "watch"):
                item = self.objects.find(target.resource, target.key)
                return self._answer(target.resource, item, asked)
            return self.reads.collection(target.resource, target.namespace, asked.query, asked.format, name=target.name)
        if method == "PUT" and target.name:
            item = self._update(target, asked)
            return self._answer(target.resource, item, asked)
        if method == "PATCH" and target.name:
            return self._patch(target, asked)
        if method == "DELETE":
            return self._delete(target, asked) if target.name else self._delete_collection(target, asked)
        raise errors.method_not_allowed()

    def _create(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        body = self._body(asked, resource)
        if resource.verbs == ("create",):
            if resource.kind == "Binding":
                key = (target.namespace or "", str((body.get("metadata") or {}).get("name") or ""))
                return self._bind(key, body, asked)
            body = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
            answer = review(resource.kind, body, asked.identity)
            return Response(201, orjson.dumps(answer), _PLAIN_HEADERS)
        namespace = target.namespace
        if resource.namespaced and namespace is None:  # what upstream refuses in the path, it takes from the body
            namespace = str((body.get("metadata") or {}).get("namespace") or "")
            if not namespace:
                raise errors.method_not_allowed()
        options = asked.options()
        if resource.group == EVENTS_GROUP:
            core = self.registry.find("", "v1", "events")
            assert core is not None  # noqa: S101
            item = self.objects.create(core, namespace or "", events.to_core(body), options)
        else:
            item = self.objects.create(resource, namespace or "", body, options)
        return self._answer(resource, item, asked, code=201)

    def _update(self, target: Target, asked: Asked) -> Item:
        resource = target.resource
        body = self._body(asked, resource)
        if resource.group == EVENTS_GROUP:
            resource, body = self._core_events(), events.to_core(body)
        return self.objects.update(resource, target.key, body, asked.options(), subresource=target.subresource)

    def _core_events(self) -> Resource:
        core = self.registry.find("", "v1", "events")
        assert core is not None  # noqa: S101
        return core

    def _patch(self, target: Target, asked: Asked) -> Response:
        kind = asked.request.content_type.partition(";")[0].strip()
        resource = target.resource
        accepted = [one for one in PATCHES if one != STRATEGIC_MERGE_PATCH or resource.custom is None]
        if kind not in accepted:
            raise errors.unsupported_media(accepted)
        options = asked.options()
        if kind == APPLY_PATCH and not options.manager:
            text = "Required value: is required for apply patch"
            raise errors.invalid(
                "PatchOptions", "meta.k8s.io", "", f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {text}',
                [{"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}],
            )  # fmt: skip
        patch = decode(
            asked.request.body, asked.request.content_type, yaml_too=kind == APPLY_PATCH, any_type=kind == JSON_PATCH
        )
        if resource.group == EVENTS_GROUP and isinstance(patch, dict):
            item, new = self.objects.patch(
                self._core_events(), target.key, kind, events.patch_to_core(patch), options, target.subresource
            )
        else:
            item, new = self.objects.patch(resource, target.key, kind, patch, options, target.subresource)
        return self._answer(resource, item, asked, code=201 if new else 200)

    def _delete(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        item, gone = self.objects.delete(resource, target.key, self._delete_options(asked))
        if gone and resource.key != ("", "pods"):
            status: Object = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {"name": item.key[1], "kind": resource.plural, "uid": item.obj["metadata"]["uid"]},
            }
            if resource.group:
                status["details"]["group"] = resource.group
            return Response(200, orjson.dumps(status), _PLAIN_HEADERS)
        return self._answer(resource, item, asked)

    def _delete_collection(self, target: Target, asked: Asked) -> Response:
        options = self._delete_options(asked)
        items = self.reads.select(target.resource, target.namespace, asked.query)
        for item in items:
            self.objects.delete(target.resource, item.key, options)
        return self.reads.listing(target.resource, items, asked.format)

    def _delete_options(self, asked: Asked) -> DeleteOptions:
        body: Object = {}
        if asked.request.body.strip():
            found = decode(asked.request.body, asked.request.content_type)
            body, _ = conform("v1", "DeleteOptions", {**found, "apiVersion": "v1", "kind": "DeleteOptions"})
        query = asked.query
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

    # -- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, target: Target, asked: Asked) -> Response | Streaming:
        resource, method = target.resource, asked.request.method
        match target.subresource, method:
            case "binding", "POST":
                return self._bind(target.key, self._body(asked, resource, kind="Binding", api_version="v1"), asked)
            case "eviction", "POST":
                body = (
                    self._body(asked, resource, kind="Eviction", api_version="policy/v1")
                    if asked.request.body.strip()
                    else {}
                )
                evict(self.objects, resource, target.key, body, dry_run=asked.options().dry_run)
                return _success(201)
            case "log", "GET":
                return self._log(target, asked)
            case "scale", _:
                return self._scale(target, asked)
            case "finalize", "PUT":
                return self._finalize(target, asked)
            case "status" | "ephemeralcontainers" | "resize" | "approval", "GET":
                return self._answer(resource, self.objects.find(resource, target.key), asked)
            case "status" | "approval", "PUT":
                return self._answer(
                    resource, self._update(Target(resource, target.namespace, target.name, "status"), asked), asked
                )
            case "status" | "approval", "PATCH":
                return self._patch(Target(resource, target.namespace, target.name, "status"), asked)
            case _:
                raise errors.method_not_allowed()

    def _bind(self, key: Key, body: Object, asked: Asked) -> Response:
        pods = self.registry.find("", "v1", "pods")
        assert pods is not None  # noqa: S101
        bind(self.objects, pods, key, body, dry_run="dryRun" in asked.query)
        return _success(201)

    def _log(self, target: Target, asked: Asked) -> Response:
        pod = self.objects.find(target.resource, target.key).obj
        names = [one["name"] for one in pod["spec"]["containers"]]
        container = asked.query.get("container", "")
        if not container and len(names) > 1:
            raise errors.bad_request(
                f"a container name must be specified for pod {target.name}, choose one of: [{' '.join(names)}]"
            )
        if container and container not in names:
            raise errors.bad_request(f"container {container} is not valid for pod {target.name}")
        data = self.logs(target.namespace or "", target.name, container)
        if data is None:
            if not pod["spec"].get("nodeName"):
                return Response(200, b"", _TEXT_HEADERS)
            raise errors.bad_request(
                f'container "{container or names[0]}" in pod "{target.name}" is waiting to start: ContainerCreating'
            )
        tail = asked.query.get("tailLines", "")
        if tail.isdigit():
            lines = data.splitlines(keepends=True)
            data = b"".join(lines[len(lines) - min(int(tail), len(lines)) :])
        limit = asked.query.get("limitBytes", "")
        return Response(200, data[: int(limit)] if limit.isdigit() else data, _TEXT_HEADERS)

    def _scale(self, target: Target, asked: Asked) -> Response:
        resource, method = target.resource, asked.request.method
        item = self.objects.find(resource, target.key)
        scale = scale_of(resource, item)
        if method == "PUT":
            scale = self._body(asked, resource, kind="Scale", api_version="autoscaling/v1")
        elif method == "PATCH":
            patch = decode(asked.request.body, asked.request.content_type)
            scale = {**scale, "spec": {**scale["spec"], **(patch.get("spec") or {})}}
        elif method != "GET":
            raise errors.method_not_allowed()
        if method != "GET":
            item = self.objects.update(resource, target.key, rescaled(resource, item, scale), asked.options())
        return Response(200, orjson.dumps(scale_of(resource, item)), _PLAIN_HEADERS)

    def _finalize(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        item = self.objects.find(resource, target.key)
        asked_spec = (self._body(asked, resource).get("spec") or {}).get("finalizers") or []
        body = {
            **item.obj,
            "metadata": dict(item.obj["metadata"]),
            "spec": {**item.obj.get("spec", {}), "finalizers": asked_spec},
        }
        collection = self.objects.collection(resource)
        item = collection.put(item.key, body)
        if not asked_spec and "deletionTimestamp" in body["metadata"] and not body["metadata"].get("finalizers"):
            collection.remove(item.key)
        return self._answer(resource, item, asked)

    # -- bodies and answers -------------------------------------------------------------------------------------------

    def _body(self, asked: Asked, resource: Resource, *, kind: str = "", api_version: str = "") -> Object:
        """The object in the request, of the resource's own kind unless another is named."""
        found = decode(asked.request.body, asked.request.content_type)
        custom = resource.custom is not None and not kind
        if not kind:
            check_kind(resource, found)
        body, unknown = conform(api_version or resource.api_version, kind or resource.kind, found, custom=custom)
        if unknown:
            options = asked.options()
            tell_unknown(kind or resource.kind, resource.version, unknown, options.field_validation, asked.warnings)
        return body

    def _answer(self, resource: Resource, item: Item, asked: Asked, *, code: int = 200) -> Response:
        data = self.reads.single(resource, item, asked.format)
        if asked.format is PLAIN or not asked.format.yaml:
            return Response(code, data, _PLAIN_HEADERS)
        return Response(code, data, {"content-type": asked.format.content_type})


def _success(code: int) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
    return Response(code, orjson.dumps(body), _PLAIN_HEADERS)


def _health(name: str, *, verbose: bool) -> bytes:
    if not verbose:
        return b"ok"
    return f"[+]ping ok\n[+]store ok\n{name} check passed\n".encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
