from itertools import count

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.openb import Node, Pod, Trace
from seatrial.harness.replay.policies import POLICIES
from seatrial.harness.replay.replay import replay
from seatrial.harness.replay.series import run, series, spread
from seatrial.harness.workers import results_of
from seatrial.scheduler.packing.shapes import Shape

PARTS = [Shape(1000, 1, 1, 1000)] * 12 + [Shape(2000, 1, 1, 600)] * 10 + [Shape(4000, 1, 0, 0)] * 4
TRACE = Trace(
    tuple(Node(f"n{number}", 32_000, 64, cards, "T4") for number, cards in enumerate((1, 2, 4, 8))),
    tuple(Pod(f"p{number:02}", shape) for number, shape in enumerate(PARTS)),
)


def test_halves_fill_a_card_and_the_fifth_fails() -> None:
    trace = Trace((Node("n", 100, 100, 2, "T4"),), tuple(Pod(f"p{number}", Shape(1, 1, 1, 500)) for number in range(5)))
    outcome = replay(trace, "fgd", load=1.3, seed=1, clock=iter((10.0, 12.5)).__next__)
    assert outcome.figures() == {
        "arrived_percent": 125.0,
        "gpu_allocated_percent": 100.0,
        "fragmented_percent": 0.0,
        "fragmented_of_idle_percent": 0.0,
        "pods": 5,
        "unplaced_pods": 1,
        "unplaced_part_of_a_gpu": 1,
        "largest_refused_at_percent": 125.0,
        "seconds": 2.5,
        "pods_per_second": 2,
    }
    assert [row["gpu_allocated_percent"] for row in outcome.curve()] == [25, 50, 75, 100, 100]
    assert [row["arrived_percent"] for row in outcome.curve()] == [25, 50, 75, 100, 125]


def test_fragments_are_what_no_typical_pod_can_use() -> None:
    pods = tuple(Pod(f"p{number}", Shape(1, 1, 1, 600)) for number in range(3))
    outcome = replay(Trace((Node("n", 9, 9, 2, "T4"),), pods), "bestfit", load=1.3, seed=1)
    # Two cards have 400 left each, which is too small; the third pod and a fourth find no place.
    assert outcome.fragmented.tolist() == pytest.approx([400, 800, 800, 800])
    assert outcome.figures()["fragmented_of_idle_percent"] == 100
    assert outcome.figures()["unplaced_pods"] == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_replay(policy: str) -> None:
    clock = count().__next__
    first, second, other = (replay(TRACE, policy, load=1.3, seed=seed, clock=clock) for seed in (1, 1, 2))
    assert first.figures() == second.figures()
    assert first.curve() == second.curve() != other.curve()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_allocated_and_what_failed_add_up_to_what_arrived(policy: str) -> None:
    outcome = replay(TRACE, policy, load=1.3, seed=3)
    assert (outcome.allocated <= outcome.arrived).all()
    assert (outcome.allocated <= outcome.capacity).all()
    assert (outcome.fragmented >= -1e-6).all()
    assert (outcome.fragmented <= outcome.capacity - outcome.allocated + 1e-6).all()
    placed_all = outcome.allocated[-1] == outcome.arrived[-1]
    assert placed_all == (outcome.figures()["unplaced_pods"] == 0)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UsageError, match="no policy 'magic'"):
        replay(TRACE, "magic", load=1.3, seed=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_series_sums_up_its_seeds(jobs: int) -> None:
    """In the order of the seeds, for any number of processes."""
    seen: list[int] = []
    outcomes = results_of(
        run,
        [(TRACE, "bestfit", 1.3, seed) for seed in (5, 6)],
        jobs=jobs,
        done=lambda outcome: seen.append(int(outcome.figures()["unplaced_pods"])),
    )
    both = series("bestfit", range(5, 7), outcomes)
    singles = [replay(TRACE, "bestfit", load=1.3, seed=seed).figures() for seed in (5, 6)]

    summary = both.summary()
    assert summary["seeds"] == [5, 6]
    assert summary["unplaced_pods"] == spread([each["unplaced_pods"] for each in singles])
    assert seen == [each["unplaced_pods"] for each in singles]
    last = both.curve()[-1]
    assert both.allocated()[int(last["arrived_percent"])] == last["gpu_allocated_percent"]


def test_one_seed_needs_no_spread() -> None:
    outcome = run(TRACE, "bestfit", 1.3, 5)
    assert series("bestfit", [5], [outcome]).summary() == {"policy": "bestfit", "seed": 5, **outcome.figures()}


def test_spread() -> None:
    assert spread([1, 2, 6]) == {"mean": 3, "sd": 2.646, "median": 2, "low": 1, "high": 6}
    assert spread([4])["sd"] == 0
