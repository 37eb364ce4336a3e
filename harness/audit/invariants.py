"""What an invariant is, and what it is given. The tables are in the modules `…_rules.py`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from seatrial.harness.audit.indices import NodeUse
from seatrial.harness.audit.state import ClusterState, PodRecord
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.numa import NodeResourceTopology


class When(Enum):
    """When an invariant is judged."""

    BINDING = auto()  # a scheduler bound a pod
    CHANGE = auto()  # a pod changed
    END = auto()  # when asked, as after a case


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod on its node, with one version of the node's objects."""

    state: ClusterState
    record: PodRecord
    node: Node | None
    device: Device | None
    topology: NodeResourceTopology | None
    at: float

    @property
    def pod(self) -> Pod:
        return self.record.pod

    def others(self) -> Iterator[PodRecord]:
        """The other pods that occupy resources of the node."""
        return (record for record in self.state.on_node(self.record.node) if record.uid != self.record.uid)

    def others_with_devices(self) -> Iterator[PodRecord]:
        """The other pods of the node whose annotation has devices."""
        return (record for record in self.use.with_devices.values() if record.uid != self.record.uid)

    @property
    def use(self) -> NodeUse:
        """What the pods of the node occupy."""
        return self.state.use_of(self.record.node)

    def all(self) -> Iterator[PodRecord]:
        return self.state.on_node(self.record.node)


@dataclass(frozen=True, slots=True)
class Change:
    """A pod before and after a change."""

    state: ClusterState
    record: PodRecord
    before: Pod
    after: Pod
    at: float


@dataclass(frozen=True, slots=True)
class Breach:
    """What breaks an invariant: the fact, and further pods that are part of it."""

    text: str
    pods: tuple[PodRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class BindingInvariant:
    """Holds for every pod that a scheduler binds. `lasting`: also a property of the state, without the moment.

    `needs_others`: other bound pods make it hold. Schedulers send bindings in parallel: the API server may store this
    one first; it is judged again for some time before it is reported.
    """

    id: str
    title: str
    check: Callable[[Binding], Breach | None]
    lasting: bool = False
    needs_others: bool = False


@dataclass(frozen=True, slots=True)
class ChangeInvariant:
    """Holds for every change of a pod."""

    id: str
    title: str
    check: Callable[[Change], Breach | None]


@dataclass(frozen=True, slots=True)
class StateInvariant:
    """Holds at every point in time; `check` gets the state and the time."""

    id: str
    title: str
    check: Callable[[ClusterState, float], Iterator[tuple[PodRecord | None, Breach]]]


Invariant = BindingInvariant | ChangeInvariant | StateInvariant
