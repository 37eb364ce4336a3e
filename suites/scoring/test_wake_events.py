"""What wakes several pods that wait: one object changes so that all have a place, and nothing else happens.

Two of the pods are equal and one is of another kind. The change comes after their backoff or in it.
"""

from collections.abc import Callable

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import BindingsOf, Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.scoring.rules import REQUIRED, ZONE, Json, apart_from, patch, pod_with, resize, spread, term

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

Event = Callable[[], object]
PODS = ("first", "second", "other")
NODE = "/api/v1/nodes/{}"
DONGLE = "example.com/wake-dongle"


def waiting(**spec: Json | list[Json]) -> list[PodBuilder]:
    """The pods that wait, of one CPU each. The last one asks for memory, too."""
    built = [pod_with(name, "waits", **spec).request(cpu=1) for name in PODS]
    built[-1].request(memory="64Mi")
    return built


def submit(trial: Trial, **spec: Json | list[Json]) -> None:
    trial.submit(*waiting(**spec))


def node_added(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(0))
    submit(trial)
    return lambda: trial.add(node("n2").cpu(4))


def first_node_added(trial: Trial, _expect: Expect) -> Event:
    submit(trial)
    return lambda: trial.add(node("n1").cpu(4))


def node_grows(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(0))
    submit(trial)
    amounts = {"cpu": "4"}
    body = {"status": {"allocatable": amounts, "capacity": amounts}}
    return lambda: trial.call("PATCH", f"{NODE.format('n1')}/status", body, kind=STRATEGIC_MERGE_PATCH)


def new_resource(trial: Trial, _expect: Expect) -> Event:
    """No node has had the resource before."""
    trial.add(node("n1").cpu(4))
    trial.submit(*(built.resources({DONGLE: 1}) for built in waiting()))
    body = {"status": {"allocatable": {DONGLE: "4"}, "capacity": {DONGLE: "4"}}}
    return lambda: trial.call("PATCH", f"{NODE.format('n1')}/status", body, kind=STRATEGIC_MERGE_PATCH)


def taint_removed(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4).taint("closed"))
    submit(trial)
    return lambda: patch(trial, NODE.format("n1"), {"spec": {"taints": []}})


def uncordoned(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4))
    patch(trial, NODE.format("n1"), {"spec": {"unschedulable": True}})
    submit(trial)
    return lambda: patch(trial, NODE.format("n1"), {"spec": {"unschedulable": None}})


def node_label_added(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4), node("n2").cpu(0).label("pool", "a"))
    submit(trial, nodeSelector={"pool": "a"})
    return lambda: patch(trial, NODE.format("n1"), {"metadata": {"labels": {"pool": "a"}}})


def hold(trial: Trial, expect: Expect) -> None:
    trial.add(node("n1").cpu(4))
    trial.submit(pod("holder").request(cpu=4))
    expect.running("holder")
    submit(trial)


def pod_deleted(trial: Trial, expect: Expect) -> Event:
    hold(trial, expect)
    return lambda: trial.delete("holder")


def pod_succeeded(trial: Trial, expect: Expect) -> Event:
    hold(trial, expect)
    return lambda: patch(trial, f"{trial.path('Pod', 'holder')}/status", {"status": {"phase": "Succeeded"}})


def pod_shrinks(trial: Trial, expect: Expect) -> Event:
    hold(trial, expect)
    return lambda: resize(trial, "holder", "1")


def partner(trial: Trial, expect: Expect, label: str) -> None:
    trial.add(node("n1").cpu(4))
    trial.submit(pod_with("partner", label))
    expect.running("partner")


def partner_comes(trial: Trial, expect: Expect) -> Event:
    partner(trial, expect, "nobody")
    submit(trial, affinity={"podAffinity": {REQUIRED: [term("partner")]}})
    return lambda: trial.submit(pod_with("another", "partner"))


def partner_labelled(trial: Trial, expect: Expect) -> Event:
    partner(trial, expect, "nobody")
    submit(trial, affinity={"podAffinity": {REQUIRED: [term("partner")]}})
    return lambda: patch(trial, trial.path("Pod", "partner"), {"metadata": {"labels": {"app": "partner"}}})


def opponent_leaves(trial: Trial, expect: Expect) -> Event:
    partner(trial, expect, "opponent")
    submit(trial, affinity=apart_from("opponent"))
    return lambda: trial.delete("partner")


def opponent_labelled(trial: Trial, expect: Expect) -> Event:
    partner(trial, expect, "opponent")
    submit(trial, affinity=apart_from("opponent"))
    return lambda: patch(trial, trial.path("Pod", "partner"), {"metadata": {"labels": {"app": "nobody"}}})


def empty_zone_gone(trial: Trial, expect: Expect) -> Event:
    """The zone without a pod of the constraint has no room."""
    trial.add(node("n1").cpu(8).label(ZONE, "a"), node("n2").cpu(0).label(ZONE, "b"))
    trial.submit(pod_with("counted", "waits").request(cpu=1))
    expect.running("counted")
    submit(trial, topologySpreadConstraints=spread("waits", topologyKey=ZONE))
    return lambda: trial.call("DELETE", NODE.format("n2"))


def holder_on_its_node_leaves(trial: Trial, expect: Expect) -> Event:
    """The pods name their node."""
    trial.add(node("n1").cpu(4), node("n2").cpu(0))
    trial.submit(pod("holder").request(cpu=4))
    expect.running("holder")
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    submit(trial, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}})
    return lambda: trial.delete("holder")


EVENTS = [
    node_added,
    pytest.param(first_node_added, marks=pytest.mark.needs(Capability.OWN_CLUSTER)),
    node_grows,
    new_resource,
    taint_removed,
    uncordoned,
    node_label_added,
    pod_deleted,
    pytest.param(pod_succeeded, marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),  # a kubelet writes its own status
    partner_comes,
    partner_labelled,
    opponent_leaves,
    opponent_labelled,
    empty_zone_gone,
    holder_on_its_node_leaves,
]


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-490", severity="critical", source="kubernetes queue/scheduling_queue.go: isPodWorthRequeuing")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
@pytest.mark.parametrize("prepared", EVENTS, ids=lambda call: call.__name__)
def test_an_event_wakes_all_pods_that_it_helps(
    trial: Trial, expect: Expect, prepared: Callable[[Trial, Expect], Event], *, cooled: bool
) -> None:
    """Three pods wait, two of them equal. An object changes: all three are bound."""
    event = prepared(trial, expect)
    expect.pending(*PODS, cooled=cooled)

    event()

    expect.bound(*PODS, within=20)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-493", severity="critical", source="kubernetes 1.34 pkg/scheduler/framework/events.go")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_a_pod_that_shrinks_wakes_all_pods_that_it_helps(trial: Trial, expect: Expect, *, cooled: bool) -> None:
    """A pod is resized in place, which Kubernetes can do since 1.33."""
    test_an_event_wakes_all_pods_that_it_helps(trial, expect, pod_shrinks, cooled=cooled)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case(
    "SC-491",
    severity="critical",
    source="koordinator: pkg/scheduler/plugins/elasticquota/plugin.go@v1.7.0 (EventsToRegister)",
)
@pytest.mark.long(seconds=20)
@pytest.mark.needs(Capability.OWN_CLUSTER)
@pytest.mark.profile(KOORD_SCHEDULER)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
@pytest.mark.parametrize("cause", ["grows", "pod-leaves"])
def test_a_quota_with_room_wakes_all_pods(trial: Trial, expect: Expect, cause: str, *, cooled: bool) -> None:
    """Three pods wait for room in their quota. The quota grows, or a pod of it is deleted: all three are bound."""
    name = f"{trial.name}-team"
    trial.add(node("n1").cpu(16))
    trial.apply(quota(name).max(cpu=4).manifest)
    trial.submit(pod("holder").request(cpu=4).quota(name).scheduler(KOORD_SCHEDULER))
    expect.running("holder")
    trial.submit(*(built.quota(name).scheduler(KOORD_SCHEDULER) for built in waiting()))
    expect.pending(*PODS, cooled=cooled)

    if cause == "grows":
        path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas")
        patch(trial, f"{path}/{name}", {"spec": {"max": {"cpu": "8"}}})
    else:
        trial.delete("holder")

    expect.bound(*PODS, within=20)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case(
    "SC-492",
    severity="critical",
    source="kubernetes pkg/scheduler/schedule_one.go: handleBindingCycleError moves waiting pods as for a deleted pod",
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.parametrize("equal", [True, False])
def test_a_failed_binding_wakes_the_next_pod(trial: Trial, expect: Expect, link: Link, *, equal: bool) -> None:
    """The binding of a pod takes some seconds and fails. A pod that waits for the room meanwhile is bound."""
    trial.add(node("n1").cpu(4))
    trial.settle()
    link.delay = 4.0
    link.refuse(500, BindingsOf("first"))
    trial.submit(pod("first").request(cpu=4))
    trial.pass_time(1)
    trial.submit(pod("second").request(cpu=4) if equal else pod("second").request(cpu=4, memory="64Mi"))
    try:
        trial.pass_time(1)
        assert not trial.pod("second").spec.node_name, "bound although the first pod may still be bound"
        expect.bound("second", within=20)
    finally:
        link.heal()
        link.delay = 0.0
