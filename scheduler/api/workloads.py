"""Namespaces, services and controllers: the fields that scheduling reads."""

from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, Wire


class Namespace(Wire, frozen=True):
    """A Namespace."""

    metadata: ObjectMeta = ObjectMeta()


class PriorityClass(Wire, frozen=True):
    """A PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"


class PlainSelector(Wire, frozen=True):
    """`spec` of services and replication controllers: labels that must all match."""

    selector: dict[str, str] = {}


class Service(Wire, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PlainSelector = PlainSelector()


class ReplicationController(Wire, frozen=True):
    """A ReplicationController."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PlainSelector = PlainSelector()


class WorkloadSpec(Wire, frozen=True):
    """The spec of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class Workload(Wire, frozen=True):
    """A ReplicaSet or a StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
