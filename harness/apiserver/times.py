"""Times as kube-apiserver reads and prints them: Go's `time.Parse` and `Time.Format`, with Go's messages.

Go reads more than RFC 3339: an hour of one digit, a comma before the fraction, an offset of `+24:60`. The year is 0 to
9999 when it is read; an offset may lead beyond, and so may protocol buffers, so `datetime` cannot hold every time.
"""

import re
from calendar import monthrange
from datetime import date

from seatrial.harness.apiserver.field_errors import quoted
from seatrial.harness.apiserver.text_cache import cached

DATE, RFC3339, RFC3339_MICRO = "2006-01-02", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
_STORED = "what is printed, beyond the years 0 and 9999 too"
_DAY = 24 * 60 * 60
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE, _CYCLE_DAYS = 400, 146_097  # years after which the calendar repeats, and their days
_UNSET = (1 - _EPOCH) * _DAY, 0  # the zero value of Go's type
_LIMITS = {
    "month": range(1, 13),
    "hour": range(24),
    "minute": range(60),
    "second": range(60),
    "time zone offset hour": range(25),
    "time zone offset minute": range(61),
}

# Parts of the layouts, each with its pattern and the names of the numbers in it.
_Part = tuple[str, re.Pattern[str], tuple[str, ...]]


def _part(layout: str, pattern: str = "", *names: str) -> _Part:
    return layout, re.compile(pattern or layout, re.ASCII | re.DOTALL), names


_DATE = (
    _part("2006", r"(\d{4})", "year"),
    _part("-"),
    _part("01", r"(\d\d)", "month"),
    _part("-"),
    _part("02", r"(\d\d)", "day"),
)
_TIME = (_part("T"), _part("15", r"(\d\d?)", "hour"), _part(":"), _part("04", r"(\d\d)", "minute"), _part(":"))
_ZONE = _part("Z07:00", r"Z|.(\d\d):(\d\d)", "time zone offset hour", "time zone offset minute")
_PARTS = {
    DATE: _DATE,
    RFC3339: (*_DATE, *_TIME, _part("05", r"(\d\d)(?:[.,]\d+)?", "second"), _ZONE),
    RFC3339_MICRO: (
        *_DATE,
        *_TIME,
        _part("05", r"(\d\d)", "second"),
        _part(".000000", r"[.,](\d{6})", "microsecond"),
        _ZONE,
    ),
    _STORED: (
        _part("2006", r"(-?\d{4,15})", "year"),
        *_DATE[1:],
        *_TIME,
        _part("05", r"(\d\d)(?:\.(\d{6}))?", "second", "microsecond"),
        _ZONE,
    ),
}


class TimeError(ValueError):
    """A text is not a time; the message is Go's."""


def parse(text: str, layout: str = RFC3339) -> tuple[int, int]:
    """Seconds since 1970, and microseconds if the layout has them.

    Raises:
        TimeError: the text does not have this layout, or there is no such time.
    """
    rest, sign, by_name = text, 1, dict[str, int]()

    def refuse(why: str) -> TimeError:
        return TimeError(f"parsing time {quoted(text)}{why}")

    for part, pattern, names in _PARTS[layout]:
        match = pattern.match(rest)
        for name, digits in zip(names, match.groups("0") if match else (), strict=False):
            by_name[name] = int(digits)
            if by_name[name] not in _LIMITS.get(name, (by_name[name],)):
                raise refuse(f": {name} out of range")
        if match is None or (part == "Z07:00" and rest[0] not in "Z+-"):
            raise refuse(f' as "{layout}": cannot parse {quoted(rest)} as "{part}"')
        sign = -1 if part == "Z07:00" and rest[0] == "-" else 1
        rest = rest[match.end() :]
    if rest:
        raise refuse(f": extra text: {quoted(rest)}")
    year, month, day = by_name["year"], by_name["month"], by_name["day"]
    if not 1 <= day <= monthrange(year, month)[1]:
        raise refuse(": day out of range")
    cycle, year = divmod(year, _CYCLE)
    days = date(_CYCLE + year, month, day).toordinal() - _EPOCH + (cycle - 1) * _CYCLE_DAYS
    offset = by_name.get("time zone offset hour", 0) * 60 + by_name.get("time zone offset minute", 0)
    minutes = by_name.get("hour", 0) * 60 + by_name.get("minute", 0) - sign * offset
    return days * _DAY + minutes * 60 + by_name.get("second", 0), by_name.get("microsecond", 0)


def printed(seconds: int, microseconds: int | None = None) -> str | None:
    """The time in UTC as the API has it; None for the zero value, which counts as not set."""
    if (seconds, microseconds or 0) == _UNSET:
        return None
    days, second = divmod(seconds, _DAY)
    cycle, ordinal = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    day = date.fromordinal(ordinal + 1)
    year = day.year + cycle * _CYCLE
    fraction = "" if microseconds is None else f".{microseconds:06d}"
    return (
        f"{'-' if year < 0 else ''}{abs(year):04d}-{day:%m-%d}"
        f"T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{fraction}Z"
    )


@cached()  # pods created together share timestamps
def seconds_of(text: str) -> float:
    """Seconds since 1970 of a time that is stored.

    Raises:
        TimeError: the text is no time, as may be in a custom resource.
    """
    seconds, microseconds = parse(text, _STORED)
    return seconds + microseconds / 1e6


@cached()
def canonical(text: str) -> str | None:
    """The text that kube-apiserver stores for a Time; None for one that counts as not set.

    Raises:
        TimeError: the text is no time.
    """
    return printed(parse(text)[0])


@cached()
def canonical_micro(text: str) -> str | None:
    """`canonical` for a MicroTime."""
    return printed(*parse(text, RFC3339_MICRO))
