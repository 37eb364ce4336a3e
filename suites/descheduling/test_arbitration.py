"""Which of several migration jobs run first, and which run although a limit is reached."""

from collections import Counter

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, pod, priority_class
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.migration import DELETION_COST, EVICT_ANNOTATION, EVICTION_COST
from seatrial.suites.descheduling.workloads import (
    OFF,
    annotate,
    deployment,
    job,
    jobs,
    migrate,
    shown,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

TWO = {
    "maxMigratingGlobally": 2,
    "maxMigratingPerNode": 10,
    "maxMigratingPerWorkload": 3,
    "maxUnavailablePerWorkload": 3,
    "skipCheckExpectedReplicas": True,
    "objectLimiters": OFF,
}


def batch_job(trial: Trial, name: str, count: int) -> list[Pod]:
    """The running pods of a Job."""
    built = pod("x").request(cpu=1).select({TRIAL_LABEL: trial.name}).manifest
    template = {"metadata": {"labels": {"app": name}}, "spec": {**built["spec"], "restartPolicy": "Never"}}
    trial.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"completions": count, "parallelism": count, "template": template},
        }
    )
    return wait_running(trial, name, count)


def held(trial: Trial) -> None:
    """No pod of these cases is evicted, so that a job that runs stays Running."""
    for app, count in (("training", 3), ("web", 2)):
        trial.apply(disruption_budget(f"keep-{app}", {"app": app}, min_available=count))


def going(trial: Trial) -> set[str]:
    """The names of the jobs that were let through."""
    return {job.name for job in jobs(trial) if job.running}


def let_through(trial: Trial, count: int) -> set[str]:
    """The jobs that run, once there are this many and no more came."""
    assert trial.reaches(lambda: len(going(trial)) >= count, within=60), shown(trial)
    trial.pass_time(5)
    return going(trial)


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case("MG-070", severity="critical")
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_migrations_of_one_job_are_next_to_each_other(
    trial: Trial, start_descheduler: StartDescheduler, kind: str
) -> None:
    """By their pods' eviction costs the order is a pod of a Job, one of a Deployment, and another one of the Job. Two
    may migrate: they are those of the Job. Of a second Deployment in its place, they are the first two."""
    with_nodes(trial, "n1", "n2")
    if kind == "Deployment":
        deployment(trial, "training", 3, like=pod("x").request(cpu=1))
    first, last, *_ = batch_job(trial, "training", 3) if kind == "Job" else wait_running(trial, "training", 3)
    deployment(trial, "web", 2, like=pod("x").request(cpu=1))
    between = wait_running(trial, "web", 2)[0]
    held(trial)
    for name, result, cost in (("first", first, "1"), ("between", between, "2"), ("last", last, "3")):
        annotate(trial, result, **{EVICTION_COST: cost})
        migrate(trial, name, result.metadata.name, mode="EvictDirectly", ttl="10m")

    start_descheduler({}, migration=TWO)

    assert let_through(trial, 2) == {"first", "last" if kind == "Job" else "between"}


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case("MG-071", severity="critical")
@pytest.mark.long(seconds=36)
def test_a_job_that_migrates_already_goes_on(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A pod of a Job migrates. Of two more pods, that of a Deployment has the lower cost, and one more may migrate: it
    is the other pod of the Job."""
    with_nodes(trial, "n1", "n2")
    first, second, *_ = batch_job(trial, "training", 3)
    deployment(trial, "web", 2, like=pod("x").request(cpu=1))
    cheap = wait_running(trial, "web", 2)[0]
    held(trial)
    for result, cost in ((cheap, "1"), (second, "2")):
        annotate(trial, result, **{EVICTION_COST: cost})
    # Both jobs come within one interval of the arbitration: it has just let the first one through.
    start_descheduler({}, migration={**TWO, "arbitrationArgs": {"enabled": True, "interval": "15s"}})
    migrate(trial, "first", first.metadata.name, mode="EvictDirectly", ttl="10m")
    assert trial.reaches(lambda: job(trial, "first").running, within=60), job(trial, "first").status

    migrate(trial, "cheap", cheap.metadata.name, mode="EvictDirectly", ttl="10m")
    migrate(trial, "second", second.metadata.name, mode="EvictDirectly", ttl="10m")

    assert let_through(trial, 2) == {"first", "second"}


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-072", severity="critical")
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize("on", ["pod", "job"])
def test_the_evict_annotation_lifts_the_limits(trial: Trial, start_descheduler: StartDescheduler, on: str) -> None:
    """One pod may migrate, and one does. Of two more jobs one has the annotation, or its pod has: it runs at once, and
    the other one waits."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    first, amounts, waits, _ = wait_running(trial, "web", 4)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=4))
    start_descheduler({}, migration={**TWO, "maxMigratingGlobally": 1})
    migrate(trial, "first", first.metadata.name, mode="EvictDirectly", ttl="10m")
    assert trial.reaches(lambda: job(trial, "first").running, within=60), job(trial, "first").status

    messages = {EVICT_ANNOTATION: "true"}
    if on == "pod":
        annotate(trial, amounts, **messages)
    migrate(trial, "waits", waits.metadata.name, mode="EvictDirectly", ttl="10m")
    migrate(
        trial,
        "asked",
        amounts.metadata.name,
        mode="EvictDirectly",
        ttl="10m",
        annotations=messages if on == "job" else {},
    )

    assert let_through(trial, 2) == {"first", "asked"}


def order_of_ends(trial: Trial, count: int) -> list[str]:
    """The names of the trial's jobs in the order in which they end."""
    order: list[str] = []

    def all_done() -> bool:
        order.extend(one.name for one in jobs(trial) if not one.open and one.name not in order)
        return len(order) == count

    assert trial.reaches(all_done, within=60), [one.status for one in jobs(trial)]
    return order


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case("MG-022", severity="critical")
@pytest.mark.long(seconds=8)
def test_cheap_pods_migrate_first(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Jobs for pods of four classes wait, the cheapest pod's job first of all; one may run at a time. They run from
    free to prod, although the jobs for dear pods are the newest."""
    with_nodes(trial, "n1", "n2")
    bands = ["free", "batch", "mid", "prod"]
    for band in bands:
        like = pod("x").request(cpu=1).label("koordinator.sh/priority-class", f"koord-{band}")
        deployment(trial, band, 2, like=like)
    names = {band: wait_running(trial, band, 2)[0].metadata.name for band in bands}
    for band in bands:
        migrate(trial, band, names[band], mode="EvictDirectly", ttl="10m")
        trial.pass_time(1)
    start_descheduler({}, migration={"maxMigratingGlobally": 1, "skipCheckExpectedReplicas": True})

    assert order_of_ends(trial, 4) == bands


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case("MG-301", severity="normal", source="spec RSV-R72: LS before LSR before LSE")
@pytest.mark.long(seconds=8)
def test_of_one_priority_class_the_qos_class_decides(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Jobs for prod pods of three QoS classes wait, that for the LS pod first of all; one may run at a time. They run
    from LS to LSE, although the jobs for the others are newer."""
    with_nodes(trial, "n1")
    classes = ["LS", "LSR", "LSE"]
    for name in classes:
        like = pod("x").request(cpu=1).label("koordinator.sh/priority-class", "koord-prod").qos(name).node_name("n1")
        deployment(trial, name.lower(), 2, like=like)
    for name in classes:
        migrated = wait_running(trial, name.lower(), 2)[0].metadata.name
        migrate(trial, name.lower(), migrated, mode="EvictDirectly", ttl="10m")
        trial.pass_time(1)
    start_descheduler({}, migration={"maxMigratingGlobally": 1, "skipCheckExpectedReplicas": True})

    assert order_of_ends(trial, 3) == [name.lower() for name in classes]


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case(
    "MG-310", severity="normal", source="spec RSV-R72; koordinator: pkg/descheduler/utils/sorter/pod.go@v1.7.0"
)
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize("by", ["priority", "kubernetes-qos", "deletion-cost", "deletion-cost-first", "no-number"])
def test_of_equal_classes_priority_and_costs_decide(trial: Trial, start_descheduler: StartDescheduler, by: str) -> None:
    """Jobs for prod pods of QoS class LS of two workloads wait, that for the cheap one is the older; one may run at a
    time. The pod of lower priority goes first, or Burstable before Guaranteed, or of lower deletion cost, also where
    its eviction cost is the higher one. A cost with a leading zero counts as none."""
    with_nodes(trial, "n1", "n2")
    costs = {
        "deletion-cost": [{DELETION_COST: "-1"}, {}],
        "deletion-cost-first": [{DELETION_COST: "-1", EVICTION_COST: "5"}, {EVICTION_COST: "-5"}],
        "no-number": [{EVICTION_COST: "-1"}, {EVICTION_COST: "-05"}],
    }
    for rank, name in enumerate(["cheap", "dear"]):
        like = pod("x").request(cpu=1, memory="1Gi").label("koordinator.sh/priority-class", "koord-prod").qos("LS")
        if by == "priority":
            trial.apply(priority_class(f"trial-{name}", 9000 + rank))
            like.priority_class(f"trial-{name}")
        elif by == "kubernetes-qos" and not rank:
            like.limits({"cpu": 2})
        for key, cost in costs.get(by, [{}, {}])[rank].items():
            like.annotation(key, cost)
        deployment(trial, name, 2, like=like)
        migrated = wait_running(trial, name, 2)[0].metadata.name
        migrate(trial, name, migrated, mode="EvictDirectly", ttl="10m")
        trial.pass_time(1)
    start_descheduler({}, migration={"maxMigratingGlobally": 1, "skipCheckExpectedReplicas": True})

    assert order_of_ends(trial, 2) == ["cheap", "dear"]


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-302", severity="critical", source="spec RSV-R70, RSV-R71; kubernetes: the scale of a Job")
@pytest.mark.long(seconds=5)
def test_a_job_has_as_many_replicas_as_pods_at_once(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One of the four pods that a Job runs at once may be migrated: the Job has not one replica."""
    with_nodes(trial, "n1", "n2")
    victim = batch_job(trial, "training", 4)[0].metadata.name
    start_descheduler({})

    migrate(trial, "move", victim, mode="EvictDirectly")

    assert trial.reaches(lambda: not job(trial, "move").open, within=60), job(trial, "move").status
    assert job(trial, "move").status.phase == "Succeeded", job(trial, "move").status


@pytest.mark.feature("MIG-2.sort")
@pytest.mark.case("MG-045", severity="normal")
@pytest.mark.long(seconds=7)
def test_of_equal_pods_the_newest_job_runs_first(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Jobs wait for four equal pods, the oldest for the pod whose name is first; one may run at a time."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 8, like=pod("x").request(cpu=1))
    pods = wait_running(trial, "web", 8)
    same = Counter(one.metadata.creation_timestamp for one in pods).most_common(1)[0][0]
    names = sorted(one.metadata.name for one in pods if one.metadata.creation_timestamp == same)[:4]
    assert len(names) > 1, "expected pods of one second"
    for number, name in enumerate(names):
        migrate(trial, f"job-{number}", name, mode="EvictDirectly", ttl="10m")
        trial.pass_time(1)
    start_descheduler(
        {},
        migration={
            "maxMigratingGlobally": 1,
            "skipCheckExpectedReplicas": True,
            "maxUnavailablePerWorkload": 4,
            "objectLimiters": OFF,
        },
    )

    assert order_of_ends(trial, len(names)) == [f"job-{number}" for number in reversed(range(len(names)))]
