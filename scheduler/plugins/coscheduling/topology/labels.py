"""Topology constraints of PodGroups of scheduling.k8s.io: all members are on nodes with one value of a label.

Rules WAS-R55 to WAS-R58 of docs/spec/native-gangs.md. Nodes without the label are never used.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.domains import Domains as LabelCodes
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.domains import DomainChoice, DomainOffer, DomainPlan, Domains
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.gang import Gang
from seatrial.scheduler.plugins.coscheduling.topology.planner import mixed

TRIES = 64  # domains in which an attempt places members; upstream tries all
NO_PLACEMENTS = "no feasible placements found"


class LabelDomains(Domains):
    """The domains of one gang in one attempt. Members that are placed decide the domain of the others (WAS-R56)."""

    def __init__(self, handle: Handle, gang: Gang) -> None:
        self._handle, self._gang, self.key = handle, gang, gang.topology_key
        self._codes = handle.shared(LabelCodes).of(self.key)
        self.reason = ""  # why the last plan failed, in the words of the group's condition
        values: set[str] = set()
        self.problem = ""  # why the members that are placed leave no domain for the others
        for uid in (*gang.bound, *gang.waiting):
            member = handle.cache.placed(uid)
            node = handle.cache.find(member.node_name) if member is not None else None
            if member is None or node is None:
                continue
            value = node.known.metadata.labels.get(self.key)
            if value is None:
                self.problem = f"no topology domain found for pod {member.key}"
            else:
                values.add(value)
        if len(values) > 1:
            self.problem = f"more than 1 domain found for pod group: {', '.join(sorted(values))}"
        self._only = next(iter(values), None)

    def plan(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> "LabelPlan":
        return LabelPlan(self, offer, len(infos), self.tell)

    def plan_unheard(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> "LabelPlan":
        return LabelPlan(self, offer, len(infos), lambda _: None)

    def tell(self, words: str) -> None:
        self._gang.group.gathering = words

    def shape(self) -> Hashable:
        return self.key, self._only, bool(self.problem)

    @property
    def version(self) -> int:
        return self._handle.columns.static_changes

    def rows(self) -> Ints:
        codes = self._codes.codes()
        usable = self._codes.present()
        if self.problem or self._only is not None:
            allowed = [not self.problem and self.value(code) == self._only for code in range(self._codes.size)]
            usable = usable & np.array(allowed, np.bool_)[codes]
        return np.where(usable, codes, -1)

    def value(self, code: int) -> str:
        """The label's value in this domain."""
        return self._codes.value(code) or ""

    def note_failure(self, count: int, slots: int) -> None:
        """Note the reason of a plan without success: `count` domains, of which the best has that many slots."""
        gang = self._gang
        scheduled = len(gang.bound) + len(gang.waiting) + slots
        verb = "cannot be" if scheduled < gang.minimum else "is not yet"
        short = f"minCount ({gang.minimum}) {verb} satisfied: {scheduled} scheduled, 0 remaining"
        placements = f"0/{count} placements are available, first placement status: {short}"
        self.reason = self.problem or (placements if count else NO_PLACEMENTS)


class LabelPlan(DomainPlan):
    """The values of the label for one attempt."""

    def __init__(self, domains: LabelDomains, offer: DomainOffer, size: int, tell: Callable[[str], None]) -> None:
        self._domains, self._size, self._tell = domains, size, tell
        self._rows = domains.rows()
        inside = self._rows >= 0
        self._by_row = mixed([np.where(inside, slots, 0) for slots in offer.slots], offer.counts)
        self._scores = offer.scores
        codes = self._rows[inside]
        by_class = [np.bincount(codes, weights=slots[inside]).astype(np.int64) for slots in offer.slots]
        self._sums = mixed(by_class, offer.counts)
        self._present = np.flatnonzero(np.bincount(codes))

    def choices(self) -> Iterator[DomainChoice]:
        """The tightest domain first, so that room for larger groups stays; upstream takes any."""
        names = {int(code): self._domains.value(int(code)) for code in self._present if self._sums[code] >= self._size}
        for code in sorted(names, key=lambda code: (int(self._sums[code]), names[code]))[:TRIES]:
            name = f"{self._domains.key}={names[code]}"
            self._tell(f"placed in {name}")
            rows = np.flatnonzero(self._rows == code)
            yield DomainChoice(name, rows.tolist(), self._shares(rows))

    def _shares(self, rows: Ints) -> list[tuple[int, int]]:
        left, shares = self._size, []
        for row in rows[np.argsort(-self._scores[rows], kind="stable")].tolist():
            count = min(left, int(self._by_row[row]))
            if count:
                shares.append((row, count))
                left -= count
        return shares

    def best_slots(self) -> int:
        return int(self._sums[self._present].max(initial=0))

    def failure(self, fit_error: str, tried: Sequence[str]) -> str:
        best = self.best_slots()
        self._domains.note_failure(len(self._present), min(best, self._size - 1))
        names = sorted(self._domains.value(int(code)) for code in self._present if self._sums[code] == best)
        words = f"best domain {self._domains.key}={names[0]} has room for {best}" if names else "no domain"
        self._tell(f"{words} of {self._size} members")
        if not names:
            return self._domains.reason
        return f"{fit_error} Tried without success: {', '.join(tried)}." if tried else fit_error
