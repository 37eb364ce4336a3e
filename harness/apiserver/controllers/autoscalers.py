"""HorizontalPodAutoscalers: replicas that follow the use of CPU and memory.

Follows `pkg/controller/podautoscaler`. Use comes from NodeMetric objects; metrics of other kinds are told to be
unavailable, as on a cluster without their API. Looks every fifteen seconds, and only while there is an autoscaler.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.apiserver.controllers.autoscaling import (
    PERIOD,
    Proposal,
    Reading,
    Scaled,
    by_average,
    by_utilization,
    fewest_now,
    most_now,
    rules_of,
)
from harness.apiserver.controllers.control import PODS, Control, is_new_spec, with_condition
from harness.apiserver.controllers.podstate import is_active
from harness.apiserver.controllers.podusage import pod_usage
from harness.apiserver.controllers.recording import NORMAL, WARNING
from harness.apiserver.controllers.turns import Turns
from harness.apiserver.errors import Refused
from harness.apiserver.objects import Options
from harness.apiserver.resources import Registry, Resource
from harness.apiserver.store import Change, CollectionKey, Item, Key, Object
from harness.apiserver.subresources import rescaled, scale_of
from harness.label_selectors import LabelSelector
from scheduler.api.quantity import canonical, milli

AUTOSCALERS: CollectionKey = ("autoscaling", "horizontalpodautoscalers")
COMPONENT = "horizontal-pod-autoscaler"


class _Unmeasured(Exception):
    """A metric cannot be had; `reason` is the condition's."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(slots=True)
class _Memory:
    """What one autoscaler has wished for and done lately."""

    wishes: list[tuple[float, int]] = field(default_factory=list)  # monotonic seconds, replicas
    changes: list[Scaled] = field(default_factory=list)


class Autoscalers:
    """Follows autoscalers."""

    def __init__(self, control: Control, registry: Registry) -> None:
        self._control, self._registry = control, registry
        self._resource = control.resource(AUTOSCALERS)
        self._memories: dict[str, _Memory] = {}  # by uid
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            assert change.old is not None  # noqa: S101
            self._memories.pop(change.old.obj["metadata"]["uid"], None)
        elif is_new_spec(change):
            self._turns.add(change.key)

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None or "deletionTimestamp" in item.obj["metadata"]:
            return
        self._turns.gather(PERIOD, key)
        status: Object = {**(item.obj.get("status") or {})}
        status["observedGeneration"] = item.obj["metadata"].get("generation", 0)
        target = self._target(item)
        if target is None:
            name = item.obj["spec"]["scaleTargetRef"].get("name", "")
            self._say(
                status, "AbleToScale", "False", "FailedGetScale", f"the target {name!r} of the autoscaler is not there"
            )
        else:
            self._follow(item, status, *target)
        current = self._control.get(self._resource, key)
        if current is not None:
            self._control.put_status(self._resource, current, status)

    def _target(self, item: Item) -> tuple[Resource, Item] | None:
        reference = item.obj["spec"]["scaleTargetRef"]
        resource = self._registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None or "scale" not in resource.subresources:
            return None
        found = self._control.get(resource, (item.key[0], reference.get("name", "")))
        return (resource, found) if found is not None else None

    # -- one look -----------------------------------------------------------------------------------------------------

    def _follow(self, item: Item, status: Object, resource: Resource, target: Item) -> None:
        spec = item.obj["spec"]
        scale = scale_of(resource, target)
        current = int(scale["spec"]["replicas"])
        status["currentReplicas"] = int(scale["status"]["replicas"])
        self._say(
            status,
            "AbleToScale",
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )
        low, high = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        if current == 0 and low:
            why = "scaling is disabled since the replica count of the target is zero"
            self._say(status, "ScalingActive", "False", "ScalingDisabled", why)
            status["desiredReplicas"] = 0
            return
        reason = ""
        if current > high:
            wanted, reason = high, "Current number of replicas above Spec.MaxReplicas"
        elif current < low:
            wanted, reason = low, "Current number of replicas below Spec.MinReplicas"
        else:
            measured = self._measured(item, status, target, current)
            if measured is None:
                return
            wished, name = measured
            wanted = self._paced(item, status, wished, current)
            reason = name + (" above target" if wanted > current else " below target")
        status["desiredReplicas"] = wanted
        if wanted != current:
            self._rescale(item, status, resource, target, current, wanted, reason)

    def _measured(self, item: Item, status: Object, target: Item, current: int) -> tuple[int, str] | None:
        """Replicas that the most demanding metric asks for, and its name; None if none can be had."""
        best: tuple[int, str] | None = None
        shown: list[Object] = []
        problem: _Unmeasured | None = None
        for metric in item.obj["spec"].get("metrics") or ():
            try:
                proposal, name = self._proposal(metric, target, current)
            except _Unmeasured as error:
                problem = problem or error
                continue
            shown.append(_told(metric, proposal))
            if best is None or proposal.replicas > best[0]:
                best = proposal.replicas, name
        status["currentMetrics"] = shown
        if best is None or (problem is not None and best[0] < current):  # half blind, it must not shrink
            if problem is not None:
                why = f"the HPA was unable to compute the replica count: {problem}"
                self._say(status, "ScalingActive", "False", problem.reason, why)
                self._control.recorder.record(COMPONENT, self._resource, item, WARNING, problem.reason, str(problem))
            return None
        why = f"the HPA was able to successfully calculate a replica count from {best[1]}"
        self._say(status, "ScalingActive", "True", "ValidMetricFound", why)
        return best

    def _proposal(self, metric: Object, target: Item, current: int) -> tuple[Proposal, str]:
        """
        Raises:
            _Unmeasured: the metric is not of a kind that can be had here, or nobody measures it.
        """
        kind = metric.get("type", "")
        if kind != "Resource":
            raise _Unmeasured(
                f"FailedGet{kind}Metric", f"unable to get metric of type {kind}: no such metrics API is served"
            )
        name, goal = metric["resource"]["name"], metric["resource"].get("target") or {}
        readings = self._readings(target, name, requests_matter=goal.get("type") == "Utilization")
        if goal.get("type") == "Utilization":
            found = by_utilization(readings, int(goal["averageUtilization"]), current)
            return found, f"{name} resource utilization (percentage of request)"
        return by_average(readings, milli(goal["averageValue"]), current), f"{name} resource"

    def _readings(self, target: Item, name: str, *, requests_matter: bool) -> list[Reading]:
        """
        Raises:
            _Unmeasured: no pod is measured, or one says nothing of what it requests.
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
                asked = ((container.get("resources") or {}).get("requests") or {}).get(name)
                if asked is None and requests_matter:
                    why = f"missing request for {name} in container {container['name']} of Pod {pod.key[1]}"
                    raise _Unmeasured("FailedGetResourceMetric", f"failed to get {name} utilization: {why}")
                request += milli(asked or 0)
            readings.append(Reading(request, usage.get(pod.key[1])))
        if not any(one.usage is not None for one in readings):
            why = f"failed to get {name} utilization: unable to get metrics for resource {name}: no metrics returned"
            raise _Unmeasured("FailedGetResourceMetric", why)
        return readings

    # -- pace ---------------------------------------------------------------------------------------------------------

    def _paced(self, item: Item, status: Object, wished: int, current: int) -> int:
        """The wish within the limits, the stabilization windows and the policies."""
        spec, now = item.obj["spec"], self._control.clock.monotonic()
        memory = self._memories.setdefault(item.obj["metadata"]["uid"], _Memory())
        up, down = rules_of(spec.get("behavior"), "scaleUp"), rules_of(spec.get("behavior"), "scaleDown")
        windows = {"up": _seconds(up), "down": _seconds(down)}
        memory.wishes = [one for one in memory.wishes if one[0] > now - max(windows.values())]
        memory.wishes.append((now, wished))
        longest = 1800.0  # seconds, the longest period that a policy may have
        memory.changes = [one for one in memory.changes if one.at > now - longest]
        least = min([wished, *(wish for at, wish in memory.wishes if at > now - windows["up"])])
        greatest = max([wished, *(wish for at, wish in memory.wishes if at > now - windows["down"])])
        wanted = least if current < least else min(current, greatest)
        if wanted != wished:
            why = "recent recommendations were different from the current one, applying the stabilized value"
            self._say(
                status, "AbleToScale", "True", "ScaleDownStabilized" if wished < wanted else "ScaleUpStabilized", why
            )
        if wanted > current:
            wanted = min(wanted, most_now(up, current, memory.changes, now))
        elif wanted < current:
            wanted = max(wanted, fewest_now(down, current, memory.changes, now))
        low, high = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        bounded = max(low, min(high, wanted))
        if bounded != wanted:
            reason, word = ("TooFewReplicas", "less") if wanted < low else ("TooManyReplicas", "more")
            side = "minimum" if wanted < low else "maximum"
            self._say(
                status,
                "ScalingLimited",
                "True",
                reason,
                f"the desired replica count is {word} than the {side} replica count",
            )
        else:
            self._say(
                status,
                "ScalingLimited",
                "False",
                "DesiredWithinRange",
                "the desired count is within the acceptable range",
            )
        return bounded

    def _rescale(  # noqa: PLR0917
        self, item: Item, status: Object, resource: Resource, target: Item, current: int, wanted: int, reason: str
    ) -> None:
        body = rescaled(resource, target, {"spec": {"replicas": wanted}})
        try:
            self._control.objects.update(resource, target.key, body, Options())
        except Refused as refused:
            why = f"the HPA controller was unable to update the target scale: {refused.message}"
            self._say(status, "AbleToScale", "False", "FailedUpdateScale", why)
            return
        memory = self._memories.setdefault(item.obj["metadata"]["uid"], _Memory())
        memory.changes.append(Scaled(self._control.clock.monotonic(), wanted - current))
        status["lastScaleTime"] = self._control.clock.timestamp()
        why = f"the HPA controller was able to update the target scale to {wanted}"
        self._say(status, "AbleToScale", "True", "SucceededRescale", why)
        said = f"New size: {wanted}; reason: {reason}"
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, "SuccessfulRescale", said)

    def _say(self, status: Object, kind: str, truth: str, reason: str, message: str) -> None:
        new = self._control.condition(kind, truth, reason, message)
        status["conditions"] = with_condition(list(status.get("conditions") or ()), new)


def _seconds(rules: dict[str, Any]) -> float:
    return float(rules["stabilizationWindowSeconds"])


def _told(metric: Object, proposal: Proposal) -> Object:
    name = metric["resource"]["name"]
    binary = name == "memory" and proposal.average % (1000 << 10) == 0
    average = f"{proposal.average // (1000 << 10)}Ki" if binary else f"{proposal.average}m"
    current: Object = {"averageValue": canonical(average)}
    if proposal.utilization is not None:
        current["averageUtilization"] = proposal.utilization
    return {"type": "Resource", "resource": {"name": name, "current": current}}
