"""Lists of CPUs as Linux writes them (`0-3,8`): the harness' own reading, apart from the scheduler's."""

import re
from collections.abc import Iterable
from itertools import groupby

from seatrial.scheduler.api.wrong_values import shown

MAX_CPUS = 1 << 14  # of one node: twice as many as Linux can have
_RANGE = re.compile(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", re.ASCII)


class CpusetError(ValueError):
    """The text is not a Linux list of CPUs."""


def parse_cpuset(text: str) -> frozenset[int]:
    """The CPUs of a list; the empty text is the empty set.

    Raises:
        CpusetError: the text is not such a list.
    """
    if not text.strip():
        return frozenset()
    numbers: set[int] = set()
    left = MAX_CPUS
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise CpusetError(f"expected a list of CPUs such as 0-3,8, found {shown(text)}")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise CpusetError(f"expected ascending ranges of CPUs, found {part.strip()!r}")
        left -= high - low + 1
        if left < 0 or high >= MAX_CPUS:
            raise CpusetError(f"expected at most {MAX_CPUS} CPUs, found {shown(text)}")
        numbers |= set(range(low, high + 1))
    return frozenset(numbers)


def cpuset_text(cpus: Iterable[int]) -> str:
    """CPUs as such a list, with ranges."""
    parts = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        run = [cpu for _, cpu in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)
