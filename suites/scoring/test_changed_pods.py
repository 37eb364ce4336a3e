"""Pods that change while they wait: what they are at the next attempt decides, in both directions.

Each change is followed by an event that has any scheduler try the pod again.
"""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY
from seatrial.suites.scoring.rules import HOST, Json, apart_from, patch, pod_with, waits

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("SCORE-4.queue")]

UPDATE = "kubernetes pkg/scheduler/backend/queue/scheduling_queue.go@v1.34: PriorityQueue.Update"
AFFINITY = {RESERVATION_AFFINITY: '{"reservationSelector": {"pool": "none"}}'}
TOLERATION = {"key": "team", "operator": "Exists", "effect": "NoSchedule"}


def of_pod(trial: Trial, name: str, body: Json) -> None:
    """Change a pod; the scheduler sees it before the case goes on."""
    patch(trial, f"/api/v1/namespaces/{trial.name}/pods/{name}", body)
    trial.settle()


def guarded(trial: Trial, expect: Expect) -> None:
    """n1, with a pod that keeps pods of app `shunned` away, and a pod that holds the rest."""
    trial.add(node("n1").cpu(4))
    guard = pod_with("guard", "guard", affinity=apart_from("shunned")).request(cpu=1)
    trial.submit(guard, pod_with("holder", "holder").request(cpu=3))
    expect.running("guard", "holder")


@pytest.mark.case("SC-460", severity="critical", source=UPDATE)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    ("before", "change", "saying"),
    [
        pytest.param({"app": "shunned"}, {"metadata": {"labels": {"app": "a"}}}, "anti-affinity", id="label"),
        pytest.param({}, {"spec": {"tolerations": [TOLERATION]}}, "untolerated taint", id="toleration"),
        pytest.param(
            {"annotations": AFFINITY}, {"metadata": {"annotations": {RESERVATION_AFFINITY: None}}}, "", id="annotation"
        ),
    ],
)
def test_what_kept_a_waiting_pod_away_is_gone(
    trial: Trial, expect: Expect, before: dict[str, Any], change: Json, saying: str
) -> None:
    """The label, annotation or missing toleration that keeps a pod from a node with room is changed: it is bound."""
    guarded(trial, expect)
    trial.delete("holder")
    if saying == "untolerated taint":
        patch(trial, "/api/v1/nodes/n1", {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
        trial.settle()
    waiting = pod_with("waits", before.get("app", "a")).request(cpu=2)
    for key, value in before.get("annotations", {}).items():
        waiting.annotation(key, value)
    trial.submit(waiting)
    waits(expect, "waits", saying)
    trial.pass_time(10)  # its backoff is over

    of_pod(trial, "waits", change)
    trial.add(node("n2").cpu(1))

    assert expect.bound("waits", within=20).spec.node_name == "n1"


@pytest.mark.case("SC-461", severity="critical", source=UPDATE)
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": {"app": "shunned"}}, id="label"),
        pytest.param({"annotations": AFFINITY}, id="annotation"),
    ],
)
def test_what_keeps_a_pod_away_comes_while_it_waits_for_room(trial: Trial, expect: Expect, change: Json) -> None:
    """A pod waits for room, and gets a label or annotation that keeps it from the node. There is room: it waits on,
    and is bound when it is as before."""
    guarded(trial, expect)
    trial.submit(pod_with("waits").request(cpu=3))
    expect.pending("waits", saying="Insufficient cpu")
    trial.pass_time(2)

    of_pod(trial, "waits", {"metadata": change})
    trial.delete("holder")

    waits(expect, "waits")
    key = next(iter(change))
    former: Json = {"app": "a"} if key == "labels" else {RESERVATION_AFFINITY: None}
    of_pod(trial, "waits", {"metadata": {key: former}})
    trial.add(node("n2").cpu(1))
    expect.bound("waits", within=20)
