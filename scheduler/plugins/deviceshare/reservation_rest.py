"""The free part of a reservation's devices once pods have taken some of them (DEV-R62)."""

from collections.abc import Iterable

import msgspec

from seatrial.scheduler.api.device import DEVICE_ALLOCATED, parse_allocations
from seatrial.scheduler.api.quantity import QuantityError, quantities
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.plugins.deviceshare.shares import Holding, Share, Shares, shares_of


def reserved_shares(annotation: str) -> Shares:
    """The devices in a reservation's `device-allocated`; empty if it is invalid."""
    try:
        return shares_of(parse_allocations({DEVICE_ALLOCATED: annotation}))
    except (msgspec.DecodeError, QuantityError):
        return ()


def left_of(shares: Shares, taken: Iterable[Holding | None]) -> Shares:
    """What remains of the shares after the holders' parts; a device without any rest is left out.

    Functions that a holder has stay listed: they count as used as long as one of the two claims them.
    """
    used: dict[tuple[str, int], dict[str, int]] = {}
    for holding in taken:
        for share in holding.shares if holding is not None else ():
            where = share.type, share.minor
            sums = used.setdefault(where, {})
            for name, value in share.amounts:
                sums[name] = sums.get(name, 0) + value
    left = []
    for share in shares:
        where = share.type, share.minor
        gone = used.get(where, {})
        rest = tuple((name, max(0, value - gone.get(name, 0))) for name, value in share.amounts)
        if any(value for _, value in rest):
            left.append(Share(share.type, share.minor, rest, share.functions, share.template))
    return tuple(left)


def still_held(annotation: str, taken: Iterable[Holding | None]) -> str:
    """`left_of` as an annotation; "" if nothing remains."""
    left = left_of(reserved_shares(annotation), taken)
    return Holding(left).annotation({}) if left else ""


def size_of(holding: Holding) -> str:
    """The annotation `reservation-resize-allocatable` for a reservation with these devices: their sums."""
    total = {
        name: value for sums in holding.amounts.values() for name, value in sums.items()
    }  # no name is in two types
    return to_json({"resources": quantities(total)}).decode()
