"""The HorizontalPodAutoscaler controller: scales by the CPU use of pods, with upstream's stabilization.

Follows `pkg/controller/podautoscaler`. Usage comes from NodeMetric objects. Metrics of other types are
reported as unavailable, as on a cluster without their API. Each autoscaler is evaluated every 15 seconds.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.harness.apiserver.controllers.autoscaling import (
    PERIOD,
    Proposal,
    Reading,
    ScaleEvent,
    by_average,
    by_utilization,
    max_replicas_now,
    min_replicas_now,
    rules_of,
)
from seatrial.harness.apiserver.controllers.control import PODS, Control, is_new_spec, with_condition
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING
from seatrial.harness.apiserver.controllers.podstate import is_active
from seatrial.harness.apiserver.controllers.podusage import pod_usage
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.quantities import canonical, milli
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.verbs.subresources import rescaled, scale_of

AUTOSCALERS: CollectionKey = ("autoscaling", "horizontalpodautoscalers")
COMPONENT = "horizontal-pod-autoscaler"


class _MetricUnavailable(Exception):
    """A metric is unavailable; `reason` becomes the reason of the ScalingActive condition."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(slots=True)
class _History:
    """The recent recommendations and scale events of one autoscaler."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)  # monotonic seconds, replicas
    changes: list[ScaleEvent] = field(default_factory=list)


class Autoscalers:
    """Reconciles HorizontalPodAutoscalers."""

    def __init__(self, control: Control, registry: Registry) -> None:
        self._control, self._registry = control, registry
        self._resource = control.resource(AUTOSCALERS)
        self._histories: dict[str, _History] = {}  # by uid
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            assert change.old is not None
            self._histories.pop(change.old.obj["metadata"]["uid"], None)
        elif is_new_spec(change):
            self._queue.add(change.key)

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None or "deletionTimestamp" in item.obj["metadata"]:
            return
        self._queue.add_after(PERIOD, key)
        status: Object = {**(item.obj.get("status") or {})}
        status["observedGeneration"] = item.obj["metadata"].get("generation", 0)
        target = self._target(item)
        if target is None:
            name = (item.obj["spec"].get("scaleTargetRef") or {}).get("name", "")
            self._set_condition(
                status, "AbleToScale", "False", "FailedGetScale", f"the target {name!r} of the autoscaler is not there"
            )
        else:
            self._reconcile(item, status, *target)
        current = self._control.get(self._resource, key)
        if current is not None:
            self._control.put_status(self._resource, current, status)

    def _target(self, item: Item) -> tuple[Resource, Item] | None:
        reference = item.obj["spec"].get("scaleTargetRef") or {}
        resource = self._registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None or "scale" not in resource.subresources:
            return None
        entry = self._control.get(resource, (item.key[0], reference.get("name", "")))
        return (resource, entry) if entry is not None else None

    # -- one evaluation ------------------------------------------------------------------------------------------------

    def _reconcile(self, item: Item, status: Object, resource: Resource, target: Item) -> None:
        spec = item.obj["spec"]
        scale = scale_of(resource, target)
        current = int(scale["spec"].get("replicas", 0))
        status["currentReplicas"] = int(scale["status"]["replicas"])
        self._set_condition(
            status,
            "AbleToScale",
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )
        low, high = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        if current == 0 and low:
            why = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(status, "ScalingActive", "False", "ScalingDisabled", why)
            status["desiredReplicas"] = 0
            return
        reason = ""
        if current > high:
            amount, reason = high, "Current number of replicas above Spec.MaxReplicas"
        elif current < low:
            amount, reason = low, "Current number of replicas below Spec.MinReplicas"
        else:
            measured = self._measured(item, status, target, current)
            if measured is None:
                return
            proposed, name = measured
            amount = self._stabilized(item, status, proposed, current)
            reason = name + (" above target" if amount > current else " below target")
        status["desiredReplicas"] = amount
        if amount != current:
            self._rescale(item, status, resource, target, current, amount, reason)

    def _measured(self, item: Item, status: Object, target: Item, current: int) -> tuple[int, str] | None:
        """Replicas by the metric that proposes most, and the metric's name; None if no usable metric is available."""
        best: tuple[int, str] | None = None
        shown: list[Object] = []
        problem: _MetricUnavailable | None = None
        for metric in item.obj["spec"].get("metrics") or ():
            try:
                proposal, name = self._proposal(metric, target, current)
            except _MetricUnavailable as error:
                problem = problem or error
                continue
            shown.append(_metric_status(metric, proposal))
            if best is None or proposal.replicas > best[0]:
                best = proposal.replicas, name
        status["currentMetrics"] = shown
        # upstream: with a metric missing, never scale down
        if best is None or (problem is not None and best[0] < current):
            if problem is not None:
                why = f"the HPA was unable to compute the replica count: {problem}"
                self._set_condition(status, "ScalingActive", "False", problem.reason, why)
                self._control.recorder.record(COMPONENT, self._resource, item, WARNING, problem.reason, str(problem))
            return None
        why = f"the HPA was able to successfully calculate a replica count from {best[1]}"
        self._set_condition(status, "ScalingActive", "True", "ValidMetricFound", why)
        return best

    def _proposal(self, metric: Object, target: Item, current: int) -> tuple[Proposal, str]:
        """
        Raises:
            _MetricUnavailable: the metric's type is not served here, or there are no readings.
        """
        kind = metric.get("type", "")
        if kind != "Resource":
            raise _MetricUnavailable(
                f"FailedGet{kind}Metric", f"unable to get metric of type {kind}: no such metrics API is served"
            )
        name, goal = metric["resource"]["name"], metric["resource"].get("target") or {}
        readings = self._readings(target, name, requests_matter=goal.get("type") == "Utilization")
        if goal.get("type") == "Utilization":
            utilization = by_utilization(readings, int(goal["averageUtilization"]), current)
            return utilization, f"{name} resource utilization (percentage of request)"
        return by_average(readings, milli(goal["averageValue"]), current), f"{name} resource"

    def _readings(self, target: Item, name: str, *, requests_matter: bool) -> list[Reading]:
        """
        Raises:
            _MetricUnavailable: no pod has a reading, or a container lacks the resource request that utilization needs.
        """
        selector = msgspec.convert(target.obj["spec"].get("selector") or {}, LabelSelector)
        store, namespace = self._control.objects.store, target.key[0]
        usage = pod_usage(store, namespace, name)
        readings = []
        for pod in store.collection(PODS).each(namespace):
            if not is_active(pod.obj) or not selector.matches(pod.obj["metadata"].get("labels") or {}):
                continue
            request = 0
            for container in pod.obj["spec"].get("containers") or ():
                request_text = ((container.get("resources") or {}).get("requests") or {}).get(name)
                if request_text is None and requests_matter:
                    why = f"missing request for {name} in container {container['name']} of Pod {pod.key[1]}"
                    raise _MetricUnavailable("FailedGetResourceMetric", f"failed to get {name} utilization: {why}")
                request += milli(request_text or 0)
            readings.append(Reading(request, usage.get(pod.key[1])))
        if not any(reading.usage is not None for reading in readings):
            why = f"failed to get {name} utilization: unable to get metrics for resource {name}: no metrics returned"
            raise _MetricUnavailable("FailedGetResourceMetric", why)
        return readings

    # -- rate ----------------------------------------------------------------------------------------------------------

    def _stabilized(self, item: Item, status: Object, proposed: int, current: int) -> int:
        """`proposed` replicas after stabilization windows, scaling policies and min/max limits are applied."""
        spec, now = item.obj["spec"], self._control.clock.monotonic()
        history = self._histories.setdefault(item.obj["metadata"]["uid"], _History())
        up, down = rules_of(spec.get("behavior"), "scaleUp"), rules_of(spec.get("behavior"), "scaleDown")
        windows = {"up": _seconds(up), "down": _seconds(down)}
        history.recommendations = [past for past in history.recommendations if past[0] > now - max(windows.values())]
        history.recommendations.append((now, proposed))
        longest = 1800.0  # seconds, the longest period that a policy may have
        history.changes = [change for change in history.changes if change.at > now - longest]
        least = min([proposed, *(count for at, count in history.recommendations if at > now - windows["up"])])
        greatest = max([proposed, *(count for at, count in history.recommendations if at > now - windows["down"])])
        amount = least if current < least else min(current, greatest)
        if amount != proposed:
            why = "recent recommendations were different from the current one, applying the stabilized value"
            self._set_condition(
                status, "AbleToScale", "True", "ScaleDownStabilized" if proposed < amount else "ScaleUpStabilized", why
            )
        if amount > current:
            amount = min(amount, max_replicas_now(up, current, history.changes, now))
        elif amount < current:
            amount = max(amount, min_replicas_now(down, current, history.changes, now))
        low, high = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        bounded = max(low, min(high, amount))
        if bounded != amount:
            reason, word = ("TooFewReplicas", "less") if amount < low else ("TooManyReplicas", "more")
            side = "minimum" if amount < low else "maximum"
            self._set_condition(
                status,
                "ScalingLimited",
                "True",
                reason,
                f"the desired replica count is {word} than the {side} replica count",
            )
        else:
            self._set_condition(
                status,
                "ScalingLimited",
                "False",
                "DesiredWithinRange",
                "the desired count is within the acceptable range",
            )
        return bounded

    def _rescale(  # noqa: PLR0917
        self, item: Item, status: Object, resource: Resource, target: Item, current: int, amount: int, reason: str
    ) -> None:
        body = rescaled(resource, target, {"spec": {"replicas": amount}})
        try:
            self._control.objects.update(resource, target.key, body, Options(manager=CONTROLLER_MANAGER))
        except ApiStatusError as refused:
            why = f"the HPA controller was unable to update the target scale: {refused.message}"
            self._set_condition(status, "AbleToScale", "False", "FailedUpdateScale", why)
            return
        history = self._histories.setdefault(item.obj["metadata"]["uid"], _History())
        history.changes.append(ScaleEvent(self._control.clock.monotonic(), amount - current))
        status["lastScaleTime"] = self._control.clock.timestamp()
        why = f"the HPA controller was able to update the target scale to {amount}"
        self._set_condition(status, "AbleToScale", "True", "SucceededRescale", why)
        message = f"New size: {amount}; reason: {reason}"
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, "SuccessfulRescale", message)

    def _set_condition(self, status: Object, kind: str, truth: str, reason: str, message: str) -> None:
        new = self._control.condition(kind, truth, reason, message)
        status["conditions"] = with_condition(list(status.get("conditions") or ()), new)


def _seconds(rules: dict[str, Any]) -> float:
    return float(rules["stabilizationWindowSeconds"])


def _metric_status(metric: Object, proposal: Proposal) -> Object:
    name = metric["resource"]["name"]
    binary = name == "history" and proposal.average % (1000 << 10) == 0
    average = f"{proposal.average // (1000 << 10)}Ki" if binary else f"{proposal.average}m"
    current: Object = {"averageValue": canonical(average)}
    if proposal.utilization is not None:
        current["averageUtilization"] = proposal.utilization
    return {"type": "Resource", "resource": {"name": name, "current": current}}
