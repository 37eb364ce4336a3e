"""Replays through the scheduler's core."""

from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np

from seatrial.harness.replay.openb import Node, Pod, Trace
from seatrial.harness.replay.through_scheduler import SchedulerReplay, replay
from seatrial.scheduler.packing.shapes import Shape

PART, WHOLE, FOUR, PLAIN = (
    Shape(1000, 1, 1, 300),
    Shape(2000, 1, 1, 1000),
    Shape(8000, 1, 4, 1000),
    Shape(4000, 1, 0, 0),
)
P100 = Shape(1000, 1, 1, 1000, ("P100",))
TRACE = Trace(
    (Node("a", 32_000, 1000, 4, "T4"), Node("b", 32_000, 1000, 2, "P100")),
    tuple(
        Pod(f"p{number:02}", shape)
        for number, shape in enumerate([PART] * 8 + [WHOLE] * 3 + [FOUR, P100] + [PLAIN] * 2)
    ),
)


def test_allocations_are_counted_from_what_the_scheduler_wrote() -> None:
    run = SchedulerReplay(TRACE, 1, None)
    assert run.arrive(FOUR) == 0
    assert run.states.cards[0].tolist() == [0, 0, 0, 0]
    assert run.states.cpu.tolist() == [24_000, 32_000]
    assert run.arrive(P100) == 1
    assert run.arrive(PART) == 1
    assert sorted(run.states.cards[1].tolist()) == [0, 0, 0, 700]
    assert run.arrive(WHOLE) is None  # 0.7 of a card is left
    assert run.arrive(PLAIN) is not None


def test_a_pod_that_fits_nowhere_fails_once_and_leaves_no_trace() -> None:
    run = SchedulerReplay(TRACE, 1, None)
    assert [run.arrive(P100) for _ in range(4)] == [1, 1, None, None]


def test_what_was_allocated_and_what_failed_add_up() -> None:
    outcome = replay(TRACE, load=1.5, seed=3, clock=count().__next__)
    figures = outcome.figures()
    assert figures["pods"] == len(outcome.placed)
    assert figures["gpu_allocated_percent"] <= 100
    assert figures["seconds"] == figures["pods"]  # the clock is read before and after each pod
    by_size = {"part_of_a_gpu": 0.5, "1_gpu": 1, "4_gpus": 4, "without_gpu": 0}
    refused = Counter(outcome.gpus[~outcome.placed].tolist())
    assert refused == Counter({gpus: int(figures.get(f"unplaced_{size}", 0)) for size, gpus in by_size.items()})


def test_the_same_seed_gives_the_same_replay() -> None:
    first, second = (replay(TRACE, load=1.5, seed=5, clock=count().__next__) for _ in range(2))
    np.testing.assert_array_equal(first.fragmented, second.fragmented)
    np.testing.assert_array_equal(first.allocated, second.allocated)


def test_a_configuration_decides_where_pods_go(tmp_path: Path) -> None:
    """Packing leaves the node with four cards free; spreading by default takes it first."""
    config = tmp_path / "packing.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- schedulerName: default-scheduler\n  plugins:\n    score:\n"
        "      enabled: [{name: DeviceFragmentation}]\n      disabled: [{name: '*'}]\n"
        "  pluginConfig:\n  - name: DeviceFragmentation\n    args:\n"
        "      typicalPods: [{gpu: 400, cpu: 8}, {gpu: 100, cpu: 2}]\n"
    )
    packing, spreading = (SchedulerReplay(TRACE, 1, each) for each in (config, None))
    assert [packing.arrive(WHOLE) for _ in range(2)] == [1, 1]
    assert 0 in [spreading.arrive(WHOLE) for _ in range(2)]
