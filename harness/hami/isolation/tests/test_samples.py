"""Shares and intervals of made-up samples whose answers are known."""

import math
import random

import pytest

from seatrial.harness.hami.isolation.samples import (
    Interval,
    Tick,
    batch_means,
    common,
    jain,
    mean_interval,
    rates,
    ratio,
    t_95,
)


def ticks(*pairs: tuple[float, int]) -> list[Tick]:
    return [Tick(at, done) for at, done in pairs]


def exact(mean: float) -> Interval:
    return Interval(mean, mean, mean, 0.0, 10)


def test_rates_are_per_second() -> None:
    assert rates(ticks((0, 0), (1, 100), (3, 200), (3, 250), (4, 251))) == [100, 50, 1]


def test_tenants_are_compared_while_both_run() -> None:
    first = ticks(*((second, second * 10) for second in range(11)))
    second = ticks(*((at, at) for at in range(4, 21)))
    a, b = common([first, second], warm_up=2.0)
    assert [item.at for item in a] == [item.at for item in b] == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "tenants",
    [
        pytest.param([ticks((0, 0), (1, 1)), ticks((2, 0), (3, 1))], id="one-after-the-other"),
        pytest.param([ticks((0, 0), (9, 1)), ticks((2, 0))], id="one-that-never-got-going"),
    ],
)
def test_tenants_that_never_ran_together(tenants: list[list[Tick]]) -> None:
    with pytest.raises(ValueError, match="expected t"):
        common(tenants)


def test_an_interval_by_hand() -> None:
    """Five values: mean 3, standard deviation sqrt(2.5), t of four degrees 2.776."""
    interval = mean_interval([1, 2, 3, 4, 5])
    half = 2.776 * math.sqrt(2.5) / math.sqrt(5)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((3, 3 - half, 3 + half))
    assert interval.spread == pytest.approx(math.sqrt(2.5))
    assert interval.within(3, 3)
    assert not interval.within(3.1, 4)


def test_batches_drop_the_beginning() -> None:
    assert batch_means([99, 1, 3, 5, 7], 2) == [2, 6]
    assert batch_means([1, 2, 3], 2) == [1, 2, 3]


def test_batches_of_swings_are_narrower_than_the_swings() -> None:
    """A limiter that swings between 0 and 90 each second: its mean is known far better than one second's value."""
    interval = mean_interval([0.0, 90.0] * 60)
    assert interval.mean == pytest.approx(45)
    assert interval.high - interval.low == pytest.approx(0, abs=1e-9)
    assert interval.spread > 45


def test_intervals_have_the_stated_coverage() -> None:
    """Of many samples from one distribution about one in twenty misses its mean: not none, not a tenth."""
    draw = random.Random(7)  # noqa: S311 the same samples each time
    intervals = [mean_interval([draw.gauss(10, 3) for _ in range(40)]) for _ in range(1000)]
    missed = sum(not entry.low <= 10 <= entry.high for entry in intervals)
    assert 20 <= missed <= 90


def test_a_ratio_carries_both_errors() -> None:
    interval = ratio(Interval(30, 27, 33, 5, 10), Interval(100, 90, 110, 9, 10))
    assert interval.mean == pytest.approx(0.3)
    assert interval.high - interval.mean == pytest.approx(0.3 * math.hypot(0.1, 0.1))
    assert ratio(exact(0), exact(5)).mean == 0
    with pytest.raises(ValueError, match="whole above 0"):
        ratio(exact(1), exact(0))


@pytest.mark.parametrize(
    ("amounts", "limits", "expected"),
    [
        pytest.param([30, 70], [30, 70], 1.0, id="in-proportion"),
        pytest.param([50, 50], [50, 50], 1.0, id="equal"),
        pytest.param([50, 50], [30, 70], 0.862069, id="equal-though-not-asked"),
        pytest.param([100, 0, 0, 0], [25, 25, 25, 25], 0.25, id="one-has-it-all"),
    ],
)
def test_fairness(amounts: list[float], limits: list[float], expected: float) -> None:
    assert jain(amounts, limits) == pytest.approx(expected, abs=1e-6)


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="two values"):
        mean_interval([1.0])
    with pytest.raises(ValueError, match="got something"):
        jain([0, 0], [50, 50])


def test_t_falls_to_the_normal_distribution_s() -> None:
    points = [t_95(number) for number in range(1, 40)]
    assert points == sorted(points, reverse=True)
    assert points[-1] == 1.960
