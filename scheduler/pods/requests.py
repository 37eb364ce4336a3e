"""Requests and limits of a whole pod.

Follows k8s.io/component-helpers `resource.PodRequests`: containers are summed, an init container counts while it runs
beside the sidecars started before it, restartable init containers stay, overhead comes on top, and pod-level requests
replace the sum for the resources they may name.
"""

from collections.abc import Callable, Iterable

from seatrial.scheduler.api.core import Container, PodSpec
from seatrial.scheduler.api.quantity import CPU, MEMORY, Amounts, amount, amounts

DEFAULT_MILLI_CPU = 100  # for scores, of a container without a cpu request (k8s schedutil.DefaultMilliCPURequest)
DEFAULT_MEMORY = 200 << 20  # bytes, for scores


def pod_requests(spec: PodSpec) -> Amounts:
    """The pod's requests, zero amounts left out.

    Raises:
        QuantityError: one of the amounts is not a quantity.
    """
    return _pod_total(spec, _requests)


def nonzero_requests(spec: PodSpec) -> tuple[int, int]:
    """CPU (milli) and memory (bytes) for scores: containers without requests count with defaults."""
    total = _pod_total(spec, _assumed)
    return total.get(CPU, 0), total.get(MEMORY, 0)


def pod_limits(spec: PodSpec) -> Amounts:
    """The pod's limits as k8s.io/component-helpers `resource.PodLimits` has them, zero amounts left out.

    Overhead is added to existing limits; it does not create one.

    Raises:
        QuantityError: one of the amounts is not a quantity.
    """
    total = _containers_total(spec, lambda container: amounts(container.resources.limits))
    if spec.resources is not None:
        total.update(amounts(spec.resources.limits))
    _add(total, {name: value for name, value in amounts(spec.overhead).items() if total.get(name)})
    return {name: value for name, value in total.items() if value}


def _requests(container: Container) -> Amounts:
    requests = amounts(container.resources.requests)
    for name, limit in container.resources.limits.items():
        requests.setdefault(name, amount(name, limit))
    return requests


def _assumed(container: Container) -> Amounts:
    requests = _requests(container)
    return {CPU: requests.get(CPU, DEFAULT_MILLI_CPU), MEMORY: requests.get(MEMORY, DEFAULT_MEMORY)}


def _pod_total(spec: PodSpec, measure: Callable[[Container], Amounts]) -> Amounts:
    total = _containers_total(spec, measure)
    if spec.resources is not None:
        total.update(amounts(spec.resources.requests))
    _add(total, amounts(spec.overhead))
    return {name: value for name, value in total.items() if value}


def _containers_total(spec: PodSpec, measure: Callable[[Container], Amounts]) -> Amounts:
    total = _sum(measure(container) for container in spec.containers)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        measurement = measure(container)
        if container.restart_policy == "Always":
            _add(total, measurement)
            _add(sidecars, measurement)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum((measurement, sidecars)))
    _raise_to(total, peak)
    return total


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        _add(total, part)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value
