"""The in-process transport: for clients that share the server's process and clock. No sockets, no threads."""

from typing import Self

from seatrial.harness.apiserver.access.identity import ADMIN, Identity
from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.streams.responses import Closable, Streaming
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream


class InProcessTransport:
    """Sends requests to the server. Responses are delivered by `clock.call_soon`, never from within the call."""

    def __init__(self, server: ApiServer, clock: Clock, identity: Identity = ADMIN) -> None:
        self._server, self._clock, self._identity = server, clock, identity

    def send(self, request: Request, done: Done) -> None:
        def finished(found: Response | Streaming) -> None:
            done(found if isinstance(found, Response) else Response(200))

        self._clock.call_soon(lambda: self._server.carry_out(request, self._identity, finished))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        return _Stream(self._clock, on_line, on_end).open(self._server, request, self._identity)

    def call(self, request: Request) -> Response:
        """The response at once, for callers outside of clock callbacks.

        The call cannot wait for a webhook in another process; the response is an error then.
        """
        try:
            found = self._server.handle(request, self._identity)
        except Pending as pending:
            return Response(pending.code, pending.encoded(), {"content-type": "application/json"})
        return found if isinstance(found, Response) else Response(200)


class _Stream(Stream):
    """A reader of a watch that passes lines on one by one."""

    def __init__(self, clock: Clock, on_line: OnLine, on_end: Done) -> None:
        self._clock, self._on_line, self._on_end = clock, on_line, on_end
        self._source: Closable | None = None
        self._closed = False

    def open(self, server: ApiServer, request: Request, identity: Identity) -> Self:
        def begin() -> None:
            if self._closed:
                return
            found = server.handle(request, identity)
            if isinstance(found, Streaming):
                self._source = found.start(self)
            else:
                self._on_end(found)

        self._clock.call_soon(begin)
        return self

    def feed(self, data: bytes) -> bool:
        lines = data.split(b"\n")
        self._clock.call_soon(lambda: self._pass_on(lines))
        return not self._closed

    def _pass_on(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._closed:
                return
            if line:
                self._on_line(line)

    def end(self) -> None:
        if not self._closed:
            self._clock.call_soon(lambda: None if self._closed else self._on_end(Response(200)))

    def close(self) -> None:
        self._closed = True
        if self._source is not None:
            self._source.close()
