"""NodeResourcesFitPlus and ScarceResourceAvoidance: the worked examples, how profiles turn them on, and the engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import Container, PodSpec, ResourceRequirements
from seatrial.scheduler.api.device import NVIDIA_GPU
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.config import expand
from seatrial.scheduler.engine.tests.test_engine import events, nodes
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.pods.requests import nonzero_requests
from seatrial.scheduler.tests.play import Play, stories
from seatrial.scheduler.tests.rig import Rig, profile

GPU_FIRST = {
    NVIDIA_GPU: {"type": "MostAllocated", "weight": 2},
    "cpu": {"type": "LeastAllocated", "weight": 1},
    "memory": {"type": "LeastAllocated", "weight": 1},
}


def scoring(name: str, **args: Any) -> dict[str, Any]:
    """A profile in which nothing else scores, as the release notes show it."""
    return {
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": name, "weight": 2}]}},
        "pluginConfig": [{"name": name, "args": args}],
    }


def score(rig: Rig, builder: PodBuilder, node: str) -> int:
    """What the profile's only score gives a pod on a node; 100 where it has no opinion."""
    ((plugin, weight),) = rig.core.runners["default-scheduler"].scores
    assert weight == 2
    info = rig.core.cache.find(node)
    assert info is not None
    state, asking = CycleState(), rig.pod(builder)
    return plugin.score(state, asking, info) if plugin.pre_score(state, asking) else 100


@pytest.mark.parametrize(
    ("resources", "held", "requests", "expected"),
    [
        pytest.param(GPU_FIRST, ("16", "32Gi", 4), ("16", "32Gi", 2), 75, id="part-used"),
        pytest.param(GPU_FIRST, None, ("16", "32Gi", 2), 56, id="empty"),
        pytest.param({}, None, ("16", "32Gi", 2), 100, id="nothing-configured"),
        pytest.param({"rdma/hca": {"type": "MostAllocated", "weight": 1}}, None, ("16", "1Gi", 2), 100, id="not-asked"),
        pytest.param({"cpu": {"type": "Fullest", "weight": 1}}, None, ("16", "32Gi", 2), 0, id="unknown-type"),
        pytest.param(
            {"cpu": {"type": "Fullest", "weight": 1}, NVIDIA_GPU: {"type": "MostAllocated", "weight": 1}},
            None,
            ("16", "32Gi", 2),
            12,
            id="unknown-type-weighs",
        ),
        pytest.param(
            {"cpu": {"type": "LeastAllocated", "weight": 1}}, ("90", "1Gi", 0), ("16", "1Gi", 0), 0, id="over-least"
        ),
        pytest.param(
            {"cpu": {"type": "MostAllocated", "weight": 1}}, ("90", "1Gi", 0), ("16", "1Gi", 0), 100, id="over-most"
        ),
    ],
)
def test_fit_plus(
    resources: dict[str, Any], held: tuple[str, str, int] | None, requests: tuple[str, str, int], expected: int
) -> None:
    rig = Rig(profile(**scoring("NodeResourcesFitPlus", resources=resources)))
    rig.node("n", cpu="96", memory="512Gi", more={NVIDIA_GPU: 8})
    if held is not None:
        rig.running(asking("old", *held), "n")
    assert score(rig, asking("p", *requests), "n") == expected


def asking(name: str, cpu: str, memory: str, gpus: int) -> PodBuilder:
    return pod(name).request(cpu=cpu, memory=memory).resources({NVIDIA_GPU: gpus} if gpus else {})


def needing(cpu: str | None, *, sidecar: bool = False) -> Container:
    requests: ResourceList = {"cpu": cpu} if cpu else {}
    return Container(resources=ResourceRequirements(requests), restart_policy="Always" if sidecar else "")


@pytest.mark.parametrize(
    ("containers", "init", "cpu"),
    [
        pytest.param([needing("2"), needing("3")], [], 5000, id="containers-are-summed"),
        pytest.param([needing("2")], [needing("10")], 10000, id="an-init-container-counts-by-maximum"),
        pytest.param([needing("2")], [needing("1", sidecar=True)], 3000, id="a-sidecar-is-added"),
        pytest.param([needing("2")], [needing("5"), needing("1", sidecar=True)], 5000, id="init-before-the-sidecar"),
        pytest.param(
            [needing("2")], [needing("1", sidecar=True), needing("5")], 6000, id="init-beside-a-sidecar-started-before"
        ),
        pytest.param([needing(None), needing("1")], [], 1100, id="a-container-without-counts-a-tenth"),
    ],
)
def test_what_a_pod_counts_as_asking(containers: list[Container], init: list[Container], cpu: int) -> None:
    assert nonzero_requests(PodSpec(containers=tuple(containers), init_containers=tuple(init)))[0] == cpu


@pytest.mark.parametrize(
    ("scarce", "has", "allocatable", "expected"),
    [
        pytest.param([NVIDIA_GPU], {NVIDIA_GPU: 8, "xx.xx/xx": 1}, {}, 50, id="one-of-two-unasked-is-scarce"),
        pytest.param([NVIDIA_GPU], {}, {}, 100, id="nothing-unasked"),
        pytest.param([NVIDIA_GPU], {NVIDIA_GPU: 8, "ephemeral-storage": "1Gi"}, {}, 50, id="storage-counts-as-a-kind"),
        pytest.param(
            [NVIDIA_GPU],
            {NVIDIA_GPU: 8, "ephemeral-storage": "1Gi"},
            {"ephemeral-storage": "1Mi"},
            0,
            id="only-the-scarce-one-unasked",
        ),
        pytest.param([NVIDIA_GPU], {NVIDIA_GPU: 8, "xx.xx/xx": 1}, {NVIDIA_GPU: 1}, 100, id="it-is-asked-for"),
        pytest.param([NVIDIA_GPU], {NVIDIA_GPU: 0, "xx.xx/xx": 1}, {}, 100, id="a-node-with-none-of-it"),
        pytest.param([], {NVIDIA_GPU: 8}, {}, 100, id="nothing-is-scarce"),
    ],
)
def test_scarce(scarce: list[str], has: ResourceList, allocatable: ResourceList, expected: int) -> None:
    rig = Rig(profile(**scoring("ScarceResourceAvoidance", resources=scarce)))
    rig.node("n", more=has)
    assert score(rig, pod("p").request(cpu="1", memory="1Gi").resources(dict(allocatable)), "n") == expected


def test_plain_pods_leave_the_cards_to_others() -> None:
    rig = Rig(profile(**scoring("ScarceResourceAvoidance", resources=[NVIDIA_GPU])))
    for name in ("a", "b", "c"):
        rig.node(name, more={NVIDIA_GPU: 8} if name != "b" else {})
    rig.submit(*(pod(f"p{number}").request(cpu="1", memory="1Gi") for number in range(4)))
    rig.run()
    assert {rig.where(f"p{number}") for number in range(4)} == {"b"}


def test_they_run_only_where_a_profile_names_them() -> None:
    (default,) = expand(profile())
    assert not {"NodeResourcesFitPlus", "ScarceResourceAvoidance"} & default.weights.keys()
    (seed,) = expand(
        profile(
            plugins={
                "score": {
                    "disabled": [{"name": "*"}],
                    "enabled": [
                        {"name": "NodeResourcesFitPlus", "weight": 2},
                        {"name": "ScarceResourceAvoidance", "weight": 2},
                    ],
                }
            }
        )
    )
    assert seed.weights == {"NodeResourcesFitPlus": 2, "ScarceResourceAvoidance": 2}
    assert seed.at["filter"] == default.at["filter"], "all default filters stay"


NAMES = ("NodeResourcesFitPlus", "ScarceResourceAvoidance")
BOTH = profile(
    plugins={
        "score": {"enabled": [{"name": "NodeResourcesFitPlus", "weight": 2}, {"name": "ScarceResourceAvoidance"}]}
    },
    pluginConfig=[
        {"name": "NodeResourcesFitPlus", "args": {"resources": GPU_FIRST}},
        {"name": "ScarceResourceAvoidance", "args": {"resources": [NVIDIA_GPU, "koordinator.sh/rdma"]}},
    ],
)


@stories(60)
@given(start=st.lists(nodes(), min_size=1, max_size=6), story=st.lists(events(), min_size=5, max_size=30))
def test_decisions_are_those_of_asking_everybody(start: list[Any], story: list[tuple[str, Any]]) -> None:
    play = Play(BOTH)
    play.tell(start, story)
