"""A cache of parsed header blocks: a client sends the same headers with nearly every request.

Parsing headers is the most expensive step of a small request. So the header block of a request that httptools has
parsed is kept, without its Content-Length, together with the parsed headers. When the same bytes arrive again, only the
request line and Content-Length are parsed. Unusual requests are left to httptools.
"""

import re

import msgspec

LIMIT = 16 * 1024  # bytes of the blocks cached for one connection; most clients send two or three of 200
_DIGITS = 6  # of a Content-Length; longer bodies do not arrive in one piece
MAX_LENGTH = 4096  # bytes of a request line, and of a header block

_FIRST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[!\"$-~]*) HTTP/1\.1", re.ASCII)
_LENGTHS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_CONNECTION_HEADERS = frozenset(
    {"connection", "expect", "transfer-encoding", "upgrade"}
)  # change how the rest is parsed


class ParsedRequest(msgspec.Struct, frozen=True):
    """A complete HTTP request. `close`: the connection ends after the response."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    close: bool


# The unparsed head of a request: request line, headers without Content-Length, length of the body, offset of the body.
# A plain tuple, since one is made for each request.
_Block = tuple[re.Match[bytes], bytes, int, int]


class HeaderCache:
    """The cached header blocks of one connection."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, dict[str, str]] = {}
        self._left = LIMIT

    def take(self, data: bytes, start: int) -> tuple[ParsedRequest, int] | None:
        """The request at offset `start` and the offset of its end; None if it is not cached or not complete."""
        if not self._blocks:
            return None
        block = _block(data, start)
        if block is None:
            return None
        first_line, rest, length, begin = block
        headers = self._blocks.get(rest)
        end = begin + length
        if headers is None or end > len(data):
            return None
        method, path = first_line.groups()
        return ParsedRequest(method.decode(), path.decode(), headers, data[begin:end], close=False), end

    def learn(self, data: bytes, parsed: ParsedRequest) -> None:
        """Cache the headers of `parsed`, which httptools has parsed from the beginning of `data`."""
        headers = parsed.headers
        if parsed.close or not _CONNECTION_HEADERS.isdisjoint(headers):
            return
        block = _block(data, 0)
        if block is None:
            return
        _, rest, length, begin = block
        if data[begin : begin + length] != parsed.body or headers.get("content-length", "0") != str(length):
            return
        if len(rest) > self._left:
            self._blocks.clear()
            self._left = LIMIT
        self._left -= len(rest)
        self._blocks[rest] = {name: value for name, value in headers.items() if name != "content-length"}


def _block(data: bytes, start: int) -> _Block | None:
    line_end = data.find(b"\r\n", start, start + MAX_LENGTH)
    end = data.find(b"\r\n\r\n", line_end, line_end + MAX_LENGTH) if line_end > 0 else -1
    if end < 0:
        return None
    first_line = _FIRST_LINE.fullmatch(data, start, line_end)
    if first_line is None:
        return None
    for name in _LENGTHS:
        result = data.find(name, line_end, end)
        if result >= 0:
            number_end = data.find(b"\r\n", result + len(name), end + 2)
            number = data[result + len(name) : number_end]
            if not number.isdigit() or len(number) > _DIGITS:
                return None
            return first_line, data[line_end:result] + data[number_end:end], int(number), end + 4
    return first_line, data[line_end:end], 0, end + 4
