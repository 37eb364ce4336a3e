"""PodGroups that change while members of NonStrict gangs hold places or wait.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import GANG_MATCH_POLICY, GANG_MODE
from seatrial.suites.gang.members import bound, names, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def two_hold_cards(trial: Trial, expect: Expect) -> None:
    """Two of three members hold both cards for ten minutes, and a pod that is not in the gang gets none."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=5)
    trial.submit(pod("other").gpus(1).request(cpu=3))
    expect.pending("other")
    expect.stable(seconds=5)
    assert bound(trial) == []


def change(trial: Trial, results: dict[str, Any]) -> None:
    assert trial.call("PATCH", trial.path("PodGroup", "train"), results).ok


@pytest.mark.feature("GANG-2.changed")
@pytest.mark.case("GA-140", severity="critical", source="ours")
@pytest.mark.long(seconds=6)
def test_a_smaller_minimum_starts_the_members_that_hold_places(trial: Trial, expect: Expect) -> None:
    """Two of three members hold the cards for ten minutes. minMember becomes two: both are bound at once."""
    two_hold_cards(trial, expect)

    change(trial, {"spec": {"minMember": 2}})

    assert trial.reaches(lambda: len(bound(trial, "train")) == 2, within=30), "the members still wait for a third"


@pytest.mark.feature("GANG-2.changed")
@pytest.mark.case("GA-325", severity="normal", source="ours")
@pytest.mark.long(seconds=6)
def test_a_match_policy_that_changes_starts_the_members_that_hold_places(trial: Trial, expect: Expect) -> None:
    """A gang of two, of which members that wait alone count, is bound. A third member holds a card for ten minutes. The
    policy becomes waiting-and-running, so that bound members count: it is bound at once."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2).waiting_time(600).mode("NonStrict").match_policy("only-waiting"))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    trial.submit(*workers("train", 1, first=2))
    expect.stable(seconds=5)
    assert bound(trial, "train") == names("train", 2)

    change(trial, {"metadata": {"annotations": {GANG_MATCH_POLICY: "waiting-and-running"}}})

    expect.bound("train-2", within=30)


@pytest.mark.feature("GANG-2.changed")
@pytest.mark.case("GA-141", severity="critical", source="ours")
@pytest.mark.long(seconds=8)
def test_a_gang_that_becomes_strict_holds_no_places(trial: Trial, expect: Expect) -> None:
    """Two of three members hold the cards for ten minutes. The mode becomes Strict: another pod gets a card, and the
    gang starts when there are three."""
    two_hold_cards(trial, expect)

    change(trial, {"metadata": {"annotations": {GANG_MODE: "Strict"}}})

    expect.bound("other", within=30)
    trial.add(node("n2").cards(2))
    expect.bound(*names("train", 3), within=60)


@pytest.mark.feature("GANG-2.changed")
@pytest.mark.case("GA-142", severity="critical", source="ours")
@pytest.mark.long(seconds=9)
def test_the_members_of_a_deleted_pod_group_hold_no_places(trial: Trial, expect: Expect) -> None:
    """Two of three members hold the cards for ten minutes. Their PodGroup is deleted: another pod gets a card. With a
    new one they start when there are three."""
    two_hold_cards(trial, expect)

    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok

    expect.bound("other", within=30)
    trial.apply(gang("train", 3))
    trial.add(node("n2").cards(2))
    expect.bound(*names("train", 3), within=60)


@pytest.mark.feature("GANG-2.nonstrict", "GANG-1.quorum")
@pytest.mark.case("GA-143", severity="critical")
def test_gangs_of_equal_pods_start_with_one_node(trial: Trial, expect: Expect) -> None:
    """Three NonStrict gangs of two equal pods and a pod without a gang find no card. A node comes that has room for
    all; no other event follows."""
    trial.add(node("n1").cards(1))
    trial.submit(pod("first").gpus(1))
    expect.bound("first")
    trial.apply(*(gang(name, 2).waiting_time(600).mode("NonStrict") for name in ("a", "b", "c")))
    trial.submit(*(member for name in ("a", "b", "c") for member in workers(name, 2)), pod("other").gpus(1))
    expect.pending("other")
    expect.stable(seconds=5)

    trial.add(node("n2").cards(8))

    expect.bound(*(member for name in ("a", "b", "c") for member in names(name, 2)), "other", within=60)


@pytest.mark.feature("GANG-2.changed", "GANG-1.timeout")
@pytest.mark.case("GA-258", severity="normal", source="spec GANG-R5, GANG-R28")
@pytest.mark.long(seconds=40)
def test_a_waiting_time_that_changes_counts(trial: Trial, expect: Expect) -> None:
    """The waiting time of a PodGroup is ten minutes, and becomes ten seconds before its members come. Two of three hold
    the cards no longer than that: another pod gets one."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"))
    trial.pass_time(2)
    change(trial, {"spec": {"scheduleTimeoutSeconds": 10}})
    trial.pass_time(2)
    trial.submit(*workers("train", 3))
    expect.stable(seconds=3)

    trial.submit(pod("other").gpus(1))

    expect.bound("other", within=60)


@pytest.mark.feature("GANG-2.changed", "GANG-1.timeout")
@pytest.mark.case("GA-432", severity="normal", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a minute
def test_a_waiting_time_goes_on_when_the_minimum_changes(trial: Trial, expect: Expect) -> None:
    """Two of three members hold both cards for a minute. After 40 seconds minMember becomes four: another pod gets a
    card when the minute is over."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(60).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    trial.pass_time(40)
    change(trial, {"spec": {"minMember": 4}})
    trial.submit(*workers("train", 1, first=3), pod("other").gpus(1))
    trial.pass_time(5)
    assert bound(trial) == []

    expect.bound("other", within=30)


@pytest.mark.feature("GANG-2.changed", "GANG-4.groups")
@pytest.mark.case("GA-340", severity="normal", source="ours")
@pytest.mark.long(seconds=8)
def test_the_members_of_a_gang_that_gets_a_pod_group_hold_no_places(trial: Trial, expect: Expect) -> None:
    """Two of three annotated members hold the cards for ten minutes. A PodGroup of their gang's name comes, in a group
    with a gang that does not exist: another pod gets a card. They start with the other gang when there is room."""
    trial.add(node("n1").cards(2))
    members = [pod(name).gpus(1).in_light_gang("train", 3) for name in names("train", 3)]
    trial.submit(*(member.annotation(GANG_MODE, "NonStrict") for member in members))
    expect.stable(seconds=5)
    trial.submit(pod("other").gpus(1).request(cpu=3))
    expect.pending("other")
    assert bound(trial) == []

    both = [f"{trial.name}/{name}" for name in ("late", "train")]
    trial.apply(gang("train", 3).mode("NonStrict").together_with(*both))

    expect.bound("other", within=30)
    trial.add(node("n2").cards(3))
    trial.apply(gang("late", 1).mode("NonStrict").together_with(*both))
    trial.submit(*workers("late", 1))
    expect.bound(*names("train", 3), "late-0", within=60)
