"""WebSocket frames, with input split at any place."""

import pytest
from wsproto.frame_protocol import Opcode

from seatrial.harness.apiserver.streams.websocket import Fault, Frames
from seatrial.harness.apiserver.tests.sockets import masked

BINARY, TEXT, PING = Opcode.BINARY, Opcode.TEXT, Opcode.PING
STREAM = (
    masked(b"first")
    + masked(b"", 2)
    + masked(b"in ", 1, last=False)
    + masked(b"between", PING)
    + masked(b"parts", 0)
    + masked(bytes(range(256)) * 3)
    + masked(b"x" * 70_000)
)
MESSAGES = [
    (BINARY, b"first"),
    (BINARY, b""),
    (TEXT, b"in parts"),
    (BINARY, bytes(range(256)) * 3),
    (BINARY, b"x" * 70_000),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
def test_messages_do_not_depend_on_how_frames_are_split(size: int) -> None:
    frames = Frames()
    messages: list[tuple[int, bytes]] = []
    pings: list[bytes] = []
    for at in range(0, len(STREAM), size):
        for piece in frames.feed(STREAM[at : at + size]):
            if piece.kind is PING:
                pings.append(piece.data)
            elif piece.first:
                messages.append((piece.kind, piece.data))
            else:
                messages[-1] = (piece.kind, messages[-1][1] + piece.data)
    assert messages == MESSAGES
    assert pings == [b"between"]


def test_a_large_frame_is_passed_on_in_pieces() -> None:
    frames = Frames()
    head = b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0"

    pieces = [piece for data in (head, b"a" * 1000, b"b" * 1000) for piece in frames.feed(data)]

    assert [(piece.data, piece.first, piece.last) for piece in pieces] == [
        (b"a" * 1000, True, False),
        (b"b" * 1000, False, False),
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x82\x01x", id="not-masked"),
        pytest.param(masked(b"x", 0), id="continuation-of-nothing"),
        pytest.param(masked(b"x", PING, last=False), id="control-frame-in-parts"),
        pytest.param(masked(b"x", 3), id="unknown-opcode"),
    ],
)
def test_what_no_client_may_send_is_a_fault(data: bytes) -> None:
    with pytest.raises(Fault) as caught:
        list(Frames().feed(data))
    assert caught.value.code == 1002


def test_a_reason_fits_into_its_frame() -> None:
    assert Frames().closing(1002, "why " * 100)[:4] == b"\x88\x7d\x03\xea"
