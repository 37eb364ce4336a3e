"""A cluster behind a kubeconfig: synchronous calls, and streams whose lines are handed over where the caller waits.

Reader threads only put lines into a queue. Everything else (callbacks of streams, timers) runs in the thread that
calls `wait` or `call`, so that recorders and tests need no locks.
"""

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import urllib3

from seatrial.harness.clusters.kubeconfig import Access
from seatrial.harness.clusters.protocol import Cluster, Endpoint
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.clock import Action, Clock, Timer
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream

POLL = 0.02  # seconds between two looks
ANSWER_WITHIN = 60.0


class Handover(Protocol):
    """What runs callbacks: `hand_over` may be called from any thread."""

    def hand_over(self, action: Action) -> None: ...
    def call_soon(self, action: Action) -> object: ...


class PumpedClock(Clock):
    """Real time; planned actions run when `pump` is called."""

    def __init__(self) -> None:
        super().__init__(Faults(raises=True))  # it runs in the thread of a test, which must see them
        self._planned: list[tuple[float, int, _Planned]] = []
        self._order = itertools.count()
        self._soon: queue.SimpleQueue[Action] = queue.SimpleQueue()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, action: Action) -> Timer:
        planned = _Planned(action)
        heapq.heappush(self._planned, (time.monotonic() + max(0.0, delay), next(self._order), planned))
        return planned

    def hand_over(self, action: Action) -> None:
        """From any thread: run `action` at the next pump."""
        self._soon.put(action)

    def pump(self) -> None:
        """Run what is due."""
        while not self._soon.empty():
            self._soon.get()()
        now = time.monotonic()
        while self._planned and self._planned[0][0] <= now:
            heapq.heappop(self._planned)[2].run()


class _Planned:
    __slots__ = ("_action",)

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action

    def cancel(self) -> None:
        self._action = None

    def run(self) -> None:
        if self._action is not None:
            self._action()


class RemoteTransport:
    """A Transport over urllib3; see the module's docstring for who runs what."""

    def __init__(self, access: Access, clock: Handover, *, connections: int = 8) -> None:
        self._access, self._clock = access, clock
        self._pool = access.pool(connections=connections)
        self._streams: set[_Stream] = set()

    def call(self, request: Request) -> Response:
        """
        Raises:
            ClusterError: no answer came.
        """
        try:
            answer = self._pool.request(
                request.method,
                self._access.url + request.path,
                body=request.body or None,
                headers=self._headers(request),
                timeout=urllib3.Timeout(connect=10.0, read=ANSWER_WITHIN),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"{self._access.url}: no answer to {request.method} {request.path}: {error}") from error
        return Response(answer.status, answer.data, {name.lower(): value for name, value in answer.headers.items()})

    def send(self, request: Request, done: Done) -> None:
        try:
            response = self.call(request)
        except ClusterError as error:
            response = Response(0, str(error).encode())
        self._clock.call_soon(lambda: done(response))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        stream = _Stream(self._access, self._headers(request), request, self._clock, on_line, on_end)
        self._streams.add(stream)
        stream.start()
        return stream

    def _headers(self, request: Request) -> dict[str, str]:
        # Without a name of its own: the embedded server spares who has none what costs time and is not read here.
        headers = {
            "accept": "application/json",
            "user-agent": urllib3.util.SKIP_HEADER,
            **self._access.headers,
            **request.headers,
        }
        if request.body:
            headers["content-type"] = request.content_type
        return headers

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        self._pool.clear()


class _Stream(Stream):
    """One watch, read by a thread of its own."""

    def __init__(  # noqa: PLR0917
        self, access: Access, headers: dict[str, str], request: Request, clock: Handover, on_line: OnLine, on_end: Done
    ) -> None:
        self._access, self._headers, self._request, self._clock = access, headers, request, clock
        self._on_line, self._on_end = on_line, on_end
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._closed = False

    def start(self) -> None:
        threading.Thread(target=self._read, daemon=True, name="watch").start()

    def close(self) -> None:
        self._closed = True
        if self._answer is not None:
            # close() alone would wait for the lock that the reading thread holds; shutdown() wakes it up.
            shutdown: Any = getattr(self._answer, "shutdown", None)
            if shutdown is not None:
                try:
                    shutdown()
                except (OSError, ValueError, RuntimeError):
                    return  # it has ended by itself

    def _read(self) -> None:
        pool = self._access.pool(connections=1)
        rest = b""
        try:
            answer = pool.request(
                self._request.method,
                self._access.url + self._request.path,
                headers=self._headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=10.0, read=None),
                retries=False,
            )
            self._answer = answer
            if answer.status != 200:
                self._end(Response(answer.status, answer.data))
                return
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                if self._closed:
                    return
                for line in lines:
                    if line:
                        self._clock.hand_over(lambda line=line: self._line(line))  # type: ignore[misc]
            self._end(Response(200))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._end(Response(0, str(error).encode()))
        finally:
            pool.clear()

    def _line(self, line: bytes) -> None:
        if not self._closed:
            self._on_line(line)

    def _end(self, response: Response) -> None:
        self._clock.hand_over(lambda: None if self._closed else self._on_end(response))


class RemoteCluster(Cluster):
    """What all clusters behind a kubeconfig share."""

    def __init__(self, name: str, access: Access, kubeconfig: Path) -> None:
        self.name = name
        self.clock: PumpedClock = PumpedClock()
        self.endpoint = Endpoint(access.url, kubeconfig)
        self._transport = RemoteTransport(access, self.clock)

    @property
    def transport(self) -> RemoteTransport:
        return self._transport

    def call(self, request: Request) -> Response:
        self.clock.pump()
        return self._transport.call(request)

    def wait(self, until: Callable[[], bool], *, within: float) -> bool:
        deadline = time.monotonic() + within
        while True:
            self.clock.pump()
            if until():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL)

    def close(self) -> None:
        self._transport.close()
