"""Limits of migrations: of one workload, of a namespace, of the cluster, and disruption budgets."""

from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, pod
from seatrial.scheduler.api.migration import JOBS_PATH
from seatrial.suites.descheduling.migrations import job_reservation
from seatrial.suites.descheduling.workloads import (
    OFF,
    cordon,
    deployment,
    ended,
    job,
    jobs,
    migrate,
    running,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("MIG-3.object-limiter", "MIG-1.reservation-first")
@pytest.mark.case("MG-077", severity="critical", source="v1.6: ObjectLimiter; spec RSV-R56, RSV-R64")
@pytest.mark.long(seconds=20)
def test_a_job_that_a_limiter_holds_makes_no_reservation(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Two jobs of one workload that gets one eviction in five minutes: the second would make a reservation which the
    new pod of the first could take. It makes none, and says which limiter it waits for; the first succeeds."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    names = sorted(pod.metadata.name for pod in wait_running(trial, "web", 4))[:2]
    cordon(trial, "n2", on=False)
    start_descheduler(
        {},
        migration={
            "objectLimiters": {"workload": {"duration": "5m", "maxMigrating": 1}},
            "maxMigratingPerWorkload": 2,
            "maxUnavailablePerWorkload": 3,
        },
    )

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, ttl="4m")

    def phases() -> list[str]:
        return sorted(one.status.phase for one in jobs(trial))

    assert trial.reaches(lambda: phases() == ["Running", "Succeeded"], within=60), [job.status for job in jobs(trial)]
    (held,) = (one for one in jobs(trial) if one.running)
    assert not held.reservation_name
    assert "objectLimiters.workload: 1 evictions of Deployment web in 5m" in held.status.message
    messages = [event.message for event in trial.events(held.name, namespace="default")]
    assert held.status.message in messages


@pytest.mark.feature("MIG-3.object-limiter")
@pytest.mark.case("MG-078", severity="normal", source="spec RSV-R70")
@pytest.mark.long(seconds=20)
def test_a_job_that_evicts_nothing_leaves_its_place_in_the_limiter(
    trial: Trial, start_descheduler: StartDescheduler
) -> None:
    """Of two jobs of one workload the first finds no other node and is deleted: the second evicts at once, though the
    limiter allows one eviction in five minutes."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    names = sorted(pod.metadata.name for pod in wait_running(trial, "web", 4))[:2]
    start_descheduler(
        {},
        migration={
            "objectLimiters": {"workload": {"duration": "5m", "maxMigrating": 1}},
            "maxMigratingPerWorkload": 2,
            "maxUnavailablePerWorkload": 3,
        },
    )
    migrate(trial, "move-0", names[0])
    job_reservation(trial, "move-0")
    migrate(trial, "move-1", names[1], mode="EvictDirectly")
    assert not trial.wait(lambda: not job(trial, "move-1").open, within=10)

    assert trial.call("DELETE", f"{JOBS_PATH}/move-0").ok

    done = ended(trial, "move-1", within=20).status
    assert (done.phase, done.status, done.reason) == ("Succeeded", "Complete", ""), done


@pytest.mark.feature("MIG-1.budgets")
@pytest.mark.case("MG-006", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_budget_holds_an_eviction_back(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A PodDisruptionBudget refuses the eviction: the pod stays, the job has the reason; then the budget allows it."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler({})

    migrate(trial, "move", name, mode="EvictDirectly")

    def refused() -> bool:
        condition = job(trial, "move").status.condition("Eviction")
        return condition is not None and condition.reason == "FailedEvict" and "budget" in condition.message

    assert trial.reaches(refused, within=30), job(trial, "move").status
    assert not trial.pod(name).deleting
    path = f"/apis/policy/v1/namespaces/{trial.name}/poddisruptionbudgets/keep"
    trial.call("PATCH", path, {"spec": {"minAvailable": 2}})
    assert ended(trial, "move").status.phase == "Succeeded"


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-020", severity="critical")
@pytest.mark.long(seconds=5)
def test_one_pod_of_a_workload_at_a_time(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Six jobs for a workload that may lose one pod: never more than one pod is missing, and all jobs succeed."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 6, like=pod("x").request(cpu=1))
    names = [pod.metadata.name for pod in wait_running(trial, "web", 6)]
    cordon(trial, "n2", on=False)
    start_descheduler(
        {}, migration={"maxMigratingPerWorkload": 1, "maxUnavailablePerWorkload": 1, "objectLimiters": OFF}
    )
    fewest = 6

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def all_done() -> bool:
        nonlocal fewest
        alive = [pod for pod in trial.pods() if pod.status.phase == "Running" and not pod.deleting]
        fewest = min(fewest, len(alive))
        return all(not job.open for job in jobs(trial))

    assert trial.reaches(all_done, within=300), [job.status for job in jobs(trial)]
    assert {job.status.phase for job in jobs(trial)} == {"Succeeded"}
    assert fewest == 5


@pytest.mark.feature("MIG-3.global-limit")
@pytest.mark.case("MG-030", severity="critical")
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({"maxMigratingGlobally": 1}, 1, id="globally", marks=pytest.mark.long(20)),
        pytest.param(
            {"maxMigratingPerNamespace": 2, "maxMigratingPerNode": 3}, 2, id="per-namespace", marks=pytest.mark.long(15)
        ),
        pytest.param({"maxMigratingPerNode": 3}, 3, id="per-node"),
        pytest.param({}, 2, id="two-per-node-by-default"),
        pytest.param({"skipEvictionGates": ["MaxMigratingPerNode"]}, 4, id="per-node-is-skipped"),
    ],
)
def test_only_so_many_pods_migrate(
    trial: Trial, start_descheduler: StartDescheduler, limits: dict[str, Any], most: int
) -> None:
    """Four jobs for pods of four workloads on one node, with a limit: never more of them run at once, and all end."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    for number in range(4):
        deployment(trial, f"web-{number}", 2, like=pod("x").request(cpu=1))
    names = [wait_running(trial, f"web-{number}", 2)[0].metadata.name for number in range(4)]
    cordon(trial, "n2", on=False)
    free = {"skipCheckExpectedReplicas": True, "maxUnavailablePerWorkload": 2, "maxMigratingPerWorkload": 2}
    start_descheduler({}, migration={**free, **limits})
    seen = 0

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, ttl="10m")

    def all_done() -> bool:
        nonlocal seen
        here = {(pod.metadata.name, pod.metadata.uid) for pod in trial.pods()}
        counted = [
            job
            for job in jobs(trial)
            if job.running
            and (
                (limits and "PerNode" not in str(limits))
                or "PerNamespace" in str(limits)
                or (job.spec.pod_ref.name, job.spec.pod_ref.uid) in here
            )
        ]
        seen = max(seen, len(counted))
        return all(not job.open for job in jobs(trial))

    assert trial.reaches(all_done, within=300), [job.status for job in jobs(trial)]
    assert {job.status.phase for job in jobs(trial)} == {"Succeeded"}
    assert seen == most


@pytest.mark.feature("MIG-3.object-limiter", "MIG-3.namespace-rate")
@pytest.mark.case("MG-031", severity="critical")
@pytest.mark.long(130)
@pytest.mark.parametrize("limited", ["workload", "namespace"])
def test_evictions_of_one_object_are_spread_in_time(
    trial: Trial, start_descheduler: StartDescheduler, limited: str
) -> None:
    """ObjectLimiter of one eviction a minute: of two jobs for one workload the second is evicted a minute later."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 6, like=pod("x").request(cpu=1))
    names = [pod.metadata.name for pod in wait_running(trial, "web", 6)[:4]]
    cordon(trial, "n2", on=False)
    limits = {limited: {"duration": "60s", "maxMigrating": 1}}
    start_descheduler(
        {}, migration={"objectLimiters": limits, "maxMigratingPerWorkload": 3, "maxUnavailablePerWorkload": 3}
    )
    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def gone() -> int:
        return sum(trial.find(name) is None for name in names)

    assert trial.reaches(lambda: gone() == 1, within=45)
    assert not trial.wait(lambda: gone() == 2, within=45)
    assert trial.reaches(lambda: gone() == 2, within=40)


@pytest.mark.feature("MIG-3.object-limiter")
@pytest.mark.case("MG-318", severity="normal", source="spec RSV-R70: burst = burst or 1")
@pytest.mark.long(80)
def test_an_object_limiter_may_have_a_burst(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One eviction a minute, and two at once at first: of three jobs for one workload two go, the third waits."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 6, like=pod("x").request(cpu=1))
    names = [pod.metadata.name for pod in wait_running(trial, "web", 6)[:3]]
    limits = {"workload": {"duration": "60s", "maxMigrating": 1, "burst": 2}}
    start_descheduler(
        {}, migration={"objectLimiters": limits, "maxMigratingPerWorkload": 3, "maxUnavailablePerWorkload": 3}
    )
    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def gone() -> int:
        return sum(trial.find(name) is None for name in names)

    assert trial.reaches(lambda: gone() == 2, within=30)
    assert not trial.wait(lambda: gone() == 3, within=15)


@pytest.mark.feature("DES-2.rate")
@pytest.mark.case("MG-080", severity="normal", source="spec RSV-R62; golang.org/x/time/rate: a limiter holds its burst")
@pytest.mark.long(130)
def test_time_without_evictions_saves_none(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One eviction in ten seconds, without a burst. After a minute without any, one of three pods goes at once, and
    the others one by one."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 6, like=pod("x").request(cpu=1))
    names = [pod.metadata.name for pod in wait_running(trial, "web", 6)[:3]]
    free = {"maxMigratingPerWorkload": 5, "maxUnavailablePerWorkload": 5, "objectLimiters": OFF}
    start_descheduler({}, migration={**free, "evictQPS": "0.1", "evictBurst": 1})
    trial.pass_time(60)

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def gone() -> int:
        return sum(trial.find(name) is None for name in names)

    assert trial.reaches(lambda: gone() >= 1, within=20)
    trial.pass_time(6)
    assert gone() == 1
    assert trial.reaches(lambda: gone() == 3, within=60)


@pytest.mark.feature("MIG-3.object-limiter")
@pytest.mark.case(
    "MG-081",
    severity="normal",
    source="spec RSV-R70; koordinator: pkg/descheduler/controllers/migration/controller.go@v1.7.0 (trackEvictedPod)",
)
@pytest.mark.long(190)
def test_the_limiter_of_a_workload_follows_its_replicas(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Half of a workload's pods may go in two minutes, and one of its four has gone. It is scaled to sixteen, which is
    one pod in 15 seconds. Nearly two minutes later one of three more goes at once, and the others one by one."""
    with_nodes(trial, "n1", "n2", cpu=32)
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    limits = {"workload": {"duration": "2m", "maxMigrating": "50%"}}
    free = {"maxMigratingPerWorkload": 3, "maxUnavailablePerWorkload": 3}
    first = wait_running(trial, "web", 4)[0].metadata.name
    start_descheduler({}, migration={**free, "objectLimiters": limits})
    migrate(trial, "first", first, mode="EvictDirectly", ttl="10m")
    assert trial.reaches(lambda: trial.find(first) is None, within=30)
    path = f"/apis/apps/v1/namespaces/{trial.name}/deployments/web"
    assert trial.call("PATCH", path, {"spec": {"replicas": 16}}).ok
    names = [pod.metadata.name for pod in wait_running(trial, "web", 16)[:3]]
    trial.pass_time(110)

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def gone() -> int:
        return sum(trial.find(name) is None for name in names)

    assert trial.reaches(lambda: gone() == 1, within=10)
    trial.pass_time(5)
    assert gone() == 1
    assert trial.reaches(lambda: gone() == 3, within=45)


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-082", severity="critical", source="spec RSV-R69")
@pytest.mark.long(seconds=6)
def test_pods_that_ended_are_not_unavailable(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One pod of a workload failed, and another one runs in its place. The workload may lose one pod: a migration goes
    on, as all of its replicas are there."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    failed, other, *_ = wait_running(trial, "web", 3)
    path = f"{trial.path('Pod', failed.metadata.name)}/status"
    assert trial.call("PATCH", path, {"status": {"phase": "Failed"}}).ok
    wait_running(trial, "web", 3)
    assert trial.find(failed.metadata.name) is not None
    start_descheduler(
        {}, migration={"maxMigratingPerWorkload": 1, "maxUnavailablePerWorkload": 1, "objectLimiters": OFF}
    )

    migrate(trial, "move", other.metadata.name, mode="EvictDirectly")

    assert ended(trial, "move", within=30).status.phase == "Succeeded"


@pytest.mark.feature("DES-2.workloads")
@pytest.mark.case("MG-085", severity="critical", source="spec RSV-R70: limits of a workload that are not set")
@pytest.mark.long(30)
@pytest.mark.parametrize(("replicas", "lost"), [(3, 1), (4, 2), (10, 2), (20, 2), (30, 3)])
def test_how_many_pods_a_workload_may_lose_by_default(
    trial: Trial, start_descheduler: StartDescheduler, replicas: int, lost: int
) -> None:
    """There is a job for each pod of a workload, and no room for new pods: one of 3 pods goes, two of 4 to 10, and a
    tenth of more."""
    with_nodes(trial, "n1", "n2", cpu=64)
    deployment(trial, "web", replicas, like=pod("x").request(cpu=1))
    names = [pod.metadata.name for pod in wait_running(trial, "web", replicas)]
    for name in ("n1", "n2"):
        cordon(trial, name)
    start_descheduler({}, migration={"maxMigratingPerNode": 100, "objectLimiters": OFF})
    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly")

    assert trial.reaches(lambda: len(running(trial, "web")) == replicas - lost, within=15), [
        each.status for each in jobs(trial)
    ]
    trial.pass_time(10)
    assert len(running(trial, "web")) == replicas - lost
