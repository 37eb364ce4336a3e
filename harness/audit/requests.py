"""Requests of a pod as the API defines them, in integers; the auditor's own arithmetic, not the scheduler's."""

from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.scheduler.api.core import Container, Pod
from seatrial.scheduler.api.device import RENAMED


def requests_of(pod: Pod) -> Amounts:
    """What the pod occupies on its node: the larger of containers and init containers, sidecars and overhead added."""
    running: Amounts = {}
    for container in pod.spec.containers:
        _add(running, _requests(container, pod))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in pod.spec.init_containers:
        own = _requests(container, pod)
        if container.restart_policy == "Always":
            _add(sidecars, own)
            own = {}
        for name in own.keys() | sidecars.keys():
            highest[name] = max(highest.get(name, 0), own.get(name, 0) + sidecars.get(name, 0))
    _add(running, sidecars)
    for name, value in highest.items():
        running[name] = max(running.get(name, 0), value)
    if pod.spec.resources is not None:
        running.update(amounts(pod.spec.resources.requests))
    _add(running, amounts(pod.spec.overhead))
    return {name: value for name, value in current_names(running).items() if value}


def current_names(counts: Amounts) -> Amounts:
    """Replace the device resource names of v0.7; where both are given, the new name counts."""
    return {name: value for name, value in counts.items() if name not in RENAMED} | {
        RENAMED[name]: value for name, value in counts.items() if name in RENAMED and RENAMED[name] not in counts
    }


def _requests(container: Container, pod: Pod) -> Amounts:
    """While the container is resized: the largest of what it asks for, was given and has; not what it cannot get."""
    requests = {**amounts(container.resources.limits), **amounts(container.resources.requests)}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if status.name == container.name:
            actual = status.resources.requests if status.resources is not None else {}
            totals = [amounts(reported) for reported in (status.allocated_resources, actual) if reported]
            counted = totals if totals and _is_infeasible(pod) else [requests, *totals]
            return {name: max(each.get(name, 0) for each in counted) for each in counted for name in each}
    return requests


def _is_infeasible(pod: Pod) -> bool:
    return any(each.type == "PodResizePending" and each.reason == "Infeasible" for each in pod.status.conditions)


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value
