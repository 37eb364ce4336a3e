"""Kubernetes' CEL functions by name: strings, lists, sets, regular expressions, and Kubernetes' own types.

cel-python looks a function up by name only, for `f(x)` and `x.f()` alike; overloads are resolved by the types of the
arguments. The name of a namespaced function includes the namespace.
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from fractions import Fraction
from functools import wraps
from types import MappingProxyType
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from seatrial.scheduler.api.cel.formatting import formatted
from seatrial.scheduler.api.cel.patterns import compiled
from seatrial.scheduler.api.cel.values import NONE, Amount, Cidr, Ip, Optional, Semver, Url

Function = Callable[..., Any]
_TEXT: Final = celtypes.StringType
_INT: Final = celtypes.IntType
_LIST: Final = celtypes.ListType


class NoOverload(TypeError):
    """The function has no overload for these arguments."""


def cel(value: Any) -> Any:
    """A plain Python value as a cel-python value."""
    match value:
        case bool():
            return celtypes.BoolType(value)
        case (
            celtypes.BoolType()
            | celtypes.IntType()
            | celtypes.UintType()
            | celtypes.StringType()
            | celtypes.BytesType()
        ):
            return value
        case int():
            return _INT(value)
        case float():
            return celtypes.DoubleType(value)
        case str():
            return _TEXT(value)
        case celtypes.ListType() | celtypes.MapType():
            return value
        case list() | tuple():
            return _LIST([cel(element) for element in value])
        case dict():
            return celtypes.MapType({cel(name): cel(element) for name, element in value.items()})
        case _:
            return value


def _function(work: Function) -> Function:
    """Adapt a function to cel-python: errors are returned as values, and error arguments are passed through."""

    @wraps(work)
    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, CELEvalError):
                return argument
        try:
            return cel(work(*arguments))
        except (TypeError, AttributeError) as error:
            return CELEvalError("no such overload", type(error), error.args)
        except (ValueError, IndexError, OverflowError, re.error) as error:
            return CELEvalError(str(error), type(error), error.args)

    return call


def of_kind(kind: type | tuple[type, ...], *values: Any) -> None:
    """Check that all values are of type `kind`.

    Raises:
        NoOverload: a value is of another type.
    """
    for candidate in values:
        if not isinstance(candidate, kind):
            raise NoOverload(type(candidate).__name__)


# -- text --------------------------------------------------------------------------------------------------------------


def _char_at(text: str, at: int) -> str:
    of_kind(str, text)
    if not 0 <= at <= len(text):
        raise IndexError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, list):
        return next((at for at, element in enumerate(where) if element == what), -1)
    of_kind(str, where, what)
    if not 0 <= start <= len(where):
        raise IndexError(f"index out of range: {start}")
    return int(where.find(what, start))


def _last_index_of(where: Any, what: Any, start: int | None = None) -> int:
    if isinstance(where, list):
        return next((at for at in range(len(where) - 1, -1, -1) if where[at] == what), -1)
    of_kind(str, where, what)
    if start is None:
        return int(where.rfind(what))
    if not 0 <= start <= len(where):
        raise IndexError(f"index out of range: {start}")
    return int(where.rfind(what, 0, start + len(what)))


def _join(rows: list[str], between: str = "") -> str:
    of_kind(list, rows)
    return between.join(rows)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    of_kind(str, text, old, new)
    return str.replace(text, old, new, int(limit))


def _split(text: str, between: str, limit: int = -1) -> list[str]:
    of_kind(str, text, between)
    if limit == 0:
        return []
    if not between:
        rows = list(text)
        return rows if limit < 0 or len(rows) <= limit else [*rows[: limit - 1], "".join(rows[limit - 1 :])]
    return str.split(text, between, -1 if limit < 0 else int(limit) - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    of_kind(str, text)
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise IndexError(f"index out of range: {start if not 0 <= start <= len(text) else stop}")
    return text[start:stop]


def _case(change: Callable[[str], str]) -> Function:
    """A case conversion of ASCII letters only."""
    return lambda text: "".join(change(letter) if letter.isascii() else letter for letter in text)


def _matches(text: str, pattern: str) -> bool:
    of_kind(str, text, pattern)
    return compiled(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    of_kind(str, text, pattern)
    match = compiled(pattern).search(text)
    return str(match[0]) if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    of_kind(str, text, pattern)
    matches = [match[0] for match in compiled(pattern).finditer(text)]
    return matches if limit < 0 else matches[: int(limit)]


# -- lists and sets ----------------------------------------------------------------------------------------------------


def _sum(rows: list[Any]) -> Any:
    of_kind(list, rows)
    if rows and all(isinstance(row, timedelta) for row in rows):
        return celtypes.DurationType(sum(rows, timedelta()))
    of_kind((int, float), *rows)
    return sum(rows)


def _extreme(pick: Callable[[Any], Any], name: str) -> Function:
    def extreme(rows: list[Any]) -> Any:
        of_kind(list, rows)
        if not rows:
            raise ValueError(f"{name} called on empty list")
        return pick(rows)

    return extreme


def _is_sorted(rows: list[Any]) -> bool:
    of_kind(list, rows)
    return all(not rows[at + 1] < rows[at] for at in range(len(rows) - 1))


def _slice(rows: list[Any], start: int, end: int) -> list[Any]:
    of_kind(list, rows)
    if not 0 <= start <= end <= len(rows):
        raise IndexError(f"cannot slice({start}, {end}), list is length {len(rows)}")
    return list(rows)[start:end]


def _flatten(rows: list[Any], depth: int = 1) -> list[Any]:
    of_kind(list, rows)
    results: list[Any] = []
    for row in rows:
        results += _flatten(row, depth - 1) if isinstance(row, list) and depth > 0 else [row]
    return results


def _distinct(rows: list[Any]) -> list[Any]:
    of_kind(list, rows)
    results: list[Any] = []
    results.extend(row for row in rows if row not in results)
    return results


def _contains_all(rows: list[Any], others: list[Any]) -> bool:
    of_kind(list, rows, others)
    return all(target in list(rows) for target in others)


def _intersect(rows: list[Any], others: list[Any]) -> bool:
    of_kind(list, rows, others)
    return any(target in list(rows) for target in others)


# -- own types ---------------------------------------------------------------------------------------------------------


def _constructor(kind: Callable[..., Any]) -> Function:
    def make(text: str, *more: Any) -> Any:
        of_kind(str, text)
        return kind(str(text), *more)

    return make


def predicate(kind: Callable[..., Any]) -> Function:
    """Whether `kind` can be made of a text; it raises ValueError if not."""

    def attempt(text: str, *more: Any) -> bool:
        of_kind(str, text)
        try:
            kind(str(text), *more)
        except ValueError:
            return False
        return True

    return attempt


def _semver(text: str, normalize: Any = False) -> Semver:
    return Semver(text, normalize=bool(normalize))


def _ip(value: Any) -> Ip:
    if isinstance(value, Cidr):
        return value.address
    of_kind(str, value)
    return Ip.of(str(value))


def _is_canonical(text: str) -> bool:
    return str(Ip.of(str(text))) == text


def _within(network: Cidr, other: Any) -> bool:
    of_kind(Cidr, network)
    return network.contains(other if isinstance(other, (Ip, Cidr)) else Ip.of(str(other)))


def _encloses(network: Cidr, other: Any) -> bool:
    of_kind(Cidr, network)
    return network.contains(other if isinstance(other, Cidr) else Cidr.of(str(other)))


def _compare(left: Any, right: Any) -> int:
    of_kind((Amount, Semver), left)
    of_kind(type(left), right)
    return (left > right) - (left < right)


def _is_less(left: Any, right: Any) -> bool:
    return _compare(left, right) < 0


def _as_integer(amount: Amount) -> int:
    if not amount.is_integer:
        raise ValueError("cannot convert value to integer")
    return int(amount.value)


# -- optional values ---------------------------------------------------------------------------------------------------


def _selected(value: Any, key: Any) -> Optional:
    """`given.?key` and `given[?key]`."""
    if isinstance(value, Optional):
        return _selected(value.values[0], key) if value else NONE
    if isinstance(value, list):
        return Optional((value[key],)) if 0 <= key < len(value) else NONE
    of_kind(dict, value)
    field = value.get(key, NONE)
    return NONE if field is NONE else Optional((field,))


def _value(optional: Optional) -> Any:
    if not optional:
        raise ValueError("optional.none() dereference")
    return optional.values[0]


def _or(optional: Optional, other: Optional) -> Optional:
    of_kind(Optional, optional, other)
    return optional or other


def _or_value(optional: Optional, other: Any) -> Any:
    of_kind(Optional, optional)
    return optional.values[0] if optional else other


# -- comparisons of numbers of two kinds -------------------------------------------------------------------------------


def _across(name: str) -> Function:
    """A comparison across numeric types, which kube-apiserver allows and cel-python does not."""
    plain = base_functions[name]
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": lambda left, right: left < right,
        "_<=_": lambda left, right: left <= right,
        "_>_": lambda left, right: left > right,
        "_>=_": lambda left, right: left >= right,
        "_==_": lambda left, right: left == right,
        "_!=_": lambda left, right: left != right,
    }

    def call(left: Any, right: Any) -> Any:
        if type(left) is not type(right) and _is_number(left) and _is_number(right):
            return celtypes.BoolType(compare[name](_plain(left), _plain(right)))
        if isinstance(left, (Amount, Ip, Cidr, Url, Semver, Optional)):
            if name not in {"_==_", "_!=_"}:
                return CELEvalError("no such overload", TypeError, (name,))
            return celtypes.BoolType((left == right) is (name == "_==_"))
        return plain(left, right)

    return call


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, celtypes.BoolType)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


_PLAIN: Final[dict[str, Function]] = {
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": _join,
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": str.strip,
    "lowerAscii": _case(str.lower),
    "upperAscii": _case(str.upper),
    "matches": _matches,
    "find": _find,
    "findAll": _find_all,
    "format": formatted,
    "strings.quote": lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"',
    "reverse": lambda rows: list(rows)[::-1] if isinstance(rows, list) else str(rows)[::-1],
    "sum": _sum,
    "min": _extreme(min, "min"),
    "max": _extreme(max, "max"),
    "isSorted": _is_sorted,
    "slice": _slice,
    "flatten": _flatten,
    "distinct": _distinct,
    "sort": sorted,
    "lists.range": lambda count: list(range(count)),
    "sets.contains": _contains_all,
    "sets.intersects": _intersect,
    "sets.equivalent": lambda left, right: _contains_all(left, right) and _contains_all(right, left),
    "url": _constructor(Url.of),
    "isURL": predicate(Url.of),
    "getScheme": lambda url: url.parts.scheme,
    "getHost": lambda url: url.host,
    "getHostname": lambda url: url.hostname,
    "getPort": lambda url: url.port,
    "getEscapedPath": lambda url: url.escaped_path,
    "getQuery": lambda url: url.query,
    "ip": _ip,
    "isIP": predicate(Ip.of),
    "ip.isCanonical": _is_canonical,
    "family": lambda ip: ip.address.version,
    "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: ip.address.is_multicast and str(ip).startswith(("224.0.0.", "ff02:")),
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local and not ip.address.is_multicast,
    "isGlobalUnicast": lambda ip: ip.is_global_unicast,
    "cidr": _constructor(Cidr.of),
    "isCIDR": predicate(Cidr.of),
    "containsIP": _within,
    "containsCIDR": _encloses,
    "masked": lambda network: network.masked(),
    "prefixLength": lambda network: network.network.prefixlen,
    "isInteger": lambda amount: amount.is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda amount: float(amount.value),
    "sign": lambda amount: (amount.value > 0) - (amount.value < 0),
    "add": lambda amount, other: amount.plus(other),
    "sub": lambda amount, other: amount.plus(other, -1),
    "compareTo": _compare,
    "isLessThan": _is_less,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "semver": _constructor(_semver),
    "isSemver": predicate(_semver),
    "major": lambda version: version.numbers[0],
    "minor": lambda version: version.numbers[1],
    "patch": lambda version: version.numbers[2],
    "optional.of": lambda value: Optional((value,)),
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": lambda value: Optional((value,)) if value else NONE,
    "hasValue": lambda item: bool(item.values),
    "value": _value,
    "or": _or,
    "orValue": _or_value,
    "optSelect__": _selected,
    "optIndex__": _selected,
}


def functions(exact: Callable[[str], Fraction], more: Mapping[str, Function] = MappingProxyType({})) -> dict[str, Any]:
    """All functions by name, `more` among them. `exact` reads a quantity, and raises ValueError."""

    def amount(text: str) -> Amount:
        try:
            return Amount(exact(text))
        except ValueError as error:
            why = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            raise ValueError(why) from error

    quantities = {"quantity": _constructor(amount), "isQuantity": predicate(amount)}
    return {
        **{name: _function(work) for name, work in {**_PLAIN, **quantities, **more}.items()},
        **{name: _across(name) for name in ("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_")},
    }
