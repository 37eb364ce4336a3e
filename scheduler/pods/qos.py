"""QoS classes of pods: Kubernetes' and Koordinator's (apis/extension/qos_utils.go)."""

from collections.abc import Mapping

from seatrial.scheduler.api.core import PodSpec
from seatrial.scheduler.api.numa import LSE, LSR, QOS_LABEL

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
BE, LS, SYSTEM = "BE", "LS", "SYSTEM"
QOS_CLASSES = frozenset({LSE, LSR, LS, BE, SYSTEM})
_BY_DEFAULT = {BEST_EFFORT: BE, BURSTABLE: LS, GUARANTEED: LSR}


def kubernetes_qos(spec: PodSpec, reported: str = "") -> str:
    """The class of the status, or computed from cpu and memory of the containers."""
    if reported:
        return reported
    guaranteed, anything = True, False
    for container in (*spec.containers, *spec.init_containers):
        requests, limits = container.resources.requests, container.resources.limits
        for name in ("cpu", "memory"):
            anything = anything or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    return BEST_EFFORT if not anything else GUARANTEED if guaranteed else BURSTABLE


def raw_qos(labels: Mapping[str, str]) -> str:
    """The class of the label; "" if it is missing or none of the five (Q-1)."""
    named = labels.get(QOS_LABEL, "")
    return named if named in QOS_CLASSES else ""


def koordinator_qos(labels: Mapping[str, str], spec: PodSpec, reported: str = "") -> str:
    """The class of the label; without one it follows from Kubernetes' class (Q-2)."""
    return raw_qos(labels) or _BY_DEFAULT[kubernetes_qos(spec, reported)]
