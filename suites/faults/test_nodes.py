"""A node that is not ready or unreachable gets no pods, its pods without toleration are evicted, and it recovers."""

import pytest

from seatrial.fixtures.allocated_devices import minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, node, pod
from seatrial.scheduler.api.core import ZONE_LABEL

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.DEVICE_FAULTS)]

LEASE = 75.0  # seconds until a silent node is given up: fifty of grace, five between looks, and room
STAYS = 2  # seconds that impatient pods put up with a node that is away
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def ready(trial: Trial, name: str) -> str:
    """The status of the node's Ready condition."""
    conditions = trial.node(name)["status"]["conditions"]
    return next(str(condition["status"]) for condition in conditions if condition["type"] == "Ready")


def taints(trial: Trial, name: str) -> set[tuple[str, str]]:
    """The node's taints, without the one by which a run keeps pods of others away on a shared cluster."""
    taints = trial.node(name)["spec"].get("taints", ())
    return {(taint["key"], taint["effect"]) for taint in taints if taint["key"] != RUN_LABEL}


def zoned(trial: Trial, name: str) -> NodeBuilder:
    """A node in a zone of the case's own.

    kube-controller-manager evicts zone by zone: from one node in ten seconds, and from none while more than two nodes
    and 55 % of a zone are not ready. In the zone of a cluster's other nodes their state would decide the case.
    """
    return node(name).label(ZONE_LABEL, trial.name)


def impatient(name: str) -> PodBuilder:
    """A pod with a short toleration of unready and unreachable nodes."""
    one = pod(name).gpus(1)
    one.manifest["spec"]["tolerations"] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAYS}
        for key in (NOT_READY, UNREACHABLE)
    ]
    return one


@pytest.mark.feature("HIL-4.nodes")
@pytest.mark.case("FT-020", severity="blocker")
def test_a_node_that_is_not_ready(trial: Trial, expect: Expect) -> None:
    """The node is tainted and gets no pods; pods with a short toleration are evicted, others stay; it recovers.

    A second node stays ready: where no node is, Kubernetes takes its control plane to be at fault and evicts nothing.
    """
    trial.add(zoned(trial, "n1").gpus("a10", 3), zoned(trial, "n2"))
    trial.submit(impatient("a"), pod("patient").gpus(1))
    expect.running("a", "patient")

    trial.inject({"node": "n1", "verb": "not_ready"})
    assert trial.wait(lambda: ready(trial, "n1") == "False", within=10)
    assert trial.wait(lambda: taints(trial, "n1") >= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}, within=30)
    trial.submit(pod("b").gpus(1))
    expect.pending("b")
    expect.gone("a")
    assert trial.pod("patient").status.phase == "Running"

    trial.heal("n1")
    expect.running("b")
    # kube-controller-manager looks every 5 s
    assert trial.wait(lambda: taints(trial, "n1") == set(), within=15)


@pytest.mark.feature("HIL-4.nodes")
@pytest.mark.case("FT-021", severity="blocker")
@pytest.mark.long(seconds=60)
def test_a_node_that_freezes(trial: Trial, expect: Expect) -> None:
    """Its lease expires and it is unreachable; evicted pods cannot terminate until it recovers, and then do."""
    trial.add(zoned(trial, "n1").gpus("a10", 2), zoned(trial, "n2").gpus("a10", 1))
    trial.submit(impatient("a").select({"kubernetes.io/hostname": "n1"}))
    expect.running("a")

    trial.inject({"node": "n1", "verb": "frozen"})
    assert trial.wait(lambda: ready(trial, "n1") == "Unknown", within=LEASE)
    assert trial.wait(
        lambda: taints(trial, "n1") >= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}, within=10
    )
    expect.gone("a")
    leaving = trial.pod("a")
    assert leaving.deleting, "the node has not confirmed the pod's end"

    trial.submit(pod("b").gpus(1))
    assert expect.running("b").spec.node_name == "n2"
    trial.submit(pod("c").gpus(1))
    expect.pending("c")

    trial.heal("n1")
    assert trial.wait(lambda: ready(trial, "n1") == "True", within=10)
    assert trial.wait(lambda: trial.find("a") is None, within=60), trial.timeline()
    assert expect.running("c").spec.node_name == "n1"


@pytest.mark.feature("HIL-4.nodes")
@pytest.mark.case("FT-022", severity="critical")
@pytest.mark.long(seconds=10)
def test_a_short_freeze_is_not_noticed(trial: Trial, expect: Expect) -> None:
    """A node that recovers before its lease expires loses no pod, and starts pods bound meanwhile."""
    trial.add(zoned(trial, "n1").gpus("a10", 2))
    trial.submit(impatient("a"))
    before = expect.running("a")
    trial.inject({"node": "n1", "verb": "frozen", "for": 10})
    trial.pass_time(1)
    trial.submit(pod("b").gpus(1))
    assert expect.bound("b").status.phase == "Pending"

    b = expect.running("b")
    assert sorted([*minors(before), *minors(b)]) == [0, 1]
    assert ready(trial, "n1") == "True"
    assert trial.wait(lambda: taints(trial, "n1") == set(), within=15)
    assert trial.pod("a").metadata.uid == before.metadata.uid
