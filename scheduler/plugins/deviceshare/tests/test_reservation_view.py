"""Devices in reservations and beside them (DEV-R62): allocation and reasons."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, parse_allocations
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED, Reservation, ReservationStatus
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.restoring import restore
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.tests.rig import Rig

OWNED = {"app": "a"}
Cards = dict[int, int]  # minor → percent


def allocated(cards: Cards) -> str:
    entries = [
        {"minor": minor, "resources": {**shares(part), GPU_MEMORY: f"{part * 80 // 100}Gi"}}
        for minor, part in cards.items()
    ]
    return to_json({"gpu": entries}).decode()


def hold(rig: Rig, name: str, cards: Cards, *, policy: str = "") -> None:
    """An available reservation on node n with just these cards."""
    one = reservation(name).like(pod("x").resources(shares(sum(cards.values())))).for_labels(**OWNED).many()
    if policy:
        one.policy(policy)
    one.annotation(DEVICE_ALLOCATED, allocated(cards)).manifest["metadata"]["uid"] = name
    status = ReservationStatus("Available", node_name="n", allocatable=dict(shares(sum(cards.values()))))
    rig.core.intake.set_reservation(msgspec.structs.replace(msgspec.convert(one.manifest, Reservation), status=status))


def shares(percent: int) -> dict[str, Any]:
    return {GPU_CORE: str(percent), GPU_MEMORY_RATIO: str(percent)}


def owner(name: str, percent: int) -> PodBuilder:
    return pod(name).label("app", "a").resources(shares(percent))


def taken(rig: Rig, name: str) -> Cards:
    """The percent of each card that a pod got."""
    gpu = parse_allocations(rig.binding(name).annotations)["gpu"]
    return {entry.minor: int(str(entry.resources[GPU_CORE])) for entry in gpu}


def confirmed(rig: Rig) -> None:
    """Run the scheduler, and confirm every bound pod with its annotations as the API server would."""
    for decision in rig.run():
        if isinstance(decision, Bind):
            made = decision.info.pod
            annotations = {**made.metadata.annotations, **decision.annotations}
            metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
            spec = msgspec.structs.replace(made.spec, node_name=decision.node)
            rig.core.intake.set_pod(msgspec.structs.replace(made, metadata=metadata, spec=spec))


@pytest.mark.parametrize(
    ("policy", "amount", "expected"),
    [
        pytest.param("", 100, {3: 100}, id="its-own-card-first"),
        pytest.param("", 50, {3: 50}, id="a-part-of-its-own-card"),
        pytest.param("Aligned", 200, {0: 100, 3: 100}, id="its-own-card-and-another"),
        pytest.param("Restricted", 100, {3: 100}, id="restricted"),
        pytest.param("Restricted", 200, {}, id="restricted-and-no-more"),
    ],
)
def test_a_card_reserved_out_of_four(policy: str, amount: int, expected: Cards) -> None:
    rig = Rig()
    rig.node("n", gpus=4)
    hold(rig, "r", {3: 100}, policy=policy)
    rig.submit(owner("a", amount).into_reservation())
    rig.run()
    if expected:
        assert taken(rig, "a") == expected
    else:
        assert "Reservation(s) Insufficient gpu devices" in rig.message("a")


def test_other_pods_get_the_unreserved_rest() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    hold(rig, "r", {0: 100, 1: 40})
    rig.submit(pod("half").resources(shares(60)), pod("whole").resources(shares(100)))
    rig.run()
    assert taken(rig, "half") == {1: 60}
    assert "Insufficient" in rig.message("whole")


def test_owners_share_what_is_reserved_until_it_is_used_up() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    hold(rig, "r", {1: 100}, policy="Restricted")
    for name in ("a", "b", "c"):
        rig.submit(owner(name, 40).into_reservation())
    confirmed(rig)
    assert (taken(rig, "a"), taken(rig, "b")) == ({1: 40}, {1: 40})
    assert rig.message("c").startswith("0/1 nodes are available: 1 Reservation(s) Insufficient")
    rig.submit(pod("stranger").resources(shares(30)))
    rig.run()
    assert taken(rig, "stranger") == {0: 30}  # the 20 percent left of card 1 stay reserved


def test_devices_of_a_deleted_owner_return_to_the_reservation() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    hold(rig, "r", {0: 100})
    rig.submit(owner("a", 100))
    confirmed(rig)
    rig.delete("a")
    rig.submit(pod("stranger").resources(shares(10)))
    rig.run()
    assert "Insufficient" in rig.message("stranger")
    rig.core.intake.remove_reservation("r")
    rig.clock.advance(2.0)
    rig.run()
    assert taken(rig, "stranger") == {0: 10}


def test_the_reservation_with_enough_devices_is_chosen() -> None:
    rig = Rig()
    rig.node("n", gpus=3)
    hold(rig, "one", {0: 100}, policy="Restricted")
    hold(rig, "two", {1: 100, 2: 100}, policy="Restricted")
    rig.submit(owner("a", 200))
    rig.run()
    assert taken(rig, "a") == {1: 100, 2: 100}
    assert '"two"' in rig.binding("a").annotations[RESERVATION_ALLOCATED]


def test_a_pod_that_ignores_reservations_may_use_reserved_devices() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    hold(rig, "r", {0: 100})
    rig.submit(pod("a").resources(shares(100)).ignores_reservations())
    rig.run()
    assert taken(rig, "a") == {0: 100}
    assert RESERVATION_ALLOCATED not in rig.binding("a").annotations


def test_overused_cards_stay_full_after_one_removal() -> None:
    """DEV-E11, last row: two cards are allocated twice; removing one of the pods frees none."""
    rig = Rig()
    rig.node("n", gpus=2)
    for name in ("a", "b", "c", "d"):
        minor = int(name in "cd")
        rig.running(pod(name).resources(shares(100)).annotation(DEVICE_ALLOCATED, allocated({minor: 100})), "n")
    rig.delete("a")
    rig.submit(pod("wants").resources(shares(50)))
    rig.run()
    assert "Insufficient" in rig.message("wants")


def test_a_card_reserved_for_the_pod_scores_like_a_free_card() -> None:
    """DEV-E12: LeastAllocated score of half a card on a node whose only card is all reserved: 75."""
    rig = Rig()
    rig.node("n", gpus=1)
    hold(rig, "r", {0: 100})
    made = rig.pod(owner("a", 50))
    info = PodInfo(made, rig.core.cache.classes.of(made))
    runner, state = rig.core.runners.of(info), CycleState()
    for plugin in runner.pre_filters:
        plugin.pre_filter(state, info.pod)
    restore(runner, state, info)
    inner, seen = as_seen(state, rig.core.cache.nodes["n"])
    devices = next(entry for entry in runner.profile.all if isinstance(entry, DeviceShare))
    assert devices.score(inner, info.pod, seen) == 75


def test_a_used_up_restricted_reservation_has_no_cards() -> None:
    """Its own cards count, without free amounts; not the node's first cards (section 16)."""
    rig = Rig()
    rig.node("n", gpus=3)
    hold(rig, "r", {1: 100}, policy="Restricted")
    for name in ("a", "b"):
        rig.submit(owner(name, 100).into_reservation())
    confirmed(rig)
    assert taken(rig, "a") == {1: 100}
    assert "Reservation(s) Insufficient" in rig.message("b")
    rig.submit(owner("c", 100))
    rig.run()
    assert taken(rig, "c") == {0: 100}, "who may go elsewhere does"
