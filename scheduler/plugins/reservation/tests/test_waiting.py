"""Pods that wait get their chance when a reservation for them opens, and only they do."""

from scheduler.api.builders import pod
from scheduler.api.reservation import RESERVATION_ALLOCATED
from scheduler.plugins.reservation.book import ReservationBook
from scheduler.plugins.reservation.tests.held import hold, inside, owner
from scheduler.tests.rig import Rig


def later(rig: Rig) -> None:
    rig.clock.advance(2.0)
    rig.run()


def test_a_reservation_that_opens_lets_its_owners_in() -> None:
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


def test_owners_follow_each_other() -> None:
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


def test_what_an_ended_reservation_held_is_anybodys() -> None:
    rig = Rig()
    rig.node("n", cpu="2")
    hold(rig, "r", "n", {"cpu": 2000})
    rig.submit(pod("other").request(cpu=2))
    rig.run()
    assert rig.where("other") == ""
    rig.core.remove_reservation("r")
    later(rig)
    assert rig.where("other") == "n"


def test_a_binding_that_fails_gives_the_place_back() -> None:
    rig = Rig()
    rig.node("n", cpu="8")
    hold(rig, "r", "n", {"cpu": 8000})
    rig.submit(owner("mine", cpu=2))
    rig.run(bind=False)
    reserved = ReservationBook.of(rig.core.handle).find("r")
    assert reserved is not None
    assert reserved.allocated == {"cpu": 2000}
    rig.core.bind_failed("uid-mine", "no answer", retry=False)
    assert reserved.allocated == {}
    node = rig.core.cache.find("n")
    assert node is not None
    assert node.requested[1] == 8000
