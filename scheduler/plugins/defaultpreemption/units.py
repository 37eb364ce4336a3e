"""Pods that are preempted together, over all nodes (WAS-R49): what dry runs need of them, computed once."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seatrial.scheduler.api.core import PodDisruptionBudget
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.pods.selectors import budget_covers


class Cost(NamedTuple):
    """By what candidates are compared (FWK-R78). `earliest`: start of a pod with the highest priority."""

    highest: int
    total: int
    pods: int
    earliest: float


def cost_of(pods: Iterable[PodInfo]) -> Cost:
    """The cost of evicting these pods, at least one."""
    return sum_of([Cost(pod.priority, pod.priority, 1, pod.started) for pod in pods])


def sum_of(costs: Sequence[Cost]) -> Cost:
    """The cost of all of them, at least one."""
    highest = max(cost.highest for cost in costs)
    total, pods = sum(cost.total for cost in costs), sum(cost.pods for cost in costs)
    return Cost(highest, total, pods, min(cost.earliest for cost in costs if cost.highest == highest))


@dataclass(slots=True, eq=False)
class Unit:
    """A native group that goes as a whole, or one pod. `can_go`: every pod of it may be a victim."""

    pods: Sequence[PodInfo]
    can_go: bool
    cost: Cost
    started: float
    is_group: bool
    here: dict[str, list[PodInfo]] = field(default_factory=dict)  # by name of the node
    covering: "_Covering | None" = None


def unit_of(pods: Sequence[PodInfo], may_go: Callable[[PodInfo], bool], *, is_group: bool) -> Unit:
    """The unit of these pods, at least one."""
    can_go = all(map(may_go, pods))
    unit = Unit(pods, can_go, cost_of(pods), min(pod.started for pod in pods), is_group)
    for pod in pods:
        unit.here.setdefault(pod.node_name, []).append(pod)
    return unit


@dataclass(frozen=True, slots=True)
class _Covering:
    """The budgets of a unit's pods. `each`: those that count down for a pod; `kinds`: different ones of these."""

    budgets: Mapping[str, PodDisruptionBudget]  # by key: all that cover a pod
    each: Mapping[str, tuple[str, ...]]  # by uid of the pod
    kinds: Counter[tuple[str, ...]]


def _covering(pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> _Covering:
    every: dict[str, PodDisruptionBudget] = {}
    each: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        metadata = pod.pod.metadata
        own = [budget for budget in budgets if budget_covers(budget, metadata.namespace, metadata.labels)]
        every |= {budget.metadata.key: budget for budget in own}
        counted = (budget.metadata.key for budget in own if metadata.name not in budget.status.disrupted_pods)
        each[pod.uid] = tuple(counted)
    return _Covering(every, each, Counter(kind for kind in each.values() if kind))


class Breaks:
    """Counts budgets down over the units of one node, in their order (FWK-R81). `allowed`: what is left, by key."""

    def __init__(self, by_namespace: Mapping[str, Sequence[PodDisruptionBudget]]) -> None:
        self._by_namespace = by_namespace
        self.allowed: dict[str, int] = {}

    def of(self, unit: Unit, first: PodInfo) -> int:
        """How many violations the removal of the unit is. `first`: the pod of it that goes first."""
        if unit.covering is None:
            unit.covering = _covering(unit.pods, self._by_namespace.get(first.pod.metadata.namespace, ()))
        covering = unit.covering
        for key, budget in covering.budgets.items():
            self.allowed.setdefault(key, budget.status.disruptions_allowed)
        if len(covering.kinds) > 1:  # the order of the pods counts
            order = (first.uid, *(uid for uid in covering.each if uid != first.uid))
            return sum(self._take(covering.each[uid], 1) for uid in order)
        return sum(self._take(kind, count) for kind, count in covering.kinds.items())

    def _take(self, kind: Sequence[str], count: int) -> int:
        """How many of `count` pods under these budgets violate one."""
        left = min((self.allowed[key] for key in kind), default=count)
        for key in kind:
            self.allowed[key] -= count
        return count - min(max(left, 0), count)
