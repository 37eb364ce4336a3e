"""Answers that go on after their beginning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.apiserver.storage.watch import Reader
from harness.apiserver.streams.line import Line, Session
from scheduler.api.transport import Response


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Streaming:
    """Call `start` with where the lines should go; close what it returns when the reader is gone."""

    start: Callable[[Reader], Closable]
    content_type: str = "application/json"


class Upgraded(Response, frozen=True):
    """101 Switching Protocols: `begin` gets the connection, and what it returns what comes in from then on."""

    begin: Callable[[Line], Session] | None = None
