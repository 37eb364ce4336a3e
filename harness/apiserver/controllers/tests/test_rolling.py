"""The arithmetic of rolling updates."""

import pytest

from seatrial.harness.apiserver.controllers.rolling import (
    Bounds,
    SetSize,
    bounds_of,
    next_for_new,
    next_for_old,
    proportional,
)


def sets(*rows: tuple[int, int]) -> list[SetSize]:
    """(replicas, available) of sets `s0`, `s1`, …, the first the oldest."""
    return [
        SetSize(f"s{number}", replicas, available, f"2026-01-01T00:00:{number:02}Z")
        for number, (replicas, available) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "most", "fewest"),
    [
        pytest.param(4, "25%", "25%", 5, 3, id="quarters"),
        pytest.param(10, "25%", "25%", 13, 8, id="surge-rounds-up-and-unavailable-down"),
        pytest.param(1, "0%", "10%", 1, 0, id="both-nought-leaves-room-for-one"),
        pytest.param(3, 0, 5, 3, 0, id="no-more-down-than-there-are"),
        pytest.param(0, 1, 1, 0, 0, id="of-nothing-nothing"),
    ],
)
def test_bounds(replicas: int, surge: int | str, unavailable: int | str, most: int, fewest: int) -> None:
    bounds = bounds_of(replicas, surge, unavailable, rolling=True)
    assert (bounds.max_total, bounds.min_available) == (most, fewest)


@pytest.mark.parametrize(
    ("new", "old", "bounds", "want"),
    [
        pytest.param(0, 10, Bounds(10, 3, 2), 3, id="as-far-as-the-surge-allows"),
        pytest.param(3, 8, Bounds(10, 3, 2), 5, id="as-old-ones-make-room"),
        pytest.param(3, 10, Bounds(10, 3, 2), 3, id="no-room"),
        pytest.param(5, 0, Bounds(3, 1, 0), 3, id="scaled-down-meanwhile"),
        pytest.param(8, 0, Bounds(10, 3, 2), 10, id="not-beyond-the-whole"),
    ],
)
def test_the_new_set_grows(new: int, old: int, bounds: Bounds, want: int) -> None:
    all_ = sets((old, old), (new, 0))
    assert next_for_new(all_[1], all_, bounds) == want


@pytest.mark.parametrize(
    ("new", "old", "bounds", "want"),
    [
        pytest.param((3, 0), [(10, 10)], Bounds(10, 3, 2), {"s1": 8}, id="down-to-what-must-stay-available"),
        pytest.param((3, 3), [(10, 10)], Bounds(10, 3, 2), {"s1": 5}, id="new-ones-count-once-they-are-available"),
        pytest.param((3, 0), [(8, 8)], Bounds(10, 3, 2), {}, id="nothing-to-spare"),
        pytest.param((5, 0), [(10, 6)], Bounds(10, 5, 4), {"s1": 6}, id="those-that-serve-no-traffic-go-first"),
        pytest.param((3, 3), [(4, 4), (6, 6)], Bounds(10, 3, 2), {"s1": 0, "s2": 5}, id="the-oldest-set-first"),
    ],
)
def test_old_sets_shrink(
    new: tuple[int, int], old: list[tuple[int, int]], bounds: Bounds, want: dict[str, int]
) -> None:
    first, *rest = sets(new, *old)
    assert next_for_old(first, rest, bounds) == want


@pytest.mark.parametrize(
    ("rows", "bounds", "want"),
    [
        pytest.param([8, 5], Bounds(15, 3, 2), {"s0": 11, "s1": 7}, id="up-by-shares"),
        pytest.param([8, 5], Bounds(5, 3, 2), {"s0": 5, "s1": 3}, id="down-by-shares"),
        pytest.param([5, 5], Bounds(11, 0, 1), {"s0": 5, "s1": 6}, id="of-equal-ones-the-newest-grows"),
        pytest.param([5, 5], Bounds(9, 0, 1), {"s0": 4, "s1": 5}, id="of-equal-ones-the-oldest-shrinks"),
        pytest.param([3, 2], Bounds(0, 0, 0), {"s0": 0, "s1": 0}, id="to-nothing"),
    ],
)
def test_proportional_scaling(rows: list[int], bounds: Bounds, want: dict[str, int]) -> None:
    total = sum(rows)
    active = [
        SetSize(size.name, size.replicas, size.available, size.created, max_replicas=total)
        for size in sets(*((replicas, replicas) for replicas in rows))
    ]
    assert proportional(active, bounds) == want
    assert sum(want.values()) == (bounds.max_total if bounds.replicas else 0)
