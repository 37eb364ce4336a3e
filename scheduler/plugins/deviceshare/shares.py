"""A pod's part of devices, and its encoding in the annotation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from seatrial.scheduler.api.device import RENAMED, Allocations
from seatrial.scheduler.api.quantity import Amounts, amount, text
from seatrial.scheduler.api.wire import to_json


class Function(NamedTuple):
    """An SR-IOV virtual function of a NIC; functions of one device differ in bus address."""

    bus: str
    minor: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """Amounts of one device."""

    type: str
    minor: int
    amounts: tuple[tuple[str, int], ...]
    functions: tuple[Function, ...] = ()
    template: str = ""  # the vendor's name of a slice of this size


Shares = tuple[Share, ...]


def shares_of(allocations: Allocations) -> Shares:
    """The allocations of an annotation.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    return tuple(
        Share(
            device_type,
            entry.minor,
            tuple(
                sorted((RENAMED.get(name, name), amount(name, quantity)) for name, quantity in entry.resources.items())
            ),
            tuple(Function(vf.bus_id, vf.minor) for vf in entry.extension.vfs) if entry.extension is not None else (),
            entry.extension.gpu_shared_resource_template if entry.extension is not None else "",
        )
        for device_type, entries in allocations.items()
        for entry in entries
    )


class Holding:
    """A pod's devices. Pods with equal devices from one state share one object; equal objects compare equal."""

    __slots__ = ("_hash", "_pieces", "amounts", "rises", "shares")

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.amounts: dict[str, Amounts] = {}  # by device type
        for share in shares:
            sums = self.amounts.setdefault(share.type, {})
            for name, value in share.amounts:
                sums[name] = sums.get(name, 0) + value
        self.rises: dict[object, int] = {}  # filled and read by the plugin's bound on score changes
        self._pieces: list[tuple[str, tuple[str, int], str]] | None = None
        self._hash = 0  # 0: not computed yet

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holding) and self.shares == other.shares

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(self.shares)
        return self._hash

    def annotation(self, ids: Mapping[tuple[str, int], str]) -> str:
        """`device-allocated` as Koordinator writes it; `ids` by type and minor are the node's, as JSON strings."""
        if self._pieces is None:
            self._pieces = list(_pieces(self.shares))
        parts = []
        for piece, where, rest in self._pieces:
            identifier = ids.get(where, "")
            parts.append(f'{piece},"id":{identifier}{rest}' if identifier else piece + rest)
        return "".join(parts) + "]}"


def _pieces(shares: Shares) -> Iterator[tuple[str, tuple[str, int], str]]:
    """The annotation's text, split where each device's id goes."""
    before = None
    for share in shares:
        opening = f'{"{" if before is None else "],"}"{share.type}":[' if share.type != before else ","
        piece = f'{opening}{{"minor":{share.minor},"resources":{{{_resources(share.amounts)}}}'
        yield piece, (share.type, share.minor), _extension(share) + "}"
        before = share.type


@lru_cache(maxsize=4096)
def _resources(amounts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{quoted(name)}:{quoted(text(name, value))}" for name, value in amounts)


def _extension(share: Share) -> str:
    """Koordinator leaves out empty values, and a minor of 0 is empty for it."""
    parts = []
    if share.functions:
        listed = (
            (f'"minor":{function.minor},' if function.minor else "") + f'"busID":{quoted(function.bus)}'
            for function in share.functions
        )
        parts.append('"vfs":[' + ",".join(f"{{{item}}}" for item in listed) + "]")
    if share.template:
        parts.append(f'"gpuSharedResourceTemplate":{quoted(share.template)}')
    return f',"extension":{{{",".join(parts)}}}' if parts else ""


def quoted(word: str) -> str:
    """The text as a JSON string."""
    return to_json(word).decode()
