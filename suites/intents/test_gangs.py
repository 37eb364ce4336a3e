"""Gangs, in any scheduler's words. A member asks for one CPU, so the room is a number of CPUs."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import NodeBuilder, node, pod
from seatrial.suites.intents.places import bound, members

pytestmark = [pytest.mark.needs(Capability.NODES)]

PROMISE = (
    "minMember of PodGroups in Volcano, KAI, Koordinator and scheduler-plugins, minCount of Kubernetes 1.37:"
    " no member is bound before so many have room"
)


def check_waits_for_room(
    trial: Trial, expect: Expect, intents: Intents, count: int, room: NodeBuilder, *, seconds: float, cards: int = 0
) -> None:
    """No member of a gang is bound for some seconds; once the node `room` has come, all are."""
    intents.gang("train", count)
    intents.submit(*members("train", count), gang="train", cards=cards)
    expect.stable(seconds=seconds)
    assert bound(trial) == []

    intents.add(room)

    expect.bound(*[f"train-{number}" for number in range(count)], within=120)


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-001", severity="blocker", source=PROMISE)
@pytest.mark.long(seconds=10)
def test_all_or_nothing(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Four members have three CPUs: none is bound. A fourth CPU comes: all are bound."""
    intents.add(node("n1").cpu(3))
    check_waits_for_room(trial, expect, intents, 4, node("n2").cpu(1), seconds=10)


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-002", severity="critical", source=PROMISE)
def test_a_gang_that_does_not_fit_holds_no_room(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Five members have three CPUs; a pod without a gang that needs all three is bound."""
    intents.add(node("n1").cpu(3))
    intents.gang("train", 5)
    intents.submit(*members("train", 5), gang="train")
    expect.stable(seconds=3)

    intents.submit(pod("single").request(cpu=3))

    expect.bound("single", within=120)
    assert bound(trial) == ["single"]


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-003", severity="critical", source=PROMISE)
def test_two_gangs_do_not_block_each_other(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two gangs of three come member by member to four CPUs: one starts whole, the other when the first has gone."""
    intents.add(node("n1").cpu(4))
    intents.gang("a", 3)
    intents.gang("b", 3)
    for one, other in zip(members("a", 3), members("b", 3), strict=True):
        intents.submit(one, gang="a")
        intents.submit(other, gang="b")
    assert trial.reaches(lambda: len(bound(trial)) >= 3, within=60), trial.timeline()
    first = bound(trial)[0][0]
    assert bound(trial) == [f"{first}-{number}" for number in range(3)]

    trial.delete(*bound(trial))

    second = "b" if first == "a" else "a"
    expect.bound(*[f"{second}-{number}" for number in range(3)], within=120)


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-004", severity="normal", source=PROMISE)
def test_members_beyond_the_minimum(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two of four members suffice: on three CPUs three are bound, and the fourth when a CPU comes."""
    intents.add(node("n1").cpu(3))
    intents.gang("train", 2)
    intents.submit(*members("train", 4), gang="train")
    assert trial.reaches(lambda: len(bound(trial)) == 3, within=60), trial.timeline()

    intents.add(node("n2").cpu(1))

    expect.bound(*[f"train-{number}" for number in range(4)], within=120)


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-005", severity="critical", source=PROMISE)
def test_members_that_are_not_there_count_for_nothing(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Three of four members exist, and there is room for all: none is bound before the fourth exists."""
    intents.add(node("n1").cpu(8))
    intents.gang("train", 4)
    intents.submit(*members("train", 3), gang="train")
    expect.stable(seconds=3)
    assert bound(trial) == []

    intents.submit(*members("train", 1, first=3), gang="train")

    expect.bound(*[f"train-{number}" for number in range(4)], within=120)


@pytest.mark.feature("INT-1.gangs")
@pytest.mark.case("IN-006", severity="normal", source=PROMISE)
@pytest.mark.needs(Capability.HARDWARE)
def test_members_with_cards_on_several_nodes(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A gang of three with two cards each has five cards on three nodes: none is bound. With two more all are."""
    intents.add(node("n1").cards(2), node("n2").cards(2), node("n3").cards(1))
    check_waits_for_room(trial, expect, intents, 3, node("n4").cards(2), seconds=3, cards=2)
