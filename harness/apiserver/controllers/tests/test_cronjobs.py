"""CronJobs in virtual time."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import owner, running


def cron_job(schedule: str, script: str = "sleep 10", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "img", "command": ["sh", "-c", script]}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    template = {"metadata": {"labels": {"from": "cron"}}, "spec": {"template": pod, "backoffLimit": 0}}
    return {"metadata": {"name": "c"}, "spec": {"schedule": schedule, "jobTemplate": template, **spec}}


def test_a_job_at_each_scheduled_time_and_a_history_of_three() -> None:
    with running() as bench:
        made = bench.create("cronjobs", cron_job("*/5 * * * *"))
        bench.settle(290)
        assert bench.all("jobs") == []
        bench.settle(15)
        (job,) = bench.all("jobs")
        assert job["metadata"]["name"] == f"c-{int(bench.clock.now()) // 60}"
        assert job["metadata"]["labels"]["from"] == "cron"
        assert owner(job)["uid"] == made["metadata"]["uid"]
        assert owner(job)["blockOwnerDeletion"] is True
        status = bench.status("cronjobs", "c")
        assert status["lastScheduleTime"] == "2026-01-01T00:05:00Z"
        assert [reference["name"] for reference in status["active"]] == [job["metadata"]["name"]]

        bench.settle(5 * 60 * 5 + 15)
        assert len(bench.all("jobs")) == 3
        status = bench.status("cronjobs", "c")
        assert "active" not in status
        assert status["lastSuccessfulTime"].startswith("2026-01-01T00:30:1")


@pytest.mark.parametrize(
    ("policy", "running_jobs", "in_all"),
    [
        pytest.param("Allow", 3, 3, id="side-by-side"),
        pytest.param("Forbid", 1, 1, id="only-one"),
        pytest.param("Replace", 1, 1, id="the-newest"),
    ],
)
def test_concurrency_policies(policy: str, running_jobs: int, in_all: int) -> None:
    with running() as bench:
        bench.create("cronjobs", cron_job("* * * * *", "sleep 10000", concurrencyPolicy=policy))
        bench.settle(185)
        jobs = bench.all("jobs")
        assert len(jobs) == in_all
        assert len(bench.status("cronjobs", "c")["active"]) == running_jobs
        newest = max(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] for job in jobs)
        assert newest == ("2026-01-01T00:01:00Z" if policy == "Forbid" else "2026-01-01T00:03:00Z")


def test_after_suspension_only_the_latest_missed_job_starts() -> None:
    with running() as bench:
        bench.create("cronjobs", cron_job("* * * * *", suspend=True))
        bench.settle(305)
        assert bench.all("jobs") == []
        bench.patch("cronjobs", "c", {"spec": {"suspend": False}})
        bench.settle(1)
        (job,) = bench.all("jobs")
        assert (
            job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2026-01-01T00:05:00Z"
        )


def test_no_job_starts_after_the_starting_deadline() -> None:
    with running() as bench:
        bench.create("cronjobs", cron_job("0 * * * *", suspend=True, startingDeadlineSeconds=60))
        bench.settle(3600 + 120)
        bench.patch("cronjobs", "c", {"spec": {"suspend": False}})
        bench.settle(60)
        assert bench.all("jobs") == []


def test_failed_jobs_have_their_own_history_limit() -> None:
    with running() as bench:
        bench.create("cronjobs", cron_job("* * * * *", "exit 1"))
        bench.settle(200)
        assert len(bench.all("jobs")) == 1


def test_a_schedule_without_any_time_is_recorded() -> None:
    with running() as bench:
        bench.create("cronjobs", cron_job("59 23 31 2 *"))
        bench.settle(1)
        (message,) = bench.events("InvalidSchedule")
        assert message.startswith("invalid schedule: 59 23 31 2 * : time difference between two schedules")


def test_idle_between_scheduled_times() -> None:
    """There is one timer, however far away the next start is."""
    with running(nodes=0) as bench:
        bench.settle(20)  # our scheduler creates its special quotas meanwhile
        bench.create("cronjobs", cron_job("0 0 1 1 *"))
        bench.settle(1)
        version = bench.cluster.server.objects.store.version
        bench.settle(86_400)
        assert bench.cluster.server.objects.store.version == version
