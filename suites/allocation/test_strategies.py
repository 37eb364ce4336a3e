"""Devices are packed or spread, between nodes and between the cards of a node, by the pod's profile."""

import pytest

from seatrial.fixtures.allocated_devices import check_arrival, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pods

PACKING, SPREADING = "packing", "spreading"

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PACKING, SPREADING)]


def under(profile: str, pods: list[PodBuilder]) -> list[PodBuilder]:
    return [pod.scheduler(profile) for pod in pods]


def one_by_one(trial: Trial, expect: Expect, pods: list[PodBuilder]) -> list[str]:
    """The nodes of pods that are submitted one after the other, each after the previous one was placed."""
    node_names = []
    for pod in pods:
        trial.submit(pod)
        node_names.append(expect.running(pod.name).spec.node_name)
    return node_names


@pytest.mark.feature("DEV-4.binpack-nodes", "DEV-4.spread-nodes")
@pytest.mark.case("DS-020", severity="critical")
@pytest.mark.parametrize(
    ("profile", "share"),
    [
        pytest.param(PACKING, [4, 0], id="packing-fills-one-node"),
        pytest.param(SPREADING, [2, 2], id="spreading-goes-in-turn"),
    ],
)
def test_whole_cards_between_nodes(trial: Trial, expect: Expect, profile: str, share: list[int]) -> None:
    """Four one-card pods on two nodes of four cards: all on one, or two on each."""
    trial.add(node("n1").gpus("a10", 4), node("n2").gpus("a10", 4))

    where = one_by_one(trial, expect, under(profile, [pod.gpus(1) for pod in pods("a", 4)]))

    assert sorted((where.count("n1"), where.count("n2")), reverse=True) == share
    for stored in trial.pods():
        check_arrival(trial, stored)


@pytest.mark.feature("DEV-4.binpack-cards")
@pytest.mark.case("DS-021", severity="critical")
@pytest.mark.parametrize(
    ("profile", "cards"),
    [
        pytest.param(PACKING, 1, id="packing-fills-one-card"),
        pytest.param(SPREADING, 2, id="spreading-takes-a-fresh-card"),
    ],
)
def test_shares_between_cards(trial: Trial, expect: Expect, profile: str, cards: int) -> None:
    """Two quarters of a card where two cards are under one PCIe switch: on one card, or on both.

    Which switch it is, is a matter of topology, and comes first; among the cards of a switch the strategy decides.
    """
    trial.add(node("n1").gpus("a10", 2))

    one_by_one(trial, expect, under(profile, [pod.gpu_share(25) for pod in pods("a", 2)]))

    current_pods = trial.pods()
    assert len({minor for pod in current_pods for minor in minors(pod)}) == cards
    for bound_pod in current_pods:
        check_arrival(trial, bound_pod)


@pytest.mark.feature("DEV-4.binpack-cards")
@pytest.mark.case("DS-022", severity="minor")
def test_the_fullest_card_that_suffices(trial: Trial, expect: Expect) -> None:
    """Packing prefers, among used cards, the one with the least left that is enough; Koordinator takes the first."""
    trial.add(node("n1").server("mlu370-x8-8"))  # of MLUs no switch is known: those of a NUMA node are all alike
    sizes = (20, 60, 70)
    holders = [builder.gpu_share(size) for builder, size in zip(pods("holder", 3), sizes, strict=True)]
    one_by_one(trial, expect, under(SPREADING, holders))
    cards = {size: minors(trial.pod(builder.name)) for builder, size in zip(holders, sizes, strict=True)}
    assert [len(card) for card in cards.values()] == [1, 1, 1], cards
    assert len({card for (card,) in cards.values()}) == 3

    for percent, on in ((30, 70), (40, 60), (80, 20)):
        (one,) = under(PACKING, [builder.gpu_share(percent) for builder in pods(f"ask-{percent}", 1)])
        trial.submit(one)
        assert minors(expect.running(one.name)) == cards[on], f"{percent} percent should go where {on} are in use"


@pytest.mark.feature("DEV-4.binpack-nodes", "DEV-4.spread-nodes")
@pytest.mark.case("DS-023", severity="critical")
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param(PACKING, "small", id="packing-takes-the-fuller-by-proportion"),
        pytest.param(SPREADING, "large", id="spreading-takes-the-emptier-by-proportion"),
    ],
)
def test_nodes_of_two_sizes(trial: Trial, expect: Expect, profile: str, expected: str) -> None:
    """Two used cards are half of a small node and a quarter of a large one; strategies compare the parts."""
    trial.add(node("small").gpus("a10", 4).label("size", "small"), node("large").gpus("a10", 8).label("size", "large"))
    holders = pods("holder", 2)
    trial.submit(holders[0].gpus(2).on(size="small"), holders[1].gpus(2).on(size="large"))
    expect.running(holders[0].name, holders[1].name)

    where = one_by_one(trial, expect, under(profile, [pod.gpus(1) for pod in pods("a", 1)]))

    assert where == [expected]
    expect.refusal()


@pytest.mark.feature("DEV-4.binpack-nodes")
@pytest.mark.case("DS-024", severity="critical")
def test_packing_leaves_room_for_a_large_pod(trial: Trial, expect: Expect) -> None:
    """With packing, a pod of a whole node fits after small pods have taken half of the cards."""
    trial.add(*(node(f"n{number}").gpus("a10", 4) for number in range(2)))
    one_by_one(trial, expect, under(PACKING, [pod.gpus(1) for pod in pods("small", 4)]))

    (large,) = under(PACKING, [pod.gpus(4) for pod in pods("large", 1)])
    trial.submit(large)

    assert minors(expect.running(large.name)) == [0, 1, 2, 3]


@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-025", severity="normal")
def test_spreading_keeps_loads_apart(trial: Trial, expect: Expect) -> None:
    """With spreading, pods do not share nodes while there are enough; a pod of a whole node waits."""
    trial.add(*(node(f"n{number}").gpus("a10", 4) for number in range(4)))
    small = under(SPREADING, [pod.gpus(1) for pod in pods("small", 4)])

    assert len(set(one_by_one(trial, expect, small))) == 4

    (large,) = under(SPREADING, [pod.gpus(4) for pod in pods("large", 1)])
    trial.submit(large)
    expect.pending(large.name, saying="Insufficient")


@pytest.mark.feature("DEV-4.side-by-side", "SHELL-1.plugin-args")
@pytest.mark.case("DS-026", severity="normal")
def test_two_profiles_side_by_side(trial: Trial, expect: Expect) -> None:
    """Pods of two profiles on the same nodes: each profile accounts for the other's allocations."""
    trial.add(node("n1").gpus("a10", 2), node("n2").gpus("a10", 2))
    packed = under(PACKING, [pod.gpus(1) for pod in pods("packed", 1)])
    spread = under(SPREADING, [pod.gpus(1) for pod in pods("spread", 1)])
    more = under(PACKING, [pod.gpus(1) for pod in pods("more", 2)])

    first, second, third, fourth = one_by_one(trial, expect, [*packed, *spread, *more])

    assert second != first, "the spread pod should keep away from the packed one"
    assert third != fourth, "two nodes with one card each have room for one of the last two each"
    held = [(pod.spec.node_name, minor) for pod in trial.pods() for minor in minors(pod)]
    assert len(set(held)) == len([*packed, *spread, *more])
