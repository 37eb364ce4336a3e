"""Koordinator's priority classes, and which pods may have CPUs bound to them (apis/extension/priority.go, qos.go)."""

from collections.abc import Mapping

from seatrial.scheduler.api.core import PodSpec
from seatrial.scheduler.api.numa import LSE, LSR, PRIORITY_CLASS_LABEL, PROD, QOS_LABEL

_BANDS = ((PROD, 9000), ("koord-mid", 7000), ("koord-batch", 5000), ("koord-free", 3000))  # name, lowest priority


def priority_class(labels: Mapping[str, str], spec: PodSpec) -> str:
    """Koordinator's priority class: the label, else the band that contains `spec.priority`, else ""."""
    named = labels.get(PRIORITY_CLASS_LABEL, "")
    if named:
        return named
    return next((name for name, low in _BANDS if low <= spec.priority <= low + 999), "")


def may_bind(labels: Mapping[str, str], spec: PodSpec) -> bool:
    """Whether CPUs may be bound to the pod (NUMA-R3)."""
    if labels.get(QOS_LABEL, "") not in {LSE, LSR}:
        return False
    return priority_class(labels, spec) in {"", PROD}  # without a class QoS decides; LSE and LSR imply prod
