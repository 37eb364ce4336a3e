"""Durations as Go reads and prints them (`1h30m`, `5m0s`): the harness' own reading, apart from the scheduler's."""

import re
from fractions import Fraction

_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+)", re.ASCII)


def go_duration(text: str) -> float | None:
    """Seconds of a duration (`time.ParseDuration`); None if the text is none."""
    if text in {"0", "+0", "-0"}:
        return 0.0
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    total = sum(Fraction(part[1]) * _NANOSECONDS[part[2]] for part in _PART.finditer(match[2]))
    return float((-total if match[1] == "-" else total) / 10**9)


def go_text(seconds: float) -> str:
    """A duration of whole or broken seconds as Go prints it (`Duration.String`): `10m0s`, `1.5s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
