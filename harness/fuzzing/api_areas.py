"""Areas of the API server: requests, objects, patches, bodies. Each input gets a fresh server in virtual time."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import orjson
import yaml
from hypothesis import strategies as st

from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.protobuf import decoding
from seatrial.harness.apiserver.request import bodies
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.transport.connection import HEADERS_LIMIT
from seatrial.harness.fuzzing.long_texts import (
    LongText,
    Path,
    check_cost,
    long_texts,
    processor_time,
    text_of,
    text_paths,
    with_text,
)
from seatrial.harness.fuzzing.objects import CUSTOM, OBJECTS
from seatrial.harness.fuzzing.running import Area, FaultError
from seatrial.harness.fuzzing.values import json_values, mutated, texts
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request

_ALL: Final = (*OBJECTS, CUSTOM)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
_SUBRESOURCES: Final = (
    "status",
    "scale",
    "binding",
    "eviction",
    "log",
    "exec",
    "attach",
    "portforward",
    "token",
    "finalize",
    "approval",
    "ephemeralcontainers",
    "resize",
    "proxy",
)
_ACCEPTS: Final = (
    "",
    "application/json",
    "application/yaml",
    "*/*",
    "text/html",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
)
_PARAMETERS: Final = {
    "labelSelector": (
        "app=x",
        "a in (b,c)",
        "!a",
        "a=b=c",
        "a in (",
        ",",
        "a notin (b)",
        "a>1",
        "",
        "a>" + "9" * 30,
        "a," * 60,
        "\u00b2",
    ),
    "fieldSelector": (
        "metadata.name=x",
        "spec.nodeName=",
        "status.phase!=Running",
        "x",
        "a.b.c=d",
        "spec.nodeName",
        " " * 60,
        "metadata.name=\\",
    ),
    "limit": ("1", "0", "-1", "a", "9" * 30),
    "continue": ("a", "eyJ2IjoibWV0YSJ9", "", "e30", "W10"),
    "resourceVersion": ("0", "1", "-1", "a", "9" * 30, ""),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "watch": ("1", "true", "0", "x"),
    "timeout": ("1s", "", "x", "0" * 60 + "x", "1" * 60, "1h1"),
    "timeoutSeconds": ("0", "1", "a", "-1", "9" * 30),
    "allowWatchBookmarks": ("true", "x"),
    "sendInitialEvents": ("true", "false", "x"),
    "fieldManager": ("a", "", "x" * 200, "\x00"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("true", "false", "x"),
    "dryRun": ("All", "x", ""),
    "propagationPolicy": ("Foreground", "Orphan", "Background", "x"),
    "gracePeriodSeconds": ("0", "-1", "a", "9" * 30, "4611686018427387904", "\u00b2"),
    "pretty": ("true",),
    "includeObject": ("None", "Object", "Metadata", "x"),
    "container": ("main", "x"),
    "tailLines": ("1", "-1", "a"),
    "sinceSeconds": ("1", "a", "-5"),
    "sinceTime": ("2026-01-01T00:00:00Z", "x"),
    "command": ("ls",),
    "stdin": ("true",),
    "verbose": ("",),
}


class _Reader:
    """Reads a watch and discards it."""

    def feed(self, _data: bytes) -> bool:
        return True

    def end(self) -> None:
        """Nothing is left to do."""


def _raised(error: BaseException, method: str, path: str) -> ApiStatusError:
    """Instead of a log line and a 500: the traceback belongs to the report."""
    del method, path
    raise error


def fresh_server() -> tuple[SimClock, ApiServer]:
    """A server in virtual time that raises its own faults."""
    clock = SimClock()
    server = build_server(clock)
    server.fault = _raised  # type: ignore[method-assign]
    clock.settle()
    return clock, server


class _Session:
    """A fresh server, and requests whose answers are checked."""

    def __init__(self) -> None:
        self.clock, self.server = fresh_server()

    def send(self, request: Request) -> int:
        """Carry out a request, then the controllers. Returns the code.

        Raises:
            FaultError: the answer is a 5xx.
            Exception: a fault of the server or of a controller.
        """
        response = self.server.handle(request)
        if isinstance(response, Streaming):
            response.start(_Reader())
            code = 200
        else:
            code = response.code
            if code >= 500 and not _is_meant(code, response.body):
                raise FaultError(f"{request.method} {request.path}: {code} {response.body[:300]!r}")
        self.clock.settle()
        self.clock.advance(2)
        return code


def _is_meant(code: int, body: bytes) -> bool:
    """Whether the answer is upstream's: a webhook or proxy that cannot be reached, a version that is not there."""
    known = (
        b"failed calling webhook",
        b"conversion webhook",
        b"is not supported by this server",
        b"no endpoints",
        b"Too large resource version",
    )
    return code in {500, 501, 503, 504} and any(text in body for text in known) and b"fault " not in body


def _as_request(method: str, path: str, body: Any, kind: str = JSON, headers: dict[str, str] | None = None) -> Request:
    return Request(method, path, b"" if body is None else orjson.dumps(body), kind, headers or {})


def _encodable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@st.composite
def _queries(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(sorted(_PARAMETERS)), max_size=4, unique=True))
    results = [(name, draw(st.one_of(st.sampled_from(_PARAMETERS[name]), texts))) for name in names]
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in results)
    return f"?{text}" if text else ""


@st.composite
def _paths(draw: st.DrawFn) -> str:
    where, _ = draw(st.sampled_from(_ALL))
    path = where
    if draw(st.booleans()):
        path += "/" + draw(st.one_of(st.sampled_from(["x", "default", "a%2Fb", "%", "%zz", "", "."]), texts.map(quote)))
        if draw(st.booleans()):
            path += "/" + draw(st.sampled_from(_SUBRESOURCES))
    if draw(st.integers(0, 9)) == 0:
        parts = path.split("/")
        parts[draw(st.integers(0, len(parts) - 1))] = quote(draw(texts), safe="")
        path = "/".join(parts)
    if draw(st.integers(0, 19)) == 0:
        path = draw(
            st.sampled_from(
                [
                    "/",
                    "",
                    "/api",
                    "/apis",
                    "/openapi/v2",
                    "/openapi/v3/api/v1",
                    "/version",
                    "/metrics",
                    "/apis/x.io",
                    "/apis/apps/v1",
                    "//",
                    "/api/v1/watch/pods",
                    "/readyz/ping",
                ]
            )
        )
    return path


def _run_requests(values: tuple[Any, list[tuple[str, str, Any, str, str]]]) -> None:
    first, requests = values
    session = _Session()
    session.send(_as_request("POST", OBJECTS[-6][0], OBJECTS[-6][1]))
    where, body = first
    session.send(_as_request("POST", where, body))
    for method, path, value, kind, accept in requests:
        if _encodable(value):
            session.send(_as_request(method, path, value, kind, {"accept": accept} if accept else {}))


_requests = st.tuples(
    st.sampled_from(_METHODS),
    st.tuples(_paths(), _queries()).map("".join),
    st.one_of(st.none(), json_values, mutated([body for _, body in _ALL])),
    st.sampled_from((JSON, "application/yaml", "", "text/plain", *_PATCHES)),
    st.sampled_from(_ACCEPTS),
)


@st.composite
def _objects(draw: st.DrawFn) -> tuple[str, Any, Any]:
    where, body = draw(st.sampled_from(_ALL))
    return where, draw(mutated([body])), draw(mutated([body]))


def _run_objects(values: tuple[str, Any, Any]) -> None:
    """Create, replace, read in all formats, and delete an object."""
    where, first, second = values
    if not (_encodable(first) and _encodable(second)):
        return
    session = _Session()
    if where == CUSTOM[0]:
        session.send(_as_request("POST", *_DEFINITION))
    session.send(_as_request("POST", where, first))
    metadata = first.get("metadata") if isinstance(first, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    one = f"{where}/{quote(name if isinstance(name, str) and name else 'x', safe='')}"
    session.send(_as_request("PUT", one, second))
    for accept in _ACCEPTS[:4] + _ACCEPTS[5:8]:
        session.send(_as_request("GET", where, None, headers={"accept": accept} if accept else {}))
    session.send(_as_request("GET", f"{where}?watch=1", None))
    session.clock.advance(60)
    session.send(_as_request("DELETE", one, None))
    session.clock.advance(60)


_DEFINITION: Final = next(pair for pair in OBJECTS if pair[1]["kind"] == "CustomResourceDefinition")
_pointers = st.lists(
    st.one_of(st.sampled_from(["spec", "metadata", "labels", "containers", "0", "-", "name", "a~1b", "~"]), texts),
    max_size=4,
).map(lambda parts: "".join(f"/{part}" for part in parts))
_json_patches = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": _pointers},
            optional={"value": json_values, "from": _pointers},
        ),
        json_values,
    ),
    max_size=4,
)
_DIRECTIVES: Final = (
    {"$patch": "replace"},
    {"$patch": "delete"},
    {"$retainKeys": ["a"]},
    {"$setElementOrder/containers": [{"name": "x"}]},
    {"$deleteFromPrimitiveList/finalizers": ["a"]},
    {"$patch": "x"},
)


@st.composite
def _patches(draw: st.DrawFn) -> tuple[str, Any, list[tuple[str, Any, str]]]:
    where, body = draw(st.sampled_from(_ALL))
    patches = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(_PATCHES))
        if kind == JSON_PATCH:
            patch: Any = draw(_json_patches)
        else:
            patch = draw(st.one_of(mutated([body]), json_values))
            if isinstance(patch, dict) and draw(st.booleans()):
                at = draw(st.sampled_from([patch, *[part for part in patch.values() if isinstance(part, dict)]]))
                at.update(draw(st.sampled_from(_DIRECTIVES)))
        subresource = draw(st.sampled_from(["", "", "", "/status", "/scale"]))
        query = draw(_queries())
        manager = "fieldManager=fuzz" if kind == APPLY_PATCH and "fieldManager" not in query else ""
        joined = f"{query}{'&' if query else '?'}{manager}" if manager else query
        patches.append((f"{subresource}{joined}", patch, kind))
    return where, body, patches


def _run_patches(values: tuple[str, Any, list[tuple[str, Any, str]]]) -> None:
    where, body, patches = values
    session = _Session()
    if where == CUSTOM[0]:
        session.send(_as_request("POST", *_DEFINITION))
    session.send(_as_request("POST", where, body))
    for rest, patch, kind in patches:
        if _encodable(patch):
            session.send(_as_request("PATCH", f"{where}/x{rest}", patch, kind))
    session.send(_as_request("GET", f"{where}/x", None, headers={"user-agent": "fuzz"}))


def _run_body(values: tuple[bytes, str]) -> None:
    try:
        document = bodies.decode(values[0], values[1], yaml_too=True, any_type=True)
    except ApiStatusError as refused:
        if refused.code >= 500:
            raise
        return
    orjson.dumps(document)


_yaml_pieces = st.lists(
    st.sampled_from(
        [
            "a: ",
            "- ",
            "\n",
            "  ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "&a ",
            "*a",
            "<<: ",
            "!!str ",
            "!!python/object ",
            "? ",
            ": ",
            "|\n",
            ">\n",
            "#",
            "'",
            '"',
            "---\n",
            "...\n",
            "0x1F",
            "1e999",
            ".inf",
            ".nan",
            "0o7",
            "~",
            "2026-01-01",
            "%YAML 1.1\n",
            "é",
        ]
    ),
    max_size=30,
).map("".join)
_documents = st.one_of(
    _yaml_pieces, mutated([body for _, body in OBJECTS]).map(yaml.safe_dump), st.text(max_size=60)
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@st.composite
def _protobuf(draw: st.DrawFn) -> bytes:
    kinds = [body for _, body in OBJECTS]
    body = draw(st.sampled_from(kinds))
    version, kind = body["apiVersion"].encode(), body["kind"].encode()
    meta = b"\x0a" + bytes([len(version)]) + version + b"\x12" + bytes([len(kind)]) + kind
    raw = draw(st.one_of(st.binary(max_size=80), _messages))
    unknown = b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + _varint(len(raw)) + raw
    return b"k8s\x00" + unknown + draw(st.binary(max_size=6))


def _varint(number: int) -> bytes:
    content = b""
    while number >= 128:
        content += bytes([number & 127 | 128])
        number >>= 7
    return content + bytes([number])


_messages = st.recursive(
    st.binary(max_size=12),
    lambda below: st.lists(st.tuples(st.integers(1, 12), below), max_size=4).map(
        lambda fields: b"".join(bytes([number << 3 | 2]) + _varint(len(data)) + data for number, data in fields)
    ),
    max_leaves=8,
)

_TEXTS: Final = tuple((number, path) for number, (_, body) in enumerate(_ALL) for path in text_paths(body))


def _cost_of(request: Callable[[str], Request]) -> Callable[[LongText], float]:
    """The processor time of a fresh server that answers a request with a text."""

    def cost(run: LongText) -> float:
        session, response = _Session(), request(text_of(run))
        return processor_time(lambda: session.send(response))

    return cost


def _run_text(values: tuple[tuple[int, Path], LongText]) -> None:
    (number, path), run = values
    where, body = _ALL[number]
    check_cost(run, _cost_of(lambda text: _as_request("POST", where, with_text(body, path, text))))


def _run_query(values: tuple[str, LongText]) -> None:
    name, run = values
    if len(quote(text_of(run), safe="")) > HEADERS_LIMIT:
        return  # the connection refuses it
    check_cost(
        run, _cost_of(lambda text: Request("GET", f"{OBJECTS[0][0]}?{name}={quote(text, safe='')}", b"", JSON, {}))
    )


API_AREAS: Final = (
    Area("texts", "long texts in objects", st.tuples(st.sampled_from(_TEXTS), long_texts), _run_text),
    Area(
        "query-texts",
        "long query parameters",
        st.tuples(st.sampled_from([*_PARAMETERS, "timeout"]), long_texts),
        _run_query,
    ),
    Area(
        "requests",
        "methods, paths, query parameters, media types",
        st.tuples(st.sampled_from(_ALL), st.lists(_requests, min_size=1, max_size=3)),
        _run_requests,
    ),
    Area("objects", "objects of 40 kinds with random changes", _objects(), _run_objects),
    Area("patches", "JSON, merge, strategic merge and apply patches", _patches(), _run_patches),
    Area("yaml", "YAML bodies", st.tuples(_documents, st.just("application/yaml")), _run_body),
    Area("json", "JSON bodies", st.tuples(st.binary(max_size=60), st.just(JSON)), _run_body),
    Area("protobuf", "protocol buffers", st.tuples(_protobuf(), st.just(decoding.CONTENT_TYPE)), _run_body),
)
