"""The descheduling configurations of the release posts; strategies and numbers that a post leaves open are added."""

from pathlib import Path

import pytest

from seatrial import suites
from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.durations import go_duration
from seatrial.suites.descheduling.rounds import PER_POD, hot_node, on
from seatrial.suites.descheduling.workloads import (
    OFF,
    cordon,
    deployment,
    ended,
    jobs,
    migrate,
    running,
    shown,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

MANIFESTS = Path(suites.__path__[0]) / "manifests"
MINUTES = 60.0
OLD = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}


@pytest.mark.feature("DES-1.configuration-descheduler")
@pytest.mark.case("DC-060", severity="critical")
@pytest.mark.long(15)
def test_the_profile_of_v0_6_evicts_by_migration_jobs(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The profile with one strategy: its evictions are ReservationFirst jobs of five minutes, and they succeed."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 4)
    trial.pass_time(2)
    start_descheduler(OLD, base=MANIFESTS / "v0.6/config/descheduler.config.yaml")

    assert trial.reaches(lambda: bool(jobs(trial)), within=15), trial.timeline()
    assert {(one.spec.mode, go_duration(one.spec.ttl or "")) for one in jobs(trial)} == {("ReservationFirst", 300.0)}
    moved = trial.reaches(lambda: any(one.status.phase == "Succeeded" for one in jobs(trial)), within=60)
    assert moved, [(one.spec.pod_ref.name, one.status) for one in jobs(trial)]


@pytest.mark.feature("DES-2.configuration-safer-descheduling")
@pytest.mark.case("DC-061", severity="critical")
@pytest.mark.long(15)
def test_the_caps_and_namespaces_of_v0_7(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """30 old pods in the canary's namespace on two nodes: five of each node get a job, and of the pods with a running
    job no more than one is still there."""
    with_nodes(trial, "n1", "n2", cpu=64)
    deployment(trial, "web", 30, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 30)
    trial.pass_time(2)
    start_descheduler(
        OLD,
        base=MANIFESTS / "v0.7/config/safer-descheduling.config.yaml",
        migration={"namespaces": {"include": [trial.name]}},
    )

    assert trial.reaches(lambda: len(jobs(trial)) == 10, within=15), shown(trial)
    most = 0

    def one_moved() -> bool:
        nonlocal most
        here = {one.metadata.uid for one in trial.pods()}
        most = max(most, sum(one.running and one.spec.pod_ref.uid in here for one in jobs(trial)))
        return any(one.status.phase == "Succeeded" for one in jobs(trial))

    assert trial.reaches(one_moved, within=60), jobs(trial)
    assert most == 1


@pytest.mark.feature("DES-2.configuration-safer-descheduling")
@pytest.mark.case("DC-062", severity="critical")
@pytest.mark.long(seconds=8)
def test_v0_7_leaves_other_namespaces_alone(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The configuration as it is: pods outside of namespace canary get no job, however old they are."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 4)
    trial.pass_time(2)
    start_descheduler(OLD, base=MANIFESTS / "v0.7/config/safer-descheduling.config.yaml")

    assert not trial.wait(lambda: bool(jobs(trial)), within=5)


@pytest.mark.feature("MIG-2.configuration-migration-arbitration")
@pytest.mark.case("DC-063", severity="critical")
@pytest.mark.long(20)
def test_the_arbiter_of_v1_4(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Jobs for four pods of one workload: they run one after the other, and never more than one pod is missing."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 4)
    names = [one.metadata.name for one in running(trial, "web")]
    start_descheduler(
        {}, base=MANIFESTS / "v1.4/config/migration-arbitration.config.yaml", migration={"objectLimiters": OFF}
    )
    fewest, most = 4, 0

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def done() -> bool:
        nonlocal fewest, most
        fewest = min(fewest, len(running(trial, "web")))
        most = max(most, sum(one.running for one in jobs(trial)))
        return all(not one.open for one in jobs(trial))

    assert trial.reaches(done, within=2 * MINUTES), [one.status for one in jobs(trial)]
    assert {one.status.phase for one in jobs(trial)} == {"Succeeded"}
    assert (fewest, most) == (3, 1)


@pytest.mark.feature("DES-2.configuration-rescheduling")
@pytest.mark.case("DC-064", severity="critical")
@pytest.mark.long(1500)
def test_the_rescheduling_of_v1_6(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Prod pods use 63 % of a node, 50 % is their limit: after the anomaly count of six rounds prod pods leave, no more
    than the namespace's limiter lets go in five minutes at a time, until the node is within its limit."""
    prod = pod("x").request(cpu=1, memory="1Gi").label("koordinator.sh/priority-class", "koord-prod")
    hot_node(trial, pods=5, like=prod, uses=PER_POD)
    start_descheduler({}, base=MANIFESTS / "v1.6/config/rescheduling.config.yaml")

    trial.pass_time(9 * MINUTES)
    assert jobs(trial) == []
    assert trial.reaches(lambda: bool(jobs(trial)), within=3 * MINUTES)
    assert trial.reaches(lambda: len(on(trial, "web", "n1")) == 4, within=5 * MINUTES), trial.timeline()
    reason = jobs(trial)[0].metadata.annotations["koordinator.sh/evict-reason"]
    assert "prod cpu usage(62.50%)>threshold(50.00%)" in reason


@pytest.mark.feature("MIG-1.manifest-migration-job")
@pytest.mark.case("MG-011", severity="critical")
@pytest.mark.long(seconds=5)
def test_the_job_of_v0_6(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The spec of the post's job: the successor is bound into the reservation that the job made for it, and the status
    has what the post shows."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "pod-demo", 2, like=pod("x").request(cpu="500m", memory="256Mi"))
    old = wait_running(trial, "pod-demo", 2)[0].metadata.name
    cordon(trial, "n2", on=False)
    start_descheduler({})

    migrate(trial, "migrationjob-demo", old, paused=False, ttl="5m", mode="ReservationFirst")

    done = ended(trial, "migrationjob-demo")
    assert (done.status.phase, done.status.status, done.status.node_name) == ("Succeeded", "Complete", "n2")
    assert done.status.pod_ref is not None
    assert done.status.message == (
        f'Bind Pod "{trial.name}/{done.status.pod_ref.name}" in Reservation "{done.reservation_name}"'
    )
