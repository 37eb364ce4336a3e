"""The estimated usage of a pod that NodeMetric does not report yet (FWK-R57 to FWK-R59)."""

from collections.abc import Mapping, Sequence

import msgspec

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import PROD
from seatrial.scheduler.api.quantity import CPU, MEMORY, Amounts
from seatrial.scheduler.api.slo import (
    BATCH_CPU,
    BATCH_MEMORY,
    ESTIMATED_AFTER_INITIALIZED,
    ESTIMATED_AFTER_SCHEDULED,
    ESTIMATED_FACTORS,
)
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.pods.priority import EXTENDED_RESOURCES
from seatrial.scheduler.pods.requests import pod_limits, pod_requests

Vector = tuple[int, ...]  # amounts in the order of `LoadAwareSchedulingArgs.names`

_TRANSLATED = {**EXTENDED_RESOURCES, PROD: {CPU: CPU, MEMORY: MEMORY}}
_WITHOUT_REQUEST = {CPU: 250, BATCH_CPU: 250, MEMORY: 200 << 20, BATCH_MEMORY: 200 << 20}


def estimate(
    requests: Amounts, limits: Amounts, priority_class: str, factors: Mapping[str, int], names: Sequence[str]
) -> Vector:
    """The estimate for each of `names`; 0 for a resource without a factor.

    The larger of request and limit is multiplied by the factor in percent, rounded, and capped at the limit. Pods of
    the class koord-free have no CPU and memory of their own, so they estimate 0.
    """
    translated = _TRANSLATED.get(priority_class, {CPU: "", MEMORY: ""})
    results = []
    for name in names:
        own = translated.get(name, name)
        limit = limits.get(own, 0)
        amount = max(limit, requests.get(own, 0))
        if name not in factors:
            results.append(0)
        elif not amount:
            results.append(_WITHOUT_REQUEST.get(own, 0))
        else:
            value = (2 * amount * factors[name] + 100) // 200
            results.append(min(value, limit) if limit else value)
    return tuple(results)


class Estimator:
    """Upstream's `defaultEstimator`."""

    def __init__(self, args: LoadAwareSchedulingArgs) -> None:
        self._names = args.names
        self._factors = args.factors
        self._custom = args.allow_customize_estimation
        self._after_scheduled = args.estimated_seconds_after_pod_scheduled
        self._after_initialized = args.estimated_seconds_after_initialized

    def of(self, pod: Pod, priority_class: str) -> Vector:
        """The estimate for one pod.

        Raises:
            QuantityError: an amount of the pod is not a quantity.
        """
        factors = self._factors
        if self._custom:
            factors = {**factors, **_custom_factors(pod.metadata.annotations)}
        return estimate(pod_requests(pod.spec), pod_limits(pod.spec), priority_class, factors, self._names)

    def deadline(self, pod: Pod, assigned: float) -> float:
        """Until when the pod counts with its estimate even if it is reported, seconds since 1970; 0: no such time.

        `assigned`: when the pod was put on its node.
        """
        after_scheduled, after_initialized = self._after_scheduled, self._after_initialized
        if self._custom:
            annotations = pod.metadata.annotations
            after_scheduled = _custom_seconds(annotations, ESTIMATED_AFTER_SCHEDULED, after_scheduled)
            after_initialized = _custom_seconds(annotations, ESTIMATED_AFTER_INITIALIZED, after_initialized)
        if after_initialized is not None and after_initialized > 0:
            initialized = moment_of(pod, "Initialized")
            if initialized is not None:
                return initialized + after_initialized
        if after_scheduled is not None and after_scheduled > 0:
            return assigned + after_scheduled
        return 0.0


def moment_of(pod: Pod, condition: str) -> float | None:
    """When the condition became True, seconds since 1970; None if it is not."""
    for item in pod.status.conditions:
        if item.type == condition and item.status == "True":
            return read_time(item.last_transition_time)
    return None


def _custom_factors(annotations: Mapping[str, str]) -> dict[str, int]:
    """The pod's own factors; none if the annotation cannot be parsed, as upstream."""
    try:
        return decode_as(annotations.get(ESTIMATED_FACTORS) or "{}", dict[str, int])
    except msgspec.DecodeError:
        return {}


def _custom_seconds(annotations: Mapping[str, str], key: str, default: int | None) -> int | None:
    """The annotation if it is an integer of 0 or more."""
    value = integer(annotations.get(key, ""), 0)
    return default if value is None else value
