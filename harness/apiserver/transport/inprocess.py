"""The in-process transport: for clients that share the server's process and clock. No sockets, no threads."""

from functools import partial
from typing import Self
from weakref import WeakValueDictionary

from seatrial.harness.apiserver.access.identity import ADMIN, Identity
from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.streams.responses import Closable, Streaming
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream

NO_ANSWER = Response(0, b"connection refused")


class InProcessTransport:
    """Sends requests to the server. Responses are delivered by `clock.call_soon`, never from within the call."""

    def __init__(self, server: ApiServer, clock: Clock, identity: Identity = ADMIN) -> None:
        self._server, self._clock, self._identity = server, clock, identity
        self._streams: WeakValueDictionary[int, _Stream] = WeakValueDictionary()  # in the order of their beginning
        self._opened = 0
        self._ended = False

    def end_server(self) -> None:
        """The server is gone: streams break, and requests on their way and new ones get no answer."""
        self._ended = True
        for stream in list(self._streams.values()):
            stream.broken()

    def start_server(self) -> None:
        """The server is back, with its objects and without its history of changes."""
        self._ended = False
        self._server.store.forget_history()

    def send(self, request: Request, done: Done) -> None:
        def finished(result: Response | Streaming) -> None:
            done(result if isinstance(result, Response) else Response(200))

        def arrived() -> None:
            if self._ended:
                done(NO_ANSWER)
            else:
                self._server.carry_out(request, self._identity, finished)

        self._clock.call_soon(arrived)

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        stream = _Stream(self._clock, on_line, on_end)
        self._opened += 1
        self._streams[self._opened] = stream
        if self._ended:
            self._clock.call_soon(stream.broken)
            return stream
        return stream.open(self._server, request, self._identity)

    def call(self, request: Request) -> Response:
        """The response at once, for callers outside of clock callbacks.

        The call cannot wait for a webhook in another process; the response is an error then.
        """
        if self._ended:
            return NO_ANSWER
        try:
            response = self._server.handle(request, self._identity)
        except Pending as pending:
            return Response(pending.code, pending.encoded(), {"content-type": "application/json"})
        return response if isinstance(response, Response) else Response(200)


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
            response = server.handle(request, identity)
            if isinstance(response, Streaming):
                self._source = response.start(self)
            else:
                self._on_end(response)

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
                self._clock.run(partial(self._on_line, line))

    def end(self) -> None:
        if not self._closed:
            self._clock.call_soon(lambda: None if self._closed else self._on_end(Response(200)))

    def broken(self) -> None:
        """The connection is gone; what was sent and not yet read is lost."""
        if not self._closed:
            self.close()
            self._on_end(NO_ANSWER)

    def close(self) -> None:
        self._closed = True
        if self._source is not None:
            self._source.close()
