"""NodeResourcesFit: reject nodes without room for the requests, and score nodes by utilisation.

Follows kubernetes pkg/scheduler/framework/plugins/noderesources/fit.go. Device resources count as plain sums over the
node here; DeviceShare checks the single devices.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.resources import BY_CLAIM, CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, UNOFFERED_COLUMN
from seatrial.scheduler.framework.accelerations import DryRunBatch, FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import Args, PreFilter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.kernel_parts import ClassAxis, KernelPart, PartKind
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.noderesources.strategies import (
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    Strategy,
    used_amount,
)

MAX_DELTAS = 65536  # bounds of score changes that are kept
NEVER_SHORT = int(np.iinfo(np.int64).min)  # the amount of a resource that a class does not request
NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


class WeightedResource(Wire, frozen=True, forbid_unknown_fields=True):
    """A resource and its weight."""

    name: str
    weight: int = 1


class ShapePoint(Wire, frozen=True, forbid_unknown_fields=True):
    """One point of a RequestedToCapacityRatio shape: utilisation in percent, score 0 to 10."""

    utilization: int
    score: int


class CapacityRatio(Wire, frozen=True, forbid_unknown_fields=True):
    """The shape of RequestedToCapacityRatio."""

    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    """Upstream's scoring strategy."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = (WeightedResource(CPU), WeightedResource(MEMORY))
    requested_to_capacity_ratio: CapacityRatio | None = None


class NodeResourcesFitArgs(Args, frozen=True):
    """Upstream's arguments."""

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
        """The strategy that `scoringStrategy` names."""
        match self.scoring_strategy.type:
            case "LeastAllocated":
                return LeastAllocated()
            case "MostAllocated":
                return MostAllocated()
            case "RequestedToCapacityRatio":
                ratio = self.scoring_strategy.requested_to_capacity_ratio or CapacityRatio()
                return RequestedToCapacityRatio([(point.utilization, point.score) for point in ratio.shape])


@dataclass(frozen=True, slots=True)
class _Request:
    checked: tuple[tuple[int, int, str], ...]  # column, amount, name
    scored: tuple[tuple[int, int, int], ...]  # column, amount for scores, weight
    native: tuple[int, int]  # cpu and memory for scores
    amounts: dict[int, int]  # the same as `checked`: the largest amount by column


REQUEST: StateKey[_Request] = StateKey("NodeResourcesFit/request")


class _Stacked:
    """The requests of several classes, stacked."""

    def __init__(self, columns: list[int], needs: Ints, first: _Request) -> None:
        """`columns` that some class requests; `needs` [column, class, 1]; `first`: the request of the first class."""
        self.columns, self.needs, self.first = columns, needs, first

    @cached_property
    def steps(self) -> list[tuple[int, list[int]]]:
        """For each column, all distinct requested amounts, ascending."""
        amounts = self.needs[..., 0].tolist()
        return [(column, sorted({*row} - {NEVER_SHORT})) for column, row in zip(self.columns, amounts, strict=True)]


class NodeResourcesFit(PreFilter, FilterBatch, ScoreBatch, DryRunBatch):
    """The extension points of NodeResourcesFit."""

    name = "NodeResourcesFit"
    scope = Scope.NODE_PODS
    has_signature = True

    def __init__(self, handle: Handle, args: NodeResourcesFitArgs | None = None) -> None:
        args = args or NodeResourcesFitArgs()
        self._handle = handle
        self._resources = handle.columns.resources
        self._strategy = args.strategy()
        self._weights = {resource.name: resource.weight or 1 for resource in args.scoring_strategy.resources}
        self._native_only = list(self._weights) == [CPU, MEMORY]
        self._native_weights = np.array(list(self._weights.values()), np.int64).reshape(-1, 1, 1)
        self._largest: dict[int, int] = {}  # column → the largest amount that any pod so far has for scores
        self._rises: dict[tuple[int, int, Hashable], tuple[list[int], int]] = {}  # holding the list keeps its id unique
        self._ignored_names = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        pod_class = self._handle.cache.classes.of(pod)
        checked = tuple(
            (column, amount, name)
            for name, column, amount in pod_class.named
            if not self._ignored(name) and (amount or column != UNOFFERED_COLUMN)
        )
        scored = tuple(self._scored(pod_class))
        for column, amount, _ in scored:
            self._largest[column] = max(self._largest.get(column, 0), amount)
        amounts: dict[int, int] = {}
        for column, amount, _ in checked:
            amounts[column] = max(amount, amounts.get(column, amount))
        state[REQUEST] = _Request(checked, scored, pod_class.nonzero, amounts)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        short, hopeless = [], False
        allocatable, requested = node.allocatable, node.requested
        for column, amount, name in state[REQUEST].checked:
            have = allocatable[column] if column < len(allocatable) else 0
            taken = requested[column] if column < len(requested) else 0
            if amount > have - taken:
                short.append(name)
                hopeless |= column != PODS_COLUMN and amount > have
        if not short:
            return SUCCESS
        return _insufficient(tuple(short), hopeless)

    def dry_run_signature(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Hashable:
        return tuple(node.allocatable), tuple(node.requested), tuple([pod.pod_class.id for pod in pods])

    def can_batch_dry_run(self, state: CycleState) -> bool:
        return True

    def dry_run_width(self) -> int:
        return len(self._resources)

    def dry_run_free(self, node: NodeInfo) -> Sequence[int]:
        width = len(self._resources)
        if len(node.requested) < width or len(node.allocatable) < width:
            node.widen(width)
        return [have - taken for have, taken in zip(node.allocatable, node.requested, strict=True)]

    def dry_run_keys(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Sequence[Hashable]:
        return [pod.pod_class.id for pod in pods]

    def dry_run_held(self, node: NodeInfo, pod: PodInfo) -> Sequence[int]:
        held = [0] * len(self._resources)
        for column, amount in pod.pod_class.vector:
            held[column] += amount
        return held

    def dry_run_filter(self, state: CycleState, free: Ints) -> Bools:
        ok = np.ones(len(free), np.bool_)
        for column, amount, _ in state[REQUEST].checked:
            ok &= free[:, column] >= amount
        return ok

    def stack(self, states: Sequence[CycleState]) -> _Stacked:
        asks = [state[REQUEST].amounts for state in states]
        columns = sorted(set().union(*asks))
        rows = [[request.get(column, NEVER_SHORT) for request in asks] for column in columns]
        return _Stacked(columns, np.array(rows, np.int64)[..., None], states[0][REQUEST])

    def filter_batch(self, stacked: _Stacked, batch: Batch) -> Bools | None:
        columns, needs = stacked.columns, stacked.needs
        batch.columns.ensure_width()
        ok: Bools = batch.free[columns[0]] >= needs[0]
        for column, need in zip(columns[1:], needs[1:], strict=True):
            ok &= batch.free[column] >= need
        return ok

    def slots_signature(self, state: CycleState, node: NodeInfo) -> None: ...

    def filter_signature(self, stacked: _Stacked, node: NodeInfo) -> Hashable:
        """For each resource, the number of requested amounts that would fit."""
        have, taken = node.allocatable, node.requested
        if len(taken) <= stacked.columns[-1] or len(have) < len(taken):
            node.widen(stacked.columns[-1] + 1)
            have = node.allocatable
        return tuple([bisect_right(steps, have[column] - taken[column]) for column, steps in stacked.steps])

    def filter_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Bools:
        have, taken = node.allocatable, node.requested
        free = [have[column] - taken[column] for column in stacked.columns]
        ok: Bools = np.logical_and.reduce(np.array(free, np.int64)[:, None] >= stacked.needs[..., 0])
        return ok

    def kernel_filter(self, stacked: _Stacked, axis: ClassAxis) -> KernelPart:
        needs = axis.spread(stacked.needs[..., 0], NEVER_SHORT)
        return KernelPart(PartKind.AMOUNTS, (np.array(stacked.columns, np.int64), needs))

    def reasons_batch(self, stacked: _Stacked, batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        """One bit for each missing resource, and the highest bit if no preemption can help."""
        columns, needs = stacked.columns, stacked.needs
        short = batch.free[columns] < needs[:, 0]
        bits = np.left_shift(1, np.arange(len(columns)))
        codes = bits @ short
        short &= batch.allocatable[columns] < needs[:, 0]
        if PODS_COLUMN in columns:
            short[columns.index(PODS_COLUMN)] = False
        codes |= np.logical_or.reduce(short).astype(np.int64) << len(columns)
        names = [[name for column, _, name in stacked.first.checked if column == own] for own in columns]

        def status(code: int) -> Status:
            short = tuple(name for bit, own in enumerate(names) if code >> bit & 1 for name in own)
            return _insufficient(short, bool(code >> len(names)))

        return codes, status

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return self._score_of(state[REQUEST], node)

    def _score_of(self, request: _Request, node: NodeInfo) -> int:
        strategy = self._strategy
        scored = []
        for column, amount, weight in request.scored:
            capacity = node.allocatable[column] if column < len(node.allocatable) else 0
            if capacity not in {0, BY_CLAIM}:
                scored.append((strategy.one(capacity, capacity - used_amount(node, column) - amount), weight))
        return strategy.mean(scored)

    def kind(self, state: CycleState) -> Hashable:
        return tuple((column, weight) for column, _, weight in state[REQUEST].scored)

    @property
    def has_delta_bound(self) -> bool:
        return self._strategy.has_delta_bound

    def max_score_delta(self, node: NodeInfo, placed: PodInfo, kind: Hashable) -> int:
        """Weighted mean of the bounds of the resources' score changes."""
        for column, _ in kind:  # type: ignore[attr-defined]
            capacity = node.allocatable[column] if column < len(node.allocatable) else 0
            if capacity and capacity - used_amount(node, column) < self._largest.get(column, 0):
                return self._rise(node.allocatable, placed.pod_class, kind, node)
        key = (id(node.allocatable), placed.pod_class.id, kind)
        rise = self._rises.get(key)
        if rise is None:
            if len(self._rises) >= MAX_DELTAS:
                self._rises.clear()  # most are of classes that no longer exist
            rise = self._rises[key] = (node.allocatable, self._rise(node.allocatable, placed.pod_class, kind, None))
        return rise[1]

    def _rise(self, allocatable: list[int], pod_class: EquivalenceClass, kind: Hashable, drawn: NodeInfo | None) -> int:
        """`drawn`: the node is so full that some pod may overdraw it; there a score bound is 0."""
        total = weights = 0
        for column, weight in kind:  # type: ignore[attr-defined]
            capacity = allocatable[column] if column < len(allocatable) else 0
            if capacity in {0, BY_CLAIM}:
                continue
            weights += weight
            rise = self._strategy.max_score_delta(capacity, self._requested_amount(pod_class, column))
            if rise > 0 or drawn is None or capacity - used_amount(drawn, column) >= self._largest.get(column, 0):
                total += rise * weight
        return -(-total // weights) if weights else 0

    def stack_scores(self, states: Sequence[CycleState]) -> tuple[Ints, list[_Request]]:
        asks = [state[REQUEST] for state in states]
        return np.array([request.native for request in asks], np.int64).T[..., None], asks

    def score_batch(self, stacked: tuple[Ints, list[_Request]], batch: Batch) -> Ints | None:
        native, asks = stacked
        strategy = self._strategy
        if self._native_only and not batch.columns.lacking:  # cpu and memory on nodes that have both: the usual case
            left = batch.room[:, None] - native
            return strategy.mean_many(strategy.many(batch.divisor[:, None], left), self._native_weights)
        batch.columns.ensure_width()
        return np.stack([self._scores_of_one(request, batch) for request in asks])

    def score_signature(self, stacked: tuple[Ints, list[_Request]], node: NodeInfo) -> Hashable:
        allocatable = node.allocatable
        if self._native_only:
            return allocatable[CPU_COLUMN], allocatable[MEMORY_COLUMN], node.nonzero
        columns = (self._resources.column(name) for name in self._weights)
        return tuple(
            (allocatable[column], used_amount(node, column)) for column in columns if column < len(allocatable)
        )

    def score_classes_batch(self, stacked: tuple[Ints, list[_Request]], node: NodeInfo) -> Ints:
        native, asks = stacked
        cpu, memory = node.allocatable[CPU_COLUMN], node.allocatable[MEMORY_COLUMN]
        if self._native_only and cpu and memory:
            capacity = np.array([[cpu], [memory]])
            left = np.array([[cpu - node.nonzero[0]], [memory - node.nonzero[1]]]) - native[..., 0]
            return self._strategy.mean_many(self._strategy.many(capacity, left), self._native_weights[..., 0])
        return np.array([self._score_of(request, node) for request in asks], np.int64)

    def kernel_score(self, stacked: tuple[Ints, list[_Request]], axis: ClassAxis) -> KernelPart | None:
        if not self._native_only or not isinstance(self._strategy, LeastAllocated | MostAllocated):
            return None
        numbers = (int(isinstance(self._strategy, MostAllocated)), *self._weights.values())
        return KernelPart(PartKind.UTILIZATION, (axis.spread(stacked[0][..., 0]),), numbers)

    def _scores_of_one(self, request: _Request, batch: Batch) -> Ints:
        if not request.scored:
            return np.zeros(batch.size, np.int64)
        capacity = np.stack([batch.allocatable[column] for column, _, _ in request.scored])
        left = np.stack([self._left(batch, column) - amount for column, amount, _ in request.scored])
        counts = (capacity > 0) & (capacity != BY_CLAIM)
        weights = np.where(counts, np.array([[weight] for _, _, weight in request.scored], np.int64), 0)
        return self._strategy.mean_many(self._strategy.many(np.maximum(capacity, 1), left), weights)

    def _left(self, batch: Batch, column: int) -> Ints:
        return batch.room[column - CPU_COLUMN] if column in {CPU_COLUMN, MEMORY_COLUMN} else batch.free[column]

    @property
    def limits_by_requests(self) -> bool:
        return not (self._ignored_names or self._ignored_groups)

    def _ignored(self, name: str) -> bool:
        if name in NATIVE:
            return False
        return name in self._ignored_names or name.split("/", 1)[0] in self._ignored_groups

    def _scored(self, pod_class: EquivalenceClass) -> list[tuple[int, int, int]]:
        """Column, amount and weight of the resources that count for pods of this class."""
        scored = []
        for name, weight in self._weights.items():
            if name in NATIVE or pod_class.requests.get(name):
                column = self._resources.column(name)
                scored.append((column, self._requested_amount(pod_class, column), weight))
        return scored

    def _requested_amount(self, pod_class: EquivalenceClass, column: int) -> int:
        """The requested amount of a resource for scores."""
        if column in {CPU_COLUMN, MEMORY_COLUMN}:
            return pod_class.nonzero[column - CPU_COLUMN]
        return pod_class.requests.get(self._resources.names[column], 0)


@lru_cache(maxsize=1024)
def _insufficient(short: tuple[str, ...], hopeless: bool) -> Status:
    reasons = tuple("Too many pods" if name == PODS else f"Insufficient {name}" for name in short)
    return Status.unresolvable(*reasons) if hopeless else Status.unschedulable(*reasons)
