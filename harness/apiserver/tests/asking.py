"""A server on simulated time, with helpers for requests and watches."""

from typing import Any
from urllib.parse import quote

import orjson

from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.server import REQUEST, ApiServer
from seatrial.harness.apiserver.streams.responses import Closable, Streaming
from seatrial.scheduler.api.clock import Clock, SimClock
from seatrial.scheduler.api.transport import JSON, Request, Response

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/api/v1/namespaces/default/configmaps"


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod of one container; `spec` adds to it."""
    metadata: Object = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec}}


def config(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Object:
    return {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "data": data}


def bare_server(clock: Clock, *, history: int | None = None) -> ApiServer:
    """A server without controllers: only requests write."""
    server = ApiServer(clock, history=history)
    server.handle(Request("POST", "/api/v1/namespaces", orjson.dumps({"metadata": {"name": "default"}}), JSON))
    return server


class Lines:
    """A reader that keeps its lines and can report that it has fallen behind."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.ended = False
        self.refuses = False

    def feed(self, data: bytes) -> bool:
        if self.refuses:
            return False
        self.data.append(data)
        return True

    def end(self) -> None:
        self.ended = True

    def events(self) -> list[Object]:
        return [orjson.loads(line) for line in b"".join(self.data).splitlines()]

    def short(self) -> list[str]:
        """The events in short form: `ADDED a`, `MODIFIED a`, `BOOKMARK`."""
        return [
            f"{event['type']} {event['object']['metadata'].get('name', '')}".strip()
            if event["type"] != "ERROR"
            else f"ERROR {event['object']['code']}"
            for event in self.events()
        ]


class Watch:
    """A watch with the events received so far."""

    def __init__(self, clock: SimClock, reader: Lines, source: Closable) -> None:
        self._clock, self.reader, self.source = clock, reader, source

    def short(self) -> list[str]:
        self._clock.settle()
        return self.reader.short()

    def events(self) -> list[Object]:
        self._clock.settle()
        return self.reader.events()


class Api:
    """Requests to one server."""

    def __init__(self, *, history: int | None = None, bare: bool = False) -> None:
        self.clock = SimClock()
        make = bare_server if bare else build_server
        self.server = make(self.clock, history=history)
        self.clock.settle()

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = JSON, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Code and decoded body of the response, after controllers have run."""
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        response = self.server.handle(Request(method, path, data, kind, headers or {}))
        assert isinstance(response, Response)
        self.clock.settle()
        assert not self.server.clock.faults.counts[REQUEST], response.body
        if not response.body:
            return response.code, None
        return response.code, orjson.loads(response.body)

    def do(self, method: str, path: str, body: Any = None, kind: str = JSON) -> Any:
        """The body of a response that must be a success."""
        code, answer = self.ask(method, path, body, kind)
        assert code < 300, answer
        return answer

    def watch(self, path: str, **query: str) -> Watch:
        """Start a watch; an error response is raised."""
        text = "&".join(f"{name}={quote(value)}" for name, value in {"watch": "1", **query}.items())
        response = self.server.handle(Request("GET", f"{path}?{text}"))
        if isinstance(response, Response):
            status = orjson.loads(response.body)
            raise ApiStatusError(status["code"], status["reason"], status["message"])
        assert isinstance(response, Streaming)
        reader = Lines()
        return Watch(self.clock, reader, response.start(reader))

    @property
    def version(self) -> int:
        return self.server.store.version
