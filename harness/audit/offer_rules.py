"""The invariant of a manager: a node offers no more batch and mid resources than the formulas allow (AUD-703).

The auditor's own arithmetic over the objects' JSON, by Koordinator's formulas for a whole node (docs/colocation.md): an
upper bound, for every manager. A smaller difference than `resourceDiffThreshold` may stay unwritten. Settings
and amounts that cannot be read judge nothing: a manager keeps its last ones then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from seatrial.harness.apiserver.quantities import QuantityError, amount
from seatrial.harness.audit.requests import requests_of
from seatrial.harness.cpusets import CpusetError, parse_cpuset
from seatrial.scheduler.api.clock import from_rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.numa import CPU_NORMALIZATION_RATIO, LSE, NODE_RESERVATION, PRIORITY_CLASS_LABEL, QOS_LABEL
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, THIRD_PARTY_ALLOCATIONS
from seatrial.scheduler.api.wire import decode_as

ID, TITLE = "AUD-703", "A node offers no more batch and mid resources than the formulas allow"
NAMES = ((BATCH_CPU, "cpu", "CPU"), (BATCH_MEMORY, "memory", "Memory"))
MID_NAMES = ((MID_CPU, "cpu", "CPU"), (MID_MEMORY, "memory", "Memory"))
DEFAULTS: Mapping[str, Any] = {
    "enable": False,
    "cpuReclaimThresholdPercent": 60,
    "memoryReclaimThresholdPercent": 65,
    "degradeTimeMinutes": 15,
    "resourceDiffThreshold": 0.1,
    "midCPUThresholdPercent": 100,
    "midMemoryThresholdPercent": 100,
}
_BANDS = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
_LOW = frozenset({"koord-batch", "koord-free"})
_LABELS = {
    "cpu-reclaim-ratio": "cpuReclaimThresholdPercent",
    "memory-reclaim-ratio": "memoryReclaimThresholdPercent",
    "mid-static-cpu-reserved-ratio": "midStaticCPUReservedPercent",
    "mid-static-memory-reserved-ratio": "midStaticMemoryReservedPercent",
}
_OWN = "node.koordinator.sh/"
_WRONG_TYPES = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
_UNREADABLE = (QuantityError, CpusetError, msgspec.MsgspecError, *_WRONG_TYPES)
STALE_SCAN = 60.0  # seconds until a manager has seen that no report comes: it is no event

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferView:
    """A node whose manager has seen everything: objects as JSON, the pods of the node, and the time in seconds."""

    node: Manifest
    pods: Sequence[Manifest]
    metric: Manifest | None
    settings: Manifest  # colocation-config of slo-controller-config
    now: float


def offer_breaches(view: OfferView) -> list[str]:
    """Each breach with ID and title; none where an object cannot be read."""
    name = view.node["metadata"]["name"]
    try:
        return [f"{ID} {TITLE}: node {name} {text}" for text in _excess(view)]
    except _UNREADABLE:
        return []


def _excess(view: OfferView) -> Iterator[str]:
    strategy = strategy_of(view)
    offered = view.node["status"].get("allocatable") or {}
    slack = 1 - strategy["resourceDiffThreshold"]
    if slack <= 0:
        return
    bounds = {"batch": _batch(view, strategy), "mid": _mid(view, strategy)} if _offers(view, strategy) else {}
    for kind, names in (("batch", NAMES), ("mid", MID_NAMES)):
        for name, plain, _ in names:
            if name not in offered:
                continue
            if not bounds:
                yield f"offers {name} {offered[name]}: colocation is disabled, or its last report is too old"
            elif amount(name, offered[name]) > (bound := bounds[kind][plain]) / slack:
                yield f"offers {name} {offered[name]}, and the formula gives {bound}"


def strategy_of(view: OfferView) -> dict[str, Any]:
    """Defaults, the cluster's settings, the first that selects the node, its annotation, its labels (C-3)."""
    metadata = view.node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    strategy = {**DEFAULTS, **{key: value for key, value in view.settings.items() if key != "nodeConfigs"}}
    cluster = strategy["enable"]
    for own in view.settings.get("nodeConfigs") or ():
        selector = (own.get("nodeSelector") or {}).get("matchLabels") or {}
        if selector and selector.items() <= labels.items():
            strategy |= own
            break
    if text := annotations.get(f"{_OWN}colocation-strategy"):
        strategy |= decode_as(text, dict[str, Any])
    for label, field in _LABELS.items():
        ratio = finite(labels.get(_OWN + label, ""))
        if ratio is not None and ratio >= 0:
            strategy[field] = int(ratio * 100)
    strategy["enable"] = cluster and strategy["enable"]
    for field, value in strategy.items():
        if field.endswith(("Percent", "Minutes", "Threshold")):
            may_be_zero = field.endswith("Percent")
            if not (isinstance(value, int | float) and (value > 0 or (value == 0 and may_be_zero))):
                raise ValueError(field)  # a manager leaves out settings of a node that are not valid
    return strategy


def _offers(view: OfferView, strategy: Manifest) -> bool:
    """Whether the node may offer anything by now."""
    updated = ((view.metric or {}).get("status") or {}).get("updateTime")
    return bool(
        strategy["enable"]
        and updated
        and view.now <= from_rfc3339(updated) + strategy["degradeTimeMinutes"] * 60 + STALE_SCAN
    )


def _usage(resources: Manifest | None, plain: str) -> int:
    return amount(plain, ((resources or {}).get("resources") or {}).get(plain, 0))


def _reserved(node: Manifest, plain: str) -> int:
    status = node["status"]
    kubelet = amount(plain, status["capacity"][plain]) - amount(plain, status["allocatable"][plain])
    text = (node["metadata"].get("annotations") or {}).get(NODE_RESERVATION)
    own = decode_as(text, dict[str, Any]) if text else {}
    value = amount(plain, (own.get("resources") or {}).get(plain, 0))
    if plain == "cpu" and own.get("reservedCPUs"):
        value = len(parse_cpuset(own["reservedCPUs"])) * 1000
    return max(kubelet, value, 0)


def _class(pod: Manifest) -> str:
    """The priority class of label, band or QoS class (Q-3); a pod without any of them counts as prod."""
    labels = pod["metadata"].get("labels") or {}
    named = labels.get(PRIORITY_CLASS_LABEL)
    if named in _BANDS:
        return str(named)
    priority = pod["spec"].get("priority") or 0
    band = next((name for name, first in _BANDS.items() if first <= priority < first + 1000), "")
    if band and named is None:
        return band
    qos = labels.get(QOS_LABEL) or {"BestEffort": "BE"}.get((pod.get("status") or {}).get("qosClass", ""), "")
    return "koord-batch" if qos == "BE" else "koord-prod"


class Load(NamedTuple):
    """A pod, or the report of one that is gone."""

    priority_class: str
    request: int
    used: int  # of a pod without a report its request, of an LSE pod its cores
    larger: int  # of request and usage; 0 without a report


def _came(pod: Manifest) -> float:
    """When the pod came to its node, in seconds."""
    return from_rfc3339((pod.get("status") or {}).get("startTime") or pod["metadata"]["creationTimestamp"])


def _loads(view: OfferView, plain: str) -> Iterator[Load]:
    """Pods that came after the last report are left out: a manager computes again with the next one."""
    status = (view.metric or {})["status"]
    reports = {(each["namespace"], each["name"]): each for each in status.get("podsMetric") or ()}
    reported = from_rfc3339(status["updateTime"])
    for pod in view.pods:
        metadata = pod["metadata"]
        report = reports.pop((metadata["namespace"], metadata["name"]), None)
        if report is None and _came(pod) >= reported:
            continue
        if (pod.get("status") or {}).get("phase") not in {"Running", "Pending", None}:
            if report is not None:
                reports[metadata["namespace"], metadata["name"]] = report
            continue
        request = requests_of(msgspec.convert(pod, Pod)).get(plain, 0)
        whole = plain == "cpu" and (metadata.get("labels") or {}).get(QOS_LABEL) == LSE
        used = _usage(report.get("podUsage"), plain) if report is not None else 0
        larger = max(used, request) if report is not None else 0
        yield Load(_class(pod), request, request if report is None or whole else used, larger)
    for report in reports.values():  # of pods that are gone
        used = _usage(report.get("podUsage"), plain)
        yield Load(report.get("priority") or "koord-prod", 0, used, used)


def _system(view: OfferView, plain: str, *classes: str) -> int:
    """Usage of the system, and of programs outside of pods that are of these classes (NR-6, NR-16)."""
    status = (view.metric or {})["status"]
    applications = (each for each in status.get("hostApplicationMetric") or () if each.get("priority") in classes)
    own = _usage((status.get("nodeMetric") or {}).get("systemUsage"), plain)
    return own + sum(_usage(each.get("usage"), plain) for each in applications)


def _batch(view: OfferView, strategy: Manifest) -> dict[str, int]:
    annotations = view.node["metadata"].get("annotations") or {}
    ratio = finite(annotations.get(CPU_NORMALIZATION_RATIO, "")) or 1.0
    text = annotations.get(THIRD_PARTY_ALLOCATIONS)
    others = (decode_as(text, dict[str, Any]).get("allocations") or ()) if text else ()
    bounds = {}
    for name, plain, word in NAMES:
        capacity = amount(plain, view.node["status"]["capacity"][plain])
        kept = int(capacity * (100 - strategy[f"{plain}ReclaimThresholdPercent"]) / 100)
        reserved = _reserved(view.node, plain)
        loads = [each for each in _loads(view, plain) if each.priority_class not in _LOW]
        policy = strategy.get(f"{plain}CalculatePolicy")
        if policy == "request" and plain == "memory":
            taken = reserved + sum(each.request for each in loads)
        else:
            taken = max(_system(view, plain, "koord-prod", "koord-mid"), reserved)
            taken += sum(each.larger if policy == "maxUsageRequest" else each.used for each in loads)
        bound = max(capacity - kept - taken, 0)
        if (percent := strategy.get(f"batch{word}ThresholdPercent")) is not None:
            bound = min(bound, capacity * percent // 100)
        if plain == "cpu" and ratio > 1:
            bound = int(bound * ratio) + 1
        allocated = sum(
            amount(name, (each.get("resources") or {}).get(name, 0))
            for each in others
            if each.get("priority") == "koord-batch"
        )
        bounds[plain] = max(bound - allocated, 0)
    return bounds


def _mid(view: OfferView, strategy: Manifest) -> dict[str, int]:
    status = (view.metric or {})["status"]
    bounds = {}
    for _, plain, word in MID_NAMES:
        capacity = amount(plain, view.node["status"]["capacity"][plain])
        limit = capacity * strategy[f"mid{word}ThresholdPercent"] // 100
        if strategy.get("midReclaimMode") == "static":
            bounds[plain] = min(capacity * strategy.get(f"midStatic{word}ReservedPercent", 0) // 100, limit)
            continue
        reclaimable = _usage((status.get("prodReclaimableMetric") or {}).get("resource"), plain)
        unused = capacity - _usage((status.get("nodeMetric") or {}).get("nodeUsage"), plain)
        taken = max(_system(view, plain, "koord-prod"), _reserved(view.node, plain))
        requested = sum(each.request for each in _loads(view, plain) if each.priority_class not in _LOW | {"koord-mid"})
        unallocated = max(capacity - taken - requested, 0) * strategy.get("midUnallocatedPercent", 0) // 100
        bounds[plain] = min(max(min(reclaimable, unused), 0) + unallocated, limit)
    return bounds
