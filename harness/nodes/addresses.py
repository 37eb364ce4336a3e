"""IP addresses of a node and of its pods."""

from collections.abc import Iterable

_HOSTS_PER_NODE = 253
_LOOPBACKS = 0x3FFFFE


def host_address(number: int) -> str:
    """The address of a simulated node. `number` makes it unique.

    198.18.0.0/15 is for benchmarks (RFC 2544): no container network and no real host has these addresses.
    """
    return f"198.{18 + (number >> 16) % 2}.{number >> 8 & 255}.{number & 255}"


class PodAddresses:
    """Addresses of one node's pods. On a real machine each pod may listen on an address of its own in 127/8."""

    def __init__(self, number: int, *, loopback: bool) -> None:
        self._number, self._loopback = number, loopback
        self._last = 0

    def next(self, taken: Iterable[str]) -> str:
        """An address for a new pod; of loopback addresses one that is not `taken`."""
        used = set(taken)
        while self._loopback:
            number = self._last = self._last % _LOOPBACKS + 1
            ip = f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
            if ip not in used:
                return ip
        self._last = self._last % _HOSTS_PER_NODE + 1
        return f"10.{self._number >> 8 & 255}.{self._number & 255}.{self._last + 1}"
