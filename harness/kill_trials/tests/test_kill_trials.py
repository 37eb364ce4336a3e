"""500 kills in virtual time, in 20 clusters: of a leader with a standby, and of a scheduler that is started anew."""

from typing import Any

import pytest

from seatrial.harness.clusters.virtual import VirtualCluster
from seatrial.harness.kill_trials.trial import DESCHEDULER, Outcome, Restarted, run_trial
from seatrial.harness.subject.descheduler import InProcessDescheduler
from seatrial.harness.subject.inprocess import InProcess, StandbyPair

KILLS = 25  # of the scheduler and, one in five, of the descheduler


def with_a_standby(seed: int, kills: int = KILLS) -> Outcome:
    """A trial in which a standby takes over."""
    cluster = VirtualCluster(seed=seed)
    descheduler = InProcessDescheduler(cluster, DESCHEDULER)
    pair = StandbyPair(cluster, seed=seed)
    return run_trial(cluster, pair, Restarted(descheduler, lambda: descheduler.link), seed=seed, kills=kills)


def started_anew(seed: int, kills: int = KILLS) -> Outcome:
    """A trial in which the scheduler is started anew."""
    cluster = VirtualCluster(seed=seed)
    descheduler = InProcessDescheduler(cluster, DESCHEDULER)
    with InProcess(cluster, seed=seed) as scheduler:
        subject = Restarted(scheduler, lambda: scheduler.link)
        return run_trial(cluster, subject, Restarted(descheduler, lambda: descheduler.link), seed=seed, kills=kills)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_standby_takes_over(seed: int) -> None:
    outcome = with_a_standby(seed)
    assert outcome.wrong == []
    assert (outcome.kills, outcome.bound > 10) == (KILLS, True)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_scheduler_is_started_anew(seed: int) -> None:
    outcome = started_anew(seed)
    assert outcome.wrong == []
    assert (outcome.kills, outcome.bound > 10) == (KILLS, True)


def test_the_descheduler_stays_after_its_first_round() -> None:
    assert DESCHEDULER["deschedulingInterval"] != "0s"


def test_a_device_that_is_given_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that takes every device for free."""
    monkeypatch.setattr("seatrial.scheduler.plugins.dynamicresources.ledger.Ledger.has", lambda *_: False)
    outcome = started_anew(1, kills=5)
    assert [text for text in outcome.wrong if "is in the claims" in text]


def test_a_seed_decides_everything() -> None:
    first, second = (with_a_standby(3, kills=5) for _ in range(2))
    assert first == second


def test_lost_answers_that_count_as_failures_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that takes a binding whose answer was lost for a failed one gives the pod's place away."""

    def give_back(binder: Any, decision: Any, why: str) -> None:
        binder._unbound(decision, why, retry=True)

    monkeypatch.setattr("seatrial.scheduler.shell.binding.Binder._look", give_back)
    assert any(with_a_standby(seed).wrong for seed in range(1, 6))
    assert any(started_anew(seed).wrong for seed in range(1, 6))
