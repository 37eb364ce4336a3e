"""SPDY/3.1 as a session: streams that the client opens, numbered and with headers."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from harness.apiserver.streams import spdy

log = logging.getLogger(__name__)

MAX_STREAMS = 1024  # open at a time; one that is open in one direction counts half
_PIECE = 64 * 1024  # bytes of one DATA frame of ours


class Listener(Protocol):
    """What the streams are for."""

    def opened(self, stream: int, headers: Mapping[str, str]) -> bool:
        """The client opens a stream; False: nobody wants it."""

    def heard(self, stream: int, data: bytes) -> None:
        """It says something on a stream that was accepted."""

    def ended(self, stream: int) -> None:
        """It has said all on a stream."""

    def dropped(self, stream: int) -> None:
        """It wants no more of a stream, in either direction."""


class Streams:
    """The streams of one connection, over whatever carries bytes."""

    def __init__(self, listener: Listener, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self._listener, self._write, self._close = listener, write, close
        self._reader, self._writer = spdy.Reader(), spdy.Writer()
        self._heard_from: set[int] = set()  # streams on which the client may still speak
        self._speaking: set[int] = set()  # streams on which we may
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
            log.info("spdy broken why=%s", fault)
            self._write(spdy.go_away(self._last, spdy.PROTOCOL_ERROR))
            self._open = False
            self._close()

    def send(self, stream: int, data: bytes) -> None:
        """Say something; nothing where the client wants no more."""
        if stream in self._speaking:
            for at in range(0, len(data), _PIECE):
                self._write(spdy.data(stream, data[at : at + _PIECE]))

    def end(self, stream: int) -> None:
        """Say no more on a stream."""
        if stream in self._speaking:
            self._speaking.discard(stream)
            self._write(spdy.data(stream, b"", fin=True))

    def drop(self, stream: int) -> None:
        """Be done with a stream, whatever the client would still say."""
        self.end(stream)
        self._heard_from.discard(stream)

    def _take(self, frame: spdy.Frame) -> None:
        stream = frame.stream
        match frame.kind:
            case spdy.SYN_STREAM:
                self._begin(frame)
            case spdy.DATA:
                if stream not in self._heard_from:
                    return  # what was on its way when we were done with it
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
                if frame.number % 2:  # the client's own; even ones would be answers to ours
                    self._write(spdy.ping(frame.number))
            case _:
                pass  # settings and windows; and who goes away closes the connection as well

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
