"""Types of responses that continue after their first bytes: watches, followed logs, upgraded connections."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seatrial.harness.apiserver.storage.watch import Reader
from seatrial.harness.apiserver.streams.line import Line, Session
from seatrial.scheduler.api.transport import Response


class Closable(Protocol):
    """Something that can be closed, such as a response to an upgraded connection."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Streaming:
    """A response of lines. `start` takes their reader; the caller closes the result when the reader is gone."""

    start: Callable[[Reader], Closable]
    content_type: str = "application/json"


class Upgraded(Response, frozen=True):
    """101 Switching Protocols. `begin` takes the connection; the session that it returns gets all further input."""

    begin: Callable[[Line], Session] | None = None
