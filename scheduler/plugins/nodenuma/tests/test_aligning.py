"""Alignment of pods to NUMA nodes: NUMA-E10, NUMA-E13, NUMA-E22, and exclusivity."""

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.numa import AMPLIFICATION_RATIO, NUMA_TOPOLOGY_POLICY_LABEL, RESOURCE_STATUS, ResourceStatus
from seatrial.scheduler.plugins.nodenuma.tests.machines import BIG, Shape
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr, scored, share

POLICY = NUMA_TOPOLOGY_POLICY_LABEL


def test_thirty_three_cpus_of_two_times_thirty_two() -> None:
    rig = Machines()
    rig.machine("n", (2, 1, 16, 2), labels={POLICY: "Restricted"})
    rig.submit(share("shared", "33"))
    rig.run()
    shares = [(item.node, item.resources["cpu"]) for item in rig.resource_status("shared").numa_node_resources]
    assert shares == [(0, "16500m"), (1, "16500m")]
    assert not rig.resource_status("shared").cpuset
    rig.submit(share("more", "31"))
    rig.run()
    assert [item.resources["cpu"] for item in rig.resource_status("more").numa_node_resources] == ["15500m", "15500m"]


def test_bound_pods_get_whole_cpus_of_each() -> None:
    rig = Machines()
    rig.machine("n", (2, 1, 16, 2), labels={POLICY: "Restricted"})
    rig.submit(lsr("bound", "33"))
    rig.run()
    resource_status = rig.resource_status("bound")
    assert [(zone.node, zone.resources["cpu"]) for zone in resource_status.numa_node_resources] == [
        (0, "16"),
        (1, "17"),
    ]
    assert resource_status.cpuset == "0-15,32-48"


@pytest.mark.parametrize(
    ("policy", "shape", "used", "strategy", "want"),
    [
        pytest.param("SingleNUMANode", BIG, (4, 40), "MostAllocated", 1, id="the-fuller"),
        pytest.param("SingleNUMANode", BIG, (4, 40), "LeastAllocated", 0, id="the-emptier"),
        pytest.param("SingleNUMANode", BIG, (4, 52), "MostAllocated", 0, id="the-fuller-is-full"),
        pytest.param("Restricted", (4, 1, 13, 2), (24, 23, 4, 8), "MostAllocated", 3, id="the-fullest-with-room"),
        pytest.param("Restricted", (4, 1, 13, 2), (24, 23, 4, 8), "LeastAllocated", 2, id="the-emptiest"),
    ],
)
def test_which_numa_node(policy: str, shape: Shape, used: tuple[int, ...], strategy: str, want: int) -> None:
    rig = Machines(scored(numaScoringStrategy={"type": strategy}))
    rig.machine("n", shape, memory=256 // len(used), labels={POLICY: policy})
    for node, cpus in enumerate(used):
        status = f'{{"numaNodeResources":[{{"node":{node},"resources":{{"cpu":"{cpus}","memory":"8Gi"}}}}]}}'
        rig.holds(share(f"there-{node}", str(cpus), "8Gi"), "n", status)
    rig.submit(share("p", "4", "40Gi"))
    rig.run()
    assert [item.node for item in rig.resource_status("p").numa_node_resources] == [want]


def test_a_machine_of_one_numa_node_gives_no_amounts() -> None:
    rig = Machines()
    rig.machine("n", (1, 1, 8, 2), labels={POLICY: "SingleNUMANode"})
    rig.submit(lsr("bound"), share("shared"))
    rig.run()
    assert rig.resource_status("bound") == ResourceStatus("0-3")
    assert RESOURCE_STATUS not in rig.binding("shared").annotations


@pytest.mark.parametrize(
    ("exclusive", "fits"),
    [
        pytest.param("", False, id="a-pod-that-names-a-policy-keeps-off"),
        pytest.param("Required", False, id="required"),
        pytest.param("Preferred", True, id="preferred-does-nothing"),
    ],
)
def test_single_numa_node_exclusive(exclusive: str, *, fits: bool) -> None:
    rig = Machines()
    rig.machine("n")
    rig.holds(lsr("spanning", "2"), "n", '{"cpuset":"0,8"}')
    rig.submit(share("p").align("SingleNUMANode", exclusive=exclusive))
    rig.run()
    assert bool(rig.where("p")) is fits


@pytest.mark.parametrize(
    ("labels", "pod", "fits"),
    [
        pytest.param({POLICY: "SingleNUMANode"}, share("p"), True, id="only-the-node-named-one"),
        pytest.param({POLICY: "SingleNUMANode"}, share("p").align("SingleNUMANode"), False, id="both-named-one"),
        pytest.param({POLICY: "SingleNUMANode"}, share("p").align("", exclusive="Required"), False, id="exclusive"),
        pytest.param({}, share("p").align("BestEffort"), True, id="best-effort-refuses-no-pod"),
    ],
)
def test_whether_a_pod_is_exclusive_at_all(labels: dict[str, str], pod: PodBuilder, *, fits: bool) -> None:
    rig = Machines()
    rig.machine("n", labels=labels)
    rig.holds(lsr("spanning", "2"), "n", '{"cpuset":"0,8"}')
    rig.submit(pod)
    rig.run()
    assert bool(rig.where("p")) is fits


def test_numa_nodes_that_become_shared_admit_other_pods() -> None:
    rig = Machines()
    rig.machine("n")
    rig.holds(lsr("single", "2"), "n", '{"cpuset":"0-1"}')
    rig.submit(share("wide", "9").align("Restricted"))
    rig.run()
    assert not rig.where("wide"), "it would span a NUMA node that has a pod of its own"
    rig.holds(lsr("spanning", "2"), "n", '{"cpuset":"2,8"}')
    rig.clock.advance(20)
    rig.run()
    assert rig.where("wide") == "n"


def test_best_effort_spreads_pods_that_cannot_be_aligned() -> None:
    rig = Machines()
    rig.machine("n", labels={POLICY: "BestEffort"})
    rig.holds(share("a", "5", "1Gi"), "n", '{"numaNodeResources":[{"node":0,"resources":{"cpu":"5"}}]}')
    rig.holds(share("b", "1", "120Gi"), "n", '{"numaNodeResources":[{"node":1,"resources":{"memory":"120Gi"}}]}')
    rig.submit(share("p", "6", "40Gi"))
    rig.run()
    amounts = [(item.node, item.resources) for item in rig.resource_status("p").numa_node_resources]
    assert amounts == [(0, {"cpu": "3", "memory": "32Gi"}), (1, {"cpu": "3", "memory": "8Gi"})]


def test_best_effort_avoids_nodes_where_reserve_would_refuse() -> None:
    rig = Machines()
    rig.machine("full", labels={POLICY: "BestEffort"})
    rig.machine("free", labels={POLICY: "BestEffort"})
    status = '{"numaNodeResources":[{"node":0,"resources":{"cpu":"8"}},{"node":1,"resources":{"cpu":"8"}}]}'
    rig.holds(share("a", "1", "1Gi"), "full", status)
    rig.holds(share("b", "10", "1Gi"), "free", '{"numaNodeResources":[]}')
    rig.submit(share("p", "4", "1Gi"))
    rig.run()
    assert rig.where("p") == "free"


@pytest.mark.parametrize(
    ("ratio", "there", "pod", "message"),
    [
        pytest.param(2, share("there", "32"), share("p", "32"), "", id="share-beside-share"),
        pytest.param(2, share("there", "64"), share("p", "32"), "Insufficient cpu", id="share-beside-too-much"),
        pytest.param(2, lsr("there", "32"), share("p", "32"), "Insufficient amplified cpu", id="bound-cpus-are-real"),
        pytest.param(2, share("there", "32"), lsr("p", "32"), "Insufficient amplified cpu", id="who-wants-real-ones"),
        pytest.param(2, lsr("there", "32"), lsr("p", "32"), "Insufficient amplified cpu", id="none-are-left"),
        pytest.param(1, lsr("there", "32"), share("p", "32"), "", id="ratio-1"),
    ],
)
def test_amplified_nodes(ratio: int, there: PodBuilder, pod: PodBuilder, message: str) -> None:
    """NUMA-E13: 32 real CPUs, allocatable 64. With ratio 1 bound CPUs do not count twice."""
    rig = Machines()
    rig.machine("n", (2, 1, 8, 2))
    node = rig.core.cache.nodes["n"].known
    status = replace(node.status, allocatable={**node.status.allocatable, "cpu": "64"})
    metadata = replace(node.metadata, annotations={AMPLIFICATION_RATIO: f'{{"cpu":{ratio}}}'})
    rig.core.intake.set_node(replace(node, metadata=metadata, status=status))
    if "qosClass" in str(there.manifest):
        there.annotation(RESOURCE_STATUS, '{"cpuset":"0-31"}')
    rig.running(there, "n")
    rig.submit(pod)
    rig.run()
    assert rig.where("p") == ("" if message else "n")
    if message:
        assert rig.filter_message("p") == f"1 {message}."


def test_an_invalid_ratio() -> None:
    rig = Machines()
    rig.machine("n")
    node = rig.core.cache.nodes["n"].known
    rig.core.intake.set_node(replace(node, metadata=replace(node.metadata, annotations={AMPLIFICATION_RATIO: "much"})))
    rig.submit(share("p"))
    rig.run()
    assert rig.filter_message("p") == "1 node(s) invalid CPU amplification ratio."


def test_victims_free_their_numa_node() -> None:
    rig = Machines()
    rig.machine("n", (2, 1, 2, 2), labels={POLICY: "SingleNUMANode"})
    rig.submit(lsr("a", "3").priority(9000), lsr("b", "3").priority(9100))
    rig.run()
    rig.submit(lsr("p", "4").priority(9999))
    rig.run()
    assert rig.victims() == ["a"]
    rig.delete("a")
    rig.clock.advance(20)
    rig.run()
    assert rig.resource_status("p").cpuset == "4-7"
