"""How a request reaches an API server: the words only. Sockets and in-process calls both speak them.

Callbacks rather than coroutines, because the same shell runs on an event loop and in virtual time, where one queue of
actions is all there is. A transport never calls back from inside `send` or `stream`; it plans the call on its clock.
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
    """One HTTP request as a client means it; `path` has the query string on it."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Response(msgspec.Struct, frozen=True):
    """The answer; `code` 0 means that no answer came and `body` says why, in plain text."""

    code: int
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300


Done = Callable[[Response], None]
OnLine = Callable[[bytes], None]


class Stream(Protocol):
    """A running watch (or log): closing it is allowed at any time, twice too."""

    def close(self) -> None: ...


class Transport(Protocol):
    """What a client needs of the world."""

    def send(self, request: Request, done: Done) -> None:
        """Carry out one request; `done` is called exactly once."""

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        """Open a stream; `on_line` gets each line without its newline, `on_end` is called once, unless closed first.

        `on_end` gets the refusal if the server refused, else a response with code 200 (ended) or 0 (broke off).
        """
