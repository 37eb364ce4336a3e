"""The StatefulSet controller: numbered pods, created in order, deleted and updated from the highest ordinal down.

Follows `pkg/controller/statefulset`. The hash label of a pod is the full name of its revision, as upstream's is.
"""

from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.counts import scaled
from seatrial.harness.apiserver.controllers.pacing import Pacing
from seatrial.harness.apiserver.controllers.podstate import (
    available_in,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
)
from seatrial.harness.apiserver.controllers.revisions import HASH_LABEL, Revisions, number_of, template_of
from seatrial.harness.apiserver.controllers.volumeclaims import Claims
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import CollectionKey, Item, Key, Object
from seatrial.scheduler.api.integers import integer

STATEFUL_SETS: CollectionKey = ("apps", "statefulsets")
COMPONENT = "statefulset-controller"
NAME_LABEL, INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets:
    """Reconciles StatefulSets and their pods."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(STATEFUL_SETS)
        self._revisions = Revisions(control, self._resource)
        self._pacing = Pacing()
        self._claims = Claims(control, self._resource)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.follow_workload(self._resource, self._queue)

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            self._queue.forget(key)
            return
        if "deletionTimestamp" in item.obj["metadata"]:
            return
        known = self._revisions.claim(item)
        pods = {
            ordinal: pod
            for pod in self._control.owned_pods.claim(self._resource, item)
            if (ordinal := _ordinal(item, pod)) is not None
        }
        try:
            update = self._revisions.current(item, known)
        except ApiStatusError as refused:
            if refused.code != 404:
                self._queue.add_rate_limited(key)
            return
        known = self._revisions.claim(item)
        sync = _Sync(self._control, self._claims, self._pacing, item, pods, _revision(item, known, update), update)
        try:
            sync.run()
            self._queue.forget(key)
        except ApiStatusError as refused:
            if refused.code != 404:
                self._queue.add_rate_limited(key)
        if sync.burst_ended:
            self._queue.end_iteration()
        if sync.requeue_after is not None:
            self._queue.add_later(sync.requeue_after, key)
        self._write_status(item, sync, known)

    def _write_status(self, item: Item, sync: "_Sync", known: list[Item]) -> None:
        fresh = self._control.get(self._resource, item.key)
        if fresh is None:
            return
        spec, current, update = fresh.obj["spec"], sync.current, sync.update
        min_ready, now = int(spec.get("minReadySeconds") or 0), self._control.clock.now()
        pods = [pod.obj for pod in self._control.owned_pods.of(fresh.obj["metadata"]["uid"])]
        there = [pod for pod in pods if not is_finished(pod)]
        counts = {
            "replicas": len(there),
            "readyReplicas": sum(is_ready(pod) for pod in there),
            "currentReplicas": sum(_has(pod, current) and not is_terminating(pod) for pod in there),
            "updatedReplicas": sum(_has(pod, update) and not is_terminating(pod) for pod in there),
        }
        available = sum(available_in(pod, min_ready, now) == 0 for pod in there)
        replicas = spec.get("replicas", 1)
        if counts["updatedReplicas"] == replicas == counts["readyReplicas"] == counts["replicas"]:
            current = update  # the update is complete
            counts["currentReplicas"] = counts["updatedReplicas"]
        status: Object = {
            "observedGeneration": fresh.obj["metadata"].get("generation", 0),
            "replicas": counts["replicas"],
        }
        status.update({name: count for name, count in counts.items() if count})
        status |= {
            "availableReplicas": available,
            "currentRevision": current.key[1],
            "updateRevision": update.key[1],
            "collisionCount": 0,
        }
        self._control.put_status(self._resource, fresh, status)
        used = {
            current.key[1],
            update.key[1],
            *((pod["metadata"].get("labels") or {}).get(HASH_LABEL, "") for pod in pods),
        }
        self._revisions.prune(known, used, limit=spec.get("revisionHistoryLimit", 10))


class _Sync:
    """One reconciliation of a StatefulSet: does the next steps that the pod management policy allows."""

    def __init__(  # noqa: PLR0917
        self,
        control: Control,
        claims: Claims,
        pacing: Pacing,
        item: Item,
        pods: dict[int, Item],
        current: Item,
        update: Item,
    ) -> None:
        self._control, self._claims, self._pacing, self._item = control, claims, pacing, item
        self._resource = control.resource(STATEFUL_SETS)
        self._pods = pods
        self.current, self.update = current, update
        self.burst_ended = False  # more pods are to be created
        self.requeue_after: float | None = None  # seconds until a pod has been ready for minReadySeconds
        spec = item.obj["spec"]
        self._start = int((spec.get("ordinals") or {}).get("start", 0))
        self._replicas = int(spec.get("replicas", 1))
        self._ordinals = range(self._start, self._start + self._replicas)
        self._in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        self._strategy: Object = spec.get("updateStrategy") or {}

    def run(self) -> None:
        """Create, delete or update pods.

        Raises:
            ApiStatusError: a pod could not be created.
        """
        self._claims.apply_retention_policy(self._item, self._pods, self._ordinals)
        if self._fill():
            return
        if self._shrink():
            return
        if self._strategy.get("type") == "RollingUpdate":
            self._roll()

    def _fill(self) -> bool:
        """Create missing pods in order; return whether the controller must wait for one of them."""
        created, now = 0, self._control.clock.monotonic()
        burst = self._pacing.burst(len(self._pods))
        pause = self._pacing.wait(self._item.key, now)
        if pause > 0:
            self.requeue_after = pause
            return True
        for ordinal in self._ordinals:
            if created == burst:
                self.burst_ended = True
                self.requeue_after = self._pacing.after_burst(self._item.key, now, len(self._pods))
                return True
            pod = self._pods.get(ordinal)
            if pod is not None and is_finished(pod.obj):
                self._control.delete_pod(COMPONENT, self._resource, self._item, pod)  # a failed pod is replaced
                pod = self._control.get(self._control.pods, pod.key)
                if self._in_order or pod is not None:
                    if self._in_order:
                        return True
                    continue
            if pod is None:
                self._pods[ordinal] = self._create(ordinal)
                created += 1
                if self._in_order:
                    return True
            elif self._in_order and (is_terminating(pod.obj) or not self._available(pod)):
                return True
        return False

    def _shrink(self) -> bool:
        """Delete surplus pods from the highest ordinal down; return whether any is left."""
        extra = sorted((number for number in self._pods if number not in self._ordinals), reverse=True)
        for number in extra:
            pod = self._pods[number]
            if not is_terminating(pod.obj):
                self._control.delete_pod(COMPONENT, self._resource, self._item, pod)
            if self._in_order:
                return True
        return bool(extra) and self._in_order

    def _roll(self) -> None:
        rolling = self._strategy.get("rollingUpdate") or {}
        first = self._start + int(rolling.get("partition") or 0)
        max_unavailable = max(1, scaled(rolling.get("maxUnavailable", 1), self._replicas, up=True))
        down = sum(1 for number in self._ordinals if (pod := self._pods.get(number)) is None or not self._is_up(pod))
        for number in reversed(self._ordinals):
            if number < first:
                return
            pod = self._pods.get(number)
            if pod is None or is_terminating(pod.obj):
                if max_unavailable == 1:
                    return
                continue
            if not _has(pod.obj, self.update):
                if down < max_unavailable or not self._is_up(pod):
                    self._control.delete_pod(COMPONENT, self._resource, self._item, pod)
                    down += 1
                if max_unavailable == 1:
                    return
            elif not self._is_up(pod) and max_unavailable == 1:
                return  # wait until the updated pod is available

    def _is_up(self, pod: Item) -> bool:
        return is_active(pod.obj) and self._available(pod)

    def _available(self, pod: Item) -> bool:
        wait = available_in(pod.obj, int(self._item.obj["spec"].get("minReadySeconds") or 0), self._control.clock.now())
        if wait:
            self.requeue_after = wait if self.requeue_after is None else min(wait, self.requeue_after)
        return wait == 0

    def _create(self, ordinal: int) -> Item:
        item = self._item
        revision = self._revision_for(ordinal)
        pod = self._control.pod_from(self._resource, item, template_of(revision))
        name = f"{item.key[1]}-{ordinal}"
        metadata, spec = pod["metadata"], pod["spec"]
        metadata["name"] = name
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            NAME_LABEL: name,
            INDEX_LABEL: str(ordinal),
            HASH_LABEL: revision.key[1],
        }
        spec["hostname"] = name
        if item.obj["spec"].get("serviceName"):
            spec["subdomain"] = item.obj["spec"]["serviceName"]
        self._claims.create_missing(item, ordinal, spec)
        return self._control.create_pod(COMPONENT, self._resource, item, pod)

    def _revision_for(self, ordinal: int) -> Item:
        """The revision for pod `ordinal`: the current one below the partition, else the update revision."""
        if self._strategy.get("type") != "RollingUpdate":
            return self.update
        partition = int((self._strategy.get("rollingUpdate") or {}).get("partition") or 0)
        return self.current if ordinal - self._start < partition else self.update


def _revision(item: Item, known: list[Item], update: Item) -> Item:
    """The revision named in status.currentRevision; the update revision if there is none."""
    name = (item.obj.get("status") or {}).get("currentRevision")
    return next((revision for revision in sorted(known, key=number_of) if revision.key[1] == name), update)


def _has(pod: Object, revision: Item) -> bool:
    return (pod["metadata"].get("labels") or {}).get(HASH_LABEL) == revision.key[1]


def _ordinal(item: Item, pod: Item) -> int | None:
    """The ordinal in the pod's name; None if the name does not match the set."""
    stem, _, tail = pod.key[1].rpartition("-")
    return integer(tail) if stem == item.key[1] else None
