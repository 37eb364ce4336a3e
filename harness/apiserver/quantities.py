"""Kubernetes quantities ("500m", "16Gi", 3) as integers and back: the harness' own arithmetic.

The harness judges schedulers, so it does not use `seatrial.scheduler.api.quantity`; a test compares the two. CPU is
counted in thousandths of a core, everything else in whole units; fractions round up, as `Quantity.Value()` and
`MilliValue()` do in k8s.io/apimachinery. Canonical text follows `Quantity.String()` there.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil

from seatrial.scheduler.api.wrong_values import shown

Quantity = str | int | float  # YAML may have numbers without quotes; custom resources keep them as numbers
Amounts = dict[str, int]  # resource → amount: cpu in thousandths, everything else in whole units

CPU, MEMORY, PODS, EPHEMERAL_STORAGE = "cpu", "memory", "pods", "ephemeral-storage"
MAX_LENGTH = 512  # characters
LARGEST = Fraction(2**63 - 1)  # larger amounts count as this one, as in `ParseQuantity`
_NANO = 10**9
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+)|([A-Za-z]?[A-Za-z]?))", re.ASCII)
_POWERS = {
    "": Fraction(1),
    "n": Fraction(1, _NANO),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_LARGEST_FIRST = ("E", "P", "T", "G", "M", "k")
_LARGEST_BINARY_FIRST = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""

    def __init__(self, text: object, why: str = "") -> None:
        self.why = why
        reason = f": {why}" if why else ""
        super().__init__(
            f"{shown(text)} is not a quantity{reason}; expected a number with a suffix, as in 500m, 2 or 16Gi"
        )


def exact(quantity: Quantity) -> Fraction:
    """The quantity itself, rounded away from zero to billionths only.

    Raises:
        QuantityError: not a quantity.
    """
    if isinstance(quantity, str) and len(quantity) > MAX_LENGTH:
        raise QuantityError(quantity, f"more than {MAX_LENGTH} characters")
    if type(quantity) is int:
        return max(-LARGEST, min(Fraction(quantity), LARGEST))
    return _read(quantity)


@lru_cache(maxsize=65536, typed=True)
def _read(quantity: Quantity) -> Fraction:
    match = None if isinstance(quantity, bool) else _NUMBER.fullmatch(str(quantity))
    sign, whole, fraction, exponent, suffix = match.groups(default="") if match is not None else ("",) * 5
    if not whole + fraction or suffix not in _POWERS or abs(int(exponent or 0)) > LARGEST:
        raise QuantityError(quantity)
    power = max(-2 * MAX_LENGTH, min(int(exponent or 0), 2 * MAX_LENGTH))  # beyond them nothing changes
    value = Fraction(int(whole + fraction), 10 ** len(fraction)) * _POWERS[suffix] * Fraction(10) ** power
    value = min(Fraction(ceil(value * _NANO), _NANO), LARGEST)
    return -value if sign == "-" else value


def units(quantity: Quantity) -> int:
    """Whole units, rounded up: bytes, cards, percent.

    Raises:
        QuantityError: not a quantity.
    """
    return ceil(exact(quantity))


def milli(quantity: Quantity) -> int:
    """Thousandths, rounded up.

    Raises:
        QuantityError: not a quantity.
    """
    return ceil(1000 * exact(quantity))


def amount(resource: str, quantity: Quantity) -> int:
    """The quantity in the unit in which the resource is counted: thousandths for CPU, whole units for others.

    Raises:
        QuantityError: not a quantity.
    """
    return milli(quantity) if resource == CPU else units(quantity)


def amounts(resources: Mapping[str, Quantity]) -> Amounts:
    """A resource list in integers.

    Raises:
        QuantityError: one of the amounts is not a quantity.
    """
    return {name: amount(name, quantity) for name, quantity in resources.items()}


def text(resource: str, value: int) -> str:
    """The reverse of `amount`, in canonical form; resources in bytes get binary suffixes."""
    if resource == CPU:
        cores, rest = divmod(value, 1000)
        return f"{value}m" if rest else str(cores)
    if resource in {MEMORY, EPHEMERAL_STORAGE} or resource.endswith("-memory"):
        return binary(value)
    return str(value)


def quantities(counts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as a resource list has them, sorted by name."""
    return {name: text(name, counts[name]) for name in sorted(counts)}


def binary(value: int) -> str:
    """Whole units with the largest binary suffix that is exact: 1073741824 → 1Gi."""
    return _shortened(value, _LARGEST_BINARY_FIRST)


@lru_cache(maxsize=65536, typed=True)
def canonical(quantity: Quantity) -> str:
    """The text that kube-apiserver stores for it: 1024Mi → 1Gi, 0.5 → 500m, 2000m → 2.

    Raises:
        QuantityError: not a quantity.
    """
    value = exact(quantity)
    if value.denominator == 1:
        in_binary = str(quantity).endswith("i")
        return _shortened(value.numerator, _LARGEST_BINARY_FIRST if in_binary else _LARGEST_FIRST)
    for suffix, parts in (("m", 1000), ("u", 10**6)):
        if (value * parts).denominator == 1:
            return f"{(value * parts).numerator}{suffix}"
    return f"{value * _NANO}n"


def _shortened(value: int, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes:
        size = _POWERS[suffix].numerator
        if value and value % size == 0:
            return f"{value // size}{suffix}"
    return str(value)
