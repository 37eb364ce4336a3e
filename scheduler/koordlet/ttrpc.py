"""Bytes of NRI's connection: one socket carries two connections of ttrpc, one for the calls of each side.

Frames of the socket are those of containerd/nri `pkg/net/multiplex`: connection and size, then data. A message of ttrpc
has a header of ten bytes (size, stream, type, flags) and may be spread over frames.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

TO_PLUGIN, TO_RUNTIME = 1, 2  # connections, by who is called
REQUEST, RESPONSE = 1, 2  # types
LARGEST = 4 << 20  # bytes of a message
_FRAME, _HEADER = struct.Struct(">II"), struct.Struct(">IIBB")
_PIECE = 4096  # bytes of a frame that we write: Go's reader takes a frame whole, into a buffer of this size


class TtrpcError(ValueError):
    """The other side does not speak ttrpc."""


class Message(NamedTuple):
    """A message of one of the connections; the answer to a call has its stream."""

    connection: int
    stream: int
    type: int
    payload: bytes


def written(message: Message) -> bytes:
    """The bytes of a message."""
    data = _HEADER.pack(len(message.payload), message.stream, message.type, 0) + message.payload
    pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    return b"".join(_FRAME.pack(message.connection, len(piece)) + piece for piece in pieces)


class Reader:
    """Takes bytes as they come, and has messages as soon as they are whole."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._parts: dict[int, bytearray] = {TO_PLUGIN: bytearray(), TO_RUNTIME: bytearray()}

    def read(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes.

        Raises:
            TtrpcError: a message or a frame is too large.
        """
        self._bytes += data
        while len(self._bytes) >= _FRAME.size:
            connection, size = _FRAME.unpack_from(self._bytes)
            if size > LARGEST + _HEADER.size:
                raise TtrpcError(f"frame of {size} bytes: expected at most {LARGEST + _HEADER.size}")
            end = _FRAME.size + size
            if len(self._bytes) < end:
                return
            part = self._parts.get(connection)
            if part is not None:  # others are passed over, as the runtime does
                part += self._bytes[_FRAME.size : end]
            del self._bytes[:end]
            if part is not None:
                yield from self._messages(connection, part)

    @staticmethod
    def _messages(connection: int, part: bytearray) -> Iterator[Message]:
        while len(part) >= _HEADER.size:
            size, stream, kind, _ = _HEADER.unpack_from(part)
            if size > LARGEST:
                raise TtrpcError(f"message of {size} bytes: expected at most {LARGEST}")
            end = _HEADER.size + size
            if len(part) < end:
                return
            payload = bytes(part[_HEADER.size : end])
            del part[:end]
            yield Message(connection, stream, kind, payload)
