"""Gangs with invalid input: the default counts or a condition names the mistake, and no other pod is delayed.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import GANG_MODE, GANG_TOTAL, GANG_WAITING_TIME
from seatrial.suites.gang.members import bound, names, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("GANG-4.contradiction")
@pytest.mark.case("GA-060", severity="critical", source="ours")
def test_gangs_that_list_each_other_in_a_circle_wait_and_say_for_whom(trial: Trial, expect: Expect) -> None:
    """a lists b, b lists c, c lists a, so no two lists are equal. There is room for all three. Each pod names the gang
    that it waits for, and a pod without a gang is bound. With equal lists the gangs start."""
    trial.add(node("n1").cards(4))
    for own, listed in ("ab", "bc", "ca"):
        trial.apply(gang(own, 1).together_with(f"{trial.name}/{own}", f"{trial.name}/{listed}"))
    trial.submit(*(pod(f"{own}-0").gpus(1).in_gang(own) for own in "abc"))
    for own, listed in ("ab", "bc", "ca"):
        expect.held(f"{own}-0", saying=f"{trial.name}/{listed}")
    trial.submit(pod("other").gpus(1))
    expect.bound("other")
    assert bound(trial) == ["other"]

    ids = [f"{trial.name}/{own}" for own in "abc"]
    for own in "abc":  # a gang does not change its group: its PodGroup is made again
        assert trial.call("DELETE", trial.path("PodGroup", own)).ok
        trial.apply(gang(own, 1).together_with(*ids))

    expect.bound("a-0", "b-0", "c-0")


@pytest.mark.feature("GANG-2.unreadable")
@pytest.mark.case("GA-061", severity="critical")
@pytest.mark.parametrize("mode", ["nonstrict", "Lenient", "[]"])
def test_an_unknown_mode_is_strict(trial: Trial, expect: Expect, mode: str) -> None:
    """A gang of three on two cards holds neither of them: a pod that requests both is bound."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).annotation(GANG_MODE, mode))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=5)

    trial.submit(pod("both").gpus(2))

    expect.bound("both")
    assert bound(trial) == ["both"]


@pytest.mark.feature("GANG-5.unreadable")
@pytest.mark.case("GA-062", severity="normal")
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (GANG_WAITING_TIME, "soon"),
        (GANG_WAITING_TIME, "-5s"),
        (GANG_WAITING_TIME, "9" * 400 + "h"),
        (GANG_TOTAL, "many"),
        (GANG_TOTAL, "1"),
        (GANG_TOTAL, "-" + "9" * 400),
    ],
    ids=["no-duration", "negative-duration", "endless-duration", "no-number", "below-the-minimum", "huge-number"],
)
def test_a_malformed_annotation_counts_as_its_default(trial: Trial, expect: Expect, key: str, text: str) -> None:
    """Two members of an annotation gang of three are not bound, and the third completes them."""
    trial.add(node("n1").cards(3))
    built = [pod(name).gpus(1).in_light_gang("light", 3).annotation(key, text) for name in names("light", 3)]
    trial.submit(*built[:2])
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(built[2])

    expect.bound(*names("light", 3))


def check_holds_the_pod_alone(trial: Trial, expect: Expect, text: str) -> None:
    """A pod with this minimum names the annotation, another one is bound, and a good minimum makes the gang start."""
    trial.add(node("n1").cards(3))
    trial.submit(pod("odd").gpus(1).in_light_gang("light", text), pod("other").gpus(1))
    expect.bound("other")
    expect.held("odd", saying="min-available")

    trial.submit(pod("good").gpus(1).in_light_gang("light", 2))

    expect.bound("odd", "good")


@pytest.mark.feature("GANG-5.unreadable")
@pytest.mark.case("GA-063", severity="normal")
@pytest.mark.parametrize(
    "text", ["1.5", "1e3", "9" * 400, "3000000000"], ids=["fraction", "exponent", "huge", "above-32-bits"]
)
def test_a_minimum_that_is_no_whole_number_holds_the_pod_alone(trial: Trial, expect: Expect, text: str) -> None:
    """The pod names the annotation, another pod is bound, and a pod with a good minimum makes the gang start."""
    check_holds_the_pod_alone(trial, expect, text)


@pytest.mark.feature("GANG-5.unreadable")
@pytest.mark.case("GA-069", severity="normal", source="ours")  # Koordinator takes it as a minimum that is reached
def test_a_minimum_below_zero_holds_the_pod_alone(trial: Trial, expect: Expect) -> None:
    """As one that is no whole number."""
    check_holds_the_pod_alone(trial, expect, "-1")


@pytest.mark.feature("GANG-1.quorum")
@pytest.mark.case("GA-064", severity="normal")
def test_a_minimum_of_zero_places_pods_one_by_one(trial: Trial, expect: Expect) -> None:
    """Three members of a gang whose minMember is 0, two cards: two are bound, and one waits."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 0))

    trial.submit(*workers("train", 3))

    assert trial.reaches(lambda: len(bound(trial)) == 2, within=30), trial.timeline()
    expect.stable(seconds=5)
