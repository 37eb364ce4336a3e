"""Kubernetes' CEL types: IP addresses, networks, URLs, quantities, versions, optional values.

Follows `apiserver/pkg/cel/library`. Types are parsed from text; invalid text raises ValueError as upstream words it.
"""

import ipaddress
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOST_BITS: Final = re.compile(r"[0-9a-fA-F:.]+/\d+", re.ASCII)
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)
_CHARACTERS_A_VALUE: Final = 10


def size_of(value: Any) -> int:
    """The number of values in it, however often each is in it. Lists and maps of CEL keep theirs."""
    if isinstance(value, str | bytes):
        return 1 + len(value) // _CHARACTERS_A_VALUE
    size = getattr(value, "size_of", None)
    if size is None and isinstance(value, list | dict):
        size = 1 + sum(map(size_of, value.values() if isinstance(value, dict) else value))
        if hasattr(value, "__dict__"):
            vars(value)["size_of"] = size
    return size or 1


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value."""

    values: tuple[Any, ...] = ()  # at most one

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def size_of(self) -> int:
        """The number of values in it."""
        return 1 + sum(map(size_of, self.values))


NONE: Final = Optional()


@dataclass(frozen=True, slots=True)
class Ip:
    """An IPv4 or IPv6 address."""

    address: Address

    @classmethod
    def of(cls, text: str) -> Self:
        try:
            ip_address = ipaddress.ip_address(text)
        except ValueError as error:
            raise ValueError(f'IP Address "{text}" parse error during conversion from string: {error}') from error
        if isinstance(ip_address, ipaddress.IPv6Address):
            if ip_address.scope_id:
                raise ValueError(f'IP address "{text}" with zone value is not allowed')
            if ip_address.ipv4_mapped is not None:
                raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
        return cls(ip_address)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def is_global_unicast(self) -> bool:
        """Go's `IsGlobalUnicast`, which includes private addresses."""
        address = self.address
        broadcast = address == ipaddress.IPv4Address("255.255.255.255")
        return not (
            address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local or broadcast
        )


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network in CIDR notation, with the address as written."""

    address: Ip
    network: Network

    @classmethod
    def of(cls, text: str) -> Self:
        try:
            if _HOST_BITS.fullmatch(text) is None:
                raise ValueError("expected an address, a slash and a number of bits")
            network = ipaddress.ip_network(text, strict=False)
            return cls(Ip.of(text.partition("/")[0]), network)
        except ValueError as error:
            raise ValueError(f'CIDR "{text}" parse error during conversion from string: {error}') from error

    def __str__(self) -> str:
        return f"{self.address}/{self.network.prefixlen}"

    def contains(self, other: "Ip | Cidr") -> bool:
        """Whether `other` is within this network."""
        if isinstance(other, Ip):
            return other.address in self.network
        inner = other.network
        same = inner.version == self.network.version
        return same and inner.prefixlen >= self.network.prefixlen and inner.network_address in self.network

    def masked(self) -> "Cidr":
        return Cidr(Ip(self.network.network_address), self.network)


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URI or path, as accepted by Go's `url.ParseRequestURI`."""

    parts: SplitResult

    @classmethod
    def of(cls, text: str) -> Self:
        try:
            if not text.startswith("/") and not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", text):
                raise ValueError("invalid URI for request")
            if re.search(r"[\x00-\x1f\x7f]", text) or re.search(r"%(?![0-9A-Fa-f]{2})", text.partition("?")[0]):
                raise ValueError("invalid URL escape or character")
            parts = urlsplit(text)
            if wrong := re.search(r"[ {}|\\^`]", parts.netloc):
                raise ValueError(f'invalid character "{wrong[0]}" in host name')
            _ = parts.port  # the port is validated when it is read
        except ValueError as error:
            raise ValueError(f'URL parse error during conversion from string: parse "{text}": {error}') from error
        return cls(parts)

    @property
    def host(self) -> str:
        """Host name and port."""
        return self.parts.netloc.rpartition("@")[2]

    @property
    def hostname(self) -> str:
        host = self.host
        return host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]

    @property
    def port(self) -> str:
        return self.host.rpartition("]")[2].partition(":")[2]

    @property
    def escaped_path(self) -> str:
        return quote(self.parts.path, safe="/%:@!$&'()*+,;=~-._")

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(self.parts.query, keep_blank_values=True)

    def __str__(self) -> str:
        return self.parts.geturl()


@total_ordering
class Amount:
    """A quantity with exact arithmetic."""

    __slots__ = ("value",)

    def __init__(self, value: Fraction) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.value == other.value

    def __lt__(self, other: "Amount") -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)

    @property
    def is_integer(self) -> bool:
        return self.value.denominator == 1 and -(1 << 63) <= self.value < 1 << 63

    def plus(self, other: "Amount | int", sign: int = 1) -> "Amount":
        return Amount(self.value + sign * (other.value if isinstance(other, Amount) else int(other)))


@total_ordering
class Semver:
    """A semantic version (semver.org); build metadata after + is ignored in comparisons."""

    __slots__ = ("numbers", "pre")

    def __init__(self, text: str, *, normalize: bool = False) -> None:
        match = _SEMVER.fullmatch(_normalized(text) if normalize else text)
        if match is None:
            raise ValueError(f'semver parse error during conversion from string: invalid version "{text}"')
        self.numbers = tuple(int(match[group]) for group in (1, 2, 3))
        self.pre = tuple(match[4].split(".")) if match[4] else ()

    def _rank(self) -> tuple[Any, ...]:
        """Sort key: a release sorts after its pre-releases, numeric identifiers before alphanumeric ones."""
        identifiers = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.numbers, not self.pre, identifiers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._rank() == other._rank()

    def __lt__(self, other: "Semver") -> bool:
        return self._rank() < other._rank()

    def __hash__(self) -> int:
        return hash(self._rank())


def _normalized(text: str) -> str:
    """The version without a `v` prefix and leading zeros, padded to three numbers."""
    head, separator, rest = re.sub(r"^[vV]", "", text).partition("-") if "-" in text else (text.lstrip("vV"), "", "")
    core, plus, build = head.partition("+")
    numbers = [re.sub(r"^0+(?=\d)", "", number) for number in core.split(".")]
    return ".".join([*numbers, *["0"] * (3 - len(numbers))]) + plus + build + separator + rest
