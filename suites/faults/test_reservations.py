"""Writes about reservations are refused, late or lost: who is in a reservation, and its status, stay right."""

import orjson
import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import BindingsOf, Link, OfKind, reservation_placements
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH, Reservation
from seatrial.suites.allocation.reserving import SMALL, owner, reserved_devices, taking_over
from seatrial.suites.faults.schedulers import link, pause, running, witnessed

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

_CONTROLLER = "koordinator: pkg/scheduler/plugins/reservation/controller@v1.7.0"
_PLUGIN = "koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.7.0"


def owners(one: Reservation) -> list[str]:
    return sorted(owner.name for owner in one.status.current_owners)


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case("FT-120", severity="critical", source=f"{_PLUGIN} (Unreserve)")
@pytest.mark.long(seconds=20)
def test_an_owner_that_is_not_bound_gives_the_reservation_back(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings of the first owner are refused, and it goes: the next owner gets all that is reserved."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held", within=90)
    link.refuse(403, BindingsOf("a"))
    trial.submit(owner("a", cpu=4).into_reservation())
    assert trial.wait(lambda: link.refused >= 1, within=60), "the binding was to be tried"

    trial.delete("a")
    trial.submit(owner("b", cpu=4).into_reservation())

    assert reservation_of(expect.bound("b", within=60)) == "held"
    held = expect.reservation("held", lambda one: owners(one) == ["b"], "to have the second owner", within=60)
    assert held.status.phase == "Available"


@pytest.mark.feature("RSV-1.held", "HIL-4.api-errors")
@pytest.mark.case("FT-130", severity="critical", source="kubernetes: an object is gone when its deletion is watched")
@pytest.mark.long(seconds=15)
def test_a_reservation_that_goes_before_its_place_is_answered(trial: Trial, expect: Expect, link: Link) -> None:
    """A reservation gets all of the node, and is deleted; the answer to the write of its place comes after its end has
    been watched. A pod gets the node."""
    trial.add(node("n1").cpu(SMALL))
    witnessed(trial, expect)
    link.delay = 3.0
    trial.reserve(reservation("held").like(pod("x").request(cpu=SMALL)).for_labels(app="owner"))
    expect.available("held", within=60)
    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/held").ok
    pause(trial, 10, real=4)
    link.delay = 0.0

    trial.submit(pod("a").request(cpu=SMALL))

    expect.bound("a", within=60)


@pytest.mark.feature("RSV-1.held", "HIL-4.api-errors")
@pytest.mark.case(
    "FT-182", severity="critical", source="kubernetes: 409: another writer was first; read, and try again"
)
@pytest.mark.long(seconds=20)
def test_a_place_that_met_a_conflict_is_written_later(trial: Trial, expect: Expect, link: Link) -> None:
    """The write of a reservation's place is answered with a conflict, and it has no place: it gets one afterwards."""
    trial.add(node("n1").cpu(SMALL))
    witnessed(trial, expect)
    link.refuse(409, reservation_placements)
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner"))
    assert trial.wait(lambda: link.refused >= 1, within=60), "the reservation was to be placed"
    pause(trial, 3, real=3)

    link.heal()

    expect.available("held", within=60)


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case("FT-121", severity="critical", source=f"{_CONTROLLER} (syncStatus)")
@pytest.mark.long(seconds=20)
def test_a_status_that_was_refused_is_written_again(trial: Trial, expect: Expect, link: Link) -> None:
    """Writes of reservations are refused while an owner is bound: its name is in the status once they are accepted."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many())
    expect.available("held", within=90)
    link.refuse(500, reservation_placements)
    trial.submit(owner("a", cpu=2))
    expect.bound("a", within=60)
    assert trial.wait(lambda: link.refused >= 1, within=60), "the status was to be written"
    pause(trial, 10, real=5)  # nothing of the pod changes any more

    link.heal()

    expect.reservation("held", lambda one: owners(one) == ["a"], "to name its owner", within=60)


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case("FT-122", severity="critical", source=f"{_CONTROLLER} (syncStatus)")
@pytest.mark.long(seconds=20)
def test_owners_that_come_while_the_status_is_written(trial: Trial, expect: Expect, link: Link) -> None:
    """Answers take two seconds. Three owners come within one write of the status: it has all three, and what they
    have, when nothing else happens."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many())
    expect.available("held", within=90)
    link.delay = 2.0
    names = ["a", "b", "c"]
    for name in names:
        trial.submit(owner(name, cpu=1))
        pause(trial, 0.8, real=0.8)
    expect.bound(*names, within=60)
    link.delay = 0.0

    trial.reaches(lambda: (one := trial.reservation("held")) is not None and owners(one) == names, within=6)
    held = expect.reservation("held", lambda one: owners(one) == names, "to have all owners", within=0)

    assert held.status.allocated == {"cpu": "3"}


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("FT-123", severity="normal", source=f"{_PLUGIN} (Unreserve)")
@pytest.mark.long(seconds=20)
def test_a_reservation_that_goes_elsewhere_takes_nobody_over(trial: Trial, expect: Expect, link: Link) -> None:
    """A reservation would take over a running pod, but its place is refused. Then the pod's node is closed and another
    one becomes free: the reservation goes there, all of it is held, and the pod is in no reservation."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(owner("old", cpu=5))
    expect.running("old", within=90)
    trial.add(node("n2").cpu(SMALL))
    trial.submit(pod("full").request(cpu=SMALL))
    expect.bound("full", within=60)
    link.refuse(403, reservation_placements)
    trial.reserve(taking_over("held", 5, required=False))
    assert trial.wait(lambda: link.refused >= 1, within=60), "the reservation was to be placed"
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    pause(trial, 10, real=5)
    link.heal()
    trial.delete("full")

    assert expect.available("held", within=60).status.node_name == "n2"

    trial.submit(pod("stranger").request(cpu=4))
    expect.pending("stranger")
    pause(trial, 5, real=3)
    assert not reservation_of(trial.pod("old"))


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("FT-124", severity="normal", source=f"{_CONTROLLER} (syncStatus)")
@pytest.mark.long(seconds=20)
def test_a_pod_is_an_owner_once_it_says_so(trial: Trial, expect: Expect, link: Link) -> None:
    """A reservation takes over a running pod, and writes to pods are refused: the status names no owner before the pod
    has the annotation."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(owner("old", cpu=5))
    expect.running("old", within=90)
    link.refuse(500, OfKind("pods"))
    trial.reserve(taking_over("held", 5))
    assert trial.wait(lambda: link.refused >= 1, within=60), "expected a try to annotate the pod"
    pause(trial, 10, real=5)
    current = trial.reservation("held")
    assert current is not None
    assert (reservation_of(trial.pod("old")), owners(current)) == ("", [])

    link.heal()

    expect.reservation("held", lambda one: owners(one) == ["old"], "to name its owner", within=90)
    assert reservation_of(trial.pod("old")) == "held"


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("FT-126", severity="critical", source=f"{_PLUGIN} (filterWithPreAllocatablePods)")
@pytest.mark.long(seconds=20)
def test_a_pod_is_taken_over_once(trial: Trial, expect: Expect, link: Link) -> None:
    """Two reservations that must take over the only owner come while answers are late: one of them gets it."""
    trial.add(node("n1").cpu(4 * SMALL))
    trial.submit(owner("old", cpu=5))
    expect.running("old", within=90)
    link.delay = 3.0

    trial.reserve(taking_over("one", 5), taking_over("two", 5))

    pause(trial, 40, real=10)
    link.delay = 0.0
    pause(trial, 10, real=3)
    current = [trial.reservation(name) for name in ("one", "two")]
    places = [one.status.node_name for one in current if one is not None]
    assert sorted(places) == ["", "n1"], current
    assert reservation_of(trial.pod("old")) == ("one" if places[0] else "two")


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-125", severity="normal", source="ours")
@pytest.mark.long(seconds=13)
@pytest.mark.parametrize("who", ["another-of-its-name", "another-scheduler"])
def test_a_place_that_somebody_else_wrote(trial: Trial, expect: Expect, link: Link, who: str) -> None:
    """Placing a reservation is refused. Meanwhile another scheduler places it with another card, or one of its name
    that replaced it, on the same node: the scheduler does not write that it placed the first."""
    trial.add(node("n1").cards(2))
    witnessed(trial, expect)
    template = pod("x").gpus(1) if who == "another-scheduler" else pod("x").request(cpu=1)
    held = reservation("held").like(template).for_labels(app="owner").many()
    path = f"{RESERVATIONS_PATH}/held"
    if who == "another-scheduler":
        link.delay = 5.0  # between the card, which is written first, and the place
        trial.reserve(held)
        assert trial.wait(lambda: reserved_devices(trial, "held") != "", within=60), "a card was to be written"
        link.refuse(500, OfKind("reservations"))
    else:
        link.refuse(500, OfKind("reservations"))
        trial.reserve(held)
    assert trial.wait(lambda: link.refused >= 2, within=60), "expected a try and a read of the reservation"
    current = trial.reservation("held")
    assert current is not None
    first, written = current.metadata.uid, reserved_devices(trial, "held")
    if who == "another-scheduler":
        other = written.replace('"minor":0', '"minor":1')
        assert other != written, written
        assert trial.call("PATCH", path, {"metadata": {"annotations": {DEVICE_ALLOCATED: other}}}).ok
    else:
        assert trial.call("DELETE", path).ok
        trial.reserve(held)
    status = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "1"}}
    assert trial.call("PATCH", f"{path}/status", {"status": status}).ok

    link.delay = 0.0
    link.heal()
    pause(trial, 30, real=8)

    response = trial.call("GET", "/api/v1/namespaces/default/events")
    messages = [
        row["message"]
        for row in orjson.loads(response.body)["items"]
        if row["involvedObject"].get("uid") == first and row["reason"] == "Scheduled"
    ]
    assert not messages, f"it was placed by another scheduler; its events: {messages}"
    expect.available("held")
