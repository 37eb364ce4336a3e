"""Requests whose headers are known already: a client sends the same ones again and again.

Reading the headers of a small request takes longer than anything else about it. So the block of headers of a request
that httptools has read is remembered, without its Content-Length, together with what httptools made of it. When the
same bytes come again, only the first line and the length are read. Whatever is unusual is left to httptools.
"""

import re

import msgspec

LIMIT = 64  # blocks remembered of one connection; most clients send two or three
_DIGITS = 6  # of a Content-Length; what is longer does not come in one piece
LONGEST = 4096  # bytes of a first line, and of a block

_FIRST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[!\"$-~]*) HTTP/1\.1", re.ASCII)
_LENGTHS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_TELLING = frozenset({"connection", "expect", "transfer-encoding", "upgrade"})  # they say how to read the rest


class Arrived(msgspec.Struct, frozen=True):
    """A whole request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    close: bool


# The headers of a request as they came: the first line, all others but Content-Length, how long the body is and where
# it begins. A plain tuple, as one is made for each request.
_Block = tuple[re.Match[bytes], bytes, int, int]


class Familiar:
    """The blocks of headers of one connection."""

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, str]] = {}

    def take(self, data: bytes, start: int) -> tuple[Arrived, int] | None:
        """The request at `start` and where it ends; None: it is not known, or not all there."""
        if not self._known:
            return None
        block = _block(data, start)
        if block is None:
            return None
        first_line, rest, length, begin = block
        headers = self._known.get(rest)
        end = begin + length
        if headers is None or end > len(data):
            return None
        method, path = first_line.groups()
        return Arrived(method.decode(), path.decode(), headers, data[begin:end], close=False), end

    def learn(self, data: bytes, arrived: Arrived) -> None:
        """Remember the headers of `arrived`, which httptools has found at the beginning of `data`."""
        headers = arrived.headers
        if arrived.close or not _TELLING.isdisjoint(headers):
            return
        block = _block(data, 0)
        if block is None:
            return
        _, rest, length, begin = block
        if data[begin : begin + length] != arrived.body or headers.get("content-length", "0") != str(length):
            return
        if len(self._known) >= LIMIT:
            self._known.clear()
        self._known[rest] = {name: value for name, value in headers.items() if name != "content-length"}


def _block(data: bytes, start: int) -> _Block | None:
    line_end = data.find(b"\r\n", start, start + LONGEST)
    end = data.find(b"\r\n\r\n", line_end, line_end + LONGEST) if line_end > 0 else -1
    if end < 0:
        return None
    first_line = _FIRST_LINE.fullmatch(data, start, line_end)
    if first_line is None:
        return None
    for name in _LENGTHS:
        found = data.find(name, line_end, end)
        if found >= 0:
            number_end = data.find(b"\r\n", found + len(name), end + 2)
            number = data[found + len(name) : number_end]
            if not number.isdigit() or len(number) > _DIGITS:
                return None
            return first_line, data[line_end:found] + data[number_end:end], int(number), end + 4
    return first_line, data[line_end:end], 0, end + 4
