"""Keep pods off nodes without room for their requests, and prefer nodes by how full they would be.

Follows kubernetes pkg/scheduler/framework/plugins/noderesources/fit.go. What a device can still give is DeviceShare's
affair; here device resources count as plain sums over the node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from scheduler.api.core import Pod
from scheduler.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.api.wire import Wire
from scheduler.cache.classes import PodClass
from scheduler.cache.columns import Batch, Bools, Ints
from scheduler.cache.resources import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo
from scheduler.framework.points import Args, FilterColumns, PreFilter, Scope, ScoreColumns
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins.noderesources.strategies import LeastAllocated, MostAllocated, RequestedToCapacityRatio, Strategy

_NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


class WeightedResource(Wire, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: int = 1


class ShapePoint(Wire, frozen=True, forbid_unknown_fields=True):
    utilization: int
    score: int


class CapacityRatio(Wire, frozen=True, forbid_unknown_fields=True):
    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = (WeightedResource(CPU), WeightedResource(MEMORY))
    requested_to_capacity_ratio: CapacityRatio | None = None


class NodeResourcesFitArgs(Args, frozen=True):
    scoring_strategy: ScoringStrategy = ScoringStrategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def check(self) -> None:
        for index, resource in enumerate(self.scoring_strategy.resources):
            if not 0 <= resource.weight <= 100:
                raise ValueError(
                    f"scoringStrategy.resources[{index}].weight: expected 0 (as 1) to 100, found {resource.weight}"
                )
        if self.scoring_strategy.type != "RequestedToCapacityRatio":
            return
        ratio = self.scoring_strategy.requested_to_capacity_ratio
        shape = ratio.shape if ratio is not None else ()
        where = "scoringStrategy.requestedToCapacityRatio.shape"
        if not shape:
            raise ValueError(f"{where}: expected at least one point with utilization and score, found none")
        for index, point in enumerate(shape):
            if not (0 <= point.utilization <= 100 and 0 <= point.score <= 10):
                raise ValueError(
                    f"{where}[{index}]: expected utilization 0 to 100 and score 0 to 10,"
                    f" found {point.utilization} and {point.score}"
                )
            if index and point.utilization <= shape[index - 1].utilization:
                raise ValueError(
                    f"{where}[{index}].utilization: expected more than in the point before, found {point.utilization}"
                )

    def strategy(self) -> Strategy:
        """The arithmetic that `scoringStrategy` names."""
        match self.scoring_strategy.type:
            case "LeastAllocated":
                return LeastAllocated()
            case "MostAllocated":
                return MostAllocated()
            case "RequestedToCapacityRatio":
                ratio = self.scoring_strategy.requested_to_capacity_ratio or CapacityRatio()
                return RequestedToCapacityRatio([(point.utilization, point.score) for point in ratio.shape])


@dataclass(frozen=True, slots=True)
class _Ask:
    checked: tuple[tuple[int, int, str], ...]  # column, amount, name
    scored: tuple[tuple[int, int, int], ...]  # column, amount as scores count it, weight
    native: tuple[int, int]  # cpu and memory as scores count them


ASK: StateKey[_Ask] = StateKey("NodeResourcesFit/ask")


class NodeResourcesFit(PreFilter, FilterColumns, ScoreColumns):
    name = "NodeResourcesFit"
    scope = Scope.NODE_PODS

    def __init__(self, handle: Handle, args: NodeResourcesFitArgs | None = None) -> None:
        args = args or NodeResourcesFitArgs()
        self._handle = handle
        self._resources = handle.columns.resources
        self._strategy = args.strategy()
        self._weights = {resource.name: resource.weight or 1 for resource in args.scoring_strategy.resources}
        self._native_only = list(self._weights) == [CPU, MEMORY]
        self._native_weights = np.array(list(self._weights.values()), np.int64).reshape(-1, 1, 1)
        self._ignored_names = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        shape = self._handle.cache.classes.of(pod)
        checked = tuple(
            (column, amount, name)
            for column, amount in shape.vector
            if not self._ignored(name := self._resources.names[column])
        )
        state[ASK] = _Ask(checked, tuple(self._scored(shape)), shape.nonzero)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        short, hopeless = [], False
        allocatable, requested = node.allocatable, node.requested
        for column, amount, name in state[ASK].checked:
            have = allocatable[column] if column < len(allocatable) else 0
            taken = requested[column] if column < len(requested) else 0
            if amount > have - taken:
                short.append(name)
                hopeless |= column != PODS_COLUMN and amount > have
        if not short:
            return SUCCESS
        return _insufficient(tuple(short), hopeless)

    def stack(self, states: Sequence[CycleState]) -> Ints:
        """[resource, class, 1], for the resources that some class asks for; what one does not ask for is always there."""
        asked = [state[ASK].checked for state in states]
        needs = np.full((len(self._resources), len(states), 1), np.iinfo(np.int64).min, np.int64)
        for number, checked in enumerate(asked):
            for column, amount, _ in checked:
                needs[column, number] = amount
        return needs

    def passing(self, stacked: Ints, batch: Batch) -> Bools | None:
        if batch.columns.width < len(stacked):
            batch.columns.ensure_width()
        return np.logical_and.reduce(batch.free[: len(stacked), None] >= stacked)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        strategy = self._strategy
        scored = []
        for column, amount, weight in state[ASK].scored:
            capacity = node.allocatable[column] if column < len(node.allocatable) else 0
            if capacity:
                scored.append((strategy.one(capacity, capacity - _used(node, column) - amount), weight))
        return strategy.mean(scored)

    def stack_scores(self, states: Sequence[CycleState]) -> tuple[Ints, list[_Ask]]:
        asks = [state[ASK] for state in states]
        return np.array([ask.native for ask in asks], np.int64).T[..., None], asks

    def scores(self, stacked: tuple[Ints, list[_Ask]], batch: Batch) -> Ints | None:
        native, asks = stacked
        strategy = self._strategy
        if self._native_only and not batch.columns.lacking:  # cpu and memory of nodes that have both: the usual case
            left = batch.room[:, None] - native
            return strategy.mean_many(strategy.many(batch.divisor[:, None], left), self._native_weights)
        return np.stack([self._scores_of_one(ask, batch) for ask in asks])

    def _scores_of_one(self, ask: _Ask, batch: Batch) -> Ints:
        if not ask.scored:
            return np.zeros(batch.size, np.int64)
        batch.columns.ensure_width()
        capacity = np.stack([batch.allocatable[column] for column, _, _ in ask.scored])
        left = np.stack([self._left(batch, column) - amount for column, amount, _ in ask.scored])
        weights = (capacity > 0) * np.array([[weight] for _, _, weight in ask.scored], np.int64)
        return self._strategy.mean_many(self._strategy.many(np.maximum(capacity, 1), left), weights)

    def _left(self, batch: Batch, column: int) -> Ints:
        return batch.room[column - CPU_COLUMN] if column in {CPU_COLUMN, MEMORY_COLUMN} else batch.free[column]

    def _ignored(self, name: str) -> bool:
        if name in _NATIVE:
            return False
        return name in self._ignored_names or name.split("/", 1)[0] in self._ignored_groups

    def _scored(self, shape: PodClass) -> "list[tuple[int, int, int]]":
        scored = []
        for name, weight in self._weights.items():
            column = self._resources.column(name)
            if column in {CPU_COLUMN, MEMORY_COLUMN}:
                scored.append((column, shape.nonzero[column - CPU_COLUMN], weight))
            elif name in _NATIVE or shape.requests.get(name):
                scored.append((column, shape.requests.get(name, 0), weight))
        return scored


def _used(node: NodeInfo, column: int) -> int:
    if column in {CPU_COLUMN, MEMORY_COLUMN}:
        return node.nonzero[column - CPU_COLUMN]
    return node.requested[column] if column < len(node.requested) else 0


@lru_cache(maxsize=1024)
def _insufficient(short: tuple[str, ...], hopeless: bool) -> Status:
    reasons = tuple("Too many pods" if name == PODS else f"Insufficient {name}" for name in short)
    return Status.unresolvable(*reasons) if hopeless else Status.unschedulable(*reasons)
