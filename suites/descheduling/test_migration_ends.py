"""Migration jobs whose pod, reservation or place is gone, and where the reservation of a job is placed."""

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, pod, priority_class, reservation
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.suites.descheduling.migrations import job_reservation
from seatrial.suites.descheduling.workloads import (
    OFF,
    cordon,
    deployment,
    ended,
    job,
    migrate,
    spread_victim,
    wait_running,
    with_nodes,
)

RESERVING = "reserving"  # the profile whose Reservation plugin preempts, also for reservations

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-061", severity="critical")
@pytest.mark.parametrize(
    ("reference", "reason", "message"),
    [
        pytest.param({"name": "gone"}, "MissingPod", 'Abort job caused by missing Pod "{namespace}/gone"', id="no-pod"),
        pytest.param({"name": ""}, "InvalidPodRef", "Abort job caused by invalid PodRef", id="no-name"),
    ],
)
def test_a_job_without_a_pod_fails(
    trial: Trial, start_descheduler: StartDescheduler, reference: dict[str, str], reason: str, message: str
) -> None:
    """The pod of a job does not exist, or has no name in it: the job fails with the reason, and reserves nothing."""
    with_nodes(trial, "n1", "n2")
    start_descheduler({})

    migrate(trial, "move", reference["name"])

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason) == ("Failed", reason)
    assert done.status.message == message.format(namespace=trial.name)
    assert not done.reservation_name


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-062", severity="critical")
@pytest.mark.long(seconds=60)
def test_a_job_fails_when_its_reservation_expires(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """A reservation of another client with a ttl of half a minute; a budget holds the eviction back. The pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    cordon(trial, "n1")
    trial.reserve(reservation("beside").like(pod("x").request(cpu=1)).for_labels(app="web").ttl("30s"))
    assert expect.available("beside").status.node_name == "n2"
    start_descheduler({})

    migrate(trial, "move", name, ttl="10m", reservationOptions={"reservationRef": {"name": "beside"}})

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason, done.status.message) == (
        "Failed",
        "ReservationExpired",
        "Reservation expired",
    )
    refused = done.status.condition("Eviction")
    assert refused is not None
    assert (refused.status, refused.reason) == ("False", "FailedEvict")
    assert not trial.pod(name).deleting


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-065", severity="blocker")
@pytest.mark.long(seconds=6)
def test_a_pod_stays_when_another_pod_takes_its_place(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """A budget holds the eviction back. Meanwhile another pod takes the reservation, which is for one pod, and then the
    budget allows the eviction: the job fails, and the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    cordon(trial, "n1")
    trial.reserve(reservation("beside").like(pod("x").request(cpu=1)).for_labels(group="a"))
    assert expect.available("beside").status.node_name == "n2"
    start_descheduler({})
    migrate(trial, "move", name, ttl="10m", reservationOptions={"reservationRef": {"name": "beside"}})

    def placed() -> bool:
        condition = job(trial, "move").status.condition("ReservationScheduled")
        return condition is not None and condition.status == "True"

    assert trial.reaches(placed, within=30), job(trial, "move").status
    trial.pass_time(4)  # an eviction is tried, and refused
    trial.submit(pod("other").request(cpu=1).label("group", "a").into_reservation(name="beside"))
    assert reservation_of(expect.running("other")) == "beside"
    expect.reservation("beside", lambda item: item.status.phase == "Succeeded", "to be used up", within=30)

    path = f"/apis/policy/v1/namespaces/{trial.name}/poddisruptionbudgets/keep"
    assert trial.call("PATCH", path, {"spec": {"minAvailable": 2}}).ok

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason, done.status.message) == (
        "Failed",
        "ForbiddenMigratePod",
        "Reservation is already bound by another Pod",
    )
    results = trial.find(name)
    assert results is not None, "expected the pod to stay: its place is taken"
    assert not results.deleting


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-073", severity="critical")
@pytest.mark.long(seconds=15)
def test_jobs_of_one_workload_may_exchange_their_places(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """A budget holds the eviction of one pod back. The job for another pod of the workload goes on, and its new pod is
    in the older reservation, that of the first job. When the budget is gone, the first pod moves into the other one."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 4)
    first, second, *_ = wait_running(trial, "web", 4)
    path = f"/api/v1/namespaces/{trial.name}/pods/{first.metadata.name}"
    assert trial.call("PATCH", path, {"metadata": {"labels": {"held": "yes"}}}).ok
    trial.apply(disruption_budget("keep", {"held": "yes"}, min_available=1))
    start_descheduler(
        {}, migration={"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2, "objectLimiters": OFF}
    )
    migrate(trial, "first", first.metadata.name, ttl="10m")
    expect.available(job_reservation(trial, "first"), within=40)
    migrate(trial, "second", second.metadata.name, ttl="10m")
    expect.reservation(
        job(trial, "first").reservation_name, lambda item: item.status.phase == "Succeeded", "to be used up"
    )
    trial.pass_time(8)
    assert job(trial, "first").open, job(trial, "first").status

    assert trial.call("DELETE", f"/apis/policy/v1/namespaces/{trial.name}/poddisruptionbudgets/keep").ok

    done = [ended(trial, name).status for name in ("first", "second")]
    assert [(status.phase, status.node_name) for status in done] == [("Succeeded", "n2")] * 2
    assert len({status.pod_ref.name for status in done if status.pod_ref is not None}) == 2
    assert trial.find(first.metadata.name) is None


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-066", severity="critical")
def test_a_job_fails_when_its_reservation_is_deleted(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """A budget holds the eviction back, and the reservation is deleted: the job fails, and the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler({})
    migrate(trial, "move", name, ttl="10m")
    held = expect.available(job_reservation(trial, "move"), within=40).metadata.name

    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/{held}").ok

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason, done.status.message) == (
        "Failed",
        "MissingReservation",
        f'Abort job caused by missing Reservation "{held}"',
    )
    assert not trial.pod(name).deleting


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-067", severity="critical")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("terms", [(), ("n2", "n1")], ids=["any-node", "by-the-second-term"])
def test_the_place_is_on_another_node_than_the_pod(
    trial: Trial, start_descheduler: StartDescheduler, terms: tuple[str, ...]
) -> None:
    """The pod's own node has the most room, and would be preferred: the place is on the other node, where there is
    little left; also where the second term of its affinity allows the own node."""
    with_nodes(trial, "n1", "n2")
    trial.submit(pod("there").request(cpu=14, memory="60Gi").node_name("n2"))
    like = pod("x").request(cpu=1)
    if terms:
        rules = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]} for name in terms]
        required = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in rules]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        like.manifest["spec"]["affinity"] = affinity
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=like)
    name = min(each.metadata.name for each in wait_running(trial, "web", 3))
    cordon(trial, "n2", on=False)
    assert trial.pod(name).spec.node_name == "n1"
    start_descheduler({})

    migrate(trial, "move", name)

    done = ended(trial, "move")
    assert (done.status.phase, done.status.node_name) == ("Succeeded", "n2")


@pytest.mark.feature("MIG-1.preemption")
@pytest.mark.case("MG-063", severity="critical")
@pytest.mark.long(seconds=6)
@pytest.mark.profile(RESERVING)
@pytest.mark.parametrize("important", [True, False], ids=["more-important", "less-important"])
def test_a_reservation_makes_room_for_an_important_pod(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler, important: bool
) -> None:
    """The only other node is full. The reservation of a job has the priority of the job's pod: it preempts a pod of
    lower priority, and the migrated pod gets the place. A pod of higher priority stays, and so does the job's pod."""
    trial.apply(priority_class("trial-high", 1000))
    trial.apply(priority_class("trial-low", 10))
    high, low = ("trial-high", "trial-low") if important else ("trial-low", "trial-high")
    trial.add(node("n1").cpu(16), node("n2").cpu(4))
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=3).priority_class(high).scheduler(RESERVING))
    victim = min(pod.metadata.name for pod in wait_running(trial, "web", 3))
    cordon(trial, "n2", on=False)
    cordon(trial, "n1")
    trial.submit(pod("there").request(cpu=3).priority_class(low))
    expect.running("there")
    start_descheduler({}, migration={"schedulerNames": [RESERVING]})

    migrate(trial, "move", victim)

    if important:
        expect.gone("there")
        done = ended(trial, "move")
        assert (done.status.phase, done.status.node_name) == ("Succeeded", "n2")
        assert done.status.pod_ref is not None
        assert expect.running(done.status.pod_ref.name).spec.node_name == "n2"
    else:
        expect.reservation(
            job_reservation(trial, "move"), lambda item: bool(item.status.conditions), "to be refused", within=40
        )
        expect.stable(seconds=10)
        assert trial.pod("there").spec.node_name == "n2"
        assert not trial.pod(victim).deleting
        assert job(trial, "move").status.phase == "Running"


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-064", severity="critical", source="koordinator 1.8: skipEvictionGates")
def test_a_place_is_reserved_for_a_pod_that_waits(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """The only pod of a workload runs in reservations alone, and there is none: a job reserves a place for this pod,
    and ends when the pod is in it."""
    with_nodes(trial, "n1")
    deployment(trial, "web", 1, like=pod("x").request(cpu=6).into_reservation())
    assert trial.reaches(lambda: bool(trial.pods()), within=30)
    (waiting,) = (pod.metadata.name for pod in trial.pods())
    expect.pending(waiting)
    gates = ["MaxUnavailablePerWorkload", "ExpectedReplicas"]
    start_descheduler({}, migration={"skipEvictionGates": gates})

    migrate(trial, "move", waiting)

    done = ended(trial, "move")
    assert (done.status.phase, done.status.message) == (
        "Succeeded",
        f'Assign Pod "{trial.name}/{waiting}" to node "n1"',
    )
    assert reservation_of(trial.pod(waiting)) == done.reservation_name
    held = trial.reservation(done.reservation_name)
    assert held is not None
    (owner,) = held.spec.owners
    assert owner.object is not None
    assert owner.object.name == waiting
