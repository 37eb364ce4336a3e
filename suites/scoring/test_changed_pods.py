"""Pods, and namespaces, that change while pods wait: what they are at the next attempt decides, in both directions.

Each change is followed by an event that has any scheduler try the pod again.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.device import DEVICE_ALLOCATE_HINT
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY
from seatrial.suites.scoring.rules import REQUIRED, Json, apart_from, patch, pod_with, term, waits

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("SCORE-4.queue")]

UPDATE = "kubernetes pkg/scheduler/backend/queue/scheduling_queue.go@v1.34: PriorityQueue.Update"
SHUNNED: Json = {"labels": {"app": "shunned"}}
NO_RESERVATION: Json = {"annotations": {RESERVATION_AFFINITY: '{"reservationSelector": {"pool": "none"}}'}}
NO_CARD: Json = {
    "annotations": {
        DEVICE_ALLOCATE_HINT: orjson.dumps({"gpu": {"selector": {"matchLabels": {"pool": "none"}}}}).decode()
    }
}
TOLERATION = {"key": "team", "operator": "Exists", "effect": "NoSchedule"}


def change(trial: Trial, body: Json) -> None:
    """Change the pod that waits; the scheduler sees it before the case goes on."""
    patch(trial, f"/api/v1/namespaces/{trial.name}/pods/waits", body)
    trial.settle()


def without(metadata: Json) -> Json:
    """The change that takes these labels or annotations away."""
    return {"metadata": {key: dict.fromkeys(values) for key, values in metadata.items()}}


def begin(trial: Trial, expect: Expect, *, held: int, **metadata: dict[str, str]) -> None:
    """A node with a pod that keeps pods of app `shunned` away, and one that holds CPUs; a pod of three CPUs and a half
    of the card, with these labels and annotations, waits."""
    trial.add(node("n1").cpu(4).gpus("a10", 1))
    guard = pod_with("guard", "guard", affinity=apart_from("shunned")).request(cpu="500m")
    trial.submit(guard, pod_with("holder", "holder").request(cpu=held))
    expect.running("guard", "holder")
    waiting = pod_with("waits").gpu_share(50).request(cpu=3)
    for key, value in metadata.get("labels", {}).items():
        waiting.label(key, value)
    for key, value in metadata.get("annotations", {}).items():
        waiting.annotation(key, value)
    trial.submit(waiting)


@pytest.mark.case("SC-460", severity="critical", source=UPDATE)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(SHUNNED, id="label"),
        pytest.param(NO_RESERVATION, id="reservation-affinity"),
        pytest.param(NO_CARD, id="device-hint"),
    ],
)
def test_what_keeps_a_waiting_pod_away_goes(trial: Trial, expect: Expect, metadata: Json) -> None:
    """A pod has a label or annotation that keeps it from a node with room. Without it the pod is bound there."""
    begin(trial, expect, held=0, **metadata)
    waits(expect, "waits")
    trial.pass_time(10)  # its backoff is over

    change(trial, without(metadata))
    trial.add(node("n2").cpu(1))

    assert expect.bound("waits", within=20).spec.node_name == "n1"


@pytest.mark.case(
    "SC-620",
    severity="critical",
    source="kubernetes plugins/interpodaffinity/plugin.go@v1.34: isSchedulableAfterPodChange",
)
@pytest.mark.long(seconds=15)
def test_a_change_of_its_own_labels_has_a_pod_tried(trial: Trial, expect: Expect) -> None:
    """A pod has a label that keeps it from the only node. Without it the pod is bound, though nothing else changes."""
    begin(trial, expect, held=0, **SHUNNED)
    waits(expect, "waits")
    trial.pass_time(10)  # its backoff is over

    change(trial, without(SHUNNED))

    expect.bound("waits", within=20)


@pytest.mark.case("SC-461", severity="critical", source=UPDATE)
@pytest.mark.long(seconds=15)
def test_a_waiting_pod_gets_a_toleration(trial: Trial, expect: Expect) -> None:
    """A pod waits for a tainted node: with a toleration it is bound there."""
    trial.add(node("n1").cpu(4).taint("team"))
    trial.submit(pod_with("waits").request(cpu=2))
    waits(expect, "waits", "untolerated taint")
    trial.pass_time(10)  # its backoff is over

    change(trial, {"spec": {"tolerations": [TOLERATION]}})

    expect.bound("waits", within=20)


@pytest.mark.case("SC-465", severity="critical", source=UPDATE)
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(SHUNNED, id="label"),
        pytest.param(NO_RESERVATION, id="reservation-affinity"),
        pytest.param(NO_CARD, id="device-hint"),
    ],
)
def test_what_keeps_a_pod_away_comes_while_it_waits_for_room(trial: Trial, expect: Expect, metadata: Json) -> None:
    """A pod waits for room, and gets a label or annotation that keeps it from the node. There is room: it waits on."""
    begin(trial, expect, held=3)
    expect.pending("waits", saying="Insufficient cpu")
    trial.pass_time(2)

    change(trial, {"metadata": metadata})
    trial.delete("holder")

    waits(expect, "waits")
    change(trial, without(metadata))
    trial.add(node("n2").cpu(1))
    expect.bound("waits", within=20)


@pytest.mark.case(
    "SC-467", severity="normal", source="kubernetes plugins/interpodaffinity: EventsToRegister, namespaces"
)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # labels of a namespace
@pytest.mark.long(seconds=15)
def test_a_namespace_gets_the_label_that_a_waiting_pod_selects(trial: Trial, expect: Expect) -> None:
    """A pod has to be beside a pod of a namespace with a label. The namespace of that pod gets it: the pod is bound."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod_with("partner", "partner"))
    expect.bound("partner")
    near = term("partner", namespaceSelector={"matchLabels": {"team": "own"}})
    trial.submit(pod_with("waits", affinity={"podAffinity": {REQUIRED: [near]}}))
    waits(expect, "waits", "affinity")
    trial.pass_time(12)  # its backoff is over

    patch(trial, f"/api/v1/namespaces/{trial.name}", {"metadata": {"labels": {"team": "own"}}})

    expect.bound("waits", within=20)
