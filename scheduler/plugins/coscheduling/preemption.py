"""Job-level preemption: room for all missing members of a gang group at once, or no eviction (GANG-R69 to GANG-R89).

The search works on copies of nodes (`dry_run`) and has no visible effect. Members are planned one after another. For
each, nodes are tried in the order of what the jobs there cost (GANG-R76): fewest violated disruption budgets, then the
cost, then the fewest pods of these jobs on other nodes, then the name. On a node that fits without all possible
victims, jobs are put back while the member fits, the most important first. Jobs that stay out are evicted whole, on all
their nodes, so that further members can use what they leave there. At the end jobs are put back that turned out not to
be needed. Groups with gather rules are planned in one domain of the network (`gathered_preemption`).
"""

from collections import Counter

from seatrial.scheduler.api.core import PREEMPT_NEVER
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.fit_error import NO_NODES, histogram
from seatrial.scheduler.framework.group_failure import GroupFailure, Unplaced
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.gathered_preemption import GatheredPlan
from seatrial.scheduler.plugins.coscheduling.jobs import Units
from seatrial.scheduler.plugins.coscheduling.placement import Placement
from seatrial.scheduler.plugins.coscheduling.victims import PossibleVictims
from seatrial.scheduler.plugins.defaultpreemption.plugin import NEVER, NOT_HELPFUL
from seatrial.scheduler.pods.preempted import preempted

TERMINATING = "not eligible due to terminating pod on the nominated node."
NO_VICTIMS = Status.unresolvable("no potential victims")
PREFIX = "preemption: "


class JobPreemption:
    """The search for one group."""

    def __init__(self, handle: Handle, jobs: Units, group: GroupFailure) -> None:
        self._handle, self._group = handle, group
        self._victims = PossibleVictims(handle, jobs, group)

    def run(self) -> PostFilterResult:
        """Nominations for all members with the pods to evict, or why no pod is evicted."""
        group = self._group
        if not group.unplaced:
            return PostFilterResult(Status.unschedulable(f"{PREFIX}no pending pods"))
        if group.trigger.pod.spec.preemption_policy == PREEMPT_NEVER:
            return PostFilterResult(Status.unschedulable(f"{PREFIX}{NEVER}"))
        if self._awaits_victims():
            return PostFilterResult(Status.unschedulable(f"{PREFIX}{TERMINATING}"))
        count = self._handle.cache.known_count
        if not count:
            return PostFilterResult(Status.unschedulable(f"{PREFIX}{NO_NODES}"))
        plan = self._plan(count) if group.gather is None else GatheredPlan(self._handle, group, self._victims).find()
        if isinstance(plan, str):
            return self._nobody(plan)
        placement, planned = plan
        placement.put_back()
        gone = placement.victims()
        refused = self._quota(gone)
        if refused is not None:
            return self._nobody(f"0/{count} nodes are available: {refused.message}.")
        waiting = len(group.placed)
        text = f"preempt success, alreadyWaitingForBound: {waiting}/{waiting + len(planned)}"
        placed = [(info, info.node_name) for info in group.placed]
        return PostFilterResult(
            Status(SUCCESS.code, (f"{PREFIX}{text}",)),
            victims=tuple(gone),
            nominations=(*placed, *planned),
            preemptor=group.name,
        )

    @staticmethod
    def _nobody(text: str) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable(f"{PREFIX}{text}"), clear_nomination=True)

    def _awaits_victims(self) -> bool:
        """Whether a pod that was preempted for a member still terminates on the member's node (GANG-R71)."""
        find, nominator = self._handle.cache.find, self._handle.nominator
        priority = self._group.trigger.priority
        for unplaced in self._group.unplaced:
            info = unplaced.info
            node = find(nominator.node_of(info.uid)) if nominator.nominated else None
            if node is None:
                continue
            exempt = info is self._group.trigger and unplaced.failure.pre_filter is None
            if exempt and unplaced.failure.status(node.row).code is Code.UNRESOLVABLE:
                continue
            if any(pod.priority < priority and preempted(pod.pod) for pod in node.pods.values()):
                return True
        return False

    def _plan(self, count: int) -> tuple[Placement, list[tuple[PodInfo, str]]] | str:
        """All members on the cheapest nodes, or why one of them has none (GANG-R77)."""
        of_kind: dict[tuple[str, int], Unplaced] = {}
        for unplaced in self._group.unplaced:
            of_kind.setdefault(unplaced.kind, unplaced)
        rows = {row for unplaced in of_kind.values() for row in _helpful(unplaced)}
        placement = Placement(self._handle, self._victims.on(sorted(rows)), _helpful)
        planned: list[tuple[PodInfo, str]] = []
        for unplaced in self._group.unplaced:
            node = placement.place(unplaced)
            if node is None:
                statuses = placement.statuses(unplaced)
                return f"0/{count} nodes are available: {_reasons(unplaced, statuses, count)}."
            planned.append((unplaced.info, node))
        return placement, planned

    def _quota(self, gone: list[PodInfo]) -> Status | None:
        """The first gate that the planned members do not pass together (GANG-R89)."""
        planned: list[PodInfo] = []
        for unplaced in self._group.unplaced:
            for gate, _ in self._handle.runner_of(unplaced.info).gates_of(unplaced.info.pod):
                status = gate.gate_beside(unplaced.info, planned, gone)
                if not status.ok:
                    return status
            planned.append(unplaced.info)
        return None


def _helpful(unplaced: Unplaced) -> list[int]:
    rows: list[int] = unplaced.failure.resolvable_rows().tolist()
    return rows


def _reasons(unplaced: Unplaced, statuses: dict[int, Status], count: int) -> str:
    """Why the member fits on no node, even without possible victims (GANG-R72, GANG-R74)."""
    helpful = _helpful(unplaced)
    counted = list(Counter(statuses.get(row, NO_VICTIMS) for row in helpful).items())
    if count > len(helpful):
        counted.append((NOT_HELPFUL, count - len(helpful)))
    return histogram(counted)
