"""The answer to a binding is lost or late: no card is given to two pods, and only bindings that took place count."""

from collections.abc import Mapping

import orjson
import pytest

from seatrial.fixtures.allocated_devices import parts
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import (
    BindingsOf,
    Link,
    OfKind,
    bindings,
    nothing,
    reservation_placements,
    volume_writes,
)
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class, quota, reservation
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.allocation.reserving import reserved_devices
from seatrial.suites.faults.schedulers import link, pause, running, witnessed
from seatrial.suites.quota.quotas import counted, make, named
from seatrial.suites.scoring.claims import PROVISIONER, SELECTED_NODE, StorageOfCase, storage
from seatrial.suites.scoring.rules import HOST

__all__ = ["link", "running", "storage"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-050", severity="blocker")
@pytest.mark.long(seconds=17)
def test_a_binding_without_an_answer_keeps_its_card(trial: Trial, expect: Expect, link: Link) -> None:
    """Two pods want the only card. One is bound, its answer is lost and the watch is silent: the other waits.

    The other is more important, and tried later because its bindings were refused more often.
    """
    trial.apply(priority_class("trial-high", 9000, preempts=False))
    trial.add(node("n1").gpus("a10", 1))
    witnessed(trial, expect)
    link.refuse(500, bindings)
    trial.submit(pod("b").gpus(1).priority_class("trial-high"))
    assert trial.wait(lambda: link.refused >= 3, within=60), "three bindings of b were to be tried"
    trial.submit(pod("a").gpus(1))
    assert trial.wait(lambda: link.refused >= 4, within=60), "a binding of a was to be tried"
    link.heal()
    link.hold_streams()
    link.lose_answers(bindings)
    assert trial.wait(lambda: link.lost >= 1, within=60), "a binding was to be carried out"
    pause(trial, 60, real=4)
    names = sorted(pod.metadata.name for pod in trial.pods() if pod.spec.node_name and parts(pod))
    assert len(names) == 1, f"expected the only card to have one pod, found it given to {names}"
    link.heal()
    expect.stable(seconds=5)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-081", severity="critical")
@pytest.mark.profile(KOORD_SCHEDULER)
@pytest.mark.needs(Capability.OWN_CLUSTER)
@pytest.mark.long(seconds=17)
def test_a_reservation_whose_place_has_no_answer_keeps_its_card(trial: Trial, expect: Expect, link: Link) -> None:
    """A reservation and a pod want the only card. The reservation gets it, its answer is lost and the watch is silent:
    the pod waits."""
    trial.add(node("n1").gpus("a10", 1))
    witnessed(trial, expect)
    name = f"{trial.name}-r"
    link.refuse(500, bindings)
    trial.submit(pod("p").gpus(1).scheduler(KOORD_SCHEDULER))
    assert trial.wait(lambda: link.refused >= 3, within=60), "three bindings of the pod were to be tried"
    link.delay = 2.0  # between the devices of the reservation, which are written first, and its place
    trial.apply(reservation(name).like(pod("x").gpus(1)).for_labels(app="a").manifest)
    assert trial.wait(lambda: reserved_devices(trial, name) != "", within=60), "devices were to be written"
    link.hold_streams()
    link.lose_answers(reservation_placements)
    assert trial.wait(lambda: link.lost >= 1, within=60), "the reservation was to be placed"
    link.delay = 0.0
    link.refuse(500, nothing)
    pause(trial, 60, real=12)
    assert not trial.pod("p").spec.node_name, "the card was given to the pod although it is reserved"
    link.heal()
    expect.pending("p")
    current_reservation = trial.reservation(name)
    assert current_reservation is not None
    assert current_reservation.status.node_name == "n1"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-051", severity="normal")
@pytest.mark.long(seconds=13)
def test_a_pod_of_the_same_name_is_another_pod(trial: Trial, expect: Expect, link: Link) -> None:
    """A binding is refused, and the pod is replaced by one of its name that runs on the same node: the scheduler does
    not write that it bound the first."""
    trial.add(node("n1"))
    witnessed(trial, expect)
    link.refuse(500)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 2, within=60), "expected a binding and a read of the pod"
    first = trial.pod("p").metadata.uid
    trial.delete("p")
    trial.submit(pod("p").node_name("n1"))
    link.heal()
    pause(trial, 30, real=8)
    response = trial.call("GET", f"/api/v1/namespaces/{trial.name}/events")
    messages = [
        row["message"]
        for row in orjson.loads(response.body)["items"]
        if row["involvedObject"].get("uid") == first and row["reason"] == "Scheduled"
    ]
    assert not messages, f"no binding of the first pod was accepted; its events: {messages}"


def bind(trial: Trial, name: str, where: str, annotations: Mapping[str, str] | None = None) -> None:
    """Bind a pod as another scheduler does."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "target": {"kind": "Node", "name": where},
    }
    assert trial.call("POST", f"{trial.path('Pod', name)}/binding", body).ok


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case(
    "FT-142", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromSchedulingQueue"
)
@pytest.mark.long(seconds=17)
def test_a_pod_that_another_scheduler_bound_is_not_tried_again(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings are refused for a while; meanwhile another scheduler binds the pod. No further binding is tried."""
    trial.add(node("n1"))
    witnessed(trial, expect)
    link.refuse(403, bindings)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 3, within=60), "the binding was to be tried"
    bind(trial, "p", "n1")
    pause(trial, 2, real=2)  # the scheduler has seen it
    tries = link.refused
    pause(trial, 60, real=12)
    assert link.refused == tries, f"expected no further try, found {link.refused - tries}"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-052", severity="critical", source="ours: upstream writes that its binding was refused")
@pytest.mark.long(seconds=20)
def test_a_pod_that_another_scheduler_bound_is_left_alone(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings are refused for a while; meanwhile another scheduler binds the pod, and the watch is silent. Ours gives
    up: it writes no rejection to the pod."""
    trial.add(node("n1"), node("n2"))
    witnessed(trial, expect)
    link.refuse(500, bindings)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 3, within=60), "the binding was to be tried"
    pause(trial, 0.5, real=0.5)  # the scheduler has read that the pod is not bound, and waits for its next attempt
    link.hold_streams()
    bind(trial, "p", "n2")
    link.refuse(500, nothing)  # nothing more; the streams stay silent

    pause(trial, 40, real=12)

    taken = [event.message for event in trial.events("p") if "already assigned" in event.message]
    assert not taken, f"expected no word about the other scheduler's binding, found {taken}"
    link.heal()
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-070", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_pod_that_goes_while_its_binding_is_in_doubt_gives_its_card_back(
    trial: Trial, expect: Expect, link: Link
) -> None:
    """All requests fail while the only card is being given to the first pod, and the second waits. The first is
    deleted, and the watch is silent: the second gets the card."""
    trial.add(node("n1").gpus("a10", 1))
    witnessed(trial, expect)
    link.refuse(500)
    trial.submit(pod("first").gpus(1))
    assert trial.wait(lambda: link.refused >= 2, within=60), "expected a binding and a read of the pod"
    trial.submit(pod("second").gpus(1))
    pause(trial, 3, real=2)  # the scheduler receives it by its open watch, and finds no card
    link.hold_streams()
    trial.delete("first")
    link.refuse(500, nothing)

    expect.bound("second", within=60)


@pytest.mark.feature("HIL-4.api-errors", "SHELL-5.refusal")
@pytest.mark.case(
    "FT-140", severity="normal", source="kubernetes scheduler/schedule_one.go@v1.37: handleSchedulingFailure"
)
def test_a_refused_binding_is_told(trial: Trial, expect: Expect, link: Link) -> None:
    """The API server refuses a pod's binding: the condition PodScheduled has the reason SchedulerError and the server's
    words, and so does an event."""
    trial.add(node("n1"))
    witnessed(trial, expect)
    link.refuse(403, bindings)
    trial.submit(pod("p"))
    words = "the API server is in trouble (403)"
    expect.pending("p", saying=words, cooled=False)
    (condition,) = (each for each in trial.pod("p").status.conditions if each.type == "PodScheduled")
    assert (condition.status, condition.reason) == ("False", "SchedulerError")

    def has_event() -> bool:
        return any(each.reason == "FailedScheduling" and words in each.message for each in trial.events("p"))

    assert trial.reaches(has_event, within=30), trial.events("p")
    link.heal()
    expect.bound("p")


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case(
    "FT-141",
    severity="critical",
    source="kubernetes scheduler/eventhandlers.go: updatePodInSchedulingQueue skips assumed pods",
)
@pytest.mark.long(seconds=12)
def test_a_pod_that_changes_while_it_is_being_bound(trial: Trial, expect: Expect, link: Link) -> None:
    """A pod takes all of the only node, and its binding is under way. It gets a label: it is not tried meanwhile, as
    there would be no room for it beside itself."""
    trial.add(node("n1").cpu(2))
    witnessed(trial, expect)
    link.delay = 5.0
    link.refuse(500, bindings)
    trial.submit(pod("p").request(cpu=2))
    assert trial.wait(lambda: link.refused >= 1, within=60), "a binding was to be tried"
    assert trial.call("PATCH", trial.path("Pod", "p"), {"metadata": {"labels": {"changed": "yes"}}}).ok
    pause(trial, 4, real=3)
    link.delay = 0.0
    link.heal()
    expect.bound("p", within=60)
    pause(trial, 5, real=2)
    messages = [each.message for each in trial.events("p") if "Insufficient cpu" in each.message]
    assert not messages, f"tried while it was being bound: {messages}"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-150", severity="blocker", source="kubernetes scheduler/backend/cache/cache.go@v1.37: ForgetPod")
@pytest.mark.long(seconds=20)
def test_a_late_conflict_of_a_binding_that_took_place(trial: Trial, expect: Expect, link: Link) -> None:
    """A pod is bound and the watch shows it. After that its binding is answered with 409, as when a proxy has sent it
    twice: the pod keeps its card."""
    trial.add(node("n1").gpus("a10", 2))
    witnessed(trial, expect)
    trial.submit(pod("model").gpus(1))
    marks = expect.bound("model").metadata.annotations
    trial.delete("model")
    pause(trial, 1, real=1)
    link.delay = 5.0
    link.refuse(409, bindings)
    trial.submit(pod("first").gpus(1))
    assert trial.wait(lambda: link.refused >= 1, within=60), "a binding was to be tried"
    bind(trial, "first", "n1", marks)
    pause(trial, 7, real=7)
    link.delay = 0.0
    link.heal()
    trial.submit(pod("second").gpus(1))
    cards = [[part.minor for part in parts(expect.bound(name))] for name in ("first", "second")]
    assert cards[0] != cards[1], f"both pods have card {cards[0]}"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-151", severity="normal", source="ours")
@pytest.mark.long(seconds=20)
def test_a_bound_pod_is_not_told_that_it_was_refused(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings are refused; meanwhile another scheduler binds the pod, and the watch is silent. After the next refusal
    the pod's condition is still that it is scheduled."""
    trial.add(node("n1"), node("n2"))
    witnessed(trial, expect)
    link.refuse(403, bindings)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 3, within=60), "the binding was to be tried"
    pause(trial, 0.5, real=0.5)
    link.hold_streams()
    bind(trial, "p", "n2")
    link.refuse(429, bindings)  # with other words, which are to be written
    tries = link.refused
    assert trial.wait(lambda: link.refused > tries, within=60), "the binding was to be tried again"
    pause(trial, 3, real=3)
    (condition,) = (each for each in trial.pod("p").status.conditions if each.type == "PodScheduled")
    assert condition.status == "True", condition
    link.heal()


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-152", severity="normal", source="kubernetes client-go/rest/with_retry.go@v1.34: Retry-After")
@pytest.mark.long(seconds=8)
def test_a_server_that_asks_for_a_pause_gets_it(trial: Trial, expect: Expect, link: Link) -> None:
    """For two seconds the API server refuses what is written to a pod's status with 429 and Retry-After 1. The pod has
    its message afterwards."""
    trial.add(node("n1").cpu(2))
    witnessed(trial, expect)
    link.refuse(429, OfKind("status"))
    trial.submit(pod("large").request(cpu=4))
    assert trial.wait(lambda: link.refused >= 1, within=60), "a status was to be written"
    pause(trial, 1.5, real=1.5)
    link.heal()
    expect.pending("large", saying="Insufficient cpu")


@pytest.mark.profile(KOORD_SCHEDULER)
@pytest.mark.feature("QUOTA-1.max-bound", "HIL-4.api-errors")
@pytest.mark.case("FT-071", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_refused_binding_gives_its_part_of_the_quota_back(trial: Trial, expect: Expect, link: Link) -> None:
    """Of a quota for one pod the more important one takes the place, and each of its bindings is refused: the other,
    which waited for the quota, gets it."""
    trial.apply(priority_class("trial-high", 9000, preempts=False))
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).max(cpu=1))
    witnessed(trial, expect)
    link.refuse(500, BindingsOf("first"))

    trial.submit(counted(trial, "first", "a", cpu=1).priority_class("trial-high"), counted(trial, "second", "a", cpu=1))

    expect.bound("second", within=60)
    assert link.refused
    expect.pending("first")


@pytest.mark.feature("CPU-1.policies", "HIL-4.api-errors")
@pytest.mark.case("FT-072", severity="critical")
@pytest.mark.long(seconds=4)
def test_a_refused_binding_gives_its_cpus_back(trial: Trial, expect: Expect, link: Link) -> None:
    """On each of two NUMA nodes one pod can have 20 CPUs. Of three pods the most important one takes its place, and
    each of its bindings is refused: the one that waited gets it."""
    trial.apply(priority_class("trial-high", 9000, preempts=False))
    trial.add(node("n1").server("cpu-64"))
    witnessed(trial, expect)
    link.refuse(500, BindingsOf("first"))

    first, second, third = (
        pod(name).qos("LSR").request(cpu=20, memory="1Gi").align("SingleNUMANode")
        for name in ("first", "second", "third")
    )
    trial.submit(first.priority_class("trial-high"), second, third)

    expect.bound("second", "third", within=60)
    assert link.refused
    expect.pending("first")


@pytest.mark.feature("SCORE-4.volumes", "HIL-4.api-errors")
@pytest.mark.case("FT-080", severity="critical")
def test_a_volume_that_could_not_be_given_is_free(
    trial: Trial, expect: Expect, link: Link, storage: StorageOfCase
) -> None:
    """The API server refuses to give the only volume to the first pod's claim, and the pod is deleted: another pod's
    claim gets the volume."""
    storage.of_class()
    trial.add(node("n1"))
    witnessed(trial, expect)
    volume = storage.volume("v", "n1")
    storage.claim("c")
    storage.claim("d")
    link.refuse(500, volume_writes)
    storage.submit("p", "c")
    assert trial.wait(lambda: link.refused >= 2, within=60), "expected two tries to give the volume"
    trial.delete("p")
    link.heal()

    storage.submit("q", "d")

    expect.bound("q", within=60)
    assert storage.volume_of("d") == volume


@pytest.mark.feature("HIL-4.api-errors", "SCORE-4.volumes")
@pytest.mark.case("FT-113", severity="critical", source="ours: a pod does not wait for a write that nobody does")
@pytest.mark.long(seconds=20)
def test_a_pod_whose_claim_another_one_was_to_write(
    trial: Trial, expect: Expect, link: Link, storage: StorageOfCase
) -> None:
    """Two pods share a claim to be provisioned. The API server refuses, late, what the first writes to it, and the
    first is deleted: the second writes it."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1"))
    witnessed(trial, expect)
    storage.claim("c")
    link.refuse(403, volume_writes)
    link.delay = 3.0
    storage.submit("first", "c")
    assert trial.wait(lambda: link.refused >= 1, within=60), "expected a try to select the node"
    storage.submit("second", "c")
    pause(trial, 1, real=1)
    trial.delete("first")
    pause(trial, 3, real=3)
    link.delay = 0.0
    link.heal()
    assert storage.selected_node("c") == "n1"
    storage.made("c")
    expect.bound("second", within=60)


@pytest.mark.feature("HIL-4.api-errors", "SCORE-4.volumes")
@pytest.mark.case(
    "FT-114",
    severity="critical",
    source="kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go@v1.34: bindAPIUpdate, Update",
)
@pytest.mark.long(seconds=20)
def test_a_node_that_another_selected_stays_selected(
    trial: Trial, expect: Expect, link: Link, storage: StorageOfCase
) -> None:
    """The API server refuses the write that selects the claim's node. Meanwhile another scheduler selects n2, and the
    watch is silent: no later try changes it."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1").cpu(32), node("n2").cpu(4))
    witnessed(trial, expect)
    storage.claim("c")
    link.refuse(500, volume_writes)
    storage.submit("p", "c")
    assert trial.wait(lambda: link.refused >= 2, within=60), "expected two tries to select the node"
    pause(trial, 0.5, real=0.5)
    link.hold_streams()
    selected = {"metadata": {"annotations": {SELECTED_NODE: "n2"}}}
    assert trial.call("PATCH", trial.path("PersistentVolumeClaim", "c"), selected).ok
    link.refuse(500, nothing)  # nothing more; the streams stay silent
    pause(trial, 20, real=8)
    assert storage.selected_node("c") == "n2"
    link.heal()
    pause(trial, 20, real=8)
    assert storage.selected_node("c") == "n2"
    storage.made("c")
    expect.bound("p", within=90)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-101", severity="critical", source="ours: upstream deletes a victim by its name alone")
@pytest.mark.long(seconds=20)
def test_an_evicted_name_may_belong_to_another_pod(trial: Trial, expect: Expect, link: Link) -> None:
    """Answers are slow. An eviction is on its way; the victim ends and a pod of its name comes. That one stays."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1").cpu(2), node("n2").cpu(2))
    witnessed(trial, expect)
    trial.submit(pod("victim").request(cpu=2).select({HOST: "n1"}))
    expect.running("victim")
    link.delay = 5.0
    trial.submit(pod("high").request(cpu=2).select({HOST: "n1"}).priority_class("trial-high"))

    def announced() -> bool:
        pod = trial.find("victim")
        return pod is not None and any(each.type == "DisruptionTarget" for each in pod.status.conditions)

    assert trial.wait(announced, within=60), "the eviction was to be announced"
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/victim?gracePeriodSeconds=0").ok
    trial.wait(lambda: trial.find("victim") is None, within=30)
    trial.submit(pod("victim").request(cpu=2).select({HOST: "n2"}).node_name("n2"))
    uid = trial.pod("victim").metadata.uid
    pause(trial, 30, real=12)
    results = trial.find("victim")
    assert results is not None, "the pod of the same name was deleted"
    assert (results.metadata.uid, results.deleting) == (uid, False), "the pod of the same name was evicted"
    link.delay = 0.0
    expect.running("high", within=60)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case(
    "FT-102", severity="normal", source="kubernetes scheduler/schedule_one.go: a binding cycle is a goroutine"
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_bindings_go_side_by_side(trial: Trial, expect: Expect, link: Link) -> None:
    """Each answer of the API server takes a second: twenty pods are bound within eight seconds."""
    trial.add(node("n1").cpu(32))
    witnessed(trial, expect)
    link.delay = 1.0
    names = [f"p-{number}" for number in range(20)]
    trial.submit(*(pod(name).request(cpu=1) for name in names))
    expect.bound(*names, within=8)
