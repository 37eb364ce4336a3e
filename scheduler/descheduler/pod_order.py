"""The order in which pods are evicted, and the classes that it depends on (RSV-R72)."""

from collections.abc import Callable
from typing import Any

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.migration import DELETION_COST, EVICTION_COST
from seatrial.scheduler.api.numa import PROD, QOS_LABEL
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.pods.cpu_binding import priority_class

BATCH = "koord-batch"
NEVER = (1 << 31) - 1  # eviction cost of a pod that is never evicted
_CLASSES = {"koord-free": 1, BATCH: 2, "koord-mid": 3, PROD: 4}
_KUBERNETES = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_KOORDINATOR = {"BE": 1, "LS": 2, "LSR": 3, "LSE": 4, "SYSTEM": 4}
_DEFAULT_QOS = {"BestEffort": "BE", "Burstable": "LS", "Guaranteed": "LSR"}

SortKey = Callable[[Pod], Any]


def kubernetes_qos(pod: Pod) -> str:
    """The QoS class from the status, or computed from cpu and memory of the containers."""
    if pod.status.qos_class:
        return pod.status.qos_class
    guaranteed, anything = True, False
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        requests, limits = container.resources.requests, container.resources.limits
        for name in ("cpu", "memory"):
            anything = anything or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    return "BestEffort" if not anything else "Guaranteed" if guaranteed else "Burstable"


def koordinator_qos(pod: Pod) -> str:
    """The QoS class of the label; without one it follows from Kubernetes' class (apis/extension/qos_utils.go)."""
    named = pod.metadata.labels.get(QOS_LABEL, "")
    return named if named in _KOORDINATOR else _DEFAULT_QOS[kubernetes_qos(pod)]


def class_of(pod: Pod) -> str:
    """Koordinator's priority class; without one the QoS class decides (apis/extension/priority_utils.go)."""
    found = priority_class(pod.metadata.labels, pod.spec)
    if found in _CLASSES:
        return found
    return BATCH if koordinator_qos(pod) == "BE" else PROD


def is_prod(pod: Pod) -> bool:
    """Whether the pod's priority class is koord-prod."""
    return class_of(pod) == PROD


def cost(pod: Pod, key: str) -> int:
    """An integer annotation; 0 if it is missing or is not a 32-bit number without sign `+` and leading zeros."""
    text = pod.metadata.annotations.get(key, "")
    found = integer(text, -NEVER - 1, NEVER)
    return found if found is not None and str(found) == text else 0


def eviction_order(usage_score: Callable[[Pod], float] | None = None) -> SortKey:
    """The sort key (RSV-R72): ascending is evicted first. `usage_score`: higher is evicted first. Pods may be equal."""

    def key(pod: Pod) -> Any:
        return (
            _CLASSES[class_of(pod)],
            pod.spec.priority,
            _KUBERNETES[kubernetes_qos(pod)],
            _KOORDINATOR[koordinator_qos(pod)],
            cost(pod, DELETION_COST),
            cost(pod, EVICTION_COST),
            -usage_score(pod) if usage_score is not None else 0.0,
            _Newest(pod.metadata.creation_timestamp or ""),
        )

    return key


class _Newest(str):
    """A timestamp that sorts before older ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
