"""Kubernetes' CEL functions by name: strings, lists, sets, regular expressions, and Kubernetes' own types.

cel-python looks a function up by name only, for `f(x)` and `x.f()` alike; overloads are resolved by the types of the
arguments. The name of a namespaced function includes the namespace.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from seatrial.harness.apiserver.cel.formatting import formatted
from seatrial.harness.apiserver.cel.values import NONE, Amount, Cidr, Ip, Optional, Semver, Url
from seatrial.harness.apiserver.names import dns_1035, dns_label, label_value, qualified, subdomain
from seatrial.harness.apiserver.patterns import compiled

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
        case celtypes.IntType() | celtypes.UintType() | celtypes.StringType() | celtypes.BytesType():
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


def _of(kind: type | tuple[type, ...], *values: Any) -> None:
    """Check that all values are of type `kind`.

    Raises:
        NoOverload: a value is of another type.
    """
    for candidate in values:
        if not isinstance(candidate, kind):
            raise NoOverload(type(candidate).__name__)


# -- text --------------------------------------------------------------------------------------------------------------


def _char_at(text: str, at: int) -> str:
    _of(str, text)
    if not 0 <= at <= len(text):
        raise IndexError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, list):
        return next((at for at, element in enumerate(where) if element == what), -1)
    _of(str, where, what)
    if not 0 <= start <= len(where):
        raise IndexError(f"index out of range: {start}")
    return int(where.find(what, start))


def _last_index_of(where: Any, what: Any, start: int | None = None) -> int:
    if isinstance(where, list):
        return next((at for at in range(len(where) - 1, -1, -1) if where[at] == what), -1)
    _of(str, where, what)
    if start is None:
        return int(where.rfind(what))
    if not 0 <= start <= len(where):
        raise IndexError(f"index out of range: {start}")
    return int(where.rfind(what, 0, start + len(what)))


def _join(rows: list[str], between: str = "") -> str:
    _of(list, rows)
    return between.join(rows)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    _of(str, text, old, new)
    return str.replace(text, old, new, int(limit))


def _split(text: str, between: str, limit: int = -1) -> list[str]:
    _of(str, text, between)
    if limit == 0:
        return []
    if not between:
        rows = list(text)
        return rows if limit < 0 or len(rows) <= limit else [*rows[: limit - 1], "".join(rows[limit - 1 :])]
    return str.split(text, between, -1 if limit < 0 else int(limit) - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    _of(str, text)
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise IndexError(f"index out of range: {start if not 0 <= start <= len(text) else stop}")
    return text[start:stop]


def _case(change: Callable[[str], str]) -> Function:
    """A case conversion of ASCII letters only."""
    return lambda text: "".join(change(letter) if letter.isascii() else letter for letter in text)


def _matches(text: str, pattern: str) -> bool:
    _of(str, text, pattern)
    return compiled(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    _of(str, text, pattern)
    match = compiled(pattern).search(text)
    return str(match[0]) if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    _of(str, text, pattern)
    matches = [match[0] for match in compiled(pattern).finditer(text)]
    return matches if limit < 0 else matches[: int(limit)]


# -- lists and sets ----------------------------------------------------------------------------------------------------


def _sum(rows: list[Any]) -> Any:
    _of(list, rows)
    if rows and all(isinstance(row, timedelta) for row in rows):
        return celtypes.DurationType(sum(rows, timedelta()))
    _of((int, float), *rows)
    return sum(rows)


def _extreme(pick: Callable[[Any], Any], name: str) -> Function:
    def extreme(rows: list[Any]) -> Any:
        _of(list, rows)
        if not rows:
            raise ValueError(f"{name} called on empty list")
        return pick(rows)

    return extreme


def _is_sorted(rows: list[Any]) -> bool:
    _of(list, rows)
    return all(not rows[at + 1] < rows[at] for at in range(len(rows) - 1))


def _slice(rows: list[Any], start: int, end: int) -> list[Any]:
    _of(list, rows)
    if not 0 <= start <= end <= len(rows):
        raise IndexError(f"cannot slice({start}, {end}), list is length {len(rows)}")
    return list(rows)[start:end]


def _flatten(rows: list[Any], depth: int = 1) -> list[Any]:
    _of(list, rows)
    results: list[Any] = []
    for row in rows:
        results += _flatten(row, depth - 1) if isinstance(row, list) and depth > 0 else [row]
    return results


def _distinct(rows: list[Any]) -> list[Any]:
    _of(list, rows)
    results: list[Any] = []
    results.extend(row for row in rows if row not in results)
    return results


def _contains_all(rows: list[Any], others: list[Any]) -> bool:
    _of(list, rows, others)
    return all(target in list(rows) for target in others)


def _intersect(rows: list[Any], others: list[Any]) -> bool:
    _of(list, rows, others)
    return any(target in list(rows) for target in others)


# -- own types ---------------------------------------------------------------------------------------------------------


def _constructor(kind: Callable[..., Any]) -> Function:
    def make(text: str, *more: Any) -> Any:
        _of(str, text)
        return kind(str(text), *more)

    return make


def _predicate(kind: Callable[..., Any]) -> Function:
    def attempt(text: str, *more: Any) -> bool:
        _of(str, text)
        try:
            kind(str(text), *more)
        except ValueError:
            return False
        return True

    return attempt


def _semver(text: str, normalize: Any = False) -> Semver:
    return Semver(text, normalize=bool(normalize))


def _amount(text: Any) -> Amount:
    return Amount(text)


def _ip(value: Any) -> Ip:
    if isinstance(value, Cidr):
        return value.address
    _of(str, value)
    return Ip.of(str(value))


def _is_canonical(text: str) -> bool:
    return str(Ip.of(str(text))) == text


def _within(network: Cidr, other: Any) -> bool:
    _of(Cidr, network)
    return network.contains(other if isinstance(other, (Ip, Cidr)) else Ip.of(str(other)))


def _encloses(network: Cidr, other: Any) -> bool:
    _of(Cidr, network)
    return network.contains(other if isinstance(other, Cidr) else Cidr.of(str(other)))


def _compare(left: Any, right: Any) -> int:
    _of((Amount, Semver), left)
    _of(type(left), right)
    return (left > right) - (left < right)


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
    _of(dict, value)
    return Optional((value[key],)) if key in value else NONE


def _value(optional: Optional) -> Any:
    if not optional:
        raise ValueError("optional.none() dereference")
    return optional.values[0]


def _or(optional: Optional, other: Optional) -> Optional:
    _of(Optional, optional, other)
    return optional or other


def _or_value(optional: Optional, other: Any) -> Any:
    _of(Optional, optional)
    return optional.values[0] if optional else other


# -- formats -----------------------------------------------------------------------------------------------------------


class Format:
    """A named string format."""

    def __init__(self, problems: Callable[[str], tuple[str, ...]]) -> None:
        self.problems = problems


def _matching(pattern: str, problem: str) -> Format:
    compiled = re.compile(pattern, re.ASCII)
    return Format(lambda text: () if compiled.fullmatch(text) else (problem,))


def _prefix(rule: Callable[[str], tuple[str, ...]]) -> Format:
    """A format for name prefixes, to which characters may be appended."""
    return Format(lambda text: rule(f"{text[:-1]}a" if text.endswith("-") else text))


FORMATS: Final = {
    "dns1123Label": Format(dns_label),
    "dns1123Subdomain": Format(subdomain),
    "dns1035Label": Format(dns_1035),
    "qualifiedName": Format(qualified),
    "labelValue": Format(label_value),
    "dns1123LabelPrefix": _prefix(dns_label),
    "dns1123SubdomainPrefix": _prefix(subdomain),
    "dns1035LabelPrefix": _prefix(dns_1035),
    "uri": Format(lambda text: () if _predicate(Url.of)(text) else ("invalid URI",)),
    "uuid": _matching(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "does not match the UUID format"),
    "byte": _matching(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", "invalid base64"),
    "date": _matching(r"\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])", "invalid date"),
    "datetime": _matching(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", "invalid datetime"),
}


def _named_format(name: str) -> Optional:
    return Optional((FORMATS[name],)) if name in FORMATS else NONE


def _validate(form: Format, text: str) -> Optional:
    _of(Format, form)
    problems = form.problems(str(text))
    return Optional((cel(problems),)) if problems else NONE


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
    "isURL": _predicate(Url.of),
    "getScheme": lambda url: url.parts.scheme,
    "getHost": lambda url: url.host,
    "getHostname": lambda url: url.hostname,
    "getPort": lambda url: url.port,
    "getEscapedPath": lambda url: url.escaped_path,
    "getQuery": lambda url: url.query,
    "ip": _ip,
    "isIP": _predicate(Ip.of),
    "ip.isCanonical": _is_canonical,
    "family": lambda ip: ip.address.version,
    "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: ip.address.is_multicast and str(ip).startswith(("224.0.0.", "ff02:")),
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local and not ip.address.is_multicast,
    "isGlobalUnicast": lambda ip: ip.is_global_unicast,
    "cidr": _constructor(Cidr.of),
    "isCIDR": _predicate(Cidr.of),
    "containsIP": _within,
    "containsCIDR": _encloses,
    "masked": lambda network: network.masked(),
    "prefixLength": lambda network: network.network.prefixlen,
    "quantity": _constructor(_amount),
    "isQuantity": _predicate(_amount),
    "isInteger": lambda amount: amount.is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda amount: float(amount.value),
    "sign": lambda amount: (amount.value > 0) - (amount.value < 0),
    "add": lambda amount, other: amount.plus(other),
    "sub": lambda amount, other: amount.plus(other, -1),
    "compareTo": _compare,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "semver": _constructor(_semver),
    "isSemver": _predicate(_semver),
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
    "format.named": _named_format,
    "validate": _validate,
    **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
}
FUNCTIONS: Final[dict[str, Function]] = {
    **{name: _function(work) for name, work in _PLAIN.items()},
    **{name: _across(name) for name in ("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_")},
}
NAMESPACES: Final = frozenset(name.partition(".")[0] for name in FUNCTIONS if "." in name)
KNOWN: Final = frozenset({*FUNCTIONS, *base_functions, "has", "dyn"})
