"""`bench churn`: pods come and go, memory is read ten times, and a leak is told."""

import pytest

from seatrial.harness.bench import churn


def test_readings_and_pods_at_a_time() -> None:
    figures = churn.bench_churn(10, 400, lambda _: None, seed=1)
    assert figures["alive"] == 40
    assert len(figures["mib"]) == len(figures["objects"]) == 10


def test_a_leak_is_not_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that keeps a kibibyte of each placement, in a process that had none before."""
    sizes = iter(range(0, 10 * 40 * 1024 + 1, 40 * 1024))
    next(sizes)
    monkeypatch.setattr(churn, "_resident", lambda: 1_000_000 + next(sizes))
    figures = churn.bench_churn(10, 400, lambda _: None)
    assert figures["bytes_per_placement"] == 1024
    assert not figures["within_budget"]


def test_pods_without_room_leave_at_once() -> None:
    """One node and four pods at a time: pods of many cards find no room, and none of them stays."""
    figures = churn.bench_churn(1, 400, lambda _: None)
    assert 0 < figures["unplaced"] < 400
    assert figures["alive"] == 4
