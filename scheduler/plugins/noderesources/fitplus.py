"""NodeResourcesFitPlus: pack or spread each resource, with a weight of its own (Koordinator; FWK-R64)."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.cache.columns import Batch, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import BY_CLAIM, CPU_COLUMN, MEMORY_COLUMN
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.plugins.noderesources.strategies import used_amount

MOST, LEAST = "MostAllocated", "LeastAllocated"


class ResourceType(Wire, frozen=True, forbid_unknown_fields=True):
    """The score strategy of one resource; an unknown type scores 0 and still has weight, as in Koordinator."""

    type: str = ""
    weight: int = 0


class NodeResourcesFitPlusArgs(Args, frozen=True):
    """Koordinator's arguments."""

    resources: dict[str, ResourceType] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Part:
    column: int
    amount: int  # the pod's request for scores
    type: str
    weight: int


PARTS: StateKey[tuple[_Part, ...]] = StateKey("NodeResourcesFitPlus/parts")


class NodeResourcesFitPlus(ScoreBatch):
    """Scores the configured resources that the pod requests; a pod that requests none scores 100 everywhere."""

    name = "NodeResourcesFitPlus"
    scope = Scope.NODE_PODS

    def __init__(self, handle: Handle, args: NodeResourcesFitPlusArgs | None = None) -> None:
        self._handle = handle
        self._resources = (args or NodeResourcesFitPlusArgs()).resources

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        shape = self._handle.cache.classes.of(pod)
        index = self._handle.columns.resources
        parts = []
        for name, resource in self._resources.items():
            if not shape.requests.get(name):
                continue
            column = index.column(name)
            native = column in {CPU_COLUMN, MEMORY_COLUMN}
            amount = shape.nonzero[column - CPU_COLUMN] if native else shape.requests[name]
            parts.append(_Part(column, amount, resource.type, resource.weight))
        state[PARTS] = tuple(parts)
        return sum(part.weight for part in parts) > 0  # otherwise all nodes score the same

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return _score(state[PARTS], node)

    def score_classes_batch(self, stacked: Sequence[tuple[_Part, ...]], node: NodeInfo) -> Ints:
        return np.array([_score(parts, node) for parts in stacked], np.int64)

    def stack_scores(self, states: Sequence[CycleState]) -> Sequence[tuple[_Part, ...]]:
        return [state[PARTS] for state in states]

    def score_batch(self, stacked: Sequence[tuple[_Part, ...]], batch: Batch) -> Ints | None:
        batch.columns.ensure_width()
        return np.stack([_scores(parts, batch) for parts in stacked])


def _score(parts: tuple[_Part, ...], node: NodeInfo) -> int:
    total = 0
    for part in parts:
        capacity = node.allocatable[part.column] if part.column < len(node.allocatable) else 0
        if capacity <= 0 or capacity == BY_CLAIM:
            continue
        used = used_amount(node, part.column) + part.amount
        if part.type == LEAST:
            total += max(capacity - used, 0) * MAX_NODE_SCORE // capacity * part.weight
        elif part.type == MOST:
            total += min(used, capacity) * MAX_NODE_SCORE // capacity * part.weight
    return total // sum(part.weight for part in parts)


def _scores(parts: tuple[_Part, ...], batch: Batch) -> Ints:
    total = np.zeros(batch.size, np.int64)
    for part in parts:
        capacity = batch.allocatable[part.column]
        native = part.column in {CPU_COLUMN, MEMORY_COLUMN}
        left = (batch.room[part.column - CPU_COLUMN] if native else batch.free[part.column]) - part.amount
        if part.type == LEAST:
            points = np.maximum(left, 0)
        elif part.type == MOST:
            points = np.minimum(capacity - left, capacity)
        else:
            continue
        counts = (capacity > 0) & (capacity != BY_CLAIM)
        total += np.where(counts, points * MAX_NODE_SCORE // np.maximum(capacity, 1), 0) * part.weight
    return total // sum(part.weight for part in parts)
