"""The API server without a socket: a request in, an answer (or the beginning of a stream) out.

Whatever transport a request came by, it goes through here: path → resource and verb, then the object verbs, then the
shape of answer that the client asked for.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import parse_qs, unquote

import orjson

from harness.apiserver import errors
from harness.apiserver.access.identity import ADMIN, Identity
from harness.apiserver.access.rbac import MASTERS, Access, Act
from harness.apiserver.access.reviews import review
from harness.apiserver.access.tokens import Tokens
from harness.apiserver.admission.chain import Admission
from harness.apiserver.controllers.definitions import Definitions
from harness.apiserver.discovery.documents import Discovery, version
from harness.apiserver.discovery.openapi import OpenApi
from harness.apiserver.discovery.resources import Registry, Resource
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.negotiation import PLAIN, negotiate
from harness.apiserver.request.options import DeleteOptions, write_of
from harness.apiserver.request.request import Asked, Target
from harness.apiserver.storage.paging import flag
from harness.apiserver.storage.store import Item, Key, Object, Store
from harness.apiserver.streams.responses import Streaming
from harness.apiserver.verbs import multi_version, usage
from harness.apiserver.verbs.logs import Source, read_log
from harness.apiserver.verbs.objects import PATCHES, Objects
from harness.apiserver.verbs.reads import Reads
from harness.apiserver.verbs.subresources import bind, evict, patched_scale, rescaled, scale_of
from harness.apiserver.webhooks.attempts import FIRST, Attempt, Call, Pending
from harness.conversation import Containers
from scheduler.api.clock import Clock
from scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request, Response

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OPEN = frozenset({"healthz", "livez", "readyz", "version"})  # for whoever asks
_PLAIN_HEADERS = {"content-type": "application/json"}
_TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8"}


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
        self.reads = Reads(self.store, clock, self.objects.conversions)
        self.usage = usage.Usage(self.store, self.registry, self.reads, clock)
        self.logs: Source = _no_logs
        self.containers: Containers | None = None  # None: no container here is real
        self.access = Access(self.store)
        self.tokens = Tokens(self.store, clock, secrets.token_bytes(32))
        self.requests = 0

    # -- the way in ---------------------------------------------------------------------------------------------------

    def handle(self, request: Request, identity: Identity = ADMIN, attempt: Attempt = FIRST) -> Response | Streaming:
        """Carry out a request. Refusals are answers, never exceptions.

        Raises:
            Pending: a webhook in another process has to be asked first: `carry_out` knows how.
        """
        self.requests += 1
        try:
            path, _, query_text = request.path.partition("?")
            query = (
                {name: values[-1] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
                if query_text
                else {}
            )
            accept = request.headers.get("accept", "")
            if "impersonate-user" in request.headers:
                identity = self._impersonated(request, identity)
            asked = Asked(request, identity, query, negotiate(accept) if accept else PLAIN, attempt=attempt)
            answer = self._route(path, asked)
        except RecursionError:
            refused = errors.bad_request("the request leads too deep into an object")
            return Response(refused.code, refused.encoded(), _PLAIN_HEADERS)
        except orjson.JSONEncodeError as error:
            refused = errors.bad_request(f"the object cannot be stored: {error}")
            return Response(refused.code, refused.encoded(), _PLAIN_HEADERS)
        except Pending:
            raise
        except ApiStatusError as refused:
            return Response(refused.code, refused.encoded(), {**_PLAIN_HEADERS, **refused.headers})
        if asked.warnings and isinstance(answer, Response):
            texts = ", ".join(f'299 - "{_quoted(text)}"' for text in asked.warnings)
            return Response(answer.code, answer.body, {**answer.headers, "warning": texts})
        return answer

    def carry_out(self, request: Request, identity: Identity, done: Callable[[Response | Streaming], None]) -> None:
        """Carry out a request that may have to wait for webhooks; `done` is called at once if it need not."""

        def try_with(earlier: Attempt) -> None:
            try:
                found = self.handle(request, identity, earlier)
            except Pending as pending:
                learnt = pending.attempt
                self.admission.webhooks.fetch(pending, lambda: try_with(learnt))
                return
            done(found)

        try_with(FIRST)

    def _impersonated(self, request: Request, identity: Identity) -> Identity:
        """Whom the client wants to be taken for, if it may be."""
        name = request.headers["impersonate-user"]
        groups = [one.strip() for one in request.headers.get("impersonate-group", "").split(",") if one.strip()]
        self.access.check(identity, Act("impersonate", resource="users", name=name))
        for group in groups:
            self.access.check(identity, Act("impersonate", resource="groups", name=group))
        return Identity(name, tuple(dict.fromkeys((*groups, "system:authenticated"))))

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
        if head not in _OPEN and MASTERS not in asked.identity.groups:
            self.access.check(asked.identity, Act("get", path="/" + "/".join(parts)))
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
        if MASTERS not in asked.identity.groups:
            self.access.check(asked.identity, asked.act(target))
        if target.subresource:
            return self._subresource(target, asked)
        if target.resource.group == usage.GROUP:
            return self._usage_of(target, asked)
        if method == "POST" and not target.name:
            return self._create(target, asked)
        if target.resource.verbs == ("create",):
            raise errors.method_not_allowed()
        if method in {"GET", "HEAD"}:
            if target.name and not flag(asked.query, "watch"):
                item = self._found(target, asked)
                return self._answer(target.resource, item, asked, whole=True)
            return self.reads.collection(
                target.resource, target.namespace, asked.query, asked.format,
                name=target.name, named=asked.named, attempt=asked.attempt,
            )  # fmt: skip
        if method == "PUT" and target.name:
            return self._told(target.resource, self._update(target, asked), asked)
        if method == "PATCH" and target.name:
            return self._patch(target, asked)
        if method == "DELETE":
            return self._delete(target, asked) if target.name else self._delete_collection(target, asked)
        raise errors.method_not_allowed()

    def _found(self, target: Target, asked: Asked) -> Item:
        """
        Raises:
            ApiStatusError: 404.
            Pending: it has to be converted first.
        """
        item = self.objects.find(target.resource, target.key)
        return self.objects.conversions.seen(target.resource, item, asked.attempt)

    def _usage_of(self, target: Target, asked: Asked) -> Response:
        if asked.request.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if target.name:
            return self._answer(target.resource, self.usage.find(target.resource, target.key), asked)
        items = self.usage.list(target.resource, target.namespace, asked.query)
        return self.reads.listing(target.resource, items, asked.format)

    def _create(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        body = asked.body(resource)
        if resource.verbs == ("create",):
            if resource.kind == "Binding":
                key = (target.namespace or "", str((body.get("metadata") or {}).get("name") or ""))
                return self._bind(key, body, asked)
            body = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
            answer = review(resource.kind, body, asked.identity, self.access, self.tokens)
            return Response(201, orjson.dumps(answer), _PLAIN_HEADERS)
        namespace = target.namespace
        if resource.namespaced and namespace is None:  # what upstream refuses in the path, it takes from the body
            namespace = str((body.get("metadata") or {}).get("namespace") or "")
            if not namespace:
                raise errors.method_not_allowed()
        options = asked.options()
        stored = resource
        if multi_version.second(resource):
            stored, body = self._stored(resource), multi_version.to_stored(resource, body)
        item = self.objects.create(stored, namespace or "", body, options)
        return self._told(resource, item, asked, code=201)

    def _update(self, target: Target, asked: Asked) -> Item:
        resource = target.resource
        body = asked.body(resource)
        if multi_version.second(resource):
            resource, body = self._stored(resource), multi_version.to_stored(resource, body)
        return self.objects.update(resource, target.key, body, asked.options(), subresource=target.subresource)

    def _stored(self, resource: Resource) -> Resource:
        """The row under which the objects of a second face are stored."""
        stored = self.registry.storage(resource.key)
        assert stored is not None  # noqa: S101
        return stored

    def _patch(self, target: Target, asked: Asked) -> Response:
        kind = asked.request.content_type.partition(";")[0].strip()
        resource = target.resource
        accepted = [one for one in PATCHES if one != STRATEGIC_MERGE_PATCH or resource.custom is None]
        if kind not in accepted:
            raise errors.unsupported_media(accepted)
        options = asked.options()
        if kind == APPLY_PATCH and not asked.query.get("fieldManager"):
            text = "Required value: is required for apply patch"
            raise errors.invalid(
                "PatchOptions", "meta.k8s.io", "", f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {text}',
                [{"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}],
            )  # fmt: skip
        patch = asked.decoded(yaml_too=kind == APPLY_PATCH, any_type=kind == JSON_PATCH)
        stored = resource
        if multi_version.second(resource) and isinstance(patch, dict):
            stored, patch = self._stored(resource), multi_version.patch_to_stored(resource, patch)
        item, new = self.objects.patch(stored, target.key, kind, patch, options, target.subresource)
        return self._told(resource, item, asked, code=201 if new else 200)

    def _told(self, resource: Resource, item: Item, asked: Asked, *, code: int = 200) -> Response:
        """What a writer gets back: with managedFields if it says who it is, for all others they cost too much."""
        return self._answer(resource, item, asked, code=code, whole=bool(asked.query.get("fieldManager")))

    def _delete(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        seen = self._found(target, asked)  # while it is there to be converted
        item, gone = self.objects.delete(resource, target.key, asked.delete_options())
        if resource.conversion is not None:
            item = Item(item.key, {**seen.obj, "metadata": item.obj["metadata"]}, item.version, item.book)
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
        options = asked.delete_options()
        items = self.reads.select(target.resource, target.namespace, asked.query)
        if self.admission.webhooks.concern("DELETE", target.resource):
            self._ask_to_delete(target.resource, items, options, asked)
        seen = self.objects.conversions.all_seen(target.resource, items, asked.attempt)
        for item in items:
            self.objects.delete(target.resource, item.key, options)
        return self.reads.listing(target.resource, seen, asked.format)

    def _ask_to_delete(self, resource: Resource, items: Sequence[Item], options: DeleteOptions, asked: Asked) -> None:
        """All answers before the first object goes: what is gone would be missing when the request is tried again."""
        learnt = Attempt() if asked.attempt is FIRST else asked.attempt
        missing: dict[tuple[str, bytes], Call] = {}
        for item in items:
            try:
                self.objects.ask_to_delete(resource, item, replace(options, attempt=learnt))
            except Pending as pending:
                missing |= pending.calls
        if missing:
            raise Pending(learnt, missing)

    # -- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, target: Target, asked: Asked) -> Response | Streaming:
        resource, method = target.resource, asked.request.method
        match target.subresource, method:
            case "binding", "POST":
                return self._bind(target.key, asked.body(resource, kind="Binding", api_version="v1"), asked)
            case "eviction", "POST":
                given = asked.request.body.strip()
                body = asked.body(resource, kind="Eviction", api_version="policy/v1") if given else {}
                self._tell(target, body, asked, ("policy", "v1", "Eviction"))
                evict(self.objects, resource, target.key, body, dry_run=asked.options().dry_run)
                return _success(201)
            case "log", "GET":
                return self._log(target, asked)
            case (("exec" | "attach" | "portforward") as verb, ("GET" | "POST")):
                self.access.check(asked.identity, replace(asked.act(target), verb="create"))  # a WebSocket is a GET
                from harness.apiserver.verbs.commands import OPTIONS, begin, options_of  # who never speaks pays nothing

                found = begin(verb, self.objects.find(resource, target.key), asked.request, self.containers)
                self._tell(target, options_of(verb, asked.request), asked, ("", "v1", OPTIONS[verb]), "CONNECT")
                return found
            case "token", "POST":
                body = asked.body(resource, kind="TokenRequest", api_version="authentication.k8s.io/v1")
                return Response(201, orjson.dumps(self.tokens.request(target.key, body)), _PLAIN_HEADERS)
            case "scale", _:
                return self._scale(target, asked)
            case "finalize", "PUT":
                return self._finalize(target, asked)
            case "status" | "ephemeralcontainers" | "resize" | "approval", "GET":
                return self._answer(resource, self._found(target, asked), asked)
            case (("status" | "approval" | "ephemeralcontainers" | "resize"), ("PUT" | "PATCH")):
                if method == "PATCH":
                    return self._patch(target, asked)
                return self._told(resource, self._update(target, asked), asked)
            case _:
                raise errors.method_not_allowed()

    def _bind(self, key: Key, body: Object, asked: Asked) -> Response:
        pods = self.registry.find("", "v1", "pods")
        assert pods is not None  # noqa: S101
        if self.admission.webhooks.active:
            self._tell(Target(pods, key[0], key[1], "binding"), body, asked, ("", "v1", "Binding"))
        bind(self.objects, pods, key, body, dry_run="dryRun" in asked.query)
        return _success(201)

    def _tell(
        self, target: Target, body: Object, asked: Asked, kind: tuple[str, str, str], operation: str = "CREATE"
    ) -> None:
        """Ask webhooks about a subresource that is created or connected to, and not stored."""
        if self.admission.webhooks.concern(operation, target.resource, target.subresource):
            told = {"metadata": {}, **body, "apiVersion": f"{kind[0]}/{kind[1]}".lstrip("/"), "kind": kind[2]}
            write = write_of(
                operation, target.resource, target.key, asked.options(), subresource=target.subresource, kind=kind
            )
            self.admission.other(write, told, None)

    def _log(self, target: Target, asked: Asked) -> Response | Streaming:
        pods = self.objects.collection(target.resource)
        pod = self.objects.find(target.resource, target.key)
        return read_log(pod, asked.query, self.logs, lambda: pods.get(target.key), self.clock)

    def _scale(self, target: Target, asked: Asked) -> Response:
        resource, method = target.resource, asked.request.method
        item = self._found(target, asked)
        scale = scale_of(resource, item)
        if method == "PUT":
            scale = asked.body(resource, kind="Scale", api_version="autoscaling/v1")
        elif method == "PATCH":
            kind = asked.request.content_type.partition(";")[0].strip()
            if kind not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH}:
                raise errors.unsupported_media([JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH])
            scale = patched_scale(scale, kind, asked.decoded(any_type=kind == JSON_PATCH))
        elif method != "GET":
            raise errors.method_not_allowed()
        if method != "GET":
            options = replace(asked.options(), told=True)
            write = write_of(
                "UPDATE", resource, target.key, options, subresource="scale", kind=("autoscaling", "v1", "Scale")
            )
            scale = self.admission.scaled(write, scale, scale_of(resource, item))
            body = rescaled(resource, item, scale)
            item = self.objects.update(resource, target.key, body, options, subresource="scale")
        return Response(200, orjson.dumps(scale_of(resource, item)), _PLAIN_HEADERS)

    def _finalize(self, target: Target, asked: Asked) -> Response:
        resource = target.resource
        item = self.objects.find(resource, target.key)
        asked_spec = (asked.body(resource).get("spec") or {}).get("finalizers") or []
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

    def _answer(
        self, resource: Resource, item: Item, asked: Asked, *, code: int = 200, whole: bool = False
    ) -> Response:
        data = self.reads.single(resource, item, asked.format, whole=whole)
        if asked.format is PLAIN or not asked.format.yaml:
            return Response(code, data, _PLAIN_HEADERS)
        return Response(code, data, {"content-type": asked.format.content_type})


@lru_cache(maxsize=8)
def _success(code: int) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
    return Response(code, orjson.dumps(body), _PLAIN_HEADERS)


def _health(name: str, *, verbose: bool) -> bytes:
    if not verbose:
        return b"ok"
    return f"[+]ping ok\n[+]store ok\n{name} check passed\n".encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
