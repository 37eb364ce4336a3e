"""Places that members of a NonStrict gang hold while they wait for the others, and how these end.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, gang, node, pod, priority_class
from seatrial.scheduler.api.podgroup import GANG_GROUPS, POD_GROUP_LABEL
from seatrial.suites.gang.members import bound, names, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def first_in_queue(trial: Trial, *, preempts: bool = False) -> str:
    """A priority class above that of the gangs."""
    name = f"{trial.name}-first"
    trial.apply(priority_class(name, 9000, preempts=preempts))
    return name


def ahead(priority: str, *target: str) -> list[PodBuilder]:
    return [pod(name).gpus(1).priority_class(priority) for name in target]


@pytest.mark.feature("GANG-1.timeout", "GANG-2.nonstrict")
@pytest.mark.case("GA-100", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME, Capability.OWN_CLUSTER)  # waiting times of a minute; priority classes
def test_each_member_has_a_waiting_time_of_its_own(trial: Trial, expect: Expect) -> None:
    """The second member of a gang of three gets a card 40 s after the first one, and both wait for a minute. Two pods
    in front of them get the first card when the first minute ends, and the second card 40 s later, not earlier."""
    first = first_in_queue(trial)
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 3).waiting_time(60).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=40)
    trial.add(node("n2").cards(1))
    expect.stable(seconds=5)
    trial.submit(*ahead(first, "x", "y"))
    expect.stable(seconds=5)
    assert bound(trial) == []

    assert trial.reaches(lambda: len(bound(trial)) == 1, within=20), "the first wait is longer than a minute"
    expect.stable(seconds=20)
    assert len(bound(trial)) == 1, "the second wait ended with the first one"
    expect.bound("x", "y", within=30)


@pytest.mark.feature("GANG-1.timeout", "GANG-4.groups")
@pytest.mark.case("GA-426", severity="normal", source="spec GANG-R28: its own timer, of the gang's wait time")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_the_gangs_of_a_group_have_waiting_times_of_their_own(trial: Trial, expect: Expect) -> None:
    """Of a NonStrict group of two gangs, a member of each holds a card: that of a for ten minutes, that of b for half a
    minute. Another pod gets the card of b after that."""
    trial.add(node("n1").cards(2))
    groups = orjson.dumps([f"{trial.name}/a", f"{trial.name}/b"]).decode()
    for name, least, wait in (("a", 1, 600), ("b", 2, 30)):
        trial.apply(gang(name, least).waiting_time(wait).mode("NonStrict").annotation(GANG_GROUPS, groups))
    trial.submit(*workers("a", 1), *workers("b", 2))
    expect.stable(seconds=5)
    trial.submit(pod("next").gpus(1))
    expect.bound("next", within=60)
    expect.stable(seconds=5)
    assert bound(trial, "a") == bound(trial, "b") == []


@pytest.mark.feature("GANG-2.nonstrict")
@pytest.mark.case("GA-101", severity="critical")
@pytest.mark.long(seconds=8)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
def test_a_more_important_pod_takes_the_place_of_a_waiting_member(trial: Trial, expect: Expect) -> None:
    """A member holds the only card for its gang. A more important pod gets it; the member is not deleted, it has a
    reason, and the gang is bound when there are two cards."""
    boss = first_in_queue(trial, preempts=True)
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2).waiting_time(600).mode("NonStrict"))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(*ahead(boss, "boss"))

    expect.bound("boss")
    expect.stable(seconds=5)
    expect.pending(*names("train", 2), cooled=False)  # both say why
    assert sorted(pod.metadata.name for pod in trial.pods() if not pod.deleting) == ["boss", *names("train", 2)]
    trial.add(node("n2").cards(2))
    expect.bound(*names("train", 2), within=60)


@pytest.mark.feature("GANG-2.nonstrict")
@pytest.mark.case("GA-431", severity="minor", source="ours")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
def test_a_member_that_loses_its_place_is_told_so(trial: Trial, expect: Expect) -> None:
    """As GA-101: the member that held the card has an event that it was preempted."""
    boss = first_in_queue(trial, preempts=True)
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2).waiting_time(600).mode("NonStrict"))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=5)

    trial.submit(*ahead(boss, "boss"))

    expect.bound("boss")
    messages = [event.message for name in names("train", 2) for event in trial.events(name)]
    assert "preempted" in messages, messages


@pytest.mark.feature("GANG-1.all-or-nothing", "GANG-2.nonstrict")
@pytest.mark.case("GA-102", severity="critical")
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize("label", ["other", None], ids=["another-gang", "no-gang"])
def test_a_member_that_gets_another_label_moves(trial: Trial, expect: Expect, label: str | None) -> None:
    """Two of three members hold the cards. One of them gets the label of a gang of one, or loses it: it is bound. The
    gang that it left is bound with another third member."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"), gang("other", 1))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=5)
    assert bound(trial) == []

    moved = {"metadata": {"labels": {POD_GROUP_LABEL: label}}}
    assert trial.call("PATCH", trial.path("Pod", "train-0"), moved).ok

    expect.bound("train-0")
    trial.add(node("n2").cards(2))
    expect.stable(seconds=12)
    assert bound(trial) == ["train-0"]
    trial.submit(*workers("train", 1, first=3))
    expect.bound("train-1", "train-2", "train-3", within=60)


@pytest.mark.feature("GANG-1.timeout", "GANG-2.nonstrict")
@pytest.mark.case("GA-103", severity="normal", source="ours")
@pytest.mark.long(seconds=6)
def test_members_that_are_being_deleted_hold_nothing(trial: Trial, expect: Expect) -> None:
    """Two of three members hold the cards. They are deleted, but finalizers keep them: another pod gets both cards."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"))
    built = workers("train", 3)
    for member in built:
        member.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(*built)
    try:
        expect.stable(seconds=5)
        trial.submit(pod("whole").gpus(2))
        expect.stable(seconds=5)
        assert bound(trial) == []

        for name in names("train", 3):
            assert trial.call("DELETE", trial.path("Pod", name)).ok

        expect.bound("whole")
    finally:
        for name in names("train", 3):
            trial.call("PATCH", trial.path("Pod", name), {"metadata": {"finalizers": None}})


@pytest.mark.feature("GANG-1.timeout", "GANG-2.nonstrict")
@pytest.mark.case("GA-423", severity="normal", source="ours: upstream counts it until it is gone")
@pytest.mark.long(seconds=6)
def test_a_member_that_is_being_deleted_does_not_complete_a_gang(trial: Trial, expect: Expect) -> None:
    """The first member of a gang of three is deleted, but a finalizer keeps it. The other two come: they hold no cards,
    and another pod gets both."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"))
    (leaving,) = workers("train", 1)
    leaving.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(leaving)
    try:
        assert trial.call("DELETE", trial.path("Pod", "train-0")).ok
        trial.settle(2)
        trial.submit(*workers("train", 2, first=1))
        expect.stable(seconds=5)
        trial.submit(pod("whole").gpus(2))
        expect.bound("whole")
    finally:
        trial.call("PATCH", trial.path("Pod", "train-0"), {"metadata": {"finalizers": None}})


@pytest.mark.feature("GANG-1.all-or-nothing", "CPU-1.policies")
@pytest.mark.case("GA-130", severity="critical")
def test_the_cpus_of_a_plan_that_fails_are_free_again(trial: Trial, expect: Expect) -> None:
    """On each of two NUMA nodes 20 of 32 CPUs can be had at once. Three members want 20 of one NUMA node each: the gang
    waits, and two other pods get theirs."""

    def aligned(name: str) -> PodBuilder:
        return pod(name).qos("LSR").request(cpu=20, memory="1Gi").align("SingleNUMANode")

    trial.add(node("n1").server("cpu-64"))
    trial.apply(gang("train", 3))
    trial.submit(*(aligned(name).in_gang("train") for name in names("train", 3)))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(aligned("first"), aligned("second"))

    expect.bound("first", "second")
