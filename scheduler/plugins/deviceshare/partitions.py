"""GPU partitions: sets of linked cards, and the choice of one for a pod (DEV-R33 to DEV-R39).

The table comes from the Device object, or from this module for well-known NVIDIA machines.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from seatrial.scheduler.api.device import Partition
from seatrial.scheduler.api.quantity import QuantityError, amount
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.hints import PartitionPreference

NO_TABLE = Status.unresolvable("node(s) missing GPU Partition Table")
NO_SUCH_COUNT = Status.unresolvable("node(s) Unsupported number of GPU requests")
NONE_LEFT = Status.unschedulable("Insufficient Partitioned GPU Devices")

_WEIGHTS = {8: 10000, 4: 100, 2: 1}  # value of an untouched partition of this size
_LINKED_MODELS = frozenset({"H100", "H800", "H20"})
_NVIDIA = frozenset({"", "nvidia"})


@dataclass(frozen=True, slots=True)
class Cards:
    """One partition."""

    minors: frozenset[int]
    order: tuple[int, ...]  # in the order of the table
    score: int = 1
    bandwidth: int = 0  # of the ring; 0: unknown


Group = tuple[Cards, ...]  # partitions of one size and score
Table = Mapping[int, Sequence[Group]]  # by number of cards; best score first


class TableError(ValueError):
    """The annotation is not a partition table."""


@lru_cache(maxsize=1024)
def parse_table(text: str) -> Table:
    """Parse the annotation `gpu-partitions`; scores may be numbers or strings of digits.

    Raises:
        TableError: with what is wrong.
    """
    try:
        listed = decode_as(text, dict[str, list[Partition]])
        return {
            int(count): _groups(_cards(partition) for partition in partitions) for count, partitions in listed.items()
        }
    except (msgspec.DecodeError, QuantityError, ValueError) as error:
        raise TableError(f"gpu-partitions is not a partition table: {error}") from error


def _cards(partition: Partition) -> Cards:
    bandwidth = amount("ringBusBandwidth", partition.ring_bus_bandwidth) if partition.ring_bus_bandwidth != "" else 0
    return Cards(frozenset(partition.minors), partition.minors, int(partition.allocation_score), bandwidth)


def _groups(partitions: Iterable[Cards]) -> Sequence[Group]:
    by_score: dict[int, list[Cards]] = {}
    for partition in partitions:
        by_score.setdefault(partition.score, []).append(partition)
    return [tuple(by_score[score]) for score in sorted(by_score, reverse=True)]


def _block(size: int) -> Sequence[Group]:
    return _groups(
        Cards(frozenset(minors), minors) for minors in (tuple(range(i, i + size)) for i in range(0, 8, size))
    )


BUILT_IN: Table = {size: _block(size) for size in (1, 2, 4, 8)}


def known_machine(vendor: str, model: str) -> bool:
    """Whether the links of this GPU model are known (DEV-R34)."""
    return vendor in _NVIDIA and model in _LINKED_MODELS


def choose(
    table: Table | None,
    count: int,
    *,
    used: frozenset[int],
    usable: Callable[[int], bool],
    preference: PartitionPreference | None = None,
    lowest_score_first: bool = False,
) -> Sequence[int] | Status:
    """The minors of the best free partition of `count` cards.

    `used` are cards with any allocation; `usable` is whether a free card fits the request. In the best group, the
    partition that keeps most larger partitions untouched wins (DEV-R39), then the first of the table.
    """
    if table is None:
        return NO_TABLE
    groups = table.get(count)
    if not groups:
        return NO_SUCH_COUNT
    preference = preference or PartitionPreference()
    for group in reversed(groups) if lowest_score_first else groups:
        feasible = [
            partition
            for partition in group
            if not used & partition.minors
            and (not preference.bandwidth or partition.bandwidth >= preference.bandwidth)
            and all(usable(minor) for minor in partition.minors)
        ]
        if feasible:
            return max(
                feasible, key=lambda entry: _left_whole(table, count, used | entry.minors, lowest=lowest_score_first)
            ).order
        if preference.restricted:
            break
    return NONE_LEFT


def _left_whole(table: Table, count: int, taken: frozenset[int], *, lowest: bool) -> int:
    """The value of the partitions that stay untouched."""
    worth = 0
    for size, weight in _WEIGHTS.items():
        groups = table.get(size)
        if size >= count and groups:
            first = groups[-1] if lowest else groups[0]
            worth += sum(weight * partition.score for partition in first if not partition.minors & taken)
    return worth
