"""What changes on a node counts at once: for pods that wait, and for pods of a kind that was placed before.

Each change goes both ways, because a scheduler that keeps results must drop them in both.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.numa import NODE_RESERVATION
from seatrial.scheduler.api.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH

pytestmark = [pytest.mark.needs(Capability.NODES)]

Json = dict[str, Any]


def patch(trial: Trial, name: str, body: Json, *, part: str = "", kind: str = MERGE_PATCH) -> None:
    response = trial.call("PATCH", f"/api/v1/nodes/{name}{part}", body, kind=kind)
    assert response.ok, response.body


def waits(expect: Expect, name: str, saying: str = "") -> None:
    """The pod is refused, and stays so."""
    expect.pending(name, saying=saying)
    expect.stable(seconds=3)


@pytest.mark.feature("SCORE-4.fit", "HIL-4.nodes")
@pytest.mark.case("SC-150", severity="blocker")
@pytest.mark.parametrize(("gone", "left"), [("n1", "n2"), ("n2", "n1")])
def test_a_deleted_node_gets_no_pods(trial: Trial, expect: Expect, gone: str, left: str) -> None:
    """The large node, which every score prefers, is deleted: pods go to the small one, and wait when it is full.

    A pod that a finalizer keeps is still there, so that its node has not left the scheduler's cache.
    """
    trial.add(node(gone).cpu(64).memory("256Gi"), node(left).cpu(2).memory("4Gi"))
    first = pod("first").request(cpu=1)
    first.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(first)
    assert expect.bound("first").spec.node_name == gone
    try:
        trial.cluster.remove_node(gone)
        trial.settle(2)  # the scheduler has seen it
        trial.submit(pod("second").request(cpu=1))
        assert expect.bound("second").spec.node_name == left
        trial.submit(pod("third").request(cpu=8))
        waits(expect, "third")
    finally:
        path = f"/api/v1/namespaces/{trial.name}/pods/first"
        trial.call("PATCH", path, {"metadata": {"finalizers": None}})
    trial.add(node(gone).cpu(64).memory("256Gi"))
    assert expect.bound("third").spec.node_name == gone


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-151", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_label_comes_and_goes(trial: Trial, expect: Expect) -> None:
    """A pod waits for a label; pods are placed while the node has it; the next of the same kind waits again."""
    trial.add(node("n1"), node("n2"))
    trial.submit(pod("p0").select({"disk": "fast"}))
    waits(expect, "p0")
    patch(trial, "n2", {"metadata": {"labels": {"disk": "fast"}}})
    assert expect.bound("p0").spec.node_name == "n2"
    trial.submit(pod("p1").select({"disk": "fast"}))
    assert expect.bound("p1").spec.node_name == "n2"
    patch(trial, "n2", {"metadata": {"labels": {"disk": None}}})
    trial.submit(pod("p2").select({"disk": "fast"}))
    waits(expect, "p2")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-152", severity="critical")
@pytest.mark.long(seconds=8)
def test_a_taint_comes_and_goes(trial: Trial, expect: Expect) -> None:
    """Pods are placed, wait while the only node is tainted or cordoned, and are placed again."""
    trial.add(node("n1"))
    trial.submit(pod("p0"))
    expect.bound("p0")
    for number, closed, opened in (
        (1, {"taints": [{"key": "team", "effect": "NoSchedule"}]}, {"taints": []}),
        (2, {"unschedulable": True}, {"unschedulable": None}),
    ):
        patch(trial, "n1", {"spec": closed})
        trial.settle()
        trial.submit(pod(f"p{number}"))
        waits(expect, f"p{number}")
        patch(trial, "n1", {"spec": opened})
        expect.bound(f"p{number}")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-153", severity="blocker")
@pytest.mark.long(seconds=5)
def test_pods_that_wait_together_do_not_overfill_a_node(trial: Trial, expect: Expect) -> None:
    """Ten pods wait for a cordoned node with room for four: when it opens, four are placed at once and six wait."""
    trial.add(node("n1").cpu(4))
    patch(trial, "n1", {"spec": {"unschedulable": True}})
    trial.settle()
    names = [f"p{number}" for number in range(10)]
    trial.submit(*(pod(name).request(cpu=1) for name in names))
    expect.pending(*names)
    patch(trial, "n1", {"spec": {"unschedulable": None}})
    trial.wait(lambda: sum(bool(pod.spec.node_name) for pod in trial.pods()) >= 4, within=30)
    expect.stable(seconds=5)
    placed = [pod.metadata.name for pod in trial.pods() if pod.spec.node_name]
    assert len(placed) == 4, f"expected room for four pods of one CPU each on four CPUs, found {placed} placed"


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-154", severity="normal")
def test_places_for_pods_are_all_used(trial: Trial, expect: Expect) -> None:
    """A node with two places gets exactly two pods, whether or not they request anything."""
    trial.add(node("n1").pods(2))
    trial.submit(pod("a"))
    expect.bound("a")
    trial.submit(pod("b").request(cpu="100m", memory="64Mi"))
    expect.bound("b")
    trial.submit(pod("c"))
    waits(expect, "c", "Too many pods")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-155", severity="normal")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # a RuntimeClass has no namespace
def test_overhead_counts(trial: Trial, expect: Expect) -> None:
    """A pod of 3 CPUs with an overhead of 2 does not fit on a node with 4; with an overhead of 1 it does."""
    trial.add(node("n1").cpu(4))
    for name, cpu in (("large", "2"), ("small", "1")):
        runtime = f"{trial.name}-{name}"
        body = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": runtime},
            "handler": "runc",
            "overhead": {"podFixed": {"cpu": cpu}},
        }
        response = trial.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)
        one = pod(name).request(cpu=3)
        one.manifest["spec"]["overhead"] = {"cpu": cpu}
        if response.ok:
            one.manifest["spec"]["runtimeClassName"] = runtime
        trial.submit(one)
    expect.bound("small")
    waits(expect, "large", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-156", severity="normal")
@pytest.mark.long(seconds=4)
def test_allocatable_shrinks_and_grows(trial: Trial, expect: Expect) -> None:
    """A pod that would fit waits when allocatable has shrunk, and is placed when it is as before."""
    trial.add(node("n1").cpu(8))
    trial.submit(pod("p0").request(cpu=1))
    expect.bound("p0")
    patch(trial, "n1", {"status": {"allocatable": {"cpu": "4"}}}, part="/status", kind=STRATEGIC_MERGE_PATCH)
    trial.settle()
    trial.submit(pod("p1").request(cpu=6))
    waits(expect, "p1", "Insufficient cpu")
    patch(trial, "n1", {"status": {"allocatable": {"cpu": "8"}}}, part="/status", kind=STRATEGIC_MERGE_PATCH)
    expect.bound("p1")


KEPT = "koordinator: pkg/util/node.go@v1.7.0 (TrimNodeAllocatableByNodeReservation)"


def keeps(trial: Trial, name: str, cpu: str | None) -> None:
    """State that the node reserves so many cores for processes outside of containers, or (None) nothing."""
    kept = None if cpu is None else orjson.dumps({"resources": {"cpu": cpu}}).decode()
    patch(trial, name, {"metadata": {"annotations": {NODE_RESERVATION: kept}}})
    trial.settle()


@pytest.mark.feature("CPU-5.amounts")
@pytest.mark.case("SC-435", severity="critical", source=KEPT)
@pytest.mark.long(seconds=8)
def test_what_a_node_keeps_comes_and_goes(trial: Trial, expect: Expect) -> None:
    """A node of eight cores keeps four: a pod of six waits. It keeps two: the pod is bound, and one of two waits, until
    the node keeps nothing."""
    trial.add(node("n1").cpu(8))
    keeps(trial, "n1", "4")
    trial.submit(pod("p0").request(cpu=6))
    waits(expect, "p0", "Insufficient cpu")
    keeps(trial, "n1", "2")
    expect.bound("p0")
    trial.submit(pod("p1").request(cpu=2))
    waits(expect, "p1", "Insufficient cpu")
    keeps(trial, "n1", None)
    expect.bound("p1")


@pytest.mark.feature("CPU-5.amounts")
@pytest.mark.case(
    "SC-436", severity="minor", source=f"{KEPT}; kubernetes v1.28: noderesources/least_allocated.go, no allocatable"
)
@pytest.mark.parametrize(("all_kept", "half_full"), [("n1", "n2"), ("n2", "n1")])
def test_a_node_keeps_more_than_it_has(trial: Trial, expect: Expect, all_kept: str, half_full: str) -> None:
    """It has no cores then, not less than none: what it has none of counts in no score, and a pod without requests goes
    there rather than to a node whose cores are half used."""
    trial.add(node(all_kept).cpu(8), node(half_full).cpu(8))
    trial.submit(pod("there").request(cpu=4).select({"kubernetes.io/hostname": half_full}))
    expect.bound("there")
    keeps(trial, all_kept, "100")
    trial.submit(pod("p"))
    assert expect.bound("p").spec.node_name == all_kept
    expect.refusal()


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case(
    "SC-470",
    severity="critical",
    source="kubernetes v1.28: pkg/scheduler/backend/cache/cache.go, RemoveNode keeps pods",
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # the simulated node's end writes its object anew at any time otherwise
def test_a_node_that_comes_back_has_its_pods(trial: Trial, expect: Expect) -> None:
    """A node object is deleted and created anew while a finalizer keeps its pod, which holds three of four cores: a pod
    of two waits until that pod is gone."""
    trial.add(node("n1").cpu(4))
    holder = pod("holder").request(cpu=3)
    holder.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(holder)
    expect.running("holder")
    body = trial.node("n1")
    try:
        assert trial.call("DELETE", "/api/v1/nodes/n1").ok
        trial.settle()
        body["metadata"] = {"name": "n1", "labels": body["metadata"]["labels"]}
        created = trial.call("POST", "/api/v1/nodes", body)
        assert created.ok, created.body
        patch(trial, "n1", {"status": body["status"]}, part="/status")
        trial.settle()
        trial.submit(pod("next").request(cpu=2))
        waits(expect, "next", "Insufficient cpu")
    finally:
        trial.call("PATCH", trial.path("Pod", "holder"), {"metadata": {"finalizers": None}})
        trial.call("DELETE", trial.path("Pod", "holder"))
    expect.bound("next")
