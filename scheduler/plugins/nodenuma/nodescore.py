"""Node scores: of the whole node, or of the NUMA nodes that serve the pod (NUMA-R57 to NUMA-R59)."""

from collections.abc import Mapping

import numpy as np

from seatrial.scheduler.api.quantity import CPU
from seatrial.scheduler.cache.columns import Batch, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.plugins.nodenuma.alignment import Outcome
from seatrial.scheduler.plugins.nodenuma.demand import Demand
from seatrial.scheduler.plugins.nodenuma.hints import counted
from seatrial.scheduler.plugins.nodenuma.options import amplify
from seatrial.scheduler.plugins.nodenuma.scoring import Scorer
from seatrial.scheduler.plugins.nodenuma.states import NumaState


class NodeScore:
    """Scores nodes by one strategy."""

    def __init__(self, resources: ResourceIndex, scorer: Scorer) -> None:
        self._scorer = scorer
        self._columns = {name: resources.column(name) for name in scorer.weights}

    def sums(self, node: NodeInfo) -> tuple[tuple[int, int], ...]:
        """The values of a node that `plain` reads."""
        allocatable, requested = node.allocatable, node.requested
        width = min(len(allocatable), len(requested))
        return tuple(
            (allocatable[column], requested[column]) if column < width else (0, 0) for column in self._columns.values()
        )

    def _whole(self, node: NodeInfo) -> tuple[dict[str, int], dict[str, int]]:
        pairs = dict(zip(self._columns, self.sums(node), strict=True))
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}

    def plain(self, demand: Demand, node: NodeInfo) -> int:
        """The score of the whole node, for a pod that is neither bound nor aligned there."""
        capacity, used = self._whole(node)
        return self._scorer.score(capacity, used, dict(demand.requests))

    def many(self, demand: Demand, batch: Batch) -> Ints:
        """`plain` for all rows."""
        batch.columns.ensure_width()
        requests = dict(demand.requests)
        return self._scorer.many(
            {
                name: (batch.allocatable[column], batch.free[column] - requests.get(name, 0))
                for name, column in self._columns.items()
                if self._scorer.counts(name, requests)
            },
            np.zeros(batch.size, np.int64),
        )

    def of(self, state: NumaState, outcome: Outcome, node: NodeInfo) -> int:
        """The score of the NUMA nodes that serve the pod, or of the whole node if it is held to none."""
        ratio = state.options.ratio(CPU)
        bound = state.bound * 1000
        zones = [zone for zone, _ in outcome.allocation.zones]
        if zones:
            capacity, used = _sums(state, zones)
        else:
            capacity, used = self._whole(node)
            ratio = state.options.cpu_ratio or 1.0
            if ratio > 1 and CPU in used:
                used[CPU] += amplify(bound, ratio) - bound
        if outcome.allocation.cpus and outcome.mask is not None:
            # As upstream on nodes with a NUMA topology policy: all CPUs bound anywhere on the node count, and CPUs of
            # other pods do not (NUMA-R59). Without a policy both count (NUMA-R58).
            used[CPU] = amplify(bound, ratio)
        return self._scorer.score(capacity, used, counted(state, outcome.need))


def _sums(state: NumaState, zones: list[int]) -> tuple[dict[str, int], dict[str, int]]:
    capacity: dict[str, int] = {}
    used: dict[str, int] = {}
    for zone in zones:
        left: Mapping[str, int] = state.available[zone]
        for name, total in state.totals[zone].items():
            capacity[name] = capacity.get(name, 0) + total
            used[name] = used.get(name, 0) + total - left[name]
    return capacity, used
