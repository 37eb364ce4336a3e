"""Reservations and their owners."""

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, ReservationBuilder, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.reservation import PRE_ALLOCATION_REQUIRED

RESERVING = "reserving"  # the profile whose Reservation plugin preempts


SMALL = 8  # cores of a node

Amounts = dict[str, str | int | float]  # quantities by resource


def owner(name: str, **resources: str | int) -> PodBuilder:
    """A pod that owns the reservations of these cases."""
    return pod(name).label("app", "owner").request(**resources)


def taking_over(name: str, cores: int, *, required: bool = True) -> ReservationBuilder:
    """A reservation that takes over what a running owner holds; `required`: only so."""
    built = reservation(name).like(pod("x").request(cpu=cores)).for_labels(app="owner").many().policy("Restricted")
    built.manifest["spec"]["preAllocation"] = True
    return built.label(PRE_ALLOCATION_REQUIRED, "true") if required else built


def reserved_devices(trial: Trial, name: str) -> str:
    """The devices of a reservation, in JSON; "" as long as it has none."""
    current = trial.reservation(name)
    return current.metadata.annotations.get(DEVICE_ALLOCATED, "") if current is not None else ""
