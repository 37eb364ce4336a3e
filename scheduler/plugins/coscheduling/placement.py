"""Members of one group on nodes that jobs leave: the plan of job-level preemption, on copies of nodes (`dry_run`)."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.group_failure import Unplaced
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.coscheduling.costs import Cost, Costs
from seatrial.scheduler.plugins.coscheduling.dry_run import DryRun
from seatrial.scheduler.plugins.coscheduling.victims import Candidate, Victims

RowsOf = Callable[[Unplaced], Iterable[int]]  # the rows that may help a member


@dataclass(slots=True, eq=False)
class _Kind:
    """Members of one class, and where they may go."""

    costs: Costs
    queue: list[tuple[Cost, str, int, int]] = field(default_factory=list)  # heap; the name of the node, version, row
    statuses: dict[int, Status] = field(default_factory=dict)  # rows that do not fit even without the victims


class Placement:
    """One attempt to plan all members."""

    def __init__(self, handle: Handle, candidates: dict[int, Candidate], rows_of: RowsOf) -> None:
        """`candidates`: nodes by row; they are changed."""
        self._handle, self._candidates, self._rows_of = handle, candidates, rows_of
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._chosen: list[Victims] = []
        self._dry_run = DryRun(handle)

    def place(self, unplaced: Unplaced) -> str | None:
        """Plan one member on the first node in order that fits it without some jobs. Returns the node."""
        kind = self._kind(unplaced)
        while kind.queue:
            *_, version, row = heapq.heappop(kind.queue)
            candidate = self._candidates[row]
            if version != candidate.version or row in kind.statuses:
                continue
            status = self._try(unplaced, candidate)
            if status.ok:
                return candidate.node.name
            kind.statuses[row] = status
        return None

    def place_at(self, unplaced: Unplaced, row: int) -> Status:
        """Plan one member on this node, if it fits there without the possible victims."""
        return self._try(unplaced, self._candidates[row])

    def put_back(self) -> None:
        """Keep the jobs that are not needed for any member, the most important first, and of equal ones the largest."""
        for job in sorted(self._chosen, key=lambda job: (*job.rank, job.started, job.name)):
            if self._dry_run.fits_with(job.pods):
                self._chosen.remove(job)

    def victims(self) -> list[PodInfo]:
        return [pod for job in self._chosen for pod in job.pods]

    def statuses(self, unplaced: Unplaced) -> dict[int, Status]:
        """Why members of this class fit on no node even without its possible victims, by row."""
        return self._kind(unplaced).statuses

    def _kind(self, unplaced: Unplaced) -> _Kind:
        key = unplaced.kind
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(Costs(self._dry_run, unplaced))
            usable = [one for row in self._rows_of(unplaced) if (one := self._candidates.get(row)) is not None]
            kind.queue = [
                (cost, candidate.node.name, candidate.version, candidate.node.row)
                for candidate, cost in zip(usable, kind.costs.of_all(usable), strict=True)
            ]
            heapq.heapify(kind.queue)
        return kind

    def _try(self, unplaced: Unplaced, candidate: Candidate) -> Status:
        """Plan the member on this node, if it fits there without the possible victims."""
        dry_run, node = self._dry_run, candidate.node
        everybody = candidate.gone()
        short = dry_run.shortage(unplaced, node, everybody)
        if short:
            return Status.unschedulable(f"Insufficient {short}")
        attempt = dry_run.attempt(unplaced, node)
        attempt.remove(everybody)
        status = attempt.check()
        if not status.ok:
            return status
        taken: list[Victims] = []
        for job in self._kind(unplaced).costs.order(candidate):  # GANG-R80
            pods = sorted(candidate.here[job.name], key=lambda pod: pod.key)
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
            for kind in self._kinds.values():
                if row not in kind.statuses:
                    heapq.heappush(kind.queue, (kind.costs.of(other), other.node.name, other.version, row))
