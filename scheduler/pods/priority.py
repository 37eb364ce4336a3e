"""Koordinator's priority class of a pod, with its default by QoS class (apis/extension/priority_utils.go)."""

from collections.abc import Mapping

from seatrial.scheduler.api.core import PodSpec
from seatrial.scheduler.api.numa import PROD, QOS_LABEL
from seatrial.scheduler.api.quantity import CPU, MEMORY
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from seatrial.scheduler.pods.cpu_binding import priority_class

MID, BATCH, FREE = "koord-mid", "koord-batch", "koord-free"
DEFAULT_PRIORITY = {PROD: 9500, MID: 7500, BATCH: 5500, FREE: 3500}  # of pods whose `spec.priority` is 0

# What pods of a class request in the place of cpu and memory.
EXTENDED_RESOURCES = {BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}, MID: {CPU: MID_CPU, MEMORY: MID_MEMORY}}


def class_with_default(labels: Mapping[str, str], spec: PodSpec) -> str:
    """The label, else the band of `spec.priority`, else by QoS class: batch for BE, prod for others (FWK-R63)."""
    label_priority_class = priority_class(labels, spec)
    if label_priority_class in {PROD, MID, BATCH, FREE}:
        return label_priority_class
    qos = labels.get(QOS_LABEL, "")
    if qos in {"LSE", "LSR", "LS", "SYSTEM"}:
        return PROD
    return BATCH if qos == "BE" or is_best_effort(spec) else PROD


def is_best_effort(spec: PodSpec) -> bool:
    """Whether no container requests or limits CPU or memory: Kubernetes' QoS class BestEffort."""
    return not any(
        name in amounts
        for container in (*spec.containers, *spec.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
        for name in ("cpu", "memory")
    )
