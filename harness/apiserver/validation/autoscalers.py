"""Validation of HorizontalPodAutoscalers; follows `pkg/apis/autoscaling/validation`."""

from seatrial.harness.apiserver.field_errors import Causes, forbidden, invalid, required, unsupported
from seatrial.harness.apiserver.names import Object, path_segment
from seatrial.harness.apiserver.validation.resources import POSITIVE, milli

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS = ("AverageValue", "Utilization", "Value")
_POLICIES = ("Percent", "Pods")
_SELECT = ("Disabled", "Max", "Min")
_MAX_WINDOW, _MAX_PERIOD = 3600, 1800  # seconds


def check_autoscaler(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a HorizontalPodAutoscaler to `causes`."""
    spec = obj.get("spec") or {}
    low, high = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    metrics = spec.get("metrics") or ()
    if low is not None and low < 0:
        causes.append(invalid("spec.minReplicas", low, "must be greater than or equal to 0"))
    if high == 0:
        causes.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif high < 0:
        causes.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))
    if low is not None and high < low:
        causes.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    _check_reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", causes)
    for index, metric in enumerate(metrics):
        _check_metric(metric, f"spec.metrics[{index}]", causes)
    if low == 0 and not any(metric.get("type") in {"Object", "External"} for metric in metrics):
        problem = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", problem))
    behavior = spec.get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        if behavior.get(direction) is not None:
            _check_rules(behavior[direction], f"spec.behavior.{direction}", causes)


def _check_reference(reference: Object, path: str, causes: Causes) -> None:
    for field in ("kind", "name"):
        value = reference.get(field) or ""
        if not value:
            causes.append(required(f"{path}.{field}"))
        else:
            causes.extend(invalid(f"{path}.{field}", value, problem) for problem in path_segment(value))
    version = reference.get("apiVersion") or ""
    if not version:
        causes.append(invalid(f"{path}.apiVersion", version, "apiVersion is required"))
    elif version.count("/") > 1:
        causes.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))


def _check_metric(metric: Object, path: str, causes: Causes) -> None:
    kind = metric.get("type") or ""
    if not kind:
        causes.append(required(f"{path}.type", "must specify a metric source type"))
        return
    if kind not in _SOURCES:
        causes.append(unsupported(f"{path}.type", kind, tuple(sorted(_SOURCES))))
        return
    field = _SOURCES[kind]
    source = metric.get(field)
    if source is None:
        causes.append(required(f"{path}.{field}", "must populate information for the given metric source"))
        return
    own, target = f"{path}.{field}", source.get("target") or {}
    if kind in {"Resource", "ContainerResource"}:
        if not source.get("name"):
            causes.append(required(f"{own}.name", "must specify a resource name"))
        if kind == "ContainerResource" and not source.get("container"):
            causes.append(required(f"{own}.container", "must specify a container"))
    elif not (source.get("metric") or {}).get("name"):
        causes.append(required(f"{own}.metric.name", "must specify a metric name"))
    if kind == "Object":
        _check_reference(source.get("describedObject") or {}, f"{own}.describedObject", causes)
    _check_target(target, f"{own}.target", kind, causes)


def _check_target(target: Object, path: str, kind: str, causes: Causes) -> None:
    if not target.get("type"):
        causes.append(required(f"{path}.type", "must specify a metric target type"))
    elif target["type"] not in _TARGETS:
        causes.append(unsupported(f"{path}.type", target["type"], _TARGETS))
    share, average, value = (target.get(field) for field in ("averageUtilization", "averageValue", "value"))
    if share is not None and share < 1:
        causes.append(invalid(f"{path}.averageUtilization", share, POSITIVE))
    for field, amount in (("averageValue", average), ("value", value)):
        if amount is not None and (milli(amount) or 0) <= 0:
            causes.append(invalid(f"{path}.{field}", str(amount), "must be positive"))
    if kind in {"Resource", "ContainerResource"}:
        if share is None and average is None:
            problem = "must set either a target raw value or a target utilization"
            causes.append(required(f"{path}.averageUtilization", problem))
        elif share is not None and average is not None:
            problem = "may not set both a target raw value and a target utilization"
            causes.append(forbidden(f"{path}.averageValue", problem))
    elif kind == "Pods":
        if average is None:
            causes.append(required(f"{path}.averageValue", "must specify a positive target averageValue"))
    elif value is None and average is None:
        problem = "must set either a target value for metric or a per-pod target"
        causes.append(required(f"{path}.averageValue", problem))


def _check_rules(rules: Object, path: str, causes: Causes) -> None:
    window, select = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and not 0 <= window <= _MAX_WINDOW:
        problem = (
            f"must be less than or equal to {_MAX_WINDOW}" if window > 0 else "must be greater than or equal to zero"
        )
        causes.append(invalid(f"{path}.stabilizationWindowSeconds", window, problem))
    if select is not None and select not in _SELECT:
        causes.append(unsupported(f"{path}.selectPolicy", select, _SELECT))
    if rules.get("policies") == []:  # null: admission sets the default
        causes.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies") or ()):
        own = f"{path}.policies[{index}]"
        if policy.get("type") not in _POLICIES:
            causes.append(unsupported(f"{own}.type", policy.get("type") or "", _POLICIES))
        for field in ("value", "periodSeconds"):
            amount = policy.get(field) or 0
            if amount <= 0:
                causes.append(invalid(f"{own}.{field}", amount, POSITIVE))
            elif field == "periodSeconds" and amount > _MAX_PERIOD:
                causes.append(invalid(f"{own}.{field}", amount, f"must be less than or equal to {_MAX_PERIOD}"))
