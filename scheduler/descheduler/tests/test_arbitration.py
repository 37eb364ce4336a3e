"""Arbitration: the worked examples of sorting and filtering (E8b to E8g)."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.migration import PASSED_ARBITRATION, PodMigrationJob
from seatrial.scheduler.descheduler.args import ArgsError, MigrationControllerArgs, read_args
from seatrial.scheduler.descheduler.migration.arbitration import FORBID, PASS, WAIT, Filters, sort_jobs
from seatrial.scheduler.descheduler.objects import WorkloadObject
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import node, pod


def job(name: str, of: str, *, phase: str = "", passed: bool = False, age: int = 0) -> PodMigrationJob:
    annotations = {PASSED_ARBITRATION: "true"} if passed else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": name,
                "annotations": annotations,
                "creationTimestamp": f"2026-01-01T00:00:{59 - age:02d}Z",
            },
            "spec": {"podRef": {"namespace": "default", "name": of}, "mode": "EvictDirectly"},
            "status": {"phase": phase},
        },
        PodMigrationJob,
    )


def ten_jobs(owners: dict[int, str]) -> tuple[ClusterState, list[PodMigrationJob]]:
    """Jobs 0 to 9 in their order of age; pods of equal rank, some of them owned by a `Job`."""
    state = ClusterState()
    jobs = []
    for number in range(10):
        owner = owners.get(number, "")
        reference = {"kind": "Job", "name": owner, "uid": owner, "controller": True} if owner else {}
        state.set_pod(pod(f"p{number}", "n1", owner=reference))
        jobs.append(job(f"{number}", f"p{number}", age=number))
        state.set_job(jobs[-1])
    return state, jobs


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param({4: "a", 8: "a"}, "0123485679", id="one-owner-of-two"),
        pytest.param({3: "a", 8: "a", 1: "b", 9: "b"}, "0192384567", id="two-owners-of-two"),
    ],
)
def test_jobs_of_one_owner_stand_together(owners: dict[int, str], want: str) -> None:
    state, jobs = ten_jobs(owners)
    assert "".join(migration.name for migration in sort_jobs(state, jobs)) == want


def test_of_equal_pods_the_newest_job_is_first() -> None:
    """RSV-R68: the names of the pods do not count."""
    state = ClusterState()
    jobs = [job(str(number), f"p{number}", age=9 - number) for number in range(3)]
    for number, migration in enumerate(jobs):
        state.set_pod(pod(f"p{number}", "n1"))
        state.set_job(migration)
    assert "".join(migration.name for migration in sort_jobs(state, jobs)) == "210"


def test_an_owner_that_is_migrating_goes_first() -> None:
    """E8d."""
    state, jobs = ten_jobs({4: "a", 8: "a"})
    state.set_pod(pod("p10", "n1", owner={"kind": "Job", "name": "a", "uid": "a", "controller": True}))
    state.set_job(job("10", "p10", phase="Running"))
    assert "".join(migration.name for migration in sort_jobs(state, jobs)) == "4801235679"


def workload(replicas: int, **args: Any) -> tuple[ClusterState, Filters]:
    """A ReplicaSet with its pods on n1."""
    state = ClusterState()
    state.set_workload(
        "ReplicaSet",
        msgspec.convert(
            {"metadata": {"name": "rs", "uid": "rs", "namespace": "default"}, "spec": {"replicas": replicas}},
            WorkloadObject,
        ),
    )
    for number in range(replicas):
        state.set_pod(pod(f"p{number}", "n1"))
    return state, Filters(state, read_args(MigrationControllerArgs, {"maxMigratingPerNode": 0, **args}))


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(None, PASS, id="no-other-job"),
        pytest.param("p1", WAIT, id="another-pod-of-the-workload"),
        pytest.param("stranger", PASS, id="another-workload"),
    ],
)
def test_one_migration_per_workload(other: str | None, want: str) -> None:
    """E8e: ten replicas, one may migrate."""
    state, filters = workload(10, maxMigratingPerWorkload=1, maxUnavailablePerWorkload=5)
    state.set_pod(pod("stranger", "n1", owner={"kind": "ReplicaSet", "name": "b", "uid": "b", "controller": True}))
    if other:
        state.set_job(job("other", other, phase="Running"))
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == want


def test_a_job_of_the_pod_itself_counts_for_no_limit() -> None:
    """E8e: it is another check that leaves a pod one open job."""
    state, filters = workload(10, maxMigratingPerWorkload=1, maxUnavailablePerWorkload=5, maxMigratingGlobally=1)
    state.set_job(job("other", "p0", phase="Running"))
    assert filters.limited(state.pods["p0"]) == ""
    assert filters.limited(state.pods["p1"]) == "maxMigratingGlobally allows 1 migrating pods"
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == FORBID


def test_a_workload_with_an_unavailable_pod_waits() -> None:
    """E8f."""
    state, filters = workload(10, maxUnavailablePerWorkload=1)
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == PASS
    down = state.pods["p1"]
    state.set_pod(msgspec.structs.replace(down, status=msgspec.structs.replace(down.status, conditions=())))
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == WAIT


@pytest.mark.parametrize(("replicas", "limit", "want"), [(1, 1, FORBID), (100, 100, FORBID), (100, 10, PASS)])
def test_a_workload_never_migrates_as_a_whole(replicas: int, limit: int, want: str) -> None:
    """E8g."""
    state, filters = workload(replicas, maxMigratingPerWorkload=limit, maxUnavailablePerWorkload=limit)
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == want


@pytest.mark.parametrize(("selector", "want"), [("", PASS), ("pool in (b, c)", PASS), ("pool=a", FORBID)])
def test_a_pod_fits_on_the_nodes_that_are_selected(selector: str, want: str) -> None:
    """nodeFit: the pod is on a node of pool a, and the only other node is of pool b."""
    state, filters = workload(10, nodeFit=True, nodeSelector=selector, maxUnavailablePerWorkload=2)
    state.set_node(node("n1", labels={"pool": "a"}))
    state.set_node(node("n2", labels={"pool": "b"}))
    assert filters.check(job("own", "p0"), state.pods["p0"])[0] == want


def test_empty_fields_have_their_defaults() -> None:
    """As in Koordinator's defaulting: "", [], {} and null."""
    values: dict[str, Any] = {
        "defaultJobMode": "",
        "evictionPolicy": "",
        "objectLimiters": {},
        "schedulerNames": [],
        "namespaces": None,
        "arbitrationArgs": {"enabled": True, "interval": None},
    }
    assert read_args(MigrationControllerArgs, values) == MigrationControllerArgs()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"maxMigratingGlobally": -1}, "maxMigratingGlobally should be greater or equal 0"),
        ({"maxConcurrentReconciles": 0}, "maxConcurrentReconciles: expected 1 or more, found 0"),
        ({"maxMigratingPerNamespace": -1}, "maxMigratingPerNamespace should be greater or equal 0"),
        ({"maxUnavailablePerWorkload": "1.5%"}, "maxUnavailablePerWorkload: expected a number of 0 and more"),
        ({"evictQPS": "0"}, "evictQPS must be greater than 0"),
        ({"evictQPS": "fast"}, "evictQPS: expected a number, found 'fast'"),
        ({"evictBurst": 0}, "evictBurst must be greater than 0"),
        ({"namespaces": {"include": ["a"], "exclude": ["b"]}}, "namespaces: only one of Include/Exclude"),
        ({"defaultJobMode": "Evict"}, "defaultJobMode: expected ReservationFirst or EvictDirectly, found 'Evict'"),
        ({"defaultJobTTL": "-1m"}, "defaultJobTTL: expected a duration"),
        ({"objectLimiters": {"node": {}}}, "objectLimiters: expected workload or namespace, found 'node'"),
        ({"objectLimiters": {"workload": {"burst": -1}}}, "workload.burst: expected 0 or more, found -1"),
        ({"arbitrationArgs": {"interval": "0s"}}, "arbitrationArgs.interval: expected more than 0"),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "labelSelector: key a: values set must be empty for exists and does not exist",
        ),
        ({"nodeSelector": "pool in a"}, "nodeSelector: found 'a', expected: '\\('"),
        ({"skipEvictionGates": ["All"]}, "unknown eviction gate 'All'"),
        (
            {"maxMigratingPerWorkload": "ten"},
            "expected a number of 0 and more or a percentage such as 10%, found 'ten'",
        ),
        ({"defaultJobTTL": "soon"}, "defaultJobTTL: expected a duration such as 5m or 500ms, found 'soon'"),
    ],
)
def test_bad_arguments_are_refused_in_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(MigrationControllerArgs, values)
