"""Writes a watch to a socket: lines as HTTP chunks. A client that does not read is cut off."""

import asyncio
import logging
import math
from typing import Protocol

from seatrial.harness.apiserver.storage.watch import fell_behind
from seatrial.harness.apiserver.streams.responses import Closable

log = logging.getLogger(__name__)

SLOW_READER = 8 * 1024 * 1024  # bytes of one watch that may be buffered before its client is cut off
GATHER = 0.002  # seconds over which lines of a busy watch are batched: one TLS record and one system call


class Ended(Protocol):
    """Called when the stream has ended; `orderly` is False if the connection was cut off."""

    def __call__(self, *, orderly: bool) -> None: ...


class WatchWriter:
    """A `Reader` that writes lines as chunks: the first line after a pause at once, then a batch every `GATHER`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, on_end: Ended, *, protobuf: bool = False
    ) -> None:
        self._loop, self._transport, self._on_end = loop, transport, on_end
        self._source: Closable | None = None
        self._open, self._protobuf = True, protobuf
        self._orderly = True
        self._allowed = SLOW_READER
        self._gathered: list[bytes] = []
        self._written = -math.inf  # loop time
        self._planned: asyncio.TimerHandle | None = None

    def follow(self, source: Closable) -> None:
        self._source = source
        # The initial list may exceed SLOW_READER; that alone does not make the client slow.
        self._allowed = SLOW_READER + self._transport.get_write_buffer_size()
        if not self._open:
            source.close()

    def feed(self, data: bytes) -> bool:
        transport = self._transport
        if not self._open or transport.is_closing():
            return False
        if self._source is None:  # the initial list
            self._chunk(data)
            return True
        self._gathered.append(data)
        if self._planned is not None:
            return True
        now = self._loop.time()
        if now - self._written < GATHER:
            self._planned = self._loop.call_at(self._written + GATHER, self._flush)
            return True
        self._written = now
        return self._write_out()

    def _flush(self) -> None:
        self._planned = None
        self._written = self._loop.time()
        if self._open and not self._transport.is_closing() and not self._write_out():
            self.end()
            if self._source is not None:
                self._source.close()

    def _write_out(self) -> bool:
        """Write the batch; False: the client is too slow and was sent an error."""
        waiting = self._transport.get_write_buffer_size()
        gathered, self._gathered = self._gathered, []
        if waiting > self._allowed:
            log.warning("watch cut-off why=reader-too-slow bytes=%d", waiting)
            self._chunk(fell_behind(protobuf=self._protobuf))
            self._orderly = False
            return False
        if waiting < SLOW_READER:
            self._allowed = SLOW_READER
        if gathered:
            self._chunk(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        return True

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        if not self._open:
            return
        if self._gathered and not self._transport.is_closing():
            self._write_out()
        self._stop()
        if not self._transport.is_closing():
            self._transport.write(b"0\r\n\r\n")
            self._on_end(orderly=self._orderly)

    def gone(self) -> None:
        self._stop()
        if self._source is not None:
            self._source.close()

    def _stop(self) -> None:
        self._open = False
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
