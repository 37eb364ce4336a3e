"""An answer that goes on after its beginning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.apiserver.watch import Reader


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Streaming:
    """Call `start` with where the lines should go; close what it returns when the reader is gone."""

    start: Callable[[Reader], Closable]
    content_type: str = "application/json"
