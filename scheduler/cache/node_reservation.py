"""Resources that a node reserves for processes outside of containers, by its annotation (NUMA-R65 of the CPU page).

A list of CPUs decides about the amount of CPU. With `ReservedCPUsOnly` those CPUs are bound to no pod, and all amounts
stay.
"""

from collections.abc import Mapping

import msgspec

from seatrial.scheduler.api.numa import NODE_RESERVATION, CpusetError, NodeReservation, parse_cpuset
from seatrial.scheduler.api.quantity import CPU, Amounts, QuantityError, amounts
from seatrial.scheduler.api.wire import decode_as


def kept_back(annotations: Mapping[str, str]) -> Amounts:
    """The amounts that the node reserves, by resource.

    Raises:
        ValueError: the annotation is malformed; the message has the reason.
    """
    written = annotations.get(NODE_RESERVATION)
    if not written:
        return {}
    try:
        result = decode_as(written, NodeReservation)
        kept = amounts(result.resources)
        if result.reserved_cpus:
            kept[CPU] = 1000 * len(parse_cpuset(result.reserved_cpus))
    except (msgspec.DecodeError, QuantityError, CpusetError) as error:
        raise ValueError(f"{NODE_RESERVATION}: {error}") from error
    if result.apply_policy not in {"", "Default"}:
        return {}
    return {name: value for name, value in kept.items() if value > 0}
