"""Durations as Go reads and prints them (`time.ParseDuration`, `Duration.String`): 1h30m, 250ms, 10m0s."""

import re

from seatrial.scheduler.api.wrong_values import shown

MAX_LENGTH = 128  # characters; Go has no limit, and no duration that it prints is longer than 25
_LARGEST = (1 << 63) - 1  # nanoseconds, about 292 years
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(?P<whole>\d*+)(?:\.(?P<rest>\d*+))?(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_BELOW_A_SECOND = (("ns", 1), ("µs", 10**3), ("ms", 10**6))


def go_duration(text: str) -> float | None:
    """Seconds of a duration; None if the text is none, or has more than MAX_LENGTH characters."""
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if len(text) > MAX_LENGTH or not rest:
        return None
    total = end = 0
    while end < len(rest) and rest != "0":
        part = _PART.match(rest, end)
        if part is None or not (part["whole"] or part["rest"]):
            return None
        fraction = part["rest"] or "0"
        size = _NANOSECONDS[part["unit"]]
        total += int(part["whole"] or "0") * size + int(fraction) * size // 10 ** len(fraction)
        end = part.end()
    return None if total > _LARGEST else (-total if text[0] == "-" else total) / 10**9


def required_duration(text: str) -> float:
    """Seconds of a duration.

    Raises:
        ValueError: `go_duration` reads none.
    """
    duration = go_duration(text)
    if duration is None:
        raise ValueError(f"expected a duration such as 15s or 1m30s, found {shown(text)}")
    return duration


def go_text(seconds: float) -> str:
    """A duration as Go prints it."""
    nanoseconds = round(abs(seconds) * 10**9)
    if nanoseconds < 10**9:
        unit, size = next(((unit, size) for unit, size in _BELOW_A_SECOND if nanoseconds < 1000 * size))
        text = f"{_decimal(nanoseconds, size)}{unit}" if nanoseconds else "0s"
    else:
        minutes, left = divmod(nanoseconds, 60 * 10**9)
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(left, 10**9)}s"
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text
    return f"-{text}" if seconds < 0 else text


def _decimal(count: int, size: int) -> str:
    return f"{count / size:.9f}".rstrip("0").rstrip(".")
