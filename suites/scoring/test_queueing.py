"""When a waiting pod is tried again, and when it is not: age, backoff, gates, deletion."""

from functools import partial
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, bindings
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.scoring.rules import HOST, REQUIRED, Json, pod_with, spread

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("SCORE-4.queue")]


@pytest.mark.case("SC-160", severity="critical")
@pytest.mark.long(seconds=21)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # nodes of other cases wake pods, whose backoff then begins anew
def test_of_equal_pods_the_older_is_first(trial: Trial, expect: Expect) -> None:
    """Seven equal pods wait for a cordoned node with room for four: the oldest are placed, whatever their names. One of
    the four may be another: the first one that is woken may be taken while the others are still being woken."""
    trial.add(node("n1").cpu(4))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    trial.settle()
    names = ["m", "z", "a", "k", "b", "x", "c"]
    for name in names:
        trial.submit(pod(name).request(cpu=1))
        expect.pending(name)
        trial.pass_time(1)
    trial.pass_time(12)  # the backoff of all is over
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}}).ok

    def placed() -> set[str]:
        return {pod.metadata.name for pod in trial.pods() if pod.spec.node_name}

    assert trial.reaches(lambda: len(placed()) == 4, within=30), placed()
    expect.stable(seconds=3)
    assert len(placed() & {*names[:4]}) >= 3, placed()


@pytest.mark.case("SC-161", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_backoff_has_a_maximum(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings fail for ten minutes; afterwards the pod is bound within the maximum backoff of 10 s."""
    trial.add(node("n1"))
    link.refuse(500, bindings)
    trial.submit(pod("p"))
    trial.pass_time(600)
    tries = link.refused
    assert 50 <= tries <= 75, f"expected one try each 10 s after the first ones, found {tries} in 600 s"
    link.heal()
    expect.bound("p", within=12)


def expect_backoffs(trial: Trial, link: Link, *backoffs: int) -> None:
    """Bindings are refused: after the first try each comes at the end of its backoff, or at most a second later."""
    assert trial.wait(lambda: link.refused >= 1, within=30), "a binding was to be tried"
    for tries, seconds in enumerate(backoffs, start=1):
        assert not trial.wait(partial(more_than, link, tries), within=seconds - 0.2), f"try {tries + 1} is early"
        assert trial.wait(partial(more_than, link, tries), within=1.2), f"no try {tries + 1} after {seconds} s"


def more_than(link: Link, tries: int) -> bool:
    return link.refused > tries


@pytest.mark.case("SC-462", severity="normal", source="spec FWK-R42: 1 s, and twice as long each time")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_the_first_backoffs_are_short(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings fail: the next tries come one, two and four seconds after the one before."""
    trial.add(node("n1"))
    link.refuse(500, bindings)
    trial.submit(pod("p"))
    expect_backoffs(trial, link, 1, 2, 4)
    link.heal()
    expect.bound("p")


@pytest.mark.case(
    "SC-560", severity="normal", source="spec framework 2.1: podInitialBackoffSeconds, podMaxBackoffSeconds"
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_the_configuration_sets_the_backoffs(trial: Trial, running: Subject, link: Link, tmp_path: Path) -> None:
    """The first backoff is of three seconds and the longest of five: the tries come after three, five and five."""
    config = tmp_path / "config.yaml"
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "podInitialBackoffSeconds": 3, "podMaxBackoffSeconds": 5}))
    trial.add(node("n1"))
    with running.configured(config):
        link.refuse(500, bindings)
        trial.submit(pod("p"))
        expect_backoffs(trial, link, 3, 5, 5)
        link.heal()


@pytest.mark.case("SC-190", severity="normal")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_room_does_not_end_a_backoff(trial: Trial, expect: Expect, link: Link) -> None:
    """A pod that failed eight times is refused once more because its only node is cordoned. The node is opened at once:
    the pod is tried when its backoff of 10 s has passed, and not before."""
    trial.add(node("n1"))
    link.refuse(500, bindings)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 8, within=120), "eight bindings were to be tried"
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    expect.pending("p", saying="unschedulable", within=15, cooled=False)
    link.heal()
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}}).ok

    assert not trial.wait(lambda: bool(trial.pod("p").spec.node_name), within=7), "bound during its backoff"
    expect.bound("p", within=5)


@pytest.mark.case("SC-191", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME, Capability.OWN_CLUSTER)  # priority classes
@pytest.mark.parametrize("mates", [0, 3])
def test_a_backoff_holds_beside_pods_of_the_same_kind(trial: Trial, expect: Expect, mates: int) -> None:
    """Each second the room of two waiting pods goes from one more important pod to the next. In half a minute the first
    one is tried at most 7 times (kube-scheduler: after 1, 2, 4, 8 and then each 10 s), with or without equal pods."""
    trial.apply(priority_class("queue-first", 9000, preempts=False))
    trial.add(node("n1").cpu(2))
    holders = [pod(f"holder-{i}").request(cpu=2, memory="1Gi").priority_class("queue-first") for i in range(31)]
    for built in holders:
        built.manifest["spec"]["terminationGracePeriodSeconds"] = 0
        trial.submit(built)
    expect.running("holder-0")
    trial.submit(*(pod(name).request(cpu=2) for name in ("waits", *(f"mate-{number}" for number in range(mates)))))
    expect.pending("waits")
    for number in range(30):
        trial.delete(f"holder-{number}")
        expect.bound(f"holder-{number + 1}")
        trial.pass_time(1)
    tries = sum(event.count for event in trial.events("waits") if event.reason == "FailedScheduling")
    assert 1 <= tries <= 7, f"expected a try after 1, 2, 4, 8 and 10 s, found {tries} in 30 s"


@pytest.mark.case("SC-162", severity="critical")
@pytest.mark.long(seconds=4)
def test_a_gated_pod_is_not_tried(trial: Trial, expect: Expect) -> None:
    """A gated pod fits on no node: no condition is written for it; it holds no room and preempts no pod."""
    trial.apply(priority_class("queue-top", 100_000))
    trial.add(node("n1").cpu(4))
    trial.submit(pod("runs").request(cpu=4))
    expect.running("runs")
    gated = pod("gated").request(cpu=4).priority_class("queue-top")
    gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(gated)
    expect.stable(seconds=5)
    assert not trial.pod("runs").deleting
    assert not [event for event in trial.events("gated") if event.reason == "FailedScheduling"]
    path = f"/api/v1/namespaces/{trial.name}/pods/gated"
    assert trial.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok
    expect.gone("runs")
    expect.bound("gated")


@pytest.mark.case("SC-163", severity="normal")
@pytest.mark.long(seconds=5)
def test_a_pod_that_is_being_deleted_is_not_placed(trial: Trial, expect: Expect) -> None:
    """A waiting pod that could preempt is deleted, and a finalizer keeps it: it preempts no pod."""
    trial.apply(priority_class("queue-high", 9000), priority_class("queue-low", 1000))
    trial.add(node("n1").cpu(2))
    leaving = pod("leaving").request(cpu=4).priority_class("queue-high")
    leaving.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(leaving)
    expect.pending("leaving")
    path = f"/api/v1/namespaces/{trial.name}/pods/leaving"
    try:
        assert trial.call("DELETE", path).ok
        trial.settle()
        trial.add(node("n2").cpu(4).taint("closed"))
        stays = pod("stays").request(cpu=4).priority_class("queue-low").node_name("n2").tolerate("closed")
        trial.submit(stays)
        expect.running("stays")
        assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": []}}).ok
        virtual = Capability.VIRTUAL_TIME in trial.cluster.capabilities
        expect.stable(seconds=400 if virtual else 15)  # waiting pods are tried again every five minutes
        assert not trial.pod("leaving").spec.node_name
        assert not trial.pod("stays").deleting, "a pod that is being deleted preempted another"
    finally:
        trial.call("PATCH", path, {"metadata": {"finalizers": None}})


@pytest.mark.case("SC-471", severity="critical", source="kubernetes apis/config/v1/defaults.go; spec FWK-R42")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_a_long_backoff_ends_after_a_short_one(trial: Trial, expect: Expect, link: Link) -> None:
    """The binding of a pod fails eight times, that of a second one once. Then they succeed: the second pod is bound
    after a second, and the first one at the end of its own backoff."""
    trial.add(node("n1"))
    link.refuse(500, bindings)
    trial.submit(pod("often"))
    assert trial.wait(lambda: link.refused >= 8, within=120), "eight bindings were to be tried"
    trial.submit(pod("once"))
    assert trial.wait(lambda: link.refused >= 9, within=2), "the second pod was to be tried"
    link.heal()
    expect.bound("once", within=2)
    expect.bound("often", within=12)


@pytest.mark.case(
    "SC-472", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromCache moves pods"
)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_a_pod_that_left_makes_preemption_possible(trial: Trial, expect: Expect, *, cooled: bool) -> None:
    """A pod needs the whole node, which an equal pod and a less important one share: it waits. The equal one is
    deleted, before the end of the pod's backoff or after it: the other one is evicted."""
    trial.apply(priority_class("queue-upper", 9000), priority_class("queue-lower", 1000))
    trial.add(node("n1").cpu(4))
    trial.submit(pod("equal").request(cpu=2).priority_class("queue-upper"))
    trial.submit(pod("less").request(cpu=2).priority_class("queue-lower"))
    expect.running("equal", "less")
    trial.submit(pod("waits").request(cpu=4).priority_class("queue-upper"))
    expect.pending("waits", cooled=cooled)
    trial.delete("equal")
    expect.gone("less", within=15)
    expect.bound("waits")


@pytest.mark.case(
    "SC-473", severity="critical", source="kubernetes plugins/interpodaffinity: isSchedulableAfterPodChange"
)
@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("constraints", [[], spread()], ids=["plain", "with-a-constraint"])
def test_equal_pods_are_told_apart_by_a_label_that_counts_later(
    trial: Trial, expect: Expect, constraints: list[Json]
) -> None:
    """A red and a blue pod, equal but for this label, wait for room. A pod that keeps red ones away is placed, and room
    comes: the blue one is bound, although the red one is the older. All are deleted, and it happens once more."""
    trial.add(node("n1").cpu(6))
    red = {"labelSelector": {"matchLabels": {"color": "red"}}, "topologyKey": HOST}
    for _ in range(2):
        trial.submit(pod("holder").request(cpu=5))
        expect.bound("holder")
        for color in ("red", "blue"):
            trial.submit(pod_with(color, topologySpreadConstraints=constraints).label("color", color).request(cpu=2))
            expect.pending(color)
        trial.submit(pod_with("guard", "guard", affinity={"podAntiAffinity": {REQUIRED: [red]}}).request(cpu=1))
        expect.bound("guard")
        trial.delete("holder")
        expect.bound("blue", within=20)
        expect.pending("red")
        trial.delete("red", "blue", "guard")
        expect.gone("red", "blue", "guard")
