"""Completion indexes in the format of a Job's status: `1,3-5,7`."""

from collections.abc import Iterable

from seatrial.scheduler.api.integers import integer

MAX_INDEX = (
    1 << 20
)  # of a Job whose completions are followed; ten times upstream's limit of an indexed Job's parallelism


def parse_indexes(text: str | None) -> set[int]:
    """The indexes in `text`. Malformed parts and large indexes are ignored, as other clients may have written them."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        begin, _, end = part.strip().partition("-")
        first, last = integer(begin), integer(end or begin)
        if first is not None and last is not None and 0 <= first <= last < MAX_INDEX:
            indexes.update(range(first, last + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """`indexes` in ascending order; two or more consecutive ones become a range."""
    parts: list[str] = []
    ordered = sorted(set(indexes))
    start = 0
    for position, number in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == number + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == number else f"{first}-{number}")
        start = position + 1
    return ",".join(parts)
