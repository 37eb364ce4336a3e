"""The cluster as its events describe it: objects by name, pods by node, and recent versions of nodes and devices.

Events of different kinds arrive on different watches, and a scheduler needs a moment to see them. So an object keeps
the versions that were valid in the last seconds: a binding is correct if it is correct by any of these versions.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from seatrial.harness.allocations import Allocations, parse_allocations
from seatrial.harness.apiserver.quantities import Amounts
from seatrial.harness.audit.annotations import gang_of
from seatrial.harness.audit.indices import NOBODY, Indices, NodeUse
from seatrial.harness.audit.requests import requests_of
from seatrial.scheduler.api.core import Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.numa import RESOURCE_STATUS, NodeResourceTopology, ResourceStatus, decode_status
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.resourceclaims import Consumer

GRACE = 2.0  # seconds of the cluster's clock in which a scheduler may not have seen a change
MAX_ENTRIES = 40  # of one pod's timeline

T = TypeVar("T")


@dataclass(slots=True)
class PodRecord:
    """One pod with what was seen of it."""

    pod: Pod
    seen_at: float
    bound_by_scheduler: bool = False  # it was seen without a node before
    bound_at: float | None = None
    deleting_since: float | None = None
    nominated_at: float = 0.0  # when its present nomination was seen
    attempted: bool = False  # the scheduler has written PodScheduled=False at some time
    timeline: list[str] = field(default_factory=list)
    _requests: Amounts | None = None
    _allocations: Allocations | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def node(self) -> str:
        return self.pod.spec.node_name

    @property
    def requests(self) -> Amounts:
        """Requests do not change, except by resizing; they are computed once for each version of the pod."""
        if self._requests is None:
            self._requests = requests_of(self.pod)
        return self._requests

    @property
    def allocations(self) -> Allocations:
        """Devices in the pod's annotation; msgspec.DecodeError if it is not Koordinator's format."""
        if self._allocations is None:
            self._allocations = parse_allocations(self.pod.metadata.annotations)
        return self._allocations

    @property
    def numa(self) -> ResourceStatus:
        """CPUs and NUMA amounts in the pod's annotation."""
        text = self.pod.metadata.annotations.get(RESOURCE_STATUS, "")
        return decode_status(text) if text else ResourceStatus()

    def update(self, pod: Pod) -> None:
        self.pod, self._requests, self._allocations = pod, None, None

    def note(self, at: float, text: str) -> None:
        self.timeline.append(f"{at:.3f} {self.key} {text}")
        del self.timeline[:-MAX_ENTRIES]


class Versions(Generic[T]):
    """The objects of one kind by name, with the versions of the last seconds."""

    def __init__(self) -> None:
        self._now: dict[str, T] = {}
        self._past: dict[str, list[tuple[float, T | None]]] = {}  # until when, and what it was

    def get(self, name: str) -> T | None:
        """The object as it is now; None if it is gone or was never seen."""
        return self._now.get(name)

    def set(self, name: str, value: T | None, at: float) -> None:
        """Replace an object; None: it is gone."""
        past = [entry for entry in self._past.get(name, ()) if entry[0] >= at - GRACE]
        past.append((at, self._now.get(name)))
        self._past[name] = past
        if value is None:
            self._now.pop(name, None)
        else:
            self._now[name] = value

    def recent(self, name: str, at: float) -> list[T | None]:
        """The version now, then older ones that were valid at or after `at` minus the grace period."""
        past = [value for until, value in reversed(self._past.get(name, ())) if until >= at - GRACE]
        return [self._now.get(name), *past]

    def __iter__(self) -> Iterator[T]:
        return iter(self._now.values())

    def __len__(self) -> int:
        return len(self._now)


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The parts of a PodGroup that the auditor reads."""

    key: str
    min_member: int
    once: bool = True  # after its minimum was placed once, members are placed one by one: Koordinator's default


@dataclass(frozen=True, slots=True)
class Quota:
    """The parts of an ElasticQuota that the auditor reads."""

    name: str
    most: Amounts


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim with devices: the users that it is for, and the devices that are its alone."""

    users: tuple[Consumer, ...]
    devices: frozenset[tuple[str, str, str]]  # driver, pool, device


class ClusterState:
    """All objects that invariants read."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}  # by uid
        self.indices = Indices()
        self.pending: dict[str, PodRecord] = {}
        self._left: deque[tuple[float, PodRecord]] = deque()  # pods that wait no more, since when
        self._gone: deque[tuple[float, PodRecord]] = deque()  # deleted pods that had a node, since when
        self.nodes: Versions[Node] = Versions()
        self.devices: Versions[Device] = Versions()
        self.topologies: Versions[NodeResourceTopology] = Versions()
        self.reservations: Versions[Reservation] = Versions()  # by uid
        self.namespaces: dict[str, dict[str, str]] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.groups: dict[str, PodGroup] = {}
        self.whole_gangs: dict[str, float] = {}  # by key: when a member was bound last that left it with its minimum
        self.quotas: Versions[Quota] = Versions()  # by name
        self.resource_claims: dict[str, AllocatedClaim] = {}  # by key
        self.busy: dict[str, tuple[float, float]] = {}  # by scheduler: since when it decides without a pause, and until
        self.allocating: set[str] | None = None  # schedulers that allocate the cards of vendors' resources; None: all
        self.holds_nominated = True  # schedulers keep the room of nominated pods for them, as kube-scheduler does
        self.in_flight = 0.0  # seconds that a binding may be under way when the pods around it change
        self.absent: list[str] = []  # kinds that the server does not serve or that may not be read
        self.ended: list[str] = []  # keys of pods that are gone, for timelines

    def decided(self, scheduler: str, at: float) -> None:
        """The scheduler has bound or refused a pod."""
        since, until = self.busy.get(scheduler, (at, at))
        self.busy[scheduler] = (since if at - until <= GRACE else at, at)

    def on_node(self, name: str) -> Iterator[PodRecord]:
        """The pods that occupy resources of a node: bound there, and not ended. Terminating pods occupy them too."""
        use = self.indices.nodes.get(name)
        return iter(use.pods.values() if use is not None else ())

    def use_of(self, name: str) -> NodeUse:
        """What the pods of a node occupy."""
        return self.indices.nodes.get(name) or NodeUse()

    def recently_pending(self, at: float) -> Iterator[PodRecord]:
        """The pods that wait, and those that did within the grace period before `at`."""
        yield from self.pending.values()
        yield from (record for moment, record in self._left if moment >= at - GRACE)

    def recently_gone(self, at: float) -> Iterator[PodRecord]:
        """The pods with a node that were removed within the grace period before `at`."""
        return (record for moment, record in self._gone if moment >= at - GRACE)

    def _waits_no_more(self, uid: str, at: float) -> None:
        while self._left and self._left[0][0] < at - GRACE:
            self._left.popleft()
        record = self.pending.pop(uid, None)
        if record is not None:
            self._left.append((at, record))

    def place(self, record: PodRecord, at: float) -> None:
        """Update the indices after a change of the pod."""
        self.indices.update(record)
        if record.node:
            self._waits_no_more(record.uid, at)
            if record.bound_at == at:
                self.count_gang(gang_of(record.pod), at)
        elif not record.pod.terminated:
            self.pending[record.uid] = record

    def count_gang(self, key: str, at: float) -> None:
        """Note that the gang has its minimum on nodes now, if it has."""
        group = self.groups.get(key)
        if group is not None and len(self.indices.by_gang.get(key, NOBODY)) >= group.min_member:
            self.whole_gangs[key] = at

    def drop(self, uid: str, at: float) -> PodRecord | None:
        """Remove a deleted pod."""
        record = self.pods.pop(uid, None)
        if record is not None:
            self._waits_no_more(uid, at)
            self.indices.remove(uid)
            while self._gone and self._gone[0][0] < at - 2 * GRACE:  # a binding in doubt is judged up to GRACE later
                self._gone.popleft()
            if record.node:
                self._gone.append((at, record))
        return record
