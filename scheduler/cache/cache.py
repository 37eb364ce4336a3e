"""The cache of nodes, pods on nodes, and pods that are assumed to be on nodes while their binding is in flight.

Events come in any order: a pod before its node, or the bound pod before the response to the binding request. Each pod
is counted exactly once.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import RENAMED
from seatrial.scheduler.api.numa import NODE_RESERVATION
from seatrial.scheduler.api.quantity import QuantityError, amounts
from seatrial.scheduler.cache.classes import ClassRegistry, EquivalenceClass, renamed
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.node_reservation import kept_back
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.owners import Owners
from seatrial.scheduler.cache.resources import BY_CLAIM, CPU_COLUMN, MEMORY_COLUMN, UNOFFERED_COLUMN
from seatrial.scheduler.cache.volumes import Volumes

MAX_CLASSES = 65536  # whose listeners are known
MAX_CAPACITIES = 4096  # that nodes share


class _Placed(msgspec.Struct, gc=False):  # not tracked by the garbage collector: there are many, in no reference cycle
    info: PodInfo
    assumed: bool  # decided, and not confirmed by the API server


class Cache:
    """Keeps `NodeInfo` objects and `NodeColumns` consistent."""

    def __init__(self, columns: NodeColumns, classes: ClassRegistry) -> None:
        self.columns = columns
        self.classes = classes
        self.nodes: dict[str, NodeInfo] = {}
        self.known_count = 0
        self._capacities: dict[tuple[int, ...], list[int]] = {}  # nodes of one size share one list
        self.placement_changes = (
            0  # grows when something changed that is counted over the cluster, as affinity between pods is
        )
        self.label_keys: set[str] = set()  # of pods, that affinity terms of placed pods read or have read
        self.namespaces: dict[str, dict[str, str]] = {}  # labels by name
        self.owners = Owners()
        self.volumes = Volumes()
        self.budgets: dict[str, PodDisruptionBudget] = {}  # by namespace/name
        self.priorities: Counter[int] = Counter()  # of pods on nodes: whether preemption can find victims
        self.pending: dict[str, Pod] = {}  # by uid: pods of any scheduler that were read without a node
        self._placed: dict[str, _Placed] = {}  # by pod uid
        self._listeners: list[Listener] = []
        self._condition_listeners: list[Listener] = []
        # By class: relevant listeners, and those of them that are called for pods without annotations.
        self._relevant: dict[int, tuple[list[Listener], list[Listener]]] = {}

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every pod that is placed on a node or leaves it, assumed ones included."""
        self._listeners.append(listener)
        if listener.follows_conditions:
            self._condition_listeners.append(listener)
        self._relevant.clear()

    def _find_relevant(self, pod_class: EquivalenceClass) -> tuple[list[Listener], list[Listener]]:
        if len(self._relevant) >= MAX_CLASSES:
            self._relevant.clear()  # most are of classes that no longer exist
        relevant = [listener for listener in self._listeners if listener.is_relevant(pod_class)]
        results = self._relevant[pod_class.id] = (
            relevant,
            [plugin for plugin in relevant if not plugin.only_annotations],
        )
        return results

    def __iter__(self) -> Iterator[NodeInfo]:
        """The nodes that exist."""
        return (info for info in self.nodes.values() if info.node is not None)

    def find(self, name: str) -> NodeInfo | None:
        """The node of that name if it exists."""
        info = self.nodes.get(name)
        return info if info is not None and info.node is not None else None

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of the pods on nodes; None if there is no pod."""
        return min(self.priorities, default=None)

    def placed(self, uid: str) -> PodInfo | None:
        """The pod of that uid if it is on a node, or assumed to be."""
        entry = self._placed.get(uid)
        return entry.info if entry else None

    def is_assumed(self, uid: str) -> bool:
        entry = self._placed.get(uid)
        return entry is not None and entry.assumed

    def set_node(self, node: Node) -> list[str]:
        """Add or replace a node.

        Returns messages about quantities that cannot be parsed. Such a resource counts as 0.
        """
        info = self._info(node.name)
        wrong: list[str] = []
        known = len(self.columns.resources)
        allocatable = [0] * known
        listed = {}
        for name, quantity in node.status.allocatable.items():
            try:
                listed.update(amounts({name: quantity}))
            except QuantityError as error:
                wrong.append(f"node {node.name}: allocatable {name}: {error}")
        if NODE_RESERVATION in node.metadata.annotations:
            try:
                for name, kept in kept_back(node.metadata.annotations).items():
                    listed[name] = max(listed.get(name, 0) - kept, 0)
            except ValueError as error:
                wrong.append(f"node {node.name}: {error}")
        for name, value in renamed(listed).items():
            column = self.columns.resources.column(RENAMED.get(name, name))
            if column >= len(allocatable):
                allocatable += [0] * (column + 1 - len(allocatable))
            allocatable[column] = value
        if len(self.columns.resources) > known:
            new = self.columns.resources.names[known:]
            self._serve(new)
            self._recount(self.classes.offered(new))
        for name in self.columns.resources.by_claims:
            column = self.columns.resources.column_of_request(name)
            if column != UNOFFERED_COLUMN:
                allocatable[column] = allocatable[column] or BY_CLAIM
        before = info.node
        info.node = node
        if len(self._capacities) >= MAX_CAPACITIES:
            self._capacities.clear()
        info.allocatable = self._capacities.setdefault(tuple(allocatable), allocatable)
        info.widen(len(self.columns.resources))
        row = info.row
        self.columns.set_sums(row, info.allocatable, info.requested, info.nonzero)
        if before is None:
            self.known_count += 1
        if (
            before is None
            or before.spec != node.spec
            or before.metadata.labels != node.metadata.labels
            or before.metadata.annotations != node.metadata.annotations
            or before.status.images != node.status.images
            or before.status.allocatable != node.status.allocatable
        ):
            self.columns.touch_static(row)
        if (
            before is None
            or before.metadata.labels != node.metadata.labels
            or before.metadata.annotations != node.metadata.annotations
        ):
            _call_all(self._listeners, lambda listener: listener.node_set(node, before))
        if before is None:
            _call_all(self._listeners, lambda listener: listener.node_added(node.name))
        return wrong

    def serve_by_claims(self, names: Iterable[str]) -> bool:
        """ResourceClaims can serve these extended resources, and no others; nodes may offer them, too (DRA-R106).

        Returns whether that changes anything.
        """
        resources, names = self.columns.resources, frozenset(names)
        changed = resources.by_claims ^ names
        if not changed:
            return False
        resources.by_claims = names
        self._serve(changed)
        self._recount(self.classes.offered(changed))
        return True

    def _serve(self, names: Iterable[str]) -> None:
        """Write what nodes have of these resources where they do not offer them themselves."""
        resources = self.columns.resources
        by_column = {resources.column_of_request(name): name in resources.by_claims for name in names}
        by_column.pop(UNOFFERED_COLUMN, None)
        for info in self if by_column else ():
            info.widen(len(resources))
            allocatable = info.allocatable.copy()
            for column, served in by_column.items():
                if allocatable[column] in {0, BY_CLAIM}:
                    allocatable[column] = BY_CLAIM if served else 0
            if allocatable != info.allocatable:
                info.allocatable = self._capacities.setdefault(tuple(allocatable), allocatable)
                self.columns.set_sums(info.row, info.allocatable, info.requested, info.nonzero)
                self.columns.touch_static(info.row)

    def _recount(self, changed: set[int]) -> None:
        """The vectors of these classes changed: write the sums of the nodes that have pods of them again."""
        for info in self.nodes.values():
            if any(placed.pod_class.id in changed for placed in info.pods.values()):
                info.requested, info.nonzero = [], (0, 0)
                info.widen(len(self.columns.resources))
                for placed in info.pods.values():
                    info.count(placed.pod_class, 1)
                if info.node is not None:
                    self.columns.set_sums(info.row, info.allocatable, info.requested, info.nonzero)
                    self.columns.touch(info.row)

    def remove_node(self, name: str) -> None:
        """The node is gone. Its pods stay counted until they are removed."""
        info = self.nodes.get(name)
        if info is None or info.node is None:
            return
        info.node = None
        self.known_count -= 1
        self.columns.forget(info.row)
        self.columns.touch_static(info.row)
        self._drop_if_empty(info)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None: it is gone."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self.placement_changes += 1
        _call_all(self._listeners, lambda listener: listener.namespace_changed(name))

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Count a pod on its selected node, before it is bound."""
        self._place(info, node_name, assumed=True)

    def forget(self, uid: str) -> PodInfo | None:
        """Undo `assume`. A confirmed pod stays. Returns the pod if it was assumed."""
        entry = self._placed.get(uid)
        if entry is None or not entry.assumed:
            return None
        self._unplace(entry)
        return entry.info

    def set_pod(self, pod: Pod) -> PodInfo:
        """A pod on a node was added, confirmed or changed, as read from the API server."""
        entry = self._placed.get(pod.metadata.uid)
        if entry is None or not _as_known(entry.info, pod):
            info = PodInfo(pod, self.classes.of(pod), pod.spec.node_name)
            if entry is None:
                self._place(info, info.node_name, assumed=False)
                return info
            if entry.info.node_name != info.node_name or not _same_holdings(entry.info, info):
                self._unplace(entry)
                self._place(info, info.node_name, assumed=False)
                return info
        entry.assumed = False
        # The PodInfo object stays, so sums and listeners need no update.
        before, entry.info.pod = entry.info.pod, pod
        if (
            before.metadata.annotations != pod.metadata.annotations
            or before.metadata.labels != pod.metadata.labels
            or before.deleting != pod.deleting
        ):
            _call_all(self._listeners, lambda listener: listener.pod_changed(entry.info, before))
        if before.status.start_time != pod.status.start_time:
            _call_all(self._listeners, lambda listener: listener.pod_started(entry.info))
        if self._condition_listeners and before.status.conditions != pod.status.conditions:
            _call_all(self._condition_listeners, lambda listener: listener.pod_conditions(entry.info))
        return entry.info

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a pod that is gone or has ended. Returns it if it was counted."""
        entry = self._placed.get(uid)
        if entry is None:
            return None
        self._unplace(entry)
        return entry.info

    def _info(self, name: str) -> NodeInfo:
        info = self.nodes.get(name)
        if info is None:
            name = sys.intern(name)
            info = self.nodes[name] = NodeInfo(name, self.columns.row(name))
            info.widen(len(self.columns.resources))
        return info

    def _drop_if_empty(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            del self.nodes[info.name]
            self.columns.release(info.name)
            _call_all(self._listeners, lambda listener: listener.node_gone(info.name))

    def _place(self, info: PodInfo, node_name: str, *, assumed: bool) -> None:
        info.node_name = node_name
        uid, pod_class = info.uid, info.pod_class
        self._placed[uid] = _Placed(info, assumed)
        node = self.nodes.get(node_name) or self._info(node_name)
        node.pods[uid] = info
        node.count(pod_class, 1)
        self._write(node, info)
        self.priorities[info.pod.spec.priority] += 1
        relevant = self._relevant.get(pod_class.id) or self._find_relevant(pod_class)
        failed: Exception | None = None
        for listener in relevant[not info.pod.metadata.annotations]:
            try:
                listener.pod_placed(info)
            except Exception as error:  # noqa: BLE001 raised below, when all others have counted the pod
                failed = failed or error
        self.columns.fill(node.row, node, info)
        if failed is not None:
            raise failed

    def _unplace(self, placed: _Placed) -> None:
        info = placed.info
        del self._placed[info.uid]
        node = self.nodes[info.node_name]
        node.remove(info)
        self._write(node, info)
        self.priorities[info.priority] -= 1
        if not self.priorities[info.priority]:
            del self.priorities[info.priority]
        failed: Exception | None = None
        for listener in (self._relevant.get(info.pod_class.id) or self._find_relevant(info.pod_class))[0]:
            try:
                listener.pod_gone(info)
            except Exception as error:  # noqa: BLE001 raised below, when no other counts the pod
                failed = failed or error
        try:
            self.columns.vacate(node.row, node)
        finally:
            self._drop_if_empty(node)
        if failed is not None:
            raise failed

    def _write(self, node: NodeInfo, changed: PodInfo) -> None:
        """Bring the columns of `node` up to date where `changed` counts."""
        columns, row = self.columns, node.row
        allocatable, requested = node.allocatable, node.requested
        width = len(requested)
        if len(allocatable) < width or columns.width < width:
            node.widen(len(columns.resources))
            columns.ensure_width()
            allocatable = node.allocatable
        free = columns.free
        for column, _ in changed.pod_class.vector:
            free[column, row] = allocatable[column] - requested[column]
        room, nonzero = columns.room, node.nonzero
        room[0, row] = allocatable[CPU_COLUMN] - nonzero[0]
        room[1, row] = allocatable[MEMORY_COLUMN] - nonzero[1]


def _call_all(listeners: Iterable[Listener], call: Callable[[Listener], None]) -> None:
    """Call all listeners; then raise the exception of the first one that failed."""
    failed: Exception | None = None
    for listener in listeners:
        try:
            call(listener)
        except Exception as error:  # noqa: BLE001 raised below
            failed = failed or error
    if failed is not None:
        raise failed


def _as_known(known: PodInfo, pod: Pod) -> bool:
    """Whether `pod` has the known spec and node, as it has after our own binding."""
    node, spec = pod.spec.node_name, pod.spec
    return known.node_name == node and (known.pod.spec is spec or replace(known.pod.spec, node_name=node) == spec)


def _same_holdings(info: PodInfo, other: PodInfo) -> bool:
    return info.pod_class is other.pod_class or (
        info.pod_class.vector == other.pod_class.vector and info.pod_class.nonzero == other.pod_class.nonzero
    )
