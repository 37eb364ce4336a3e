"""Keys that placements computed, in Python or by the compiled kernel, against keys that are judged from the columns."""

import shutil
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.device import RDMA
from seatrial.scheduler.engine import compiled_keys, signatures
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.packing import kernel, strategies
from seatrial.scheduler.plugins.deviceshare import cache
from seatrial.scheduler.tests.rig import Rig, profile

SHAPES: list[dict[str, Any]] = [
    {"cpu": "1", "memory": "4Gi"},
    {"cpu": "3", "memory": "1Gi"},
    {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": 1},
    {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": 4},
    {"cpu": "1", "memory": "2Gi", "koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 30},
    {"cpu": "1", "memory": "2Gi", "koordinator.sh/gpu-core": 60, "koordinator.sh/gpu-memory-ratio": 50},
]
PACKED = [
    {"name": name, "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    for name in ("DeviceShare", "NodeResourcesFit")
]


FRAGMENTS = [{"name": "DeviceFragmentation", "args": {"strategy": "FGD", "typicalPods": [{"gpu": 30, "cpu": "1"}]}}]
LEARNT = [{"name": "DeviceFragmentation", "args": {"strategy": "OpportunityCost"}}]
RATIO = [
    {
        "name": "NodeResourcesFit",
        "args": {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 2}, {"utilization": 80, "score": 9}]
                },
            }
        },
    }
]
EVERY = {"spread": [], "pack": PACKED, "fragments": FRAGMENTS, "opportunity": LEARNT, "ratio": RATIO}
every_score = pytest.mark.parametrize("arguments", EVERY.values(), ids=EVERY)


@pytest.fixture(
    autouse=True,
    params=["Python", pytest.param("compiled", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="no cc"))],
)
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the kernel computes the keys."""
    module = kernel.load(kernel.build()) if request.param == "compiled" else None
    for user in (compiled_keys, strategies):
        monkeypatch.setattr(user, "kernel", lambda: module)
    return module is not None


def rig_with(arguments: list[Any]) -> Rig:
    """A core with these arguments; DeviceFragmentation runs where it has some."""
    enabled = [{"name": each["name"]} for each in arguments if each["name"] == "DeviceFragmentation"]
    return Rig(profile(pluginConfig=arguments, plugins={"score": {"enabled": enabled}}))


def lines(rig: Rig) -> list[ClassScores]:
    """What is kept about each class."""
    return lines_of(rig, range(len(SHAPES)))


def lines_of(rig: Rig, numbers: Iterable[int]) -> list[ClassScores]:
    """What is kept about the classes of these pods."""
    runner = rig.core.runners.of(next(iter(rig.core.cache.nodes["n0"].pods.values())))
    return [runner.class_scores(rig.core.cache.classes.of(rig.pods[f"p{number}"])) for number in numbers]


def pod(number: int) -> PodBuilder:
    return PodBuilder(f"p{number}").resources(SHAPES[number % len(SHAPES)])


@pytest.mark.parametrize("remembered", [256, 2], ids=["much-is-remembered", "next-to-nothing-is-remembered"])
@every_score
def test_what_is_looked_up_is_what_would_be_judged(
    arguments: list[Any], remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "MAX_NUMBERS", 0)
    monkeypatch.setattr(signatures, "MIN_SIGNATURES", remembered)
    monkeypatch.setattr(cache, "MAX_UNWRITTEN", 3)
    rig = rig_with(arguments)
    for number in range(6):
        rig.node(f"n{number}", cpu="64" if number % 2 else "32", gpus=8 if number % 3 else 4)
    for number in range(90):
        rig.submit(pod(number))
        rig.run()
    for verdicts in lines(rig):
        assert_key_is_as_judged(verdicts)


def test_the_kernel_is_used_where_no_class_has_bounds(computed: bool) -> None:
    """Also beside a score that the kernel does not know; not where a class has bounds."""
    rig = rig_with(RATIO)
    rig.node("n0", gpus=8)
    rig.submit(pod(2))
    rig.run()
    (matrix,) = {verdicts.matrix for verdicts in lines_of(rig, [2])}
    assert matrix is not None
    assert matrix._plan is not None
    assert (matrix._plan.compiled is not None) is computed
    rig.submit(PodBuilder("bounded").resources({"cpu": "1", RDMA: 50}), pod(3))
    rig.run()
    assert matrix._plan is not None
    assert matrix._plan.bounds
    assert matrix._plan.compiled is None


@every_score
def test_what_is_looked_up_after_departures_is_what_would_be_judged(arguments: list[Any]) -> None:
    """Also where the largest raw score rises, and where no node was feasible before. No class judges a node again."""
    rig = rig_with(arguments)
    for number in range(3):
        rig.node(f"n{number}", cpu="16" if number % 2 else "12", gpus=8 if number % 3 else 4)
    for number in range(40):
        rig.submit(pod(number))
    rig.run()
    assert len(rig.core.queue.waiting)
    verdicts = lines(rig)
    assert not all(each.feasible for each in verdicts)
    judged_again = verdicts[0].matrix.log.end if verdicts[0].matrix is not None else -1
    for number in range(len(SHAPES), 40):
        rig.core.intake.remove_pod(rig.pods[f"p{number}"].metadata.uid)
        verdicts = lines(rig)
        assert verdicts[0].matrix is not None
        assert verdicts[0].matrix.log.end == judged_again
        verdicts[number % len(SHAPES)].refresh()
        if number % 5 == 0:
            for each in verdicts:
                assert_key_is_as_judged(each)
                assert_largest_raw_scores_are_known(each)
    assert all(each.feasible for each in verdicts)


def test_classes_that_have_bounds_leave_alone_what_was_looked_up_for_others() -> None:
    """A key that was judged from the columns is replaced by one that is looked up, not moved by what it was."""
    rig = Rig()
    for number in range(6):
        rig.node(f"n{number}", cpu="64" if number % 2 else "32", gpus=8)
    rig.submit(PodBuilder("bounded").resources({"cpu": "1", RDMA: 50}))
    rig.run()
    for number in range(24):
        rig.submit(pod(number))
        rig.run()
        if number >= len(SHAPES):
            for verdicts in lines(rig):
                assert_key_is_as_judged(verdicts)


def assert_largest_raw_scores_are_known(verdicts: ClassScores) -> None:
    entry, matrix = verdicts.entry, verdicts.matrix
    assert matrix is not None
    feasible = np.flatnonzero(verdicts.key >= 0)
    for number, highest in zip(entry.raw_numbers, entry.highest, strict=True):
        assert highest == matrix.raw[number][entry.index, feasible].max(initial=0)


def assert_key_is_as_judged(verdicts: ClassScores) -> None:
    assert verdicts.entry.uses_signatures
    assert verdicts.matrix is not None
    verdicts.refresh()
    kept = verdicts.key.copy()
    verdicts.matrix.judge(verdicts.entry, None)
    judged = verdicts.key
    assert ((kept >= 0) == (judged >= 0)).all()
    assert (np.where(kept >= 0, kept, 0) == np.where(judged >= 0, judged, 0)).all()
