"""Jobs in virtual time: completions, indexes, failures and their limits, suspension, deletion."""

from itertools import pairwise
from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, condition, owner, running

FINALIZER = "batch.kubernetes.io/job-tracking"


def job(script: str, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    """A Job `j` whose pods run a shell script that the simulated runtime understands."""
    container = {"name": "c", "image": "img", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container], "restartPolicy": policy}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


def ended(bench: Bench) -> str:
    """Complete, Failed, or None while unfinished."""
    job = bench.get("jobs", "j")
    return next((kind for kind in ("Complete", "Failed") if condition(job, kind).get("status") == "True"), "")


def indexes(bench: Bench) -> list[str]:
    return sorted(
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in bench.all("pods")
    )


def test_it_runs_to_completion_in_virtual_time() -> None:
    with running() as bench:
        made = bench.create("jobs", job("sleep 120", completions=3, parallelism=2))
        begin = bench.clock.monotonic()
        bench.wait(lambda: bench.status("jobs", "j").get("active") == 2)
        bench.wait(lambda: ended(bench) == "Complete", within=600)

        assert 240 <= bench.clock.monotonic() - begin < 245  # two side by side, then the third
        status = bench.status("jobs", "j")
        assert status["succeeded"] == 3
        assert "active" not in status
        assert status["completionTime"] > status["startTime"]
        assert condition(bench.get("jobs", "j"), "Complete")["reason"] == "CompletionsReached"
        for pod in bench.all("pods"):
            assert owner(pod)["uid"] == made["metadata"]["uid"]
            assert owner(pod)["blockOwnerDeletion"] is True
            assert FINALIZER not in pod["metadata"].get("finalizers", [])
            assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
        assert bench.events("Completed") == ["Job completed"]


def test_a_deleted_pod_is_kept_until_it_is_counted() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 60"))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        (pod,) = bench.all("pods")
        assert FINALIZER in pod["metadata"]["finalizers"]
        bench.delete("pods", pod["metadata"]["name"])
        bench.wait(lambda: bench.status("jobs", "j").get("failed") == 1)
        bench.wait(lambda: ended(bench) == "Complete", within=200)
        assert len(bench.all("pods")) == 1  # the deleted one is really gone
        assert bench.status("jobs", "j")["succeeded"] == 1


def test_a_work_queue_completes_after_the_first_success_when_all_pods_ended() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 30", parallelism=3))
        bench.wait(lambda: ended(bench) == "Complete", within=60)
        assert bench.status("jobs", "j")["succeeded"] == 3


def test_an_indexed_job_needs_a_name_for_the_host_of_its_last_pod() -> None:
    with running(scheduler=False) as bench:
        body = job("sleep 10", completions=11, parallelism=1, completionMode="Indexed")
        for name, code in (("a.b", 422), ("j" * 61, 422), ("j" * 60, 201)):
            made = bench.create("jobs", body | {"metadata": {"name": name}}, code=code)
            assert code == 201 or f"will not able to create pod with invalid DNS label: {name}-10" in made["message"]


def test_indexed_pods_get_their_index() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 10", completions=4, parallelism=4, completionMode="Indexed"))
        bench.wait(lambda: len(bench.all("pods")) == 4)
        assert indexes(bench) == ["0", "1", "2", "3"]
        pod = next(candidate for candidate in bench.all("pods") if candidate["spec"]["hostname"] == "j-2")
        assert pod["metadata"]["name"].startswith("j-2-")
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "2"
        (env,) = pod["spec"]["containers"][0]["env"]
        assert env["name"] == "JOB_COMPLETION_INDEX"
        bench.wait(lambda: ended(bench) == "Complete")
        assert bench.status("jobs", "j")["completedIndexes"] == "0-3"


def test_failures_are_retried_with_backoff_up_to_the_limit() -> None:
    with running() as bench:
        bench.create("jobs", job("exit 1", backoffLimit=2))
        births: list[float] = []

        def done() -> bool:
            if len(bench.all("pods")) > len(births):
                births.append(bench.clock.monotonic())
            return ended(bench) == "Failed"

        bench.wait(done, within=120)
        gaps = [later - earlier for earlier, later in pairwise(births)]
        assert [round(gap) for gap in gaps] == [10, 20]
        failed = condition(bench.get("jobs", "j"), "Failed")
        assert (failed["reason"], failed["message"]) == (
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
        assert bench.status("jobs", "j")["failed"] == 3
        assert condition(bench.get("jobs", "j"), "FailureTarget")["status"] == "True"


def test_restarts_in_place_count_against_the_limit() -> None:
    with running() as bench:
        bench.create("jobs", job("exit 1", "OnFailure", backoffLimit=2))
        bench.wait(lambda: ended(bench) == "Failed", within=300)
        assert condition(bench.get("jobs", "j"), "Failed")["reason"] == "BackoffLimitExceeded"


def test_the_deadline_stops_running_pods() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 1000", activeDeadlineSeconds=60))
        bench.wait(lambda: ended(bench) == "Failed", within=200)
        assert 60 <= bench.clock.monotonic() < 100
        assert condition(bench.get("jobs", "j"), "Failed")["reason"] == "DeadlineExceeded"
        assert not [pod for pod in bench.all("pods") if pod["status"]["phase"] == "Running"]


@pytest.mark.parametrize(
    ("rules", "script", "reason", "failed"),
    [
        pytest.param(
            [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}],
            "exit 42",
            "PodFailurePolicy",
            1,
            id="an-exit-code-fails-the-job-at-once",
        ),
        pytest.param(
            [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}}],
            "exit 42",
            "BackoffLimitExceeded",
            2,
            id="another-exit-code-counts",
        ),
    ],
)
def test_a_failure_policy_by_exit_code(rules: list[Any], script: str, reason: str, failed: int) -> None:
    with running() as bench:
        bench.create("jobs", job(script, backoffLimit=1, podFailurePolicy={"rules": rules}))
        bench.wait(lambda: ended(bench) == "Failed", within=120)
        results = condition(bench.get("jobs", "j"), "Failed")
        assert results["reason"] == reason
        assert bench.status("jobs", "j")["failed"] == failed
        if reason == "PodFailurePolicy":
            name = bench.names("pods")[0]
            assert results["message"] == (
                f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
            )


def test_a_failure_policy_can_ignore_disruptions() -> None:
    with running() as bench:
        rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        bench.create("jobs", job("sleep 100", backoffLimit=0, podFailurePolicy={"rules": rules}))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        name = bench.names("pods")[0]
        conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
        bench.patch("pods", name, {"status": {"phase": "Failed", "conditions": conditions}}, "status")
        bench.wait(lambda: ended(bench) == "Complete", within=300)
        assert bench.status("jobs", "j").get("failed", 0) == 0


def test_each_index_has_its_own_limit() -> None:
    with running() as bench:
        body = job("exit 1", completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1)
        bench.create("jobs", body)
        bench.wait(lambda: ended(bench) == "Failed", within=200)
        status = bench.status("jobs", "j")
        assert condition(bench.get("jobs", "j"), "Failed")["reason"] == "FailedIndexes"
        assert status["failedIndexes"] == "0-1"
        assert status["failed"] == 4


def test_too_many_failed_indexes_end_the_job() -> None:
    with running() as bench:
        body = job(
            "exit 1", completions=5, parallelism=1, completionMode="Indexed", backoffLimitPerIndex=0, maxFailedIndexes=1
        )
        bench.create("jobs", body)
        bench.wait(lambda: ended(bench) == "Failed", within=200)
        assert condition(bench.get("jobs", "j"), "Failed")["reason"] == "MaxFailedIndexesExceeded"
        assert bench.status("jobs", "j")["failedIndexes"] == "0-1"


def test_a_success_policy_ends_it_early() -> None:
    with running() as bench:
        body = job(
            "sleep 10",
            completions=4,
            parallelism=1,
            completionMode="Indexed",
            successPolicy={"rules": [{"succeededIndexes": "0-1"}]},
        )
        bench.create("jobs", body)
        bench.wait(lambda: ended(bench) == "Complete", within=60)
        assert condition(bench.get("jobs", "j"), "Complete")["reason"] == "SuccessPolicy"
        assert bench.status("jobs", "j")["completedIndexes"] == "0-1"


def test_a_suspended_job_has_no_pods_and_its_deadline_is_paused() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 50", suspend=True, activeDeadlineSeconds=100))
        bench.settle(200)
        assert bench.all("pods") == []
        assert "startTime" not in bench.status("jobs", "j")
        assert condition(bench.get("jobs", "j"), "Suspended")["status"] == "True"

        bench.patch("jobs", "j", {"spec": {"suspend": False}})
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        assert condition(bench.get("jobs", "j"), "Suspended")["status"] == "False"
        bench.patch("jobs", "j", {"spec": {"suspend": True}})
        bench.wait(lambda: bench.all("pods") == [], within=60)
        assert bench.status("jobs", "j").get("failed", 0) == 0  # to be stopped is no failure
        bench.patch("jobs", "j", {"spec": {"suspend": False}})
        bench.wait(lambda: ended(bench) == "Complete", within=120)


def test_a_finished_job_is_deleted_with_its_pods_after_its_ttl() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 5", ttlSecondsAfterFinished=30))
        bench.wait(lambda: ended(bench) == "Complete")
        bench.settle(25)
        assert bench.names("jobs") == ["j"]
        bench.settle(10)
        assert bench.names("jobs") == []
        assert bench.names("pods") == []


@pytest.mark.parametrize(
    ("how", "left"),
    [
        pytest.param("Background", 0, id="background"),
        pytest.param("Foreground", 0, id="foreground"),
        pytest.param("Orphan", 1, id="orphan"),
    ],
)
def test_deleting_a_job_releases_its_pods(how: str, left: int) -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 1000"))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        bench.delete("jobs", "j", f"?propagationPolicy={how}")
        bench.settle(60)
        assert bench.names("jobs") == []
        pods = bench.all("pods")
        assert len(pods) == left
        assert not any(FINALIZER in pod["metadata"].get("finalizers", []) for pod in pods)


def test_changed_parallelism_creates_and_deletes_pods() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 500", parallelism=4, completions=8))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 4)
        bench.patch("jobs", "j", {"spec": {"parallelism": 1}})
        bench.wait(lambda: len(bench.all("pods")) == 1, within=60)
        bench.patch("jobs", "j", {"spec": {"parallelism": 3}})
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 3)
        assert bench.status("jobs", "j").get("failed", 0) == 0


def test_a_job_managed_by_another_controller_is_ignored() -> None:
    with running() as bench:
        bench.create("jobs", job("sleep 5", managedBy="example.com/queue"))
        bench.settle(10)
        assert bench.all("pods") == []
        assert bench.status("jobs", "j") == {}


def test_a_policy_can_ignore_the_disruption_of_an_evicted_pod() -> None:
    with running() as bench:
        rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        bench.create("jobs", job("sleep 100", backoffLimit=0, podFailurePolicy={"rules": rules}))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        name = bench.names("pods")[0]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        response = bench.call("POST", bench.path("pods", name, "eviction"), eviction)
        assert response.code == 201, response.body
        results = condition(bench.get("pods", name), "DisruptionTarget")
        assert results["reason"] == "EvictionByEvictionAPI"
        bench.wait(lambda: ended(bench) == "Complete", within=300)
        assert bench.status("jobs", "j").get("failed", 0) == 0


def test_pods_of_a_lost_node_are_recreated_elsewhere() -> None:
    with running(nodes=2) as bench:
        bench.create("jobs", job("sleep 1000"))
        bench.wait(lambda: bench.status("jobs", "j").get("ready") == 1)
        (pod,) = bench.all("pods")
        bench.cluster.inject({"node": pod["spec"]["nodeName"], "verb": "frozen"})
        bench.wait(lambda: bench.status("jobs", "j").get("failed") == 1, within=500)
        reason = condition(bench.get("pods", pod["metadata"]["name"]), "DisruptionTarget")["reason"]
        assert reason == "DeletionByTaintManager"
        bench.wait(lambda: condition(bench.get("jobs", "j"), "SuccessCriteriaMet"), within=1100)
        bench.settle(60)
        assert ended(bench) == ""  # no kubelet has reported yet that the lost pod has ended
        bench.delete("nodes", pod["spec"]["nodeName"])
        bench.wait(lambda: ended(bench) == "Complete", within=120)
