"""DeviceFragmentation: the figure by its definition, and where it sends pods."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, pods
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.config import ConfigError, expand
from seatrial.scheduler.framework.explanation import explain
from seatrial.scheduler.plugins.fragmentation import Typical, fragments
from seatrial.scheduler.tests.rig import Rig, profile

HALF, ONE, TWO = Typical(4000, 50, 1, 1), Typical(8000, 100, 1, 1), Typical(16000, 100, 2, 1)


def fragmentation(**args: Any) -> Any:
    return profile(
        plugins={"score": {"enabled": [{"name": "DeviceFragmentation"}], "disabled": [{"name": "*"}]}},
        pluginConfig=[{"name": "DeviceFragmentation", "args": args}] if args else [],
    )


@pytest.mark.parametrize(
    ("cpu", "idle", "pods_", "want"),
    [
        pytest.param(64000, [100, 100], [ONE], 0, id="all-can-be-used"),
        pytest.param(64000, [100, 50], [ONE], 50, id="a-half-is-too-small"),
        pytest.param(64000, [100, 50], [HALF, ONE], 50, id="but-not-for-a-half"),
        pytest.param(64000, [100, 50], [TWO], 150, id="two-cards-are-not-there"),
        pytest.param(6000, [100, 100], [HALF, ONE], 200, id="no-cpu-for-a-whole-one"),
        pytest.param(64000, [30, 100], [Typical(0, 0, 0, 2)], 260, id="who-wants-none-can-use-none"),
        pytest.param(64000, [], [ONE], 0, id="no-cards"),
    ],
)
def test_fragments(cpu: int, idle: list[int], pods_: list[Typical], want: int) -> None:
    assert fragments(cpu, idle, pods_) == want


def where(rig: Rig, *asked: PodBuilder) -> list[str]:
    """Their nodes; each pod is placed before the next one comes."""
    found = []
    for builder in asked:
        rig.submit(builder)
        rig.run()
        found.append(rig.where(builder.name))
    return found


def test_halves_share_a_card_and_whole_cards_stay_whole() -> None:
    rig = Rig(fragmentation())
    rig.node("a", gpus=4)
    rig.node("b", gpus=4)
    halves = where(rig, *(builder.gpu_share(50) for builder in pods("half", 4)))
    assert len(set(halves)) == 1
    (four,) = where(rig, pod("four").gpus(4))
    assert four not in {"", halves[0]}


def test_cpu_is_taken_where_no_card_needs_it() -> None:
    rig = Rig(fragmentation(typicalPods=[{"gpu": 100, "cpu": "8"}]))
    rig.node("cards", cpu="32", gpus=4)
    rig.node("plain", cpu="32")
    assert where(rig, *(builder.request(cpu=8) for builder in pods("cpu", 4))) == ["plain"] * 4
    assert where(rig, *(builder.gpus(1).request(cpu=8) for builder in pods("gpu", 4))) == ["cards"] * 4


@pytest.mark.parametrize(
    ("balanced", "lean", "rich"),
    [
        # A typical pod still fits on both, so nothing becomes a fragment; but four cards want 40 CPUs, and 32 are left.
        pytest.param(False, 50, 50, id="not-yet-a-fragment"),
        pytest.param(True, 31, 50, id="eight-tenths-of-a-card-without-cpu"),
    ],
)
def test_balanced_sees_cpu_run_out_early(balanced: bool, lean: int, rich: int) -> None:
    rig = Rig(fragmentation(typicalPods=[{"gpu": 100, "cpu": "10"}], balanced=balanced))
    rig.node("lean", cpu="40", gpus=4)
    rig.node("rich", cpu="64", gpus=4)
    one = rig.pod(pod("p").request(cpu=8))
    info = PodInfo(one, rig.core.cache.classes.of(one))
    found = {scored.node: scored.total for scored in explain(rig.core.runner_of(info), info).feasible}
    assert found == {"lean": lean, "rich": rich}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"typicalPods": []}, "typicalPods: expected at least one typical pod, found none", id="none"),
        pytest.param(
            {"typicalPods": [{"gpu": 150}]},
            r"typicalPods\[0\]\.gpu: expected 0 to 100 or a multiple of 100, found 150", id="a-card-and-a-half",
        ),
        pytest.param({"typicalPods": [{"gpu": 50, "weight": 0}]}, r"\[0\]\.weight: expected 1 or more", id="weight"),
        pytest.param({"typicalPods": [{"gpu": 50, "cpu": "much"}]}, r"typicalPods\[0\]\.cpu: ", id="cpu"),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(fragmentation(**args))
