"""Victims for a pod that matches reservations, and for one that does not (RSV-R44, DEV-R63)."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED, Reservation, ReservationStatus, allocation
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside, owner
from seatrial.scheduler.tests.rig import Rig, profile

BY_RESERVATION: dict[str, Any] = {
    "pluginConfig": [{"name": "Reservation", "args": {"enablePreemption": True}}],
    "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}], "enabled": [{"name": "Reservation"}]}},
}
each_plugin = pytest.mark.parametrize(
    "parts", [pytest.param(BY_RESERVATION, id="by-reservation"), pytest.param({}, id="by-default")]
)


def full(parts: dict[str, Any], policy: str = "") -> Rig:
    """A node of 8 cores: 4 plain ones in use, and 4 reserved ones with a pod in all of them."""
    rig = Rig(profile(**parts))
    rig.node("n", cpu="8")
    rig.running(pod("plain").request(cpu=4), "n")
    hold(rig, "r", "n", {"cpu": 4000}, policy=policy)
    inside(rig, "in-it", "n", "r", cpu=4)
    return rig


def important(builder: PodBuilder) -> PodBuilder:
    return builder.priority(10)


@each_plugin
def test_a_restricted_reservation_gives_only_victims_inside(parts: dict[str, Any]) -> None:
    rig = full(parts, "Restricted")
    rig.submit(important(owner("wants", cpu=3).into_reservation()))
    rig.run()
    assert rig.victims() == ["in-it"]
    rig.delete("in-it")
    rig.clock.advance(2.0)
    rig.run()
    assert RESERVATION_ALLOCATED in rig.binding("wants").annotations


@each_plugin
def test_owners_are_no_victims_of_other_pods(parts: dict[str, Any]) -> None:
    rig = full(parts)
    rig.submit(important(pod("stranger").request(cpu=3)))
    rig.run()
    assert rig.victims() == ["plain"]


@each_plugin
def test_a_pod_that_needs_owners_as_victims_is_refused(parts: dict[str, Any]) -> None:
    rig = full(parts)
    rig.delete("plain")
    rig.running(pod("dear").request(cpu=4).priority(20), "n")
    rig.submit(important(pod("stranger").request(cpu=3)))
    rig.run()
    assert rig.victims() == []
    assert "Insufficient cpu" in rig.message("stranger")


def test_a_reservation_is_never_a_victim() -> None:
    rig = Rig(profile(**BY_RESERVATION))
    rig.node("n", cpu="8")
    hold(rig, "r", "n", {"cpu": 8000}, app="b")
    rig.submit(important(pod("stranger").request(cpu=3)))
    rig.run()
    assert rig.victims() == []


def test_pods_marked_as_not_preemptible_are_spared() -> None:
    rig = Rig(profile(**BY_RESERVATION))
    rig.node("n", cpu="8")
    rig.running(pod("marked").request(cpu=4).label("scheduling.koordinator.sh/disable-preemptible", "true"), "n")
    rig.running(pod("plain").request(cpu=4), "n")
    rig.submit(important(pod("wants").request(cpu=4)))
    rig.run()
    assert rig.victims() == ["plain"]


def full_node_rig(parts: dict[str, Any]) -> Rig:
    """A full node, and a reservation that needs room there."""
    rig = Rig(profile(**parts))
    rig.node("n", cpu="8")
    rig.running(pod("plain").request(cpu=8), "n")
    manifest = reservation("r").like(pod("x").request(cpu=4)).for_labels(app="a").manifest
    manifest["metadata"]["uid"] = "r"
    rig.core.intake.set_reservation(msgspec.convert(manifest, Reservation))
    rig.run()
    return rig


def test_reservations_do_not_preempt_by_default() -> None:
    assert full_node_rig({}).victims() == []


def test_a_reservation_may_preempt() -> None:
    rig = full_node_rig(BY_RESERVATION)
    assert rig.victims() == ["plain"]
    rig.delete("plain")
    rig.clock.advance(2.0)
    rig.run()
    assert rig.binding("r").node == "n"


def cards(*minors: int) -> str:
    share = (
        '{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi","koordinator.sh/gpu-memory-ratio":"100"}'
    )
    return '{"gpu":[' + ",".join(f'{{"minor":{minor},"resources":{share}}}' for minor in minors) + "]}"


def with_cards(parts: dict[str, Any], policy: str = "Aligned") -> Rig:
    """A node with two cards: one reserved and used by an owner, one used by another pod."""
    rig = Rig(profile(**parts))
    rig.node("n", gpus=2)
    built = reservation("r").like(pod("x").gpus(1)).for_labels(app="a").many().policy(policy)
    built.annotation(DEVICE_ALLOCATED, cards(0))
    built.manifest["metadata"]["uid"] = "r"
    status = ReservationStatus("Available", node_name="n", allocatable={"koordinator.sh/gpu": "100"})
    rig.core.intake.set_reservation(
        msgspec.structs.replace(msgspec.convert(built.manifest, Reservation), status=status)
    )
    one = owner("in-it").gpus(1).annotation(RESERVATION_ALLOCATED, allocation("r", "r"))
    rig.running(one.annotation(DEVICE_ALLOCATED, cards(0)), "n")
    rig.running(pod("plain").gpus(1).annotation(DEVICE_ALLOCATED, cards(1)), "n")
    return rig


@each_plugin
def test_the_card_of_an_owner_returns_to_its_reservation(parts: dict[str, Any]) -> None:
    """DEV-R63: a pod outside the reservation gets the card of a pod outside it."""
    rig = with_cards(parts)
    rig.submit(important(pod("stranger").gpus(1)))
    rig.run()
    assert rig.victims() == ["plain"]


@each_plugin
def test_two_cards_do_not_fit_where_one_is_reserved(parts: dict[str, Any]) -> None:
    rig = with_cards(parts)
    rig.submit(important(pod("stranger").gpus(2)))
    rig.run()
    assert rig.victims() == []


@each_plugin
def test_an_owner_may_preempt_the_card_of_an_owner(parts: dict[str, Any]) -> None:
    rig = with_cards(parts, "Restricted")
    rig.submit(important(owner("wants").gpus(1).into_reservation(name="r")))
    rig.run()
    assert rig.victims() == ["in-it"]
    rig.delete("in-it")
    rig.clock.advance(2.0)
    rig.run()
    assert '"minor":0' in rig.binding("wants").annotations[DEVICE_ALLOCATED]
