"""WebSocket frames, with input split at any place."""

import pytest

from seatrial.harness.apiserver.streams.websocket import (
    BINARY,
    MAX_FRAME,
    PING,
    TEXT,
    TOO_BIG,
    Fault,
    Reader,
    closing,
    frame,
)
from seatrial.harness.apiserver.tests.sockets import masked

STREAM = (
    masked(b"first") + masked(b"", 2) + masked(b"in ", 1, last=False) + masked(b"between", PING) + masked(b"parts", 0)
    + masked(bytes(range(256)) * 3) + masked(b"x" * 70_000)
)  # fmt: skip
MESSAGES = [(BINARY, b"first"), (BINARY, b""), (TEXT, b"in parts"), (BINARY, bytes(range(256)) * 3),
            (BINARY, b"x" * 70_000)]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
def test_messages_do_not_depend_on_how_frames_are_split(size: int) -> None:
    reader = Reader()
    messages: list[tuple[int, bytes]] = []
    pings: list[bytes] = []
    for at in range(0, len(STREAM), size):
        for piece in reader.feed(STREAM[at : at + size]):
            if piece.kind == PING:
                pings.append(piece.data)
            elif piece.first:
                messages.append((piece.kind, piece.data))
            else:
                messages[-1] = (piece.kind, messages[-1][1] + piece.data)
    assert messages == MESSAGES
    assert pings == [b"between"]


def test_a_large_frame_is_passed_on_in_pieces() -> None:
    reader = Reader()
    head = b"\x82\xff" + MAX_FRAME.to_bytes(8, "big") + b"\0\0\0\0"

    pieces = [piece for data in (head, b"a" * 1000, b"b" * 1000) for piece in reader.feed(data)]

    assert [(piece.data, piece.first, piece.last) for piece in pieces] == [
        (b"a" * 1000, True, False), (b"b" * 1000, False, False),
    ]  # fmt: skip
    with pytest.raises(Fault) as caught:
        list(Reader(largest=10).feed(masked(b"x" * 11)))
    assert caught.value.code == TOO_BIG


@pytest.mark.parametrize(
    ("size", "head"),
    [
        pytest.param(125, b"\x82\x7d", id="the-longest-short-one"),
        pytest.param(126, b"\x82\x7e\x00\x7e", id="the-shortest-of-two-bytes"),
        pytest.param(65535, b"\x82\x7e\xff\xff", id="the-longest-of-two-bytes"),
        pytest.param(65536, b"\x82\x7f\0\0\0\0\0\x01\0\0", id="the-shortest-of-eight-bytes"),
    ],
)
def test_lengths_as_rfc_6455_writes_them(size: int, head: bytes) -> None:
    assert frame(b"x" * size) == head + b"x" * size


def test_a_reason_fits_into_its_frame() -> None:
    assert closing(1002, "why " * 100)[:4] == b"\x88\x7d\x03\xea"
