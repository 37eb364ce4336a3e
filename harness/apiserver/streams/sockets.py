"""WebSocket sessions: handles control frames and passes messages on."""

import logging
from collections.abc import Callable

from wsproto.frame_protocol import CloseReason, Opcode

from seatrial.harness.apiserver.streams.line import Line
from seatrial.harness.apiserver.streams.websocket import Fault, Frames, Piece

log = logging.getLogger(__name__)

LARGEST_SENT = 64 * 1024  # bytes of one frame that the server sends


class WebSocket:
    """The server side of a WebSocket."""

    def __init__(self, line: Line, heard: Callable[[Piece], None], gone: Callable[[], None]) -> None:
        """`heard` gets the pieces of messages; `gone` is called once when the connection is closed or lost."""
        self.line = line
        self._heard, self._gone = heard, gone
        self._frames = Frames()
        self._open = True

    def received(self, data: bytes) -> None:
        """See `Session`."""
        if not self._open:
            return
        try:
            for piece in self._frames.feed(data):
                if piece.kind is Opcode.PING:
                    if not self.line.stuck:  # a client that sends pings without reading must not fill the buffer
                        self.line.write(bytes(self._frames.pong(piece.data)))
                elif piece.kind is Opcode.CLOSE:
                    self.close()
                    return
                elif piece.kind is not Opcode.PONG:
                    self._heard(piece)
        except Fault as fault:
            log.info("websocket closed why=%s", fault.why)
            self.close(fault.code, fault.why)

    def send(self, data: bytes) -> None:
        """Send one message."""
        if self._open:
            self.line.write(bytes(self._frames.message(data)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, why: str = "") -> None:
        """Send a close frame and close the connection."""
        if self._open:
            self.line.write(bytes(self._frames.closing(code, why)))
            self.line.close()
            self.lost()

    def lost(self) -> None:
        """See `Session`."""
        if self._open:
            self._open = False
            self._gone()


class Tunnel:
    """A byte stream in the binary messages of a WebSocket, with the interface of `Line`."""

    def __init__(self, line: Line, received: Callable[[bytes], None], gone: Callable[[], None]) -> None:
        self._received = received
        self._socket = WebSocket(line, self._heard, gone)
        self.received, self.lost, self.close = self._socket.received, self._socket.lost, self._socket.close

    def write(self, data: bytes) -> None:
        """Send data in frames of limited length."""
        for at in range(0, len(data), LARGEST_SENT):
            self._socket.send(data[at : at + LARGEST_SENT])

    def _heard(self, piece: Piece) -> None:
        if piece.data:
            self._received(piece.data)


class Channels:
    """Channels of a WebSocket: the first byte of a message is its channel. In v5, 255 ends the channel that follows."""

    ENDS = 255

    def __init__(
        self, line: Line, heard: Callable[[int, bytes], None], ended: Callable[[int], None], gone: Callable[[], None]
    ) -> None:
        """`heard` gets data with its channel, `ended` each channel that the client ends; neither checks the number."""
        self._socket = WebSocket(line, self._piece, gone)
        self._heard, self._ended = heard, ended
        self._channel: int | None = None  # of the current message
        self.received, self.lost, self.close = self._socket.received, self._socket.lost, self._socket.close

    def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel. Empty data sends an empty message, which some clients wait for at the start."""
        head = bytes((channel,))
        for at in range(0, max(1, len(data)), LARGEST_SENT):
            self._socket.send(head + data[at : at + LARGEST_SENT])

    def _piece(self, piece: Piece) -> None:
        data = piece.data
        if piece.first:
            self._channel = None
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == self.ENDS:
            if len(data) > 1:
                raise Fault(CloseReason.PROTOCOL_ERROR, "channel 255: expected the number of one channel that ends")
            if data:
                self._ended(data[0])
        elif self._channel is not None and data:
            self._heard(self._channel, data)
