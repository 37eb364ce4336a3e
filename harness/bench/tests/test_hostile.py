"""`bench hostile` at its smallest, and its figures."""

import pytest

from seatrial.harness.bench.attacks import ATTACKS
from seatrial.harness.bench.hostile import bench_hostile, percentile, with_omitted
from seatrial.harness.bench.scheduler_attacks import PROBES, SCHEDULER_ATTACKS, bench_scheduler_attacks
from seatrial.harness.fuzzing.scheduler_world import World


def test_attacks_are_refused_and_other_clients_are_served() -> None:
    """Processor time of the event loop: independent of what else runs on the machine."""
    chosen = [attack for attack in ATTACKS if attack.name in {"rule", "replicas", "timeout-50001"}]
    figures = bench_hostile(chosen, 2, lambda _: None)
    assert figures["rule"]["codes"] == [422]
    assert figures["replicas"]["codes"] == [201]
    assert figures["timeout-50001"]["codes"] == [403]  # without credentials
    assert all(row["within_limit"] and row["reads"] for row in figures.values()), figures


def test_other_pods_are_bound_beside_hostile_objects() -> None:
    """Numbers, times and lists that held up all pods when they had no limits."""
    names = {"gang-waiting-time", "gang-groups", "partition-spec", "reservation-ttl", "reservation-expires", "cpuset"}
    chosen = [attack for attack in SCHEDULER_ATTACKS if attack.name in names]
    figures = bench_scheduler_attacks(chosen, 1, lambda _: None)
    assert {row["bound"] for row in figures.values()} == {PROBES}
    assert all(row["within_limit"] for row in figures.values())


def test_a_pod_that_is_not_bound_is_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "is_bound", lambda *_: False)
    (row,) = bench_scheduler_attacks(SCHEDULER_ATTACKS[:1], 1, lambda _: None).values()
    assert (row["bound"], row["within_limit"]) == (0, False)


def test_names_of_attacks_differ() -> None:
    names = [*(attack.name for attack in ATTACKS), *(attack.name for attack in SCHEDULER_ATTACKS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("samples", "want"),
    [
        pytest.param([0.002], [0.002], id="short"),
        pytest.param([0.021], [0.021, 0.016, 0.011, 0.006], id="delayed-reads-count"),
    ],
)
def test_reads_that_could_not_begin_are_counted(samples: list[float], want: list[float]) -> None:
    assert with_omitted(samples, 0.005) == pytest.approx(want)


def test_percentiles() -> None:
    samples = [number / 100 for number in range(100)]
    assert percentile(samples, 0.99) == 0.99
    assert percentile([], 0.99) == 0.0
