"""NodeResourcesFitPlus and ScarceResourceAvoidance, each as the only scorer of a profile."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, pods
from seatrial.suites.scoring.offers import offer
from seatrial.suites.scoring.placing import one_by_one

HOST = "kubernetes.io/hostname"
FIT_PLUS, CARDS_FIRST, SCARCE = "fit-plus", "fit-plus-cards-first", "scarce-cards"

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.strategy-per-resource")
@pytest.mark.case("SC-001", severity="critical")
def test_cards_are_packed(trial: Trial, expect: Expect) -> None:
    """Pods that request only cards are packed onto one node until it is full."""
    trial.add(node("n1").gpus("a10", 4), node("n2").gpus("a10", 4))
    where = one_by_one(trial, expect, [pod.gpus(1) for pod in pods("a", 5)], FIT_PLUS)
    assert len(set(where[:4])) == 1
    assert where[4] != where[0]


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.strategy-per-resource")
@pytest.mark.case("SC-002", severity="critical")
def test_processors_are_spread_by_the_same_profile(trial: Trial, expect: Expect) -> None:
    """Pods that request only CPUs are placed on the emptier node, in turn."""
    trial.add(node("n1").gpus("a10", 4).cpu(32), node("n2").gpus("a10", 4).cpu(32))
    where = one_by_one(trial, expect, [pod.request(cpu=4) for pod in pods("a", 4)], FIT_PLUS)
    assert where.count("n1") == where.count("n2") == 2
    assert where[0] != where[1]


@pytest.mark.profile(FIT_PLUS, CARDS_FIRST)
@pytest.mark.feature("SCORE-1.weights")
@pytest.mark.case("SC-003", severity="critical")
@pytest.mark.parametrize(
    ("profile", "joins"),
    [
        # n1: cards (1+1)/4 → 50, processors (32-25-1)/32 → 18; n2: cards 25, processors 96. Sums of weight · score:
        pytest.param(FIT_PLUS, False, id="two-to-one-118-against-146"),
        pytest.param(CARDS_FIRST, True, id="ten-to-one-518-against-346"),
    ],
)
def test_weights_decide_where_resources_disagree(trial: Trial, expect: Expect, profile: str, joins: bool) -> None:
    """One node has a used card and few CPUs left, the other is empty: the weights decide."""
    trial.add(node("n1").gpus("a10", 4).cpu(32), node("n2").gpus("a10", 4).cpu(32))
    holder = pod("holder").gpus(1).request(cpu=25).select({HOST: "n1"})
    (where,) = one_by_one(trial, expect, [holder], profile)
    assert where == "n1"
    (where,) = one_by_one(trial, expect, [pod("p").gpus(1).request(cpu=1)], profile)
    assert (where == "n1") == joins


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.strategy-per-resource")
@pytest.mark.case("SC-282", severity="critical")
@pytest.mark.parametrize(("large", "small"), [("n1", "n2"), ("n2", "n1")])
def test_the_share_of_a_node_counts_not_the_amount(trial: Trial, expect: Expect, large: str, small: str) -> None:
    """A node has four times the cards and CPUs of another. A pod joins the only card in use of the small node, although
    the large one has more in use; a pod without cards goes to the small node, although the large one has more left."""
    trial.add(node(large).gpus("a10", 8).cpu(32), node(small).gpus("a10", 2).cpu(8))
    one_by_one(trial, expect, [pod("card-0").gpus(1), pod("card-1").gpus(1), pod("card-2").gpus(1)], FIT_PLUS)
    assert [trial.pod(f"card-{number}").spec.node_name for number in range(3)] == [small, small, large]
    trial.delete("card-0")
    assert one_by_one(trial, expect, [pod("card-3").gpus(1)], FIT_PLUS) == [small]
    crowd = [pod(f"crowd-{number}").request(cpu=5).select({HOST: large}) for number in range(4)]
    base = pod("base").request(cpu=1).select({HOST: small})
    one_by_one(trial, expect, [*crowd, base], FIT_PLUS)
    # 7 of 8 CPUs are left on the small node, 12 of 32 on the large one.
    assert one_by_one(trial, expect, [pod("next").request(cpu=1)], FIT_PLUS) == [small]


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.strategy-per-resource")
@pytest.mark.case("SC-486", severity="normal", source="koordinator pkg/scheduler/plugins/noderesourcefitplus; FWK-R64")
@pytest.mark.parametrize(("used", "idle"), [("n1", "n2"), ("n2", "n1")])
def test_resources_that_a_pod_does_not_ask_for_do_not_count(trial: Trial, expect: Expect, used: str, idle: str) -> None:
    """One node has a card in use and hardly any processors left, the other one is idle: a pod that asks for a card
    alone is packed, whatever processors are in use."""
    trial.add(node(used).gpus("a10", 4).cpu(32), node(idle).gpus("a10", 4).cpu(32))
    trial.submit(pod("card").gpus(1).select({HOST: used}), pod("load").request(cpu=28).select({HOST: used}))
    expect.bound("card", "load")
    trial.submit(pod("next").gpus(1).scheduler(FIT_PLUS))
    assert expect.bound("next").spec.node_name == used
    expect.refusal()


@pytest.mark.profile(SCARCE)
@pytest.mark.feature("SCORE-2.stay-off")
@pytest.mark.case("SC-004", severity="critical")
def test_pods_without_cards_stay_off_nodes_with_cards(trial: Trial, expect: Expect) -> None:
    """Pods without cards fill the node without cards first, and only then use nodes with cards."""
    trial.add(node("cards").gpus("a10", 4).cpu(64), node("plain").cpu(16))
    where = one_by_one(trial, expect, [pod.request(cpu=4) for pod in pods("a", 5)], SCARCE)
    assert where[:3] == ["plain"] * 3
    assert where[-1] == "cards"


@pytest.mark.profile(SCARCE)
@pytest.mark.feature("SCORE-2.use-them")
@pytest.mark.case("SC-005", severity="normal")
def test_pods_with_cards_use_them(trial: Trial, expect: Expect) -> None:
    """Pods that request the scarce resource are placed on the nodes that have it."""
    trial.add(node("cards").gpus("a10", 2).cpu(64), node("plain").cpu(16))
    where = one_by_one(trial, expect, [pod.gpus(1) for pod in pods("a", 2)], SCARCE)
    assert where == ["cards", "cards"]


@pytest.mark.profile(SCARCE)
@pytest.mark.feature("SCORE-2.use-them")
@pytest.mark.case("SC-006", severity="normal")
@pytest.mark.parametrize("names", [("x", "y"), ("y", "x")])
def test_every_requested_resource_counts_as_requested(trial: Trial, expect: Expect, names: tuple[str, str]) -> None:
    """A pod with CPUs and a scarce resource goes to the node that has no other scarce resource.

    The other node has many more resources, so the percentage would favour it if the pod's request were not counted.
    """
    plain, other = names
    trial.add(node("x"), node("y"))
    offer(trial, plain, {"example.com/card": "8"})
    kinds = {f"example.com/kind-{number}": "8" for number in range(20)}
    offer(trial, other, {"example.com/card": "8", "example.com/scarce": "8", **kinds})
    resources = [builder.resources({"cpu": 1, "example.com/card": 1}) for builder in pods("a", 4)]
    assert one_by_one(trial, expect, resources, SCARCE) == [plain] * 4
