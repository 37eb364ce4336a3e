"""NodePorts: reject nodes where another pod has a host port of the pod (kubernetes plugins/nodeports).

A port is an address, a protocol and a number. The address 0.0.0.0 is every address of the host, so it conflicts with
all others.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import FilterBatch
from seatrial.scheduler.framework.extension_points import PreFilter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.pods.host_ports import EVERY_ADDRESS, HostPort, host_ports

TAKEN = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")

_FACT = "NodePorts"


class PortUse(Listener):
    """Host ports in use by row. Few pods use any, so this keeps rows and not a column for each port."""

    def __init__(self, cache: Cache) -> None:
        self._rows = cache.columns.rows
        self._users: dict[tuple[str, int], dict[str, Counter[int]]] = {}  # protocol, number → address → row → pods
        cache.listen(self)
        for node in cache.nodes.values():
            for info in node.pods.values():
                self.pod_placed(info)

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return bool(ports_of(pod_class))

    def pod_placed(self, info: PodInfo) -> None:
        for port in ports_of(info.pod_class):
            users = self._users.setdefault((port.protocol, port.number), {}).setdefault(port.address, Counter())
            users[self._rows[info.node_name]] += 1

    def pod_gone(self, info: PodInfo) -> None:
        for port in ports_of(info.pod_class):
            addresses = self._users[port.protocol, port.number]
            users, row = addresses[port.address], self._rows[info.node_name]
            users[row] -= 1
            if not users[row]:
                del users[row]
            if not users:
                del addresses[port.address]
            if not addresses:
                del self._users[port.protocol, port.number]

    def rows_where_taken(self, ports: tuple[HostPort, ...]) -> set[int]:
        """Rows of nodes where one of the ports is in use."""
        taken: set[int] = set()
        for port in ports:
            for address, users in self._users.get((port.protocol, port.number), {}).items():
                if EVERY_ADDRESS in {address, port.address} or address == port.address:
                    taken.update(users)
        return taken


def ports_of(pod_class: EquivalenceClass) -> tuple[HostPort, ...]:
    """The host ports of pods of this class."""
    known = pod_class.facts.get(_FACT)
    if known is None:
        known = pod_class.facts[_FACT] = host_ports(pod_class.example.spec)
    return known  # type: ignore[return-value]


PORTS: StateKey[tuple[HostPort, ...]] = StateKey("NodePorts/ports")


def used_ports(node: NodeInfo) -> list[dict[str, str | int]]:
    """The host ports in use on a node, for the node view of the services API."""
    ports = sorted(port for info in node.pods.values() for port in ports_of(info.pod_class))
    return [{"ip": port.address, "protocol": port.protocol, "port": port.number} for port in ports]


class NodePorts(PreFilter, FilterBatch):
    """The extension points of NodePorts."""

    name = "NodePorts"
    scope = Scope.NODE_PODS

    def __init__(self, handle: Handle) -> None:
        self._use = handle.shared(PortUse)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        ports = host_ports(pod.spec)
        if not ports:
            return Status.skip()
        state[PORTS] = ports
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        ports = state[PORTS]
        there = (port for info in node.pods.values() for port in ports_of(info.pod_class))
        return TAKEN if any(port.conflicts(request) for port in there for request in ports) else SUCCESS

    def slots_signature(self, state: CycleState, node: NodeInfo) -> str:
        return self.name  # the ports are free on every feasible node, and one pod takes them

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        taken = [self._use.rows_where_taken(state[PORTS]) for state in stacked]
        if not any(taken):
            return None
        free = np.ones((len(stacked), batch.columns.capacity), np.bool_)
        for line, rows in zip(free, taken, strict=True):
            line[list(rows)] = False
        return batch.pick(free)

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        passing = self.filter_batch(stacked, batch)
        codes = np.zeros(batch.size, np.int64) if passing is None else (~passing[0]).astype(np.int64)
        return codes, lambda _: TAKEN
