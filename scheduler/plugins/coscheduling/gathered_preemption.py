"""Job-level preemption for a group with gather rules: victims so that all members fit in one domain (GANG-R78).

The planner of domains gets the slots that nodes have without all possible victims, and the cost of these victims as a
negative score. Slots are sums of requests at first. Where the members do not fit after all on the node that the plan
gives them, because of devices or NUMA nodes, the slots of that node are corrected and the domains are planned again.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.cache.columns import Bools, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.domains import DomainChoice, DomainOffer
from seatrial.scheduler.framework.fit_error import histogram
from seatrial.scheduler.framework.group_failure import GroupFailure, Unplaced
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.restored import RESTORED
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.coscheduling.dry_run import left_out
from seatrial.scheduler.plugins.coscheduling.placement import Placement, RowsOf
from seatrial.scheduler.plugins.coscheduling.victims import PossibleVictims
from seatrial.scheduler.plugins.defaultpreemption.plugin import NOT_HELPFUL

MAX_PLANS = 64  # each but the first corrects the slots of at least one node
_VIOLATION, _COST = 1 << 40, 1 << 20  # weights of the parts of a node's cost; a pod counts 1

Planned = tuple[Placement, list[tuple[PodInfo, str]]]


class GatheredPlan:
    """The search for one group."""

    def __init__(self, handle: Handle, group: GroupFailure, victims: PossibleVictims) -> None:
        assert group.gather is not None
        self._handle, self._group, self._request = handle, group, group.gather.domains
        kinds: dict[tuple[str, int], list[Unplaced]] = {}
        for unplaced in group.unplaced:
            kinds.setdefault(unplaced.kind, []).append(unplaced)
        self._kinds = list(kinds.values())
        self._slots = [group.gather.slots[kind].copy() for kind in kinds]
        self._usable = [
            self._usable_rows(members[0], slots) for members, slots in zip(self._kinds, self._slots, strict=True)
        ]
        rows = np.flatnonzero(np.any(self._usable, axis=0)).tolist()
        self._candidates = victims.on(rows, empty=True)
        self._free, self._costs, self._changed = self._without_victims()
        self._stopped: dict[int, Status] = {}  # by row: why the next member does not fit where it was tried

    def find(self) -> Planned | str:
        """The members on nodes of one domain, or why no domain can hold them."""
        request, changed = self._request, self._changed
        for members, slots, usable in zip(self._kinds, self._slots, self._usable, strict=True):
            fit = np.full(len(changed), len(members), np.int64)
            for column, amount in members[0].info.pod_class.vector:
                if amount:
                    np.minimum(fit, self._free[column, changed] // amount, out=fit)
            slots[changed] = np.maximum(fit, 0)
            slots[~usable] = 0
        infos = [unplaced.info for unplaced in self._group.unplaced]
        targets = [len(members) for members in self._kinds]
        for _ in range(MAX_PLANS):
            tried: list[str] = []
            corrected = False
            plan = request.plan_unheard(DomainOffer(self._slots, targets, self._costs), infos)
            for choice in plan.choices() if len(changed) else ():
                place = self._place_by_shares(choice) if len(self._kinds) == 1 else self._place_in(choice)
                if not isinstance(place, bool):
                    request.tell(f"room in {choice.name} by preemption")
                    return place
                corrected |= place
                tried.append(choice.name)
            if not corrected:
                break
        return plan.failure(self._fit_error(), tried)

    def _without_victims(self) -> tuple[Ints, Ints, Rows]:
        """What is free without all possible victims, [resource, node]; their negative cost, [node]; their rows."""
        columns = self._handle.columns
        free, costs = columns.free[:, : columns.count].copy(), np.zeros(columns.count, np.int64)
        changed: list[int] = []
        restored = next((one for members in self._kinds if (one := members[0].state.get(RESTORED)) is not None), None)
        for row, candidate in self._candidates.items():
            gone = candidate.gone()
            if gone:
                changed.append(row)
                jobs = candidate.jobs
                costs[row] = -sum(job.violations * _VIOLATION + job.cost * _COST for job in jobs)
                costs[row] -= min(sum(len(job.pods) for job in jobs), _COST - 1)
            held = [] if not gone or restored is None else left_out(restored, candidate.node)
            for pod in (*gone, *held):
                for column, amount in pod.pod_class.vector:
                    free[column, row] += amount
        return free, costs, np.array(changed, np.intp)

    def _usable_rows(self, unplaced: Unplaced, slots: Ints) -> Bools:
        """Nodes with room, and nodes that may have room without pods (GANG-R74), [node]."""
        usable: Bools = slots > 0
        usable[unplaced.failure.resolvable_rows()] = True
        return usable

    def _place_by_shares(self, choice: DomainChoice) -> Planned | bool:
        """Members of one class on their shares of a domain; otherwise whether slots were corrected."""
        members, slots = self._kinds[0], self._slots[0]
        placement = self._placement([row for row, _ in choice.shares])
        planned: list[tuple[PodInfo, str]] = []
        left = iter(members)
        corrected = False
        for row, count in choice.shares:
            share = [next(left) for _ in range(count)]
            for number, unplaced in enumerate(share):
                status = placement.place_at(unplaced, row)
                if not status.ok:
                    slots[row], self._stopped[row], corrected = number, status, True
                    break
                planned.append((unplaced.info, self._candidates[row].node.name))
        return corrected or (placement, planned)

    def _place_in(self, choice: DomainChoice) -> Planned | bool:
        """Members of several classes on the cheapest nodes of a domain; otherwise False: no slots were corrected."""
        inside = set(choice.rows)
        usable = {members[0].kind: rows for members, rows in zip(self._kinds, self._usable, strict=True)}
        placement = self._placement(
            choice.rows, lambda unplaced: inside.intersection(np.flatnonzero(usable[unplaced.kind]).tolist())
        )
        planned: list[tuple[PodInfo, str]] = []
        for unplaced in self._group.unplaced:
            node = placement.place(unplaced)
            if node is None:
                return False
            planned.append((unplaced.info, node))
        return placement, planned

    def _placement(self, rows: Sequence[int], rows_of: RowsOf | None = None) -> Placement:
        candidates = {row: self._candidates[row].copy() for row in rows if row in self._candidates}
        return Placement(self._handle, candidates, rows_of or (lambda _: ()))

    def _fit_error(self) -> str:
        """Why one more member of the first class fits on no node, even without possible victims."""
        columns, members, slots = self._handle.columns, self._kinds[0], self._slots[0]
        count = self._handle.cache.known_count
        usable = self._usable[0] & columns.known[: columns.count]
        statuses: Counter[Status] = Counter()
        for row in np.flatnonzero(usable & (slots < len(members))).tolist():
            status = self._stopped.get(row)
            if status is None:
                short = (
                    f"Insufficient {name}"
                    for name, column, amount in members[0].info.pod_class.named
                    if self._free[column, row] < (slots[row] + 1) * amount
                )
                status = Status.unschedulable(*short)
            statuses[status] += 1
        helpless = count - int(usable.sum())
        counted = [*statuses.items(), *([(NOT_HELPFUL, helpless)] if helpless else [])]
        return f"0/{count} nodes are available: {histogram(counted)}."
