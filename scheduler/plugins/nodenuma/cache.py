"""CPUs and NUMA nodes of each node and the pods' parts of them (NUMA-R20 to NUMA-R22).

Fed by Node, NodeResourceTopology and Pod events. Allocations outlive the NodeResourceTopology, as those of devices
outlive the Device object.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
import numpy as np

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.numa import (
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    CpusetError,
    NodeResourceTopology,
    NumaNodeResource,
    ResourceSpec,
    ResourceStatus,
    cpuset_text,
    decode_status,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import QuantityError, amount, text
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.nodenuma.options import NO_OPTIONS, options_of
from seatrial.scheduler.plugins.nodenuma.states import SINGLE, NumaAllocation, NumaState, StateCache

AFFECTS_PLAIN_PODS = "NodeNUMAResource/affects_plain_pods"  # column [node]: see `Options`


class NodeNuma:
    """One node: its state, and the holders."""

    __slots__ = ("held", "name", "nrt", "state")

    def __init__(self, name: str, state: NumaState) -> None:
        self.name = name
        self.state = state
        self.nrt: NodeResourceTopology | None = None
        self.held: dict[str, NumaAllocation] = {}  # by pod uid

    def copy(self) -> "NodeNuma":
        """An independent copy for a dry run."""
        copy = NodeNuma(self.name, self.state)
        copy.nrt, copy.held = self.nrt, self.held.copy()
        return copy


class NumaCache(Listener):
    """CPUs and NUMA nodes of all nodes that have topology data, options or allocations. All profiles share one."""

    only_annotations = True

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._cache: Cache = handle.cache
        self._states = StateCache()
        self._nodes: dict[str, NodeNuma] = {}
        self._pending: dict[str, str] = {}  # pod uid → the annotation that is decided and being written
        self.nodes_affecting_plain_pods = 0  # number of nodes with `Options.affects_plain_pods`
        handle.columns.add_column(AFFECTS_PLAIN_PODS, np.zeros((), np.bool_))
        # The node, if it has options or allocations. Called often, so it is the dictionary's own method.
        self.find: Callable[[str], NodeNuma | None] = self._nodes.get

    @staticmethod
    def of(handle: Handle) -> "NumaCache":
        """The cache of this scheduler; the first caller creates it and registers it as a listener."""

        def make() -> NumaCache:
            numa_cache = NumaCache(handle)
            handle.cache.listen(numa_cache)
            return numa_cache

        return handle.shared(NumaCache, make)

    @property
    def nothing(self) -> NumaState:
        """The state of a node without topology data."""
        return self._states.nothing

    def set_topology(self, name: str, nrt: NodeResourceTopology | None) -> list[str]:
        """Take in a NodeResourceTopology that was added, changed or (None) deleted. Returns what in it is invalid."""
        node = self._nodes.get(name)
        if node is None:
            if nrt is None:
                return []
            node = self._new(name)
        node.nrt = nrt
        known = self._cache.find(name)
        wrong = self._recompute(node, known.known if known is not None else None)
        self._touch(name)
        self._drop_if_empty(node)
        return [f"NodeResourceTopology {name}: {text}" for text in wrong]

    # -- events of the cache of pods and nodes ------------------------------------------------------------------------

    def node_set(self, node: Node, before: Node | None) -> None:
        numa = self._nodes.get(node.name)
        if numa is not None:
            self._recompute(numa, node)
            return
        options, _ = options_of(node.metadata.labels, node.metadata.annotations, None)
        if options != NO_OPTIONS:
            self._recompute(self._new(node.name), node)

    def node_added(self, name: str) -> None:
        self._show(name)

    def node_gone(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            self._recompute(node, None)
            self._drop_if_empty(node)

    def pod_placed(self, info: PodInfo) -> None:
        if RESOURCE_STATUS in info.pod.metadata.annotations:
            allocation = allocation_of(info.pod.metadata.annotations)
            if allocation is not None:
                self.assign(info.node_name, info.uid, allocation)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        old, new = (pod.metadata.annotations.get(RESOURCE_STATUS, "") for pod in (before, info.pod))
        if self._pending.pop(info.uid, None) == new and not old:
            return  # the annotation that this scheduler wrote: assigned already
        if old != new:
            if old:
                self.release(info.node_name, info.uid)
            self.pod_placed(info)

    def pod_gone(self, info: PodInfo) -> None:
        self._pending.pop(info.uid, None)
        self.release(info.node_name, info.uid)

    def record_pending(self, uid: str, annotation: str) -> None:
        """Record an annotation that is about to be written to the pod."""
        self._pending[uid] = annotation

    # -- allocations --------------------------------------------------------------------------------------------------

    def assign(self, name: str, uid: str, allocation: NumaAllocation) -> None:
        """Add a pod's allocation; a pod that has one keeps it."""
        node = self._nodes.get(name) or self._new(name)
        if uid in node.held:
            return
        node.held[uid] = allocation
        before, node.state = node.state, self._states.state(node.state.options, node.held.values())
        if before.statuses != node.state.statuses and SINGLE in before.statuses.values():
            # A NUMA node that one pod had alone is shared now: pods that avoid single-pod nodes may use it.
            self._handle.request_wake()
            self._touch(name)

    def release(self, name: str, uid: str) -> None:
        """Give back the CPUs and zones of a pod on a node; no effect if it holds none."""
        node = self._nodes.get(name)
        if node is not None and node.held.pop(uid, None) is not None:
            node.state = self._states.state(node.state.options, node.held.values())
            self._drop_if_empty(node)

    def _drop_if_empty(self, node: NodeNuma) -> None:
        if not node.held and node.nrt is None and node.state.options == NO_OPTIONS:
            del self._nodes[node.name]

    def simulate(self, node: NodeNuma, uid: str, allocation: NumaAllocation | None) -> None:
        """Change a copy: remove a pod's allocation (None) or add it."""
        if allocation is None:
            node.held.pop(uid, None)
        else:
            node.held[uid] = allocation
        node.state = self._states.state(node.state.options, node.held.values())

    def _new(self, name: str) -> NodeNuma:
        node = self._nodes[sys.intern(name)] = NodeNuma(name, self._states.nothing)
        return node

    def _recompute(self, node: NodeNuma, known: Node | None) -> list[str]:
        """Recompute the node's options and state. Returns what is invalid."""
        labels = known.metadata.labels if known is not None else {}
        annotations = known.metadata.annotations if known is not None else {}
        options, wrong = options_of(labels, annotations, node.nrt)
        before = node.state.options
        node.state = self._states.state(self._states.options(options), node.held.values())
        self._show(node.name)
        nodes_affecting_plain_pods = self.nodes_affecting_plain_pods
        self.nodes_affecting_plain_pods += options.affects_plain_pods - before.affects_plain_pods
        if bool(nodes_affecting_plain_pods) != bool(self.nodes_affecting_plain_pods):
            self._handle.invalidate_class_scores()  # whether plain pods need this plugin has changed
        return wrong

    def _show(self, name: str) -> None:
        """Write one node into the column; does nothing for a node without a row."""
        row, node = self._cache.columns.rows.get(name), self._nodes.get(name)
        if row is not None:
            self._cache.columns.column(AFFECTS_PLAIN_PODS)[row] = (
                node is not None and node.state.options.affects_plain_pods
            )

    def _touch(self, name: str) -> None:
        row = self._cache.columns.rows.get(name)
        if row is not None:
            self._cache.columns.touch(row)


def allocation_of(annotations: Mapping[str, str]) -> NumaAllocation | None:
    """The allocation in a pod's annotations; None if there is none or it is invalid."""
    written = annotations.get(RESOURCE_STATUS)
    return _parsed(written, annotations.get(RESOURCE_SPEC) or "{}") if written else None


@lru_cache(maxsize=4096)
def _parsed(written: str, how: str) -> NumaAllocation | None:
    try:
        status = decode_status(written)
        spec = decode_as(how, ResourceSpec)
        cpus = parse_cpuset(status.cpuset)
        zones = tuple(
            (zone.node, tuple(sorted((name, amount(name, value)) for name, value in zone.resources.items())))
            for zone in sorted(status.numa_node_resources, key=lambda zone: zone.node)
        )
    except (msgspec.DecodeError, CpusetError, QuantityError):
        return None  # an annotation that this scheduler did not write
    return NumaAllocation(cpus, spec.preferred_cpu_exclusive_policy if cpus else "", zones) if cpus or zones else None


def status_text(allocation: NumaAllocation) -> str:
    """The annotation `resource-status` for an allocation."""
    zones = tuple(
        NumaNodeResource(node, {name: text(name, value) for name, value in amounts})
        for node, amounts in allocation.zones
    )
    return msgspec.json.encode(ResourceStatus(cpuset_text(allocation.cpus), zones)).decode()
