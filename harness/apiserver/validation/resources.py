"""Validation of resource names, quantities, requests and limits.

A name with its own domain (`nvidia.com/gpu`, `koordinator.sh/gpu-core`) is an extended resource: quantities are
integers, and the request must equal the limit. Names of `kubernetes.io/` are native and may be overcommitted.
"""

from functools import lru_cache
from typing import Any

from seatrial.harness.apiserver import quantities as quantity
from seatrial.harness.apiserver.field_errors import Cause, Causes, forbidden, invalid, required
from seatrial.harness.apiserver.names import Object, qualified
from seatrial.harness.apiserver.text_cache import LONGEST, cached

NOT_NEGATIVE = "must be greater than or equal to 0"
POSITIVE = "must be greater than zero"

_SYNTAX = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_STANDARD = frozenset({quantity.CPU, quantity.MEMORY, quantity.EPHEMERAL_STORAGE})
_COMPUTE = frozenset({quantity.CPU, quantity.MEMORY})
_HUGEPAGES = "hugepages-"
_WHOLE_BY_NAME = frozenset(
    {
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)


@cached()
def is_extended(resource: str) -> bool:
    """Whether this is an extended resource, advertised by a device plugin."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


@cached()
def _may_be_overcommitted(resource: str) -> bool:
    return not is_extended(resource) and not resource.startswith(_HUGEPAGES)


def milli(value: Any) -> int | None:
    """The quantity in thousandths; None if it is not a quantity."""
    try:
        return quantity.milli(value)
    except (quantity.QuantityError, ArithmeticError):
        return None


@lru_cache(maxsize=4096, typed=True)
def _problems(resource: str, value: Any, *, of_container: bool) -> tuple[Cause, ...]:
    """The problems of one entry of a resource list, as causes with an empty field."""
    causes: Causes = []
    for problem in qualified(resource):
        causes.append(invalid("", resource, problem))
    if not causes and of_container:
        if "/" not in resource and resource not in _STANDARD and not resource.startswith(_HUGEPAGES):
            causes.append(invalid("", resource, "must be a standard resource type or fully qualified"))
            causes.append(invalid("", resource, "must be a standard resource for containers"))
        elif "/" in resource and not is_extended(resource) and "kubernetes.io/" not in resource:
            causes.append(invalid("", resource, "doesn't follow extended resource name standard"))
    amount = milli(value)
    if amount is None:
        causes.append(invalid("", value, _SYNTAX))
        return tuple(causes)
    if amount < 0:
        causes.append(invalid("", str(value), NOT_NEGATIVE))
    if amount % 1000 and (is_extended(resource) or resource in _WHOLE_BY_NAME):
        causes.append(Cause("", "FieldValueInvalid", f'Invalid value: "{value}": must be an integer'))
    if resource.startswith(_HUGEPAGES) and of_container:
        page = milli(resource.removeprefix(_HUGEPAGES))
        if page is None or page <= 0 or amount % page:
            causes.append(invalid("", str(value), f"{value} is not positive integer multiple of {resource}"))
    return tuple(causes)


def check_list(resources: Object, path: str, causes: Causes, *, of_container: bool = False) -> None:
    """Check the names and quantities of one resource list."""
    for resource, value in resources.items():
        find = _problems if len(resource) <= LONGEST else _problems.__wrapped__  # long ones are not kept
        problems = find(resource, value, of_container=of_container)
        if problems:
            causes.extend(problem._replace(field=f"{path}[{resource}]") for problem in problems)


def check_requirements(resources: Object, path: str, causes: Causes) -> None:
    """Check a container's requests and limits."""
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    if limits:
        check_list(limits, f"{path}.limits", causes, of_container=True)
    if requests:
        check_list(requests, f"{path}.requests", causes, of_container=True)
    for resource, value in requests.items():
        limit = limits.get(resource)
        if limit is None:
            if not _may_be_overcommitted(resource):
                causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
            continue
        if limit == value:
            continue
        requested, maximum = milli(value), milli(limit)
        if requested is None or maximum is None or requested == maximum:
            continue
        if not _may_be_overcommitted(resource):
            causes.append(invalid(f"{path}.requests", str(value), f"must be equal to {resource} limit of {limit}"))
        elif requested > maximum:
            problem = f"must be less than or equal to {resource} limit of {limit}"
            causes.append(invalid(f"{path}.requests", str(value), problem))
    names = limits.keys() | requests.keys()
    if not names & _COMPUTE and any(name.startswith(_HUGEPAGES) for name in names):
        causes.append(forbidden(path, "HugePages require cpu or memory"))
