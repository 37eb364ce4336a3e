"""Resources and devices held for pods to come: nobody else gets them, their owners do, and what is left is given back.

A reservation is judged by what its status says, by where pods land, and by which cards they get.
"""

import msgspec
import pytest

from fixtures.expect import Expect
from fixtures.trial import Trial
from harness.clusters.protocol import Capability
from scheduler.api.builders import PodBuilder, node, pod, reservation
from scheduler.api.core import Pod
from scheduler.api.quantity import amount
from scheduler.api.reservation import RESERVATION_ALLOCATED, Reservation

pytestmark = [pytest.mark.needs(Capability.NODES)]

SMALL = 8  # cores of a node


def owner(name: str, **resources: str | int) -> PodBuilder:
    """A pod for which the reservations here are."""
    return pod(name).label("app", "owner").request(**resources)


def inside(one: Pod) -> str:
    """The name of the reservation that a pod was placed in; "" if in none."""
    found = one.metadata.annotations.get(RESERVATION_ALLOCATED)
    return str(msgspec.json.decode(found)["name"]) if found else ""


def cpu(amounts: dict[str, str | int | float]) -> int:
    return amount("cpu", amounts.get("cpu", 0))


def conditions(one: Reservation) -> list[tuple[str, str, str]]:
    return [(found.type, found.status, found.reason) for found in one.status.conditions]


@pytest.mark.feature("RSV-1")
@pytest.mark.case("RV-001", severity="blocker")
def test_a_place_is_held_for_its_owner(cluster: Trial, expect: Expect) -> None:
    """A reservation is scheduled like a pod; strangers stay out of it, its owner gets in, and both say so."""
    cluster.add(node("n1").cpu(SMALL))
    cluster.reserve(reservation("held").like(pod("x").request(cpu=6, memory="1Gi")).for_labels(app="owner").many())
    held = expect.available("held")
    cluster.submit(pod("stranger").request(cpu=3))
    expect.pending("stranger", saying="Insufficient cpu")

    cluster.submit(owner("a", cpu=4))

    a = expect.bound("a")
    assert (held.status.node_name, cpu(held.status.allocatable)) == ("n1", 6000)
    assert conditions(held) == [("Scheduled", "True", "Scheduled"), ("Ready", "True", "Available")]
    assert inside(a) == "held"
    held = expect.reservation("held", lambda one: len(one.status.current_owners) == 1, "to name its owner")
    assert (held.status.current_owners[0].name, cpu(held.status.allocated), held.status.phase) == (
        "a",
        4000,
        "Available",
    )
    expect.pending("stranger")
