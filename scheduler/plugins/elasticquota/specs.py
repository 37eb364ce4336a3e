"""ElasticQuota objects as specs of the tree. What cannot be read is reported, and counts so that nothing fits."""

from seatrial.scheduler.api.quantity import QuantityError, amount
from seatrial.scheduler.api.quota import SHARED_WEIGHT, AnnotationError, ElasticQuota, resource_list
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.quota.tree import QuotaSpec


def read_amounts(name: str, field: str, listed: ResourceList | None, complaints: list[str]) -> dict[str, int]:
    """The amounts of a resource list. One that cannot be read counts as 0 and is reported."""
    amounts: dict[str, int] = {}
    for key, quantity in (listed or {}).items():
        try:
            amounts[key] = amount(key, quantity)
        except QuantityError as error:
            complaints.append(f"quota {name}: {field}.{key}: {error}; it counts as 0")
            amounts[key] = 0
    return amounts


def spec_of(quota: ElasticQuota, complaints: list[str]) -> QuotaSpec:
    """The spec for the tree. `complaints` gets what is wrong with the object."""
    name, spec = quota.name, quota.spec
    least = read_amounts(name, "spec.min", spec.min if spec else None, complaints)
    most = read_amounts(name, "spec.max", spec.max if spec else None, complaints)
    for key, value in least.items():
        if value > most.get(key, value):
            complaints.append(f"quota {name}: spec.min.{key} is above spec.max.{key}")
    weight = None
    try:
        weight = resource_list(quota, SHARED_WEIGHT)
    except AnnotationError as error:
        complaints.append(f"quota {name}: annotation {SHARED_WEIGHT}: {error}; the weight equals max")
    if weight is not None and not any(weight.values()):
        weight = None
    return QuotaSpec(name, quota.parent, least, most, weight, quota.lends, quota.is_parent)
