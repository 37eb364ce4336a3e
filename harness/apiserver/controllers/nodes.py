"""Node lifecycle: taints from conditions and expired leases, NoExecute evictions, and removal of orphaned pods.

Follows kube-controller-manager's node-lifecycle, taint-eviction and pod-garbage-collector controllers.
"""

from typing import Any

from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import DeleteOptions
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.harness.apiserver.verbs.objects import Objects
from seatrial.harness.apiserver.verbs.subresources import disrupted
from seatrial.scheduler.api.core import UNSCHEDULABLE_TAINT, ZONE_LABEL

REGION_LABEL = "topology.kubernetes.io/region"
NODES: CollectionKey = ("", "nodes")
PODS: CollectionKey = ("", "pods")
LEASES: CollectionKey = ("coordination.k8s.io", "leases")
LEASE_NAMESPACE = "kube-node-lease"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
MONITOR_PERIOD = 5.0  # seconds; upstream's --node-monitor-period
STARTUP_GRACE_PERIOD = 60.0  # seconds until the first report, upstream's --node-startup-grace-period
_REPORTED_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
MONITOR_GRACE_PERIOD = 50.0  # seconds without a renewal, upstream's --node-monitor-grace-period
ORPHAN_DELAY = 40.0  # seconds before pods of a removed node are deleted; upstream's quarantine time
LARGE_CLUSTER = 50  # nodes of a zone; up to it partial disruption stops evictions (--large-cluster-size-threshold)
UNHEALTHY_ZONE = 0.55  # part of a zone's nodes that is not ready (--unhealthy-zone-threshold)
_PRESSURE = {  # condition → NoSchedule taint set while it is True
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_MANAGED_TAINTS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE_TAINT, *_PRESSURE.values()})

_Pod = tuple[str, str, str]  # namespace, name, uid


class Nodes:
    """Reconciles nodes, and checks their leases periodically."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects, self._registry = objects, registry
        self._clock = objects.clock
        self._queue: WorkQueue[str] = WorkQueue(self._clock, self._sync)
        self._removed_nodes: WorkQueue[str] = WorkQueue(self._clock, self._remove_pods)
        self._orphans: WorkQueue[_Pod] = WorkQueue(self._clock, self._remove_pod)
        self._evictions: WorkQueue[_Pod] = WorkQueue(self._clock, self._evict)
        self._watched = False
        # By node: renewTime of its lease, and the monotonic time at which that was first seen. Only the latter is
        # compared, as upstream does, because clocks of nodes may differ from the server's.
        self._renewals: dict[str, tuple[str, float]] = {}
        self._zones = _Zones()
        objects.store.collection(NODES).listen(self._changed)

    def _changed(self, change: Change) -> None:
        name = change.key[1]
        for unready in self._zones.set_node(name, change.new.obj if change.new is not None else None):
            self._queue.add(unready)
        if change.new is None:
            self._renewals.pop(name, None)
            self._removed_nodes.add_later(ORPHAN_DELAY, name)
            return
        self._queue.add(name)
        if not self._watched:
            self._watched = True
            self._clock.call_later(MONITOR_PERIOD, self._check_leases)

    # -- taints --------------------------------------------------------------------------------------------------------

    def _sync(self, name: str) -> None:
        nodes = self._objects.store.collection(NODES)
        item = nodes.get(("", name))
        if item is None:
            return
        spec = item.obj.get("spec") or {}
        have: list[dict[str, Any]] = spec.get("taints") or []
        taints = self._taints(item.obj, have)
        if taints != have:
            changed = {**spec, "taints": taints}
            if not taints:
                del changed["taints"]
            body = {**item.obj, "metadata": dict(item.obj["metadata"]), "spec": changed}
            self._objects.store_change(NODES, item, body)
        if any(taint["effect"] == "NoExecute" for taint in taints):
            self._plan_evictions(name, taints)

    def _taints(self, node: Object, have: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [taint for taint in have if taint.get("key") not in _MANAGED_TAINTS]
        old = {(taint.get("key"), taint.get("effect")): taint for taint in have}
        ready = _ready(node)
        evicts = self._zones.evicts(node["metadata"]["name"])

        def add(key: str, effect: str) -> None:
            taint: dict[str, Any] = {"key": key, "effect": effect}
            if effect == "NoExecute":
                taint["timeAdded"] = self._clock.timestamp()
            kept.append(old.get((key, effect), taint))

        if (node.get("spec") or {}).get("unschedulable"):
            add(UNSCHEDULABLE_TAINT, "NoSchedule")
        for kind, taint_key in _PRESSURE.items():
            if _condition(node, kind) == "True":
                add(taint_key, "NoSchedule")
        if ready is None or ready == "False":
            add(NOT_READY, "NoSchedule")
            if ready == "False" and evicts:
                add(NOT_READY, "NoExecute")
        elif ready == "Unknown":
            add(UNREACHABLE, "NoSchedule")
            if evicts:
                add(UNREACHABLE, "NoExecute")
        return kept

    # -- leases --------------------------------------------------------------------------------------------------------

    def _check_leases(self) -> None:
        nodes = self._objects.store.collection(NODES)
        leases = self._objects.store.collection(LEASES)
        self._watched = len(nodes) > 0
        if self._watched:
            self._clock.call_later(MONITOR_PERIOD, self._check_leases)
        for item in list(nodes.each()):
            with self._clock.faults.guard("Nodes._check_lease", item.key):
                self._check_lease(item, leases.get((LEASE_NAMESPACE, item.key[1])))

    def _check_lease(self, item: Item, lease: Item | None) -> None:
        if lease is None and _ready(item.obj) is None:
            self._check_first_report(item)
        if lease is None or _ready(item.obj) == "Unknown":
            return  # never reported by an agent, or already unreachable
        now = self._clock.monotonic()
        spec = lease.obj.get("spec") or {}
        renewed = spec.get("renewTime") or ""
        holds = max(MONITOR_GRACE_PERIOD, float(spec.get("leaseDurationSeconds") or 0))
        seen, since = self._renewals.get(item.key[1], ("", now))
        if seen != renewed:
            since = now
        self._renewals[item.key[1]] = renewed, since
        if renewed and now - since > holds:
            self._unreachable(item)

    def _check_first_report(self, item: Item) -> None:
        """After a minute, a node without any report has the conditions of one that does not answer."""
        created = item.obj["metadata"]["creationTimestamp"]
        if self._clock.now() - seconds_of(created) < STARTUP_GRACE_PERIOD:
            return
        status, now = item.obj.get("status") or {}, self._clock.timestamp()
        known = {condition.get("type") for condition in status.get("conditions") or ()}
        missing = [
            {
                "type": kind,
                "status": "Unknown",
                "lastHeartbeatTime": created,
                "lastTransitionTime": now,
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            }
            for kind in _REPORTED_CONDITIONS
            if kind not in known
        ]
        conditions = [*(status.get("conditions") or ()), *missing]
        body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": {**status, "conditions": conditions}}
        self._objects.store_change(NODES, item, body, subresource="status")

    def _unreachable(self, item: Item) -> None:
        now = self._clock.timestamp()
        status = item.obj.get("status") or {}
        conditions = [
            {
                **condition,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": now,
            }
            for condition in status.get("conditions") or ()
        ]
        body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": {**status, "conditions": conditions}}
        self._objects.store_change(NODES, item, body, subresource="status")

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _pods_on(self, node: str) -> list[Item]:
        pods = self._objects.store.collection(PODS)
        return [pod for pod in pods.each() if pod.obj["spec"].get("nodeName") == node]

    def _remove_pods(self, node: str) -> None:
        """Delete the pods of a removed node at once, as no kubelet can confirm their termination."""
        if self._objects.store.collection(NODES).get(("", node)) is not None:
            return
        for pod in self._pods_on(node):
            self._orphans.add((*pod.key, pod.obj["metadata"]["uid"]))

    def _remove_pod(self, orphan: _Pod) -> None:
        pod = self._objects.store.collection(PODS).get(orphan[:2])
        if pod is not None and pod.obj["metadata"]["uid"] == orphan[2]:
            self._disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", 0)

    def _plan_evictions(self, node: str, taints: list[dict[str, Any]]) -> None:
        for pod in self._pods_on(node):
            with self._clock.faults.guard("Nodes._plan_evictions", pod.key):
                wait = _toleration_seconds(pod.obj, taints)
                if wait is not None and "deletionTimestamp" not in pod.obj["metadata"]:
                    self._evictions.add_later(wait, (*pod.key, pod.obj["metadata"]["uid"]))

    def _evict(self, eviction: _Pod) -> None:
        namespace, name, uid = eviction
        pod = self._objects.store.collection(PODS).get((namespace, name))
        if pod is None or pod.obj["metadata"]["uid"] != uid or "deletionTimestamp" in pod.obj["metadata"]:
            return
        node = self._objects.store.collection(NODES).get(("", pod.obj["spec"].get("nodeName", "")))
        taints = (node.obj.get("spec") or {}).get("taints") or [] if node is not None else []
        now = self._clock.now()
        for taint in taints:
            if taint["effect"] == "NoExecute":
                wait = _toleration_seconds(pod.obj, [taint])
                added = seconds_of(taint["timeAdded"]) if taint.get("timeAdded") else now
                if wait is not None and now >= int(added) + wait:
                    why = "Taint manager: deleting due to NoExecute taint"
                    self._disrupt(pod, "DeletionByTaintManager", why, None)
                    return

    def _disrupt(self, pod: Item, reason: str, message: str, grace: int | None) -> None:
        if "deletionTimestamp" not in pod.obj["metadata"]:
            body = disrupted(pod.obj, reason, message, self._clock.timestamp())
            pod = self._objects.store_change(PODS, pod, body, subresource="status")
        self._delete(pod, grace)

    def _delete(self, pod: Item, grace: int | None) -> None:
        resource = self._registry.storage(PODS)
        assert resource is not None
        try:
            self._objects.delete(resource, pod.key, DeleteOptions(grace=grace, uid=pod.obj["metadata"]["uid"]))
        except ApiStatusError:
            return  # removed meanwhile


class _Zones:
    """Which zones are disrupted, and thus whether nodes there get NoExecute taints.

    Follows `handleDisruption` and `ComputeZoneState` in `pkg/controller/nodelifecycle/node_lifecycle_controller.go`: if
    no node at all is ready, the fault is taken to be the control plane's and nothing is evicted; if most nodes of a
    small zone are not ready, nothing is evicted there. Upstream decides this every 5 s, here it is decided at once.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, bool]] = {}  # name → zone, whether Ready
        self._counts: dict[str, list[int]] = {}  # zone → nodes that are not ready, nodes that are
        self._ready = 0
        self._stopped: frozenset[str] | None = frozenset()  # zones without evictions; None: all

    def set_node(self, name: str, node: Object | None) -> list[str]:
        """Note a node or its removal. Returns nodes that are not ready and whose taints this may change."""
        old = self._nodes.pop(name, None)
        new = None
        if node is not None and (ready := _ready(node)) is not None:
            new = self._nodes[name] = _zone(node), ready == "True"
        if new == old:
            return []
        for entry, step in ((old, -1), (new, 1)):
            if entry is not None:
                zone, well = entry
                counts = self._counts.setdefault(zone, [0, 0])
                counts[well] += step
                if not any(counts):
                    del self._counts[zone]
                self._ready += step * well
        before, self._stopped = self._stopped, self._stopped_zones()
        if before == self._stopped:
            return []
        return [other for other, (_, well) in self._nodes.items() if not well]

    def evicts(self, name: str) -> bool:
        """Whether pods are evicted from the node when it is not ready."""
        return self._stopped is not None and self._nodes.get(name, ("", True))[0] not in self._stopped

    def _stopped_zones(self) -> frozenset[str] | None:
        if not self._ready and self._nodes:
            return None
        return frozenset(
            zone
            for zone, (unready, ready) in self._counts.items()
            if ready
            and unready > 2
            and unready / (unready + ready) >= UNHEALTHY_ZONE
            and unready + ready <= LARGE_CLUSTER
        )


def _zone(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    return f"{labels.get(REGION_LABEL, '')}/{labels.get(ZONE_LABEL, '')}"


def _ready(node: Object) -> str | None:
    """The status of the Ready condition; None if there is none."""
    return _condition(node, "Ready")


def _condition(node: Object, kind: str) -> str | None:
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return None


def _toleration_seconds(pod: Object, taints: list[dict[str, Any]]) -> float | None:
    """Seconds until NoExecute taints evict the pod; None if it tolerates them without limit."""
    shortest: float | None = None
    for taint in taints:
        if taint["effect"] != "NoExecute":
            continue
        matching = [toleration for toleration in pod["spec"].get("tolerations") or () if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        times = [
            toleration["tolerationSeconds"]
            for toleration in matching
            if toleration.get("tolerationSeconds") is not None
        ]
        if times:
            least = float(max(0, min(times)))
            shortest = least if shortest is None else min(shortest, least)
    return shortest


def tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    """Whether a toleration of a pod or of a claim matches the taint of a node or of a device."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
