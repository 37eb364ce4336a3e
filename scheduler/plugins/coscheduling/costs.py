"""What it costs to make room for a member on a node: which of the possible victims there would go (GANG-R76).

Sums of requests tell which jobs can stay; the plan itself (`placement`) checks all filters. Upstream counts all
possible victims of a node, also those that stay. Its cost is 0 for all jobs of the lowest priority, however large.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.group_failure import Unplaced
from seatrial.scheduler.framework.restored import RESTORED
from seatrial.scheduler.plugins.coscheduling.dry_run import DryRun
from seatrial.scheduler.plugins.coscheduling.victims import Candidate, Victims

# Of the jobs that go: violated budgets, cost of priorities, pods on all nodes, requests on this node.
Cost = tuple[int, int, int, int]
Amounts = tuple[int, ...]  # by resource that the member asks for

_UNIT = 1000  # of a request of the member


class Costs:
    """The costs of nodes for members of one class."""

    def __init__(self, dry_run: DryRun, unplaced: Unplaced) -> None:
        self._dry_run, self._unplaced = dry_run, unplaced
        self._requests = [(column, amount) for column, amount in unplaced.info.pod_class.vector if amount]

    def of_all(self, candidates: Sequence[Candidate]) -> list[Cost]:
        """The costs of nodes. Those with equal room and equal victims are computed once."""
        if RESTORED in self._unplaced.state or not self._requests:
            return [self.of(candidate) for candidate in candidates]
        columns = [column for column, _ in self._requests]
        rows = [candidate.node.row for candidate in candidates]
        room = zip(*self._dry_run.handle.columns.free[np.ix_(columns, rows)].tolist(), strict=True)
        known: dict[Hashable, Cost] = {}
        costs: list[Cost] = []
        for candidate, free in zip(candidates, room, strict=True):
            if candidate.version or candidate.leaving:
                costs.append(self.of(candidate))
                continue
            key = free, candidate.marks
            cost = known.get(key)
            if cost is None:
                cost = known[key] = self.of(candidate)
            costs.append(cost)
        return costs

    def of(self, candidate: Candidate) -> Cost:
        """The cost of a node."""
        left, fits = self._room(candidate)
        return self._cheapest(candidate, left, fits=fits)[0]

    def order(self, candidate: Candidate) -> Sequence[Victims]:
        """The jobs of a node in the order in which they are put back while the member fits."""
        left, fits = self._room(candidate)
        return self._cheapest(candidate, left, fits=fits)[1]

    def _room(self, candidate: Candidate) -> tuple[Amounts, bool]:
        """What is left beside the member and all possible victims, below 0 where it is missing, and whether the plan
        has changed the node: if not, the member does not fit there now, for whatever reason."""
        real, dry_run = candidate.node, self._dry_run
        node = dry_run.node(real)
        gone = [*candidate.leaving, *dry_run.holders(self._unplaced, real)]
        freed = self._amounts(gone) if gone else (0,) * len(self._requests)
        used, have = node.requested, node.allocatable
        left = tuple(
            [
                (have[column] if column < len(have) else 0)
                - (used[column] if column < len(used) else 0)
                - amount
                + more
                for (column, amount), more in zip(self._requests, freed, strict=True)
            ]
        )
        return left, node is not real

    def _cheapest(self, candidate: Candidate, left: Amounts, *, fits: bool) -> tuple[Cost, Sequence[Victims]]:
        """The better one of two orders: of jobs with equally many pods the larger ones, or the smaller ones, stay.

        `fits`: a node without a shortage needs no victims. Otherwise something else than sums is short there, and all
        possible victims count.
        """
        amounts = {job.name: self._amounts(candidate.here[job.name]) for job in candidate.jobs}
        size = {
            name: sum(own * _UNIT // amount for own, (_, amount) in zip(each, self._requests, strict=True))
            for name, each in amounts.items()
        }
        room = [sum(column) for column in zip(left, *amounts.values(), strict=True)]
        decided = min(room, default=0) >= 0 and (fits or min(left, default=0) < 0)
        costs: list[tuple[Cost, list[Victims]]] = []
        for sign in (-1, 1):
            jobs = sorted(candidate.jobs, key=lambda job: (*job.rank, sign * size[job.name], job.started, job.name))
            rest, cost = list(room), (0, 0, 0, 0)
            for job in jobs:
                after = [have - own for have, own in zip(rest, amounts[job.name], strict=True)]
                if decided and min(after, default=0) >= 0:
                    rest = after
                else:
                    violations, priority, pods, amount = cost
                    pods, amount = pods + len(job.pods), amount + size[job.name]
                    cost = violations + job.violations, priority + job.cost, pods, amount
            costs.append((cost, jobs))
        return min(costs, key=lambda one: one[0])

    def _amounts(self, pods: Sequence[PodInfo]) -> Amounts:
        vectors = [dict(pod.pod_class.vector) for pod in pods]
        return tuple([sum(vector.get(column, 0) for vector in vectors) for column, _ in self._requests])
