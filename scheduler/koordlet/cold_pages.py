"""Cold memory by kidled's `memory.idle_page_stats` (KM-11 to KM-14)."""

from seatrial.scheduler.api.integers import integer

_LINES = 31
_HEAD = ("# version:", "# page_scans:", "# slab_scans:", "# scan_period_in_seconds:", "# use_hierarchy:", "# buckets:")
_BUCKETS = "1,2,5,15,30,60,120,240"
_FIRST_ROW = 14  # from 0
_COUNTS = 8
_COLD_FROM = 5  # bucket: 60 scan periods and more
_COLD_ROWS = frozenset({"cfei", "dfei", "cfui", "dfui"})  # clean and dirty pages of files that are inactive


class IdleStatsError(ValueError):
    """The text is not of kidled's form."""


def cold_bytes(text: str) -> int:
    """Bytes of pages of files that were not used for 60 scan periods.

    Raises:
        IdleStatsError: the text is not of kidled's form.
    """
    lines = text.split("\n")
    heads = zip(_HEAD, lines, strict=False)
    if len(lines) != _LINES or not all(line.startswith(head) for head, line in heads):
        raise IdleStatsError("format err")
    if lines[5].partition(":")[2].strip() != _BUCKETS:
        raise IdleStatsError("format err")
    total = 0
    for line in lines[_FIRST_ROW:]:
        name, *counts = line.split()
        if name in _COLD_ROWS:
            numbers = [integer(count, 0) for count in counts]
            if len(numbers) != _COUNTS or None in numbers:
                raise IdleStatsError("format err")
            total += sum(number or 0 for number in numbers[_COLD_FROM:])
    return total
