"""The server side of WebSocket (RFC 6455): the answer to the handshake, and frames, parsed and written by wsproto.

The content of a frame is passed on in the pieces in which it arrives, so large frames need no memory.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed
from wsproto.utilities import generate_accept_token

from seatrial.harness.apiserver import errors

_PARSED_AT_ONCE: Final = 4096  # bytes; wsproto copies what it has not parsed yet for each frame, and frames may be tiny


class Fault(Exception):
    """The client violates the protocol. `code` is sent in the close frame."""

    def __init__(self, code: int, why: str) -> None:
        self.code, self.why = code, why
        super().__init__(why)


class Piece(NamedTuple):
    """A part of a message. Control frames (close, ping, pong) are always complete, and a close frame has no data."""

    kind: Opcode  # TEXT, BINARY, CLOSE, PING or PONG
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
    return {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-accept": generate_accept_token(key.encode("latin-1", "replace")).decode(),
        "sec-websocket-protocol": chosen,
    }


class Frames:
    """Reads and writes the frames of one connection."""

    def __init__(self) -> None:
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._kind: Opcode | None = None  # of the message that has begun
        self.message, self.pong, self.closing = self._protocol.send_data, self._protocol.pong, self._protocol.close

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Parse data. The caller exhausts the iterator before the next call.

        Raises:
            Fault: no client may send that. Feed no more then.
        """
        for at in range(0, len(data), _PARSED_AT_ONCE):
            self._protocol.receive_bytes(data[at : at + _PARSED_AT_ONCE])
            try:
                yield from self._pieces()
            except ParseFailed as error:
                raise Fault(error.code, str(error)) from error

    def _pieces(self) -> Iterator[Piece]:
        for frame in self._protocol.received_frames():
            payload = frame.payload
            if frame.opcode is Opcode.CLOSE:
                yield Piece(frame.opcode, b"", first=True, last=True)
                continue
            content = payload.encode() if isinstance(payload, str) else bytes(cast("bytes", payload))
            if frame.opcode.iscontrol():
                yield Piece(frame.opcode, content, first=True, last=True)
                continue
            first, last = self._kind is None, frame.message_finished
            kind = self._kind or frame.opcode
            self._kind = None if last else kind
            yield Piece(kind, content, first, last)
