"""Rules about the status that a client writes, of workloads, Services and namespaces."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from seatrial.harness.apiserver.field_errors import Causes, forbidden, invalid
from seatrial.harness.apiserver.storage.store import Object
from seatrial.harness.apiserver.validation.pod_groups import check_pod_group_status

_REPLICAS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def _check_counts(names: Iterable[str], obj: Object, causes: Causes) -> None:
    """Numbers of pods are not negative; parts are not more than all, nor available ones more than ready ones."""
    status = obj.get("status") or {}
    for name in (*names, "observedGeneration"):
        if status.get(name, 0) < 0:
            causes.append(invalid(f"status.{name}", status[name], "must be greater than or equal to 0"))
    for name in names:
        if status.get(name, 0) > status.get("replicas", 0):
            causes.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        available_replicas = status["availableReplicas"]
        causes.append(invalid("status.availableReplicas", available_replicas, "cannot be greater than readyReplicas"))


def _check_service(obj: Object, causes: Causes) -> None:
    if ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") and obj["spec"].get(
        "type"
    ) != "LoadBalancer":
        causes.append(forbidden("status.loadBalancer.ingress", 'may only be used when `spec.type` is "LoadBalancer"'))


def _check_namespace(obj: Object, causes: Causes) -> None:
    phase, deleted = (obj.get("status") or {}).get("phase"), "deletionTimestamp" in obj["metadata"]
    if deleted and phase != "Terminating":
        causes.append(invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
    elif not deleted and phase != "Active":
        causes.append(invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"))


STATUS_CHECKS: Final[dict[tuple[str, str], Callable[[Object, Causes], None]]] = {
    ("apps", "Deployment"): partial(_check_counts, _REPLICAS),
    ("apps", "ReplicaSet"): partial(_check_counts, ("replicas", "fullyLabeledReplicas", *_REPLICAS[2:])),
    ("apps", "StatefulSet"): partial(_check_counts, ("replicas", "currentReplicas", *_REPLICAS[1:])),
    ("scheduling.k8s.io", "PodGroup"): check_pod_group_status,
    ("", "Service"): _check_service,
    ("", "Namespace"): _check_namespace,
}
