"""What is known about the values in a CEL expression, and what calls of functions cost at most.

Costs and sizes of results are those of `apiserver/pkg/cel/library/cost.go` and of `cel-go/checker/cost.go`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from seatrial.harness.apiserver.cel.declarations import Declared

UNLIMITED: Final = 2**64 - 1
TRAVERSAL: Final = 0.1  # cost of a character
_PATTERN: Final = 0.25  # cost of a character of a pattern, for each unit of the text
_FORMAT_PATTERN: Final = 128  # characters of the pattern of a named format
DYNAMIC: Final = Declared("dyn")
BOOL, INT, _STRING = Declared("bool"), Declared("int"), Declared("string")
_STRINGS: Final = Declared("list", item=_STRING)
FIXED_SIZE: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint", "null"})


@dataclass(frozen=True, slots=True)
class Size:
    """The least and the greatest number of characters, items or entries."""

    low: int
    high: int

    def __add__(self, other: "Size") -> "Size":
        return Size(capped(self.low + other.low), capped(self.high + other.high))

    def __mul__(self, other: "Size") -> "Size":
        return Size(capped(self.low * other.low), capped(self.high * other.high))

    def __or__(self, other: "Size") -> "Size":
        return Size(min(self.low, other.low), max(self.high, other.high))


_UNKNOWN: Final = Size(0, UNLIMITED)
ONE: Final = Size(1, 1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known about the value of an expression. `entries` are the sizes of keys and values that it holds."""

    cost: int
    type: Declared = DYNAMIC
    size: Size = _UNKNOWN
    entries: tuple[Size, Size] | None = None
    place: Declared | None = None  # the part of the schema that limits sizes below the value
    constant: int | None = None  # of a literal number

    def costing(self, cost: int) -> "Estimate":
        return replace(self, cost=capped(cost))


def capped(value: float) -> int:
    """A cost as a whole number, at most `UNLIMITED`."""
    return UNLIMITED if value >= UNLIMITED else int(value)


def share(size: int, factor: float) -> int:
    """The cost of an operation that costs `factor` for each of `size` elements; `UNLIMITED` for an unlimited size."""
    return UNLIMITED if size >= UNLIMITED else capped(math.ceil(size * factor))


def of_type(kind: Declared, cost: int, *, size: Size | None = None) -> Estimate:
    """The estimate of a value of a type. Without `size`, types of fixed size have size one, others an unknown one."""
    if size is None:
        size = ONE if kind.kind in FIXED_SIZE else _UNKNOWN
    return Estimate(capped(cost), kind, size)


def at_place(kind: Declared, place: Declared | None, cost: int = 1, size: Size | None = None) -> Estimate:
    """A variable or a field: the schema limits its size, or else its type, or `size`."""
    if place is None:
        return of_type(kind, cost, size=ONE if kind.kind in FIXED_SIZE else size)
    return Estimate(capped(cost), kind, Size(0, place.max_size), None, place)


def _item(read: Estimate) -> Estimate:
    """An item of a list for functions over lists."""
    kind = read.type.item or DYNAMIC
    return at_place(kind, read.place.item if read.place is not None else None)


Cost = Callable[[Estimate | None, Sequence[Estimate]], tuple[int, Declared, Size | None]]


def call_estimate(name: str, target: Estimate | None, targets: Sequence[Estimate], spent: int) -> Estimate:
    """The estimate of a call whose target and arguments cost `spent`."""
    rule = _FUNCTIONS.get(name)
    if rule is None:
        return of_type(_RESULTS.get(name, DYNAMIC), spent + 1)
    cost, kind, size = rule(target, targets)
    return of_type(kind, spent + cost, size=size)


def _traversed(times: float, result: Declared, *, sized: bool = False) -> Cost:
    """A function that reads a text: the target, or else the first argument. `sized`: the result is at most as long."""

    def cost(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
        read = target or targets[0]
        return share(read.size.high, times * TRAVERSAL), result, read.size if sized else None

    return cost


def _matches(result: Declared) -> Cost:
    def cost(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
        read, pattern = (target, targets[0]) if target is not None else (targets[0], targets[-1])
        units = capped(share(capped(read.size.high + 1), TRAVERSAL) * share(pattern.size.high, _PATTERN))
        return units, result, Size(0, read.size.high) if result is not BOOL else None

    return cost


def _first_argument(_: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    return share(targets[0].size.high, TRAVERSAL), BOOL, None


def _contains(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    texts = [part for part in (target, *targets) if part is not None]
    return capped(math.prod(share(text.size.high, TRAVERSAL) for text in texts)), BOOL, None


def _over_items(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    read = target or targets[0]
    if read.type.kind != "list":  # indexOf of a text
        return share(read.size.high, TRAVERSAL), INT, None
    item = _item(read)
    each = 1 + (share(item.size.high, TRAVERSAL) if item.type.kind in {"string", "bytes"} else 0)
    return capped(read.size.high * each), item.type, None


def _replaced(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    read, old, new = target or targets[0], targets[0].size, targets[1].size
    longest = read.size.high
    if old.low == 0:
        size = capped(capped((longest + 1) * new.high) + longest)
    elif new.high <= old.low:
        size = longest
    else:
        size = capped(math.ceil(longest / old.low) * new.high)
    return share(longest, 2 * TRAVERSAL), _STRING, Size(0, size)


def _split(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    read = target or targets[0]
    most = targets[1].constant if len(targets) > 1 and targets[1].constant is not None else read.size.high
    return share(read.size.high, 2 * TRAVERSAL), _STRINGS, Size(0, most if most >= 0 else UNLIMITED)


def _joined(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    read = target or targets[0]
    item = _item(read)
    size = read.size * item.size
    if targets:
        size += targets[0].size * Size(max(0, read.size.low - 1), max(0, read.size.high - 1))
    return share(size.high, TRAVERSAL), _STRING, size


def _sets(times: int) -> Cost:
    def cost(_: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
        return capped(times * capped(math.prod(part.size.high for part in targets)) + 1), BOOL, None

    return cost


def _network(_: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    other = targets[0]
    text = share(other.size.high, TRAVERSAL) if other.type.kind in {"string", "dyn"} else 0
    return share(32, TRAVERSAL) + text, BOOL, None


def _networks(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    cost, kind, size = _network(target, targets)
    return cost + share(16, TRAVERSAL) + 1, kind, size


def _validated(_: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    return share(share(targets[0].size.high, TRAVERSAL), _FORMAT_PATTERN * _PATTERN), DYNAMIC, None


def _address(target: Estimate | None, targets: Sequence[Estimate]) -> tuple[int, Declared, Size | None]:
    return (1 if target is not None else share(targets[0].size.high, TRAVERSAL)), Declared("ip"), None


_RESULTS: Final = {
    **dict.fromkeys(("size", "int", "compareTo", "sign", "asInteger", "family", "prefixLength"), INT),
    **dict.fromkeys(("string", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), _STRING),
    **dict.fromkeys(("isGreaterThan", "isLessThan", "isInteger", "isURL", "hasValue"), BOOL),
    "double": Declared("double"),
    "duration": Declared("duration"),
    "timestamp": Declared("timestamp"),
    "type": Declared("type"),
}
_FUNCTIONS: Final[dict[str, Cost]] = {
    **dict.fromkeys(("startsWith", "endsWith"), _first_argument),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _traversed(1, _STRING, sized=True)),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_items),
    **dict.fromkeys(("isIP", "isCIDR", "isQuantity", "isSemver"), _traversed(1, BOOL)),
    **dict.fromkeys(("url", "cidr", "quantity", "semver"), _traversed(1, Declared("opaque"))),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _sets(1)),
    "sets.equivalent": _sets(2),
    "ip": _address,
    "ip.isCanonical": _traversed(2, BOOL),
    "matches": _matches(BOOL),
    "find": _matches(_STRING),
    "findAll": _matches(_STRINGS),
    "contains": _contains,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "containsIP": _network,
    "containsCIDR": _networks,
    "validate": _validated,
}
