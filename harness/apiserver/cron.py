"""Parser for the schedules and time zones of CronJobs, and the computation of the next start time.

Reads what robfig/cron v3 (`ParseStandard`) and Go's `time.LoadLocation` read, and refuses the rest in their words. If
both the day of the month and the weekday are restricted, a day that matches either one is used; a star with a step
restricts, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.integers import integer

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
MAX_SCHEDULE = 4096  # characters; upstream has no limit
_Bounds = tuple[int, int, dict[str, int]]
_BOUNDS: tuple[_Bounds, ...] = ((0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS))
_EVERY = "@every "
_YEARS = 5  # years searched for the next start; a schedule such as 30 February has none
_LAST_YEAR = 9999 - _YEARS - 1
_SHOWN = 256  # characters of a text in a message
_is_zone_part = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}").fullmatch


class CronError(ValueError):
    """The text is not a schedule, or not the name of a time zone."""


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
        if start.year > _LAST_YEAR:
            return None
        day, hour = start.date(), start.hour
        last = day + timedelta(days=366 * _YEARS)
        while day <= last:
            if self._is_day(day):
                for time in self._times_of(day, hour, zone):
                    if time > moment:
                        return time
            day, hour = day + timedelta(days=1), 0
        return None

    def _is_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, (day.weekday() + 1) % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week

    def _times_of(self, day: date, first_hour: int, zone: tzinfo) -> Iterator[float]:
        for hour in sorted(self.hours):
            if hour < first_hour:
                continue
            for minute in sorted(self.minutes):
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                if zone is UTC or datetime.fromtimestamp(local.timestamp(), zone).hour == hour:
                    yield local.timestamp()


def parse_cron(text: str) -> Schedule:
    """Parse a schedule.

    Raises:
        CronError: the text is no schedule; the message is that of robfig/cron.
    """
    if len(text) > MAX_SCHEDULE:
        raise CronError(f"expected at most {MAX_SCHEDULE} characters, found {len(text)}")
    if text.startswith(("TZ=", "CRON_TZ=")):  # the API refuses them beside this
        text = text.partition(" ")[2].strip()
    if text.startswith(_EVERY):
        seconds = go_duration(text.removeprefix(_EVERY))
        if seconds is None:
            raise CronError(f"failed to parse duration {text:.{_SHOWN}}: time: invalid duration")
        return Schedule(every=float(max(1, int(seconds))))
    if text.startswith("@") and text not in _MACROS:
        raise CronError(f"unrecognized descriptor: {text:.{_SHOWN}}")
    fields = _MACROS.get(text, text).split()
    if len(fields) != 5:
        shown = " ".join(fields)
        raise CronError(f"expected exactly 5 fields, found {len(fields)}: [{shown:.{_SHOWN}}]")
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = (
        _field(field, low, high, names) for field, (low, high, names) in zip(fields, _BOUNDS, strict=True)
    )
    return Schedule(minutes, hours, days, months, weekdays, either_day=not (any_day or any_weekday))


def _field(text: str, low: int, high: int, names: dict[str, int]) -> tuple[frozenset[int], bool]:
    """The values of a field, and whether it restricts nothing."""
    numbers: set[int] = set()
    star = False
    for part in text.split(","):
        if not part:
            continue
        span, *steps = part.split("/")
        begin, *ends = span.split("-")
        any_value = begin in {"*", "?"}
        first, last = (low, high) if any_value else (_number(begin, names), 0)
        if not any_value:
            if len(ends) > 1:
                raise CronError(f"too many hyphens: {part:.{_SHOWN}}")
            last = _number(ends[0], names) if ends else high if steps else first
        if len(steps) > 1:
            raise CronError(f"too many slashes: {part:.{_SHOWN}}")
        step = _number(steps[0], {}) if steps else 1
        if steps and not ends:
            last = high
        for wrong, why in (
            (first < low, f"beginning of range ({first}) below minimum ({low})"),
            (last > high, f"end of range ({last}) above maximum ({high})"),
            (first > last, f"beginning of range ({first}) beyond end of range ({last})"),
            (not step, "step of range should be a positive number"),
        ):
            if wrong:
                raise CronError(f"{why}: {part:.{_SHOWN}}")
        numbers.update(range(first, last + 1, step))
        star = star or (any_value and step == 1)
    return frozenset(numbers), star


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    number = integer(text)
    if number is None:
        why = "value out of range" if text.isascii() and text.lstrip("+-").isdecimal() else "invalid syntax"
        raise CronError(f'failed to parse int from {text:.{_SHOWN}}: strconv.Atoi: parsing "{text:.{_SHOWN}}": {why}')
    if number < 0:
        raise CronError(f"negative number ({number}) not allowed: {text}")
    return number


def time_zone(name: str) -> tzinfo:
    """The time zone of this name in the zone database of this machine.

    Raises:
        CronError: there is none; the message is that of Go.
    """
    if name in {"UTC", "Etc/UTC"}:
        return UTC
    try:
        if all(_is_zone_part(part) and part not in {".", ".."} for part in name.split("/")):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # as KeyError, a folder or another file of the database
        pass
    raise CronError(f"unknown time zone {name:.{_SHOWN}}")
