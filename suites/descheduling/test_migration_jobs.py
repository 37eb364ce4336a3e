"""PodMigrationJobs: which are carried out, with which options of the eviction, and when they end or are deleted."""

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.migration import (
    CREATED_BY,
    EVICT_POLICY,
    EVICT_REASON,
    EVICT_TRIGGER,
    JOBS_PATH,
    SOFT_EVICTION,
)
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    OFF,
    deployment,
    ended,
    evictions_by_uid,
    job,
    jobs,
    migrate,
    spread_victim,
    wait_running,
    with_nodes,
)
from seatrial.suites.preemption.nominations import freeze, thaw

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-046", severity="critical")
def test_a_deleted_job_takes_its_reservation_with_it(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A budget holds the eviction back while the reservation has its place. The job is deleted: so is the reservation,
    and the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler({})
    migrate(trial, "move", name)
    path = reservation_path(trial, "move")
    assert trial.call("GET", path).ok

    assert trial.call("DELETE", f"{JOBS_PATH}/move").ok

    assert trial.reaches(lambda: trial.call("GET", path).code == 404, within=30), "the reservation is still there"
    assert not trial.pod(name).deleting


def reservation_path(trial: Trial, name: str) -> str:
    """The path of the job's reservation, once it has a place. A budget holds the eviction back."""

    def placed() -> bool:
        condition = job(trial, name).status.condition("ReservationScheduled")
        return condition is not None and condition.status == "True"

    assert trial.reaches(placed, within=60), job(trial, name).status
    return f"{RESERVATIONS_PATH}/{job(trial, name).reservation_name}"


def runs(trial: Trial, name: str) -> bool:
    """Whether the job has passed arbitration."""
    return job(trial, name).status.phase == "Running"


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-051", severity="critical")
def test_a_pod_has_one_job_at_a_time(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A budget holds the eviction of the first job back. A second job for the same pod fails, the first stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler(
        {}, migration={"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2, "objectLimiters": OFF}
    )
    migrate(trial, "first", name, mode="EvictDirectly")
    assert trial.reaches(lambda: runs(trial, "first"), within=60), job(trial, "first").status

    migrate(trial, "second", name, mode="EvictDirectly")

    done = ended(trial, "second", within=60)
    assert (done.status.phase, done.status.reason) == ("Failed", "ForbiddenMigratePod")
    assert job(trial, "first").open
    assert not trial.pod(name).deleting


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-052", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_percentage_of_replicas_is_rounded_down(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Three jobs for a workload of five that may lose 30 %, and a budget that holds evictions back: one job runs."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 5)
    names = [pod.metadata.name for pod in wait_running(trial, "web", 5)[:3]]
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=5))
    limits = {"maxMigratingPerWorkload": "30%", "maxUnavailablePerWorkload": "30%", "maxMigratingPerNode": 10}
    start_descheduler({}, migration={**limits, "objectLimiters": OFF})

    for number, name in enumerate(names):
        migrate(trial, f"move-{number}", name, mode="EvictDirectly", ttl="10m")

    def running_jobs() -> list[str]:
        return [job.name for job in jobs(trial) if job.status.phase == "Running"]

    assert trial.reaches(lambda: bool(running_jobs()), within=60)
    trial.wait(lambda: len(running_jobs()) > 1, within=5)
    running = running_jobs()
    assert len(running) == 1, f"30 % of five replicas are one: expected one running job, found {running}"


@pytest.mark.feature("MIG-2.filter")
@pytest.mark.case("MG-054", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_pod_that_waits_counts_as_unavailable(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A workload of four may lose one pod, and one has no room yet: the job waits. With room for it, the job runs."""
    with_nodes(trial, "n1", cpu=3)
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    name = wait_running(trial, "web", 3)[0].metadata.name
    limits = {"maxMigratingPerWorkload": 1, "maxUnavailablePerWorkload": 1}
    start_descheduler({}, migration={**limits, "objectLimiters": OFF})

    migrate(trial, "move", name, mode="EvictDirectly")

    begun = trial.wait(lambda: job(trial, "move").status.phase not in {"", "Pending"}, within=5)
    phase = job(trial, "move").status.phase
    assert not begun, f"one pod of the workload has no room: expected the job to wait, found phase {phase}"
    assert not trial.pod(name).deleting, f"pod {name} was evicted while another one of its workload had no room"
    with_nodes(trial, "n2")
    phase = ended(trial, "move").status.phase
    assert phase == "Succeeded", f"all pods of the workload have room: expected the job to succeed, found {phase}"


@pytest.mark.feature("MIG-1.devices")
@pytest.mark.case("MG-055", severity="critical")
def test_a_reservation_asks_for_devices_anew(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The reservation for a pod with a card is not tied to the card that the pod has: its template names none. It lives
    as long as the job may take."""
    trial.add(node("n1").gpus("a100-80g", 1), node("n2").gpus("a100-80g", 1))
    deployment(trial, "train", 1, like=pod("x").gpus(1))
    (old,) = wait_running(trial, "train", 1)
    assert DEVICE_ALLOCATED in old.metadata.annotations
    trial.apply(disruption_budget("keep", {"app": "train"}, min_available=1))
    start_descheduler({}, migration={"skipCheckExpectedReplicas": True, "maxUnavailablePerWorkload": 1})

    migrate(trial, "move", old.metadata.name, ttl="7m")

    spec = orjson.loads(trial.call("GET", reservation_path(trial, "move")).body)["spec"]
    assert DEVICE_ALLOCATED not in spec["template"]["metadata"].get("annotations", {})
    assert go_duration(spec["ttl"]) == 420


@pytest.mark.feature("MIG-1.reservation-first")
@pytest.mark.case("MG-053", severity="critical")
def test_no_place_is_reserved_for_pods_of_another_scheduler(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The pods name a scheduler that knows no reservations, and their node: the job fails, and the pod stays."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1).scheduler("another").node_name("n1"))
    name = wait_running(trial, "web", 3)[0].metadata.name
    start_descheduler({})

    migrate(trial, "move", name)

    done = ended(trial, "move", within=60)
    assert (done.status.phase, done.status.reason) == ("Failed", "ForbiddenMigratePod")
    assert not done.reservation_name
    assert not trial.pod(name).deleting


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case("MG-047", severity="critical")
def test_a_job_of_another_controller_is_left_alone(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Two jobs, the first with the mark of another controller: the second is carried out, the first is left alone."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 4)
    first, second = sorted(pod.metadata.name for pod in wait_running(trial, "web", 4))[:2]
    start_descheduler({})

    migrate(trial, "theirs", first, mode="EvictDirectly", annotations={CREATED_BY: "another"})
    migrate(trial, "ours", second, mode="EvictDirectly")

    assert ended(trial, "ours").status.phase == "Succeeded"
    assert job(trial, "theirs").status.phase in {"", "Pending"}
    assert not trial.pod(first).deleting


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case("MG-048", severity="normal")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("policy", ["Eviction", "Delete"])
def test_the_delete_options_of_a_job_are_those_of_its_eviction(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler, policy: str
) -> None:
    """The delete options ask for a dry run: the eviction, or the deletion, is accepted, and the pod stays."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})

    labels = {EVICT_POLICY: policy}
    migrate(trial, "try", name, mode="EvictDirectly", labels=labels, deleteOptions={"dryRun": ["All"]})

    def evicting() -> bool:
        return job(trial, "try").status.condition("Eviction") is not None

    assert trial.reaches(evicting, within=30), job(trial, "try").status
    expect.stable(seconds=5)
    assert not trial.pod(name).deleting
    assert job(trial, "try").open


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case(
    "MG-049", severity="normal", source="koordinator pkg/descheduler/controllers/migration/evictor@v1.7.0; spec RSV-R63"
)
@pytest.mark.parametrize(
    ("marks", "reason"), [({EVICT_REASON: "too hot"}, "too hot"), ({}, "Mine")], ids=["reason", "trigger"]
)
def test_a_pod_decides_how_it_is_evicted(
    trial: Trial, start_descheduler: StartDescheduler, marks: dict[str, str], reason: str
) -> None:
    """The label of a pod asks for a soft eviction: its annotation says so once, with the trigger, the reason and the
    delete options of the job, and the pod goes on."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1).label(EVICT_POLICY, "SoftEviction"))
    name = wait_running(trial, "web", 3)[0].metadata.name
    start_descheduler({})

    options = {"gracePeriodSeconds": 5}
    marks = {EVICT_TRIGGER: "Mine", **marks}
    migrate(trial, "ask", name, mode="EvictDirectly", annotations=marks, deleteOptions=options)

    def has_annotation() -> bool:
        pod = trial.find(name)
        return pod is not None and SOFT_EVICTION in pod.metadata.annotations

    assert trial.reaches(has_annotation, within=30), job(trial, "ask").status
    written = trial.pod(name).metadata.annotations[SOFT_EVICTION]
    request = orjson.loads(written)
    assert (request["initiator"], request["reason"], request["deleteOptions"]) == ("Mine", reason, options)
    trial.pass_time(10)
    assert (trial.pod(name).deleting, trial.pod(name).metadata.annotations[SOFT_EVICTION]) == (False, written)


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-317", severity="normal", source="spec RSV-R62: evict-reason, else evict-trigger, else NotSet")
def test_the_reason_of_an_eviction(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Events of three pods say why they go: by the reason of the job, by its trigger, or that there is none."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1).node_name("n1"))
    names = [pod.metadata.name for pod in wait_running(trial, "web", 3)]
    start_descheduler({}, migration=ALL_AT_ONCE)
    marks = [{EVICT_REASON: "too hot", EVICT_TRIGGER: "Mine"}, {EVICT_TRIGGER: "Mine"}, {}]
    for number, annotations in enumerate(marks):
        migrate(trial, f"move-{number}", names[number], mode="EvictDirectly", annotations=annotations)

    for number, reason in enumerate(["too hot", "Mine", "NotSet"]):
        assert ended(trial, f"move-{number}").status.phase == "Succeeded"
        messages = [event.message for event in trial.events(names[number]) if event.reason == "Descheduled"]
        assert messages == [f'Pod evicted from node "n1" by the reason "{reason}"']


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case(
    "MG-316", severity="normal", source="spec RSV-R80: jobs with the mode, ttl and options of the arguments"
)
@pytest.mark.long(seconds=6)
def test_what_jobs_of_strategies_are_like(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The job of an old pod has the mode, the time to live and the delete options of the configuration."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    trial.pass_time(2)
    options = {"gracePeriodSeconds": 7}
    more = {"defaultJobMode": "EvictDirectly", "defaultJobTTL": "7m", "defaultDeleteOptions": options}

    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration={**ALL_AT_ONCE, **more})

    assert trial.reaches(lambda: bool(jobs(trial)), within=15)
    spec = jobs(trial)[0].spec
    assert (spec.mode, go_duration(spec.ttl or ""), spec.delete_options) == ("EvictDirectly", 420.0, options)


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case("MG-068", severity="normal")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(("by", "goes"), [("pod", True), ("pod-and-not-job", True), ("job", True), ("nothing", False)])
def test_a_deletion_asks_no_budget(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler, by: str, *, goes: bool
) -> None:
    """A budget refuses evictions. With the policy Delete in the label of the pod or of the job the pod is deleted all
    the same, and without it it stays, by the policy of the configuration. The pod's label goes before the job's."""
    with_nodes(trial, "n1", "n2")
    like = pod("x").request(cpu=1)
    deployment(trial, "web", 3, like=like.label(EVICT_POLICY, "Delete") if by.startswith("pod") else like)
    name = wait_running(trial, "web", 3)[0].metadata.name
    trial.apply(disruption_budget("keep", {"app": "web"}, min_available=3))
    start_descheduler({}, migration={"evictionPolicy": "Eviction"})

    labels = {"job": {EVICT_POLICY: "Delete"}, "pod-and-not-job": {EVICT_POLICY: "Eviction"}}.get(by, {})
    migrate(trial, "move", name, mode="EvictDirectly", labels=labels)

    if goes:
        assert ended(trial, "move").status.phase == "Succeeded"
        assert trial.find(name) is None
    else:
        assert trial.reaches(lambda: runs(trial, "move"), within=30), job(trial, "move").status
        expect.stable(seconds=8)
        assert job(trial, "move").open


@pytest.mark.feature("MIG-1.evict-directly")
@pytest.mark.case("MG-330", severity="critical", source="ours: evictions name the UID of their pod")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("evictor", ["MigrationController", "DefaultEvictor"])
def test_evictions_name_the_uid_of_their_pod(trial: Trial, start_descheduler: StartDescheduler, evictor: str) -> None:
    """The API server refuses evictions without it: a pod that came under the same name would go by them."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    old = {pod.metadata.uid for pod in wait_running(trial, "web", 3)}
    evictions_by_uid(trial)
    trial.pass_time(2)
    migration = {**ALL_AT_ONCE, "defaultJobMode": "EvictDirectly", "evictionPolicy": "Eviction"}

    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=migration, evictor=evictor)

    assert trial.reaches(lambda: bool(old - {pod.metadata.uid for pod in trial.pods()}), within=30), trial.timeline()


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-050", severity="normal")
@pytest.mark.long(480)
def test_an_old_job_is_removed(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A job that has succeeded is deleted five minutes after its time to live of one minute, at the next look."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})
    migrate(trial, "move", name, mode="EvictDirectly", ttl="1m")
    assert ended(trial, "move").status.phase == "Succeeded"

    assert not trial.wait(lambda: gone(trial, "move"), within=300), "the job went before its time"
    assert trial.reaches(lambda: gone(trial, "move"), within=150), "the job is still there"


def gone(trial: Trial, name: str) -> bool:
    return trial.call("GET", f"{JOBS_PATH}/{name}").code == 404


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case(
    "MG-300", severity="normal", source="spec RSV-R53: jobs go ttl + 5 min after they came, 30 min without"
)
@pytest.mark.long(1300)
def test_a_job_that_may_take_for_ever_is_kept_longer(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A job without a time to live that has succeeded is still there after 20 minutes."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({}, deschedulingInterval="1h")
    migrate(trial, "move", name, mode="EvictDirectly", ttl="0s")
    assert ended(trial, "move").status.phase == "Succeeded"

    trial.pass_time(1200)
    assert not gone(trial, "move")


@pytest.mark.feature("MIG-1.phases")
@pytest.mark.case("MG-060", severity="critical")
@pytest.mark.long(seconds=11)
def test_a_migration_ends_when_the_new_pod_is_ready(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The node of the reservation starts no pods for a while: the new pod is bound there and not Ready, so the job goes
    on, with the name of the pod that it waits for. It succeeds when the node starts the pod."""
    with_nodes(trial, "n1", "n2")
    name = spread_victim(trial, "web", 3)
    start_descheduler({})
    freeze(trial, "n2")
    migrate(trial, "move", name)

    def waits() -> bool:
        met = [condition for condition in job(trial, "move").status.conditions if condition.type == "BoundPodReady"]
        return bool(met) and met[0].status == "False"

    assert trial.reaches(waits, within=30), job(trial, "move")
    since = job(trial, "move").status.condition("BoundPodReady")
    trial.pass_time(8)

    assert job(trial, "move").status.phase == "Running"
    thaw(trial, "n2")
    done = ended(trial, "move").status
    ready = done.condition("BoundPodReady")
    assert since is not None
    assert ready is not None
    assert (done.phase, ready.status) == ("Succeeded", "True")
    assert (ready.last_transition_time or "") > (since.last_transition_time or ""), "its status has changed since"
