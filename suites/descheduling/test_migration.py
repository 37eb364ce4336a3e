"""PodMigrationJob: a place is reserved first, the pod is evicted second, and the workload keeps its budget."""

import orjson
import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, pod, reservation
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.migration import JOBS_PATH, JobCondition
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.scheduler.api.transport import Request
from seatrial.suites.descheduling.migrations import job_reservation
from seatrial.suites.descheduling.workloads import (
    OFF,
    cordon,
    deployment,
    ended,
    job,
    migrate,
    running,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-001", severity="blocker")
@pytest.mark.long(seconds=5)
def test_a_pod_moves_into_a_reserved_place(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """ReservationFirst: a reservation on another node, then the eviction, then the new pod in the reservation."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=2))
    before = {pod.metadata.name for pod in wait_running(trial, "web", 3)}
    cordon(trial, "n2", on=False)
    start_descheduler({})
    victim = min(before)

    migrate(trial, "move", victim)

    done = ended(trial, "move")
    assert (done.status.phase, done.status.status, done.status.node_name) == ("Succeeded", "Complete", "n2")
    assert done.status.pod_ref is not None
    new = expect.running(done.status.pod_ref.name)
    assert new.spec.node_name == "n2"
    assert new.metadata.name not in before
    assert reservation_of(new) == done.reservation_name
    assert trial.find(victim) is None


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-016", severity="critical")
def test_a_place_on_the_own_node_is_no_place(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """The job names a reservation that another client made, and that is on the pod's own node: the pod stays."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    victim = min(pod.metadata.name for pod in wait_running(trial, "web", 3))
    trial.reserve(reservation("beside").like(pod("x").request(cpu=1)).for_labels(app="web"))
    assert expect.available("beside").status.node_name == "n1"
    cordon(trial, "n2", on=False)
    start_descheduler({})

    migrate(trial, "move", victim, reservationOptions={"reservationRef": {"name": "beside"}})

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason) == ("Failed", "ForbiddenMigratePod")
    assert "on the same node as the Pod" in done.status.message
    assert not trial.pod(victim).deleting


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-083", severity="critical", source="spec RSV-R58: the reservation has the pod's own affinity")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("free", ["b", "c"])
def test_a_place_by_each_term_of_the_affinity(trial: Trial, start_descheduler: StartDescheduler, free: str) -> None:
    """The pods may be in the zones a, b and c, by three terms; they are in a, and one of the two others is open."""
    zone = "topology.kubernetes.io/zone"
    trial.add(*(node(f"n{name}").cpu(16).memory("64Gi").label(zone, name) for name in ("a", "b", "c", "d")))
    for name in ("b", "c", "d"):
        cordon(trial, f"n{name}")
    like = pod("x").request(cpu=1)
    terms = [{"matchExpressions": [{"key": zone, "operator": "In", "values": [name]}]} for name in ("a", "b", "c")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    like.manifest["spec"]["affinity"] = {"nodeAffinity": required}
    deployment(trial, "web", 3, like=like)
    victim = min(pod.metadata.name for pod in wait_running(trial, "web", 3))
    for name in (free, "d"):
        cordon(trial, f"n{name}", on=False)
    start_descheduler({})

    migrate(trial, "move", victim)

    done = ended(trial, "move", within=60).status
    assert (done.phase, done.node_name) == ("Succeeded", f"n{free}"), done


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-084", severity="normal", source="spec RSV-R58: the owner is the pod's controller")
@pytest.mark.long(seconds=6)
def test_the_controller_among_several_owners(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The first owner of a pod is no controller: the pod that its controller makes takes the reservation."""
    with_nodes(trial, "n1", "n2")
    victim = spread_victim(trial, "web", 3)
    trial.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}})
    path = f"/api/v1/namespaces/{trial.name}/configmaps/beside"
    uid = orjson.loads(trial.call("GET", path).body)["metadata"]["uid"]
    own = orjson.loads(trial.call("GET", trial.path("Pod", victim)).body)["metadata"]["ownerReferences"]
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "beside", "uid": uid}, *own]
    assert trial.call("PATCH", trial.path("Pod", victim), {"metadata": {"ownerReferences": owners}}).ok
    start_descheduler({})

    migrate(trial, "move", victim)

    done = ended(trial, "move", within=60).status
    assert (done.phase, done.node_name) == ("Succeeded", "n2"), done


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case(
    "MG-076", severity="critical", source="v0.6: the new pod takes the reservation; a Deployment of images"
)
@pytest.mark.long(seconds=20)
def test_a_pod_without_requests_takes_its_reservation(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The pods ask for nothing and n1, where they were, is emptier than n2: the new pod goes to the reserved place on
    n2 all the same, and the job ends well before its ttl."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 4, like=pod("x"))
    victim = min(pod.metadata.name for pod in wait_running(trial, "web", 4))
    cordon(trial, "n2", on=False)
    trial.submit(pod("busy").request(cpu=12, memory="32Gi").select({"kubernetes.io/hostname": "n2"}))
    start_descheduler({})

    migrate(trial, "move", victim)

    done = ended(trial, "move", within=60)
    assert (done.status.phase, done.status.node_name) == ("Succeeded", "n2"), done.status
    assert done.status.pod_ref is not None
    assert trial.pod(done.status.pod_ref.name).spec.node_name == "n2"


@pytest.mark.feature("MIG-2.why")
@pytest.mark.case("MG-079", severity="normal", source="the job's status is what a user sees of a migration")
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("refused", ["scheduler", "replicas", "limit"])
def test_a_migration_that_does_not_begin_says_why(
    trial: Trial, start_descheduler: StartDescheduler, refused: str
) -> None:
    """The pod's scheduler knows no reservations, its workload has one replica, or as many pods migrate as may."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 1 if refused == "replicas" else 4)
    settings = {"schedulerNames": ["nobody"]} if refused == "scheduler" else {"maxMigratingPerWorkload": 1}
    start_descheduler({}, migration=settings)

    migrate(trial, "move", name)
    if refused == "limit":
        trial.apply(disruption_budget("keep", {"app": "web"}, min_available=4))
        assert trial.reaches(lambda: job(trial, "move").running, within=20)
        other = next(one.metadata.name for one in running(trial, "web") if one.metadata.name != name)
        migrate(trial, "second", other)

    output = {
        "scheduler": "does not support reservations",
        "replicas": "Deployment web has 1 replicas",
        "limit": "maxMigratingPerWorkload allows 1 migrating pods of Deployment web",
    }[refused]
    request = "second" if refused == "limit" else "move"
    assert trial.reaches(lambda: output in job(trial, request).status.message, within=20), job(trial, request).status
    assert trial.reaches(
        lambda: any(output in event.message for event in trial.events(request, namespace="default")), within=20
    ), trial.events(request, namespace="default")


@pytest.mark.feature("MIG-1.phases", "MIG-1.columns")
@pytest.mark.case("MG-002", severity="critical")
@pytest.mark.long(seconds=5)
def test_the_steps_are_recorded(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Conditions, events and the columns of kubectl name each step of a migration."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})

    migrate(trial, "recorded", name)

    done = ended(trial, "recorded")
    met = [condition.type for condition in done.status.conditions if condition.status == "True"]
    assert sorted(met) == [
        "BoundPodReady",
        "Eviction",
        "PodBoundReservation",
        "ReservationBound",
        "ReservationCreated",
        "ReservationScheduled",
    ]

    def reasons() -> list[str]:
        return [event.reason for event in trial.events("recorded", namespace="default")]

    steps = [
        "ReservationCreated",
        "ReservationScheduled",
        "Evicting",
        "EvictComplete",
        "PodBoundReservation",
        "BoundPodReady",
        "Complete",
    ]
    # Events follow the status, over several connections: the API server may store two in another order.
    trial.wait(lambda: len(reasons()) >= len(steps), within=10)
    assert sorted(reasons()) == sorted(steps)
    assert done.status.pod_ref is not None
    held, new = done.reservation_name, done.status.pod_ref.name
    notes = {event.reason: event.message for event in trial.events("recorded", namespace="default")}
    messages = {
        "ReservationCreated": f'Successfully create Reservation "{held}"',
        "ReservationScheduled": f'Assigned Reservation "{held}" to node "n2"',
        "EvictComplete": f'Pod "{trial.name}/{name}" has been evicted',
        "Complete": f'Bind Pod "{trial.name}/{new}" in Reservation "{held}"',
    }
    assert {reason: notes[reason] for reason in messages} == messages
    assert f'Pod "{trial.name}/{name}"' in notes["Evicting"]
    columns, cells = table(trial, "recorded")
    assert columns == ["Name", "Phase", "Status", "Age", "Node", "Reservation", "PodNamespace", "Pod", "NewPod", "TTL"]
    shown = dict(zip(columns, cells, strict=True))
    assert (shown["Phase"], shown["Status"], shown["Node"], shown["Pod"]) == ("Succeeded", "Complete", "n2", name)
    assert (shown["Reservation"], shown["PodNamespace"], shown["NewPod"]) == (held, trial.name, new)
    assert shown["TTL"] == "5m0s"


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case("MG-003", severity="critical")
def test_an_eviction_without_a_reservation(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """EvictDirectly: the pod goes, no reservation is made, and the workload replaces the pod."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})

    migrate(trial, "move", name, mode="EvictDirectly")

    done = ended(trial, "move")
    assert (done.status.phase, done.status.message) == ("Succeeded", f'Pod "{trial.name}/{name}" has been evicted')
    assert not done.reservation_name
    assert trial.find(name) is None
    wait_running(trial, "web", 3)


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-004", severity="blocker")
@pytest.mark.long(100)
def test_a_pod_stays_when_no_place_can_be_reserved(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """No node has room: the pod is never evicted, the job times out and its reservation is deleted. The job says why
    there is no place, anew when there is another reason, and since when."""
    with_nodes(trial, "n1", "n2", cpu=8)
    name = spread_victim(trial, "web", 3, cpu=2)
    cordon(trial, "n2")
    uid = trial.pod(name).metadata.uid
    start_descheduler({})

    migrate(trial, "move", name, ttl="60s")

    expect.reservation(
        job_reservation(trial, "move"), lambda job: not job.status.node_name, "to be without a node", within=40
    )

    def why() -> JobCondition | None:
        return job(trial, "move").status.condition("ReservationScheduled")

    assert trial.reaches(lambda: why() is not None, within=10), job(trial, "move").status
    first = why()
    trial.pass_time(2)
    with_nodes(trial, "n3", cpu=1)
    assert trial.reaches(lambda: (first and first.message) != ((now := why()) and now.message), within=30)
    second = why()
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == ("False", "False")
    assert second.last_transition_time == first.last_transition_time, "the status of the condition has not changed"
    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason, done.status.message) == (
        "Failed",
        "Timeout",
        "Abort job caused by timeout",
    )
    assert (trial.pod(name).metadata.uid, trial.pod(name).deleting) == (uid, False)
    assert trial.reaches(lambda: trial.reservation(done.reservation_name) is None, within=10)
    assert "Unschedulable" in [event.reason for event in trial.events("move", namespace="default")]


@pytest.mark.feature("MIG-1.paused")
@pytest.mark.case("MG-005", severity="critical")
@pytest.mark.long(seconds=9)
def test_a_paused_job_does_nothing(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A paused job waits; it runs once it is no longer paused."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})

    migrate(trial, "move", name, paused=True)
    trial.pass_time(4)

    assert (job(trial, "move").status.phase, trial.pod(name).deleting) == ("", False)
    trial.call("PATCH", f"{JOBS_PATH}/move", {"spec": {"paused": False}})
    assert ended(trial, "move").status.phase == "Succeeded"


@pytest.mark.feature("MIG-1.paused")
@pytest.mark.case("MG-040", severity="critical")
@pytest.mark.long(seconds=16)
def test_a_job_can_be_paused_on_its_way(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """A job waits for room for its reservation, and is paused. Room comes: the pod stays until the job goes on."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    cordon(trial, "n2")
    uid = trial.pod(name).metadata.uid
    cordon(trial, "n1")
    start_descheduler({})
    migrate(trial, "move", name, ttl="10m")
    held = job_reservation(trial, "move")
    expect.reservation(held, lambda item: bool(item.status.conditions), "to be refused", within=40)
    assert trial.call("PATCH", f"{JOBS_PATH}/move", {"spec": {"paused": True}}).ok
    cordon(trial, "n2", on=False)
    expect.available(held, within=400)
    trial.pass_time(10)
    pod = trial.find(name)
    assert pod is not None, "expected the pod to stay while its job is paused"
    assert (pod.metadata.uid, pod.deleting) == (uid, False)
    assert trial.call("PATCH", f"{JOBS_PATH}/move", {"spec": {"paused": False}}).ok
    assert ended(trial, "move").status.phase == "Succeeded"


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-041", severity="critical")
def test_a_job_ends_with_its_reservation(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """The reservation has the job's ttl. It fails while a budget holds the eviction back: the job fails at once, and
    the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler({})
    migrate(trial, "move", name, ttl="10m")
    held = expect.available(job_reservation(trial, "move"), within=40)
    assert go_duration(held.spec.ttl or "") == 600  # programs in Go write 10m0s

    status = {"status": {"phase": "Failed"}}
    assert trial.call("PATCH", f"{RESERVATIONS_PATH}/{held.metadata.name}/status", status).ok

    done = ended(trial, "move")
    assert done.status.phase == "Failed"
    assert not trial.pod(name).deleting


@pytest.mark.feature("MIG-1.devices")
@pytest.mark.case("MG-008", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_migrated_pod_gets_devices_of_the_same_kind(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """A pod with a card leaves its node; only one other node has free cards, and the new pod gets one there."""
    trial.add(node("n1").gpus("a100-80g", 1), node("n2").cpu(64), node("n3").gpus("a100-80g", 1))
    cordon(trial, "n3")
    deployment(trial, "train", 1, like=pod("x").gpus(1))
    old = wait_running(trial, "train", 1)[0]
    cordon(trial, "n3", on=False)
    start_descheduler({}, migration={"skipCheckExpectedReplicas": True, "maxUnavailablePerWorkload": 1})

    migrate(trial, "move", old.metadata.name)

    done = ended(trial, "move")
    assert done.status.phase == "Succeeded", done.status
    assert done.status.pod_ref is not None
    new = expect.running(done.status.pod_ref.name)
    assert (old.spec.node_name, new.spec.node_name) == ("n1", "n3")
    assert len(device_allocations(new)["gpu"]) == 1
    assert trial.visible_devices(new)


@pytest.mark.feature("MIG-2.filter", "MIG-1.reservation-first")
@pytest.mark.case("MG-023", severity="critical")
@pytest.mark.long(15)
def test_jobs_of_one_workload_fill_their_own_reservations(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Four pods of one workload migrate at once: each new pod is in the reservation of its job."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 6)
    names = [pod.metadata.name for pod in wait_running(trial, "web", 6)[:4]]
    start_descheduler(
        {},
        migration={
            "maxMigratingPerWorkload": 4,
            "maxUnavailablePerWorkload": 5,
            "maxMigratingPerNode": 10,
            "objectLimiters": OFF,
        },
    )

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name)

    for number in range(4):
        done = ended(trial, f"move-{number}")
        assert done.status.phase == "Succeeded", done.status
        assert done.status.pod_ref is not None
        assert reservation_of(trial.pod(done.status.pod_ref.name)) == done.reservation_name


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-021", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_lone_pod_is_not_migrated(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """A workload of one replica may lose none: the job fails and the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "single", 1)
    start_descheduler({})

    migrate(trial, "move", name)

    done = ended(trial, "move", within=30)
    assert (done.status.phase, done.status.reason) == ("Failed", "ForbiddenMigratePod")
    assert done.status.message.startswith(
        f'Pod "{trial.name}/{name}" is forbidden to migrate because it does not meet the requirements'
    )
    expect.stable(seconds=4)


@pytest.mark.feature("MIG-3.bare-pods")
@pytest.mark.case("MG-032", severity="normal")
@pytest.mark.parametrize(
    ("args", "phase", "allowed"),
    [
        pytest.param({"evictAllBarePods": True}, "Running", True, id="all"),
        pytest.param({"evictAllBarePods": False}, "Running", False, id="none"),
        pytest.param({"evictFailedBarePods": True}, "Failed", True, id="failed"),
        pytest.param({"evictFailedBarePods": True}, "Running", False, id="not-failed"),
    ],
)
def test_pods_without_a_controller(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, bool], phase: str, *, allowed: bool
) -> None:
    """A pod that nothing would make again is evicted only with evictAllBarePods, or, if it has failed, with
    evictFailedBarePods."""
    with_nodes(trial, "n1", "n2")
    trial.submit(pod("bare").request(cpu=1))
    assert trial.reaches(lambda: trial.pod("bare").status.phase == "Running", within=30)
    if phase == "Failed":
        assert trial.call("PATCH", f"{trial.path('Pod', 'bare')}/status", {"status": {"phase": phase}}).ok
    start_descheduler({}, migration=args)

    migrate(trial, "move", "bare", mode="EvictDirectly")

    done = ended(trial, "move")
    assert done.status.phase == ("Succeeded" if allowed else "Failed")
    assert (trial.find("bare") is None) == allowed


def table(trial: Trial, name: str) -> tuple[list[str], list[str]]:
    """Columns and cells as kubectl shows them."""
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = orjson.loads(trial.cluster.call(Request("GET", f"{JOBS_PATH}/{name}", headers=accept)).body)
    return [definition["name"] for definition in answer["columnDefinitions"]], answer["rows"][0]["cells"]
