"""The QoS class of a pod, computed from its CPU and memory requests and limits."""

from typing import Any

from seatrial.harness.apiserver import quantities as quantity

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
_COMPUTE = (quantity.CPU, quantity.MEMORY)


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed if all containers have limits for both that equal their requests; BestEffort if none has any.

    Pod-level resources, if set, are used instead of the containers'. Follows `pkg/apis/core/helper/qos`.
    """
    own = spec.get("resources")
    if own and (own.get("requests") or own.get("limits")):
        parts = [own]
    else:
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        parts = [container.get("resources") or {} for container in containers]
    requested, guaranteed = False, True
    for part in parts:
        requests, limits = part.get("requests") or {}, part.get("limits") or {}
        for resource in _COMPUTE:
            limit = _positive(limits.get(resource))
            request = _positive(requests.get(resource)) if resource in requests else limit
            requested = requested or bool(request or limit)
            guaranteed = guaranteed and bool(limit) and request == limit
    if not requested:
        return BEST_EFFORT
    return GUARANTEED if guaranteed else BURSTABLE


def _positive(value: quantity.Quantity | None) -> int:
    return 0 if value is None else max(quantity.milli(value), 0)
