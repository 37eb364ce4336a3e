"""The PodDisruptionBudget controller: computes healthy pods, required pods and allowed disruptions."""

from typing import Any

import msgspec

from seatrial.harness.apiserver.controllers.counts import scaled
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.harness.apiserver.verbs.objects import Objects
from seatrial.harness.apiserver.verbs.subresources import BUDGETS

PODS: CollectionKey = ("", "pods")
DISRUPTION_TIMEOUT = (
    120.0  # seconds after which a recorded disruption expires if the pod is still there; upstream's value
)


class Budgets:
    """Recomputes all budgets of a namespace when one of its pods or budgets changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects, self._budgets = objects, objects.store.collection(BUDGETS)
        self._queue: WorkQueue[str] = WorkQueue(objects.clock, self._recount)
        self._budgets.listen(self._budget_changed)
        objects.store.collection(PODS).listen(self._pod_changed)

    def _budget_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or old.obj.get("spec") != new.obj.get("spec")):
            self._queue.add(change.key[0])

    def _pod_changed(self, change: Change) -> None:
        if len(self._budgets) and next(self._budgets.each(change.key[0]), None) is not None:
            self._queue.add(change.key[0])

    def _recount(self, namespace: str) -> None:
        budgets = self._objects.store.collection(BUDGETS)
        pods = list(self._objects.store.collection(PODS).each(namespace))
        for item in list(budgets.each(namespace)):
            status = self._status(item.obj, pods)
            if status != item.obj.get("status"):
                body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status}
                self._objects.store_change(BUDGETS, item, body, subresource="status")

    def _status(self, budget: Object, pods: list[Item]) -> Object:
        spec, before = budget.get("spec") or {}, budget.get("status") or {}
        selector = spec.get("selector")
        test = msgspec.convert(selector, LabelSelector) if selector is not None else None
        covered = [
            pod.obj
            for pod in pods
            if test is not None
            and test.matches(pod.obj["metadata"].get("labels") or {})
            and pod.obj.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        ]
        now = self._objects.clock.now()
        names = {pod["metadata"]["name"] for pod in covered if "deletionTimestamp" not in pod["metadata"]}
        disrupted = {
            name: at
            for name, at in (before.get("disruptedPods") or {}).items()
            if name in names and now - seconds_of(at) < DISRUPTION_TIMEOUT
        }
        expected = len(covered)
        healthy = sum(
            1
            for pod in covered
            if "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted and _ready(pod)
        )
        if spec.get("maxUnavailable") is not None:
            desired = max(0, expected - scaled(spec["maxUnavailable"], expected, up=True))
        else:
            desired = scaled(spec.get("minAvailable", 0), expected, up=True)
        allowed = max(0, healthy - desired) if expected else 0
        status: Object = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": [self._condition(before, allowed, budget["metadata"].get("generation", 1))],
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        return status

    def _condition(self, before: Object, allowed: int, generation: int) -> Object:
        truth, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        old: list[dict[str, Any]] = before.get("conditions") or []
        since = next(
            (
                former["lastTransitionTime"]
                for former in old
                if former["type"] == "DisruptionAllowed" and former["status"] == truth
            ),
            self._objects.clock.timestamp(),
        )
        return {
            "type": "DisruptionAllowed",
            "status": truth,
            "reason": reason,
            "message": "",
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
