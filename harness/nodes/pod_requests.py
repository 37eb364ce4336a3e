"""What a whole pod requests of its node, as kubelet computes it when it admits the pod.

The harness checks schedulers with this, so it does not share the scheduler's code. Follows k8s.io/component-helpers
`resource.PodRequests`:

- The requests of containers and of restartable init containers (sidecars) are added up.
- An ordinary init container needs its own requests plus those of the sidecars started before it; the pod needs at
  least the largest such sum.
- A resource named at pod level replaces the sum.
- Overhead is added last.
"""

from collections import Counter
from collections.abc import Mapping

from seatrial.harness.apiserver.quantities import Amounts, Quantity, amount
from seatrial.scheduler.api.core import Container, PodSpec


def pod_requests(spec: PodSpec) -> Amounts:
    """The pod's requests: CPU in thousandths, other resources in whole units; zero amounts are left out.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    steady: Counter[str] = Counter()
    for container in spec.containers:
        steady.update(_container_requests(container))
    peak: dict[str, int] = {}
    started: Counter[str] = Counter()  # sidecars that run already
    for container in spec.init_containers:
        requests = _container_requests(container)
        if container.restart_policy == "Always":
            started.update(requests)
            moment = started
        else:
            moment = started + Counter(requests)
        for name, value in moment.items():
            peak[name] = max(value, peak.get(name, 0))
    total = {name: steady[name] + started[name] for name in steady.keys() | started.keys()}
    for name, value in peak.items():
        total[name] = max(value, total.get(name, 0))
    if spec.resources is not None:
        total.update(_in_integers(spec.resources.requests))
    for name, value in _in_integers(spec.overhead).items():
        total[name] = total.get(name, 0) + value
    return {name: value for name, value in sorted(total.items()) if value}


def _container_requests(container: Container) -> Amounts:
    """The container's requests; a limit without a request is the request."""
    return _in_integers({**container.resources.limits, **container.resources.requests})


def _in_integers(resources: Mapping[str, Quantity]) -> Amounts:
    return {name: amount(name, quantity) for name, quantity in resources.items()}
