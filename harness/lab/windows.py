"""Hours in which machines are kept for requests that name a window, as for a nightly run."""

import datetime as dt
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LOOK_AHEAD = 8  # days: every window begins at least once in them
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines that belong to one use between two times of day; a window may pass midnight."""

    name: str
    machines: tuple[str, ...]
    start: str = msgspec.field(name="from")
    end: str = msgspec.field(name="to")
    days: tuple[str, ...] = DAYS  # on which it begins
    zone: str = "UTC"

    def mistakes(self) -> list[str]:
        """What cannot be used, in words."""
        lines = []
        for name, text in (("from", self.start), ("to", self.end)):
            if not _TIME.fullmatch(text):
                lines.append(f'{name}: expected a time such as "01:00", found {text!r}')
        if self.start == self.end:
            lines.append(f"from and to: expected different times, found {self.start} twice")
        lines += [f"days: expected {', '.join(DAYS)}, found {day!r}" for day in self.days if day not in DAYS]
        if not self.machines:
            lines.append("machines: expected at least one, found none")
        if not self.days:
            lines.append("days: expected at least one, found none")
        try:
            _zone(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            lines.append(f"zone: expected a time zone such as UTC or Europe/Berlin, found {self.zone!r}")
        return lines

    def occurrences(self, wall: float) -> list[tuple[float, float]]:
        """Beginnings and ends, in seconds since 1970, of the window from the day before `wall` to a week after it."""
        zone = _zone(self.zone)
        today = dt.datetime.fromtimestamp(wall, zone).date()
        start, end = dt.time.fromisoformat(self.start), dt.time.fromisoformat(self.end)
        occurrences = []
        for offset in range(-1, LOOK_AHEAD):
            day = today + dt.timedelta(days=offset)
            if DAYS[day.weekday()] in self.days:
                last = day + dt.timedelta(days=1) if end < start else day
                begins = dt.datetime.combine(day, start, zone).timestamp()
                occurrences.append((begins, dt.datetime.combine(last, end, zone).timestamp()))
        return occurrences


def _zone(name: str) -> dt.tzinfo:
    """The time zone; UTC needs no time zone database."""
    return dt.UTC if name == "UTC" else ZoneInfo(name)


def active(windows: tuple[Window, ...], machine: str, wall: float) -> Window | None:
    """The window that a machine is in at `wall`, in seconds since 1970."""
    for window in windows:
        if machine in window.machines and any(start <= wall < end for start, end in window.occurrences(wall)):
            return window
    return None


def next_start(windows: tuple[Window, ...], machine: str, wall: float, *, besides: str) -> float | None:
    """When the next window of a machine begins, other than the one called `besides`; in seconds since 1970."""
    starts = [
        start
        for window in windows
        if machine in window.machines and window.name != besides
        for start, _ in window.occurrences(wall)
        if start > wall
    ]
    return min(starts, default=None)
