"""The order in which pods are evicted, and the classes that it depends on (RSV-R72)."""

from collections.abc import Callable
from typing import Any

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.migration import DELETION_COST, EVICTION_COST
from seatrial.scheduler.api.numa import PROD
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.pods.cpu_binding import priority_class
from seatrial.scheduler.pods.qos import koordinator_qos, kubernetes_qos

BATCH = "koord-batch"
NEVER = (1 << 31) - 1  # eviction cost of a pod that is never evicted
_CLASSES = {"koord-free": 1, BATCH: 2, "koord-mid": 3, PROD: 4}
_KUBERNETES = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_KOORDINATOR = {"BE": 1, "LS": 2, "LSR": 3, "LSE": 4, "SYSTEM": 4}

SortKey = Callable[[Pod], Any]


def kubernetes_class(pod: Pod) -> str:
    """Kubernetes' QoS class."""
    return kubernetes_qos(pod.spec, pod.status.qos_class)


def koordinator_class(pod: Pod) -> str:
    """Koordinator's QoS class."""
    return koordinator_qos(pod.metadata.labels, pod.spec, pod.status.qos_class)


def class_of(pod: Pod) -> str:
    """Koordinator's priority class; without one the QoS class decides (apis/extension/priority_utils.go)."""
    label_priority_class = priority_class(pod.metadata.labels, pod.spec)
    if label_priority_class in _CLASSES:
        return label_priority_class
    return BATCH if koordinator_class(pod) == "BE" else PROD


def is_prod(pod: Pod) -> bool:
    """Whether the pod's priority class is koord-prod."""
    return class_of(pod) == PROD


def cost(pod: Pod, key: str) -> int:
    """An integer annotation; 0 if it is missing or is not a 32-bit number without sign `+` and leading zeros."""
    text = pod.metadata.annotations.get(key, "")
    value = integer(text, -NEVER - 1, NEVER)
    return value if value is not None and str(value) == text else 0


def eviction_order(usage_score: Callable[[Pod], float] | None = None) -> SortKey:
    """The sort key (RSV-R72): ascending is evicted first. `usage_score`: higher is evicted first. Pods may be equal."""

    def key(pod: Pod) -> Any:
        return (
            _CLASSES[class_of(pod)],
            pod.spec.priority,
            _KUBERNETES[kubernetes_class(pod)],
            _KOORDINATOR[koordinator_class(pod)],
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
