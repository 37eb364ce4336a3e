"""What claims ask for, compiled: selectors as expressions, amounts as numbers (DRA-R77 to DRA-R85)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.core import Toleration
from seatrial.scheduler.api.resourceclaims import (
    ALL,
    MAX_RESULTS,
    Config,
    Constraint,
    DeviceClass,
    DeviceRequest,
    Request,
    ResourceClaim,
)
from seatrial.scheduler.plugins.dynamicresources.expressions import Expression, ExpressionError, Expressions, too_long
from seatrial.scheduler.plugins.dynamicresources.inventory import Card, Counters, values_of


class AllocationError(Exception):
    """Why the search must not go on, on any node (DRA-R63)."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """A way to serve a request. `name`: `request`, or `request/subrequest`."""

    name: str
    request: DeviceRequest
    class_name: str
    class_selectors: tuple[Expression, ...]
    selectors: tuple[Expression, ...]
    capacity: Counters
    configs: tuple[Config, ...]  # of the class
    place: int  # in its request
    claim: str  # key, for messages

    @property
    def all(self) -> bool:
        return self.request.allocation_mode == ALL

    @property
    def admin(self) -> bool:
        return self.request.admin_access

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        return self.request.tolerations

    def selects(self, card: Card) -> bool:
        """Whether all selectors hold for the card.

        Raises:
            AllocationError: a selector fails for it.
        """
        of_class, of_claim = f"class {self.class_name}", f"claim {self.claim}"
        for where, selectors in ((of_class, self.class_selectors), (of_claim, self.selectors)):
            for number, selector in enumerate(selectors):
                try:
                    if not selector.holds(card.subject):
                        return False
                except ExpressionError as error:
                    raise AllocationError(
                        f"{where}: selector #{number} on device {card.name}: CEL runtime error: {error}"
                    ) from error
        return True

    def concerns(self, names: Sequence[str]) -> bool:
        """Whether a list of names of requests means this one; an empty list means all."""
        return not names or self.name in names or self.name.partition("/")[0] in names


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """What one claim asks for."""

    key: str
    requests: tuple[tuple[Alternative, ...], ...]
    constraints: tuple[Constraint, ...]
    configs: tuple[Config, ...]


def compiled(claim: ResourceClaim, classes: Mapping[str, DeviceClass], expressions: Expressions) -> Want:
    """
    Raises:
        AllocationError: a class does not exist, selectors cannot be compiled or are too long, or too much is asked for.
    """
    key = claim.metadata.key
    devices = claim.spec.devices
    exact = [way for request in devices.requests for way in (request.exactly, *request.first_available) if way]
    if text := too_long(f"claim {key}", (selector for way in exact for selector in way.selectors)):
        raise AllocationError(text)
    requests = tuple(_ways(key, request, classes, expressions) for request in devices.requests)
    want = Want(key, requests, devices.constraints, devices.config)
    so_far = 0
    for request, ways in zip(devices.requests, want.requests, strict=True):
        fewest = min(0 if way.all else way.request.count for way in ways)
        if so_far + fewest > MAX_RESULTS:
            raise AllocationError(too_many(key, request.name, fewest, so_far))
        so_far += fewest
    return want


def too_many(claim: str, request: str, more: int, so_far: int) -> str:
    """The message for a claim that would get too many devices (DRA-M43)."""
    return (
        f"claim {claim}, request {request}: adding {more} devices exceeds the claim limit of {MAX_RESULTS},"
        f" with {so_far} already accounted for"
    )


def _ways(
    key: str, request: Request, classes: Mapping[str, DeviceClass], expressions: Expressions
) -> tuple[Alternative, ...]:
    if request.exactly is not None:
        named = [(request.name, request.exactly)]
    elif request.first_available:
        named = [(f"{request.name}/{way.name}", way) for way in request.first_available]
    else:
        raise AllocationError(f"resource claim {key}, request {request.name}: unknown request type")
    ways = []
    for place, (name, target) in enumerate(named):
        of_class = classes.get(target.device_class_name)
        if of_class is None:
            raise AllocationError(f"request {name}: device class {target.device_class_name} does not exist")
        if text := too_long(f"device class {target.device_class_name}", of_class.spec.selectors):
            raise AllocationError(f"request {name}: {text}")
        ways.append(_way(name, target, of_class, expressions, place=place, claim=key))
    return tuple(ways)


def _way(
    name: str, request: DeviceRequest, of_class: DeviceClass, expressions: Expressions, *, place: int, claim: str
) -> Alternative:
    try:
        return Alternative(
            name,
            request,
            request.device_class_name,
            expressions.of(of_class.spec.selectors),
            expressions.of(request.selectors),
            values_of(request.capacity.requests if request.capacity else {}),
            of_class.spec.config,
            place,
            claim,
        )
    except ExpressionError as error:
        raise AllocationError(f"request {name}: {error}") from error
