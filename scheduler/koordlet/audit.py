"""What the agent has changed, for an auditor: JSON lines in files that are rotated, and pages of them by HTTP (AU-1).

As Koordinator's pkg/koordlet/audit.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.serving.once import Once
from seatrial.scheduler.serving.routes import JSON, Answer, RequestContext, text

log = logging.getLogger(__name__)

FILE_SIZE = 1 << 21  # bytes at which a file is followed by the next one
PAGE, MOST = 256, 2048  # events of one answer, by default and at most
READERS, READER_AGE = 4, 600.0  # pages that are followed at the same time; seconds after which one is forgotten


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """`folder` None: nothing is recorded. `verbosity`: the highest level that is; 0: all. `space`: bytes of files."""

    folder: Path | None = None
    verbosity: int = 3
    space: int = 16 << 20


NO_AUDIT = AuditConfig()


class AuditLog:
    """Writes events: 0 for evictions, 1 for what the whole node gets, 3 for what a group gets."""

    def __init__(self, config: AuditConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._say = Once(log)

    def record(self, level: int, reason: str, message: str, **of: str) -> None:
        """Append an event; what cannot be written is said once and lost, because the agent has other work to do.

        `of`: what it is about: `type` (node or pod), `namespace`, `name`.
        """
        folder = self._config.folder
        if folder is None or 0 < self._config.verbosity < level:
            return
        event = {"createdAt": self._clock.timestamp(), **of, "reason": reason, "message": message}
        line = json.dumps(event) + "\n"
        path = folder / "audit.log"
        try:
            with path.open("a", encoding="ascii") as opened:
                opened.write(line)
                full = opened.tell() >= FILE_SIZE
            if full:
                self._rotate(folder)
        except OSError as error:
            self._say("", f"audit log {path}: {error.strerror}; events are lost")
        else:
            self._say("", "")

    def _rotate(self, folder: Path) -> None:
        stamp = self._clock.timestamp().rstrip("Z").replace("T", "-").replace(":", "-")
        number = max((number for second, number, _ in _old(folder) if second == stamp), default=-1) + 1
        (folder / "audit.log").replace(folder / f"audit-{stamp}-{number}.log")
        for _, _, path in _old(folder)[: -max(self._config.space // FILE_SIZE - 1, 1)]:
            path.unlink()

    def newest_first(self) -> Iterator[Any]:
        """All events; what is no event is left out, and so is a file that is removed meanwhile."""
        if self._config.folder is None:
            return
        old = [path for _, _, path in _old(self._config.folder)]
        for path in [self._config.folder / "audit.log", *reversed(old)]:
            try:
                lines = path.read_text(encoding="ascii", errors="replace").splitlines()
            except OSError:
                continue
            for line in reversed(lines):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _old(folder: Path) -> list[tuple[str, int, Path]]:
    """Files that are full, the oldest first: the second, and the number within it."""
    parts = ((path.stem.removeprefix("audit-").rpartition("-"), path) for path in folder.glob("audit-*.log"))
    return sorted((second, integer(number) or 0, path) for (second, _, number), path in parts)


class _Reader(NamedTuple):
    events: Iterator[Any]
    since: float


class AuditPages:
    """Answers `/events`: pages of what was recorded, each with the token of the next one."""

    def __init__(self, audit: AuditLog, clock: Clock, dice: Random) -> None:
        self._audit, self._clock, self._dice = audit, clock, dice
        self._readers: dict[str, _Reader] = {}  # by token, the one that was asked longest ago first

    def answer(self, request: RequestContext) -> Answer:
        """`size`: events of the page; `pageToken`: that of an answer before. With `Accept: application/json` a JSON
        object, else a line for each event."""
        number = integer(request.query.get("size", ""))
        size = PAGE if number is None else number
        if not 0 <= size <= MOST:
            return text(f"size({size}) exceeds the limit({MOST})", 400)
        now = self._clock.monotonic()
        self._readers = {token: each for token, each in self._readers.items() if now - each.since <= READER_AGE}
        token = request.query.get("pageToken", "")
        if token and token not in self._readers:
            return text(f"invalid pageToken {token}", 409)
        events = self._readers.pop(token).events if token else self._audit.newest_first()
        page = [event for _, event in zip(range(size), events, strict=False)]
        following = (token or f"{self._dice.getrandbits(128):032x}") if len(page) == size else ""
        if following:
            self._readers[following] = _Reader(events, now)
            for old in list(self._readers)[:-READERS]:
                del self._readers[old]
        if request.accept == "application/json":
            return Answer(200, json.dumps({"NextPageToken": following, "Events": page}).encode(), JSON)
        lines = "".join(f"{json.dumps(event)}\n" for event in page)
        return Answer(200, lines.encode(), headers={"Next-Page-Token": following} if following else {})
