"""Members that come after their gang was bound."""

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, gang
from seatrial.scheduler.api.podgroup import POD_GROUP_LABEL
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import CLUSTER_T, TopologyRig, gathered


def ran(policy: str, *, count: int = 2) -> GangRig:
    """A gang of two that was bound on a node of four CPUs, with one of two CPUs each."""
    rig = GangRig()
    rig.node("n1", cpu="4")
    rig.group(gang("job", 2), match_policy=policy)
    rig.submit(*(worker(f"m{number}") for number in range(count)))
    rig.run()
    assert len(rig.placed()) == 2
    rig.node("n2", cpu="4")
    return rig


def worker(name: str) -> PodBuilder:
    return member(name, "job", cpu=2)


def test_with_once_satisfied_a_late_member_is_bound_alone() -> None:
    rig = ran("once-satisfied")
    rig.submit(worker("late"))
    rig.run()
    assert rig.where("late") == "n2"


def test_with_waiting_and_running_it_counts_with_the_running_ones() -> None:
    rig = ran("waiting-and-running")
    rig.submit(worker("late"))
    rig.run()
    assert rig.where("late") == "n2"


def test_with_waiting_and_running_too_few_running_members_hold_it_back() -> None:
    """One of two members ended: the next one is bound, because one runs and one would be placed."""
    rig = ran("waiting-and-running")
    for name in ("m0", "m1"):
        rig.delete(name)
    rig.submit(worker("late"))
    rig.run()
    assert rig.placed() == []
    rig.submit(worker("later"))
    rig.run()
    assert rig.placed() == ["late", "later"]


def test_with_only_waiting_the_minimum_must_wait_again() -> None:
    rig = ran("only-waiting")
    rig.submit(worker("late"))
    rig.run()
    rig.clock.advance(30)
    rig.run()
    assert rig.where("late") == ""
    rig.submit(worker("later"))
    rig.clock.advance(30)
    rig.run()
    assert {rig.where("late"), rig.where("later")} == {"n2"}


def test_a_late_member_of_a_gang_that_gathers_is_placed_without_rules() -> None:
    """The block of the gang is full: the late member goes elsewhere instead of waiting."""
    rig = TopologyRig()
    rig.fleet(CLUSTER_T)
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"m{number}", "job", cpu=16) for number in range(2)))
    blocks = rig.decide_all()
    assert set(blocks.values()) == {"node-1", "node-8"}
    rig.submit(member("late", "job", cpu=16))
    assert rig.decide_all()["late"] not in {"", "node-1", "node-8"}


def test_a_member_that_comes_again_after_it_failed_is_bound_alone() -> None:
    """The controller made the pod anew under another uid: upstream's failover (GANG-R39a)."""
    rig = ran("once-satisfied")
    rig.delete("m1")
    rig.submit(worker("m1-again"))
    rig.run()
    assert rig.where("m1-again") in {"n1", "n2"}


@pytest.mark.parametrize("labels", [{POD_GROUP_LABEL: "other"}, {}], ids=["another-gang", "no-gang"])
def test_a_placed_member_that_leaves_its_gang_gives_its_place_back(labels: dict[str, str]) -> None:
    """Two of three members of a NonStrict gang have places. The first one gets other labels: it is bound at once, and
    the gang is bound when two further members have places."""
    rig = GangRig()
    rig.node("n1", cpu="4")
    rig.group(gang("job", 3), mode="NonStrict")
    rig.group(gang("other", 1))
    rig.submit(*(worker(f"m{number}") for number in range(3)))
    rig.run()
    assert rig.waiting() == ["m0", "m1"]
    moved = rig.pods["m0"]
    rig.pods["m0"] = replace(moved, metadata=replace(moved.metadata, labels=labels))

    rig.core.intake.set_pod(rig.pods["m0"])

    assert rig.waiting() == ["m1"]
    rig.run()
    assert rig.waiting() == ["m1"]
    assert "m0" in rig.placed()
    rig.submit(worker("m3"))
    rig.node("n2", cpu="4")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["m0", "m1", "m2", "m3"]
    assert not rig.waiting()
