"""Pods in operating mode Reservation: other pods take the place of a running pod (RSV-R23)."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import (
    CURRENT_OWNER,
    OPERATING_MODE,
    RESERVATION_ALLOCATED,
    RESERVATION_OWNERS,
    allocation,
)
from seatrial.scheduler.api.wire import Condition
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, owner
from seatrial.scheduler.tests.rig import Rig

OWNERS = [{"labelSelector": {"matchLabels": {"app": "a"}}}]


def offering(name: str = "offer", **resources: Any) -> PodBuilder:
    built = pod(name).request(**(resources or {"cpu": 6})).label(OPERATING_MODE, "Reservation")
    return built.annotation(RESERVATION_OWNERS, orjson.dumps(OWNERS).decode())


def ready(rig: Rig, placed: Pod, annotations: Mapping[str, str] | None = None, *, on: bool = True) -> Pod:
    """The pod runs and is Ready, or not."""
    status = replace(placed.status, phase="Running", conditions=(Condition("Ready", "True" if on else "False"),))
    metadata = replace(placed.metadata, annotations={**placed.metadata.annotations, **(annotations or {})})
    changed = replace(placed, status=status, metadata=metadata)
    rig.core.intake.set_pod(changed)
    return changed


def used(rig: Rig) -> int:
    node = rig.core.cache.find("n")
    assert node is not None
    return node.requested[rig.core.handle.columns.resources.column("cpu")]


def small() -> Rig:
    rig = Rig()
    rig.node("n", cpu="8")
    return rig


def test_an_owner_takes_the_place_of_a_ready_pod() -> None:
    """Eight cores, of which the offering pod requests six: an owner of five takes its place, a stranger waits."""
    rig = small()
    placed = rig.running(offering(), "n")
    rig.submit(owner("early", cpu=5))
    rig.run()
    assert rig.where("early") == ""
    ready(rig, placed)
    rig.submit(pod("stranger").request(cpu=5))
    rig.clock.advance(2.0)
    rig.run()
    assert (rig.where("early"), rig.where("stranger")) == ("n", "")
    assert rig.binding("early").annotations[RESERVATION_ALLOCATED] == allocation("offer", "uid-offer")
    assert used(rig) == 6000  # the owner's five, and one that the offering pod still holds


def test_a_place_serves_one_owner() -> None:
    """The second owner must find room beside, and there is none; when the first goes, it takes the place."""
    rig = small()
    ready(rig, rig.running(offering(), "n"))
    rig.submit(owner("a", cpu=2))
    rig.run()
    rig.submit(owner("b", cpu=4))
    rig.run()
    assert (rig.where("a"), rig.where("b")) == ("n", "")
    rig.delete("a")
    rig.clock.advance(2.0)
    rig.run()
    assert rig.where("b") == "n"
    assert used(rig) == 6000


def test_the_current_owner_closes_the_place() -> None:
    """The annotation names an owner that this scheduler did not place; without it the place is open again."""
    rig = small()
    placed = ready(
        rig, rig.running(offering(), "n"), {CURRENT_OWNER: '{"kind":"Pod","namespace":"d","name":"x","uid":"u-x"}'}
    )
    rig.submit(owner("a", cpu=5))
    rig.run()
    assert rig.where("a") == ""
    ready(rig, placed, {CURRENT_OWNER: ""})
    rig.clock.advance(2.0)
    rig.run()
    assert rig.where("a") == "n"


def test_a_pod_that_is_not_ready_any_more_offers_nothing() -> None:
    rig = small()
    placed = ready(rig, rig.running(offering(), "n"))
    ready(rig, placed, on=False)
    rig.submit(owner("a", cpu=5))
    rig.run()
    assert rig.where("a") == ""


def test_the_owner_stays_when_the_offering_pod_goes() -> None:
    rig = small()
    ready(rig, rig.running(offering(), "n"))
    rig.submit(owner("a", cpu=5))
    rig.run()
    rig.delete("offer")
    assert used(rig) == 5000
    assert not list(ReservationCache.of(rig.core.handle))
    rig.submit(pod("stranger").request(cpu=3))
    rig.run()
    assert rig.where("stranger") == "n"


def test_after_a_restart_the_owner_is_found_in_its_place() -> None:
    """The scheduler sees the owner first, and then the pod whose place it has."""
    rig = small()
    rig.running(owner("a", cpu=5).annotation(RESERVATION_ALLOCATED, allocation("offer", "uid-offer")), "n")
    ready(rig, rig.running(offering(), "n"))
    assert used(rig) == 6000


def test_cards_are_taken_over() -> None:
    """The only card is held by the offering pod: its owner gets it, a stranger waits."""
    rig = Rig()
    rig.node("n", cpu="8", gpus=1)
    rig.submit(offering(cpu=1).gpus(1))
    rig.run()
    annotations = rig.binding("offer").annotations
    placed = rig.pods["offer"]
    placed = replace(placed, spec=replace(placed.spec, node_name="n"))
    ready(rig, placed, annotations)
    rig.submit(pod("stranger").request(cpu=1).gpus(1), owner("a", cpu=1).gpus(1))
    rig.run()
    assert (rig.where("a"), rig.where("stranger")) == ("n", "")


def test_an_offering_pod_avoids_reservations_of_the_default_policy() -> None:
    """Its own policy is Aligned (RSV-R28)."""
    rig = small()
    hold(rig, "r", "n", {"cpu": 1000})
    rig.submit(offering(cpu=1))
    rig.run()
    assert rig.where("offer") == ""
    assert "node(s) reservation allocate policy conflict" in rig.message("offer")


def test_owners_that_cannot_be_read_are_said() -> None:
    rig = small()
    ready(rig, rig.running(offering().annotation(RESERVATION_OWNERS, "web"), "n"))
    assert any(
        "pod default/offer" in text and "expected a list of reservation owners" in text for text in rig.complaints()
    )
    assert used(rig) == 6000
