"""The DaemonSet controller: one pod on every node that fits, and rolling updates.

Follows `pkg/controller/daemon`.
"""

from seatrial.harness.apiserver.controllers.control import BATCH_PERIOD, Control
from seatrial.harness.apiserver.controllers.counts import scaled
from seatrial.harness.apiserver.controllers.daemonplaces import Fit, node_of, pin, tolerations
from seatrial.harness.apiserver.controllers.event_recorder import WARNING
from seatrial.harness.apiserver.controllers.podstate import available_in, is_finished, is_ready, is_terminating, phase
from seatrial.harness.apiserver.controllers.revisions import HASH_LABEL, Revisions, hash_of
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object

DAEMON_SETS: CollectionKey = ("apps", "daemonsets")
NODES: CollectionKey = ("", "nodes")
COMPONENT = "daemonset-controller"
GENERATION_LABEL = "pod-template-generation"
BURST = 250  # maximum pods created in one reconciliation; upstream's value
INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 900.0  # seconds before a failed daemon pod is replaced; upstream's values

Fits = dict[str, tuple[bool, bool]]  # node → (create a pod there, an existing pod may stay)


class DaemonSets:
    """Reconciles DaemonSets when they, their pods, or labels or taints of nodes change."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(DAEMON_SETS)
        self._revisions = Revisions(control, self._resource)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        # (DaemonSet UID, node) → (failures, monotonic time of the next try)
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        self._sets = control.objects.collection(self._resource)
        self._nodes = control.objects.store.collection(NODES)
        self._nodes.listen(self._node_changed)
        self._sets.listen(self._set_changed)
        control.follow_workload(self._resource, self._queue)

    def _node_changed(self, change: Change) -> None:
        if change.new is None and self._failures:
            self._forget(1, change.key[1])
        if not len(self._sets) or not _affects_placement(change):
            return
        for item in self._sets.each():
            self._queue.add_after(BATCH_PERIOD, item.key)  # batched: thousands of nodes may be added at once

    def _set_changed(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._forget(0, change.old.obj["metadata"]["uid"])

    def _forget(self, place: int, gone: str) -> None:
        """Forget the failures of a DaemonSet (place 0 of the key), or on a node (1)."""
        self._failures = {entry: failure for entry, failure in self._failures.items() if entry[place] != gone}

    # -- reconciliation ------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            self._queue.forget(key)
            return
        if "deletionTimestamp" in item.obj["metadata"]:
            return
        fit = Fit(item.obj["spec"]["template"])
        fits = {node.key[1]: fit.judge(node) for node in self._nodes.items()}
        try:
            known = self._revisions.claim(item)
            update = self._revisions.current(item, known)
            pods = self._control.owned_pods.claim(self._resource, item)
            self._place(item, update, pods, fits)
            if item.obj["spec"]["updateStrategy"]["type"] == "RollingUpdate":
                self._roll(item, update, fits)
            self._queue.forget(key)
        except ApiStatusError as refused:
            if refused.code != 404:
                self._queue.add_rate_limited(key)
            known = self._revisions.claim(item)
            if not known:
                return
            update = known[-1]
        self._write_status(item, update, fits)
        self._delete_old_revisions(item, update)

    def _by_node(self, item: Item) -> dict[str, list[Item]]:
        pods: dict[str, list[Item]] = {}
        for pod in self._control.owned_pods.of(item.obj["metadata"]["uid"]):
            pods.setdefault(node_of(pod.obj), []).append(pod)
        return pods

    def _place(self, item: Item, update: Item, pods: list[Item], fits: Fits) -> None:
        """Create missing pods and delete pods from nodes that no longer fit.

        Raises:
            ApiStatusError: a pod could not be created.
        """
        here: dict[str, list[Item]] = {}
        for pod in pods:
            here.setdefault(node_of(pod.obj), []).append(pod)
        missing: list[str] = []
        for name, (should_run, may_stay) in fits.items():
            own = here.pop(name, [])
            if not may_stay:
                for pod in own:
                    self._delete(item, pod)
            elif own:
                self._keep_one(item, update, name, own)
            elif should_run and self._may_try(item, name):
                missing.append(name)
        for stray in (pod for rest in here.values() for pod in rest):
            if not stray.obj["spec"].get("nodeName"):
                self._delete(item, stray)  # its node was removed before the pod was bound
        for name in missing[:BURST]:
            self._create(item, update, name)
        if len(missing) > BURST:
            self._queue.add(item.key)

    def _keep_one(self, item: Item, update: Item, node: str, own: list[Item]) -> None:
        alive = []
        for pod in own:
            if phase(pod.obj) == "Failed" and not is_terminating(pod.obj):
                self._note_failure(item, node, pod)
                self._delete(item, pod)
            elif not is_terminating(pod.obj):
                alive.append(pod)
        if _surge(item, len(self._nodes)):
            alive = [pod for pod in alive if hash_of(update) == _hash_of_pod(pod)] or alive[:1]
        for pod in sorted(alive, key=lambda pod: (pod.obj["metadata"]["creationTimestamp"], pod.key[1]))[1:]:
            self._delete(item, pod)  # of duplicates the oldest is kept

    def _note_failure(self, item: Item, node: str, pod: Item) -> None:
        entry = (item.obj["metadata"]["uid"], node)
        count, _ = self._failures.get(entry, (0, 0.0))
        backoff = min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(count, 20))
        self._failures[entry] = (count + 1, self._control.clock.monotonic() + backoff)
        self._queue.add_later(backoff, item.key)
        message = f"Found failed daemon pod {pod.key[0]}/{pod.key[1]} on node {node}, will try to kill it"
        self._control.recorder.record(COMPONENT, self._resource, item, WARNING, "FailedDaemonPod", message)

    def _may_try(self, item: Item, node: str) -> bool:
        _, not_before = self._failures.get((item.obj["metadata"]["uid"], node), (0, 0.0))
        return self._control.clock.monotonic() >= not_before

    def _delete(self, item: Item, pod: Item) -> None:
        self._control.delete_pod(COMPONENT, self._resource, item, pod)

    def _create(self, item: Item, update: Item, node: str) -> None:
        template = item.obj["spec"]["template"]
        pod = self._control.pod_from(self._resource, item, template)
        metadata, spec = pod["metadata"], pod["spec"]
        metadata["generateName"] = f"{item.key[1]}-"
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            HASH_LABEL: hash_of(update),
            GENERATION_LABEL: str(item.obj["metadata"].get("generation", 1)),
        }
        spec["tolerations"] = tolerations(spec)
        pin(spec, node)
        self._control.create_pod(COMPONENT, self._resource, item, pod)

    # -- updates -------------------------------------------------------------------------------------------------------

    def _roll(self, item: Item, update: Item, fits: Fits) -> None:
        """Replace pods of older templates within the limits of the update strategy.

        Raises:
            ApiStatusError: a pod could not be created.
        """
        rolling = item.obj["spec"]["updateStrategy"].get("rollingUpdate") or {}
        nodes = [name for name, (should_run, _) in fits.items() if should_run]
        surge = _surge(item, len(nodes))
        max_unavailable = 0 if surge else max(1, scaled(rolling.get("maxUnavailable", 1), len(nodes), up=True))
        pods = self._by_node(item)
        down, idle, serving, surging = 0, [], [], 0
        for name in nodes:
            alive = [pod for pod in pods.get(name, ()) if not is_terminating(pod.obj) and not is_finished(pod.obj)]
            new = next((pod for pod in alive if _hash_of_pod(pod) == hash_of(update)), None)
            old = next((pod for pod in alive if _hash_of_pod(pod) != hash_of(update)), None)
            if not any(self._available(item, pod) for pod in alive):
                down += 1
            if old is None:
                continue
            if new is not None:
                surging += 1
                if self._available(item, new):
                    self._delete(item, old)
            elif not self._available(item, old):
                idle.append(old)
            else:
                serving.append(old)
        if surge:
            for old in (*idle, *serving)[: max(0, surge - surging)]:
                self._create(item, update, node_of(old.obj))
            return
        for old in idle:
            self._delete(item, old)  # unavailable old pods do not count against maxUnavailable
        for old in serving[: max(0, max_unavailable - down)]:
            self._delete(item, old)

    def _available(self, item: Item, pod: Item) -> bool:
        wait = available_in(pod.obj, int(item.obj["spec"].get("minReadySeconds") or 0), self._control.clock.now())
        if wait:
            self._queue.add_later(wait, item.key)
        return wait == 0

    # -- status --------------------------------------------------------------------------------------------------------

    def _write_status(self, item: Item, update: Item, fits: Fits) -> None:
        pods = self._by_node(item)
        counts = dict.fromkeys(
            ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
        )
        updated = available = 0
        for name, (should_run, _) in fits.items():
            own = pods.get(name, ())
            counts["desiredNumberScheduled"] += should_run
            counts["numberMisscheduled"] += bool(own) and not should_run
            if not should_run or not own:
                continue
            counts["currentNumberScheduled"] += 1
            alive = [pod for pod in own if not is_terminating(pod.obj)]
            counts["numberReady"] += any(is_ready(pod.obj) for pod in alive)
            available += any(self._available(item, pod) for pod in alive)
            updated += any(_hash_of_pod(pod) == hash_of(update) for pod in alive)
        status: Object = {**counts, "observedGeneration": item.obj["metadata"].get("generation", 0)}
        unavailable = counts["desiredNumberScheduled"] - available
        for name, count in (
            ("updatedNumberScheduled", updated),
            ("numberAvailable", available),
            ("numberUnavailable", unavailable),
        ):
            if count:
                status[name] = count
        fresh = self._control.get(self._resource, item.key)
        if fresh is not None:
            self._control.put_status(self._resource, fresh, status)

    def _delete_old_revisions(self, item: Item, update: Item) -> None:
        known = self._revisions.claim(item)
        hashes = {_hash_of_pod(pod) for pod in self._control.owned_pods.of(item.obj["metadata"]["uid"])}
        used = {revision.key[1] for revision in known if hash_of(revision) in hashes} | {update.key[1]}
        self._revisions.prune(known, used, limit=item.obj["spec"].get("revisionHistoryLimit", 10))


def _surge(item: Item, nodes: int) -> int:
    strategy = item.obj["spec"]["updateStrategy"]
    return scaled((strategy.get("rollingUpdate") or {}).get("maxSurge"), nodes, up=True)


def _hash_of_pod(pod: Item) -> str:
    return str((pod.obj["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def _affects_placement(change: Change) -> bool:
    """Whether a node was added or removed, or its labels or taints changed."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    if old.obj["metadata"].get("labels") != new.obj["metadata"].get("labels"):
        return True
    return (old.obj.get("spec") or {}).get("taints") != (new.obj.get("spec") or {}).get("taints")
