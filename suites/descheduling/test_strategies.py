"""Strategies beside LowNodeLoad: which pods each evicts, and which it leaves."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.suites.descheduling.test_rounds import LEVELS, on
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    cordon,
    deployment,
    jobs,
    running,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

DIRECTLY = {**ALL_AT_ONCE, "defaultJobMode": "EvictDirectly"}
ONE_ROUND: dict[str, Any] = {"deschedulingInterval": "1h"}
AVOID = "requiredDuringSchedulingIgnoredDuringExecution"


def label(cluster: Trial, path: str, **labels: str) -> None:
    """Set labels of the object at a path."""
    accepted(cluster.call("PATCH", path, {"metadata": {"labels": labels}}), f"label {path}")


def path_of(found: Pod) -> str:
    return f"/api/v1/namespaces/{found.metadata.namespace}/pods/{found.metadata.name}"


def moved(cluster: Trial, count: int) -> list[str]:
    """The names of the pods that have migration jobs, once there are this many and no more come."""
    assert cluster.reaches(lambda: len(jobs(cluster)) >= count, within=30), cluster.timeline()
    cluster.cluster.wait(lambda: False, within=3)
    return sorted(found.spec.pod_ref.name for found in jobs(cluster))


def restarted(cluster: Trial, found: Pod, count: int) -> None:
    """The status of a pod says that its container was restarted this often."""
    status = orjson.loads(accepted(cluster.call("GET", path_of(found)), "read the pod").body)["status"]
    rows = [{**row, "restartCount": count} for row in status["containerStatuses"]]
    patch = {"status": {"containerStatuses": rows}}
    accepted(cluster.call("PATCH", f"{path_of(found)}/status", patch), "write the pod's status")


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-103", severity="normal")
@pytest.mark.long(seconds=5)
def test_pods_that_restart_too_often_go(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """RemovePodsHavingTooManyRestarts with a threshold of five: a pod with five restarts goes, one with four stays."""
    with_nodes(cluster, "n1", "n2")
    deployment(cluster, "web", 4, like=pod("x").request(cpu=1))
    often, seldom, *_ = wait_running(cluster, "web", 4)
    restarted(cluster, often, 5)
    restarted(cluster, seldom, 4)

    start_descheduler({"RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 5}}, migration=DIRECTLY, **ONE_ROUND)

    assert moved(cluster, 1) == [often.metadata.name]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-104", severity="normal")
@pytest.mark.long(seconds=7)
def test_failed_pods_are_removed(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """RemoveFailedPods for the reason Evicted: of two pods that failed, the one with that reason is removed."""
    with_nodes(cluster, "n1", "n2")
    deployment(cluster, "web", 4, like=pod("x").request(cpu=1))
    found = wait_running(cluster, "web", 4)[:2]
    for each, reason in zip(found, ("Evicted", "NodeShutdown"), strict=True):
        patch = {"status": {"phase": "Failed", "reason": reason}}
        accepted(cluster.call("PATCH", f"{path_of(each)}/status", patch), "write the pod's status")
    cluster.cluster.wait(lambda: False, within=2)

    args = {"minPodLifetimeSeconds": 1, "reasons": ["Evicted"]}
    start_descheduler({"RemoveFailedPods": args}, migration=DIRECTLY, **ONE_ROUND)

    first, second = (each.metadata.name for each in found)
    assert moved(cluster, 1) == [first]
    assert cluster.reaches(lambda: cluster.find(first) is None, within=30)
    assert cluster.find(second) is not None


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-105", severity="normal")
@pytest.mark.long(seconds=4)
def test_pods_leave_a_node_that_their_affinity_no_longer_allows(
    cluster: Trial, start_descheduler: StartDescheduler
) -> None:
    """RemovePodsViolatingNodeAffinity: the label that the pods of one workload need moves from n1 to n2, and so do the
    pods. Pods of another workload stay."""
    cluster.add(*(node(name).cpu(16).memory("64Gi").label("tier", tier) for name, tier in (("n1", "a"), ("n2", "b"))))
    like = pod("x").request(cpu=1)
    like.manifest["spec"]["affinity"] = {"nodeAffinity": {AVOID: {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}
    ]}}}  # fmt: skip
    deployment(cluster, "tied", 3, like=like)
    wait_running(cluster, "tied", 3)
    cordon(cluster, "n2")
    deployment(cluster, "free", 3, like=pod("x").request(cpu=1))
    wait_running(cluster, "free", 3)
    cordon(cluster, "n2", on=False)
    label(cluster, "/api/v1/nodes/n1", tier="b")
    label(cluster, "/api/v1/nodes/n2", tier="a")

    start_descheduler({"RemovePodsViolatingNodeAffinity": {"nodeAffinityType": [AVOID]}}, migration=ALL_AT_ONCE)

    assert cluster.reaches(lambda: len(on(cluster, "tied", "n2")) == 3, within=90), cluster.timeline()
    assert len(on(cluster, "free", "n1")) == 3


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-106", severity="normal")
def test_a_pod_leaves_the_neighbour_that_it_avoids(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """RemovePodsViolatingInterPodAntiAffinity: a pod on the node gets the label that another one avoids. The one that
    avoids it goes to the other node, and pods that avoid nothing stay."""
    with_nodes(cluster, "n1", "n2")
    cordon(cluster, "n2")
    shy = pod("x").request(cpu=1)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"colour": "red"}}}
    shy.manifest["spec"]["affinity"] = {"podAntiAffinity": {AVOID: [term]}}
    deployment(cluster, "shy", 2, like=shy)
    deployment(cluster, "web", 2, like=pod("x").request(cpu=1))
    wait_running(cluster, "shy", 2)
    red = wait_running(cluster, "web", 2)[0]
    cordon(cluster, "n2", on=False)
    label(cluster, path_of(red), colour="red")

    start_descheduler({"RemovePodsViolatingInterPodAntiAffinity": {}}, migration=ALL_AT_ONCE)

    assert cluster.reaches(lambda: len(on(cluster, "shy", "n2")) == 2, within=90), cluster.timeline()
    assert len(on(cluster, "web", "n1")) == 2


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-107", severity="normal")
@pytest.mark.long(seconds=4)
def test_a_node_with_few_requests_is_emptied(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """HighNodeUtilization with 30 %: 2 of 16 cores of n1 are requested, and 8 of n2. The pods of n1 go, for which n2
    has room; those of n2 stay."""
    with_nodes(cluster, "n1", "n2")
    for name, other, count in (("n1", "n2", 2), ("n2", "n1", 8)):
        cordon(cluster, other)
        deployment(cluster, f"of-{name}", count, like=pod("x").request(cpu=1))
        wait_running(cluster, f"of-{name}", count)
        cordon(cluster, other, on=False)
    few = sorted(found.metadata.name for found in running(cluster, "of-n1"))

    start_descheduler({"HighNodeUtilization": {"thresholds": {"cpu": 30}}}, migration=ALL_AT_ONCE, **ONE_ROUND)

    assert moved(cluster, 2) == few


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-108", severity="normal")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("fits", [True, False], ids=["all-fit", "one-does-not-fit"])
def test_a_node_is_drained_whole_or_not_at_all(
    cluster: Trial, expect: Expect, start_descheduler: StartDescheduler, *, fits: bool
) -> None:
    """CustomPriority with mode DrainNode: where the cheap node takes all three pods, the dear one is cordoned and loses
    them; where it takes two of them, nothing happens."""
    cluster.add(
        node("n1").cpu(16).memory("64Gi").label("zone", "a"),
        node("n2").cpu(16 if fits else 5).memory("64Gi").label("zone", "b"),
    )
    spread_victim(cluster, "web", 3, cpu=2)
    drain = {"evictionOrder": LEVELS, "mode": "DrainNode", "autoCordon": True}

    start_descheduler({"CustomPriority": drain}, migration=ALL_AT_ONCE)

    if fits:
        assert cluster.reaches(lambda: len(on(cluster, "web", "n2")) == 3, within=90), cluster.timeline()
    else:
        expect.stable(seconds=15)
        assert jobs(cluster) == []
    assert bool(cluster.node("n1")["spec"].get("unschedulable")) == fits


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-109", severity="critical")
@pytest.mark.long(seconds=16)
def test_the_last_ready_node_keeps_its_pods(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """Old pods on the only node: none is evicted. With a second node they are."""
    with_nodes(cluster, "n1")
    deployment(cluster, "web", 3, like=pod("x").request(cpu=1))
    wait_running(cluster, "web", 3)
    cluster.cluster.wait(lambda: False, within=2)
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=ALL_AT_ONCE, deschedulingInterval="3s")

    assert not cluster.cluster.wait(lambda: bool(jobs(cluster)), within=12), jobs(cluster)

    with_nodes(cluster, "n2")
    assert cluster.reaches(lambda: len(jobs(cluster)) >= 3, within=30)


@pytest.mark.feature("DES-1.periodic")
@pytest.mark.case("DC-110", severity="normal")
@pytest.mark.long(seconds=5)
def test_strategies_for_single_pods_come_before_those_for_balance(
    cluster: Trial, start_descheduler: StartDescheduler
) -> None:
    """A round may evict one pod. RemoveDuplicates, which the profile names first, would take one of `web`, and
    RemovePodsViolatingNodeTaints the pod of `tainted`: that one goes."""
    with_nodes(cluster, "n1", "n2", "n3")
    cordon(cluster, "n1")
    cordon(cluster, "n3")
    deployment(cluster, "tainted", 1, like=pod("x").request(cpu=1))
    wait_running(cluster, "tainted", 1)
    cordon(cluster, "n2")
    cordon(cluster, "n1", on=False)
    deployment(cluster, "web", 4, like=pod("x").request(cpu=1))
    wait_running(cluster, "web", 4)
    for name in ("n2", "n3"):
        cordon(cluster, name, on=False)
    taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
    assert cluster.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": [taint]}}).ok

    start_descheduler(
        {"RemoveDuplicates": {}, "RemovePodsViolatingNodeTaints": {}}, migration=ALL_AT_ONCE,
        maxNoOfPodsToEvictTotal=1, **ONE_ROUND,
    )  # fmt: skip

    assert [name.partition("-")[0] for name in moved(cluster, 1)] == ["tainted"]
