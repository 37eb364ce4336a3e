"""`/metrics/resources`: requests and limits of each pod, in kube-scheduler's metric families.

Source: k8s pkg/scheduler/metrics/resources.
"""

from collections.abc import Iterator

from seatrial.scheduler.api.quantity import CPU, MEMORY, Amounts, QuantityError
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.pods.requests import pod_limits, pod_requests
from seatrial.scheduler.serving.exposition import Family, exposed, sample

BYTES = frozenset({MEMORY, "storage", "ephemeral-storage"})
REQUEST, LIMIT = "kube_pod_resource_request", "kube_pod_resource_limit"


def pod_resources(core: Core) -> bytes:
    """All pods on nodes, and pending pods of our profiles; without terminated ones."""
    return exposed(_families([info for info in core.pods() if not is_reserve_pod(info.pod)]))


def _families(infos: list[PodInfo]) -> Iterator[Family]:
    for name, measure, words in (
        (LIMIT, pod_limits, "What a pod may use at most, by resource."),
        (REQUEST, pod_requests, "What a pod asks for, by resource."),
    ):
        lines = []
        for info in infos:
            try:
                lines += _samples(name, info, measure(info.pod.spec))
            except QuantityError:  # reported where the pod is scheduled
                continue
        yield name, "gauge", words, lines


def _samples(name: str, info: PodInfo, amounts: Amounts) -> list[str]:
    pod = info.pod
    labels = {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "node": info.node_name,  # also while the binding is in flight
        "scheduler": pod.spec.scheduler_name,
        "priority": str(pod.spec.priority),
    }
    return [
        sample(
            name, {**labels, "resource": resource, "unit": _unit(resource)}, value / 1000 if resource == CPU else value
        )
        for resource, value in sorted(amounts.items())
    ]


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    return "bytes" if resource in BYTES or resource.startswith("hugepages-") else "integer"
