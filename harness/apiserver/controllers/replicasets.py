"""The ReplicaSet and ReplicationController controllers: keep the requested number of pods.

Follows `pkg/controller/replicaset`. The controller reads the store itself, so upstream's expectations are not needed.
"""

from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.control import Control, with_condition, without_condition
from seatrial.harness.apiserver.controllers.owners import controller_of
from seatrial.harness.apiserver.controllers.pacing import Pacing
from seatrial.harness.apiserver.controllers.podstate import available_in, deletion_order, is_active
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import CollectionKey, Item, Key, Object

REPLICA_SETS: CollectionKey = ("apps", "replicasets")
REPLICATION_CONTROLLERS: CollectionKey = ("", "replicationcontrollers")
BURST = 500  # maximum pods created or deleted in one reconciliation; upstream's value
_RETRY_PERIOD = 0.02  # seconds until the result of a pending webhook call is checked
_COMPONENTS = {"ReplicaSet": "replicaset-controller", "ReplicationController": "replication-controller"}


class ReplicaSets:
    """Reconciles one kind: ReplicaSets, or ReplicationControllers, which differ only in their selector."""

    def __init__(self, control: Control, kind: CollectionKey = REPLICA_SETS) -> None:
        self._control = control
        self._resource: Resource = control.resource(kind)
        self._pacing = Pacing()
        self._component = _COMPONENTS[self._resource.kind]
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync, name=f"{self._resource.kind}s._sync")
        control.follow_workload(self._resource, self._queue)

    def _sync(self, key: Key) -> None:
        control = self._control
        item = control.get(self._resource, key)
        if item is None:
            self._queue.forget(key)
            return
        pods = [pod for pod in control.owned_pods.claim(self._resource, item) if is_active(pod.obj)]
        problem: ApiStatusError | None = None
        if "deletionTimestamp" not in item.obj["metadata"]:
            problem = self._scale(item, pods)
            pods = [pod for pod in control.owned_pods.of(item.obj["metadata"]["uid"]) if is_active(pod.obj)]
        waiting = isinstance(problem, Pending)
        self._write_status(item, pods, None if waiting else problem)
        if waiting:
            self._queue.add_after(_RETRY_PERIOD, key)  # a created pod is notified; a rejection is not
        elif problem is not None:
            self._queue.add_rate_limited(key)
        else:
            self._queue.forget(key)

    def _scale(self, item: Item, pods: list[Item]) -> ApiStatusError | None:
        spec = item.obj["spec"]
        short = spec.get("replicas", 1) - len(pods)
        if short > 0:
            pause = self._pacing.wait(item.key, self._control.clock.monotonic())
            if pause > 0:
                self._queue.add_after(pause, item.key)
                return None
            burst = self._pacing.burst(len(pods))
            for _ in range(min(short, burst)):
                pod = self._control.pod_from(self._resource, item, spec.get("template") or {})
                pod["metadata"]["generateName"] = f"{item.key[1]}-"
                try:
                    self._control.create_pod(self._component, self._resource, item, pod)
                except ApiStatusError as refused:
                    return None if refused.code == 404 else refused
            if short > burst:
                self._queue.end_iteration()
                now = self._control.clock.monotonic()
                self._queue.add_after(self._pacing.after_burst(item.key, now, len(pods)), item.key)
        elif short < 0:
            for pod_item in deletion_order(pods, self._related(item, pods))[: min(-short, BURST)]:
                self._control.delete_pod(self._component, self._resource, item, pod_item)
            if -short > BURST:
                self._queue.add(item.key)
        return None

    def _related(self, item: Item, pods: list[Item]) -> list[Item]:
        """The pods of all ReplicaSets with the same owner; pods on nodes with more of them are deleted first."""
        owner = controller_of(item.obj)
        if owner is None:
            return pods
        items = []
        for other in self._control.objects.collection(self._resource).each(item.key[0]):
            reference = controller_of(other.obj)
            if reference is not None and reference["uid"] == owner["uid"]:
                items.extend(self._control.owned_pods.of(other.obj["metadata"]["uid"]))
        return items

    def _write_status(self, item: Item, pods: list[Item], problem: ApiStatusError | None) -> None:
        spec, before = item.obj["spec"], item.obj.get("status") or {}
        entry = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        min_ready, now = int(spec.get("minReadySeconds") or 0), self._control.clock.now()
        labeled = ready = available = 0
        soonest: float | None = None
        for pod in pods:
            labels = pod.obj["metadata"].get("labels") or {}
            labeled += all(labels.get(name) == value for name, value in entry.items())
            wait = available_in(pod.obj, min_ready, now)
            if wait is None:
                continue
            ready += 1
            if wait <= 0:
                available += 1
            else:
                soonest = wait if soonest is None else min(soonest, wait)
        if soonest is not None:
            self._queue.add_later(soonest, item.key)
        status: Object = {"replicas": len(pods)}
        for name, count in (
            ("fullyLabeledReplicas", labeled),
            ("readyReplicas", ready),
            ("availableReplicas", available),
        ):
            if count:
                status[name] = count
        status["observedGeneration"] = item.obj["metadata"].get("generation", 0)
        conditions = self._conditions(before.get("conditions") or [], spec.get("replicas", 1) - len(pods), problem)
        if conditions:
            status["conditions"] = conditions
        self._control.put_status(self._resource, item, status)

    def _conditions(self, before: list[Object], short: int, problem: ApiStatusError | None) -> list[Object]:
        if problem is None:
            return without_condition(before, "ReplicaFailure")
        reason = "FailedCreate" if short > 0 else "FailedDelete"
        failure = self._control.condition("ReplicaFailure", "True", reason, problem.message)
        return with_condition(before, failure)
