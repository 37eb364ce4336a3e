"""Mixes: what they draw, which files are refused, and how full they would make a fleet."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.load.workload import MIXES, Mix, Shape, crowding, mix
from seatrial.scheduler.api.wire import ResourceList

ONE_NODE: ResourceList = {
    "cpu": "8",
    "memory": "32Gi",
    "pods": "10",
    "nvidia.com/gpu": "2",
    "koordinator.sh/gpu": "200",
}


def test_weights_decide_how_often_a_shape_is_drawn() -> None:
    shapes = (Shape("rare", weight=1), Shape("often", weight=3))
    drawn = Counter(shape.name for shape in islice(Mix("two", shapes).draw(seed=5), 4000))
    assert drawn["often"] == pytest.approx(3000, abs=110)  # four standard deviations


@pytest.mark.parametrize("name", MIXES)
def test_the_same_seed_draws_the_same_pods(name: str) -> None:
    one, other = (list(islice(mix(name).draw(seed), 100)) for seed in (1, 1))
    assert one == other
    assert {shape.name for shape in one} == {shape.name for shape in MIXES[name]}


def test_a_file_says_all_that_a_pod_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "halves.yaml"
    file.write_text("""
shapes:
  - {name: half, weight: 2, requests: {cpu: 1, koordinator.sh/gpu-core: 50}, labels: {team: a}, priorityClass: batch}
""")
    built = next(mix(str(file)).draw(seed=0)).pod("p").manifest
    assert built["metadata"] == {"name": "p", "labels": {"team": "a"}}
    assert built["spec"]["priorityClassName"] == "batch"
    amounts = {"cpu": "1", "koordinator.sh/gpu-core": "50"}
    assert built["spec"]["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("shapes: [", "expected node content", id="not-yaml"),
        pytest.param("pods: 3", "missing required field `shapes`|unknown field `pods`", id="another-key"),
        pytest.param("shapes: []", "shapes: expected at least one, found none", id="no-shapes"),
        pytest.param("shapes: [{name: a, wieght: 2}]", "unknown field `wieght`", id="misspelt-key"),
        pytest.param(
            "shapes: [{name: a, weight: -1}]", "'a': weight: expected above 0, found -1", id="negative-weight"
        ),
        pytest.param(
            "shapes: [{name: a, requests: {cpu: lots}}]",
            "'a': requests: cpu: 'lots' is not a quantity",
            id="no-quantity",
        ),
    ],
)
def test_a_file_with_a_mistake_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=message) as refused:
        mix(str(file))
    assert str(file) in str(refused.value)


def test_an_unknown_mix_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no mix 'fruit': expected mixed, whole, shared, bytes, cpu, or the path"):
        mix("fruit")


@pytest.mark.parametrize(
    ("requests", "alive", "name", "part"),
    [
        pytest.param({"cpu": "500m"}, 4, "cpu", 0.25, id="cpu-in-thousandths"),
        pytest.param({}, 20, "pods", 2.0, id="a-pod-takes-a-place-even-if-it-asks-for-nothing"),
        pytest.param({"nvidia.com/gpu": 1}, 1, "cards", 0.5, id="whole-cards"),
        pytest.param({"koordinator.sh/gpu-core": 50}, 2, "cards", 0.5, id="halves-are-cards-too"),
        pytest.param(
            {"huawei.com/npu-core": 1}, 1, "huawei.com/npu-core", float("inf"), id="a-resource-that-no-node-offers"
        ),
    ],
)
def test_crowding_is_demand_by_offer(requests: dict[str, str | int], alive: float, name: str, part: float) -> None:
    assert crowding(Mix("one", (Shape("s", requests),)), alive, [ONE_NODE])[name] == pytest.approx(part)
