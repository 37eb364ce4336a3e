"""SPDY/3.1 frames: encoding and parsing, with input split at any place."""

import zlib

import pytest

from seatrial.harness.apiserver.streams import spdy
from seatrial.harness.apiserver.streams.spdy import Frame


def test_the_dictionary_is_the_specifications() -> None:
    # What every SPDY/3 client's headers carry as the checksum of the dictionary that they were packed with.
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


@pytest.mark.parametrize("size", [1, 5, 8, 100, 1 << 20])
def test_parsing_does_not_depend_on_how_frames_are_split(size: int) -> None:
    writer, reader = spdy.Writer(), spdy.Reader()
    headers = {"streamtype": "data", "port": "80", "requestid": "0"}
    stream = b"".join(
        (
            writer.stream(1, headers),
            writer.stream(3, {**headers, "requestid": "1"}, fin=True),
            spdy.data(1, b"hello"),
            spdy.data(1, b"", fin=True),
            spdy.ping(7),
            spdy.reset(3, spdy.REFUSED_STREAM),
            writer.reply(1, {}),
            b"\x80\x03\x00\x09\x00\x00\x00\x08" + bytes(8),
            b"\x80\x03\x00\x63\x00\x00\x00\x01?",
            spdy.go_away(3, 0),
        )
    )

    frames = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]

    data = [frame for frame in frames if frame.kind == spdy.DATA]
    assert b"".join(frame.data for frame in data) == b"hello"
    assert [frame.fin for frame in data][-1:] == [True]
    assert [frame for frame in frames if frame.kind != spdy.DATA] == [
        Frame(spdy.SYN_STREAM, 1, headers=headers),
        Frame(spdy.SYN_STREAM, 3, fin=True, headers={**headers, "requestid": "1"}),
        Frame(spdy.PING, number=7),
        Frame(spdy.RST_STREAM, 3, number=spdy.REFUSED_STREAM),
        Frame(spdy.SYN_REPLY, 1),
        Frame(spdy.WINDOW_UPDATE),  # and the unknown one is passed over
        Frame(spdy.GOAWAY, number=3),
    ]


def test_headers_with_a_wrong_count_are_refused() -> None:
    packer = zlib.compressobj(zdict=spdy.DICTIONARY)
    block = packer.compress(b"\xff\xff\xff\xff") + packer.flush(zlib.Z_SYNC_FLUSH)
    body = (1).to_bytes(4, "big") + bytes(6) + block
    frame = b"\x80\x03\x00\x01\x00" + len(body).to_bytes(3, "big") + body

    with pytest.raises(spdy.Fault, match="ends before its"):
        list(spdy.Reader().feed(frame))
