"""The reservation of a migration."""

from seatrial.fixtures.trial import Trial
from seatrial.suites.descheduling.workloads import job


def job_reservation(trial: Trial, name: str) -> str:
    """The name of the job's reservation, once there is one."""
    assert trial.reaches(lambda: bool(job(trial, name).reservation_name), within=30), job(trial, name)
    return job(trial, name).reservation_name
