"""Paths that are not resources: health, metrics, version, discovery, OpenAPI, keys of service accounts."""

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.tokens import Tokens
from seatrial.harness.apiserver.discovery import openapi_protobuf
from seatrial.harness.apiserver.discovery.documents import Discovery, version
from seatrial.harness.apiserver.discovery.openapi import OpenApi
from seatrial.harness.apiserver.protobuf.encoding import encode
from seatrial.harness.apiserver.request.negotiation import DISCOVERY, OPENAPI_PROTOBUF, Format, encoded, first_of
from seatrial.harness.apiserver.request.request import RequestContext
from seatrial.harness.apiserver.storage.store import Object, Store
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.transport import Response

_JSON = {"content-type": "application/json"}
_TEXT = {"content-type": "text/plain; charset=utf-8"}
_METRICS = {"content-type": "text/plain; version=0.0.4"}
_AGGREGATED = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ROOT_PATHS = [
    "/.well-known/openid-configuration",
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
]


_CHECKS: tuple[list[str], ...] = ([], ["ping"], ["log"], ["etcd"])  # of health, in the path


class Documents:
    """Responds to GET requests for paths that are not resources."""

    def __init__(self, store: Store, discovery: Discovery, openapi: OpenApi, tokens: Tokens, faults: Faults) -> None:
        self._store, self._discovery, self._openapi, self._tokens = store, discovery, openapi, tokens
        self._faults = faults

    def respond(self, parts: list[str], context: RequestContext, *, requests: int) -> Response:
        """
        Args:
            parts: The parts of the path between slashes, decoded.
            context: The request, which may read the path.
            requests: The number of requests that the server has had, for its metrics.

        Raises:
            ApiStatusError: 404, there is no such document; 406, it is not served in the format wanted.
        """
        head, rest = parts[0], parts[1:]
        if head in {"healthz", "livez", "readyz"} and rest in _CHECKS:
            return Response(200, self._health(head, verbose="verbose" in context.query), _TEXT)
        if head == "metrics" and not rest:
            return Response(200, self._metrics(requests), _METRICS)
        if head in {"api", "apis"} and not rest and (shape := first_of(context.formats, (DISCOVERY,))):
            return self._aggregated(context, shape, core=head == "api")
        if head == "openapi":
            return self._schemas(rest, context)
        part_object = self._object(parts)
        if part_object is None:
            raise errors.unknown_path()
        if "kind" not in part_object:  # not of Kubernetes' types
            return Response(200, orjson.dumps(part_object), _JSON)
        return Response(200, *encoded(part_object, context.formats))

    def _object(self, parts: list[str]) -> Object | None:
        match parts:
            case [""]:
                return {"paths": _ROOT_PATHS}
            case ["version"]:
                return version()
            case ["api"]:
                return self._discovery.core_versions()
            case ["apis"]:
                return self._discovery.groups()
            case ["api", of_core]:
                return self._discovery.resources("", of_core)
            case ["apis", group]:
                return self._discovery.group(group)
            case ["apis", group, of_group]:
                return self._discovery.resources(group, of_group)
            case [".well-known", "openid-configuration"]:
                return self._tokens.issuer_document()
            case ["openid", "v1", "jwks"]:
                return self._tokens.keys_document()
        return None

    def _schemas(self, rest: list[str], context: RequestContext) -> Response:
        shape = first_of(context.formats, ("", OPENAPI_PROTOBUF))
        if rest == ["v2"] and shape is not None and shape.shape:
            return Response(200, self._openapi.v2_protobuf(), {"content-type": openapi_protobuf.CONTENT_TYPE})
        data = self._openapi.document(rest) if rest != ["v2", "protobuf"] else None
        if data is None:
            raise errors.unknown_path()
        return Response(200, data, _JSON)

    def _aggregated(self, context: RequestContext, shape: Format, *, core: bool) -> Response:
        data, tag = self._discovery.aggregated(core=core)
        if shape.protobuf:
            data = encode(orjson.loads(data))
        headers = {"content-type": f"{shape.media}{_AGGREGATED}", "etag": tag, "vary": "Accept"}
        if context.request.headers.get("if-none-match") == tag:
            return Response(304, b"", headers)
        return Response(200, data, headers)

    def _metrics(self, requests: int) -> bytes:
        lines = ["# TYPE apiserver_requests_total counter", f"apiserver_requests_total {requests}"]
        lines.append("# TYPE apiserver_storage_objects gauge")
        for (group, plural), collection in self._store:
            name = errors.qualified(plural, group)
            lines.append(f'apiserver_storage_objects{{resource="{name}"}} {len(collection)}')
        for name, kind, words, samples in self._faults.families():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples]
        return ("\n".join(lines) + "\n").encode()

    def _health(self, name: str, *, verbose: bool) -> bytes:
        if not verbose:
            return b"ok"
        return "\n".join(["[+]ping ok", "[+]store ok", *self._faults.report(), f"{name} check passed", ""]).encode()
