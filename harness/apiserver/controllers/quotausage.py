"""The usage of an object in a ResourceQuota, and the scopes of quotas. Pure functions.

Amounts are integers in thousandths of the resource's unit. Follows `pkg/quota/v1/evaluator/core`.
"""

from collections.abc import Mapping
from typing import Any

from seatrial.harness.apiserver.defaults.qos import BEST_EFFORT, qos_class
from seatrial.harness.apiserver.quantities import canonical, milli
from seatrial.harness.apiserver.storage.store import CollectionKey, Object

Usage = dict[str, int]  # quota resource → thousandths

PODS: CollectionKey = ("", "pods")
CLAIMS: CollectionKey = ("", "persistentvolumeclaims")
RESOURCE_CLAIMS: CollectionKey = ("resource.k8s.io", "resourceclaims")
SERVICES: CollectionKey = ("", "services")
UNIT = 1000
_COUNTED_BY_NAME = frozenset(
    {"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}
)
_ALL_DEVICES = 32  # what a request for all devices counts: the most that a claim can have
_BOTH_WAYS = frozenset({"cpu", "memory", "ephemeral-storage"})  # `cpu` is the same as `requests.cpu`
_REQUIRED_WHEN_COUNTED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"  # begins the extended resource of each class
_BINARY = ("memory", "storage", "hugepages")


def usage_of(collection: CollectionKey, obj: Object) -> Usage:
    """The object's usage under every resource name that a quota may use."""
    group, plural = collection
    usage: Usage = {f"count/{plural}.{group}" if group else f"count/{plural}": UNIT}
    if collection == PODS:
        if not _has_ended(obj):
            usage |= _pod(obj["spec"])
        return usage
    if not group and plural in _COUNTED_BY_NAME:
        usage[plural] = UNIT
    if collection == SERVICES:
        usage |= _service(obj["spec"])
    elif collection == CLAIMS:
        usage |= _claim(obj)
    elif collection == RESOURCE_CLAIMS:
        usage |= _devices(obj)
    return usage


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _pod(spec: Object) -> Usage:
    usage: Usage = {"pods": UNIT}
    for part in ("requests", "limits"):
        for name, value in _whole_pod(spec, part).items():
            if part == "limits" and name not in _BOTH_WAYS:
                continue  # for extended resources and huge pages, quotas count requests only
            usage[f"{part}.{name}"] = value
            if part == "requests" and (name in _BOTH_WAYS or name.startswith("hugepages-")):
                usage[name] = value
    return usage


def _whole_pod(spec: Object, part: str) -> Usage:
    """The pod's total of `part`: containers and sidecars, or the init phase's maximum if larger, plus overhead."""
    total: Usage = {}
    beside: Usage = {}
    peak: Usage = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, part))
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, part)
        if container.get("restartPolicy") == "Always":
            _add(beside, amounts)
            _add(total, amounts)
            amounts = beside
        else:
            amounts = {name: amounts.get(name, 0) + beside.get(name, 0) for name in {*amounts, *beside}}
        for name, value in amounts.items():
            peak[name] = max(peak.get(name, 0), value)
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    own = _amounts(spec, part)
    total |= own  # pod-level resources take precedence
    overhead = {name: milli(value) for name, value in (spec.get("overhead") or {}).items()}
    if total:
        _add(total, {name: value for name, value in overhead.items() if part == "requests" or name in total})
    return total


def _amounts(container: Object, part: str) -> Usage:
    entry: dict[str, Any] = (container.get("resources") or {}).get(part) or {}
    return {name: milli(value) for name, value in entry.items()}


def _add(total: Usage, more: Usage) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _service(spec: Object) -> Usage:
    kind, ports = spec.get("type"), len(spec.get("ports") or ())
    usage: Usage = {"services.nodeports": 0, "services.loadbalancers": 0}
    if kind == "LoadBalancer":
        usage["services.loadbalancers"] = UNIT
    if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False):
        usage["services.nodeports"] = ports * UNIT
    return usage


def _claim(obj: Object) -> Usage:
    spec = obj["spec"]
    storage = milli(((spec.get("resources") or {}).get("requests") or {}).get("storage", 0))
    usage: Usage = {"requests.storage": storage}
    storage_class = spec.get("storageClassName")
    if storage_class:
        stem = f"{storage_class}.storageclass.storage.k8s.io"
        usage |= {f"{stem}/requests.storage": storage, f"{stem}/persistentvolumeclaims": UNIT}
    return usage


def extended_usage(usage: Usage, resources: Mapping[str, str], pod: Usage) -> Usage:
    """What a claim with this usage counts under the names of extended resources, beyond what its pod counts already.

    `resources`: the extended resource of each class, "" where it names none; each class has a name of its own, too.
    """
    values: Usage = {}
    for name, value in usage.items():
        of_class = name.removesuffix(_OF_CLASS)
        if of_class == name or of_class not in resources:
            continue
        for resource in filter(None, (f"{IMPLICIT_RESOURCE}{of_class}", resources[of_class])):
            values[f"requests.{resource}"] = value
    return {name: left for name, value in values.items() if (left := value - pod.get(name, 0)) > 0}


def _devices(obj: Object) -> Usage:
    """The devices that a ResourceClaim may get of each class, before it has any (DRA-R22)."""
    usage: Usage = {}
    for request in (obj["spec"].get("devices") or {}).get("requests") or ():
        most: Usage = {}  # of the alternatives of the request
        for way in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = f"{way.get('deviceClassName', '')}{_OF_CLASS}"
            count = _ALL_DEVICES if way.get("allocationMode") == "All" else way.get("count") or 0
            most[name] = max(most.get(name, 0), count * UNIT)
        _add(usage, most)
    return usage


# -- which quotas count an object --------------------------------------------------------------------------------------


def in_scope(quota: Object, collection: CollectionKey, obj: Object) -> bool:
    """Whether the object is within the quota's scopes; scopes apply to pods only."""
    spec = quota.get("spec") or {}
    selections = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    selections += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    if not selections:
        return True
    return collection == PODS and all(_selected(selection, obj) for selection in selections)


def _selected(selection: Object, pod: Object) -> bool:
    spec, scope = pod["spec"], selection.get("scopeName")
    if scope == "PriorityClass":
        return _by_name(selection, spec.get("priorityClassName") or "")
    if scope in {"Terminating", "NotTerminating"}:
        return (spec.get("activeDeadlineSeconds") is not None) is (scope == "Terminating")
    if scope in {"BestEffort", "NotBestEffort"}:
        return (qos_class(spec) == BEST_EFFORT) is (scope == "BestEffort")
    if scope == "CrossNamespacePodAffinity":
        return _has_cross_namespace_affinity(spec)
    return False


def _by_name(selection: Object, name: str) -> bool:
    values = selection.get("values") or ()
    operator = selection.get("operator")
    if operator == "In":
        return name in values
    if operator == "NotIn":
        return name not in values
    return bool(name) is (operator == "Exists")


def _has_cross_namespace_affinity(spec: Object) -> bool:
    affinity = spec.get("affinity") or {}
    terms: list[Object] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        terms += part.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        preferred = part.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        terms += [term.get("podAffinityTerm") or {} for term in preferred]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def missing_resources(spec: Object, hard: dict[str, Any]) -> str:
    """Upstream's message on counted resources that a pod's containers do not specify; "" if none is missing."""
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        for name in _REQUIRED_WHEN_COUNTED:
            part, _, plain = name.rpartition(".")
            if name in hard and plain not in (resources.get(part or "requests") or {}):
                missing.setdefault(name, set()).add(container.get("name", ""))
    if not missing:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def as_quantity(name: str, thousandths: int) -> str:
    """An amount in thousandths as a Quantity: binary suffixes for bytes, plain numbers otherwise."""
    if any(word in name for word in _BINARY) and thousandths % (1000 << 10) == 0:
        return canonical(f"{thousandths // (1000 << 10)}Ki")
    return canonical(f"{thousandths}m")
