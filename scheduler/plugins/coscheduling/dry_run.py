"""Dry runs for several members on several nodes: copies of nodes, and cycle states with removed and planned pods.

A cycle state of a class has all changes so far, on all nodes, because affinity and spreading count over the cluster.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.group_failure import Unplaced
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.reservation_info import MATCHED, REQUIRED
from seatrial.scheduler.framework.restored import RESTORED, Restored
from seatrial.scheduler.framework.state import CLUSTER_SCOPED, CycleState
from seatrial.scheduler.framework.status import Status

_Change = tuple[bool, PodInfo, NodeInfo]  # whether the pod is added; the copy of its node


@dataclass(slots=True)
class _Known:
    """The state of one class, and how many of the changes it contains."""

    state: CycleState
    inside: CycleState | None  # for nodes where the class may use reservations
    changes: int = 0


@dataclass(slots=True)
class _Node:
    """A changed node."""

    node: NodeInfo
    planned: list[Unplaced] = field(default_factory=list)
    gone: dict[str, PodInfo] = field(default_factory=dict)  # by uid
    reserved: bool = False  # a planned member uses room in a reservation here


class DryRun:
    """Nodes and states after everything that is planned."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._nodes: dict[int, _Node] = {}
        self._states: dict[tuple[str, int], _Known] = {}
        self._changes: list[_Change] = []

    def node(self, node: NodeInfo) -> NodeInfo:
        """The node as it is after the plan."""
        known = self._nodes.get(node.row)
        return node if known is None else known.node

    def shortage(self, unplaced: Unplaced, node: NodeInfo, gone: Iterable[PodInfo]) -> str:
        """A resource of which the node has too little even without these pods; "" if sums alone do not decide.

        Cheap: most nodes that cannot help are left out by it.
        """
        gone = [*gone, *self.holders(unplaced, node)]
        info, node = unplaced.info, self.node(node)
        requested, allocatable = node.requested, node.allocatable
        matches = [part for part in info.pod_class.named if part[2]]
        freed = {column: 0 for _, column, _ in matches}
        for pod in gone:
            for column, amount in pod.pod_class.vector:
                if column in freed:
                    freed[column] += amount
        for name, column, amount in matches:
            have = allocatable[column] if column < len(allocatable) else 0
            used = requested[column] if column < len(requested) else 0
            if used - freed[column] + amount > have:
                return name
        return ""

    def holders(self, unplaced: Unplaced, node: NodeInfo) -> list[PodInfo]:
        """The reserve pods there that the member ignores, because it may use their room.

        What planned members took of a reservation is not known to it. A later member that depends on what is left in
        the reservation itself therefore counts all of it as used, which may be too much.
        """
        restored, known = unplaced.state.get(RESTORED), self._nodes.get(node.row)
        if restored is None or (known is not None and known.reserved and _depends(restored.state, node)):
            return []
        return left_out(restored, node)

    def attempt(self, unplaced: Unplaced, node: NodeInfo) -> "Attempt":
        """An attempt to plan one member on a node. Nothing of it stays unless it is committed."""
        return Attempt(self, unplaced, node)

    def remove(self, node: NodeInfo, pods: Iterable[PodInfo]) -> None:
        """Pods are gone from a node."""
        known = self.changed(node)
        for pod in pods:
            if pod.uid in known.node.pods:
                known.node.remove(pod)
                known.gone[pod.uid] = pod
                self._changes.append((False, pod, known.node))

    def changed(self, node: NodeInfo) -> _Node:
        known = self._nodes.get(node.row)
        if known is None:
            known = self._nodes[node.row] = _Node(node.copy())
        return known

    def state_of(self, unplaced: Unplaced, *, inside: bool = False) -> CycleState:
        """The state of the member's class with all changes, for nodes where it uses reservations or others.

        Fork it before use.
        """
        info = unplaced.info
        key = unplaced.kind
        known = None if CLUSTER_SCOPED in unplaced.state else self._states.get(key)
        if known is None:
            state = unplaced.state.fork()
            restored = state.get(RESTORED)
            state.discard(RESTORED)
            known = _Known(state, None if restored is None else restored.state.fork())
            if CLUSTER_SCOPED not in unplaced.state:
                self._states[key] = known
        runner = self.handle.runner_of(info)
        for added, pod, node in self._changes[known.changes :]:
            for state in (known.state,) if known.inside is None else (known.state, known.inside):
                (runner.returned if added else runner.removed)(state, pod, node)
        known.changes = len(self._changes)
        return known.inside if inside and known.inside is not None else known.state

    def record(
        self, unplaced: Unplaced, node: NodeInfo, after: NodeInfo, gone: Sequence[PodInfo], *, reserved: bool
    ) -> None:
        """Make an attempt part of the plan. `reserved`: it uses room in a reservation."""
        known = self.changed(node)
        known.node = after
        known.reserved |= reserved
        known.planned.append(unplaced)
        for pod in gone:
            known.gone[pod.uid] = pod
            self._changes.append((False, pod, after))
        self._changes.append((True, unplaced.info, after))

    def fits_with(self, pods: Sequence[PodInfo]) -> bool:
        """Put pods back if all planned members of their nodes still fit, one after another (GANG-R80)."""
        by_node: dict[str, list[PodInfo]] = {}
        for pod in pods:
            by_node.setdefault(pod.node_name, []).append(pod)
        trials: list[tuple[_Node, NodeInfo, list[PodInfo]]] = []
        for name, back in by_node.items():
            real = self.handle.cache.find(name)
            known = None if real is None else self._nodes.get(real.row)
            if real is None or known is None:
                return False
            if known.planned and not _sums_allow(known.node, back):
                return False
            after = self._again(real, known, {pod.uid for pod in back})
            if after is None:
                return False
            trials.append((known, after, back))
        for known, after, back in trials:
            known.node = after
            for pod in back:
                del known.gone[pod.uid]
        return True

    def _again(self, real: NodeInfo, known: _Node, back: set[str]) -> NodeInfo | None:
        """The node with its members planned anew and these pods back; None if a member does not fit."""
        if any(CLUSTER_SCOPED in unplaced.state for unplaced in known.planned):
            return None  # more than this node decides: the order of the plan cannot be repeated
        after = real.copy()
        gone = [pod for uid, pod in known.gone.items() if uid not in back]
        for pod in gone:
            after.remove(pod)
        for number, unplaced in enumerate(known.planned):
            runner = self.handle.runner_of(unplaced.info)
            restored = unplaced.state.get(RESTORED)
            holders = left_out(restored, real) if restored is not None and not number else []
            state = (restored.state if restored is not None and holders else unplaced.state).fork()
            state.discard(RESTORED)
            seen = after.copy() if holders else after
            for pod in holders:
                seen.remove(pod)
            for pod in gone:
                runner.removed(state, pod, seen)
            for before in known.planned[:number]:
                runner.returned(state, before.info, seen)
            if not runner.check_with_nominated(state, unplaced.info, seen).ok:
                return None
            after.add(unplaced.info)
        return after


class Attempt:
    """One member on one node: a copy of the node and a fork of the state."""

    def __init__(self, dry_run: DryRun, unplaced: Unplaced, node: NodeInfo) -> None:
        self._dry_run, self._unplaced, self._real = dry_run, unplaced, node
        self._runner = dry_run.handle.runner_of(unplaced.info)
        self._node = dry_run.node(node).copy()
        self._holders = dry_run.holders(unplaced, node)
        self._state = dry_run.state_of(unplaced, inside=bool(self._holders)).fork()
        for holder in self._holders:
            self._node.remove(holder)
        self._gone: dict[str, PodInfo] = {}

    def remove(self, pods: Iterable[PodInfo]) -> None:
        for pod in pods:
            if pod.uid in self._node.pods:
                self._node.remove(pod)
                self._runner.removed(self._state, pod, self._node)
                self._gone[pod.uid] = pod

    def put_back(self, pods: Iterable[PodInfo]) -> None:
        for pod in pods:
            if self._gone.pop(pod.uid, None) is not None:
                self._node.add(pod)
                self._runner.returned(self._state, pod, self._node)

    def check(self) -> Status:
        """Whether the member fits."""
        return self._runner.check_with_nominated(self._state, self._unplaced.info, self._node)

    def commit(self) -> None:
        """Make this part of the plan: the member is here, and the removed pods are gone."""
        for holder in self._holders:
            self._node.add(holder)
        self._node.add(self._unplaced.info)
        gone = list(self._gone.values())
        self._dry_run.record(self._unplaced, self._real, self._node, gone, reserved=bool(self._holders))


def _sums_allow(node: NodeInfo, pods: Sequence[PodInfo]) -> bool:
    needed: dict[int, int] = {}
    for pod in pods:
        for column, amount in pod.pod_class.vector:
            needed[column] = needed.get(column, 0) + amount
    allocatable, requested = node.allocatable, node.requested
    return all(
        not amount or requested[column] + amount <= (allocatable[column] if column < len(allocatable) else 0)
        for column, amount in needed.items()
    )


def _depends(state: CycleState, node: NodeInfo) -> bool:
    """Whether the sums of a node do not decide if a pod fits in a reservation there."""
    return REQUIRED in state or any(reserved.restricted for reserved in (state.get(MATCHED) or {}).get(node.name, ()))


def left_out(restored: Restored, node: NodeInfo) -> list[PodInfo]:
    """The pods of a node that a copy without ignored pods lacks."""
    seen = restored.nodes.get(node.name)
    return [] if seen is None else [pod for uid, pod in node.pods.items() if uid not in seen.pods]
