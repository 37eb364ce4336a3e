"""SPDY/3.1 frames: the subset that Kubernetes' clients use for exec, attach and portforward.

There is no flow control per stream: the library of these clients (`moby/spdystream`) neither sends nor obeys
WINDOW_UPDATE, so waiting for it would block forever. TCP limits the sender. The content of a DATA frame is passed on in
the pieces in which it arrives, as in `websocket`.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

VERSION: Final = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
DATA: Final = 0  # not a control frame; a number of our own
FIN: Final = 0x01  # flag: nothing more comes on this stream
PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM = 1, 2, 3  # reasons of RST_STREAM
MAX_CONTROL: Final = 64 << 10  # bytes of a control frame
MAX_HEADERS: Final = 64 << 10  # bytes of decompressed headers
_STREAM = 0x7FFFFFFF

# The dictionary of SPDY/3, section 2.6.10.1: words prefixed with their lengths, then plain text.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow"
    " authorization cache-control connection content-base content-encoding content-language content-length"
    " content-location content-md5 content-range content-type date etag expect expires from host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma"
    " proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie"
    " keep-alive origin"
)
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(len(word).to_bytes(4, "big") + word.replace("_", " ").encode() for word in _WORDS.split(" "))
    + _TAIL.encode()
)


class Fault(Exception):
    """The client violates the protocol."""


class Frame(NamedTuple):
    """A control frame, or a piece of a DATA frame. `number` is a ping's id or a reset's reason."""

    kind: int
    stream: int = 0
    fin: bool = False
    headers: Mapping[str, str] = {}
    data: bytes = b""
    number: int = 0


class Reader:
    """Parses frames; holds the decompression state of headers."""

    def __init__(self) -> None:
        self._data, self._at = b"", 0  # received data, and the offset up to which it is parsed
        self._unpack = zlib.decompressobj(zdict=DICTIONARY)
        self._left = 0  # bytes missing of the current DATA frame
        self._stream, self._fin = 0, False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Parse data. The caller exhausts the iterator before the next call.

        Raises:
            Fault: a protocol violation; the reader cannot be used any more.
        """
        self._data = self._data[self._at :] + data
        self._at = 0
        while True:
            if self._left:
                piece = self._data[self._at : self._at + self._left]
                if not piece:
                    return
                self._at += len(piece)
                self._left -= len(piece)
                yield Frame(DATA, self._stream, fin=self._fin and not self._left, data=piece)
                continue
            if len(self._data) < self._at + 8:
                return
            head = self._data[self._at : self._at + 8]
            size = int.from_bytes(head[5:8], "big")
            if not head[0] & 0x80:
                self._at += 8
                self._stream, self._fin, self._left = int.from_bytes(head[:4], "big"), bool(head[4] & FIN), size
                if not size:
                    yield Frame(DATA, self._stream, fin=self._fin)
                continue
            version, kind = int.from_bytes(head[:2], "big") & 0x7FFF, int.from_bytes(head[2:4], "big")
            if version != VERSION:
                raise Fault(f"SPDY version {version}: expected {VERSION}")
            if size > MAX_CONTROL:
                raise Fault(f"a control frame of {size} bytes: expected {MAX_CONTROL} at most")
            if len(self._data) < self._at + 8 + size:
                return
            body = self._data[self._at + 8 : self._at + 8 + size]
            self._at += 8 + size
            control = self._control(kind, head[4], body)
            if control is not None:
                yield control

    def _control(self, kind: int, flags: int, body: bytes) -> Frame | None:
        fin = bool(flags & FIN)
        match kind:
            case 1 | 2 | 8:  # SYN_STREAM, SYN_REPLY, HEADERS
                before = 10 if kind == SYN_STREAM else 4
                return Frame(kind, _number(body, 0) & _STREAM, fin, self._headers(body[before:]))
            case 3:  # RST_STREAM
                return Frame(kind, _number(body, 0) & _STREAM, number=_number(body, 4))
            case 6 | 7:  # PING, GOAWAY
                return Frame(kind, number=_number(body, 0))
            case 4 | 9:  # SETTINGS, WINDOW_UPDATE
                return Frame(kind)
            case _:
                return None  # unknown control frames are ignored, as specified

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            data = self._unpack.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise Fault(f"headers that cannot be unpacked: {error}") from error
        if self._unpack.unconsumed_tail or len(data) == MAX_HEADERS:
            raise Fault(f"headers of more than {MAX_HEADERS} bytes")
        headers: dict[str, str] = {}
        at = 4
        for _ in range(_number(data, 0)):
            pair = []
            for _ in range(2):
                size = _number(data, at)
                pair.append(data[at + 4 : at + 4 + size].decode("latin-1"))
                if len(pair[-1]) != size:
                    raise Fault("a header ends before its length")
                at += 4 + size
            headers[pair[0].lower()] = pair[1]
        return headers


class Writer:
    """Encodes frames; holds the compression state of headers."""

    def __init__(self) -> None:
        self._pack = zlib.compressobj(zdict=DICTIONARY)

    def stream(self, stream: int, headers: Mapping[str, str], *, fin: bool = False) -> bytes:
        """SYN_STREAM without a parent, of the lowest priority."""
        return _control(SYN_STREAM, _bytes(stream, 0) + b"\0\0" + self._packed(headers), FIN if fin else 0)

    def reply(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """SYN_REPLY."""
        return _control(SYN_REPLY, _bytes(stream) + self._packed(headers))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        rows = [_bytes(len(headers))]
        for name, value in headers.items():
            rows += [_bytes(len(name)), name.encode("latin-1"), _bytes(len(value)), value.encode("latin-1")]
        return self._pack.compress(b"".join(rows)) + self._pack.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, content: bytes, *, fin: bool = False) -> bytes:
    """A DATA frame of less than 16 MiB."""
    return _bytes(stream) + bytes((FIN if fin else 0,)) + len(content).to_bytes(3, "big") + content


def reset(stream: int, reason: int) -> bytes:
    """RST_STREAM."""
    return _control(RST_STREAM, _bytes(stream, reason))


def ping(number: int) -> bytes:
    """PING; the receiver returns it."""
    return _control(PING, _bytes(number))


def go_away(last: int, reason: int) -> bytes:
    """GOAWAY: streams after `last` were not processed."""
    return _control(GOAWAY, _bytes(last, reason))


def _control(kind: int, body: bytes, flags: int = 0) -> bytes:
    return bytes((0x80, VERSION, 0, kind, flags)) + len(body).to_bytes(3, "big") + body


def _bytes(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def _number(data: bytes, at: int) -> int:
    """The 32-bit number at an offset.

    Raises:
        Fault: the data is too short.
    """
    if len(data) < at + 4:
        raise Fault("a frame ends before its fields")
    return int.from_bytes(data[at : at + 4], "big")
