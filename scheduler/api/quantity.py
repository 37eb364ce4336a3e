"""Kubernetes quantities ("500m", "16Gi", 3) as integers, parsed once and cached.

CPU is counted in thousandths of a core, everything else in whole units (bytes, cards, percent); fractions round up, as
`Quantity.Value()` and `MilliValue()` do in k8s.io/apimachinery. Canonical text follows its `String()`.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

Amounts = dict[str, int]  # resource → amount: cpu in thousandths, everything else in whole units
Quantity = str | int | float  # YAML may have numbers without quotes; custom resources keep them as numbers

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"

_SYNTAX = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_UP = sorted(((1 << bits, suffix) for suffix, bits in _BINARY.items()), reverse=True)
_DECIMAL_UP = sorted(((10**power, suffix) for suffix, power in _DECIMAL.items() if power > 0), reverse=True)


_USUAL_LENGTH = 20  # characters
MAX_LENGTH, MAX_EXPONENT = 512, 1000  # characters, and powers of ten: the integers stay small


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""

    def __init__(self, text: object, why: str = "") -> None:
        self.text, self.why = text, why
        shown = f"{text!r:.60}" + ("…" if len(repr(text)) > 60 else "")
        found = f": {why}" if why else ""
        super().__init__(f"{shown} is not a quantity{found}; expected a number with a suffix, as in 500m, 2 or 16Gi")


@lru_cache(maxsize=65536)
def _parse(quantity: Quantity) -> tuple[Decimal, str]:
    match = _SYNTAX.fullmatch(str(quantity))
    if match is None or isinstance(quantity, bool):
        raise QuantityError(quantity)
    suffix = match["suffix"] or ""
    if len(match["number"]) > MAX_LENGTH or len(suffix) > len("e-1000"):
        raise QuantityError(quantity, f"more than {MAX_LENGTH} digits or an exponent beyond {MAX_EXPONENT}")
    number = Decimal(match["number"])
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix]), "binary"
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix]), "decimal"
    if abs(int(suffix[1:])) > MAX_EXPONENT:
        raise QuantityError(quantity, f"an exponent beyond {MAX_EXPONENT}")
    return number.scaleb(int(suffix[1:])), "exponent"


def exact(quantity: Quantity) -> Decimal:
    """The quantity itself, not rounded.

    Raises:
        QuantityError: not a quantity.
    """
    return _parse(quantity)[0]


def units(quantity: Quantity) -> int:
    """Whole units, rounded up: bytes, cards, percent.

    Raises:
        QuantityError: not a quantity.
    """
    if type(quantity) is int:
        return quantity
    return int(_parse(quantity)[0].to_integral_value(ROUND_CEILING))


def milli(quantity: Quantity) -> int:
    """Thousandths, rounded up.

    Raises:
        QuantityError: not a quantity.
    """
    return int((_parse(quantity)[0] * 1000).to_integral_value(ROUND_CEILING))


def amount(resource: str, quantity: Quantity) -> int:
    """`quantity` in the unit in which schedulers count `resource`: thousandths for CPU, whole units for others.

    Raises:
        QuantityError: not a quantity.
    """
    # Measured amounts differ each time, so the cache of parsed texts does not help: the usual forms are read here.
    if type(quantity) is str and len(quantity) < _USUAL_LENGTH and quantity.isascii():
        if quantity.isdecimal():
            return int(quantity) * 1000 if resource == CPU else int(quantity)
        if resource == CPU and quantity[-1:] == "m" and quantity[:-1].isdecimal():
            return int(quantity[:-1])
    return milli(quantity) if resource == CPU else units(quantity)


def text(resource: str, value: int) -> str:
    """The reverse of `amount`, in canonical form; memory-like resources get binary suffixes."""
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    in_bytes = resource in {MEMORY, EPHEMERAL_STORAGE} or resource.endswith("-memory")
    return binary(value) if in_bytes else str(value)


def binary(value: int) -> str:
    """Whole units with the largest binary suffix that is exact: 1073741824 → 1Gi."""
    for size, suffix in _BINARY_UP:
        if value and value % size == 0:
            return f"{value // size}{suffix}"
    return str(value)


def canonical(quantity: Quantity) -> str:
    """The text that kube-apiserver stores for it: 1024Mi → 1Gi, 0.5 → 500m, 2000m → 2.

    Raises:
        QuantityError: not a quantity.
    """
    value, form = _parse(quantity)
    if value == value.to_integral_value():
        whole = int(value)
        if whole == 0:
            return "0"
        if form == "binary":
            return binary(whole)
        for size, suffix in _DECIMAL_UP:
            if whole % size == 0:
                return f"{whole // size}{suffix}"
        return str(whole)
    for suffix in ("m", "u", "n"):
        scaled = value.scaleb(-_DECIMAL[suffix])
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return f"{int(value.scaleb(9).to_integral_value(ROUND_CEILING))}n"


def amounts(resources: Mapping[str, Quantity]) -> Amounts:
    """A resource list in integers.

    Raises:
        QuantityError: one of the amounts is not a quantity.
    """
    return {name: amount(name, quantity) for name, quantity in resources.items()}


def quantities(found: Mapping[str, int]) -> dict[str, str]:
    """Amounts as a resource list spells them, sorted by name."""
    return {name: text(name, value) for name, value in sorted(found.items())}
