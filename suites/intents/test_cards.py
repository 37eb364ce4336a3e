"""Whole cards and shares of a card, in any scheduler's words."""

from collections import Counter

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

WHOLE = "Kubernetes: a device is given to one pod at a time (Device Plugins; Dynamic Resource Allocation)"
SHARE = "Koordinator v0.7, KAI and HAMi: the shares of a card add up to one card"


def card_shares(intents: Intents, *pods: Pod) -> Counter[str]:
    """Percent of each card that the pods got; empty for a scheduler that leaves the choice to the node."""
    total: Counter[str] = Counter()
    for each in pods:
        total.update(intents.held(each) or {})
    return total


@pytest.mark.feature("INT-1.cards")
@pytest.mark.case("IN-010", severity="blocker", source=WHOLE)
def test_cards_are_given_once(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A node has four cards: two pods with two each fill it, the third waits, and gets those of one that ends."""
    intents.add(node("n1").cards(4))
    intents.submit(pod("a"), pod("b"), cards=2)
    first = expect.bound("a", "b", within=120)
    assert all(percent == 100 for percent in card_shares(intents, *first).values())
    intents.submit(pod("c"), cards=2)
    expect.stable(seconds=3)
    assert not trial.pod("c").spec.node_name

    trial.delete("a")

    third = expect.bound("c", within=120)
    assert all(percent == 100 for percent in card_shares(intents, first[1], third).values())


@pytest.mark.feature("INT-1.cards")
@pytest.mark.case("IN-011", severity="critical", source=WHOLE)
def test_a_pod_gets_all_its_cards_on_one_node(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two nodes have two free cards each: a pod with three waits, and one with two does not."""
    intents.add(node("n1").cards(2), node("n2").cards(2))
    intents.submit(pod("three"), cards=3)
    intents.submit(pod("two"), cards=2)

    pods = expect.bound("two", within=120)

    assert len(intents.held(pods) or (0, 1)) == 2
    assert not trial.pod("three").spec.node_name


@pytest.mark.feature("INT-1.cards")
@pytest.mark.case("IN-012", severity="critical", source=WHOLE)
def test_many_pods_fill_the_cards_and_no_more(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Ten pods with a card each come to two nodes with four cards: four are bound on each, and two wait."""
    intents.add(node("n1").cards(4), node("n2").cards(4))
    intents.submit(*[pod(f"p-{number}") for number in range(10)], cards=1)
    assert trial.reaches(lambda: len(_bound(trial)) == 8, within=60), trial.timeline()
    expect.stable(seconds=3)

    assert sorted(Counter(each.spec.node_name for each in _bound(trial)).values()) == [4, 4]
    assert all(percent == 100 for percent in card_shares(intents, *_bound(trial)).values())


@pytest.mark.feature("INT-1.shares")
@pytest.mark.case("IN-020", severity="critical", source=SHARE)
def test_two_halves_share_a_card(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A node has one card: two pods with a half each are bound, and a third waits."""
    intents.add(node("n1").cards(1))
    intents.submit(pod("a"), pod("b"), share=50)
    halves = expect.bound("a", "b", within=120)
    intents.submit(pod("c"), share=50)
    expect.stable(seconds=3)

    assert not trial.pod("c").spec.node_name
    assert list(card_shares(intents, *halves).values()) in ([], [100])


@pytest.mark.feature("INT-1.shares")
@pytest.mark.case("IN-021", severity="critical", source=SHARE)
def test_a_share_is_of_one_card(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two cards have 40 percent free each: a pod with 60 percent of a card waits, one with 40 does not."""
    intents.add(node("n1").cards(2))
    intents.submit(pod("a"), pod("b"), share=60)
    expect.bound("a", "b", within=120)
    intents.submit(pod("large"), share=60)
    intents.submit(pod("small"), share=40)

    expect.bound("small", within=120)

    assert not trial.pod("large").spec.node_name


@pytest.mark.feature("INT-1.shares")
@pytest.mark.case("IN-022", severity="critical", source=SHARE)
def test_a_whole_card_is_not_shared(trial: Trial, expect: Expect, intents: Intents) -> None:
    """The only card has a share taken: a pod with a whole card waits until the share is given back."""
    intents.add(node("n1").cards(1))
    intents.submit(pod("part"), share=20)
    expect.bound("part", within=120)
    intents.submit(pod("whole"), cards=1)
    expect.stable(seconds=3)
    assert not trial.pod("whole").spec.node_name

    trial.delete("part")

    expect.bound("whole", within=120)


def _bound(trial: Trial) -> list[Pod]:
    return [each for each in trial.pods() if each.spec.node_name]
