"""The core's input: objects of the API server as they are added, changed and deleted.

Each event updates the cache, the queue and the plugins that watch the kind. No decision is made here.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from seatrial.scheduler.api.core import ConfigMap, Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.networktopology import ClusterNetworkTopology
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.reservation import OPERATING_MODE, Reservation
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.groups.engine import GroupEngine
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.permit_waiters import PermitWaiters
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker, class_key
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CLUSTER_SCOPED, WAKE_GROUP, CycleState
from seatrial.scheduler.framework.status import Code
from seatrial.scheduler.pods.resizes import with_held_requests


class Intake:
    """Keeps the cache, the queue and the plugins up to date with the cluster's objects."""

    # Parts of the core that events use. They need the whole core: `Core` makes them.
    groups: GroupEngine
    permits: PermitWaiters
    waker: Waker
    reports: HeldReports

    def __init__(self, handle: Handle, runners: Mapping[str, Runner], queue: SchedulingQueue) -> None:
        self.handle = handle
        self.cache = handle.cache
        self.queue = queue
        self.complaints = handle.complaints
        self._runners = runners
        self._binding: dict[str, tuple[Entry, CycleState]] = {}
        handle.intake = self

    def on_ready(self) -> None:
        """Called when a timer made a pod ready. The shell replaces it."""

    def set_node(self, node: Node) -> None:
        changes, names = self.cache.columns.changes, len(self.cache.columns.resources)
        if len(self.queue.waiting) and (not self.cache.known_count or self._taints_change(node)):
            self.queue.retry_for_reason_of_nodes()
            self.waker.set_alarm(self.queue.next_backoff())
        self.complaints += self.cache.set_node(node)
        if len(self.cache.columns.resources) != names:
            self.handle.invalidate_class_scores()  # pods may have requested what no node had before
        self.handle.wake_requested |= self.cache.columns.changes != changes
        for listener in self.handle.object_listeners:
            listener.node_changed(node.name, node)

    def _taints_change(self, node: Node) -> bool:
        """Whether a known node's taints or cordon differ from `node`'s."""
        known = self.cache.nodes.get(node.name)
        if known is None or known.node is None:
            return False
        before, after = known.node.spec, node.spec
        return before.taints != after.taints or before.unschedulable != after.unschedulable

    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.groups.nominations.node_gone(name)
        for listener in self.handle.object_listeners:
            listener.node_changed(name, None)

    def set_device(self, name: str, device: Device | None) -> None:
        """The Device object of a node was added or changed, or (None) is gone."""
        found = device or Device()
        self._deliver(replace(found, metadata=replace(found.metadata, name=name)), there=device is not None)

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """The NodeResourceTopology of a node was added or changed, or (None) is gone."""
        found = topology or NodeResourceTopology()
        self._deliver(replace(found, metadata=replace(found.metadata, name=name)), there=topology is not None)

    def set_reservation(self, reservation: Reservation) -> None:
        """A Reservation was added or changed."""
        self._deliver(reservation, there=True)

    def remove_reservation(self, uid: str) -> None:
        """A Reservation is gone. The pods that allocated from it stay."""
        self._deliver(Reservation(ObjectMeta(uid=uid)), there=False)

    def set_quota(self, quota: ElasticQuota) -> None:
        """An ElasticQuota was added or changed."""
        self._deliver(quota, there=True)

    def set_node_metric(self, metric: NodeMetric) -> None:
        """The NodeMetric of a node was added or changed."""
        self._deliver(metric, there=True)

    def remove_node_metric(self, name: str) -> None:
        """The NodeMetric of a node is gone."""
        self._deliver(NodeMetric(ObjectMeta(name=name)), there=False)

    def set_network_topology(self, topology: ClusterNetworkTopology) -> None:
        """A ClusterNetworkTopology was added or changed."""
        self._deliver(topology, there=True)

    def set_config_map(self, key: str, config_map: ConfigMap | None) -> None:
        """The ConfigMap `namespace/name` was added or changed, or (None) is gone."""
        namespace, name = key.split("/")
        found = config_map or ConfigMap(ObjectMeta(name=name, namespace=namespace))
        self._deliver(found, there=config_map is not None, path=f"/namespaces/{namespace}/", selected=name)

    def _deliver(self, found: object, *, there: bool, path: str = "", selected: str = "") -> None:
        """Call the plugins that watch this kind of object, as an informer does."""
        for watch in self.handle.watches:
            selector = watch.selector.get("fieldSelector", "")
            if isinstance(found, watch.kind) and path in watch.path and selector in {"", f"metadata.name={selected}"}:
                (watch.on_set if there else watch.on_gone)(found)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None: it is gone."""
        self.cache.set_namespace(name, labels)

    def storage_changed(self) -> None:
        """`cache.volumes` changed."""
        self.cache.placement_changes += 1

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        self.handle.budgets[budget.metadata.key] = budget

    def remove_budget(self, key: str) -> None:
        self.handle.budgets.pop(key, None)

    def regroup_waiting(self, mark_of: Callable[[Pod], str | None]) -> None:
        """Regroup waiting pods: those with a mark wait apart from other pods of their class."""
        waiting = self.queue.waiting
        for entry in waiting:
            info = entry.info
            mark = mark_of(info.pod)
            if mark is not None:
                waiting.remove(info.uid)
                waiting.add(class_key(info, CycleState({CLUSTER_SCOPED: True, WAKE_GROUP: mark})), entry)
        self.handle.wake_requested = True

    def set_pod(self, pod: Pod) -> None:
        """A pod was added or changed, as read from the API server, in any phase."""
        uid = pod.metadata.uid
        if self.handle.groups is not None:
            self.handle.groups.set_pod(pod)
            if uid in self.groups and (pod.spec.node_name or pod.deleting):
                self.groups.drop(uid)
            elif uid in self.groups:
                self.groups.drop_if_moved(pod)
            if pod.spec.node_name:
                self.groups.nominations.bound(uid)
            elif uid in self.groups.nominations and pod.metadata.deletion_timestamp:
                self.groups.nominations.left(uid)
        if len(self.permits) and (pod.spec.node_name or pod.metadata.deletion_timestamp):
            self.permits.drop(uid)
        if pod.terminated:
            self.remove_pod(uid)
        elif pod.spec.node_name:
            self._leave_queue(uid)
            known = self.cache.placed(uid)
            pod = with_held_requests(pod)
            info = self.cache.set_pod(self.handle.as_counted(pod) if OPERATING_MODE in pod.metadata.labels else pod)
            if known is not None and info is not known:  # it was resized: it may take less than before
                self.handle.wake_requested = True
        else:
            for listener in self.handle.object_listeners:
                listener.pod_pending(pod)
            if not self.handle.leading or pod.spec.scheduler_name not in self._runners or self.cache.is_assumed(uid):
                return
            if pod.deleting:
                self._leave_queue(uid)
            else:
                self._enqueue(pod)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has ended."""
        if self.handle.groups is not None:
            self.groups.drop(uid)
            self.handle.groups.remove_pod(uid)
            self.groups.nominations.left(uid)
        self.permits.drop(uid)
        self._leave_queue(uid)
        self._binding.pop(uid, None)
        gone = self.cache.remove_pod(uid)
        if gone is not None:
            self.handle.wake_requested = True
            self.waker.pod_left(gone.node_name)
        for listener in self.handle.object_listeners:
            listener.pod_left(uid)
        for left in self.handle.pod_left:
            left(uid)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or left the watch because it ended; `pod` is its last state."""
        if self.handle.groups is not None and pod.terminated:
            self.handle.groups.set_pod(pod)
        self.remove_pod(pod.metadata.uid)

    def _enqueue(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        entry = self.queue.find(uid)
        if (
            entry is not None
            and entry.info.pod.spec == pod.spec
            and entry.info.pod.metadata.labels == pod.metadata.labels
        ):
            same_marks = entry.info.pod.metadata.annotations == pod.metadata.annotations
            if same_marks or self.cache.classes.of(pod) is entry.info.shape:
                entry.info.pod = pod  # only its status changed, or metadata that no plugin reads
                return
        self.queue.remove(uid)
        info = PodInfo(pod, self.cache.classes.of(pod))
        runner = self._runner(info)
        self._adopt_nomination(info)
        status = runner.pre_enqueue(pod)
        entry = self.queue.add(
            info,
            gates=runner.gates_of(pod),
            held=None if status.ok else status,
            grouped=runner.groups is not None and runner.groups.is_member(pod),
        )
        if status.code is Code.ERROR:
            self.queue.remove(uid)
            self.waker.hold_after_error(entry, status)
        elif not status.ok and status.wake_key:
            self.reports.held(info.uid)

    def _adopt_nomination(self, info: PodInfo) -> None:
        node = info.pod.status.nominated_node_name
        if node and not self.handle.nominator.node_of(info.uid):
            self.handle.nominator.nominate(info, node)
            groups = self._runner(info).groups
            if groups is not None and groups.is_member(info.pod):
                self.groups.nominations.adopt(info)

    def _leave_queue(self, uid: str) -> None:
        self.queue.remove(uid)
        if self.handle.nominator.node_of(uid):
            self.handle.nominator.forget(uid)
            self.handle.wake_requested = True

    def find(self, key: str) -> PodInfo | None:
        """A pod by namespace/name, on a node or in the queue."""
        return next((info for info in self.pods() if info.key == key), None)

    def pods(self) -> Iterator[PodInfo]:
        """All pods, those on nodes first, then those in the queue."""
        for node in self.cache.nodes.values():
            yield from node.pods.values()
        for _, entry in self.queue.entries():
            yield entry.info

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The runner of each profile, by scheduler name."""
        return self._runners

    @property
    def profiles(self) -> frozenset[str]:
        """The scheduler names of all profiles."""
        return frozenset(self._runners)

    def runner_of(self, info: PodInfo) -> Runner:
        """The runner of the profile that a pod names."""
        return self._runner(info)

    def _runner(self, info: PodInfo) -> Runner:
        return self._runners[info.pod.spec.scheduler_name]
