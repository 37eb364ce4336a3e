"""Arrival processes: how many, when, and the same again from the same seed."""

from itertools import pairwise
from statistics import mean, pvariance

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.load.arrival import KINDS, Arrivals


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        pytest.param(Arrivals("constant", 4, 1), [0, 0.25, 0.5, 0.75], id="constant-is-evenly-spaced"),
        pytest.param(Arrivals("constant", 0.4, 4), [0, 2.5], id="a-rate-below-one-still-brings-pods"),
        pytest.param(
            Arrivals("burst", 2, 3, burst_every=1), [0, 0, 1, 1, 2, 2], id="a-burst-brings-its-interval-at-once"
        ),
        pytest.param(Arrivals("burst", 4, 1.5, burst_every=1), [0] * 4 + [1] * 2, id="the-last-burst-may-be-cut"),
        pytest.param(Arrivals("ramp", 4, 2), [0, 1, 2**0.5, 3**0.5], id="a-ramp-gets-denser"),
    ],
)
def test_times_that_need_no_dice(arrivals: Arrivals, expected: list[float]) -> None:
    assert list(arrivals.times(seed=3)) == pytest.approx(expected)


def test_poisson_has_the_gaps_of_independent_arrivals() -> None:
    times = list(Arrivals("poisson", 50, 200).times(seed=1))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == pytest.approx(10_000, rel=0.04)  # four standard deviations of a Poisson count
    assert mean(gaps) == pytest.approx(1 / 50, rel=0.04)
    assert pvariance(gaps) == pytest.approx(1 / 50**2, rel=0.1)  # an exponential's variance is its mean squared


@pytest.mark.parametrize("kind", KINDS)
def test_all_processes_are_ascending_in_bounds_and_repeatable(kind: str) -> None:
    arrivals = Arrivals(kind, 40, 5)
    times = list(arrivals.times(seed=7))
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 5
    assert times == list(arrivals.times(seed=7))


def test_another_seed_gives_other_times() -> None:
    arrivals = Arrivals("poisson", 40, 5)
    assert list(arrivals.times(seed=1)) != list(arrivals.times(seed=2))


@pytest.mark.parametrize(
    ("kind", "rate", "seconds", "message"),
    [
        pytest.param("poison", 1, 1, "arrivals: expected one of poisson, constant, burst, ramp", id="unknown-kind"),
        pytest.param("poisson", -5, 1, "rate: expected a number above 0, found -5", id="negative-rate"),
        pytest.param("poisson", 1, 0, "seconds: expected a number above 0, found 0", id="no-time"),
        pytest.param("ramp", float("nan"), 1, "rate: expected a number above 0, found nan", id="not-a-number"),
        pytest.param("ramp", 1, float("inf"), "seconds: expected a number above 0, found inf", id="for-ever"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, rate: float, seconds: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Arrivals(kind, rate, seconds)
