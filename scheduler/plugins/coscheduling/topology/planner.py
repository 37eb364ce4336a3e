"""The choice of a domain for a job, and of the number of members on each node there. Arithmetic only.

Rules GANG-R55 to GANG-R61 of docs/spec/gang-topology-preemption.md. Slots: how many members fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.plugins.coscheduling.topology.tree import TreeView


@dataclass(frozen=True, slots=True)
class Offers:
    """What the nodes offer to a job, [row] each; rows outside the tree are ignored.

    `slots`: one array for each class of members. `wanted`: the number of members of each class.
    """

    slots: Sequence[Ints]
    counts: Sequence[int]
    scores: Ints
    peers: Ints  # existing pods with the job's selector value


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain in which the job may fit, and the numbers of members on its nodes, best first."""

    level: int
    domain: int
    shares: list[tuple[int, int]]  # row, number of members


def mixed(slots: Sequence[Ints], members: Sequence[int]) -> Ints:
    """How many members fit in the proportion of a job's classes: an upper bound. `members`: their number by class."""
    size = sum(members)
    bound: Ints = np.min([each * size // count for each, count in zip(slots, members, strict=True)], axis=0)
    return bound


class Planner:
    """The sums of one job's offers over the domains of all levels, and its candidates."""

    def __init__(
        self, view: TreeView, offers: Offers, *, gather: int = 0, multiples: Mapping[int, int] | None = None
    ) -> None:
        """`gather`: the level of the gathering set (GANG-R55); `multiples`: podCountMultiple by level."""
        self.view = view
        self.size = sum(offers.counts)
        self.gather = gather
        self._multiples = {level: k for level, k in (multiples or {}).items() if k > 1}
        inside = view.domains[-1] >= 0
        self._parents = view.parents
        self.peers = self._sum(np.where(inside, offers.peers, 0))
        self.scores = self._sum(np.where(inside, offers.scores, 0))
        by_class = [np.where(inside, slots, 0) for slots in offers.slots]
        if len(by_class) == 1:
            self.slots = self._sum(by_class[0], self._multiples)
        elif self._multiples:
            self.slots = self._sum(mixed(by_class, offers.counts), self._multiples)
        else:
            sums = [self._sum(slots) for slots in by_class]
            self.slots = [mixed([each[level] for each in sums], offers.counts) for level in range(len(sums[0]))]

    def _sum(self, rows: Ints, multiples: Mapping[int, int] | None = None) -> list[Ints]:
        """By level, [domain]: the sum over nodes, rounded down on the way to multiples (GANG-R56, GANG-R60)."""
        view, sums = self.view, [rows]
        for level in range(view.bottom, -1, -1):
            k = multiples.get(level, 1) if multiples else 1
            if k > 1:
                sums[0] = sums[0] // k * k
            if level:
                parents = view.parents[level]
                inside = parents >= 0
                size = len(view.paths[level - 1])
                bincount = np.bincount(parents[inside], weights=sums[0][inside], minlength=size)
                sums.insert(0, bincount.astype(np.int64))
        return sums

    # -- candidates ---------------------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[Candidate]:
        """Domains with room for the job, in the order of GANG-R57 and GANG-R58; those of upper levels follow."""
        kept = [self.slots[self.gather] >= max(self.size, 1)]
        if not kept[0].any():
            return
        for level in range(self.gather + 1, self.view.bottom + 1):
            parents = self.view.parents[level]
            below = (self.slots[level] >= max(self.size, 1)) & (parents >= 0)
            below &= kept[-1][np.maximum(parents, 0)]
            if not below.any():
                break
            kept.append(below)
        for level in range(self.gather + len(kept) - 1, self.gather - 1, -1):
            mask = kept[level - self.gather]
            for domain in self.ordered(level):
                if mask[domain]:
                    shares = self.shares(level, int(domain))
                    if sum(count for _, count in shares) == self.size:
                        yield Candidate(level, int(domain), shares)

    def ordered(self, level: int) -> Ints:
        """The domains of a level, best first (GANG-R58): peers and slots on the domain and then its ancestors."""
        chains = [np.arange(len(self.slots[level]))]
        for above in range(level, 0, -1):
            chains.append(np.maximum(self.view.parents[above], 0)[chains[-1]])
        keys = [-self.peers[level - depth][domains] for depth, domains in enumerate(chains)]
        keys += [self.slots[level - depth][domains] for depth, domains in enumerate(chains)]
        keys += [-self.scores[level], self.view.ranks[level]]
        order: Ints = np.lexsort(keys[::-1])
        return order

    def best(self) -> tuple[int, int] | None:
        """The domain of the gathering set with the most slots, and its slots."""
        slots = self.slots[self.gather]
        if not len(slots):
            return None
        domain = min(range(len(slots)), key=lambda one: (-int(slots[one]), int(self.view.ranks[self.gather][one])))
        return domain, int(slots[domain])

    # -- distribution -------------------------------------------------------------------------------------------------

    def shares(self, level: int, domain: int) -> list[tuple[int, int]]:
        """Members on each node of a domain (GANG-R59): siblings in the order of GANG-R58, but with more slots first."""
        view, bottom = self.view, self.view.bottom
        rows = np.flatnonzero((view.domains[level] == domain) & (self.slots[bottom] > 0))
        keys: list[Ints] = []
        for below in range(level + 1, bottom + 1):
            sibling = self._sibling_order(below)
            keys.append(sibling[view.domains[below][rows]])
        if keys:
            rows = rows[np.lexsort(keys[::-1])]
        if any(self._multiples.get(one, 1) > 1 for one in range(level, bottom)):
            return self._rounded(level, rows, self.size)
        k = self._multiples.get(bottom, 1)
        slots = self.slots[bottom][rows]
        before = np.cumsum(slots) - slots
        taken = np.clip(self.size - before, 0, slots) // k * k
        used = np.flatnonzero(taken)
        return list(zip(rows[used].tolist(), taken[used].tolist(), strict=True))

    def _sibling_order(self, level: int) -> Ints:
        """The position of each domain of a level among all of that level, for siblings."""
        keys = (self.view.ranks[level], -self.scores[level], -self.slots[level], -self.peers[level])
        order = np.lexsort(keys)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return position

    def _rounded(self, level: int, rows: Ints, size: int) -> list[tuple[int, int]]:
        """The same with podCountMultiple above the nodes. `rows` are in order, so domains are consecutive."""
        view, bottom = self.view, self.view.bottom

        def share(level: int, rows: Ints, amount: int) -> list[tuple[int, int]]:
            domain = int(view.domains[level][rows[0]])
            k = self._multiples.get(level, 1)
            amount = min(amount, int(self.slots[level][domain])) // k * k
            if level == bottom:
                return [(int(rows[0]), amount)] if amount else []
            shares: list[tuple[int, int]] = []
            children = view.domains[level + 1][rows]
            starts = np.flatnonzero(np.r_[True, children[1:] != children[:-1]]).tolist()
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                if amount <= 0:
                    break
                results = share(level + 1, rows[start:end], amount)
                shares += results
                amount -= sum(count for _, count in results)
            return shares

        return share(level, rows, size) if len(rows) else []
