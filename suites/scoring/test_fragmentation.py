"""A profile that scores fragmentation leaves more of the cluster usable than one that spreads.

The cases count how many large pods fit after small ones were placed; they do not compare scores.
"""

import random
from collections import Counter

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.device import GPU_MODEL_LABEL
from seatrial.suites.scoring.placing import one_by_one

FEWER, RARE, MODELS, PLACES = "fewer-fragments", "rare-large-pods", "scarce-models", "scarce-places"

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(FEWER)]


def fitting(trial: Trial, large: list[PodBuilder], profile: str) -> int:
    """How many of the large pods are placed."""
    trial.submit(*(pod.scheduler(profile) for pod in large))

    def settled() -> bool:
        return all(pod.spec.node_name or pod.status.conditions for pod in trial.pods())

    assert trial.wait(settled, within=30)
    names = {pod.name for pod in large}
    return sum(bool(pod.spec.node_name) for pod in trial.pods() if pod.metadata.name in names)


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-020", severity="critical")
@pytest.mark.parametrize(
    ("profile", "whole_machines"),
    [pytest.param(FEWER, 3, id="fewer-fragments"), pytest.param(DEFAULT_SCHEDULER, 0, id="spreading")],
)
def test_halves_leave_whole_machines(trial: Trial, expect: Expect, profile: str, whole_machines: int) -> None:
    """Four halves fit on two cards; a spreading profile leaves no machine with all cards free."""
    trial.add(*(node(f"n{number}").gpus("a10", 4) for number in range(4)))
    one_by_one(trial, expect, [pod.gpu_share(50).request(cpu=4) for pod in pods("half", 4)], profile)

    assert fitting(trial, [pod.gpus(4).request(cpu=32) for pod in pods("large", 4)], profile) == whole_machines


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-021", severity="critical")
@pytest.mark.parametrize(
    ("profile", "whole_machines"),
    [pytest.param(FEWER, 2, id="fewer-fragments"), pytest.param(DEFAULT_SCHEDULER, 0, id="spreading")],
)
def test_pods_without_cards_leave_the_cards_their_cpus(
    trial: Trial, expect: Expect, profile: str, whole_machines: int
) -> None:
    """Pods without cards are placed on nodes without cards, because idle cards need CPUs on their node."""
    trial.add(node("a").gpus("a10", 4).cpu(40), node("b").gpus("a10", 4).cpu(40), node("plain").cpu(48))
    where = Counter(one_by_one(trial, expect, [pod.request(cpu=12) for pod in pods("cpu", 4)], profile))

    assert (where["plain"] == 4) == (profile == FEWER)
    assert fitting(trial, [pod.gpus(4).request(cpu=32) for pod in pods("large", 2)], profile) == whole_machines


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-022", severity="normal")
def test_a_mixture_leaves_no_less_than_spreading_does(trial: Trial, expect: Expect, seed: int) -> None:
    """Halves, whole cards and pods without cards in random order: afterwards at least as many large pods fit."""
    shapes = {"half": (50, 4), "one": (100, 8), "cpu": (0, 8)}
    fits = {}
    for profile in (FEWER, DEFAULT_SCHEDULER):
        draw = random.Random(seed)  # noqa: S311 the same mixture for both
        trial.add(*(node(f"{profile}-{number}").gpus("a10", 4).cpu(48).label("for", profile) for number in range(4)))
        builders = []
        for number in range(14):
            gpu, cpu = shapes[draw.choice(list(shapes))]
            one = pod(f"{profile}-{number}").request(cpu=cpu).on(**{"for": profile})
            builders.append(one.gpus(1) if gpu == 100 else one.gpu_share(gpu) if gpu else one)
        one_by_one(trial, expect, builders, profile)
        large = [pod.gpus(4).request(cpu=32).on(**{"for": profile}) for pod in pods(f"large-{profile}", 4)]
        fits[profile] = fitting(trial, large, profile)
    assert fits[FEWER] >= fits[DEFAULT_SCHEDULER], f"whole machines left: {fits}"
    expect.refusal()


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-023", severity="normal")
@pytest.mark.profile(RARE)
def test_the_only_node_for_a_rare_large_pod_is_kept(trial: Trial, expect: Expect) -> None:
    """One pod in a hundred has four cards, so its share of all pods alone keeps no node free for it.

    The node with three cards has more CPU to spare, so it is the worse fit for small pods.
    """
    trial.add(node("large").gpus("a10", 4).cpu(64), node("small").gpus("a10", 3).cpu(128))
    node_names = one_by_one(trial, expect, [pod.gpus(1).request(cpu=8) for pod in pods("one", 3)], RARE)

    assert node_names == ["small"] * 3
    assert fitting(trial, [pod("four").gpus(4).request(cpu=32)], RARE) == 1


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-026", severity="normal")
@pytest.mark.profile(RARE)
def test_places_in_plenty_are_used(trial: Trial, expect: Expect) -> None:
    """As SC-023, but ten nodes take a pod of four cards. One more or less does not matter then: small pods go where
    they fit best, and the node with three cards keeps its cards."""
    trial.add(*(node(f"large-{number}").gpus("a10", 4).cpu(64) for number in range(10)))
    trial.add(node("small").gpus("a10", 3).cpu(128))

    node_names = one_by_one(trial, expect, [pod.gpus(1).request(cpu=8) for pod in pods("one", 3)], RARE)

    assert "small" not in node_names
    expect.refusal()


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-260", severity="normal")
@pytest.mark.profile(RARE)
def test_places_that_become_rare_are_kept(trial: Trial, expect: Expect) -> None:
    """As SC-026, where pods of four cards have many nodes at first. All but one are filled: the last one is kept, and
    small pods go to the node with three cards."""
    trial.add(*(node(f"large-{number}").gpus("a10", 4).cpu(64) for number in range(11)))
    trial.add(node("small").gpus("a10", 3).cpu(128))
    first = one_by_one(trial, expect, [pod("first").gpus(1).request(cpu=8)], RARE)
    assert first != ["small"]
    others = [f"large-{number}" for number in range(11) if f"large-{number}" not in first]
    full = [
        pod(f"full-{where}").gpus(4).request(cpu=32).scheduler(RARE).select({"kubernetes.io/hostname": where})
        for where in others[1:]
    ]
    full += [
        pod(f"tiny-{number}").request(cpu="10m").scheduler(RARE).select({"kubernetes.io/hostname": first[0]})
        for number in range(40)
    ]  # prices follow after some placements
    full.append(pod("rest").gpus(3).request(cpu=24).scheduler(RARE).select({"kubernetes.io/hostname": first[0]}))
    trial.submit(*full)
    expect.bound(*(built.name for built in full))

    node_names = one_by_one(trial, expect, [pod.gpus(1).request(cpu=8) for pod in pods("one", 3)], RARE)

    assert node_names == ["small"] * 3
    assert fitting(trial, [pod("four").gpus(4).request(cpu=32)], RARE) == 1


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-261", severity="normal")
@pytest.mark.profile(MODELS)
def test_a_model_that_some_pods_require_is_kept_for_them(trial: Trial, expect: Expect) -> None:
    """Some pods require an A100. Pods that run anywhere go to the other nodes, although each leaves a card there
    without enough CPUs; afterwards there is room for the pods that require the model."""
    for number in range(2):
        trial.add(node(f"a100-{number}").gpus("a100-80g", 2).cpu(64), node(f"plain-{number}").gpus("a10", 2).cpu(16))

    node_names = one_by_one(trial, expect, [pod.gpus(1).request(cpu=12) for pod in pods("any", 2)], MODELS)

    assert sorted(node_names) == ["plain-0", "plain-1"]
    model = trial.node("a100-0")["metadata"]["labels"][GPU_MODEL_LABEL]
    required = [pod.gpus(1).request(cpu=8).select({GPU_MODEL_LABEL: model}) for pod in pods("required", 4)]
    assert fitting(trial, required, MODELS) == 4


@pytest.mark.feature("DEV-4.less-fragmentation")
@pytest.mark.case("SC-262", severity="normal")
@pytest.mark.profile(PLACES)
def test_a_large_pod_goes_where_it_fits_best(trial: Trial, expect: Expect) -> None:
    """A pod of eight cards takes the node with eight, not a part of one with twelve: both places for four cards that it
    takes there are its own."""
    trial.add(node("twelve").gpus("a10", 12).cpu(96).memory("140Gi"), node("eight").gpus("a10", 8).cpu(64))

    node_names = one_by_one(trial, expect, [pod("large").gpus(8).request(cpu=32, memory="64Gi")], PLACES)

    assert node_names == ["eight"]
    assert fitting(trial, [pod("four").gpus(4).request(cpu=32, memory="64Gi")], PLACES) == 1
