"""The benchmark itself: a small run with real processes, and when its figures do not count."""

import re
import sys
from pathlib import Path

import pytest

from seatrial.harness.bench.core import Size
from seatrial.harness.bench.mixes import mix
from seatrial.harness.bench.through_http import Repetition, _invalid_reasons, bench_http
from seatrial.harness.bench.usage import Usage
from seatrial.harness.clusters.backends import ENVTEST
from seatrial.harness.clusters.control_plane import missing_programs


@pytest.mark.parametrize(
    ("rate", "pods"), [pytest.param(None, 120, id="as-fast-as-it-goes"), pytest.param(100.0, 60, id="paced")]
)
def test_every_pod_is_placed_and_accounted_for(rate: float | None, pods: int) -> None:
    messages: list[str] = []
    figures = bench_http(Size(nodes=20, pods=pods, repeat=1), mix("cpu"), messages.append, rate=rate)
    assert (figures["placed"], figures["unplaced"]) == (pods, 0)
    assert len(messages) == 1
    assert figures["rate"] == rate
    assert figures["pods_per_second"]["median"] > 0
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
    assert set(figures["cpu_us_per_pod"]) == {"API server", "scheduler", "client"}


@pytest.mark.skipif(missing_programs() is not None, reason=str(missing_programs()))
def test_pods_are_placed_through_a_real_api_server() -> None:
    figures = bench_http(Size(nodes=20, pods=60, repeat=1), mix("cpu"), lambda _: None, backend=ENVTEST)
    assert (figures["placed"], figures["unplaced"], figures["backend"]) == (60, 0, "envtest")
    assert set(figures["cpu_us_per_pod"]) == {"API server", "etcd", "scheduler", "client"}


def _trial(**changes: object) -> Repetition:
    """A good one: a hundred pods at an even pace, but for the changes."""
    trial = Repetition(
        sent={f"p{number}": number / 100 for number in range(100)},
        bound={f"p{number}": number / 100 + 0.005 for number in range(100)},
        late=[0.001] * 100,
        usage=Usage(1.0, {"API server": 0.5, "scheduler": 0.5, "client": 0.3}, 0.05),
    )
    for name, value in changes.items():
        setattr(trial, name, value)
    return trial


@pytest.mark.parametrize(
    ("trial", "rate", "reason"),
    [
        pytest.param(_trial(), None, None, id="nothing-to-object-to"),
        pytest.param(_trial(refused=[429]), None, r"the API server refused pods \(429\)", id="refused"),
        pytest.param(_trial(refused=[0]), None, r"the API server refused pods \(no answer\)", id="no-answer"),
        pytest.param(_trial(bound={}), 100.0, "no pod was placed, of 100", id="nothing-placed"),
        pytest.param(_trial(twice=1), None, "a pod was shown on two nodes", id="bound-twice"),
        pytest.param(_trial(watch_lost=True), None, "the watch ended", id="watch-lost"),
        pytest.param(_trial(usage=Usage(1.0, {"client": 0.95}, 0.0)), None, "the client was the limit", id="client"),
        pytest.param(_trial(usage=Usage(1.0, {"client": 0.1}, 0.7)), None, "other programs used", id="shared-machine"),
        pytest.param(_trial(late=[0.05] * 100), 100.0, "generator lag", id="late"),
        pytest.param(_trial(bound={"p0": 0.1, "p1": 0.2, "p2": 4.0}), 100.0, None, id="a-paced-run-may-have-a-tail"),
        pytest.param(
            _trial(bound={f"p{n}": n / 100 + (5 if n == 99 else 0) for n in range(100)}), None, "slow tail", id="tail"
        ),
    ],
)
def test_why_figures_do_not_count(trial: Repetition, rate: float | None, reason: str | None) -> None:
    invalid_reasons = _invalid_reasons(trial, rate)
    if reason is None:
        assert invalid_reasons == []
    else:
        assert len(invalid_reasons) == 1
        assert re.search(reason, invalid_reasons[0])


def test_another_scheduler_runs_beside_ours() -> None:
    """The other one is our scheduler too, given by its command line."""
    messages: list[str] = []
    other = f"{sys.executable} -m seatrial.scheduler"
    figures = bench_http(Size(nodes=10, pods=40, repeat=2), mix("cpu"), messages.append, beside=[other])
    (beside,) = figures["beside"]
    assert (figures["placed"], beside["placed"], beside["subject"]) == (40, 40, other)
    assert [line.split(":")[0] for line in messages] == ["seatrial", Path(sys.executable).name] * 2
    assert beside["ratio"]["low"] <= beside["ratio"]["median"] <= beside["ratio"]["high"]


def test_throughput_counts_the_gaps_between_bindings() -> None:
    trial = Repetition(sent={"a": 0.0, "b": 0.0, "c": 0.0}, bound={"a": 1.0, "b": 1.5, "c": 2.0})
    assert trial.pods_per_second == pytest.approx(2.0)
    assert sorted(trial.latencies) == pytest.approx([1000, 1500, 2000])
