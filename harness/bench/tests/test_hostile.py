"""`bench hostile` at its smallest, and its figures."""

import pytest

from seatrial.harness.bench.attacks import ATTACKS
from seatrial.harness.bench.hostile import bench_hostile, percentile, with_omitted


def test_attacks_are_refused_and_other_clients_are_served() -> None:
    """Processor time of the event loop: independent of what else runs on the machine."""
    chosen = [attack for attack in ATTACKS if attack.name in {"rule", "replicas", "timeout-50001"}]
    figures = bench_hostile(chosen, 2, lambda _: None)
    assert figures["rule"]["codes"] == [422]
    assert figures["replicas"]["codes"] == [201]
    assert figures["timeout-50001"]["codes"] == [403]  # without credentials
    assert all(row["within_limit"] and row["reads"] > 10 for row in figures.values())


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
