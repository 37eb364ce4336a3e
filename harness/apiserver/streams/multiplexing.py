"""SPDY/3.1 sessions: streams that the client opens."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from seatrial.harness.apiserver.streams import spdy

log = logging.getLogger(__name__)

MAX_STREAMS = 1024  # open at a time; half-closed streams count half
_PIECE = 64 * 1024  # bytes of one DATA frame that the server sends


class Listener(Protocol):
    """The user of the streams."""

    def opened(self, stream: int, headers: Mapping[str, str]) -> bool:
        """The client opens a stream; False refuses it."""

    def heard(self, stream: int, data: bytes) -> None:
        """The client sends data on an accepted stream."""

    def ended(self, stream: int) -> None:
        """The client has ended its direction of a stream."""

    def dropped(self, stream: int) -> None:
        """The client has reset a stream."""


class Streams:
    """The streams of one connection, over any byte stream."""

    def __init__(self, listener: Listener, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self._listener, self._write, self._close = listener, write, close
        self._reader, self._writer = spdy.Reader(), spdy.Writer()
        self._heard_from: set[int] = set()  # streams on which the client can send
        self._speaking: set[int] = set()  # streams on which the server can send
        self._last = 0
        self._open = True

    def received(self, data: bytes) -> None:
        """See `Session`."""
        if not self._open:
            return
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except spdy.Fault as fault:
            log.info("spdy closed why=%s", fault)
            self._write(spdy.go_away(self._last, spdy.PROTOCOL_ERROR))
            self._open = False
            self._close()

    def send(self, stream: int, data: bytes) -> None:
        """Send data; ignored if the stream is closed."""
        if stream in self._speaking:
            for at in range(0, len(data), _PIECE):
                self._write(spdy.data(stream, data[at : at + _PIECE]))

    def end(self, stream: int) -> None:
        """End the server's direction of a stream."""
        if stream in self._speaking:
            self._speaking.discard(stream)
            self._write(spdy.data(stream, b"", fin=True))

    def drop(self, stream: int) -> None:
        """End a stream and ignore further data from the client."""
        self.end(stream)
        self._heard_from.discard(stream)

    def _take(self, frame: spdy.Frame) -> None:
        stream = frame.stream
        match frame.kind:
            case spdy.SYN_STREAM:
                self._begin(frame)
            case spdy.DATA:
                if stream not in self._heard_from:
                    return  # was under way when the stream was dropped
                if frame.data:
                    self._listener.heard(stream, frame.data)
                if frame.fin:
                    self._end_of(stream)
            case spdy.HEADERS | spdy.SYN_REPLY:
                if frame.fin and stream in self._heard_from:
                    self._end_of(stream)
            case spdy.RST_STREAM:
                if stream in self._heard_from or stream in self._speaking:
                    self._heard_from.discard(stream)
                    self._speaking.discard(stream)
                    self._listener.dropped(stream)
            case spdy.PING:
                if frame.number % 2:  # odd IDs are the client's pings; even ones would be replies
                    self._write(spdy.ping(frame.number))
            case _:
                pass  # SETTINGS, WINDOW_UPDATE; after GOAWAY the client closes the connection

    def _begin(self, frame: spdy.Frame) -> None:
        stream = frame.stream
        if stream % 2 == 0 or stream <= self._last:
            raise spdy.Fault(f"stream {stream}: expected an odd number above {self._last}")
        self._last = stream
        if len(self._heard_from) + len(self._speaking) >= 2 * MAX_STREAMS:
            self._write(spdy.reset(stream, spdy.REFUSED_STREAM))
            return
        self._heard_from.add(stream)
        self._speaking.add(stream)
        if not self._listener.opened(stream, frame.headers):
            self._heard_from.discard(stream)
            self._speaking.discard(stream)
            self._write(spdy.reset(stream, spdy.REFUSED_STREAM))
            return
        self._write(self._writer.reply(stream, {}))
        if frame.fin:
            self._end_of(stream)

    def _end_of(self, stream: int) -> None:
        self._heard_from.discard(stream)
        self._listener.ended(stream)
