"""The server side of WebSocket (RFC 6455): handshake, frame parser and encoder.

The content of a frame is passed on in the pieces in which it arrives, so large frames need no memory.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from seatrial.harness.apiserver import errors

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, TOO_BIG, BROKEN = 1000, 1002, 1009, 1011
MAX_FRAME: Final = 32 << 20  # bytes of one frame
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_LARGEST = 125


class Fault(Exception):
    """The client violates the protocol. `code` is sent in the close frame."""

    def __init__(self, code: int, why: str) -> None:
        self.code, self.why = code, why
        super().__init__(why)


class Piece(NamedTuple):
    """A part of a message. Control frames (close, ping, pong) are always complete."""

    kind: int  # TEXT, BINARY, CLOSE, PING or PONG
    data: bytes
    first: bool  # of its message
    last: bool


def handshake(headers: Mapping[str, str], protocols: tuple[str, ...]) -> dict[str, str]:
    """The headers of the 101 response. Selects the first of `protocols` that the client offers.

    Raises:
        ApiStatusError: 400, not a WebSocket request, or no common protocol.
    """
    key = headers.get("sec-websocket-key", "")
    if headers.get("upgrade", "").lower() != "websocket" or not key:
        raise errors.bad_request("Upgrade request required: expected a WebSocket or SPDY/3.1")
    if headers.get("sec-websocket-version", "13") != "13":
        raise errors.bad_request(f"sec-websocket-version: expected 13, found {headers['sec-websocket-version']!r}")
    offered = [protocol.strip() for protocol in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((protocol for protocol in protocols if protocol in offered), None)
    if chosen is None:
        raise errors.bad_request(f"sec-websocket-protocol: expected one of {', '.join(protocols)}, found {offered}")
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-accept": base64.b64encode(digest).decode(),
        "sec-websocket-protocol": chosen,
    }


def frame(data: bytes, opcode: int = BINARY) -> bytes:
    """A message in one frame, unmasked as servers send it."""
    size = len(data)
    head = 0x80 | opcode
    if size < 126:
        return bytes((head, size)) + data
    if size < 1 << 16:
        return bytes((head, 126)) + size.to_bytes(2, "big") + data
    return bytes((head, 127)) + size.to_bytes(8, "big") + data


def closing(code: int, why: str = "") -> bytes:
    """A close frame."""
    return frame(code.to_bytes(2, "big") + why.encode()[: _CONTROL_LARGEST - 2], CLOSE)


class Reader:
    """Parses frames."""

    def __init__(self, largest: int = MAX_FRAME) -> None:
        self._largest = largest
        self._data, self._at = b"", 0  # received data, and the offset up to which it is parsed
        self._left = 0  # bytes missing of the current frame
        self._mask = b""
        self._opcode = self._kind = 0  # of the frame; of the message that it belongs to
        self._final = self._in_frame = self._in_message = self._begun = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Parse data. The caller exhausts the iterator before the next call.

        Raises:
            Fault: no client may send that. Feed no more then.
        """
        self._data = self._data[self._at :] + data
        self._at = 0
        while True:
            if not self._in_frame and not self._head():
                return
            there = len(self._data) - self._at
            if self._opcode >= CLOSE:
                if there < self._left:
                    return
                self._in_frame = False
                yield Piece(self._opcode, self._take(self._left), first=True, last=True)
                continue
            if self._left and not there:
                return
            piece = self._take(min(self._left, there))
            self._in_frame = self._left > 0
            first, last = not self._begun, self._final and not self._in_frame
            self._begun = not last
            if last:
                self._in_message = False
            yield Piece(self._kind, piece, first, last)

    def _head(self) -> bool:
        """Read the head of a frame; False until it is complete."""
        data, at = self._data, self._at
        if len(data) < at + 2:
            return False
        self._check_head(data[at], data[at + 1])
        size = data[at + 1] & 0x7F
        width = {126: 2, 127: 8}.get(size, 0)
        at += 2 + width
        if len(data) < at + 4:
            return False
        if width:
            size = int.from_bytes(data[at - width : at], "big")
        if size > self._largest:
            raise Fault(TOO_BIG, f"a frame of {size} bytes: expected {self._largest} at most")
        first = data[self._at]
        self._opcode, self._left, self._in_frame = first & 0x0F, size, True
        self._mask, self._at = data[at : at + 4], at + 4
        if self._opcode < CLOSE:
            self._final = bool(first & 0x80)
            self._in_message = True
            self._kind = self._opcode or self._kind
        return True

    def _check_head(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise Fault(PROTOCOL_ERROR, "reserved bits are set, and no extension was agreed on")
        if opcode not in {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}:
            raise Fault(PROTOCOL_ERROR, f"opcode {opcode} is unknown")
        if not second & 0x80:
            raise Fault(PROTOCOL_ERROR, "expected a masked frame, found an unmasked one")
        if opcode >= CLOSE and (not first & 0x80 or second & 0x7F > _CONTROL_LARGEST):
            raise Fault(PROTOCOL_ERROR, "a control frame is fragmented or longer than 125 bytes")
        if opcode == CONTINUATION and not self._in_message:
            raise Fault(PROTOCOL_ERROR, "a continuation frame without a message")
        if opcode in {TEXT, BINARY} and self._in_message:
            raise Fault(PROTOCOL_ERROR, "a new message before the end of the previous one")

    def _take(self, size: int) -> bytes:
        """The next bytes of the frame, unmasked."""
        data = self._data[self._at : self._at + size]
        self._at += size
        self._left -= size
        mask, turn = self._mask, size % 4
        self._mask = mask[turn:] + mask[:turn]
        whole = (mask * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")).to_bytes(size, "little")
