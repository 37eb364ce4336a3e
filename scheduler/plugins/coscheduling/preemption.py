"""Job-level preemption: room for all missing members of a gang group at once, or no eviction (GANG-R69 to GANG-R89).

The search works on copies of nodes (`dry_run`) and has no visible effect. Members are planned one after another. For
each, nodes are tried in the order of what the jobs there cost (GANG-R76): fewest violated disruption budgets, then the
cost, then the fewest pods of these jobs on other nodes, then the name. On a node that fits without all possible
victims, jobs are put back while the member fits, the most important first. Jobs that stay out are evicted whole, on all
their nodes, so that further members can use what they leave there. At the end jobs are put back that turned out not to
be needed.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import PREEMPT_NEVER, Pod
from seatrial.scheduler.api.extension import DISABLE_PREEMPTIBLE
from seatrial.scheduler.api.quota import PREEMPTIBLE
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.fit_error import NO_NODES, histogram
from seatrial.scheduler.framework.group_failure import GroupFailure, Unplaced
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.runner import Runner
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.dry_run import DryRun
from seatrial.scheduler.plugins.coscheduling.jobs import JobIndex
from seatrial.scheduler.plugins.defaultpreemption.dry_run import broken
from seatrial.scheduler.plugins.defaultpreemption.plugin import NEVER, NOT_HELPFUL, preempted

TERMINATING = "not eligible due to terminating pod on the nominated node."
NO_VICTIMS = Status.unresolvable("no potential victims")
PREFIX = "preemption: "


# Violated budgets, cost, whether there are victims, pods of these jobs on other nodes, name of the node.
Rank = tuple[int, int, bool, int, str]


@dataclass(slots=True, eq=False)
class Victims:
    """A job that is evicted whole or not at all."""

    name: str
    pods: list[PodInfo]
    priority: int  # the highest of its pods
    violations: int  # of disruption budgets, if it is evicted
    cost: int = 0


@dataclass(slots=True, eq=False)
class Candidate:
    """A node with its possible victims."""

    node: NodeInfo
    jobs: list[Victims]
    leaving: list[PodInfo]  # terminating pods: they go without an eviction
    version: int = 0

    def rank(self) -> Rank:
        """The order in which nodes are tried, smallest first."""
        violations = cost = elsewhere = 0
        for job in self.jobs:
            violations += job.violations
            cost += job.cost
            elsewhere += len(job.pods)
        if elsewhere:
            elsewhere -= sum(pod.node_name == self.node.name for job in self.jobs for pod in job.pods)
        return violations, cost, bool(self.jobs), elsewhere, self.node.name


@dataclass(slots=True, eq=False)
class _Kind:
    """Members of one class, and where they may go."""

    queue: list[tuple[Rank, int, int]]  # heap of rank, version, row
    statuses: dict[int, Status] = field(default_factory=dict)  # rows that do not fit even without the victims


class JobPreemption:
    """The search for one group."""

    def __init__(self, handle: Handle, jobs: JobIndex, group: GroupFailure) -> None:
        self._handle, self._index, self._group = handle, jobs, group
        self._priority = group.trigger.priority
        self._own = {unplaced.info.uid for unplaced in group.unplaced} | {info.uid for info in group.placed}
        self._own_jobs = {jobs.key_of(info) for info in group.placed}
        self._victims: dict[str, Victims | None] = {}  # by job; None: it may not be evicted
        self._candidates: dict[int, Candidate] = {}  # by row
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._chosen: list[Victims] = []
        self._dry_run = DryRun(handle)

    def run(self) -> PostFilterResult:
        """Nominations for all members with the pods to evict, or why nobody is evicted."""
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
        lowest = self._handle.cache.lowest_priority
        if lowest is not None and lowest < self._priority:
            self._find_candidates()
        planned: list[tuple[PodInfo, str]] = []
        for unplaced in group.unplaced:
            row = self._place(unplaced)
            if row is None:
                return self._nobody(f"0/{count} nodes are available: {self._reasons(unplaced, count)}.")
            planned.append((unplaced.info, self._candidates[row].node.name))
        self._put_back()
        gone = [pod for job in self._chosen for pod in job.pods]
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
        for unplaced in self._group.unplaced:
            info = unplaced.info
            node = find(nominator.node_of(info.uid)) if nominator.nominated else None
            if node is None:
                continue
            exempt = info is self._group.trigger and unplaced.failure.pre_filter is None
            if exempt and unplaced.failure.status(node.row).code is Code.UNRESOLVABLE:
                continue
            if any(pod.priority < self._priority and preempted(pod.pod) for pod in node.pods.values()):
                return True
        return False

    # -- who may go ---------------------------------------------------------------------------------------------------

    def _find_candidates(self) -> None:
        """Collect the possible victims of all nodes that may help, with their costs."""
        rows = {int(row) for unplaced in self._first_of_kinds() for row in unplaced.failure.resolvable_rows()}
        names = self._handle.columns.names
        priority, find = self._priority, self._handle.cache.find
        for row in sorted(rows):
            node = find(names[row])
            if node is None:
                continue
            jobs: dict[str, Victims] = {}
            leaving: list[PodInfo] = []
            for pod in node.pods.values():
                if pod.pod.spec.priority >= priority or pod.uid in self._own:
                    continue
                if pod.pod.deleting:
                    leaving.append(pod)
                    continue
                job = self._job_of(pod)
                if job is not None:
                    jobs[job.name] = job
            if jobs or leaving:
                self._candidates[row] = Candidate(node, list(jobs.values()), leaving)
        present = {job.priority for job in self._victims.values() if job is not None}
        position = {value: number for number, value in enumerate(sorted(present))}  # GANG-R76
        for job in self._victims.values():
            if job is not None:
                job.cost = position[job.priority]

    def _first_of_kinds(self) -> Iterable[Unplaced]:
        found: dict[tuple[str, int], Unplaced] = {}
        for unplaced in self._group.unplaced:
            found.setdefault(_kind_of(unplaced.info), unplaced)
        return found.values()

    def _job_of(self, pod: PodInfo) -> Victims | None:
        """The job of a possible victim; None if one of its pods may not be evicted."""
        name = self._index.key_of(pod)
        if name in self._victims:
            return self._victims[name]
        if name == pod.uid:  # a job of its own: most pods
            found = None
            if may_be_evicted(pod.pod):
                found = Victims(name, [pod], pod.pod.spec.priority, self._violations([pod]))
            self._victims[name] = found
            return found
        pods = [other for other in self._index.pods_of(pod) if not other.pod.deleting]
        found = None
        if name not in self._own_jobs and all(self._evictable(other) for other in pods):
            found = Victims(name, pods, max(other.pod.spec.priority for other in pods), self._violations(pods))
        self._victims[name] = found
        return found

    def _violations(self, pods: list[PodInfo]) -> int:
        """The number of these pods whose eviction violates a disruption budget."""
        budgets = self._handle.budgets
        return sum(broken(pods, list(budgets.values()))) if budgets else 0

    def _evictable(self, info: PodInfo) -> bool:
        return info.pod.spec.priority < self._priority and may_be_evicted(info.pod) and info.uid not in self._own

    # -- the plan -----------------------------------------------------------------------------------------------------

    def _place(self, unplaced: Unplaced) -> int | None:
        """Plan one member on the first node in order that fits it without some jobs."""
        kind = self._kind(unplaced)
        while kind.queue:
            _, version, row = heapq.heappop(kind.queue)
            candidate = self._candidates[row]
            if version != candidate.version or row in kind.statuses:
                continue
            status = self._try(unplaced, candidate)
            if status.ok:
                return row
            kind.statuses[row] = status
        return None

    def _kind(self, unplaced: Unplaced) -> _Kind:
        key = _kind_of(unplaced.info)
        found = self._kinds.get(key)
        if found is None:
            rows = unplaced.failure.resolvable_rows().tolist()
            queue = [
                (candidate.rank(), candidate.version, row)
                for row in rows
                if (candidate := self._candidates.get(row)) is not None
            ]
            heapq.heapify(queue)
            found = self._kinds[key] = _Kind(queue)
        return found

    def _try(self, unplaced: Unplaced, candidate: Candidate) -> Status:
        """Plan the member on this node, if it fits there without the possible victims."""
        info, dry_run, node = unplaced.info, self._dry_run, candidate.node
        there = {job.name: [pod for pod in job.pods if pod.node_name == node.name] for job in candidate.jobs}
        everybody = [*candidate.leaving, *(pod for pods in there.values() for pod in pods)]
        short = dry_run.shortage(info, node, everybody)
        if short:
            return Status.unschedulable(f"Insufficient {short}")
        attempt = dry_run.attempt(unplaced, node)
        attempt.remove(everybody)
        status = attempt.check()
        if not status.ok:
            return status
        taken: list[Victims] = []
        for job in sorted(candidate.jobs, key=lambda job: (-job.priority, job.name)):  # GANG-R80
            pods = sorted(there[job.name], key=lambda pod: pod.key)
            attempt.put_back(pods)
            if not attempt.check().ok:
                attempt.remove(pods)
                taken.append(job)
        attempt.commit()
        candidate.leaving = []
        self._choose(taken, candidate)
        return SUCCESS

    def _choose(self, taken: Iterable[Victims], candidate: Candidate) -> None:
        """Evict these jobs on all their nodes, and rank the nodes again that they leave."""
        changed = {candidate.node.row: candidate}
        for job in taken:
            self._chosen.append(job)
            for pod in job.pods:
                node = self._handle.cache.find(pod.node_name)
                if node is None:
                    continue
                if node is not candidate.node:
                    self._dry_run.remove(node, [pod])
                other = self._candidates.get(node.row)
                if other is None:
                    continue
                other.jobs = [one for one in other.jobs if one is not job]
                changed[node.row] = other
        for row, other in changed.items():
            other.version += 1
            entry = (other.rank(), other.version, row)
            for kind in self._kinds.values():
                if row not in kind.statuses:
                    heapq.heappush(kind.queue, entry)

    def _put_back(self) -> None:
        """Keep the jobs that are not needed for any member, the most important first."""
        for job in sorted(self._chosen, key=lambda job: (-job.priority, job.name)):
            if self._dry_run.fits_with(job.pods):
                self._chosen.remove(job)

    def _quota(self, gone: list[PodInfo]) -> Status | None:
        """The first gate that the planned members do not pass together (GANG-R89)."""
        planned: list[PodInfo] = []
        for unplaced in self._group.unplaced:
            for gate, _ in Runner.of(self._handle, unplaced.info).gates_of(unplaced.info.pod):
                status = gate.gate_beside(unplaced.info, planned, gone)
                if not status.ok:
                    return status
            planned.append(unplaced.info)
        return None

    def _reasons(self, unplaced: Unplaced, count: int) -> str:
        """Why the member fits on no node, even without possible victims (GANG-R72, GANG-R74)."""
        helpful = unplaced.failure.resolvable_rows().tolist()
        kind = self._kind(unplaced)
        statuses = Counter(kind.statuses.get(row, NO_VICTIMS) for row in helpful)
        counted = list(statuses.items())
        if count > len(helpful):
            counted.append((NOT_HELPFUL, count - len(helpful)))
        return histogram(counted)


def _kind_of(info: PodInfo) -> tuple[str, int]:
    return info.pod.spec.scheduler_name, info.shape.id


def may_be_evicted(pod: Pod) -> bool:
    """Whether labels allow that the pod is a victim (GANG-R73)."""
    labels = pod.metadata.labels
    if not labels:
        return not is_reserve_pod(pod)
    return labels.get(DISABLE_PREEMPTIBLE) != "true" and labels.get(PREEMPTIBLE) != "false" and not is_reserve_pod(pod)
