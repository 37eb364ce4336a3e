"""The order of waiting pods, gates, other schedulers, and what follows a binding.

Each case is set up where scores and chance cannot give the same result: one node is left, or none.
"""

from itertools import permutations

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.faults.schedulers import link, pause, running, witnessed
from seatrial.suites.scoring.claims import StorageOfCase, storage
from seatrial.suites.scoring.rules import HOST, REQUIRED, Json, patch, pod_with, waits

__all__ = ["link", "running", "storage"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-140", severity="critical")
@pytest.mark.long(seconds=15)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # nodes of other cases wake pods, whose backoff then begins anew
def test_the_more_important_pod_is_first(trial: Trial, expect: Expect) -> None:
    """Of pods that wait for one place, the more important one gets it although it came later; equal ones by age."""
    for name, value in (("top", 100), ("middle", 50), ("bottom", 1)):
        trial.apply(priority_class(f"queue-{name}", value, preempts=False))
    trial.add(node("n1").cpu(4))
    trial.submit(pod_with("holder").request(cpu=3).priority_class("queue-top"))
    expect.bound("holder")
    trial.submit(pod_with("low").request(cpu=3).priority_class("queue-bottom"))
    expect.pending("low")
    trial.submit(pod_with("high").request(cpu=3).priority_class("queue-middle"))
    expect.pending("high")
    trial.submit(pod_with("late").request(cpu=3).priority_class("queue-middle"))
    expect.pending("late")
    trial.pass_time(15)
    for before, after in (("holder", "high"), ("high", "late"), ("late", "low")):
        trial.delete(before)
        expect.bound(after)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-141", severity="critical")
@pytest.mark.long(seconds=14)
def test_gates_hold_a_pod_back(trial: Trial, expect: Expect) -> None:
    """A pod with a scheduling gate is not placed on a free node; it is when the gate is removed."""
    trial.add(node("n1"))
    trial.submit(pod_with("gated", schedulingGates=[{"name": "example.com/wait"}]), pod_with("free"))
    expect.bound("free")
    expect.stable(seconds=12)  # what a scheduler does at its start is done
    assert not trial.pod("gated").spec.node_name
    patch(trial, f"/api/v1/namespaces/{trial.name}/pods/gated", {"spec": {"schedulingGates": None}})
    expect.bound("gated")


@pytest.mark.feature("SHELL-1.profiles")
@pytest.mark.case("SC-142", severity="critical")
def test_pods_of_another_scheduler_are_left_alone(trial: Trial, expect: Expect) -> None:
    """A pod that names a scheduler that does not run is not placed."""
    trial.add(node("n1"))
    trial.submit(pod_with("foreign").scheduler("somebody-else"), pod_with("own"))
    expect.bound("own")
    expect.stable(seconds=5)
    assert not trial.pod("foreign").spec.node_name


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-143", severity="critical")
@pytest.mark.long(seconds=13)
def test_waiting_pods_are_placed_as_room_comes(trial: Trial, expect: Expect) -> None:
    """Three pods that wait are all placed when a node with room for three is added, long before any retry."""
    trial.add(node("n1").cpu(1))
    trial.submit(*(pod_with(f"p{number}").request(cpu=2) for number in range(3)))
    for number in range(3):
        expect.pending(f"p{number}", saying="Insufficient cpu")
    trial.pass_time(12)
    trial.add(node("n2").cpu(6))
    pods = expect.bound("p0", "p1", "p2", within=20)
    assert {placed.spec.node_name for placed in pods} == {"n2"}


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-181", severity="critical")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(("freed", "full"), [("n1", "n2"), ("n2", "n1")])
def test_pods_for_two_nodes_do_not_wait_for_each_other(trial: Trial, expect: Expect, freed: str, full: str) -> None:
    """Two pods name a full node each, as a DaemonSet's pods do. One node is freed: its pod is placed, long before any
    retry; the other waits."""
    trial.add(node("n1").cpu(2), node("n2").cpu(2))
    trial.submit(*(pod_with(f"holds-{name}").request(cpu=2).select({HOST: name}) for name in (freed, full)))
    expect.bound(f"holds-{freed}", f"holds-{full}")
    for name in (full, freed):  # the one that stays is the older one
        field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        rule = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [field]}}}
        trial.submit(pod_with(f"for-{name}", affinity=rule).request(cpu=2))
        expect.pending(f"for-{name}")
    trial.pass_time(12)  # the backoff of both is over
    trial.delete(f"holds-{freed}")
    assert expect.bound(f"for-{freed}", within=20).spec.node_name == freed
    expect.stable(seconds=3)
    assert not trial.pod(f"for-{full}").spec.node_name


@pytest.mark.feature("SCORE-4.queue", "SCORE-4.volumes")
@pytest.mark.case(
    "SC-563", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromCache moves pods"
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("freed", ["n1", "n2"])
def test_equal_pods_with_volumes_on_two_nodes(trial: Trial, expect: Expect, storage: StorageOfCase, freed: str) -> None:
    """Two equal pods wait, whose volumes are on n1 and on n2. One of the nodes gets room: its pod is bound."""
    storage.of_class()
    hosts = ("n1", "n2")
    trial.add(*(node(host).cpu(2) for host in hosts))
    trial.submit(*(pod_with(f"holder-{host}").request(cpu=2).select({HOST: host}) for host in hosts))
    expect.bound(*(f"holder-{host}" for host in hosts))
    for host in hosts:
        storage.volume(host, host, of=host)
        storage.claim(host, selector={"matchLabels": {"of": host}})
        volumes: list[Json] = [{"name": "v", "persistentVolumeClaim": {"claimName": host}}]
        trial.submit(pod_with(f"for-{host}", volumes=volumes).request(cpu=2))
    expect.pending("for-n1", "for-n2")

    trial.delete(f"holder-{freed}")

    assert expect.bound(f"for-{freed}", within=20).spec.node_name == freed


@pytest.mark.feature("SHELL-5.binding")
@pytest.mark.case("SC-144", severity="normal")
def test_the_event_of_a_binding(trial: Trial, expect: Expect) -> None:
    """A placed pod has an event Scheduled that names its node; a refused one has FailedScheduling with the reason."""
    trial.add(node("n1").cpu(1))
    trial.submit(pod_with("p"), pod_with("q").request(cpu=2))
    expect.bound("p")
    expect.pending("q")

    def says(name: str, reason: str, part: str) -> bool:
        return any(event.reason == reason and part in event.message for event in trial.events(name))

    assert trial.reaches(lambda: says("p", "Scheduled", "n1"), within=30), trial.events("p")
    assert trial.reaches(lambda: says("q", "FailedScheduling", "Insufficient cpu"), within=30), trial.events("q")


@pytest.mark.feature("SHELL-5.binding")
@pytest.mark.case("SC-722", severity="normal", source="kubernetes pkg/scheduler/schedule_one.go@v1.34: Eventf")
def test_the_type_of_an_event(trial: Trial, expect: Expect) -> None:
    """The event of a placed pod is a normal one about a binding; that of a refused one is a warning."""
    trial.add(node("n1").cpu(1))
    trial.submit(pod_with("p"), pod_with("q").request(cpu=2))
    expect.bound("p")
    expect.pending("q")
    path = f"/apis/events.k8s.io/v1/namespaces/{trial.name}/events"

    def types() -> dict[str, tuple[str, str]]:
        rows = orjson.loads(trial.call("GET", path).body)["items"]
        return {row["reason"]: (row["type"], row.get("action") or "") for row in rows}

    assert trial.reaches(lambda: types().keys() >= {"Scheduled", "FailedScheduling"}, within=30), types()
    # Recorders of the older API give no action.
    assert types()["Scheduled"] in {("Normal", "Binding"), ("Normal", "")}, types()
    assert types()["FailedScheduling"] in {("Warning", "Scheduling"), ("Warning", "")}, types()


@pytest.mark.feature("SHELL-5.binding")
@pytest.mark.case(
    "SC-690", severity="normal", source="kubernetes pkg/apis/core/validation/events.go@v1.37.2: NoteLengthLimit"
)
def test_a_long_reason_is_cut_in_its_event(trial: Trial, expect: Expect) -> None:
    """A pod asks for thirty resources that no node has: its event is no longer than the API server takes."""
    trial.add(node("n1"))
    trial.submit(
        pod("p").request(**{f"example.com/a-resource-of-a-vendor-with-number-{number}": 1 for number in range(30)})
    )
    expect.pending("p")

    def notes() -> list[str]:
        return [event.message for event in trial.events("p") if event.reason == "FailedScheduling"]

    assert trial.reaches(lambda: bool(notes()), within=30), trial.events("p")
    assert all(note.startswith("0/1 nodes are available") and len(note.encode()) <= 1024 for note in notes()), notes()


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-145", severity="critical")
def test_an_ended_pod_makes_room(trial: Trial, expect: Expect) -> None:
    """A pod that has failed holds no CPU: a pod that waits for it is placed."""
    trial.add(node("n1").cpu(2))
    trial.submit(pod_with("first", restartPolicy="Never").request(cpu=2))
    expect.running("first")
    trial.submit(pod_with("second").request(cpu=2))
    waits(expect, "second", "Insufficient cpu")
    path = f"/api/v1/namespaces/{trial.name}/pods/first/status"
    patch(trial, path, {"status": {"phase": "Failed"}})
    expect.bound("second")


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-551", severity="critical", source="ours")
@pytest.mark.long(seconds=8)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
@pytest.mark.parametrize("order", list(permutations(("high", "middle", "low"))), ids="-".join)
def test_of_pods_that_come_at_once_the_most_important_are_placed(
    trial: Trial, expect: Expect, link: Link, order: tuple[str, ...]
) -> None:
    """Three pods of different priorities come while the scheduler is disconnected, in any order, and there is room for
    two: the least important one waits."""
    values = {"high": 3000, "middle": -1000, "low": -2000}
    trial.apply(*(priority_class(f"trial-{name}", value, preempts=False) for name, value in values.items()))
    trial.add(node("n1").cpu(2))
    witnessed(trial, expect)
    link.cut()
    for name in order:
        trial.submit(pod(name).request(cpu=1).priority_class(f"trial-{name}"))
    pause(trial, 2, real=2)

    link.heal()

    expect.bound("high", "middle", within=60)
    expect.pending("low")


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-720", severity="normal", source="kubernetes plugins/queuesort/priority_sort.go@v1.34: Less")
@pytest.mark.long(seconds=8)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
def test_of_equal_pods_that_are_heard_of_at_once_the_older_is_placed(trial: Trial, expect: Expect, link: Link) -> None:
    """Two important pods come, and a less important one between them, while the scheduler hears of none. There is room
    for one: the older one of the important pods gets it."""
    trial.apply(priority_class("trial-high", 3000, preempts=False))
    trial.add(node("n1").cpu(1))
    witnessed(trial, expect)
    link.hold_streams()
    for name, level in (("z", "trial-high"), ("m", ""), ("a", "trial-high")):
        built = pod(name).request(cpu=1)
        trial.submit(built.priority_class(level) if level else built)
        pause(trial, 1, real=1)
    link.heal()
    expect.bound("z", within=60)
    expect.pending("a", "m")
