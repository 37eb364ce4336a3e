"""portforward: connections to ports of a pod, over WebSocket channels, SPDY, or SPDY tunnelled in a WebSocket."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from seatrial.harness.apiserver.conversation import ConversationError, Pipe
from seatrial.harness.apiserver.streams.line import Inlet, Line
from seatrial.harness.apiserver.streams.multiplexing import Streams
from seatrial.harness.apiserver.streams.sockets import Channels, Tunnel

log = logging.getLogger(__name__)

MAX_PORTS: Final = 127  # ports of one WebSocket, which uses two channels for each
PAIR_WITHIN: Final = 30.0  # seconds within which both streams of a connection must be opened

Dial = Callable[[int], Awaitable[Pipe]]


async def carry(
    dial: Awaitable[Pipe], inlet: Inlet, send: Callable[[bytes], None], room: Callable[[], Awaitable[None]]
) -> str:
    """Carry one connection to its end. Returns the error, or an empty text."""
    try:
        pipe = await dial
    except (ConversationError, OSError) as error:
        inlet.shut()
        return str(error)

    async def feed() -> None:
        try:
            while data := await inlet.take():
                await pipe.write(data)
            pipe.end_input()
        except OSError:
            inlet.shut()  # the program reads no more; its output is still read to the end

    feeding = asyncio.create_task(feed())
    try:
        while data := await pipe.read():
            send(data)
            await room()
    except OSError as error:
        return str(error)
    finally:
        feeding.cancel()
        inlet.shut()
        pipe.close()
    return ""


class _Tasks:
    """The running tasks of one client."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel()


class ForwardingByChannels:
    """portforward over WebSocket channels: a data and an error channel for each port of the request."""

    def __init__(self, line: Line, dial: Dial, ports: list[int]) -> None:
        self._line, self._dial = line, dial
        self._tasks = _Tasks()
        self._channels = Channels(line, self._heard, self._ended, self._tasks.cancel)
        self.received, self.lost = self._channels.received, self._channels.lost
        self._inlets = [Inlet(line) for _ in ports]
        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                self._channels.send(channel, port.to_bytes(2, "little"))
        self._tasks.begin(self._run(ports))

    async def _run(self, ports: list[int]) -> None:
        await asyncio.gather(*(self._forward(at, port) for at, port in enumerate(ports)))
        self._channels.close()

    async def _forward(self, at: int, port: int) -> None:
        def send(data: bytes) -> None:
            self._channels.send(2 * at, data)

        why = await carry(self._dial(port), self._inlets[at], send, self._line.room)
        if why:
            self._channels.send(2 * at + 1, _error_text(port, why))

    def _heard(self, channel: int, data: bytes) -> None:
        at, is_error = divmod(channel, 2)
        if not is_error and at < len(self._inlets):
            self._inlets[at].put(data)

    def _ended(self, channel: int) -> None:
        at, is_error = divmod(channel, 2)
        if not is_error and at < len(self._inlets):
            self._inlets[at].end()


@dataclass(slots=True)
class _Pair:
    """The two streams of one connection."""

    port: int
    inlet: Inlet
    timer: asyncio.TimerHandle
    data: int = 0
    error: int = 0
    task: "asyncio.Task[None] | None" = None


class ForwardingByStreams:
    """portforward over SPDY: the client opens a data and an error stream for each connection."""

    def __init__(self, line: Line, dial: Dial, *, tunnelled: bool) -> None:
        """`tunnelled`: SPDY frames are carried in WebSocket messages."""
        self._line, self._dial = line, dial
        self._tasks = _Tasks()
        self._pairs: dict[str, _Pair] = {}  # by request ID
        self._by_stream: dict[int, tuple[str, _Pair]] = {}
        if tunnelled:
            tunnel = Tunnel(line, self._received, self._gone)
            self._streams = Streams(self, tunnel.write, tunnel.close)
            self.received, self.lost = tunnel.received, tunnel.lost
        else:
            self._streams = Streams(self, line.write, line.close)
            self.received, self.lost = self._streams.received, self._gone

    def _received(self, data: bytes) -> None:
        self._streams.received(data)

    def _gone(self) -> None:
        self._tasks.cancel()
        for pair in self._pairs.values():
            pair.timer.cancel()
        self._pairs.clear()

    def opened(self, stream: int, headers: Mapping[str, str]) -> bool:
        """See `Listener`."""
        kind, port = headers.get("streamtype", ""), headers.get("port", "")
        if kind not in {"data", "error"} or not is_port(port):
            return False
        # Old clients send no request ID. They open the error stream, then the data stream.
        id_ = headers.get("requestid") or f"stream {stream if kind == 'error' else stream - 2}"
        pair = self._pairs.get(id_)
        if pair is None:
            timer = asyncio.get_running_loop().call_later(PAIR_WITHIN, self._drop, id_)
            pair = self._pairs[id_] = _Pair(int(port), Inlet(self._line), timer)
        if getattr(pair, kind) or pair.port != int(port):
            return False
        setattr(pair, kind, stream)
        self._by_stream[stream] = id_, pair
        if pair.data and pair.error:
            pair.timer.cancel()
            pair.task = self._tasks.begin(self._forward(id_, pair))
        return True

    def heard(self, stream: int, data: bytes) -> None:
        """See `Listener`."""
        _, pair = self._by_stream[stream]
        if stream == pair.data:
            pair.inlet.put(data)

    def ended(self, stream: int) -> None:
        """See `Listener`."""
        if stream in self._by_stream and stream == self._by_stream[stream][1].data:
            self._by_stream[stream][1].inlet.end()

    def dropped(self, stream: int) -> None:
        """See `Listener`."""
        if stream in self._by_stream:
            id_, pair = self._by_stream[stream]
            if pair.task is not None and stream == pair.data:
                pair.task.cancel()
            elif pair.task is None:
                self._drop(id_)

    async def _forward(self, id_: str, pair: _Pair) -> None:
        def send(data: bytes) -> None:
            self._streams.send(pair.data, data)

        try:
            why = await carry(self._dial(pair.port), pair.inlet, send, self._line.room)
            if why:
                self._streams.send(pair.error, _error_text(pair.port, why))
        finally:
            self._drop(id_)

    def _drop(self, id_: str) -> None:
        """Remove a connection that ended or was never complete."""
        pair = self._pairs.pop(id_, None)
        if pair is not None:
            pair.timer.cancel()
            pair.inlet.shut()
            for stream in (pair.error, pair.data):
                self._by_stream.pop(stream, None)
                self._streams.drop(stream)


def is_port(text: str) -> bool:
    """Whether the text is a valid port number."""
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 1 << 16


def _error_text(port: int, why: str) -> bytes:
    return f"error forwarding port {port}: {why}".encode()
