"""Arguments of strategies that evict directly, and where pods are afterwards."""

from typing import Any

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.core import Pod
from seatrial.suites.descheduling.workloads import ALL_AT_ONCE, jobs

DIRECTLY = {**ALL_AT_ONCE, "defaultJobMode": "EvictDirectly"}


ONE_ROUND: dict[str, Any] = {"deschedulingInterval": "1h"}


def path_of(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def moved(trial: Trial, count: int) -> list[str]:
    """The names of the pods that have migration jobs, once there are this many and no more come."""
    assert trial.reaches(lambda: len(jobs(trial)) >= count, within=30), trial.timeline()
    trial.pass_time(3)
    return sorted(job.spec.pod_ref.name for job in jobs(trial))
