"""Deployments: a new ReplicaSet for every template, and pods that move from the old ones to it.

Follows `pkg/controller/deployment`. Rolling back and pausing need nothing here: clients put an old template back, or
set `spec.paused`.
"""

from harness.apiserver.controllers.control import Control, is_new_spec
from harness.apiserver.controllers.owners import Dependents, reference_to
from harness.apiserver.controllers.podstate import is_finished
from harness.apiserver.controllers.recording import NORMAL, WARNING
from harness.apiserver.controllers.replicasets import REPLICA_SETS
from harness.apiserver.controllers.rolling import (
    Bounds,
    Generation,
    bounds_of,
    next_for_new,
    next_for_old,
    proportional,
)
from harness.apiserver.controllers.rollouts import (
    DESIRED,
    MOST,
    REVISION,
    annotated,
    conditions_of,
    inherited,
    is_complete,
    progress_left,
    revision,
    totals,
)
from harness.apiserver.controllers.templates import HASH_LABEL, same_template, template_hash
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import Options
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object

DEPLOYMENTS: CollectionKey = ("apps", "deployments")
COMPONENT = "deployment-controller"


class Deployments:
    """Follows Deployments and their ReplicaSets."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(DEPLOYMENTS)
        self._sets = control.resource(REPLICA_SETS)
        self._owned = Dependents(control.objects, REPLICA_SETS)
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)
        self._owned.follow(self._resource, self._set_changed)
        control.owned_pods.follow(self._sets, self._pod_changed)

    def _changed(self, change: Change) -> None:
        if change.new is not None and is_new_spec(change):
            self._turns.add(change.key)

    def _set_changed(self, key: Key, _change: Change) -> None:
        self._turns.add(key)

    def _pod_changed(self, set_key: Key, change: Change) -> None:
        """Recreate waits for the last old pod, which its ReplicaSet has long stopped counting."""
        if change.new is not None:
            return
        owner = self._control.get(self._sets, set_key)
        for one in (owner.obj["metadata"].get("ownerReferences") or ()) if owner is not None else ():
            if one.get("kind") == self._resource.kind:
                self._turns.add((set_key[0], one["name"]))

    # -- one turn -----------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            self._turns.succeeded(key)
            return
        sets = self._owned.claim(self._resource, item)
        if "deletionTimestamp" in item.obj["metadata"]:
            self._tell(item, sets, self._newest(item, sets))
            return
        try:
            self._settle(item, sets)
        except ApiStatusError as refused:
            if refused.code != 404:  # else its namespace is gone
                self._failed(key, refused)
            return
        self._turns.succeeded(key)

    def _failed(self, key: Key, refused: ApiStatusError) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            return
        message = f"Failed to create new replica set: {refused.message}"
        self._control.recorder.record(COMPONENT, self._resource, item, WARNING, "ReplicaSetCreateError", message)
        self._turns.failed(key)

    def _settle(self, item: Item, sets: list[Item]) -> None:
        spec = item.obj["spec"]
        if spec.get("paused"):
            new = self._newest(item, sets)
            self._scale_all(item, sets, new)
        elif self._was_scaled(item, sets):
            new = self._newest(item, sets)
            self._scale_all(item, sets, new)
            self._turns.add(item.key)  # the next turn goes on with the rollout
        elif spec["strategy"]["type"] == "Recreate":
            new = self._recreate(item, sets)
        else:
            new = self._roll(item, sets)
        item, sets = self._fresh(item), self._refreshed(sets, new)
        self._tell(item, sets, self._newest(item, sets))
        item = self._fresh(item)
        if is_complete(item.obj) or spec.get("paused"):
            self._forget_old(item, sets, self._newest(item, sets))

    def _fresh(self, item: Item) -> Item:
        return self._control.get(self._resource, item.key) or item

    def _refreshed(self, sets: list[Item], new: Item | None) -> list[Item]:
        keys = [one.key for one in sets]
        if new is not None and new.key not in keys:
            keys.append(new.key)
        return [one for key in keys if (one := self._control.get(self._sets, key)) is not None]

    def _newest(self, item: Item, sets: list[Item]) -> Item | None:
        """The set of the present template; of several the oldest, so that two never compete."""
        template = item.obj["spec"]["template"]
        same = [one for one in sets if same_template(one.obj["spec"]["template"], template)]
        return min(same, key=_age, default=None)

    def _was_scaled(self, item: Item, sets: list[Item]) -> bool:
        wanted = str(item.obj["spec"].get("replicas", 1))
        return any(
            one.obj["spec"].get("replicas", 1)
            and (one.obj["metadata"].get("annotations") or {}).get(DESIRED, wanted) != wanted
            for one in sets
        )

    # -- strategies ---------------------------------------------------------------------------------------------------

    def _recreate(self, item: Item, sets: list[Item]) -> Item | None:
        new = self._newest(item, sets)
        old = [one for one in sets if new is None or one.key != new.key]
        shrunk = [self._scale(item, one, 0) for one in old if one.obj["spec"].get("replicas", 1)]
        if shrunk or self._old_pods_run(old):
            return new
        new = self._ensure_new(item, sets, replicas=0)
        return self._scale(item, new, item.obj["spec"].get("replicas", 1))

    def _old_pods_run(self, old: list[Item]) -> bool:
        owned = self._control.owned_pods
        return any(not is_finished(pod.obj) for one in old for pod in owned.of(one.obj["metadata"]["uid"]))

    def _roll(self, item: Item, sets: list[Item]) -> Item:
        bounds = bounds_for(item.obj)
        new = self._newest(item, sets)
        if new is None:
            room = min(bounds.replicas, max(0, bounds.most - sum(one.obj["spec"].get("replicas", 1) for one in sets)))
            new = self._ensure_new(item, sets, replicas=room)
        else:
            new = self._ensure_new(item, sets, replicas=0)
            wanted = next_for_new(_generation(new), [_generation(one) for one in self._refreshed(sets, new)], bounds)
            if wanted != new.obj["spec"].get("replicas", 1):
                return self._scale(item, new, wanted)  # old pods go in a later turn, when these are there
        old = {one.key[1]: one for one in sets if one.key != new.key}
        for name, wanted in next_for_old(_generation(new), [_generation(one) for one in old.values()], bounds).items():
            self._scale(item, old[name], wanted)
        return new

    def _scale_all(self, item: Item, sets: list[Item], new: Item | None) -> None:
        """The Deployment has another size: a single active set takes it, several share it."""
        bounds = bounds_for(item.obj)
        active = [one for one in sets if one.obj["spec"].get("replicas", 1)]
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
            for one in active:  # the rollout is through: what is left of the old ones goes
                self._scale(item, one, bounds.replicas if one.key == new.key else 0)
        elif item.obj["spec"]["strategy"]["type"] == "RollingUpdate":
            by_name = {one.key[1]: one for one in active}
            for name, size in proportional([_generation(one) for one in active], bounds).items():
                self._scale(item, by_name[name], size)

    # -- ReplicaSets --------------------------------------------------------------------------------------------------

    def _ensure_new(self, item: Item, sets: list[Item], *, replicas: int) -> Item:
        """The set of the present template with the newest revision; made with `replicas` if there is none.

        Raises:
            ApiStatusError: it cannot be made.
        """
        new = self._newest(item, sets)
        newest = max((revision(one.obj) for one in sets if new is None or one.key != new.key), default=0) + 1
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
        mark = template_hash(spec["template"], collisions)
        name = f"{item.key[1]}-{mark}"
        template = spec["template"]
        own = template.get("metadata") or {}
        labels = {**(own.get("labels") or {}), HASH_LABEL: mark}
        selector = spec["selector"]
        bounds = bounds_for(item.obj)
        new_spec: Object = {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: mark}},
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
                    REVISION: str(number), DESIRED: str(bounds.replicas), MOST: str(bounds.most),
                },
                "ownerReferences": [reference_to(self._resource, item.obj)],
            },
            "spec": self._control.copied(new_spec),
        }  # fmt: skip
        try:
            made = self._control.objects.create(self._sets, item.key[0], body, Options())
        except ApiStatusError as refused:
            if refused.reason == "AlreadyExists":  # another template came out alike: the next try counts it in
                status = {**(item.obj.get("status") or {}), "collisionCount": (collisions or 0) + 1}
                self._control.put_status(self._resource, self._fresh(item), status)
            raise
        if replicas:
            self._say_scaled(item, made, "up", 0, replicas)
        return made

    def _scale(self, item: Item, one: Item, replicas: int) -> Item:
        bounds = bounds_for(item.obj)
        before = one.obj["spec"].get("replicas", 1)
        marks = {DESIRED: str(bounds.replicas), MOST: str(bounds.most)}
        changed = self._control.change(self._sets, one, spec={"replicas": replicas}, annotations=marks)
        if replicas != before:
            self._say_scaled(item, one, "up" if replicas > before else "down", before, replicas)
        return changed

    def _say_scaled(self, item: Item, one: Item, way: str, before: int, after: int) -> None:
        message = f"Scaled {way} replica set {one.key[1]} from {before} to {after}"
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, "ScalingReplicaSet", message)

    def _forget_old(self, item: Item, sets: list[Item], new: Item | None) -> None:
        limit = item.obj["spec"].get("revisionHistoryLimit")
        if limit is None:
            return
        old = [
            one
            for one in sets
            if (new is None or one.key != new.key) and "deletionTimestamp" not in one.obj["metadata"]
        ]
        idle = [
            one
            for one in old
            if not one.obj["spec"].get("replicas", 1)
            and not (one.obj.get("status") or {}).get("replicas", 0)
            and (one.obj.get("status") or {}).get("observedGeneration", 0) >= one.obj["metadata"].get("generation", 0)
        ]
        idle.sort(key=lambda one: revision(one.obj))
        for one in idle[: max(0, len(old) - limit)]:
            self._control.delete(self._sets, one)

    # -- status -------------------------------------------------------------------------------------------------------

    def _tell(self, item: Item, sets: list[Item], new: Item | None) -> None:
        item = self._fresh(item)
        before = item.obj.get("status") or {}
        old = [one.obj for one in sets if new is None or one.key != new.key]
        status = totals(item.obj, [one.obj for one in sets], new.obj if new is not None else None)
        status["conditions"] = conditions_of(item.obj, status, old, new.obj if new is not None else None, self._control)
        if before.get("collisionCount"):
            status["collisionCount"] = before["collisionCount"]
        item = self._control.put_status(self._resource, item, status)
        left = progress_left(item.obj, self._control.clock.now())
        if left is not None:
            self._turns.gather(left, item.key)


def bounds_for(deployment: Object) -> Bounds:
    """What the Deployment's strategy allows."""
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    return bounds_of(
        spec.get("replicas", 1),
        rolling.get("maxSurge"),
        rolling.get("maxUnavailable"),
        rolling=strategy.get("type") == "RollingUpdate",
    )


def _generation(item: Item) -> Generation:
    annotations = item.obj["metadata"].get("annotations") or {}
    most = annotations.get(MOST, "0")
    return Generation(
        item.key[1],
        item.obj["spec"].get("replicas", 1),
        (item.obj.get("status") or {}).get("availableReplicas", 0),
        item.obj["metadata"]["creationTimestamp"],
        int(most) if most.isdigit() else 0,
    )


def _age(item: Item) -> tuple[str, str]:
    return item.obj["metadata"]["creationTimestamp"], item.key[1]
