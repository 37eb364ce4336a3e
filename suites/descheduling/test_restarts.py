"""Processes die during migrations: scheduler, descheduler, the connection to the API server, the elected leader."""

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import announced_evictions, bindings, deletions
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import pod
from seatrial.suites.descheduling.workloads import (
    cordon,
    deployment,
    ended,
    job,
    jobs,
    migrate,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

ELECTION = {
    "leaderElect": True,
    "leaseDuration": "30s",
    "renewDeadline": "20s",
    "retryPeriod": "2s",
    "resourceNamespace": "kube-system",
}


@pytest.fixture
def scheduler(subject: Subject | None) -> Subject:
    """The scheduler, if the test may end it."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    return subject


@pytest.mark.feature("MIG-1.restart")
@pytest.mark.case("MG-007", severity="blocker")
@pytest.mark.parametrize(
    "after", ["ReservationCreated", pytest.param("ReservationScheduled", marks=pytest.mark.long(10)), "Eviction"]
)
def test_a_migration_survives_a_restart(trial: Trial, start_descheduler: StartDescheduler, after: str) -> None:
    """The descheduler is killed after a step. A new one finishes the job with the same reservation and one eviction."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    descheduler = start_descheduler({})
    migrate(trial, "move", name)
    assert trial.reaches(lambda: job(trial, "move").status.condition(after) is not None, within=60)
    reserved = job(trial, "move").reservation_name

    descheduler.kill()
    trial.pass_time(3)
    descheduler.start_again()

    done = ended(trial, "move")
    assert (done.status.phase, done.reservation_name) == ("Succeeded", reserved)
    assert len(wait_running(trial, "web", 3)) == 3


@pytest.mark.feature("MIG-1.scheduler-restart")
@pytest.mark.case("MG-009", severity="critical")
@pytest.mark.parametrize("after", [pytest.param("ReservationCreated", marks=pytest.mark.long(10)), "Eviction"])
def test_a_migration_survives_a_restart_of_the_scheduler(
    trial: Trial, start_descheduler: StartDescheduler, scheduler: Subject, after: str
) -> None:
    """The scheduler is killed while a migration needs it. Its successor places reservation and pod; one pod moves."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})
    with scheduler.troubled() as link:
        link.refuse(500, bindings)  # otherwise the replacement can be bound before the scheduler is killed
        migrate(trial, "move", name)
        assert trial.reaches(lambda: job(trial, "move").status.condition(after) is not None, within=60)

        scheduler.kill()
        trial.pass_time(3)
        assert job(trial, "move").open
        link.heal()
        scheduler.start_again()

        done = ended(trial, "move")
    assert (done.status.phase, done.status.node_name) == ("Succeeded", "n2")
    nodes = sorted(one.spec.node_name for one in wait_running(trial, "web", 3))
    assert nodes == ["n1", "n1", "n2"]


@pytest.mark.feature("MIG-1.api-server-away")
@pytest.mark.case("MG-010", severity="critical")
@pytest.mark.long(15)
@pytest.mark.parametrize("after", ["ReservationCreated", "Eviction"])
def test_a_migration_survives_an_absent_api_server(
    trial: Trial, start_descheduler: StartDescheduler, after: str
) -> None:
    """The descheduler loses all connections for some seconds after a step; the job ends well, and one pod moves."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    descheduler = start_descheduler({})
    with descheduler.troubled() as link:
        migrate(trial, "move", name)
        assert trial.reaches(lambda: job(trial, "move").status.condition(after) is not None, within=60)

        link.cut()
        trial.pass_time(5)
        assert job(trial, "move").open
        link.heal()

        assert ended(trial, "move").status.phase == "Succeeded"
    assert sorted(one.spec.node_name for one in wait_running(trial, "web", 3)) == ["n1", "n1", "n2"]


@pytest.mark.feature("MIG-1.api-server-away")
@pytest.mark.case("MG-074", severity="critical")
@pytest.mark.long(8)
def test_a_job_whose_status_was_refused_goes_on(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """For three seconds the API server refuses the status that announces the eviction. The eviction was not sent, so
    the object limiter (one in five minutes) does not hold it back: it is sent as soon as the status is accepted."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    descheduler = start_descheduler({})
    with descheduler.troubled() as link:
        link.refuse(500, announced_evictions)
        migrate(trial, "move", name, mode="EvictDirectly")
        assert trial.reaches(lambda: link.refused >= 1, within=30), "the eviction was to be announced"
        trial.pass_time(3)
        assert job(trial, "move").open
        link.heal()

        assert ended(trial, "move", within=60).status.phase == "Succeeded"
    assert name not in [one.metadata.name for one in wait_running(trial, "web", 3)]


@pytest.mark.feature("MIG-1.api-server-away")
@pytest.mark.case("MG-075", severity="critical")
@pytest.mark.long(70)
def test_a_reservation_whose_deletion_was_refused_goes(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """No node has room, so the job times out while the API server refuses deletions: its reservation is deleted when
    the API server accepts them again."""
    with_nodes(trial, "n1", "n2", cpu=8)
    name = spread_victim(trial, "web", 3, cpu=2)
    cordon(trial, "n2")
    descheduler = start_descheduler({})
    with descheduler.troubled() as link:
        link.refuse(500, deletions)
        migrate(trial, "move", name, ttl="30s")
        done = ended(trial, "move")
        assert (done.status.phase, done.status.reason) == ("Failed", "Timeout")
        assert trial.reaches(lambda: link.refused >= 4, within=30), "expected the deletion to be tried"
        link.heal()

        assert trial.reaches(lambda: trial.reservation(done.reservation_name) is None, within=20)


@pytest.mark.feature("MIG-1.api-server-restart")
@pytest.mark.case("MG-012", severity="critical")
@pytest.mark.needs(Capability.SERVER_RESTART)
@pytest.mark.long(15)
@pytest.mark.parametrize("after", ["ReservationCreated", "Eviction"])
def test_a_migration_survives_a_restart_of_the_api_server(
    trial: Trial, start_descheduler: StartDescheduler, after: str
) -> None:
    """The API server is killed after a step, for the scheduler, the descheduler and the nodes alike. With its objects
    it comes back, but watches cannot go on from where they were: the job ends well, and one pod moves.

    The embedded API server keeps its objects in memory only, so the case needs the backend virtual or envtest."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})
    migrate(trial, "move", name)
    assert trial.reaches(lambda: job(trial, "move").status.condition(after) is not None, within=60)

    trial.restart_api_server(away=5)

    assert job(trial, "move").open
    assert ended(trial, "move").status.phase == "Succeeded"
    assert sorted(pod.spec.node_name for pod in wait_running(trial, "web", 3)) == ["n1", "n1", "n2"]


def leader_of(trial: Trial, name: str) -> str:
    """The holder of the Lease of this name; "" as long as there is none."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{ELECTION['resourceNamespace']}/leases/{name}"
    answer = trial.call("GET", path)
    holder_identity: str = orjson.loads(answer.body)["spec"].get("holderIdentity", "") if answer.ok else ""
    return holder_identity


@pytest.mark.feature("DES-1.leader-election")
@pytest.mark.case("DC-046", severity="critical")
@pytest.mark.long(60)
def test_one_of_two_deschedulers_works(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The leader only pretends to evict (dryRun) and holds the Lease, so nothing moves; when it dies the other one
    takes over and evicts."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    strategies = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}
    lease = trial.name[:60]
    election = {**ELECTION, "resourceName": lease}
    leader = start_descheduler(strategies, dryRun=True, deschedulingInterval="1s", leaderElection=election)
    assert trial.reaches(lambda: bool(leader_of(trial, lease)), within=30), "no leader"
    start_descheduler(strategies, deschedulingInterval="1s", leaderElection=election)

    assert not trial.wait(lambda: bool(jobs(trial)), within=15)
    leader.kill()

    assert trial.reaches(lambda: bool(jobs(trial)), within=45), trial.timeline()


@pytest.mark.feature("DES-1.leader-election")
@pytest.mark.case(
    "FT-180", severity="normal", source="kubernetes client-go tools/leaderelection/leaderelection.go@v0.28.7"
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # minutes
@pytest.mark.parametrize(("holder", "seconds"), [("another", 60), ("another", 10), ("", 60)])
def test_the_lease_of_another_holder(
    trial: Trial, start_descheduler: StartDescheduler, holder: str, seconds: int
) -> None:
    """There is a Lease of a holder that does not renew it: a descheduler waits as long as that Lease says, whatever it
    promises itself; for one that was given up it does not wait. Its renewals change only the time of renewal."""
    lease, path = trial.name[:60], f"/apis/coordination.k8s.io/v1/namespaces/{ELECTION['resourceNamespace']}/leases"
    long_ago = "2020-01-01T00:00:00.000000Z"
    theirs = {"leaseDurationSeconds": seconds, "acquireTime": long_ago, "renewTime": long_ago, "leaseTransitions": 3}
    body = {"metadata": {"name": lease}, "spec": {"holderIdentity": holder, **theirs}}
    trial.accept({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body}, path)

    start_descheduler({}, leaderElection={**ELECTION, "resourceName": lease})

    if holder:
        assert not trial.wait(lambda: leader_of(trial, lease) != holder, within=seconds - 5)
    assert trial.reaches(lambda: leader_of(trial, lease) != holder, within=15)
    specs = []
    for _ in range(2):
        specs.append(orjson.loads(trial.call("GET", f"{path}/{lease}").body)["spec"])
        trial.pass_time(10)
    first, later = specs
    assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (30, 4)
    assert later["renewTime"] > first["renewTime"] >= first["acquireTime"] > long_ago
    assert later | {"renewTime": ""} == first | {"renewTime": ""}
