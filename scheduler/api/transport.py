"""Requests, responses and streams of an API server, for HTTP and in-process transports.

The interface has callbacks and no coroutines, because the same shell runs on an event loop and in virtual time, which
has only a queue of actions. A transport never calls back from inside `send` or `stream`; it plans the call on its
clock.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Request(msgspec.Struct, frozen=True):
    """One HTTP request; `path` includes the query string."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Response(msgspec.Struct, frozen=True):
    """The response; `code` 0: there was none, and `body` has the reason as plain text."""

    code: int
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300


Done = Callable[[Response], None]
OnLine = Callable[[bytes], None]


class Stream(Protocol):
    """A running watch or log stream; closing it twice is allowed."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Sends requests to an API server."""

    def send(self, request: Request, done: Done) -> None:
        """Send one request; `done` is called exactly once."""

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        """Open a stream; `on_line` gets each line without its newline; `on_end` is called once, unless closed first.

        `on_end` gets the refusal if the server refused, otherwise a response with code 200 (ended) or 0 (broken off).
        """
