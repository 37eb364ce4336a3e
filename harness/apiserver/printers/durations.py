"""Ages in kubectl's format: "45s", "3m20s", "2d4h"."""

from seatrial.harness.apiserver.times import printed, seconds_of

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
UNSET = "0001-01-01T00:00:00Z"  # Go's zero time, which upstream prints

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def human_duration(seconds: float) -> str:
    """`seconds` in at most two units, in the format of apimachinery's `duration.HumanDuration`.

    Up to two seconds below zero count as clock skew and give "0s"; anything further back is "<invalid>".
    """
    whole = int(seconds)
    if whole < 0:
        return INVALID if whole < -1 else "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_unit}{rest}{small_unit}" if rest else f"{whole // large}{large_unit}"


def age(timestamp: str | None, now: float) -> str:
    """The time from `timestamp` (RFC 3339) to `now` (Unix seconds); "<unknown>" if there is no timestamp."""
    if not timestamp:
        return UNKNOWN
    try:
        return human_duration(now - seconds_of(timestamp))
    except ValueError:
        return INVALID


def created_at(timestamp: str | None) -> str:
    """The timestamp itself in UTC, for kinds without a printer upstream."""
    if not timestamp:
        return UNSET
    try:
        return printed(int(seconds_of(timestamp))) or UNSET
    except ValueError:
        return INVALID
