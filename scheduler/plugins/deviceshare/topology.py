"""GPUs as a tree of NUMA nodes and PCIe switches; the smallest scope of it for a request (DEV-R40 to DEV-R44)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.hints import NODE_LEVEL, NUMA_LEVEL, PCIE_LEVEL

NO_TREE = Status.unresolvable("node(s) missing GPU Device Topology Tree")
MULTI_SHARED = Status.unresolvable("node(s) Unsupported Multi-Shared GPU")
NO_SCOPE = Status.unschedulable("Insufficient Topology Scoped GPU Devices")
NO_CARDS = Status.unschedulable("Insufficient GPU Devices")


class Place(NamedTuple):
    """The position of a device in the machine."""

    numa: int  # -1: unknown
    pcie: str


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the tree with all its cards, healthy or not, by minor."""

    level: int
    cards: Sequence[int]  # numbers of slots
    parts: Sequence["Scope"] = ()


def build(places: Mapping[int, Place | None]) -> Scope | None:
    """The tree over a node's GPUs, ordered by minor; None if the position of one is unknown."""
    known = [(place, card) for card, place in places.items() if place is not None]
    if not known or len(known) != len(places):
        return None
    by_numa = sorted(known, key=lambda item: item[0].numa)
    numa_nodes = []
    for _, members in groupby(by_numa, key=lambda item: item[0].numa):
        by_pcie = sorted(members, key=lambda item: item[0].pcie)
        switches = [
            Scope(PCIE_LEVEL, [card for _, card in group])
            for _, group in groupby(by_pcie, key=lambda item: item[0].pcie)
        ]
        numa_nodes.append(Scope(NUMA_LEVEL, sorted(card for switch in switches for card in switch.cards), switches))
    return Scope(NODE_LEVEL, list(places), numa_nodes)


@dataclass(frozen=True, slots=True)
class Search:
    """Requirements on a scope."""

    count: int
    required: int  # minimum level of the scope of the cards
    fits: frozenset[int]
    used: frozenset[int]
    rank: Callable[[int], tuple[int, int]] | None = None  # rank of shared cards, higher is better; None: by minor

    def find(self, tree: Scope) -> Sequence[int] | None:
        """The cards of the best scope with enough: the smallest, then one that is partly used."""
        choice = self._in(tree, 0, 0)
        return choice.cards if choice is not None else None

    def _in(self, scope: Scope, depth: int, touched: int) -> "_Choice | None":
        fitting = [card for card in scope.cards if card in self.fits]
        if len(fitting) < self.count:
            return None
        depth += 1
        touched += not self.used.isdisjoint(scope.cards)
        best: _Choice | None = None
        for part in scope.parts:
            choice = self._in(part, depth, touched)
            if choice is not None and (best is None or choice.worth > best.worth):
                best = choice
        if best is not None or scope.level < self.required:
            return best
        if self.rank is None:
            return _Choice((depth, touched, (0, 0)), fitting[: self.count])
        card = max(fitting, key=self.rank)
        return _Choice((depth, touched, self.rank(card)), [card])


class _Choice(NamedTuple):
    worth: tuple[int, int, tuple[int, int]]  # depth, number of touched scopes above, rank of the card
    cards: Sequence[int]
