"""Waiting pods are woken when a reservation for them becomes available, and other pods are not."""

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside, owner
from seatrial.scheduler.tests.rig import Rig


def later(rig: Rig) -> None:
    rig.clock.advance(2.0)
    rig.run()


def test_owners_are_woken_by_an_available_reservation() -> None:
    rig = Rig()
    rig.node("n", cpu="8")
    hold(rig, "r", "n", {"cpu": 8000}, app="b")
    rig.submit(owner("mine", cpu=2), pod("other").request(cpu=2))
    rig.run()
    assert (rig.where("mine"), rig.where("other")) == ("", "")
    hold(rig, "r", "n", {"cpu": 8000}, app="a")
    later(rig)
    assert (rig.where("mine"), rig.where("other")) == ("n", "")
    assert RESERVATION_ALLOCATED in rig.binding("mine").annotations


def test_owners_that_require_different_reservations_are_woken_apart() -> None:
    rig = Rig()
    rig.node("n", cpu="8")
    rig.submit(*(owner(name, cpu=1).into_reservation(name=f"for-{name}") for name in ("first", "second")))
    rig.run()
    hold(rig, "for-second", "n", {"cpu": 1000})
    later(rig)
    assert (rig.where("first"), rig.where("second")) == ("", "n")


def test_an_owner_is_woken_by_a_leaving_owner() -> None:
    rig = Rig()
    rig.node("n", cpu="8")
    rig.running(pod("plain").request(cpu=6), "n")
    hold(rig, "r", "n", {"cpu": 2000})
    inside(rig, "in-it", "n", "r", cpu=2)
    rig.submit(owner("next", cpu=2), owner("last", cpu=2), pod("other").request(cpu=2))
    rig.run()
    assert [rig.where(name) for name in ("next", "last", "other")] == ["", "", ""]
    rig.delete("in-it")
    later(rig)
    assert [rig.where(name) for name in ("next", "last", "other")] == ["n", "", ""]
    rig.delete("next")
    later(rig)
    assert [rig.where(name) for name in ("last", "other")] == ["n", ""]


def test_an_ended_reservation_frees_its_amounts() -> None:
    rig = Rig()
    rig.node("n", cpu="2")
    hold(rig, "r", "n", {"cpu": 2000})
    rig.submit(pod("other").request(cpu=2))
    rig.run()
    assert rig.where("other") == ""
    rig.core.intake.remove_reservation("r")
    later(rig)
    assert rig.where("other") == "n"


def test_a_failed_binding_releases_the_place() -> None:
    rig = Rig()
    rig.node("n", cpu="8")
    hold(rig, "r", "n", {"cpu": 8000})
    rig.submit(owner("mine", cpu=2))
    rig.run(bind=False)
    reserved = ReservationCache.of(rig.core.handle).find("r")
    assert reserved is not None
    assert reserved.allocated == {"cpu": 2000}
    rig.core.bind_failed("uid-mine", "no answer", retry=False)
    assert reserved.allocated == {}
    node = rig.core.cache.find("n")
    assert node is not None
    assert node.requested[1] == 8000
