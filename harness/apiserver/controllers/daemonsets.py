"""DaemonSets: one pod on every node that fits, and a rolling update that goes through the nodes.

Follows `pkg/controller/daemon`.
"""

from harness.apiserver.controllers.control import GATHER, Control
from harness.apiserver.controllers.counts import scaled
from harness.apiserver.controllers.daemonplaces import Fit, home_of, pin, tolerations
from harness.apiserver.controllers.podstate import available_in, is_finished, is_going, is_ready, phase
from harness.apiserver.controllers.recording import WARNING
from harness.apiserver.controllers.revisions import HASH_LABEL, Revisions, mark_of
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object

DAEMON_SETS: CollectionKey = ("apps", "daemonsets")
NODES: CollectionKey = ("", "nodes")
COMPONENT = "daemonset-controller"
GENERATION_LABEL = "pod-template-generation"
BURST = 250  # pods made before anybody else gets a turn, upstream's value
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 900.0  # seconds before a failed daemon is made again on its node, upstream's values

Fits = dict[str, tuple[bool, bool]]  # node → whether a pod should be made there, whether one may stay


class DaemonSets:
    """Follows DaemonSets, their pods, and the labels and taints of nodes."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(DAEMON_SETS)
        self._revisions = Revisions(control, self._resource)
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}  # owner's uid, node → how often, not before
        self._sets = control.objects.collection(self._resource)
        self._nodes = control.objects.store.collection(NODES)
        self._nodes.listen(self._node_changed)
        control.follow_workload(self._resource, self._turns)

    def _node_changed(self, change: Change) -> None:
        if not len(self._sets) or not _other_place(change):
            return
        for item in self._sets.each():
            self._turns.gather(GATHER, item.key)  # nodes come by the thousand

    # -- one turn -----------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            self._turns.succeeded(key)
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
            self._turns.succeeded(key)
        except ApiStatusError as refused:
            if refused.code != 404:
                self._turns.failed(key)
            known = self._revisions.claim(item)
            if not known:
                return
            update = known[-1]
        self._tell(item, update, fits)
        self._forget(item, update)

    def _by_node(self, item: Item) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for pod in self._control.owned_pods.of(item.obj["metadata"]["uid"]):
            found.setdefault(home_of(pod.obj), []).append(pod)
        return found

    def _place(self, item: Item, update: Item, pods: list[Item], fits: Fits) -> None:
        """A pod where one should be, none where none may be.

        Raises:
            ApiStatusError: a pod could not be made.
        """
        here: dict[str, list[Item]] = {}
        for pod in pods:
            here.setdefault(home_of(pod.obj), []).append(pod)
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
                self._delete(item, stray)  # its node went before it got there
        for name in missing[:BURST]:
            self._create(item, update, name)
        if len(missing) > BURST:
            self._turns.add(item.key)

    def _keep_one(self, item: Item, update: Item, node: str, own: list[Item]) -> None:
        alive = []
        for pod in own:
            if phase(pod.obj) == "Failed" and not is_going(pod.obj):
                self._note_failure(item, node, pod)
                self._delete(item, pod)
            elif not is_going(pod.obj):
                alive.append(pod)
        if _surge(item, len(self._nodes)):
            alive = [pod for pod in alive if mark_of(update) == _mark(pod)] or alive[:1]
        for pod in sorted(alive, key=lambda one: (one.obj["metadata"]["creationTimestamp"], one.key[1]))[1:]:
            self._delete(item, pod)  # two is one too many: the older one stays

    def _note_failure(self, item: Item, node: str, pod: Item) -> None:
        place = (item.obj["metadata"]["uid"], node)
        count, _ = self._failures.get(place, (0, 0.0))
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(count, 20))
        self._failures[place] = (count + 1, self._control.clock.monotonic() + pause)
        self._turns.later(pause, item.key)
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
            HASH_LABEL: mark_of(update),
            GENERATION_LABEL: str(item.obj["metadata"].get("generation", 1)),
        }
        spec["tolerations"] = tolerations(spec)
        pin(spec, node)
        self._control.create_pod(COMPONENT, self._resource, item, pod)

    # -- updates ------------------------------------------------------------------------------------------------------

    def _roll(self, item: Item, update: Item, fits: Fits) -> None:
        """Replace pods of older templates, as many at a time as the strategy allows.

        Raises:
            ApiStatusError: a pod could not be made.
        """
        rolling = item.obj["spec"]["updateStrategy"].get("rollingUpdate") or {}
        nodes = [name for name, (should_run, _) in fits.items() if should_run]
        surge = _surge(item, len(nodes))
        most_down = 0 if surge else max(1, scaled(rolling.get("maxUnavailable", 1), len(nodes), up=True))
        pods = self._by_node(item)
        down, idle, serving, surging = 0, [], [], 0
        for name in nodes:
            alive = [pod for pod in pods.get(name, ()) if not is_going(pod.obj) and not is_finished(pod.obj)]
            new = next((pod for pod in alive if _mark(pod) == mark_of(update)), None)
            old = next((pod for pod in alive if _mark(pod) != mark_of(update)), None)
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
                self._create(item, update, home_of(old.obj))
            return
        for old in idle:
            self._delete(item, old)  # nobody is served by it: it costs nothing
        for old in serving[: max(0, most_down - down)]:
            self._delete(item, old)

    def _available(self, item: Item, pod: Item) -> bool:
        wait = available_in(pod.obj, int(item.obj["spec"].get("minReadySeconds") or 0), self._control.clock.now())
        if wait:
            self._turns.later(wait, item.key)
        return wait == 0

    # -- status -------------------------------------------------------------------------------------------------------

    def _tell(self, item: Item, update: Item, fits: Fits) -> None:
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
            alive = [pod for pod in own if not is_going(pod.obj)]
            counts["numberReady"] += any(is_ready(pod.obj) for pod in alive)
            available += any(self._available(item, pod) for pod in alive)
            updated += any(_mark(pod) == mark_of(update) for pod in alive)
        status: Object = {**counts, "observedGeneration": item.obj["metadata"].get("generation", 0)}
        unavailable = counts["desiredNumberScheduled"] - available
        for name, count in (
            ("updatedNumberScheduled", updated), ("numberAvailable", available), ("numberUnavailable", unavailable),
        ):  # fmt: skip
            if count:
                status[name] = count
        fresh = self._control.get(self._resource, item.key)
        if fresh is not None:
            self._control.put_status(self._resource, fresh, status)

    def _forget(self, item: Item, update: Item) -> None:
        known = self._revisions.claim(item)
        marks = {_mark(pod) for pod in self._control.owned_pods.of(item.obj["metadata"]["uid"])}
        used = {one.key[1] for one in known if mark_of(one) in marks} | {update.key[1]}
        self._revisions.forget(known, used, limit=item.obj["spec"].get("revisionHistoryLimit", 10))


def _surge(item: Item, nodes: int) -> int:
    strategy = item.obj["spec"]["updateStrategy"]
    return scaled((strategy.get("rollingUpdate") or {}).get("maxSurge"), nodes, up=True)


def _mark(pod: Item) -> str:
    return str((pod.obj["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def _other_place(change: Change) -> bool:
    """Whether a node came, went, or is another one for whoever chooses by labels and taints."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    if old.obj["metadata"].get("labels") != new.obj["metadata"].get("labels"):
        return True
    return (old.obj.get("spec") or {}).get("taints") != (new.obj.get("spec") or {}).get("taints")
