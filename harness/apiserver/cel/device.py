"""The variable `device` of selectors of devices, with the greatest sizes of its parts (`dra: cel/compile.go`)."""

from functools import lru_cache
from typing import Final

from seatrial.harness.apiserver.cel.cost import estimated_cost
from seatrial.harness.apiserver.cel.declarations import Declared

MAX_COST: Final = 1_000_000  # of one selector (DRA-R7)
_DOMAIN, _ID, _DRIVER = Declared("string", 63), Declared("string", 32), Declared("string", 63)
_MAX_ATTRIBUTES: Final = 32  # with capacities, of a device
_ATTRIBUTE: Final = Declared("dyn", 64)


def _by_domain(item: Declared, other: Declared | None = None) -> Declared:
    inner = Declared("map", _MAX_ATTRIBUTES, key=_ID, item=item, other=other)
    return Declared("map", _MAX_ATTRIBUTES, key=_DOMAIN, item=inner)


_DEVICE: Final = Declared(
    "object",
    fields={
        "driver": _DRIVER,
        "attributes": _by_domain(_ATTRIBUTE, _ATTRIBUTE),
        "capacity": _by_domain(Declared("quantity")),
        "allowMultipleAllocations": Declared("bool", 1),
    },
)


@lru_cache(maxsize=256)
def selector_cost(expression: str) -> int:
    """The greatest cost of evaluating a selector for one device.

    Raises:
        ExpressionError: it cannot be parsed.
    """
    return estimated_cost(expression, _DEVICE, ("device",))
