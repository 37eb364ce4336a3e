"""The possible victims of job-level preemption: jobs that may be evicted, their cost, and their nodes."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.extension import DISABLE_PREEMPTIBLE
from seatrial.scheduler.api.quota import PREEMPTIBLE
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.group_failure import GroupFailure
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.jobs import Units
from seatrial.scheduler.plugins.defaultpreemption.dry_run import broken


@dataclass(slots=True, eq=False)
class Victims:
    """A job that is evicted whole or not at all."""

    name: str
    pods: list[PodInfo]
    priority: int  # the highest of its pods
    violations: int  # of disruption budgets, if it is evicted
    rank: tuple[int, ...]  # the lower, the sooner it stays
    started: float  # of those with equal ranks and sizes the oldest stays
    cost: int = 0


@dataclass(slots=True, eq=False)
class Candidate:
    """A node with its possible victims."""

    node: NodeInfo
    jobs: list[Victims]
    here: dict[str, list[PodInfo]]  # by name of the job: its pods on this node
    leaving: list[PodInfo]  # terminating pods: they go without an eviction
    marks: Hashable = ()  # nodes with equal marks have equal jobs
    version: int = 0

    def gone(self) -> list[PodInfo]:
        """The pods of the node that would be gone with all possible victims."""
        return [*self.leaving, *(pod for job in self.jobs for pod in self.here[job.name])]

    def copy(self) -> "Candidate":
        return Candidate(self.node, list(self.jobs), self.here, list(self.leaving), self.marks)


class PossibleVictims:
    """The search for victims of one group."""

    def __init__(self, handle: Handle, index: Units, group: GroupFailure) -> None:
        self._handle, self._index = handle, index
        self._priority = group.trigger.priority
        self._own = {unplaced.info.uid for unplaced in group.unplaced} | {info.uid for info in group.placed}
        self._own_jobs = {index.key_of(info) for info in group.placed}
        self._own_jobs |= {index.key_of_pending(unplaced.info) for unplaced in group.unplaced}  # bound members stay
        self._jobs: dict[str, Victims | None] = {}  # None: it may not be evicted

    def on(self, rows: Iterable[int], *, empty: bool = False) -> dict[int, Candidate]:
        """The nodes of these rows with their possible victims; `empty`: also nodes that have none."""
        candidates: dict[int, Candidate] = {}
        lowest = self._handle.cache.lowest_priority
        hopeless = lowest is None or lowest >= self._priority
        if hopeless and not empty:
            return candidates
        names, find, priority = self._handle.columns.names, self._handle.cache.find, self._priority
        for row in rows:
            node = find(names[row])
            if node is None:
                continue
            jobs: list[Victims] = []
            here: dict[str, list[PodInfo]] = {}
            leaving: list[PodInfo] = []
            marks: list[Hashable] = []
            for pod in () if hopeless else node.pods.values():
                if pod.pod.spec.priority >= priority or pod.uid in self._own:
                    continue
                if pod.pod.deleting:
                    leaving.append(pod)
                    continue
                job = self._job_of(pod)
                if job is None:
                    continue
                marks += (job.violations, job.priority, len(job.pods), pod.pod_class.id)
                if job.name in here:
                    here[job.name].append(pod)
                    marks.append(job.name)
                else:
                    here[job.name] = [pod]
                    jobs.append(job)
            if jobs or leaving or empty:
                candidates[row] = Candidate(node, jobs, here, leaving, tuple(marks))
        present = {job.priority for job in self._jobs.values() if job is not None}
        position = {value: number for number, value in enumerate(sorted(present))}  # GANG-R76
        for job in self._jobs.values():
            if job is not None:
                job.cost = position[job.priority]
        return candidates

    def _job_of(self, pod: PodInfo) -> Victims | None:
        """The job of a possible victim; None if one of its pods may not be evicted."""
        name = self._index.key_of(pod)
        if name in self._jobs:
            return self._jobs[name]
        if name == pod.uid:  # a job of its own: most pods
            victims = None
            if may_be_evicted(pod.pod):
                victims = self._victims(name, [pod])
            self._jobs[name] = victims
            return victims
        pods = [other for other in self._index.pods_of(pod) if not other.pod.deleting]
        victims = None
        if name not in self._own_jobs and all(self._evictable(other) for other in pods):
            victims = self._victims(name, pods)
        self._jobs[name] = victims
        return victims

    def _victims(self, name: str, pods: list[PodInfo]) -> Victims:
        priority, violations = max(pod.pod.spec.priority for pod in pods), self._violations(pods)
        rank, started = self._index.rank(pods, priority, violations), min(pod.started for pod in pods)
        return Victims(name, pods, priority, violations, rank, started)

    def _violations(self, pods: list[PodInfo]) -> int:
        """The number of these pods whose eviction violates a disruption budget."""
        budgets = self._handle.cache.budgets
        return sum(broken(pods, list(budgets.values()))) if budgets else 0

    def _evictable(self, info: PodInfo) -> bool:
        return info.pod.spec.priority < self._priority and may_be_evicted(info.pod) and info.uid not in self._own


def may_be_evicted(pod: Pod) -> bool:
    """Whether labels allow that the pod is a victim (GANG-R73)."""
    labels = pod.metadata.labels
    if not labels:
        return not is_reserve_pod(pod)
    return labels.get(DISABLE_PREEMPTIBLE) != "true" and labels.get(PREEMPTIBLE) != "false" and not is_reserve_pod(pod)
