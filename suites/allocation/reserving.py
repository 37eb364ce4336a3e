"""Reservations and their owners."""

from seatrial.scheduler.api.builders import PodBuilder, pod

RESERVING = "reserving"  # the profile whose Reservation plugin preempts


SMALL = 8  # cores of a node


def owner(name: str, **resources: str | int) -> PodBuilder:
    """A pod that owns the reservations of these cases."""
    return pod(name).label("app", "owner").request(**resources)
