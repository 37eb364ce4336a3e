"""Kills in virtual time, of a leader with a standby and of a scheduler that is started anew: SEATRIAL_KILLED clusters.

And random steps with devices in both vocabularies: SEATRIAL_DEVICE_STEPS of them.
"""

import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.clusters.virtual import VirtualCluster
from seatrial.harness.kill_trials.device_load import DeviceLoad
from seatrial.harness.kill_trials.trial import DESCHEDULER, Outcome, Restarted, run_trial
from seatrial.harness.subject.descheduler import InProcessDescheduler
from seatrial.harness.subject.inprocess import InProcess, StandbyPair

KILLS = 25  # of the scheduler and, one in five, of the descheduler
CLUSTERS = range(1, 1 + int(os.environ.get("SEATRIAL_KILLED", "6")) // 2)
DEVICE_STEPS = int(os.environ.get("SEATRIAL_DEVICE_STEPS", "200"))


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


@pytest.mark.parametrize("seed", CLUSTERS)
def test_a_standby_takes_over(seed: int) -> None:
    outcome = with_a_standby(seed)
    assert outcome.wrong == []
    assert (outcome.kills, outcome.bound > 10) == (KILLS, True)


@pytest.mark.parametrize("seed", CLUSTERS)
def test_a_scheduler_is_started_anew(seed: int) -> None:
    outcome = started_anew(seed)
    assert outcome.wrong == []
    assert (outcome.kills, outcome.bound > 10) == (KILLS, True)


PREEMPTING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{pluginConfig: [{name: DynamicResources, args: {enablePreemption: true}}]}]
"""


def with_devices(seed: int, kills: int, config: Path | None = None) -> Outcome:
    """A trial under a load of devices alone; every other scheduler has a standby, the others have the configuration."""
    cluster = VirtualCluster(seed=seed)
    if seed % 2:
        return run_trial(cluster, StandbyPair(cluster, seed=seed), None, seed=seed, kills=kills, load_kind=DeviceLoad)
    with InProcess(cluster, seed=seed, config=config) as scheduler:
        subject = Restarted(scheduler, lambda: scheduler.link)
        return run_trial(cluster, subject, None, seed=seed, kills=kills, load_kind=DeviceLoad)


def test_no_device_is_given_twice_in_random_steps(tmp_path: Path) -> None:
    """Annotations and claims on one fleet, whose nodes and slices come and go; some schedulers preempt for devices."""
    config, steps = tmp_path / "preempting.yaml", 0
    config.write_text(PREEMPTING)
    for seed in count(1):
        outcome = with_devices(seed, 2 * KILLS, config)
        assert outcome.wrong == [], f"seed {seed}"
        steps += outcome.steps
        if steps >= DEVICE_STEPS:
            break


@pytest.mark.parametrize(
    ("fault", "says"), [("ledger.Ledger.has", "is in the claims"), ("allocator.Search._has_counters", "/card/memory")]
)
def test_what_random_steps_find(fault: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that takes every device for free, or that does not count partitions."""
    takes_all = fault.endswith("_has_counters")
    monkeypatch.setattr(f"seatrial.scheduler.plugins.dynamicresources.{fault}", lambda *_: takes_all)
    assert [text for text in with_devices(1, kills=10).wrong if says in text]


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
    assert any(with_a_standby(seed).wrong for seed in range(5, 8))
    assert any(started_anew(seed).wrong for seed in range(5, 8))
