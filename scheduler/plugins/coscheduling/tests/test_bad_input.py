"""Gangs that users describe wrongly: the pods say what is wrong, and other pods are bound."""

import pytest

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.networktopology import GATHER_SPEC, gather_rules
from seatrial.scheduler.api.podgroup import (
    GANG_GROUPS,
    GANG_MODE,
    GANG_TOTAL,
    NETWORK_TOPOLOGY_INDEX,
    gang_minimum,
    gang_total,
    topology_index,
    topology_index_note,
)
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light, member


def others_are_bound(rig: GangRig) -> None:
    """The queue is not stuck."""
    rig.submit(pod("other").request(cpu=1))
    for _ in range(3):
        rig.run()
        rig.clock.advance(301)
    rig.run()
    assert rig.where("other") == "n"


def test_gangs_that_list_each_other_in_a_circle_say_which_gang_is_missing() -> None:
    """a lists b, b lists c, c lists a: no list is the same as that of a gang in it."""
    rig = GangRig()
    rig.node("n", cpu="16")
    for own, next_one in ("ab", "bc", "ca"):
        rig.group(gang(own, 1).together_with(f"default/{own}", f"default/{next_one}"))
    rig.submit(*(member(f"p-{name}", name) for name in "abc"))
    others_are_bound(rig)
    assert rig.placed() == ["other"]
    for own, missing in ("ab", "bc", "ca"):
        assert f"default/{missing} has 0 placed and 0 bound of 1" in rig.message(f"p-{own}")


def test_a_minimum_above_the_members_is_told_with_both_numbers() -> None:
    rig = GangRig()
    rig.node("n", cpu="16")
    rig.group(gang("train", 9))
    rig.submit(member("a", "train"), member("b", "train"))
    others_are_bound(rig)
    assert "default/train has 2 of 9 members" in rig.held("a")
    assert "default/train has 2 of 9 members" in rig.message("a"), "the pod's condition says it as well"


@pytest.mark.parametrize(
    ("built", "words"),
    [
        pytest.param(light("a", "train", "two"), "min-available", id="minimum-is-no-number"),
        pytest.param(light("a", "train", None), "min-available", id="no-minimum"),
        pytest.param(light("a", "train", "2").annotation(GANG_MODE, "strict"), "mode", id="unknown-mode"),
        pytest.param(light("a", "train", "2").annotation(GANG_GROUPS, "{"), "groups", id="groups-are-no-json"),
        pytest.param(
            light("a", "train", "2").annotation(GANG_GROUPS, '["x"]'), "groups", id="groups-without-namespace"
        ),
        pytest.param(light("a", "train", "2").annotation(GANG_TOTAL, "all"), "total-number", id="total-is-no-number"),
        pytest.param(member("a", "absent"), "PodGroup default/absent does not exist", id="no-pod-group"),
    ],
)
def test_what_is_not_understood_is_told_on_the_pod(built: PodBuilder, words: str) -> None:
    """One member of two, so that the gang waits and says what it lacks."""
    rig = GangRig()
    rig.node("n", cpu="16")
    rig.submit(built)
    others_are_bound(rig)
    assert words in rig.held("a")
    assert words in rig.message("a")


def test_what_is_not_understood_is_told_while_the_gang_waits_for_room_and_when_it_is_bound() -> None:
    """A timeout below 0 and an unknown mode on the PodGroup, a rank that is no number on one member."""
    rig = GangRig()
    rig.node("n", cpu="2")
    rig.group(gang("train", 2).waiting_time(-5), mode="x")
    rig.submit(member("a", "train", cpu=2).annotation(NETWORK_TOPOLOGY_INDEX, "first"), member("b", "train", cpu=2))
    rig.run()
    notes = [
        "annotation gang.scheduling.koordinator.sh/mode: expected Strict or NonStrict, found 'x'; Strict is used",
        "scheduleTimeoutSeconds: expected a number above 0, found -5; 10m0s is used",
    ]
    rank = (
        "pod default/a, annotation gang.scheduling.koordinator.sh/network-topology-index: expected a whole number,"
        " at most 2147483647, found 'first'; the pod has no rank"
    )
    for name in "ab":
        assert all(note in rig.message(name) for note in notes), rig.message(name)
    rig.node("m", cpu="2")
    rig.clock.advance(30)
    rig.run()
    assert rig.placed() == ["a", "b"]
    for name, message in (("a", [*notes, rank]), ("b", notes)):
        result = rig.core.find(f"default/{name}")
        assert result is not None
        assert rig.core.notes(result) == message


def test_numbers_that_koordinator_cannot_hold_are_told() -> None:
    """2147483647 is read; one more is not, in each annotation with a number."""
    largest, beyond = str(2**31 - 1), str(2**31)
    assert gang_minimum(GangRig().pod(light("a", "train", largest))) == (2**31 - 1, "")
    assert gang_total({GANG_TOTAL: largest}, 2) == (2**31 - 1, "")
    rig = GangRig()
    rig.node("n", cpu="16")
    rig.submit(light("a", "train", beyond))
    others_are_bound(rig)
    assert rig.message("a").endswith(
        "annotation gang.scheduling.koordinator.sh/min-available: expected a whole number, at most 2147483647,"
        " found '2147483648'"
    )
    assert gang_total({GANG_TOTAL: beyond}, 2)[1].endswith("at most 2147483647, found '2147483648'; 2 is used")
    ranked = rig.pod(light("b", "train", "2").annotation(NETWORK_TOPOLOGY_INDEX, beyond))
    assert (topology_index(ranked), "at most 2147483647" in topology_index_note(ranked)) == (-1, True)
    rule = f'{{"layer": "A", "strategy": "MustGather", "podCountMultiple": {2**63}}}'
    rules, (note,) = gather_rules({GATHER_SPEC: f'{{"gatherStrategy": [{rule}]}}'})
    assert rules is not None
    assert rules[0].pod_count_multiple == 0
    assert note.endswith(f"layer 'A': expected podCountMultiple from 0 to 2147483647, found {2**63}; it is ignored")
