"""Object limiters of migration jobs: who has a token, from when on, and what comes back."""

from typing import Any

import msgspec

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.migration import PodMigrationJob
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, read_args
from seatrial.scheduler.descheduler.migration.evictions import ObjectLimits
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod


def limits(clock: SimClock, **namespace: Any) -> tuple[ObjectLimits, list[PodMigrationJob]]:
    """The limiter of a namespace, and jobs for three pods in it."""
    state = ClusterState()
    jobs = []
    for name in ("a", "b", "c"):
        state.set_pod(pod(name, "n1"))
        body = {"metadata": {"name": name, "uid": name}, "spec": {"podRef": {"namespace": "default", "name": name}}}
        jobs.append(msgspec.convert(body, PodMigrationJob))
    args = {"objectLimiters": {"namespace": {"duration": "100s", "maxMigrating": 1, **namespace}}}
    return ObjectLimits(state, read_args(MigrationControllerArgs, args), clock), jobs


def test_the_first_job_has_the_token_before_it_evicts() -> None:
    """A job that is asked about again keeps it, and one that ended before its eviction gives it to the next."""
    object_limits, (first, second, third) = limits(SimClock())
    message = "Waiting for objectLimiters.namespace: 1 evictions of namespace default in 100s"
    assert [object_limits.holds(job) for job in (first, second, first)] == ["", message, ""]

    object_limits.give_back(first.name)

    assert [object_limits.holds(job) for job in (second, third)] == ["", message]


def test_tokens_come_again_from_the_eviction_on() -> None:
    """The reservation has its place after 90 of 100 s: the next token comes 100 s after the eviction."""
    clock = SimClock()
    object_limits, (first, second, _) = limits(clock)
    assert object_limits.holds(first) == ""
    clock.advance(90)
    object_limits.count(first, pod("a", "n1"))
    clock.advance(99)
    assert object_limits.holds(second)
    object_limits.give_back(first.name)  # it ended, after its eviction
    assert object_limits.holds(second)
    clock.advance(1.1)
    assert object_limits.holds(second) == ""
