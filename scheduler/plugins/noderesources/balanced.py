"""NodeResourcesBalancedAllocation: prefer nodes with even utilisation (kubernetes balanced_allocation.go, 1.35)."""

from collections.abc import Hashable, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import CPU, MEMORY
from seatrial.scheduler.cache.columns import Batch, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import BY_CLAIM, CPU_COLUMN, MEMORY_COLUMN
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.kernel_parts import ClassAxis, KernelPart, PartKind
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.plugins.noderesources.fit import NATIVE, WeightedResource

BALANCED: StateKey[tuple[tuple[int, int], ...]] = StateKey("NodeResourcesBalancedAllocation/ask")


class NodeResourcesBalancedAllocationArgs(Args, frozen=True):
    """Upstream's arguments."""

    resources: tuple[WeightedResource, ...] = (WeightedResource(CPU), WeightedResource(MEMORY))

    def check(self) -> None:
        for index, resource in enumerate(self.resources):
            if resource.weight != 1:
                raise ValueError(f"resources[{index}].weight: expected 1, found {resource.weight}")


class NodeResourcesBalancedAllocation(ScoreBatch):
    """The extension points of NodeResourcesBalancedAllocation."""

    name = "NodeResourcesBalancedAllocation"
    scope = Scope.NODE_PODS
    has_signature = True

    def __init__(self, handle: Handle, args: NodeResourcesBalancedAllocationArgs | None = None) -> None:
        self._handle = handle
        self._resources = tuple(resource.name for resource in (args or NodeResourcesBalancedAllocationArgs()).resources)
        self._native_only = self._resources == (CPU, MEMORY)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        requests = self._handle.cache.classes.of(pod).requests
        index = self._handle.columns.resources
        state[BALANCED] = tuple(
            (index.column(name), requests.get(name, 0))
            for name in self._resources
            if name in NATIVE or requests.get(name)  # upstream: `calculateResourceAllocatableRequest`
        )
        return any(requests.get(name) for name in self._resources)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        fractions = []
        for column, amount in state[BALANCED]:
            capacity = node.allocatable[column] if column < len(node.allocatable) else 0
            if capacity not in {0, BY_CLAIM}:
                taken = node.requested[column] if column < len(node.requested) else 0
                fractions.append(min((taken + amount) / capacity, 1.0))
        if len(fractions) == 2:
            deviation = abs(fractions[0] - fractions[1]) / 2
        elif len(fractions) > 2:
            mean = sum(fractions) / len(fractions)
            deviation = sqrt(sum((fraction - mean) ** 2 for fraction in fractions) / len(fractions))
        else:
            deviation = 0.0
        return int((1 - deviation) * MAX_NODE_SCORE)

    def can_batch_scores(self, state: CycleState) -> bool:
        return self._native_only

    def stack_scores(self, states: Sequence[CycleState]) -> Ints:
        """The requests, [resource, class, 1]."""
        return np.array([[amount for _, amount in state[BALANCED]] for state in states], np.int64).T[..., None]

    def score_batch(self, stacked: Ints, batch: Batch) -> Ints | None:
        pair = slice(CPU_COLUMN, MEMORY_COLUMN + 1)
        used = batch.allocatable[pair] - batch.free[pair]
        fractions = (used[:, None] + stacked) / batch.divisor[:, None]
        np.minimum(fractions, 1.0, out=fractions)
        scores = _level(fractions[0] - fractions[1])
        if batch.columns.lacking:  # a resource that a node lacks is left out: one fraction alone is balanced
            scores[:, ~batch.allocatable[pair].all(axis=0)] = MAX_NODE_SCORE
        return scores

    def score_signature(self, stacked: Ints, node: NodeInfo) -> Hashable:
        allocatable, requested = node.allocatable, node.requested
        return allocatable[CPU_COLUMN], allocatable[MEMORY_COLUMN], requested[CPU_COLUMN], requested[MEMORY_COLUMN]

    def score_classes_batch(self, stacked: Ints, node: NodeInfo) -> Ints:
        cpu, memory = node.allocatable[CPU_COLUMN], node.allocatable[MEMORY_COLUMN]
        if not (cpu and memory):
            return np.full(stacked.shape[1], MAX_NODE_SCORE, np.int64)
        fractions = stacked[..., 0] + np.array([[node.requested[CPU_COLUMN]], [node.requested[MEMORY_COLUMN]]])
        fractions = fractions / np.array([[cpu], [memory]])
        np.minimum(fractions, 1.0, out=fractions)
        return _level(fractions[0] - fractions[1])

    def kernel_score(self, stacked: Ints, axis: ClassAxis) -> KernelPart:
        return KernelPart(PartKind.BALANCE, (axis.spread(stacked[..., 0]),))


def _level(apart: NDArray[np.float64]) -> Ints:
    """The score for two fractions with this difference; overwrites its argument."""
    np.abs(apart, out=apart)
    apart /= 2
    np.subtract(1.0, apart, out=apart)
    apart *= MAX_NODE_SCORE
    return apart.astype(np.int64)
