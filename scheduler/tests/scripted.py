"""A transport that a test plays the API server of: it sees what was sent and says what comes back."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import create_autospec

from seatrial.scheduler.api.clock import Clock, SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream, Transport
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.framework.controllers import BindingResults, ControllerContext

Answer = Callable[[Request], Response]


def ok(body: Any = None, code: int = 200) -> Response:
    return Response(code, json.dumps(body or {}).encode())


def refused(code: int, reason: str, message: str) -> Response:
    return ok({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}, code)


@dataclass
class Watch(Stream):
    """A stream that the test feeds."""

    request: Request
    on_line: OnLine
    on_end: Done
    closed: bool = False

    def close(self) -> None:
        self.closed = True

    def event(self, kind: str, obj: Any) -> None:
        if not self.closed:
            self.on_line(json.dumps({"type": kind, "object": obj}).encode())

    def end(self, response: Response) -> None:
        if not self.closed:
            self.closed = True
            self.on_end(response)


@dataclass
class Scripted:
    """`answer` is asked for every request; streams are kept in the order in which they were opened."""

    clock: SimClock
    answer: Answer = lambda _: ok()
    sent: list[Request] = field(default_factory=list)
    streams: list[Watch] = field(default_factory=list)

    def send(self, request: Request, done: Done) -> None:
        self.sent.append(request)
        self.clock.call_soon(lambda: done(self.answer(request)))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Watch:
        watch = Watch(request, on_line, on_end)
        self.streams.append(watch)
        return watch

    def bodies(self, method: str, part: str = "") -> list[Any]:
        """What was sent by that method to paths with `part` in them."""
        return [json.loads(r.body or b"{}") for r in self.sent if r.method == method and part in r.path]


def context_of(transport: Transport, clock: Clock) -> ControllerContext:
    """What a controller writes with, to this transport."""
    rest, results = Rest(transport, clock), create_autospec(BindingResults)
    return ControllerContext(rest, clock, EventRecorder(rest, clock, "scheduler", "host"), results, lambda: None)
