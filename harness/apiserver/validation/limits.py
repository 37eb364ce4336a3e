"""Validation of LimitRanges and ResourceQuotas; follows `pkg/apis/core/validation`."""

from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, duplicate, forbidden, invalid, required
from seatrial.harness.apiserver.names import Object, qualified
from seatrial.harness.apiserver.validation.resources import check_list, milli

_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_STANDARD = "must be a standard resource for quota"
_SCOPES = {  # scope → resources that it can limit; None: all compute resources
    "Terminating": None,
    "NotTerminating": None,
    "NotBestEffort": None,
    "PriorityClass": None,
    "CrossNamespacePodAffinity": None,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims"}),
}
_EXCLUSIVE = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_COMPUTE = frozenset(
    {
        "pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_PLAIN = frozenset(
    {  # resources without a domain in a quota
        *_COMPUTE,
        "storage",
        "requests.storage",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_LIMITED = frozenset({"cpu", "memory", "ephemeral-storage", "storage", "pods", "persistentvolumeclaims"})


def check_quota(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a ResourceQuota to `causes`."""
    spec = obj.get("spec") or {}
    hard = spec.get("hard") or {}
    for name in hard:
        if "/" not in name and name not in _PLAIN and not _is_hugepages(name):
            problem = "must be a standard resource type or fully qualified"
            causes.append(invalid(f"spec.hard[{name}]", name, problem))
            causes.append(invalid(f"spec.hard[{name}]", name, _STANDARD))
    check_list(hard, "spec.hard", causes)
    scopes = spec.get("scopes") or ()
    for scope in scopes:
        if scope not in _SCOPES:
            causes.append(invalid("spec.scopes", list(scopes), "unsupported scope"))
            continue
        limited = _SCOPES[scope]
        for name in hard:
            if name not in limited if limited is not None else name not in _COMPUTE and not _is_hugepages(name):
                causes.append(invalid("spec.scopes", list(scopes), "unsupported scope applied to resource"))
    for pair in _EXCLUSIVE:
        if set(pair) <= set(scopes):
            causes.append(invalid("spec.scopes", list(scopes), "conflicting scopes"))


def _is_hugepages(name: str) -> bool:
    return name.removeprefix("requests.").startswith("hugepages-")


def check_limit_range(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a LimitRange to `causes`."""
    types: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type") or ""
        if not kind:
            causes.append(required(f"{path}.type"))
        else:
            causes.extend(invalid(f"{path}.type", kind, problem) for problem in qualified(kind))
        if kind in types:
            causes.append(duplicate(f"{path}.type", kind))
        types.add(kind)
        _check_names(item, path, causes)
        _check_order(item, kind, path, causes)


def _check_names(item: Object, path: str, causes: Causes) -> None:
    for field in _FIELDS:
        resources = item.get(field) or {}
        for name in resources:
            if "/" not in name and name not in _LIMITED and not name.startswith("hugepages-"):
                problem = "must be a standard resource type or fully qualified"
                causes.append(invalid(f"{path}.{field}[{name}]", name, problem))
        if field == "maxLimitRequestRatio":
            continue
        for name in resources:
            causes.extend(invalid(f"{path}.{field}[{name}]", name, problem) for problem in qualified(name))


def _check_order(item: Object, kind: str, path: str, causes: Causes) -> None:
    """Check min ≤ defaultRequest ≤ default ≤ max for each resource, and the ratio of limit to request."""
    low, high, limit, request, ratio = (
        item.get(field) or {} for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
    )
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if item.get(field):
                causes.append(forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
        limit = request = {}
    if kind == "PersistentVolumeClaim" and "storage" not in low and "storage" not in high:
        problem = "either minimum or maximum storage value is required, but neither was provided"
        causes.append(required(f"{path}.limits", problem))
    for name in low.keys() | high.keys() | limit.keys() | request.keys() | ratio.keys():
        ordered = (
            ("min", low, "max", high),
            ("defaultRequest", request, "min", low),
            ("defaultRequest", request, "max", high),
            ("defaultRequest", request, "default", limit),
            ("default", limit, "min", low),
            ("default", limit, "max", high),
        )
        for field, mine, other, theirs in ordered:
            if name not in mine or name not in theirs:
                continue
            first, second = milli(mine[name]) or 0, milli(theirs[name]) or 0
            if (first < second) if other == "min" else (first > second):
                word = "less" if other == "min" else "greater"
                problem = f"{field} value {mine[name]} is {word} than {other} value {theirs[name]}"
                causes.append(invalid(f"{path}.{field}[{name}]", str(mine[name]), problem))
        if name in ratio:
            _check_ratio(ratio[name], low.get(name), high.get(name), f"{path}.maxLimitRequestRatio[{name}]", causes)


def _check_ratio(ratio: Any, low: Any, high: Any, path: str, causes: Causes) -> None:
    value = milli(ratio) or 0
    if value < 1000:
        causes.append(invalid(path, str(ratio), f"ratio {ratio} is less than 1"))
    least, most = milli(low) if low is not None else None, milli(high) if high is not None else None
    if least and most and value * least > most * 1000:
        problem = f"ratio {ratio} is greater than max/min = {most / least:f}"
        causes.append(invalid(path, str(ratio), problem))
