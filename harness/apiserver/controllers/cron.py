"""Parser for the cron schedules of CronJobs (five fields or a macro), and the computation of the next start time.

Semantics of robfig/cron v3 (`ParseStandard`): names of months and weekdays, lists, ranges, steps, `?` for `*`.
If both the day of the month and the weekday are restricted, a day that matches either one is used.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

_MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_YEARS = 5  # years searched for the next start; a schedule such as 30 February has none
_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


class CronError(ValueError):
    """The text is not a schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed schedule. `every` (seconds) is set for `@every` schedules only, and then the other fields are unused."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()  # 0 is Sunday
    either_day: bool = False
    every: float = 0.0

    def next_after(self, moment: float, zone: tzinfo = UTC) -> float | None:
        """The first start after `moment`, in Unix seconds, computed in `zone`; None if there is none.

        A time of day skipped by a change to daylight saving time has no start on that day.
        """
        if self.every:
            return float(int(moment)) + self.every
        start = datetime.fromtimestamp(moment, zone)
        day = start.date()
        last = day + timedelta(days=366 * _YEARS)
        while day <= last:
            if self._is_day(day):
                for found in self._times_of(day, zone):
                    if found > moment:
                        return found
            day += timedelta(days=1)
        return None

    def _is_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, (day.weekday() + 1) % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week

    def _times_of(self, day: date, zone: tzinfo) -> list[float]:
        found = []
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                if zone is UTC or datetime.fromtimestamp(local.timestamp(), zone).hour == hour:
                    found.append(local.timestamp())
        return sorted(found)


def parse_cron(text: str) -> Schedule:
    """Parse a schedule.

    Raises:
        CronError: the text is no schedule; the message names the wrong field and what was expected.
    """
    text = text.strip()
    if text.startswith("@every "):
        return Schedule(every=_span(text.removeprefix("@every ").strip()))
    fields = _MACROS.get(text, text).split()
    if len(fields) != 5:
        raise CronError(f"expected exactly 5 fields, found {len(fields)}: [{text}]")
    minute, hour, day, month, weekday = fields
    return Schedule(
        _field("minute", minute, 0, 59),
        _field("hour", hour, 0, 23),
        _field("day of month", day, 1, 31),
        _field("month", month, 1, 12, _MONTHS),
        _field("day of week", weekday, 0, 6, _DAYS),
        either_day=not (_is_any(day) or _is_any(weekday)),
    )


def _is_any(field: str) -> bool:
    return field[0] in "*?"


def _field(name: str, text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(name, step_text, 1, high, ()) if slash else 1
        if span in {"*", "?"}:
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(name, begin, low, high, names)
            last = _number(name, end, low, high, names) if dash else (high if slash else first)
        if last < first:
            raise CronError(f"{name}: expected the range {span!r} to ascend")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(name: str, text: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isdigit() or not low <= int(text) <= high:
        raise CronError(f"{name}: expected a number from {low} to {high}, found {text!r}")
    return int(text)


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        raise CronError(f"@every: expected a duration as in 1h30m, found {text!r}")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return max(1.0, hours * 3600.0 + minutes * 60 + seconds)
