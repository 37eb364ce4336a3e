"""Writes to control groups: what differs, in an order that is valid in between, failures said once (EX-1 to EX-4)."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.numa import CpusetError, cpuset_text, parse_cpuset
from seatrial.scheduler.koordlet.audit import AuditLog
from seatrial.scheduler.koordlet.cgroups import (
    CPUS,
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    NO_LIMIT,
    QUOTA,
    SHARES,
    CgroupError,
    Cgroups,
    File,
)

log = logging.getLogger(__name__)

REFRESH = 60.0  # seconds after which a value is compared with the file again
_MERGED = frozenset({QUOTA, CPUS, MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH, SHARES})


class Update(NamedTuple):
    """A value for one file of one group."""

    folder: str
    file: File
    value: int | str


class Executor:
    """Writes values, and remembers what it has written."""

    def __init__(self, cgroups: Cgroups, clock: Clock, audit: AuditLog) -> None:
        self.cgroups, self._clock, self.audit = cgroups, clock, audit
        self._written: dict[tuple[str, File], tuple[int | str, float]] = {}
        self._messages: dict[tuple[str, File], str] = {}
        self.failures = 0

    def update(self, *updates: Update) -> None:
        """Write each value that its file does not have. A group that is gone is no error."""
        for update in updates:
            key, now = update[:2], self._clock.monotonic()
            known = self._written.get(key)
            if known is not None and known[0] == update.value and now - known[1] < REFRESH:
                continue
            if self._write(update, update.value):
                self._written[key] = (update.value, now)

    def leveled(self, updates: Iterable[Update]) -> None:
        """Write values of groups and the groups below them, which are ordered from above: first what is looser from
        above, then the values from below. In between no group has less than those below it."""
        ordered = list(updates)
        for update in ordered:
            if update.file in _MERGED:
                self._write(update, self._looser(update))
        for update in reversed(ordered):
            self._written.pop(update[:2], None)
            self.update(update)

    def forget(self, folder: str) -> None:
        """The group is gone."""
        for known in (self._written, self._messages):
            for key in [key for key in known if key[0] == folder]:
                del known[key]

    def _looser(self, update: Update) -> int | str:
        """The value, or that of the file if it allows more."""
        try:
            if isinstance(update.value, str):
                both = parse_cpuset(update.value) | parse_cpuset(self.cgroups.read(update.folder, update.file))
                return cpuset_text(both)
            old = self.cgroups.number(update.folder, update.file)
        except (CgroupError, CpusetError):
            return update.value
        if update.file is QUOTA:
            return NO_LIMIT if NO_LIMIT in {old, update.value} else max(old, update.value)
        return max(old, update.value)

    def _write(self, update: Update, value: int | str) -> bool:
        """Whether the file has the value now."""
        if not self.cgroups.exists(update.folder, update.file.subsystem):
            return False
        try:
            if not self._has(update, value):
                self.cgroups.write(update.folder, update.file, value)
                path = self.cgroups.path(update.folder, update.file)
                self.audit.record(3, "UpdateCgroups", f"update {path} to {value}")
        except CgroupError as error:
            self.failures += 1
            if self._messages.get(update[:2]) != str(error):
                self._messages[update[:2]] = str(error)
                log.warning("unwritten value=%s why=%s", value, error)
            return False
        self._messages.pop(update[:2], None)
        return True

    def _has(self, update: Update, value: int | str) -> bool:
        if isinstance(value, int):
            try:
                return self.cgroups.number(update.folder, update.file) == value
            except CgroupError:
                return False
        text = self.cgroups.read(update.folder, update.file)
        try:
            return parse_cpuset(text) == parse_cpuset(value)
        except CpusetError:
            return text == value
