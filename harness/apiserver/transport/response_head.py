"""Encodes HTTP responses: status line, headers, body."""

from email.utils import formatdate
from functools import lru_cache

from seatrial.scheduler.api.transport import Response

_REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    410: "Gone",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def encoded(response: Response, *, head: bool, close: bool, now: float) -> bytes:
    """The response as bytes; `head` leaves the body out (responses to HEAD). `now` goes into the header `date`."""
    headers = response.headers
    if len(headers) == 1 and "content-type" in headers:  # nearly all responses
        start = _common_start(response.code, headers["content-type"])
    else:
        start = _start(response.code, "".join([f"{name}: {value}\r\n" for name, value in headers.items()]))
    body = response.body
    return b"%b%bcontent-length: %d\r\n%b\r\n%b" % (
        start,
        date_line(int(now)),
        len(body),
        b"connection: close\r\n" if close else b"",
        b"" if head else body,
    )


@lru_cache(maxsize=4)
def date_line(second: int) -> bytes:
    """The header `date`, which RFC 9110 (6.6.1) requires of a server with a clock; clients compare clocks by it."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()


@lru_cache(maxsize=256)
def _common_start(code: int, content_type: str) -> bytes:
    return _start(code, f"content-type: {content_type}\r\n")


def _start(code: int, lines: str) -> bytes:
    return f"HTTP/1.1 {code} {_REASONS.get(code, 'Status')}\r\n{lines}".encode("latin-1", "replace")
