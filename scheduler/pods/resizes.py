"""What a pod holds on its node while it is resized in place (KEP-1287).

Follows k8s.io/component-helpers `resource.PodRequests` with `UseStatusResources`: for each container the largest of the
requests in the spec, those that kubelet has allocated, and those that are in effect.
"""

from msgspec.structs import replace

from seatrial.scheduler.api.core import Container, ContainerStatus, Pod
from seatrial.scheduler.api.quantity import QuantityError, amount
from seatrial.scheduler.api.wire import ResourceList

_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"


def with_held_requests(pod: Pod) -> Pod:
    """The pod with what it holds as the requests of its containers; the same object if its spec says so already."""
    statuses = {
        status.name: status
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if status.allocated_resources or status.resources is not None
    }
    if not statuses:
        return pod
    spec = pod.spec
    infeasible = any(each.type == _PENDING and each.reason == _INFEASIBLE for each in pod.status.conditions)
    containers = tuple(_held(each, statuses.get(each.name), infeasible) for each in spec.containers)
    inits = tuple(_held(each, statuses.get(each.name), infeasible) for each in spec.init_containers)
    if containers == spec.containers and inits == spec.init_containers:
        return pod
    return replace(pod, spec=replace(spec, containers=containers, init_containers=inits))


def _held(container: Container, status: ContainerStatus | None, infeasible: bool) -> Container:
    if status is None:
        return container
    requests = container.resources.requests
    actual = status.resources.requests if status.resources is not None else {}
    if actual in ({}, requests) and status.allocated_resources in ({}, requests):
        return container
    held: ResourceList = {} if infeasible else {**requests}
    for reported in (actual, status.allocated_resources):
        for name, quantity in reported.items():
            if name not in held or _more(name, quantity, held[name]):
                held[name] = quantity
    return container if held == requests else replace(container, resources=replace(container.resources, requests=held))


def _more(name: str, one: str | float, other: str | float) -> bool:
    """Whether an amount is the larger one. A report that cannot be read counts for nothing."""
    try:
        return amount(name, one) > amount(name, other)
    except QuantityError:
        return False
