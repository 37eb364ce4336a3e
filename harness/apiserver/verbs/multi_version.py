"""Conversion of built-in kinds that are served in two versions and stored in one.

These are Events (core/v1, events.k8s.io/v1) and HorizontalPodAutoscalers (autoscaling/v2, v1). The second version is
the one that is not stored. For versions of custom resources see `webhooks.conversions`.
"""

from typing import Any

from seatrial.harness.apiserver.discovery.resources import EVENTS_GROUP, Resource
from seatrial.harness.apiserver.storage.store import Object
from seatrial.harness.apiserver.verbs import event_versions

_AUTOSCALERS = ("autoscaling", "v1", "horizontalpodautoscalers")
_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_PARTS = (("spec", "metrics", "target", _TARGET), ("status", "currentMetrics", "current", _CURRENT))


def is_second(resource: Resource) -> bool:
    """Whether this is the version that is not stored."""
    return resource.group == EVENTS_GROUP or (resource.group, resource.version, resource.plural) == _AUTOSCALERS


def to_stored(resource: Resource, obj: Object) -> Object:
    """Convert an object from the second version to the stored one."""
    if resource.group == EVENTS_GROUP:
        return event_versions.to_core(obj)
    return _autoscaler_to_stored({**obj, "apiVersion": "autoscaling/v2"})


def patch_to_stored(resource: Resource, patch: Object) -> Object:
    """Convert a merge patch from the second version to the stored one."""
    if resource.group == EVENTS_GROUP:
        return event_versions.patch_to_core(patch)
    changed = _autoscaler_to_stored(patch)
    return {**changed, "apiVersion": "autoscaling/v2"} if "apiVersion" in changed else changed


def to_second(resource: Resource, obj: Object) -> Object:
    """Convert a stored object to the second version."""
    if resource.group == EVENTS_GROUP:
        return event_versions.to_new(obj)
    by_part = {**obj, "apiVersion": resource.api_version}
    for part, many, of_what, name in _PARTS:
        if not isinstance(obj.get(part), dict):
            continue
        inner = dict(obj[part])
        for metric in inner.pop(many, None) or ():
            figures = (metric.get("resource") or {}) if isinstance(metric, dict) else {}
            share = (figures.get(of_what) or {}).get("averageUtilization")
            if figures.get("name") == "cpu" and share is not None:
                inner[name] = share
        for newer in ("behavior", "conditions"):
            inner.pop(newer, None)
        by_part[part] = inner
    return by_part


def _autoscaler_to_stored(obj: Object) -> Object:
    by_part = dict(obj)
    for part, many, of_what, name in _PARTS:
        inner = obj.get(part)
        if isinstance(inner, dict) and name in inner:
            share = inner[name]
            figure: dict[str, Any] = {"averageUtilization": share}
            if part == "spec":
                figure["type"] = "Utilization"
            metric = {"type": "Resource", "resource": {"name": "cpu", of_what: figure}}
            by_part[part] = {key: value for key, value in inner.items() if key != name} | {
                many: None if share is None else [metric]
            }
    return by_part
