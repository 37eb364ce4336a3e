"""The API server without a transport: takes a request, returns a response or the start of a stream.

All transports call `ApiServer`. It routes the path to a resource and a verb, checks access, calls the verb, and encodes
the result in the format that the client asked for.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import parse_qsl, unquote

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import ADMIN, Identity
from seatrial.harness.apiserver.access.impersonation import impersonated, impersonates
from seatrial.harness.apiserver.access.rbac import MASTERS, Access
from seatrial.harness.apiserver.access.reviews import review
from seatrial.harness.apiserver.access.tokens import Tokens
from seatrial.harness.apiserver.admission.chain import Admission
from seatrial.harness.apiserver.attempts import FIRST, Attempt, Call, Pending
from seatrial.harness.apiserver.controllers.definitions import Definitions
from seatrial.harness.apiserver.conversation import Containers
from seatrial.harness.apiserver.discovery.documents import Discovery
from seatrial.harness.apiserver.discovery.openapi import OpenApi
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.documents import Documents
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.field_errors import quoted
from seatrial.harness.apiserver.request.attributes import act_of
from seatrial.harness.apiserver.request.negotiation import (
    HEADERS,
    JSON,
    ONLY_PLAIN,
    PLAIN,
    Format,
    encoded,
    for_resource,
    negotiate,
)
from seatrial.harness.apiserver.request.options import DeleteOptions, write_of
from seatrial.harness.apiserver.request.request import RequestContext, Target, check_applied, check_patch_options
from seatrial.harness.apiserver.schemas.shapes import report_problems
from seatrial.harness.apiserver.storage.paging import check_options, flag, revision
from seatrial.harness.apiserver.storage.store import HISTORY, Item, Key, Object, Store
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.text_cache import cached
from seatrial.harness.apiserver.validation.registration import check_new_event
from seatrial.harness.apiserver.validation.warnings import DEPRECATED
from seatrial.harness.apiserver.verbs import multi_version, usage
from seatrial.harness.apiserver.verbs.logs import Source, read_log
from seatrial.harness.apiserver.verbs.objects import PATCHES, Objects
from seatrial.harness.apiserver.verbs.patch_errors import of_problems
from seatrial.harness.apiserver.verbs.reads import Reads
from seatrial.harness.apiserver.verbs.scaling import respond_scale
from seatrial.harness.apiserver.verbs.subresources import bind, evict
from seatrial.harness.apiserver.verbs.update_rules import CREATED_BY_UPDATE, check_name
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH, Request, Response

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DELETE_RETURNS_OBJECT = frozenset(  # upstream's registries with ReturnDeletedObject
    [
        ("", plural)
        for plural in (
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "serviceaccounts",
            "services",
        )
    ]
    + [("storage.k8s.io", plural) for plural in ("csidrivers", "csinodes", "storageclasses", "volumeattachments")]
    + [
        ("resource.k8s.io", plural)
        for plural in (
            "deviceclasses",
            "devicetaintrules",
            "resourceclaims",
            "resourceclaimtemplates",
            "resourceslices",
        )
    ]
)
MAX_PARAMETERS = 1000  # of a query
_DOCUMENTS = frozenset({"api", "apis", "version"})  # paths that take GET only
REQUEST = "request"  # the work in which faults of requests are counted
_WITH_SLASH = frozenset({"", ".well-known", "api", "apis", "logs", "openid", "version"})  # may end in a slash
GRANTED = Response(200, b"", {})


def _no_logs(_namespace: str, _pod: str, _container: str) -> bytes | None:
    return None


@cached()  # clients repeat the queries of their lists
def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    """The parameters of a request; of repeated ones the last.

    Raises:
        ApiStatusError: 400, there are too many.
    """
    try:
        return tuple(dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)).items())
    except ValueError as error:
        raise errors.bad_request(f"the query has more than {MAX_PARAMETERS} parameters") from error


class ApiServer:
    """One object store with its registry, admission, verbs and discovery documents."""

    def __init__(self, clock: Clock, *, seed: int = 0, history: int | None = None) -> None:
        self.clock = clock
        self.store = Store(clock, history=HISTORY if history is None else history)
        self.registry = Registry()
        self.admission = Admission(self.store, self.registry, clock)
        self.objects = Objects(self.store, self.admission, clock, seed=seed)
        self.definitions = Definitions(self.objects, self.registry)
        self.discovery = Discovery(self.registry)
        self.openapi = OpenApi(self.registry)
        self.reads = Reads(self.store, clock, self.objects.conversions)
        self.usage = usage.Usage(self.store, self.registry, self.reads, clock)
        self.logs: Source = _no_logs
        self.containers: Containers | None = None  # None: there are only simulated containers
        self.access = Access(self.store)
        self.tokens = Tokens(self.store, clock)
        self.documents = Documents(self.store, self.discovery, self.openapi, self.tokens, clock.faults)
        self.requests = 0

    # -- entry points -------------------------------------------------------------------------------------------------

    def handle(
        self, request: Request, identity: Identity = ADMIN, attempt: Attempt = FIRST, *, only_access: bool = False
    ) -> Response | Streaming:
        """Carry out a request. An `ApiStatusError` becomes the response and is not raised.

        `only_access`: return GRANTED once access has been checked, before the body is read.

        Raises:
            Pending: a webhook in another process has to be called first. `carry_out` handles this.
        """
        self.requests += 1
        warnings: list[str] = []
        formats = ONLY_PLAIN
        try:
            path, _, query_text = request.path.partition("?")
            query = dict(_parameters(query_text)) if query_text else {}
            accept = request.headers.get("accept", "")
            if impersonates(request.headers):
                identity = impersonated(request.headers, identity, self.access)
            formats = negotiate(accept) if accept else ONLY_PLAIN
            context = RequestContext(request, identity, query, formats, attempt=attempt)
            context.only_access = only_access
            warnings = context.warnings
            answer = self._route(path, context)
        except RecursionError:
            refused = errors.bad_request("the request leads too deep into an object")
            return _refusal(refused, formats)
        except Pending:
            raise
        except ApiStatusError as refused:
            answer = _refusal(refused, formats)
        except Exception as error:  # noqa: BLE001 a fault in the server must not end the connections of other clients
            fault = self.fault(error, request.method, request.path)
            return _refusal(fault, formats)
        if warnings and isinstance(answer, Response):  # with errors too, as upstream
            texts = ", ".join(f'299 - "{_quoted(text)}"' for text in warnings)
            return Response(answer.code, answer.body, {**answer.headers, "warning": texts})
        return answer

    def fault(self, error: BaseException, method: str, path: str) -> ApiStatusError:
        """Log a fault of the server with an ID. Returns the 500 for the client, which names the ID."""
        fault = self.clock.faults.note(error, REQUEST, f"{method} {path}")
        return errors.internal(f"fault {fault} of the server, see its log: {type(error).__name__}: {error!s:.500}")

    def carry_out(self, request: Request, identity: Identity, done: Callable[[Response | Streaming], None]) -> None:
        """Carry out a request that may wait for webhooks. Without webhooks `done` is called before this returns."""

        def attempt_with(earlier: Attempt) -> None:
            try:
                response = self.handle(request, identity, earlier)
            except Pending as pending:
                answers = pending.attempt
                self.admission.webhooks.fetch(pending, lambda: attempt_with(answers))
                return
            done(response)

        attempt_with(FIRST)

    def _route(self, path: str, context: RequestContext) -> Response | Streaming:
        if path.startswith("//"):
            raise errors.unknown_path()
        parts = path.strip("/").split("/")
        if "%" in path:
            if _BAD_ESCAPE.search(path):
                raise errors.bad_request(f"invalid URL escape in the path {path!r}")
            parts = [unquote(part) for part in parts]
            path = unquote(path)
        context.act = act_of(context.request.method, path, parts, context.query)
        if MASTERS not in context.identity.groups:
            self.access.check(context.identity, context.act)
        if parts[0] == "api" and len(parts) > 2:
            return self._resource("", parts[1], parts[2:], context)
        if parts[0] == "apis" and len(parts) > 3:
            return self._resource(parts[1], parts[2], parts[3:], context)
        if context.request.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed() if parts[0] in _DOCUMENTS else errors.unknown_path()
        if path.endswith("/") and parts[0] not in _WITH_SLASH:
            raise errors.unknown_path()
        return self.documents.respond(parts, context, requests=self.requests)

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

    def _resource(self, group: str, version: str, parts: list[str], context: RequestContext) -> Response | Streaming:
        method = context.request.method
        legacy = parts[0] == "watch" and len(parts) > 1  # the old form of a watch
        if legacy:
            parts = parts[1:]
            context.query = {**context.query, "watch": "1"}
        target = self._target(group, version, parts)
        if method == "HEAD":
            raise errors.method_not_allowed()
        if legacy and method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if target.resource.key in DEPRECATED:
            context.warnings.append(DEPRECATED[target.resource.key])
        if target.resource.deprecation:
            context.warnings.append(target.resource.deprecation)
        if context.only_access:
            return GRANTED
        timeout = context.query.get("timeout")
        if timeout and go_duration(timeout) is None:
            why = f"time: invalid duration {quoted(timeout)}"
            raise errors.bad_request(f"invalid timeout specified in the request URL - {why}")
        if context.formats is not ONLY_PLAIN:
            custom = target.resource.custom is not None and target.subresource != "scale"
            context.format = for_resource(context.formats, custom=custom)
        if target.subresource:
            return self._subresource(target, context)
        if target.resource.group == usage.GROUP:
            return self._usage_of(target, context)
        verb = context.act.verb
        if verb not in target.resource.verbs:
            raise errors.method_not_allowed()
        if context.format is not PLAIN:
            _check_format(context.format, target.resource, verb)
        if method == "POST" and not target.name:
            return self._create(target, context)
        if method in {"GET", "HEAD"}:
            if target.name and not legacy:  # upstream: a watch of one object is one of the collection, with a selector
                if "resourceVersion" in context.query:
                    self.reads.check_not_newer(context.query["resourceVersion"])
                item = self._item_of(target, context)
                return self._answer(target.resource, item, context, whole=True)
            return self.reads.collection(
                target.resource,
                target.namespace,
                context.query,
                context.format,
                name=target.name,
                attempt=context.attempt,
                named=context.wants_watched_fields if flag(context.query, "watch") else context.named,
            )
        if method == "PUT" and target.name:
            if target.resource.key in CREATED_BY_UPDATE and self._missing(target):
                return self._create_named(target, context)
            return self._written(target.resource, self._update(target, context), context)
        if method == "PATCH" and target.name:
            return self._patch(target, context)
        if method == "DELETE":
            return self._delete(target, context) if target.name else self._delete_collection(target, context)
        raise errors.method_not_allowed()

    def _item_of(self, target: Target, context: RequestContext) -> Item:
        """
        Raises:
            ApiStatusError: 404.
            Pending: a conversion webhook has to be called first.
        """
        item = self.objects.find(target.resource, target.key)
        return self.objects.conversions.seen(target.resource, item, context.attempt)

    def _usage_of(self, target: Target, context: RequestContext) -> Response:
        if context.request.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if target.name:
            return self._answer(target.resource, self.usage.find(target.resource, target.key), context)
        items = self.usage.list(target.resource, target.namespace, context.query)
        return self.reads.listing(target.resource, items, context.format)

    def _create(self, target: Target, context: RequestContext) -> Response:
        resource = target.resource
        if resource.namespaced and target.namespace is None:
            raise errors.method_not_allowed()
        body = context.body(resource)
        if resource.verbs == ("create",):
            if resource.kind == "Binding":
                key = (target.namespace or "", str((body.get("metadata") or {}).get("name") or ""))
                return self._bind(key, body, context)
            body = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
            answer = review(resource.kind, body, context.identity, self.access, self.tokens, target.namespace or "")
            return Response(201, *encoded(answer, context.formats))
        item = self._store_new(resource, target.namespace, body, context)
        return self._written(resource, item, context, code=201)

    def _store_new(self, resource: Resource, namespace: str | None, body: Object, context: RequestContext) -> Item:
        options = context.options()
        stored = resource
        if multi_version.is_second(resource):
            stored, body = self._stored(resource), multi_version.to_stored(resource, body)
            if resource.kind == "Event":
                body.setdefault("metadata", {}).setdefault("namespace", namespace)
                self.admission.refuse(resource, body, check_new_event(body))
        return self.objects.create(stored, namespace or "", body, options)

    def _missing(self, target: Target) -> bool:
        stored = self._stored(target.resource) if multi_version.is_second(target.resource) else target.resource
        return self.objects.collection(stored).get(target.key) is None

    def _create_named(self, target: Target, context: RequestContext) -> Response:
        """Create the object that an update names, for the kinds with which upstream does so."""
        resource = target.resource
        body = context.body(resource)
        check_name(target.key, body)
        if uid := body["metadata"].get("uid"):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise errors.conflict(resource.plural, resource.group, target.name, why)
        if MASTERS not in context.identity.groups:
            self.access.check(context.identity, replace(context.act, verb="create"))
        body["metadata"].pop("resourceVersion", None)
        item = self._store_new(resource, target.namespace, body, context)
        return self._written(resource, item, context, code=201)

    def _update(self, target: Target, context: RequestContext) -> Item:
        resource = target.resource
        body = context.body(resource)
        if multi_version.is_second(resource):
            resource, body = self._stored(resource), multi_version.to_stored(resource, body)
        return self.objects.update(resource, target.key, body, context.options(), subresource=target.subresource)

    def _stored(self, resource: Resource) -> Resource:
        """The resource under which objects of a second version are stored."""
        stored = self.registry.storage(resource.key)
        assert stored is not None
        return stored

    def _patch(self, target: Target, context: RequestContext) -> Response:
        kind = context.request.content_type.partition(";")[0].strip()
        resource = target.resource
        accepted = [media for media in PATCHES if media != STRATEGIC_MERGE_PATCH or resource.custom is None]
        if kind not in accepted:
            raise errors.unsupported_media(accepted)
        options = context.options()
        check_patch_options(context.query, kind)
        patch = context.decoded(resource, yaml_too=kind == APPLY_PATCH, any_type=kind in {APPLY_PATCH, JSON_PATCH})
        duplicate_fields = context.duplicate_fields(patch) if kind != JSON_PATCH else []
        duplicates = [f'duplicate field "{path}"' for path in duplicate_fields]
        if duplicates and options.field_validation == "Strict" and kind != APPLY_PATCH:
            raise of_problems(duplicates, patch, patch if kind == STRATEGIC_MERGE_PATCH else None)
        report_problems(resource.kind, resource.version, duplicates, options.field_validation, context.warnings)
        if kind == APPLY_PATCH:
            patch = check_applied(patch, resource.api_version, resource.kind)
        stored = resource
        if multi_version.is_second(resource) and isinstance(patch, dict):
            stored, patch = self._stored(resource), multi_version.patch_to_stored(resource, patch)
        item, new = self.objects.patch(stored, target.key, kind, patch, options, target.subresource)
        return self._written(resource, item, context, code=201 if new else 200)

    def _written(self, resource: Resource, item: Item, context: RequestContext, *, code: int = 200) -> Response:
        """The response to a write. Only a client that names its field manager gets `managedFields`, which are slow."""
        return self._answer(resource, item, context, code=code, whole=bool(context.query.get("fieldManager")))

    def _delete(self, target: Target, context: RequestContext) -> Response:
        resource = target.resource
        options = context.delete_options(resource)
        seen = self._item_of(target, context)  # converted before it is removed
        item, gone = self.objects.delete(resource, target.key, options)
        if resource.conversion is not None:
            item = Item(item.key, {**seen.obj, "metadata": item.obj["metadata"]}, item.version, item.ledger)
        if gone and resource.key not in _DELETE_RETURNS_OBJECT:
            status: Object = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {"name": item.key[1], "kind": resource.plural, "uid": item.obj["metadata"]["uid"]},
            }
            if resource.group:
                status["details"]["group"] = resource.group
            return Response(200, *encoded(status, context.formats))
        return self._answer(resource, item, context)

    def _delete_collection(self, target: Target, context: RequestContext) -> Response:
        if target.resource.namespaced and target.namespace is None:
            raise errors.method_not_allowed()
        options = context.delete_options(target.resource)
        check_options(context.query, watch=False)
        if version := context.query.get("resourceVersion", ""):
            revision(version)
        items = self.reads.select(target.resource, target.namespace, context.query)
        if self.admission.webhooks.applies_to("DELETE", target.resource):
            self._admit_deletes(target.resource, items, options, context)
        seen = self.objects.conversions.all_seen(target.resource, items, context.attempt)
        for item in items:
            self.objects.delete(target.resource, item.key, options)
        return self.reads.listing(target.resource, seen, context.format)

    def _admit_deletes(
        self, resource: Resource, items: Sequence[Item], options: DeleteOptions, context: RequestContext
    ) -> None:
        """Call the webhooks of all objects before the first is removed.

        A request that has to wait is tried again from the start, and must then find the same objects.
        """
        answers = Attempt() if context.attempt is FIRST else context.attempt
        missing: dict[tuple[str, bytes], Call] = {}
        for item in items:
            try:
                self.objects.admit_delete(resource, item, replace(options, attempt=answers))
            except Pending as pending:
                missing |= pending.calls
        if missing:
            raise Pending(answers, missing)

    # -- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, target: Target, context: RequestContext) -> Response | Streaming:
        resource, method = target.resource, context.request.method
        match target.subresource, method:
            case "binding", "POST":
                return self._bind(target.key, context.body(resource, kind="Binding", api_version="v1"), context)
            case "eviction", "POST":
                text = context.request.body.strip()
                body = context.body(resource, kind="Eviction", api_version="policy/v1") if text else {}
                self._admit_subresource(target, body, context, ("policy", "v1", "Eviction"))
                evict(self.objects, resource, target.key, body, dry_run=context.options().dry_run)
                return _success(context.formats)
            case "log", "GET":
                return self._log(target, context)
            case (("exec" | "attach" | "portforward") as verb, ("GET" | "POST")):
                self.access.check(context.identity, replace(context.act, verb="create"))  # WebSocket: GET
                from seatrial.harness.apiserver.verbs.commands import OPTIONS, begin, options_of  # keeps start-up short

                subresource = begin(verb, self.objects.find(resource, target.key), context.request, self.containers)
                self._admit_subresource(
                    target, options_of(verb, context.request), context, ("", "v1", OPTIONS[verb]), "CONNECT"
                )
                return subresource
            case "token", "POST":
                body = context.body(resource, kind="TokenRequest", api_version="authentication.k8s.io/v1")
                return Response(201, *encoded(self.tokens.request(target.key, body), context.formats))
            case "scale", _:
                scale = respond_scale(self.objects, self.admission, target, self._item_of(target, context), context)
                return Response(200, *encoded(scale, context.formats))
            case "finalize", "PUT":
                return self._finalize(target, context)
            case "status" | "ephemeralcontainers" | "resize" | "approval", "GET":
                return self._answer(resource, self._item_of(target, context), context)
            case (("status" | "approval" | "ephemeralcontainers" | "resize"), ("PUT" | "PATCH")):
                if method == "PATCH":
                    return self._patch(target, context)
                return self._written(resource, self._update(target, context), context)
            case _:
                raise errors.method_not_allowed()

    def _bind(self, key: Key, body: Object, context: RequestContext) -> Response:
        pods = self.registry.find("", "v1", "pods")
        assert pods is not None
        if self.admission.webhooks.active:
            self._admit_subresource(Target(pods, key[0], key[1], "binding"), body, context, ("", "v1", "Binding"))
        bind(self.objects, pods, key, body, dry_run="dryRun" in context.query)
        return _success(context.formats)

    def _admit_subresource(
        self,
        target: Target,
        body: Object,
        context: RequestContext,
        kind: tuple[str, str, str],
        operation: str = "CREATE",
    ) -> None:
        """Call admission for a subresource that is created or connected to, but not stored."""
        if self.admission.webhooks.applies_to(operation, target.resource, target.subresource):
            sent = {"metadata": {}, **body, "apiVersion": f"{kind[0]}/{kind[1]}".lstrip("/"), "kind": kind[2]}
            write = write_of(
                operation, target.resource, target.key, context.options(), subresource=target.subresource, kind=kind
            )
            self.admission.other(write, sent, None)

    def _log(self, target: Target, context: RequestContext) -> Response | Streaming:
        pods = self.objects.collection(target.resource)
        pod = self.objects.find(target.resource, target.key)
        return read_log(pod, context.query, self.logs, lambda: pods.get(target.key), self.clock)

    def _finalize(self, target: Target, context: RequestContext) -> Response:
        resource = target.resource
        item = self.objects.find(resource, target.key)
        sent = context.body(resource)
        name = (sent.get("metadata") or {}).get("name")
        if name not in {None, "", target.name}:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        finalizers = (sent.get("spec") or {}).get("finalizers") or []
        body = {
            **item.obj,
            "metadata": dict(item.obj["metadata"]),
            "spec": {**item.obj.get("spec", {}), "finalizers": finalizers},
        }
        if context.options().dry_run:
            return self._answer(resource, Item(item.key, body, item.version, item.ledger), context)
        collection = self.objects.collection(resource)
        item = collection.put(item.key, body)
        if not finalizers and "deletionTimestamp" in body["metadata"] and not body["metadata"].get("finalizers"):
            collection.remove(item.key)
        return self._answer(resource, item, context)

    # -- responses ----------------------------------------------------------------------------------------------------

    def _answer(
        self, resource: Resource, item: Item, context: RequestContext, *, code: int = 200, whole: bool = False
    ) -> Response:
        data = self.reads.single(resource, item, context.format, whole=whole)
        return Response(code, data, HEADERS[context.format.media])


@lru_cache(maxsize=8)
def _success(formats: tuple[Format, ...]) -> Response:
    """The Status of a binding or an eviction."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Response(201, *encoded(body, formats))


def _refusal(error: ApiStatusError, formats: Sequence[Format]) -> Response:
    body, headers = encoded(error.status(), formats)
    return Response(error.code, body + b"\n" if headers is HEADERS[JSON] else body, {**headers, **error.headers})


def _check_format(shape: Format, resource: Resource, verb: str) -> None:
    """
    Raises:
        ApiStatusError: 406, one object in the form of a list, a list in that of one object, or a watch in YAML.
    """
    if verb == "watch" and shape.yaml:
        raise errors.not_acceptable(watch=True)
    if shape.shape != "PartialObjectMetadata" or verb not in {"get", "list"} or shape.many == (verb == "list"):
        return
    kind, which = ("", "a list") if verb == "list" else ("List", "not a list")
    message = f"you requested PartialObjectMetadata{kind}, but the requested object is {which} ({resource.kind})"
    raise errors.ApiStatusError(406, "NotAcceptable", message)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
