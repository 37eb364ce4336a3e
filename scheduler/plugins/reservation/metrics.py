"""Metrics of reservations (RSV-R52): phases, and utilisation."""

from collections.abc import Iterator

from seatrial.scheduler.api.quantity import CPU, MEMORY
from seatrial.scheduler.api.reservation import AVAILABLE, FAILED, PENDING, SUCCEEDED
from seatrial.scheduler.plugins.reservation.cache import ReservationCache

PHASES = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_UNITS = {CPU: ("core", 1000), MEMORY: ("Gi", 1 << 30)}  # resource → name of the unit, and its size

Sample = tuple[dict[str, str], float]  # labels and value


def phases(reservation_cache: ReservationCache) -> Iterator[Sample]:
    """1 for the current phase of a reservation, 0 for the others."""
    for reservation in sorted(reservation_cache.known.values(), key=lambda entry: entry.name):
        now = reservation.status.phase or PENDING
        for phase in PHASES:
            yield {"name": reservation.name, "phase": phase}, float(phase == now)


def resources(reservation_cache: ReservationCache) -> Iterator[Sample]:
    """For each available reservation and resource: the amount, the allocated amount, and their ratio."""
    own = (reserved for reserved in reservation_cache if reserved.pod is None)
    for reserved in sorted(own, key=lambda entry: entry.name):
        allocated = reserved.allocated
        for name, value in sorted(reserved.allocatable.items()):
            unit, size = _UNITS.get(name, ("raw", 1))
            used = allocated.get(name, 0)
            results = (
                ("allocatable", unit, value / size),
                ("allocated", unit, used / size),
                ("utilization", "ratio", used / value if value else 0.0),
            )
            for kind, unit_, amount in results:
                yield {"type": kind, "name": reserved.name, "resource": name, "unit": unit_}, amount
