"""Formats of strings in schemas of custom resources, as `kube-openapi/pkg/validation/strfmt` checks them.

Upstream's checks are loose: a date-time may have any character before its fraction, and anything after a second `t`.
`email`, `isbn`, `creditcard` and `ssn` are not checked.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from seatrial.harness.apiserver.text_cache import cached
from seatrial.harness.apiserver.times import DATE, parse
from seatrial.scheduler.api.cel.patterns import compiled
from seatrial.scheduler.api.cel.values import Url

_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)
_DURATION: Final = r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$"  # Go's
_SCALA: Final = r"[0-9]+\s*([A-Za-zµ]+)"
_UNIT: Final = re.compile(r"(ns|us|µs|ms|s|m|h|hr|d|w|wk)|(nano|micro|milli|sec|min|hour|day|week).*", re.DOTALL)
_HEX: Final = "[0-9a-fA-F]"
_MAC: Final = r"(?i)[0-9a-f]{2}([:-])[0-9a-f]{2}(\1[0-9a-f]{2}){4}((\1[0-9a-f]{2}){2}|(\1[0-9a-f]{2}){14})?"
_MAC_OF_DOTS: Final = r"(?i)[0-9a-f]{4}(\.[0-9a-f]{4}){2}(\.[0-9a-f]{4}|(\.[0-9a-f]{4}){7})?"
_HOSTNAME: Final = re.compile(r"[^\W_](-?[^\W_]{0,62})?|([^\W_](([^\W_]|-){0,61}[^\W_])?\.)+[^\W\d_]{2,63}")
_MAX_HOSTNAME, _MAX_LABEL = 255, 63  # bytes
_COLOR: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"


def _matches(*patterns: str) -> Callable[[str], bool]:
    compiled_ones = [re.compile(pattern, re.ASCII) for pattern in patterns]
    return lambda text: any(pattern.fullmatch(text) for pattern in compiled_ones)


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> Callable[[str], bool]:
    return _matches(
        rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
    )


def _holds(read: Callable[[str], object]) -> Callable[[str], bool]:
    """Whether `read` raises no ValueError."""

    def holds(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return holds


_is_date = _holds(lambda text: parse(text, DATE))


def _is_date_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    time = _TIME.fullmatch(rest.partition("t")[0])
    return time is not None and time[1] <= "23" and time[2] <= "59" and time[3] <= "59" and _is_date(day)


def _is_duration(text: str) -> bool:
    """A duration of Go, or one in which some number has a unit as in Scala: `3 days`."""
    if compiled(_DURATION).search(text):
        return True
    return any(_UNIT.fullmatch(unit.lower()) for unit in compiled(_SCALA).findall(text))


def _is_hostname(text: str) -> bool:
    return (
        len(text.encode()) <= _MAX_HOSTNAME
        and _HOSTNAME.fullmatch(text) is not None
        and all(len(label.encode()) <= _MAX_LABEL for label in text.split("."))
    )


@cached()
def address(text: str) -> IPv4Address | IPv6Address:
    """An address without a zone; numbers between dots may have leading zeros."""
    if "%" in text:
        raise ValueError(text)
    return ip_address(re.sub(r"(^|[.:])0+(?=\d)", r"\1", text) if "." in text else text)


def _prefix(text: str) -> None:
    before, _, length = text.rpartition("/")
    if re.fullmatch(r"\d{1,6}", length, re.ASCII) is None or int(length) > address(before).max_prefixlen:
        raise ValueError(text)


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {  # by name without hyphens
    "datetime": _is_date_time,
    "date": _is_date,
    "duration": _is_duration,
    "uri": _holds(Url.of),
    "hostname": _is_hostname,
    "ipv4": lambda text: "." in text and _holds(address)(text),
    "ipv6": lambda text: ":" in text and _holds(address)(text),
    "cidr": _holds(_prefix),
    "mac": _matches(_MAC, _MAC_OF_DOTS),
    "byte": _matches(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(rf"rgb\({_COLOR},{_COLOR},{_COLOR}\)"),
}


def conforms(name: str, text: str) -> bool:
    """Whether the text has the format; true for formats that are not known, as upstream."""
    check = FORMATS.get(name.replace("-", ""))
    return check is None or check(text)
