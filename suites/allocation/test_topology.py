"""GPUs of one pod are close to each other: on one PCIe switch or NUMA node if possible, or only there if required.

The machine of most cases has eight A100, two on a PCIe switch, two switches on a NUMA node.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection

import pytest

from seatrial.fixtures.allocated_devices import check_arrival, minors, numa_nodes, switches
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.scheduler.api.core import Pod

PAIRS, SINGLES = "hgx-a100", "dgx-h100"  # servers by the number of cards under each PCIe switch

Where = Callable[[Trial, Pod], Collection[object]]

pytestmark = [pytest.mark.needs(Capability.NODES)]


def scoped(pod: PodBuilder, scope: str) -> PodBuilder:
    return pod.hint("gpu", requiredTopologyScope=scope)


def fill(trial: Trial, expect: Expect) -> list[Pod]:
    """Eight pods of one card each, on all cards of the only node."""
    trial.submit(*(pod.gpus(1) for pod in pods("single", 8)))
    names = [f"single-{number}" for number in range(8)]
    result = expect.running(names[0], names[1], *names[2:])
    assert sorted(minor for pod in result for minor in minors(pod)) == list(range(8))
    return list(result)


@pytest.mark.feature("DEV-5.nearest")
@pytest.mark.case("DS-030", severity="critical")
@pytest.mark.parametrize(
    ("cards", "on_switches", "on_numa_nodes"),
    [
        pytest.param(2, 1, 1, id="two-on-one-switch"),
        pytest.param(3, 2, 1, id="three-on-one-numa-node"),
        pytest.param(4, 2, 1, id="four-on-one-numa-node"),
        pytest.param(6, 3, 2, id="six-on-three-switches"),
        pytest.param(8, 4, 2, id="eight-are-the-machine"),
    ],
)
def test_as_near_as_can_be(trial: Trial, expect: Expect, cards: int, on_switches: int, on_numa_nodes: int) -> None:
    """Without a hint, a pod's cards share the smallest part of the machine that has enough."""
    trial.add(node("n1").server(PAIRS))
    trial.submit(pod("a").gpus(cards))

    a = expect.running("a")

    check_arrival(trial, a)
    assert len(switches(trial, a)) == on_switches
    assert len(numa_nodes(trial, a)) == on_numa_nodes


@pytest.mark.feature("DEV-5.nearest")
@pytest.mark.case("DS-031", severity="critical")
def test_small_pods_share_a_switch(trial: Trial, expect: Expect) -> None:
    """Single cards are taken from used switches first, so that pairs stay free for pods that need pairs."""
    trial.add(node("n1").server(PAIRS))
    for builder in pods("single", 4):
        trial.submit(builder.gpus(1))
        expect.running(builder.name)

    assert max(Counter(at for pod in trial.pods() for at in switches(trial, pod)).values(), default=0) == 2
    assert len({at for pod in trial.pods() for at in switches(trial, pod)}) == 2
    assert len({at for pod in trial.pods() for at in numa_nodes(trial, pod)}) == 1


@pytest.mark.feature("DEV-5.nearest")
@pytest.mark.case("DS-138", severity="critical", source="spec DEV-R41")
@pytest.mark.parametrize("left", [0, 3, 5, 7])
def test_a_card_beside_the_one_in_use(trial: Trial, expect: Expect, left: int) -> None:
    """One card of the machine is in use, wherever it is: the next pod gets the other one of its switch."""
    trial.add(node("n1").server(PAIRS))
    by_minor = {minors(one)[0]: one for one in fill(trial, expect)}
    holder = by_minor.pop(left)
    trial.delete(*(one.metadata.name for one in by_minor.values()))
    trial.submit(pod("beside").gpus(1))
    beside = expect.running("beside")
    assert switches(trial, beside) == switches(trial, holder)


@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-032", severity="blocker")
@pytest.mark.parametrize(
    ("scope", "where"),
    [pytest.param("PCIe", switches, id="pcie"), pytest.param("NUMANode", numa_nodes, id="numa-node")],
)
def test_a_required_scope_is_waited_for(trial: Trial, expect: Expect, scope: str, where: Where) -> None:
    """Two free cards on different switches suffice for a pod without a scope; a pod with a required scope waits."""
    trial.add(node("n1").server(PAIRS))
    by_place: dict[object, list[str]] = {}
    for bound_pod in fill(trial, expect):
        by_place.setdefault(next(iter(where(trial, bound_pod))), []).append(bound_pod.metadata.name)
    first, second, *_ = by_place.values()
    trial.delete(first[0], second[0])

    trial.submit(scoped(pod("near").gpus(2), scope))

    expect.pending("near", saying="Insufficient Topology Scoped GPU Devices")
    expect.stable(seconds=2)
    trial.delete(first[1])
    near = expect.running("near")
    check_arrival(trial, near)
    assert len(where(trial, near)) == 1


@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-033", severity="critical")
def test_the_same_cards_do_for_a_pod_that_does_not_mind(trial: Trial, expect: Expect) -> None:
    """The counterpart of the case before: a pod without a required scope gets the two distant cards."""
    trial.add(node("n1").server(PAIRS))
    by_switch: dict[str, list[str]] = {}
    for bound_pod in fill(trial, expect):
        by_switch.setdefault(next(iter(switches(trial, bound_pod))), []).append(bound_pod.metadata.name)
    first, second, *_ = by_switch.values()
    trial.delete(first[0], second[0])

    trial.submit(pod("far").gpus(2))

    assert len(switches(trial, expect.running("far"))) == 2


@pytest.mark.feature("DEV-5.scope-chooses-node")
@pytest.mark.case("DS-034", severity="critical")
def test_the_scope_chooses_the_node(trial: Trial, expect: Expect) -> None:
    """Pairs with a required switch scope are placed on the machine that has pairs of cards on a switch."""
    trial.add(node("singles").server(SINGLES), node("pairs").server(PAIRS))
    trial.submit(*(scoped(pod.gpus(2), "PCIe") for pod in pods("near", 5)))

    assert trial.wait(lambda: sum(bool(pod.spec.node_name) for pod in trial.pods()) == 4, within=30)
    expect.stable(seconds=2)
    bound = [pod for pod in trial.pods() if pod.spec.node_name]
    assert {pod.spec.node_name for pod in bound} == {"pairs"}
    assert all(len(switches(trial, pod)) == 1 for pod in bound)


@pytest.mark.feature("DEV-5.scope-chooses-node")
@pytest.mark.case("DS-035", severity="normal")
@pytest.mark.parametrize(
    ("scope", "cards", "fits"),
    [
        pytest.param("Node", 8, True, id="the-node-has-eight"),
        pytest.param("NUMANode", 4, True, id="a-numa-node-has-four"),
        pytest.param("NUMANode", 5, False, id="a-numa-node-has-no-five"),
        pytest.param("PCIe", 2, True, id="a-switch-has-two"),
        pytest.param("PCIe", 3, False, id="a-switch-has-no-three"),
        pytest.param("Device", 1, False, id="no-scope-is-as-small-as-a-device"),
    ],
)
def test_what_a_scope_can_hold(trial: Trial, expect: Expect, scope: str, cards: int, fits: bool) -> None:
    """On an empty machine a scope holds as many cards as it has."""
    trial.add(node("n1").server(PAIRS))
    trial.submit(scoped(pod("a").gpus(cards), scope))

    if fits:
        assert len(minors(expect.running("a"))) == cards
    else:
        expect.pending("a", saying="Insufficient Topology Scoped GPU Devices")


@pytest.mark.feature("DEV-5.nearest")
@pytest.mark.case("DS-036", severity="normal")
def test_a_share_joins_a_switch_in_use(trial: Trial, expect: Expect) -> None:
    """A share is placed on a used switch before an unused one."""
    trial.add(node("n1").server(PAIRS))
    trial.submit(pod("whole").gpus(1))
    whole = expect.running("whole")

    trial.submit(pod("share").gpu_share(50))

    share = expect.running("share")
    check_arrival(trial, share)
    assert switches(trial, share) == switches(trial, whole)
    assert minors(share) != minors(whole)


@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-037", severity="critical")
@pytest.mark.long(seconds=5)
def test_churn_never_breaks_a_required_scope(trial: Trial, seed: int) -> None:
    """Pods with and without required scopes come and go: every bound pod has its required scope and its own cards."""
    trial.add(node("pairs").server(PAIRS), node("singles").server(SINGLES))
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    amounts: dict[str, Where] = {"PCIe": switches, "NUMANode": numa_nodes}
    alive: list[str] = []
    judged = 0
    for step in range(40):
        if alive and draw.random() < 0.35:
            trial.delete(alive.pop(draw.randrange(len(alive))))
        else:
            asking = pod(f"p{step}").gpus(draw.choice([1, 2, 2, 3, 4]))
            scope = draw.choice(["", *amounts])
            trial.submit(scoped(asking, scope).label("scope", scope) if scope else asking)
            alive.append(asking.name)
        trial.pass_time(0.1)
        bound = [pod for pod in trial.pods() if pod.spec.node_name and not pod.terminated]
        held = [(pod.spec.node_name, minor) for pod in bound for minor in minors(pod)]
        assert len(set(held)) == len(held), f"a card has two owners: {sorted(held)}"
        for bound_pod in bound:
            where = amounts.get(bound_pod.metadata.labels.get("scope", ""))
            if where is not None:
                judged += 1
                assert len(where(trial, bound_pod)) == 1, (
                    f"{bound_pod.metadata.name} required one {bound_pod.metadata.labels['scope']}"
                )
    assert judged >= 20, "the churn bound too little to prove anything"
