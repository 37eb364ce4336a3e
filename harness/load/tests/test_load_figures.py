"""From samples to figures: numbers worked out by hand, and every reason why they may not count."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from seatrial.harness.commands.load import worker_lines
from seatrial.harness.load.load_figures import LoadResult, Second, Throughput, summarise
from seatrial.harness.load.record import Part, Sample
from seatrial.harness.load.settings import LoadSettings


def _life(number: int, **changes: float | str | None) -> Sample:
    """Due every 100 ms, bound 10 ms after it was sent, gone a second later."""
    due = number / 10
    sample = Sample(f"p{number}", "s", due, due, due + 0.002, due + 0.003, due + 0.010, "n", 1, due + 1, due + 1.1)
    for name, value in changes.items():
        setattr(sample, name, value)
    return sample


def _result(*parts: Part, crowding: Mapping[str, float] | None = None) -> LoadResult:
    return summarise(LoadSettings(), parts, crowding=crowding or {}, samples=Path("samples.jsonl"))


def _part(samples: list[Sample], **changes: object) -> Part:
    part = Part(samples, cpu_seconds=0.2, wall_seconds=1.0)
    for name, value in changes.items():
        setattr(part, name, value)
    return part


def test_two_processes_make_one_result() -> None:
    even, odd = ([_life(number) for number in range(first, 20, 2)] for first in (0, 1))
    result = _result(_part(even), _part(odd))
    assert (result.created, result.bound, result.deleted, result.unbound, result.rebound) == (20, 20, 20, 0, 0)
    assert result.latency_ms == {"p50": 10.0, "p90": 10.0, "p99": 10.0, "max": 10.0}
    assert result.throughput == Throughput(pods_per_second=10.0, first_bind=0.01, last_bind=1.91)
    assert result.per_second == (Second(0, 10, 10, 0), Second(1, 10, 10, 9), Second(2, 0, 0, 10), Second(3, 0, 0, 1))
    assert result.valid
    assert result.bound_once
    assert result.workers == ()


def test_lost_and_doubly_bound_pods_are_told() -> None:
    lives = [_life(0), _life(1, bound=None, node="", nodes_seen=0), _life(2, nodes_seen=2)]
    result = _result(_part(lives))
    assert (result.created, result.bound, result.unbound, result.rebound) == (3, 2, 1, 1)
    assert not result.bound_once
    assert result.valid  # the scheduler's fault, not the measurement's


def test_nothing_bound_gives_no_figures_rather_than_zeros() -> None:
    result = _result(_part([_life(0, bound=None, nodes_seen=0)]))
    assert result.latency_ms == {}
    assert result.throughput is None


def test_pods_aside_count_and_have_no_part_in_latency_and_throughput() -> None:
    lives = [_life(0), _life(1), _life(2, aside=True, bound=5.0), _life(3, aside=True, bound=None, nodes_seen=0)]
    result = _result(_part(lives))
    assert (result.created, result.bound, result.unbound) == (4, 3, 1)
    assert result.latency_ms["max"] == 10.0
    assert result.throughput == Throughput(pods_per_second=10.0, first_bind=0.01, last_bind=0.11)


def test_rows_of_users_are_merged_over_processes() -> None:
    result = _result(_part([_life(0)], rows={"B": [0.3], "A": [0.1]}), _part([_life(1)], rows={"A": [0.2, 0.4]}))
    assert result.rows == {
        "A": {"count": 3, "p50": 200.0, "p90": 400.0, "p99": 400.0, "max": 400.0},
        "B": {"count": 1, "p50": 300.0, "p90": 300.0, "p99": 300.0, "max": 300.0},
    }


@pytest.mark.parametrize(
    ("part", "crowding", "reason"),
    [
        pytest.param(_part([_life(0, sent=0.08)]), {}, "generator lag: pods were sent 80 ms late", id="late"),
        pytest.param(_part([_life(0)], cpu_seconds=0.9), {}, "the client was the limit: it used 90%", id="busy-client"),
        pytest.param(_part([_life(0)], throttled=3), {}, "throttling: .* 3 requests with 429", id="throttled"),
        pytest.param(_part([_life(0, seen=0.5)]), {}, "watch lag: 498 ms", id="slow-watch"),
        pytest.param(_part([_life(0)], watch_gaps=1), {}, "the watch expired", id="watch-gap"),
        pytest.param(_part([_life(0)], errors={"create: 500": 2}), {}, "2 requests failed: create: 500", id="errors"),
        pytest.param(_part([_life(0)]), {"cards": 1.5}, "requests 150% of the fleet's cards", id="crowded"),
        pytest.param(_part([_life(0)]), {"x.io/y": float("inf")}, "no node offers x.io/y", id="not-offered"),
    ],
)
def test_why_figures_do_not_count(part: Part, crowding: dict[str, float], reason: str) -> None:
    result = _result(part, crowding=crowding)
    assert not result.valid
    assert len(result.invalid_because) == 1
    assert re.search(reason, result.invalid_because[0])


def test_one_worker_that_is_at_fault_is_named_however_many_there_are() -> None:
    """Its late pod is 1 of 200, and so no part of the p99 of all."""
    good = [_part([_life(10 * part + n) for n in range(10)], worker=f"worker {part} on a") for part in range(19)]
    late = _part([_life(number) for number in range(190, 199)] + [_life(199, sent=20.0)], worker="worker 19 on b")
    busy = _part([], cpu_seconds=0.9, worker="worker 20 on c")
    result = _result(*good, late, busy, Part(worker="worker 21 on d", lost=True), crowding={"cards": 1.5})
    assert [reason.partition(";")[0] for reason in result.invalid_because] == [
        "worker 19 on b: generator lag: pods were sent 100 ms late at p99",
        "worker 20 on c: the client was the limit: it used 90% of a core",
        "worker 21 on d: lost before the end: its pods are not in these figures",
        "the load requests 150% of the fleet's cards on average: pods wait for room",
    ]
    assert result.validity.generator_lag_ms["p99"] == 0
    first, *_, of_late, of_busy, of_lost = result.workers
    assert (len(result.workers), sum(each.created for each in result.workers)) == (22, result.created)
    assert (first.worker, first.created, first.bound, first.latency_ms["p99"]) == ("worker 0 on a", 10, 10, 10.0)
    assert (first.valid, of_late.valid, of_late.validity.generator_lag_ms["p99"]) == (True, False, 100.0)
    lines = worker_lines(map(asdict, (first, of_late, of_lost)))
    assert [line.split()[3:] for line in lines[1:]] == [
        ["a", "10", "10", "10", "10", "0", "20%", "1", "yes"],
        ["b", "10", "10", "10", "10", "100", "20%", "1", "no"],
        ["d", "0", "0", "-", "-", "-", "-", "-", "no"],
    ]
    assert (of_busy.validity.client_cpu_share, of_lost.created, of_lost.valid) == (0.9, 0, False)
