"""ClusterState: nodes, pods, usage, workloads, migration jobs and reservations, with indexes.

Objects arrive from informers and from responses to own writes, in any order: of two versions of a migration job or
reservation the one with the larger resource version is kept.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from seatrial.scheduler.api.clock import from_rfc3339
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.migration import PodMigrationJob
from seatrial.scheduler.api.quantity import Amounts, amounts
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.api.wire import ObjectMeta, OwnerReference
from seatrial.scheduler.descheduler.objects import Pod, WorkloadObject
from seatrial.scheduler.pods.requests import pod_requests

Versioned = TypeVar("Versioned", PodMigrationJob, Reservation)


@dataclass(frozen=True, slots=True)
class Usage:
    """A NodeMetric in integers. `updated`: seconds since 1970, None before the first report."""

    updated: float | None
    system: Amounts
    pods: dict[str, Amounts]  # by namespace/name


@dataclass(frozen=True, slots=True)
class Workload:
    """What controls a pod: the Deployment, not its ReplicaSet. `replicas`: from its spec."""

    uid: str
    kind: str
    namespace: str
    name: str
    replicas: int


@dataclass(slots=True)
class _Controller:
    kind: str
    metadata: ObjectMeta
    replicas: int


@dataclass(slots=True)
class ClusterState:
    """What is known of the cluster."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)  # by uid
    usage: dict[str, Usage] = field(default_factory=dict)  # by node
    jobs: dict[str, PodMigrationJob] = field(default_factory=dict)  # by name
    reservations: dict[str, Reservation] = field(default_factory=dict)  # by name
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)  # labels by name
    priorities: dict[str, int] = field(default_factory=dict)  # by priority class
    problems: list[str] = field(default_factory=list)  # objects that could not be read; the shell logs and clears them
    _by_key: dict[str, str] = field(default_factory=dict)
    _on_node: defaultdict[str, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    _of_controller: defaultdict[str, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    _controllers: dict[str, _Controller] = field(default_factory=dict)
    _children: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _requests: dict[str, Amounts] = field(default_factory=dict)
    _requested: dict[str, Amounts] = field(default_factory=dict)
    _jobs_of_pod: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    # -- objects ------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node

    def remove_node(self, node: Node) -> None:
        self.nodes.pop(node.name, None)

    def set_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        known = self.pods.get(uid)
        if known is not None:
            self._unindex(known)
        self.pods[uid] = pod
        self._by_key[pod.key] = uid
        if pod.spec.node_name:
            self._on_node[pod.spec.node_name][uid] = pod
            self._requested.pop(pod.spec.node_name, None)
        owner = controller_of(pod.metadata)
        if owner is not None:
            self._of_controller[owner.uid][uid] = pod
        if known is not None and known.spec.containers != pod.spec.containers:
            self._requests.pop(uid, None)

    def remove_pod(self, pod: Pod) -> None:
        known = self.pods.pop(pod.metadata.uid, None)
        if known is not None:
            self._unindex(known)
            self._requests.pop(pod.metadata.uid, None)
            self._by_key.pop(known.key, None)

    def _unindex(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._on_node[pod.spec.node_name].pop(uid, None)
            self._requested.pop(pod.spec.node_name, None)
        owner = controller_of(pod.metadata)
        if owner is not None:
            self._of_controller[owner.uid].pop(uid, None)

    def set_metric(self, metric: NodeMetric) -> None:
        status = metric.status
        name = metric.metadata.name
        try:
            reported = status.update_time is not None and status.node_metric is not None
            self.usage[name] = Usage(
                from_rfc3339(status.update_time) if reported and status.update_time else None,
                amounts(status.node_metric.system_usage.resources) if status.node_metric else {},
                {
                    f"{metric.namespace}/{metric.name}": amounts(metric.pod_usage.resources)
                    for metric in status.pods_metric
                },
            )
        except ValueError as error:
            self.usage.pop(name, None)
            self.problems.append(f"NodeMetric {name}: {error}")

    def remove_metric(self, metric: NodeMetric) -> None:
        self.usage.pop(metric.metadata.name, None)

    def set_workload(self, kind: str, workload: WorkloadObject) -> None:
        metadata, spec = workload.metadata, workload.spec
        replicas = spec.parallelism if kind == "Job" else spec.replicas
        self._controllers[metadata.uid] = _Controller(kind, metadata, 1 if replicas is None else replicas)
        owner = controller_of(metadata)
        if owner is not None:
            self._children[owner.uid].add(metadata.uid)

    def remove_workload(self, workload: WorkloadObject) -> None:
        self._controllers.pop(workload.metadata.uid, None)
        owner = controller_of(workload.metadata)
        if owner is not None:
            self._children[owner.uid].discard(workload.metadata.uid)

    def set_job(self, job: PodMigrationJob) -> bool:
        """Whether it was newer than the known version."""
        if not _newer(self.jobs.get(job.name), job):
            return False
        self.jobs[job.name] = job
        self._jobs_of_pod[job.pod_key][job.name] = None
        return True

    def remove_job(self, job: PodMigrationJob) -> None:
        """Forget a job, unless another one has its name by now."""
        known = self.jobs.get(job.name)
        if known is not None and known.metadata.uid == job.metadata.uid:
            del self.jobs[job.name]
            self._jobs_of_pod[known.pod_key].pop(job.name, None)

    def set_reservation(self, reservation: Reservation) -> bool:
        """Whether it was newer than the known version."""
        if not _newer(self.reservations.get(reservation.name), reservation):
            return False
        self.reservations[reservation.name] = reservation
        return True

    def remove_reservation(self, reservation: Reservation) -> None:
        """Forget a reservation, unless another one has its name by now."""
        known = self.reservations.get(reservation.name)
        if known is not None and known.metadata.uid == reservation.metadata.uid:
            del self.reservations[reservation.name]

    # -- questions ----------------------------------------------------------------------------------------------------

    def pod_named(self, key: str) -> Pod | None:
        """The pod `namespace/name`."""
        return self.pods.get(self._by_key.get(key, ""))

    def pods_on(self, node: str) -> Iterable[Pod]:
        """Pods with that node, also those that have ended or are being deleted."""
        return self._on_node[node].values() if node in self._on_node else ()

    def requests(self, pod: Pod) -> Amounts:
        """The pod's requests with its init containers and overhead, computed once for each pod."""
        uid = pod.metadata.uid
        request = self._requests.get(uid)
        if request is None:
            request = self._requests[uid] = pod_requests(pod.spec)
        return request

    def requested_on(self, node: str) -> Amounts:
        """The sum of the requests of a node's pods that have not ended, and their number as `pods`."""
        by_name = self._requested.get(node)
        if by_name is None:
            by_name = {"pods": 0}
            for pod in self.pods_on(node):
                if not pod.terminated:
                    by_name["pods"] += 1
                    for name, value in self.requests(pod).items():
                        by_name[name] = by_name.get(name, 0) + value
            self._requested[node] = by_name
        return by_name

    def workload_of(self, pod: Pod) -> Workload | None:
        """What controls the pod; a ReplicaSet that a Deployment controls is looked through (RSV-R71).

        Of a kind that is not watched the pods that exist count as its replicas.
        """
        owner = controller_of(pod.metadata)
        if owner is None:
            return None
        controller = self._controllers.get(owner.uid)
        if controller is None:
            count = len(self._of_controller[owner.uid])
            return Workload(owner.uid, owner.kind, pod.metadata.namespace, owner.name, count)
        above = controller_of(controller.metadata)
        if above is not None and above.uid in self._controllers:
            controller = self._controllers[above.uid]
        metadata = controller.metadata
        return Workload(metadata.uid, controller.kind, metadata.namespace, metadata.name, controller.replicas)

    def pods_of(self, workload: Workload) -> list[Pod]:
        """The pods of a workload that have not ended."""
        uids = {workload.uid, *self._children.get(workload.uid, ())}
        return [pod for uid in uids for pod in self._of_controller.get(uid, {}).values() if not pod.terminated]

    def count_of(self, uid: str) -> int:
        """How many pods the object with this UID controls, also those that have ended."""
        return len(self._of_controller.get(uid, ()))

    def open_jobs(self) -> list[PodMigrationJob]:
        """The migration jobs that have neither succeeded nor failed."""
        return [job for job in self.jobs.values() if job.open]

    def jobs_for(self, key: str) -> Iterable[str]:
        """Names of all migration jobs for pods `namespace/name`."""
        return tuple(self._jobs_of_pod.get(key, ()))


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The owner that is the object's controller; None if it has none."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def _newer(known: Versioned | None, job: Versioned) -> bool:
    if known is None or known.metadata.uid != job.metadata.uid:
        return True
    # Resource versions of one kind are comparable integers since Kubernetes 1.35 (KEP-5504).
    version, than = integer(job.metadata.resource_version), integer(known.metadata.resource_version)
    return version is None or than is None or version >= than
