"""NodeInfo: a node object with the sums of its pods' requests. PodInfo: a pod with its equivalence class."""

from dataclasses import dataclass, field

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.cache.classes import EquivalenceClass


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod with its equivalence class and its node."""

    pod: Pod
    pod_class: EquivalenceClass
    node_name: str = ""  # the node that it is on or assumed to be on
    uid: str = field(init=False)  # of all pods that `pod` is ever set to

    def __post_init__(self) -> None:
        self.uid = self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def priority(self) -> int:
        return self.pod.spec.priority

    @property
    def started(self) -> float:
        """Start time, seconds since 1970; infinity for a pod that has not started."""
        time = read_time(self.pod.status.start_time)
        return float("inf") if time is None else time


class NodeInfo:
    """Sums by resource column (`ResourceIndex`)."""

    __slots__ = ("allocatable", "name", "node", "nonzero", "pods", "requested", "row")

    def __init__(self, name: str, row: int) -> None:
        self.name = name
        self.row = row
        self.node: Node | None = None  # None: pods are here, but the node object does not exist
        self.allocatable: list[int] = []  # must not be changed in place: nodes of one size share the list
        self.requested: list[int] = []
        self.nonzero: tuple[int, int] = (0, 0)  # cpu (milli), memory (bytes) as scores count them
        self.pods: dict[str, PodInfo] = {}  # by uid

    @property
    def known(self) -> Node:
        """The node object. Must not be read for a node that does not exist."""
        assert self.node is not None, f"node {self.name} is not in the cache"
        return self.node

    def widen(self, columns: int) -> None:
        """Make room for resource columns up to `columns`."""
        missing = columns - len(self.requested)
        if missing > 0:
            self.requested += [0] * missing
        missing = columns - len(self.allocatable)
        if missing > 0:
            self.allocatable = self.allocatable + [0] * missing

    def add(self, info: PodInfo) -> None:
        self.pods[info.uid] = info
        self.count(info.pod_class, 1)

    def remove(self, info: PodInfo) -> None:
        del self.pods[info.uid]
        self.count(info.pod_class, -1)

    def copy(self) -> "NodeInfo":
        """An independent copy, for dry runs."""
        copy = NodeInfo(self.name, self.row)
        copy.node = self.node
        copy.allocatable = self.allocatable
        copy.requested = self.requested.copy()
        copy.nonzero = self.nonzero
        copy.pods = self.pods.copy()
        return copy

    def count(self, pod_class: EquivalenceClass, sign: int) -> None:
        """Add a pod of this class to the sums (1), or subtract it (-1); `pods` has been changed already."""
        requested = self.requested
        if pod_class.width > len(requested):
            self.widen(pod_class.width)
        cpu, memory = pod_class.nonzero
        have = self.nonzero
        if sign > 0:
            for column, value in pod_class.vector:
                requested[column] += value
            self.nonzero = (have[0] + cpu, have[1] + memory)
        else:
            for column, value in pod_class.vector:
                requested[column] -= value
            self.nonzero = (have[0] - cpu, have[1] - memory)
