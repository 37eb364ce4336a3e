"""Kubernetes quantities ("500m", "16Gi", 3) as integers, parsed once and cached.

CPU is counted in thousandths of a core, everything else in whole units (bytes, cards, percent); fractions round up, as
`Quantity.Value()` and `MilliValue()` do in k8s.io/apimachinery. Canonical text follows its `String()`.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from seatrial.scheduler.api.integers import MAX_INT64
from seatrial.scheduler.api.wrong_values import shown

Amounts = dict[str, int]  # resource → amount: cpu in thousandths, everything else in whole units
Quantity = str | int | float  # YAML may have numbers without quotes; custom resources keep them as numbers

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"

MAX_LENGTH = 512  # characters
MAX_AMOUNT = 1 << 53  # eight pebibytes, or nine trillion cores
_SYNTAX = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*+)(?:\.(?P<rest>\d*+))?(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d++)?", re.ASCII
)
_NANO = 10**9
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_UP = sorted(((1 << bits, suffix) for suffix, bits in _BINARY.items()), reverse=True)
_DECIMAL_UP = sorted(((10**power, suffix) for suffix, power in _DECIMAL.items() if power > 0), reverse=True)
_USUAL_LENGTH = 18  # characters


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""

    def __init__(self, quantity: object, why: str = "") -> None:
        self.text = str(quantity)
        line = f": {why}" if why else ""
        super().__init__(
            f"{shown(quantity)} is not a quantity{line}; expected a number with a suffix, as in 500m, 2 or 16Gi"
        )


def _nanos(quantity: Quantity) -> int:
    """Billionths, rounded away from zero, and cut at MAX_INT64 units, as `ParseQuantity` does with binary suffixes."""
    if type(quantity) is int:
        return max(-MAX_INT64, min(quantity, MAX_INT64)) * _NANO
    if type(quantity) is str and len(quantity) > MAX_LENGTH:
        raise QuantityError(quantity, f"more than {MAX_LENGTH} characters")
    return _parsed(quantity)


@lru_cache(maxsize=65536, typed=True)
def _parsed(quantity: Quantity) -> int:
    match = _SYNTAX.fullmatch(str(quantity))
    if match is None or isinstance(quantity, bool) or not (match["whole"] or match["rest"]):
        raise QuantityError(quantity)
    whole, rest, suffix = match["whole"].lstrip("0"), (match["rest"] or "").rstrip("0"), match["suffix"] or ""
    power = _DECIMAL.get(suffix, 0) if suffix[1:] in {"", "i"} else int(suffix[1:])
    if abs(power) > MAX_INT64:
        raise QuantityError(quantity, "an exponent of more than 64 bits")
    digits = (whole + rest).lstrip("0")
    power -= len(rest)
    size = len(digits) + power  # below 10**size, and 10**(size - 1) or more
    if size > 19 and digits:
        nanos = MAX_INT64 * _NANO
    elif size < -27:  # less than a billionth, with any suffix
        nanos = int(bool(digits))
    else:
        number, shift = int(digits or "0") << _BINARY.get(suffix, 0), power + 9
        nanos = min(number * 10**shift if shift >= 0 else -(-number // 10**-shift), MAX_INT64 * _NANO)
    return -nanos if match["sign"] == "-" else nanos


def exact(quantity: Quantity) -> Fraction:
    """The quantity itself, not rounded to units.

    Raises:
        QuantityError: not a quantity.
    """
    return Fraction(_nanos(quantity), _NANO)


def units(quantity: Quantity) -> int:
    """Whole units, rounded up: bytes, cards, percent.

    Raises:
        QuantityError: not a quantity.
    """
    return -(-_nanos(quantity) // _NANO)


def milli(quantity: Quantity) -> int:
    """Thousandths, rounded up.

    Raises:
        QuantityError: not a quantity.
    """
    return -(-_nanos(quantity) // 10**6)


def amount(resource: str, quantity: Quantity) -> int:
    """`quantity` in the unit in which schedulers count `resource`: thousandths for CPU, whole units for others.

    It is cut at MAX_AMOUNT, so that a thousand such amounts can be added in 64 bits.

    Raises:
        QuantityError: not a quantity.
    """
    if type(quantity) is not str or len(quantity) > _USUAL_LENGTH:
        return _cut(milli(quantity) if resource == CPU else units(quantity))
    if resource == CPU:
        return _cores(quantity)
    # Measured amounts of memory differ each time, so a cache does not help: the usual form is read here.
    return min(int(quantity), MAX_AMOUNT) if quantity.isascii() and quantity.isdecimal() else _cut(units(quantity))


@lru_cache(maxsize=65536)
def _cores(quantity: str) -> int:
    return _cut(milli(quantity))


def _cut(value: int) -> int:
    return max(-MAX_AMOUNT, min(value, MAX_AMOUNT))


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
    nanos = _nanos(quantity)
    whole, left = divmod(nanos, _NANO)
    if not left:
        if str(quantity).endswith("i"):
            return binary(whole)
        size, suffix = next(((size, suffix) for size, suffix in _DECIMAL_UP if whole and whole % size == 0), (1, ""))
        return f"{whole // size}{suffix}"
    size, suffix = next((size, suffix) for size, suffix in ((10**6, "m"), (1000, "u"), (1, "n")) if nanos % size == 0)
    return f"{nanos // size}{suffix}"


def amounts(resources: Mapping[str, Quantity]) -> Amounts:
    """A resource list in integers.

    Raises:
        QuantityError: one of the amounts is not a quantity.
    """
    return {name: amount(name, quantity) for name, quantity in resources.items()}


def quantities(counts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as a resource list spells them, sorted by name."""
    return {name: text(name, value) for name, value in sorted(counts.items())}
