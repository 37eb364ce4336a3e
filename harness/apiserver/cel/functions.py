"""Kubernetes' functions in CEL, by name: text, lists, sets, regular expressions, and those of its own types.

cel-python looks a function up by its name alone, whether it is called as `f(x)` or as `x.f()`; what it is given tells
which one is meant. A namespaced function has its namespace in its name.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from harness.apiserver.cel.formatting import formatted
from harness.apiserver.cel.values import NONE, Amount, Cidr, Ip, Optional, Semver, Url
from harness.apiserver.names import dns_1035, dns_label, label_value, qualified, subdomain

Function = Callable[..., Any]
_TEXT: Final = celtypes.StringType
_INT: Final = celtypes.IntType
_LIST: Final = celtypes.ListType


class NoOverload(TypeError):
    """The function does not take these."""


def cel(value: Any) -> Any:
    """A plain value as CEL has it."""
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
            return _LIST([cel(one) for one in value])
        case dict():
            return celtypes.MapType({cel(name): cel(one) for name, one in value.items()})
        case _:
            return value


def _function(work: Function) -> Function:
    """As cel-python wants it: errors are values, and so is what is given."""

    @wraps(work)
    def call(*given: Any) -> Any:
        for one in given:
            if isinstance(one, CELEvalError):
                return one
        try:
            return cel(work(*given))
        except (TypeError, AttributeError) as error:
            return CELEvalError("no such overload", type(error), error.args)
        except (ValueError, IndexError, OverflowError, re.error) as error:
            return CELEvalError(str(error), type(error), error.args)

    return call


def _of(kind: type | tuple[type, ...], *values: Any) -> None:
    """
    Raises:
        NoOverload: a value is of another kind.
    """
    for one in values:
        if not isinstance(one, kind):
            raise NoOverload(type(one).__name__)


# -- text -------------------------------------------------------------------------------------------------------------


def _char_at(text: str, at: int) -> str:
    _of(str, text)
    if not 0 <= at <= len(text):
        raise IndexError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, list):
        return next((at for at, one in enumerate(where) if one == what), -1)
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


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    _of(str, text, old, new)
    return str.replace(text, old, new, int(most))


def _split(text: str, between: str, most: int = -1) -> list[str]:
    _of(str, text, between)
    if most == 0:
        return []
    if not between:
        rows = list(text)
        return rows if most < 0 or len(rows) <= most else [*rows[: most - 1], "".join(rows[most - 1 :])]
    return str.split(text, between, -1 if most < 0 else int(most) - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    _of(str, text)
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise IndexError(f"index out of range: {start if not 0 <= start <= len(text) else stop}")
    return text[start:stop]


def _case(change: Callable[[str], str]) -> Function:
    """Of ASCII letters only."""
    return lambda text: "".join(change(one) if one.isascii() else one for one in text)


def _find(text: str, pattern: str) -> str:
    _of(str, text, pattern)
    found = re.search(pattern, text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    _of(str, text, pattern)
    found = [one[0] for one in re.finditer(pattern, text)]
    return found if most < 0 else found[: int(most)]


# -- lists and sets ---------------------------------------------------------------------------------------------------


def _sum(rows: list[Any]) -> Any:
    _of(list, rows)
    if rows and all(isinstance(one, timedelta) for one in rows):
        return celtypes.DurationType(sum(rows, timedelta()))
    _of((int, float), *rows)
    return sum(rows)


def _extreme(pick: Callable[[Any], Any], name: str) -> Function:
    def found(rows: list[Any]) -> Any:
        _of(list, rows)
        if not rows:
            raise ValueError(f"{name} called on empty list")
        return pick(rows)

    return found


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
    found: list[Any] = []
    for one in rows:
        found += _flatten(one, depth - 1) if isinstance(one, list) and depth > 0 else [one]
    return found


def _distinct(rows: list[Any]) -> list[Any]:
    _of(list, rows)
    found: list[Any] = []
    found.extend(one for one in rows if one not in found)
    return found


def _holds_all(rows: list[Any], others: list[Any]) -> bool:
    _of(list, rows, others)
    return all(one in list(rows) for one in others)


def _intersect(rows: list[Any], others: list[Any]) -> bool:
    _of(list, rows, others)
    return any(one in list(rows) for one in others)


# -- own types --------------------------------------------------------------------------------------------------------


def _made(kind: Callable[..., Any]) -> Function:
    def make(text: str, *more: Any) -> Any:
        _of(str, text)
        return kind(str(text), *more)

    return make


def _is_made(kind: Callable[..., Any]) -> Function:
    def try_it(text: str, *more: Any) -> bool:
        _of(str, text)
        try:
            kind(str(text), *more)
        except ValueError:
            return False
        return True

    return try_it


def _semver(text: str, normalize: Any = False) -> Semver:
    return Semver(text, normalize=bool(normalize))


def _amount(text: Any) -> Amount:
    return Amount(text)


def _ip(given: Any) -> Ip:
    if isinstance(given, Cidr):
        return given.address
    _of(str, given)
    return Ip.of(str(given))


def _is_canonical(text: str) -> bool:
    return str(Ip.of(str(text))) == text


def _within(network: Cidr, other: Any) -> bool:
    _of(Cidr, network)
    return network.contains(other if isinstance(other, (Ip, Cidr)) else Ip.of(str(other)))


def _encloses(network: Cidr, other: Any) -> bool:
    _of(Cidr, network)
    return network.contains(other if isinstance(other, Cidr) else Cidr.of(str(other)))


def _compare(one: Any, other: Any) -> int:
    _of((Amount, Semver), one)
    _of(type(one), other)
    return (one > other) - (one < other)


def _as_integer(amount: Amount) -> int:
    if not amount.is_integer:
        raise ValueError("cannot convert value to integer")
    return int(amount.value)


# -- optional values --------------------------------------------------------------------------------------------------


def _selected(given: Any, key: Any) -> Optional:
    """`given.?key` and `given[?key]`."""
    if isinstance(given, Optional):
        return _selected(given.values[0], key) if given else NONE
    if isinstance(given, list):
        return Optional((given[key],)) if 0 <= key < len(given) else NONE
    _of(dict, given)
    return Optional((given[key],)) if key in given else NONE


def _value(given: Optional) -> Any:
    if not given:
        raise ValueError("optional.none() dereference")
    return given.values[0]


def _or(given: Optional, other: Optional) -> Optional:
    _of(Optional, given, other)
    return given or other


def _or_value(given: Optional, other: Any) -> Any:
    _of(Optional, given)
    return given.values[0] if given else other


# -- formats ----------------------------------------------------------------------------------------------------------


class Format:
    """A named format of text."""

    def __init__(self, problems: Callable[[str], tuple[str, ...]]) -> None:
        self.problems = problems


def _matching(pattern: str, problem: str) -> Format:
    compiled = re.compile(pattern, re.ASCII)
    return Format(lambda text: () if compiled.fullmatch(text) else (problem,))


def _prefix(rule: Callable[[str], tuple[str, ...]]) -> Format:
    """Of a name to which something is added."""
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
    "uri": Format(lambda text: () if _is_made(Url.of)(text) else ("invalid URI",)),
    "uuid": _matching(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "does not match the UUID format"),
    "byte": _matching(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", "invalid base64"),
    "date": _matching(r"\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])", "invalid date"),
    "datetime": _matching(
        r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", "invalid datetime"
    ),
}  # fmt: skip


def _named_format(name: str) -> Optional:
    return Optional((FORMATS[name],)) if name in FORMATS else NONE


def _validate(form: Format, text: str) -> Optional:
    _of(Format, form)
    problems = form.problems(str(text))
    return Optional((cel(problems),)) if problems else NONE


# -- comparisons of numbers of two kinds ------------------------------------------------------------------------------


def _across(name: str) -> Function:
    """cel-python compares numbers of one kind only, kube-apiserver those of all."""
    plain = base_functions[name]
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": lambda one, other: one < other,
        "_<=_": lambda one, other: one <= other,
        "_>_": lambda one, other: one > other,
        "_>=_": lambda one, other: one >= other,
        "_==_": lambda one, other: one == other,
        "_!=_": lambda one, other: one != other,
    }

    def call(one: Any, other: Any) -> Any:
        if type(one) is not type(other) and _is_number(one) and _is_number(other):
            return celtypes.BoolType(compare[name](_plain(one), _plain(other)))
        if isinstance(one, (Amount, Ip, Cidr, Url, Semver, Optional)):
            if name not in {"_==_", "_!=_"}:
                return CELEvalError("no such overload", TypeError, (name,))
            return celtypes.BoolType((one == other) is (name == "_==_"))
        return plain(one, other)

    return call


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, celtypes.BoolType)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


_PLAIN: Final[dict[str, Function]] = {
    "charAt": _char_at, "indexOf": _index_of, "lastIndexOf": _last_index_of, "join": _join, "replace": _replace,
    "split": _split, "substring": _substring, "trim": str.strip, "lowerAscii": _case(str.lower),
    "upperAscii": _case(str.upper), "find": _find, "findAll": _find_all, "format": formatted,
    "strings.quote": lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"',
    "reverse": lambda rows: list(rows)[::-1] if isinstance(rows, list) else str(rows)[::-1],
    "sum": _sum, "min": _extreme(min, "min"), "max": _extreme(max, "max"), "isSorted": _is_sorted, "slice": _slice,
    "flatten": _flatten, "distinct": _distinct, "sort": sorted,
    "lists.range": lambda count: list(range(count)),
    "sets.contains": _holds_all, "sets.intersects": _intersect,
    "sets.equivalent": lambda one, other: _holds_all(one, other) and _holds_all(other, one),
    "url": _made(Url.of), "isURL": _is_made(Url.of), "getScheme": lambda url: url.parts.scheme,
    "getHost": lambda url: url.host, "getHostname": lambda url: url.hostname, "getPort": lambda url: url.port,
    "getEscapedPath": lambda url: url.escaped_path, "getQuery": lambda url: url.query,
    "ip": _ip, "isIP": _is_made(Ip.of), "ip.isCanonical": _is_canonical,
    "family": lambda ip: ip.address.version, "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: ip.address.is_multicast and str(ip).startswith(("224.0.0.", "ff02:")),
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local and not ip.address.is_multicast,
    "isGlobalUnicast": lambda ip: ip.is_global_unicast,
    "cidr": _made(Cidr.of), "isCIDR": _is_made(Cidr.of), "containsIP": _within, "containsCIDR": _encloses,
    "masked": lambda network: network.masked(), "prefixLength": lambda network: network.network.prefixlen,
    "quantity": _made(_amount), "isQuantity": _is_made(_amount), "isInteger": lambda amount: amount.is_integer,
    "asInteger": _as_integer, "asApproximateFloat": lambda amount: float(amount.value),
    "sign": lambda amount: (amount.value > 0) - (amount.value < 0),
    "add": lambda amount, other: amount.plus(other), "sub": lambda amount, other: amount.plus(other, -1),
    "compareTo": _compare, "isLessThan": lambda one, other: _compare(one, other) < 0,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "semver": _made(_semver), "isSemver": _is_made(_semver), "major": lambda one: one.numbers[0],
    "minor": lambda one: one.numbers[1], "patch": lambda one: one.numbers[2],
    "optional.of": lambda value: Optional((value,)), "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": lambda value: Optional((value,)) if value else NONE,
    "hasValue": lambda given: bool(given.values), "value": _value, "or": _or, "orValue": _or_value,
    "optSelect__": _selected, "optIndex__": _selected,
    "format.named": _named_format, "validate": _validate,
    **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
}  # fmt: skip
FUNCTIONS: Final[dict[str, Function]] = {
    **{name: _function(work) for name, work in _PLAIN.items()},
    **{name: _across(name) for name in ("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_")},
}
NAMESPACES: Final = frozenset(name.partition(".")[0] for name in FUNCTIONS if "." in name)
KNOWN: Final = frozenset({*FUNCTIONS, *base_functions, "has", "dyn"})
