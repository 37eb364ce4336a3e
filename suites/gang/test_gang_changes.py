"""Gangs whose objects, members or scheduler change: other spellings, PodGroups that go, members that end, restarts."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import (
    BIND_GANG_GROUP,
    BIND_MEMBER_COUNT,
    GANG_MODE,
    GANG_WAITING_TIME,
    OLD_BIND_GANG_GROUP,
    OLD_BIND_MEMBER_COUNT,
    POD_GROUP_NAME_LABEL,
)
from seatrial.suites.gang.members import bound, names, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-090", severity="critical")
def test_the_old_label_makes_a_member(trial: Trial, expect: Expect) -> None:
    """Two pods name their PodGroup by the label of earlier releases: with room for one, none is bound."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))
    trial.submit(*(pod(name).gpus(1).label(POD_GROUP_NAME_LABEL, "train") for name in names("train", 2)))
    expect.pending(*names("train", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.add(node("n2").cards(1))

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.timeout", "GANG-5.annotations")
@pytest.mark.case("GA-091", severity="critical")
@pytest.mark.long(150)
def test_the_waiting_time_of_annotated_pods_has_units(trial: Trial, expect: Expect) -> None:
    """waiting-time is 1m30s: members of a NonStrict gang hold their cards after a minute, and no longer after two."""
    trial.add(node("n1").cards(2))
    trial.submit(
        *(
            pod(name)
            .gpus(1)
            .in_light_gang("train", 3)
            .annotation(GANG_MODE, "NonStrict")
            .annotation(GANG_WAITING_TIME, "1m30s")
            for name in names("train", 3)
        )
    )
    expect.stable(seconds=1)
    trial.delete("train-2")  # no further attempt of the gang: two of three members

    trial.submit(pod("whole").gpus(2))

    expect.stable(seconds=60)
    assert bound(trial) == [], "members of the gang hold both cards"
    expect.bound("whole", within=90)
    expect.pending(*names("train", 2))  # with a reason, which is written after the cards are given back


@pytest.mark.feature("GANG-1.replaced", "GANG-3.restart")
@pytest.mark.case("GA-093", severity="critical")
def test_a_member_is_replaced_after_a_restart(trial: Trial, expect: Expect, subject: Subject | None) -> None:
    """A scheduler that never saw the gang start binds a member that comes for one that is gone, below the minimum."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 3))
    trial.submit(*workers("train", 3))
    expect.bound(*names("train", 3))
    subject.kill()
    subject.start_again()
    trial.delete("train-1")

    trial.submit(*workers("train", 1, first=7))

    expect.bound("train-7")
    expect.refusal()


@pytest.mark.feature("GANG-6.pre-enqueue")
@pytest.mark.case("GA-094", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_gang_without_its_pod_group_waits(trial: Trial, expect: Expect) -> None:
    """The PodGroup of a gang that waits for room is deleted: its members are not bound when there is room, but when
    there is a PodGroup again."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.pending(*names("train", 2))
    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok
    expect.stable(seconds=3)

    trial.add(node("n2").cards(1))

    expect.stable(seconds=15)
    assert bound(trial) == []
    trial.apply(gang("train", 2))
    expect.bound(*names("train", 2), within=60)


@pytest.mark.feature("GANG-4.groups", "GANG-2.nonstrict")
@pytest.mark.case("GA-095", severity="critical", source="ours")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("first", ["Strict", "NonStrict"])
def test_one_gang_that_is_not_strict_keeps_the_places_of_its_group(trial: Trial, expect: Expect, first: str) -> None:
    """Of two gangs of a group one is Strict and one NonStrict: with one card too few the others are kept, and the group
    starts when the card comes."""
    trial.add(node("n1").cards(2))
    ids = [f"{trial.name}/{name}" for name in "ab"]
    modes = dict(zip("ab", sorted(("Strict", "NonStrict"), reverse=first == "Strict"), strict=True))
    trial.apply(*(gang(name, 2).waiting_time(300).mode(modes[name]).together_with(*ids) for name in "ab"))
    trial.submit(*workers("a", 2), *workers("b", 2))
    expect.stable(seconds=2)
    trial.submit(pod("x").gpus(1))
    expect.stable(seconds=5)
    assert bound(trial) == [], "a pod took a card that members of the group hold"

    trial.add(node("n2").cards(2))

    expect.bound("a-0", "a-1", "b-0", "b-1", within=60)


@pytest.mark.feature("GANG-1.marked")
@pytest.mark.case(
    "GA-420", severity="normal", source="koordinator 1.8 pkg/scheduler/plugins/coscheduling/coscheduling.go: PreBind"
)
@pytest.mark.parametrize("member", [True, False], ids=["member", "no-member"])
def test_a_copy_of_a_bound_member_has_no_marks(trial: Trial, expect: Expect, *, member: bool) -> None:
    """A member that was bound with another is deleted. A pod with its annotations comes, of its gang or of none, and is
    bound alone: it does not say that others were bound with it."""
    marks = {BIND_GANG_GROUP, BIND_MEMBER_COUNT, OLD_BIND_GANG_GROUP, OLD_BIND_MEMBER_COUNT}
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    annotations = expect.bound(*names("train", 2))[0].metadata.annotations
    assert marks <= annotations.keys()
    trial.delete("train-0")
    expect.gone("train-0")
    copy = pod("train-0").gpus(1)
    if member:
        copy.in_gang("train")
    for key in marks:
        copy.annotation(key, annotations[key])

    trial.submit(copy)

    left = marks & expect.bound("train-0").metadata.annotations.keys()
    assert not left, left


@pytest.mark.feature("GANG-1.timeout", "GANG-2.nonstrict", "GANG-3.restart")
@pytest.mark.case("GA-421", severity="critical", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a waiting time of a minute
@pytest.mark.parametrize("comes", [True, False], ids=["the-third-card-comes", "no-card-comes"])
def test_places_of_members_after_a_restart(
    trial: Trial, expect: Expect, subject: Subject | None, *, comes: bool
) -> None:
    """Two of three members of a NonStrict gang hold the cards for a minute, and the scheduler is restarted after half
    of it. The members have them again: the gang starts with a third card, or another pod gets the two after a
    minute."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(60).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=30)
    subject.kill()
    subject.start_again()
    expect.stable(seconds=5)
    trial.submit(pod("whole").gpus(2))
    expect.stable(seconds=40)
    assert bound(trial) == []
    if comes:
        trial.add(node("n2").cards(1))
        expect.bound(*names("train", 3), within=30)
    else:
        expect.bound("whole", within=40)
