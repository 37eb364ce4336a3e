"""Dry runs on many nodes at once, by amounts: free amounts of each node, and amounts that each pod there returns.

`dry_run.attempt` defines a dry run; this gives the same results for classes that amounts alone decide. Pods hold few
distinct amounts, so each distinct row is stored once and has a number.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import DryRunBatch
from seatrial.scheduler.framework.state import CycleState

PRIORITY_OFFSET = 1 << 31  # makes the sum over victims grow with their number, for negative priorities too
MAX_ROWS = 65536
_INITIAL_ROWS = 64


@dataclass(frozen=True, slots=True)
class NodeAccounts:
    """The possible victims of one node in the order in which they are put back, and the free amounts without them."""

    free: Ints  # [amount]
    held: Ints  # for each pod, its row in the ledger
    breaks: Bools  # for each pod, whether its removal violates a budget
    priorities: Ints
    starts: NDArray[np.float64]


class DryRunResult(NamedTuple):
    """Results of dry runs on several nodes, in the order of these nodes."""

    fits: Bools  # whether the node is a candidate; the other fields have the candidates only, in this order
    ranks: Ints  # [violations / highest priority / sum of priorities / number of victims, candidate]
    earliest: NDArray[np.float64]  # start of the earliest of the most important victims; 0 without victims
    victims: list[Bools]  # for each candidate: whether each pod, in the order of being put back, is a victim


class Ledger:
    """Rows of amounts that pods hold; each of `filters` owns a slice of a row."""

    def __init__(self, filters: Sequence[DryRunBatch]) -> None:
        self._filters = filters
        self._parts: dict[str, slice] = {}
        self._widths: list[int] = []
        self._width = 0
        self._numbers: dict[Hashable, int] = {}
        self._rows: Ints = np.zeros((_INITIAL_ROWS, 0), np.int64)

    def refresh(self) -> bool:
        """Take in new widths. Returns whether all accounts must be made again, after new amounts or too many rows."""
        widths = [plugin.dry_run_width() for plugin in self._filters]
        if widths == self._widths and len(self._numbers) < MAX_ROWS:
            return False
        ends = np.cumsum(widths).tolist()
        self._parts = {
            plugin.name: slice(end - width, end) for plugin, width, end in zip(self._filters, widths, ends, strict=True)
        }
        self._widths, self._width = widths, sum(widths)
        self._numbers.clear()
        self._rows = np.zeros((_INITIAL_ROWS, self._width), np.int64)
        return True

    def accounts(self, node: NodeInfo, pods: Sequence[PodInfo], breaks: Sequence[bool]) -> NodeAccounts | None:
        """The accounts of the possible victims `pods` of `node`; None if it needs a dry run of its own."""
        free: list[int] = []
        for plugin in self._filters:
            part = plugin.dry_run_free(node)
            if part is None:
                return None
            free += part
        if len(free) != self._width:  # a new amount appeared during the calls above
            return None
        if True in breaks:
            order = sorted(range(len(pods)), key=lambda place: not breaks[place])
            pods, breaks = [pods[place] for place in order], [breaks[place] for place in order]
        known = self._numbers.get
        keys = zip(*[plugin.dry_run_keys(node, pods) for plugin in self._filters], strict=True)
        lines = [
            self._row(key, node, pod) if (result := known(key)) is None else result
            for key, pod in zip(keys, pods, strict=True)
        ]
        return NodeAccounts(
            np.array(free, np.int64),
            np.array(lines, np.int64),
            np.array(breaks, np.bool_),
            np.array([pod.pod.spec.priority for pod in pods], np.int64),
            np.array([pod.started for pod in pods], np.float64),
        )

    def _row(self, key: Hashable, node: NodeInfo, pod: PodInfo) -> int:
        """Store the amounts of `pod`, which have no row yet. Returns the row's number."""
        number = self._numbers[key] = len(self._numbers)
        if number == len(self._rows):
            self._rows = np.pad(self._rows, ((0, number), (0, 0)))
        self._rows[number] = [value for plugin in self._filters for value in plugin.dry_run_held(node, pod)]
        return number

    def attempt(self, filters: Sequence[DryRunBatch], state: CycleState, nodes: Sequence[NodeAccounts]) -> DryRunResult:
        """Dry runs on nodes that have possible victims, for the class of `state`, which `filters` decide."""
        checks = [(plugin.dry_run_filter, self._parts[plugin.name]) for plugin in filters]

        def passing(free: Ints) -> Bools:
            ok = np.ones(len(free), np.bool_)
            for passes, part in checks:
                ok &= passes(state, free[:, part])
            return ok

        held = self._rows[np.concatenate([account.held for account in nodes])]
        lengths = np.array([len(account.held) for account in nodes])
        free = np.array([account.free for account in nodes])
        free += np.add.reduceat(held, np.cumsum(lengths) - lengths)
        fits = passing(free)
        keep = np.flatnonzero(fits)
        # Longest list first, so that the nodes with pods left to put back are always a prefix.
        keep = keep[np.argsort(-lengths[keep], kind="stable")]
        if not len(keep):
            return DryRunResult(fits, np.zeros((4, 0), np.int64), np.zeros(0), [])
        nodes = [nodes[place] for place in keep.tolist()]
        held = self._rows[np.concatenate([account.held for account in nodes])]
        lengths, free = lengths[keep], free[keep]
        begins = np.cumsum(lengths) - lengths
        victim = np.zeros(len(held), np.bool_)
        for turn in range(int(lengths[0])):
            count = int(np.searchsorted(-lengths, -turn))  # number of nodes with more than `turn` pods
            where = begins[:count] + turn
            amounts = held[where]
            left = free[:count]
            left -= amounts
            out = np.flatnonzero(~passing(left))
            left[out] += amounts[out]
            victim[where[out]] = True
        return _ranked(fits, keep, nodes, victim)


def _ranked(fits: Bools, keep: Ints, nodes: Sequence[NodeAccounts], victim: Bools) -> DryRunResult:
    """Victims and ranks of the nodes that passed, in the original order of the nodes."""
    lengths = np.array([len(account.held) for account in nodes])
    begins = np.cumsum(lengths) - lengths
    breaks = np.concatenate([account.breaks for account in nodes])
    priorities = np.concatenate([account.priorities for account in nodes])
    starts = np.concatenate([account.starts for account in nodes])
    highest = np.maximum.reduceat(np.where(victim, priorities, -PRIORITY_OFFSET), begins)
    counts = np.add.reduceat(victim, begins, dtype=np.int64)
    leading = victim & (priorities == np.repeat(highest, lengths))
    earliest = np.minimum.reduceat(np.where(leading, starts, np.inf), begins)
    earliest[counts == 0] = 0.0
    ranks = np.array(
        [
            np.add.reduceat(victim & breaks, begins, dtype=np.int64),
            highest,
            np.add.reduceat(np.where(victim, priorities + PRIORITY_OFFSET, 0), begins),
            counts,
        ]
    )
    back = np.argsort(keep)
    cut = zip(begins[back].tolist(), lengths[back].tolist(), strict=True)
    return DryRunResult(fits, ranks[:, back], earliest[back], [victim[begin : begin + length] for begin, length in cut])
