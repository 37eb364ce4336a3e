"""The Deployment controller: one ReplicaSet per template, and rollouts from old ReplicaSets to the new one.

Follows `pkg/controller/deployment`. A rollback needs no code here: the client restores an old template. Pausing is
`spec.paused`.
"""

from seatrial.harness.apiserver.controllers.control import Control, is_new_spec
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING
from seatrial.harness.apiserver.controllers.owners import Dependents, reference_to
from seatrial.harness.apiserver.controllers.podstate import is_finished
from seatrial.harness.apiserver.controllers.replicasets import REPLICA_SETS
from seatrial.harness.apiserver.controllers.rolling import (
    Bounds,
    SetSize,
    bounds_of,
    next_for_new,
    next_for_old,
    proportional,
)
from seatrial.harness.apiserver.controllers.rollouts import (
    DESIRED,
    MAX_REPLICAS,
    REVISION,
    annotated,
    conditions_of,
    inherited,
    is_complete,
    progress_left,
    revision,
    totals,
)
from seatrial.harness.apiserver.controllers.templates import HASH_LABEL, same_template, template_hash
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.scheduler.api.integers import integer

DEPLOYMENTS: CollectionKey = ("apps", "deployments")
COMPONENT = "deployment-controller"


class Deployments:
    """Reconciles Deployments and their ReplicaSets."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(DEPLOYMENTS)
        self._sets = control.resource(REPLICA_SETS)
        self._owned = Dependents(control.objects, REPLICA_SETS)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)
        self._owned.follow(self._resource, self._set_changed)
        control.owned_pods.follow(self._sets, self._pod_changed)

    def _changed(self, change: Change) -> None:
        if change.new is not None and is_new_spec(change):
            self._queue.add(change.key)

    def _set_changed(self, key: Key, _change: Change) -> None:
        self._queue.add(key)

    def _pod_changed(self, set_key: Key, change: Change) -> None:
        """Queue the Deployment when a pod is removed: Recreate waits for old pods that ReplicaSets no longer count."""
        if change.new is not None:
            return
        owner = self._control.get(self._sets, set_key)
        for reference in (owner.obj["metadata"].get("ownerReferences") or ()) if owner is not None else ():
            if reference.get("kind") == self._resource.kind:
                self._queue.add((set_key[0], reference["name"]))

    # -- reconciliation ------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            self._queue.forget(key)
            return
        sets = self._owned.claim(self._resource, item)
        if "deletionTimestamp" in item.obj["metadata"]:
            self._write_status(item, sets, self._newest(item, sets))
            return
        try:
            self._reconcile(item, sets)
        except ApiStatusError as refused:
            if refused.code != 404:  # 404: the namespace was removed
                self._failed(key, refused)
            return
        self._queue.forget(key)

    def _failed(self, key: Key, refused: ApiStatusError) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            return
        message = f"Failed to create new replica set: {refused.message}"
        self._control.recorder.record(COMPONENT, self._resource, item, WARNING, "ReplicaSetCreateError", message)
        self._queue.add_rate_limited(key)

    def _reconcile(self, item: Item, sets: list[Item]) -> None:
        spec = item.obj["spec"]
        if spec.get("paused"):
            new = self._newest(item, sets)
            self._scale_all(item, sets, new)
        elif self._was_scaled(item, sets):
            new = self._newest(item, sets)
            self._scale_all(item, sets, new)
            self._queue.add(item.key)  # the rollout continues in the next reconciliation
        elif spec["strategy"]["type"] == "Recreate":
            new = self._recreate(item, sets)
        else:
            new = self._roll(item, sets)
        item, sets = self._fresh(item), self._refreshed(sets, new)
        self._write_status(item, sets, self._newest(item, sets))
        item = self._fresh(item)
        if is_complete(item.obj) or spec.get("paused"):
            self._delete_old_sets(item, sets, self._newest(item, sets))

    def _fresh(self, item: Item) -> Item:
        return self._control.get(self._resource, item.key) or item

    def _refreshed(self, sets: list[Item], new: Item | None) -> list[Item]:
        keys = [replica_set.key for replica_set in sets]
        if new is not None and new.key not in keys:
            keys.append(new.key)
        controls = (self._control.get(self._sets, key) for key in keys)
        return [replica_set for replica_set in controls if replica_set is not None]

    def _newest(self, item: Item, sets: list[Item]) -> Item | None:
        """The ReplicaSet of the current template; the oldest if there are several, as upstream chooses."""
        template = item.obj["spec"]["template"]
        same = [replica_set for replica_set in sets if same_template(replica_set.obj["spec"]["template"], template)]
        return min(same, key=_age, default=None)

    def _was_scaled(self, item: Item, sets: list[Item]) -> bool:
        text = str(item.obj["spec"].get("replicas", 1))
        return any(
            replica_set.obj["spec"].get("replicas", 1)
            and (replica_set.obj["metadata"].get("annotations") or {}).get(DESIRED, text) != text
            for replica_set in sets
        )

    # -- strategies ----------------------------------------------------------------------------------------------------

    def _recreate(self, item: Item, sets: list[Item]) -> Item | None:
        new = self._newest(item, sets)
        old = [replica_set for replica_set in sets if new is None or replica_set.key != new.key]
        shrunk = [
            self._scale(item, replica_set, 0) for replica_set in old if replica_set.obj["spec"].get("replicas", 1)
        ]
        if shrunk or self._old_pods_run(old):
            return new
        new = self._ensure_new(item, sets, replicas=0)
        return self._scale(item, new, item.obj["spec"].get("replicas", 1))

    def _old_pods_run(self, old: list[Item]) -> bool:
        owned = self._control.owned_pods
        return any(
            not is_finished(pod.obj) for replica_set in old for pod in owned.of(replica_set.obj["metadata"]["uid"])
        )

    def _roll(self, item: Item, sets: list[Item]) -> Item:
        bounds = bounds_for(item.obj)
        new = self._newest(item, sets)
        if new is None:
            room = min(
                bounds.replicas,
                max(0, bounds.max_total - sum(replica_set.obj["spec"].get("replicas", 1) for replica_set in sets)),
            )
            new = self._ensure_new(item, sets, replicas=room)
        else:
            new = self._ensure_new(item, sets, replicas=0)
            amount = next_for_new(
                _set_size(new), [_set_size(replica_set) for replica_set in self._refreshed(sets, new)], bounds
            )
            if amount != new.obj["spec"].get("replicas", 1):
                return self._scale(item, new, amount)  # old sets are scaled down once the new pods are counted
        old = {replica_set.key[1]: replica_set for replica_set in sets if replica_set.key != new.key}
        for name, amount in next_for_old(
            _set_size(new), [_set_size(replica_set) for replica_set in old.values()], bounds
        ).items():
            self._scale(item, old[name], amount)
        return new

    def _scale_all(self, item: Item, sets: list[Item], new: Item | None) -> None:
        """Apply a changed replica count: to the single active set, or in proportion to several."""
        bounds = bounds_for(item.obj)
        active = [replica_set for replica_set in sets if replica_set.obj["spec"].get("replicas", 1)]
        single = (
            active[0]
            if len(active) == 1
            else max([*([new] if new else []), *sets], key=_age, default=None)
            if not active
            else None
        )
        if single is not None:
            self._scale(item, single, bounds.replicas)
        elif new is not None and new.obj["spec"].get("replicas", 1) == bounds.replicas == (
            new.obj.get("status") or {}
        ).get("availableReplicas", 0):
            for replica_set in active:  # the rollout is complete: scale the old sets to 0
                self._scale(item, replica_set, bounds.replicas if replica_set.key == new.key else 0)
        elif item.obj["spec"]["strategy"]["type"] == "RollingUpdate":
            by_name = {replica_set.key[1]: replica_set for replica_set in active}
            for name, size in proportional([_set_size(replica_set) for replica_set in active], bounds).items():
                self._scale(item, by_name[name], size)

    # -- ReplicaSets ---------------------------------------------------------------------------------------------------

    def _ensure_new(self, item: Item, sets: list[Item], *, replicas: int) -> Item:
        """The ReplicaSet of the current template, with the highest revision; created with `replicas` if there is none.

        Raises:
            ApiStatusError: it cannot be created.
        """
        new = self._newest(item, sets)
        newest = (
            max(
                (revision(replica_set.obj) for replica_set in sets if new is None or replica_set.key != new.key),
                default=0,
            )
            + 1
        )
        if new is None:
            new = self._create(item, newest, replicas)
        else:
            new = self._control.change(self._sets, new, annotations=annotated(item.obj, new.obj, newest))
        current = self._fresh(item)
        shown = (new.obj["metadata"].get("annotations") or {}).get(REVISION)
        self._control.change(self._resource, current, annotations={REVISION: shown})
        return new

    def _create(self, item: Item, number: int, replicas: int) -> Item:
        spec, metadata = item.obj["spec"], item.obj["metadata"]
        collisions = (item.obj.get("status") or {}).get("collisionCount")
        hash_ = template_hash(spec["template"], collisions)
        name = f"{item.key[1]}-{hash_}"
        template = spec["template"]
        own = template.get("metadata") or {}
        labels = {**(own.get("labels") or {}), HASH_LABEL: hash_}
        selector = spec["selector"]
        bounds = bounds_for(item.obj)
        new_spec: Object = {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}},
            "template": {**template, "metadata": {**own, "labels": labels}},
        }
        if spec.get("minReadySeconds"):
            new_spec["minReadySeconds"] = spec["minReadySeconds"]
        body: Object = {
            "metadata": {
                "name": name,
                "labels": dict(labels),
                "annotations": {
                    **inherited(metadata.get("annotations") or {}),
                    REVISION: str(number),
                    DESIRED: str(bounds.replicas),
                    MAX_REPLICAS: str(bounds.max_total),
                },
                "ownerReferences": [reference_to(self._resource, item.obj)],
            },
            "spec": self._control.copied(new_spec),
        }
        try:
            made = self._control.objects.create(self._sets, item.key[0], body, Options(manager=CONTROLLER_MANAGER))
        except ApiStatusError as refused:
            if refused.reason == "AlreadyExists":  # hash collision: the next try includes collisionCount in the hash
                status = {**(item.obj.get("status") or {}), "collisionCount": (collisions or 0) + 1}
                self._control.put_status(self._resource, self._fresh(item), status)
            raise
        if replicas:
            self._record_scaling(item, made, "up", 0, replicas)
        return made

    def _scale(self, item: Item, replica_set: Item, replicas: int) -> Item:
        bounds = bounds_for(item.obj)
        before = replica_set.obj["spec"].get("replicas", 1)
        annotations = {DESIRED: str(bounds.replicas), MAX_REPLICAS: str(bounds.max_total)}
        changed = self._control.change(self._sets, replica_set, spec={"replicas": replicas}, annotations=annotations)
        if replicas != before:
            self._record_scaling(item, replica_set, "up" if replicas > before else "down", before, replicas)
        return changed

    def _record_scaling(self, item: Item, replica_set: Item, direction: str, before: int, after: int) -> None:
        message = f"Scaled {direction} replica set {replica_set.key[1]} from {before} to {after}"
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, "ScalingReplicaSet", message)

    def _delete_old_sets(self, item: Item, sets: list[Item], new: Item | None) -> None:
        limit = item.obj["spec"].get("revisionHistoryLimit")
        if limit is None:
            return
        old = [
            replica_set
            for replica_set in sets
            if (new is None or replica_set.key != new.key) and "deletionTimestamp" not in replica_set.obj["metadata"]
        ]
        idle = [
            replica_set
            for replica_set in old
            if not replica_set.obj["spec"].get("replicas", 1)
            and not (replica_set.obj.get("status") or {}).get("replicas", 0)
            and (replica_set.obj.get("status") or {}).get("observedGeneration", 0)
            >= replica_set.obj["metadata"].get("generation", 0)
        ]
        idle.sort(key=lambda replica_set: revision(replica_set.obj))
        for replica_set in idle[: max(0, len(old) - limit)]:
            self._control.delete(self._sets, replica_set)

    # -- status --------------------------------------------------------------------------------------------------------

    def _write_status(self, item: Item, sets: list[Item], new: Item | None) -> None:
        item = self._fresh(item)
        before = item.obj.get("status") or {}
        old = [replica_set.obj for replica_set in sets if new is None or replica_set.key != new.key]
        status = totals(item.obj, [replica_set.obj for replica_set in sets], new.obj if new is not None else None)
        status["conditions"] = conditions_of(item.obj, status, old, new.obj if new is not None else None, self._control)
        if before.get("collisionCount"):
            status["collisionCount"] = before["collisionCount"]
        item = self._control.put_status(self._resource, item, status)
        left = progress_left(item.obj, self._control.clock.now())
        if left is not None:
            self._queue.add_after(left, item.key)


def bounds_for(deployment: Object) -> Bounds:
    """The replica bounds of the Deployment's strategy."""
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    return bounds_of(
        spec.get("replicas", 1),
        rolling.get("maxSurge"),
        rolling.get("maxUnavailable"),
        rolling=strategy.get("type") == "RollingUpdate",
    )


def _set_size(item: Item) -> SetSize:
    annotations = item.obj["metadata"].get("annotations") or {}
    max_replicas = annotations.get(MAX_REPLICAS, "0")
    return SetSize(
        item.key[1],
        item.obj["spec"].get("replicas", 1),
        (item.obj.get("status") or {}).get("availableReplicas", 0),
        item.obj["metadata"]["creationTimestamp"],
        integer(max_replicas) or 0,
    )


def _age(item: Item) -> tuple[str, str]:
    return item.obj["metadata"]["creationTimestamp"], item.key[1]
