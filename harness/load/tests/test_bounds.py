"""Bounds of a workload's figures."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.load.bounds import Bounds, out_of_bounds
from seatrial.harness.load.load_figures import LoadResult, Throughput, Validity


def result(*, rate: float | None = 50.0, p99: float | None = 20.0, valid: bool = True) -> LoadResult:
    return LoadResult(
        settings={},
        created=10,
        bound=10,
        deleted=10,
        unbound=0,
        rebound=0,
        latency_ms={} if p99 is None else {"p50": 5.0, "p90": 10.0, "p99": p99, "max": p99},
        rows={},
        throughput=None if rate is None else Throughput(rate, 0.0, 1.0),
        per_second=(),
        validity=Validity({}, 0.1, 0, {}, 0, 0, {}, {}),
        valid=valid,
        invalid_because=() if valid else ("the client was the limit",),
        workers=(),
        samples=Path("samples.jsonl"),
    )


BOUNDS = {"at_least": {"pods_per_second": 40}, "at_most": {"p99": 20}}


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param(result(), [], id="on-the-bound"),
        pytest.param(result(rate=39.9), ["pods_per_second: expected at least 40, measured 39.9"], id="too-few"),
        pytest.param(result(p99=20.1), ["p99: expected at most 20 ms, measured 20.1"], id="too-slow"),
        pytest.param(
            result(rate=None, p99=None),
            [
                "pods_per_second: expected at least 40, measured nothing",
                "p99: expected at most 20 ms, measured nothing",
            ],
            id="not-measured",
        ),
    ],
)
def test_bounds(result: LoadResult, want: list[str]) -> None:
    assert out_of_bounds(Bounds.of(BOUNDS), result) == want


@pytest.mark.parametrize(
    ("memory", "want"),
    [
        pytest.param(200.0, [], id="on-the-bound"),
        pytest.param(200.5, ["memory_mib: expected at most 200 MiB, measured 200.5"], id="too-much"),
        pytest.param(None, [], id="not-our-process"),
    ],
)
def test_memory_of_the_scheduler(memory: float | None, want: list[str]) -> None:
    bounds = Bounds.of({"at_most": {"memory_mib": 200}})
    assert out_of_bounds(bounds, result(), memory_mib=memory) == want


def test_a_load_that_is_not_valid_is_not_judged() -> None:
    with pytest.raises(ValueError, match="not judged"):
        out_of_bounds(Bounds.of(BOUNDS), result(valid=False))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param({"at_least": {"pods": 1}}, "no figure 'pods'", id="unknown-figure"),
        pytest.param({"least": {}}, "at_least", id="unknown-bound"),
        pytest.param({"at_most": {"p99": "fast"}}, "at_most", id="no-number"),
    ],
)
def test_bounds_that_cannot_be_read(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Bounds.of(values)
