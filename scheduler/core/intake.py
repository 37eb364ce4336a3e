"""The core's input: objects of the API server as they are added, changed and deleted.

Each event updates the cache, the queue and the plugins that watch the kind. No decision is made here.
"""

from collections.abc import Callable, Container
from typing import Protocol

from msgspec.structs import replace

from seatrial.scheduler.api.core import ConfigMap, Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.extension import SCHEDULER_NAME_LABEL
from seatrial.scheduler.api.networktopology import ClusterNetworkTopology
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.reservation import OPERATING_MODE, Reservation
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.bindings import Bindings
from seatrial.scheduler.core.groups.engine import GroupEngine
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker, class_key
from seatrial.scheduler.engine.runner import Runners
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CLUSTER_SCOPED, WAKE_GROUP, CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code
from seatrial.scheduler.pods.resizes import with_held_requests
from seatrial.scheduler.pods.scheduler_names import with_labelled_scheduler


class PodListener(Protocol):
    """A part of the core that follows some pods: members of groups, and pods that wait on Permit."""

    @property
    def followed(self) -> Container[str]:
        """The uids of the pods that it follows."""

    def pod_changed(self, pod: Pod) -> None:
        """A pod that it follows changed in any phase, or it is to follow this one from now on."""

    def pod_left(self, uid: str) -> None:
        """A pod that it follows is gone or has ended."""


class Intake:
    """Keeps the cache, the queue and the plugins up to date with the cluster's objects."""

    def __init__(  # noqa: PLR0917 the parts of the core that events reach
        self,
        handle: Handle,
        runners: Runners,
        queue: SchedulingQueue,
        waker: Waker,
        bindings: Bindings,
        reports: HeldReports,
        outbox: Outbox,
    ) -> None:
        self._handle, self._cache, self._runners, self._queue = handle, handle.cache, runners, queue
        self._waker, self._bindings, self._reports, self._outbox = waker, bindings, reports, outbox
        self._listeners: list[tuple[PodListener, Callable[[Pod], object]]] = []
        self.groups: GroupEngine | None = None  # also one of the listeners, if a profile places groups

    def follow(self, listener: PodListener, concerns: Callable[[Pod], object]) -> None:
        """Have the listener called for the pods that it follows, and for those that concern it."""
        self._listeners.append((listener, concerns))

    def set_node(self, node: Node) -> None:
        changes, names = self._cache.columns.changes, len(self._cache.columns.resources)
        if len(self._queue.waiting) and (not self._cache.known_count or self._taints_change(node)):
            self._queue.retry_for_reason_of_nodes()
            self._waker.set_alarm(self._queue.next_backoff())
        self._handle.complain(*self._cache.set_node(node))
        if len(self._cache.columns.resources) != names:
            self._handle.invalidate_class_scores()  # pods may have requested what no node had before
        if self._cache.columns.changes != changes:
            self._open(node.name)
        for changed in self._handle.node_listeners:
            changed(node.name, node)

    def _taints_change(self, node: Node) -> bool:
        """Whether a known node's taints or cordon differ from `node`'s."""
        known = self._cache.nodes.get(node.name)
        if known is None or known.node is None:
            return False
        before, after = known.node.spec, node.spec
        return before.taints != after.taints or before.unschedulable != after.unschedulable

    def remove_node(self, name: str) -> None:
        self._cache.remove_node(name)
        self._handle.request_wake()  # its topology domains have fewer pods, or are gone: pods may be spread otherwise
        if self.groups is not None:
            self.groups.node_gone(name)
        for changed in self._handle.node_listeners:
            changed(name, None)

    def set_device(self, name: str, device: Device | None) -> None:
        """The Device object of a node was added or changed, or (None) is gone."""
        result = device or Device()
        self._deliver(replace(result, metadata=replace(result.metadata, name=name)), there=device is not None)

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """The NodeResourceTopology of a node was added or changed, or (None) is gone."""
        nrt = topology or NodeResourceTopology()
        self._deliver(replace(nrt, metadata=replace(nrt.metadata, name=name)), there=topology is not None)

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
        result = config_map or ConfigMap(ObjectMeta(name=name, namespace=namespace))
        self._deliver(result, there=config_map is not None, path=f"/namespaces/{namespace}/", selected=name)

    def _deliver(self, result: object, *, there: bool, path: str = "", selected: str = "") -> None:
        """Call the plugins that watch this kind of object, as an informer does."""
        for watch in self._handle.watches:
            selector = watch.selector.get("fieldSelector", "")
            if isinstance(result, watch.kind) and path in watch.path and selector in {"", f"metadata.name={selected}"}:
                (watch.on_set if there else watch.on_gone)(result)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None: it is gone."""
        self._cache.set_namespace(name, labels)

    def storage_changed(self) -> None:
        """`cache.volumes` changed."""
        self._cache.placement_changes += 1

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        self._cache.budgets[budget.metadata.key] = budget

    def remove_budget(self, key: str) -> None:
        self._cache.budgets.pop(key, None)

    def regroup_waiting(self, mark_of: Callable[[Pod], str | None]) -> None:
        """Regroup waiting pods: those with a mark wait apart from other pods of their class."""
        waiting = self._queue.waiting
        for entry in waiting:
            info = entry.info
            mark = mark_of(info.pod)
            if mark is not None:
                state = CycleState({CLUSTER_SCOPED: True, WAKE_GROUP: mark})
                waiting.regroup(info.uid, class_key(info, state, self._cache.label_keys))

    def set_pod(self, pod: Pod) -> None:
        """A pod was added or changed, as read from the API server, in any phase."""
        if SCHEDULER_NAME_LABEL in pod.metadata.labels:
            pod = with_labelled_scheduler(pod)
        uid = pod.metadata.uid
        for listener, concerns in self._listeners:
            if uid in listener.followed or concerns(pod):
                listener.pod_changed(pod)
        if pod.terminated:
            self.remove_pod(uid)
        elif pod.spec.node_name:
            self._leave_queue(uid)
            self._cache.pending.pop(uid, None)
            known = self._cache.placed(uid)
            pod = with_held_requests(pod)
            info = self._cache.set_pod(self._handle.as_counted(pod) if OPERATING_MODE in pod.metadata.labels else pod)
            if known is not None and info is not known:  # it was resized: it may take less than before
                self._open(info.node_name)
        else:
            self._cache.pending[uid] = pod
            for pending in self._handle.pending_listeners:
                pending(pod)
            if not self._handle.wakes.leading or self._cache.is_assumed(uid):
                return
            if pod.deleting or pod.spec.scheduler_name not in self._runners:
                self._leave_queue(uid)  # its label may have named one of our profiles
            else:
                self._enqueue(pod)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has ended."""
        for listener, _ in self._listeners:
            if uid in listener.followed:
                listener.pod_left(uid)
        self._leave_queue(uid)
        self._bindings.take(uid)
        gone = self._cache.remove_pod(uid)
        if gone is not None:
            self._open(gone.node_name)
        for left in self._handle.left_listeners:
            left(uid)
        self._cache.pending.pop(uid, None)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or left the watch because it ended; `pod` is its last state."""
        if self.groups is not None and pod.terminated:
            self.groups.pod_ended(pod)
        self.remove_pod(pod.metadata.uid)

    def _enqueue(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        entry = self._queue.find(uid)
        if entry is not None:
            before = entry.info.pod
            if not entry.grouped:
                self._follow_nomination(entry.info, pod)
            if before.spec == pod.spec and before.metadata.labels == pod.metadata.labels:
                same_marks = before.metadata.annotations == pod.metadata.annotations
                if same_marks or self._cache.classes.of(pod) is entry.info.pod_class:
                    entry.info.pod = pod  # only its status changed, or metadata that no plugin reads
                    return
            self._queue.remove(uid)
        info = PodInfo(pod, self._cache.classes.of(pod))
        runner = self._runners.of(info)
        if entry is None:  # else its status may still name a node that was given back
            self._adopt_nomination(info)
        status = runner.pre_enqueue(pod)
        entry = self._queue.add(
            info,
            gates=runner.gates_of(pod),
            held=None if status is SUCCESS else status,
            grouped=self.groups is not None and uid in self.groups.followed and self.groups.places(pod),
        )
        if status.code is Code.ERROR:
            self._queue.remove(uid)
            self._waker.hold_after_error(entry, status)
        elif status is not SUCCESS and status.wake_key:
            self._reports.held(info.uid)

    def _adopt_nomination(self, info: PodInfo) -> None:
        node = info.pod.status.nominated_node_name
        if node and not self._handle.nominator.node_of(info.uid):
            self._handle.nominator.nominate(info, node)
            if self.groups is not None:
                self.groups.pod_nominated(info)

    def _follow_nomination(self, info: PodInfo, pod: Pod) -> None:
        """Another program changed `status.nominatedNodeName` of a pod that waits.

        What this scheduler wrote itself is known, or was replaced by something that is still to be written.
        """
        before, node = info.pod.status.nominated_node_name, pod.status.nominated_node_name
        nominator = self._handle.nominator
        if node == before or nominator.node_of(info.uid) != before:
            return
        if before:
            nominator.forget(info.uid)
            self._open(before)
        if node:
            nominator.nominate(info, node)

    def _leave_queue(self, uid: str) -> None:
        self._queue.remove(uid)
        if self._outbox.decisions:
            self._outbox.forget(uid)
        nominator = self._handle.nominator
        if uid in nominator.nominated:
            node = nominator.node_of(uid)
            nominator.forget(uid)
            self._open(node)

    def _open(self, node: str) -> None:
        """There may be room on a node for waiting pods, or less to preempt."""
        self._handle.request_wake()
        self._waker.node_opened(node)
