"""Node scores: NUMA-E11, NUMA-E12, NUMA-E14, and invalid arguments."""

from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.numa import AMPLIFICATION_RATIO, NUMA_TOPOLOGY_POLICY_LABEL, RESOURCE_STATUS
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.config import ConfigError, Configuration, expand
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.plugins.nodenuma.tests.machines import BIG, SMALL, Shape
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr, scored, share

POLICY = NUMA_TOPOLOGY_POLICY_LABEL
MOST, LEAST = {"scoringStrategy": {"type": "MostAllocated"}}, {"scoringStrategy": {"type": "LeastAllocated"}}
CPU_ONLY = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}


def scores(rig: Machines, builder: PodBuilder) -> dict[str, int]:
    """The plugin's score of each feasible node."""
    pod = rig.pod(builder)
    info = PodInfo(pod, rig.core.cache.classes.of(pod))
    feasible = explain(rig.core.runners.of(info), info).feasible
    return {entry.node: entry.by_plugin["NodeNUMAResource"] for entry in sorted(feasible, key=lambda entry: entry.node)}


@pytest.mark.parametrize(
    ("policy", "cpu", "want"),
    [
        pytest.param("SingleNUMANode", "21", {"a": 35, "b": 31}, id="one-numa-node-of-two"),
        pytest.param("Restricted", "50", {"a": 63, "b": 54}, id="nearly-full"),
    ],
)
def test_the_numa_nodes_of_the_pod_are_scored(policy: str, cpu: str, want: dict[str, int]) -> None:
    rig = Machines(scored(**MOST))
    rig.machine("a", BIG, labels={POLICY: policy})
    rig.machine("b", (1, 1, 32, 2), labels={POLICY: policy})
    assert scores(rig, share("p", cpu, "40Gi")) == want


def test_the_emptier_numa_node_is_chosen_and_scored() -> None:
    rig = Machines(scored(**MOST))
    for name, cpu in (("a", 4), ("b", 8), ("c", 16)):
        rig.machine(name, BIG, labels={POLICY: "SingleNUMANode"})
        status = f'{{"numaNodeResources":[{{"node":0,"resources":{{"cpu":"{cpu}","memory":"20Gi"}}}}]}}'
        rig.holds(share(f"on-{name}", str(cpu), "20Gi"), name, status)
    assert scores(rig, share("p", "4", "40Gi")) == {"a": 19, "b": 19, "c": 19}


def test_for_bound_pods_all_bound_cpus_of_the_node_count() -> None:
    rig = Machines(scored(**MOST))
    for name, cpu in (("a", 4), ("b", 8), ("c", 16)):
        rig.machine(name, BIG, labels={POLICY: "SingleNUMANode"})
        amounts = f'[{{"node":0,"resources":{{"cpu":"{cpu}","memory":"20Gi"}}}}]'
        rig.holds(
            lsr(f"on-{name}", str(cpu), "20Gi"), name, f'{{"cpuset":"0-{cpu - 1}","numaNodeResources":{amounts}}}'
        )
    assert scores(rig, lsr("p", "4", "40Gi")) == {"a": 23, "b": 27, "c": 34}


@pytest.mark.parametrize(
    ("shape", "cpu", "want"),
    [
        pytest.param(SMALL, "2", 12, id="an-eighth"),
        pytest.param(SMALL, "4", 25, id="a-quarter"),
        pytest.param(SMALL, "8", 50, id="a-half"),
        pytest.param(SMALL, "16", 100, id="all"),
        pytest.param((2, 2, 4, 2), "16", 50, id="half-of-four-numa-nodes"),
    ],
)
def test_without_a_policy_the_whole_node_is_scored(shape: Shape, cpu: str, want: int) -> None:
    rig = Machines(scored(**CPU_ONLY))
    rig.machine("n", shape)
    assert scores(rig, lsr("p", cpu)) == {"n": want}


@pytest.mark.parametrize(
    ("strategy", "there", "pod", "want"),
    [
        pytest.param(MOST, None, share("p", "8", "16Gi"), [32, 16, 26], id="most-share"),
        pytest.param(MOST, None, lsr("p", "8", "16Gi"), [32, 19, 32], id="most-bound"),
        pytest.param(MOST, lsr, share("p", "8", "16Gi"), [68, 35, 26], id="most-share-beside-bound"),
        pytest.param(MOST, lsr, lsr("p", "8", "16Gi"), [68, 38, 32], id="most-bound-beside-bound"),
        pytest.param(MOST, share, lsr("p", "8", "16Gi"), [68, 30, 32], id="most-bound-beside-share"),
        pytest.param(LEAST, share, share("p", "8", "16Gi"), [31, 72, 73], id="least-share-beside-share"),
        pytest.param(LEAST, share, lsr("p", "8", "16Gi"), [31, 68, 67], id="least-bound-beside-share"),
        pytest.param(LEAST, lsr, share("p", "8", "16Gi"), [31, 64, 73], id="least-share-beside-bound"),
        pytest.param(LEAST, lsr, lsr("p", "8", "16Gi"), [31, 61, 67], id="least-bound-beside-bound"),
    ],
)
def test_amplified_nodes(strategy: dict[str, Any], there: Any, pod: PodBuilder, want: list[int]) -> None:
    rig = Machines(scored(**strategy))
    for name, cores, memory, ratio in (("a", 16, 40, 1), ("b", 32, 60, 2), ("c", 16, 40, 2)):
        rig.machine(name, (1, 1, cores, 2), memory=memory)
        node = rig.core.cache.nodes[name].known
        amounts = {**node.status.allocatable, "cpu": cores * 2 * ratio}
        marks = {AMPLIFICATION_RATIO: f'{{"cpu":{ratio}}}'} if ratio > 1 else {}
        rig.core.intake.set_node(
            replace(
                node,
                metadata=replace(node.metadata, annotations=marks),
                status=replace(node.status, allocatable=amounts),
            )
        )
        if there is not None and name != "c":
            held = there(f"on-{name}", "20", "4Gi")
            rig.running(held.annotation(RESOURCE_STATUS, '{"cpuset":"0-19"}') if there is lsr else held, name)
    assert list(scores(rig, pod).values()) == want


def test_plain_pods_are_scored_once_a_node_affects_them() -> None:
    rig = Machines(scored(**MOST))
    rig.machine("a")
    assert scores(rig, share("p")) == {"a": 0}, "it would say what NodeResourcesFit says, and cost as much"
    rig.machine("b", labels={POLICY: "Restricted"})
    assert scores(rig, share("p")) == {"a": 12, "b": 25}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            {"defaultCPUBindPolicy": "Any"}, "must specified CPU bind policy FullPCPUs or SpreadByPCPUs", id="policy"
        ),
        pytest.param({"scoringStrategy": None}, "scoring strategy must be specified", id="no-strategy"),
        pytest.param({"numaScoringStrategy": None}, "NUMA scoring strategy must be specified", id="no-numa-strategy"),
        pytest.param({"scoringStrategy": {"type": "Some"}}, "scoring strategy Some is not supported", id="strategy"),
        pytest.param(
            {"numaScoringStrategy": {"type": "Some"}}, "numa scoring strategy Some is not supported", id="numa-strategy"
        ),
    ],
)
def test_invalid_arguments(args: dict[str, Any], message: str) -> None:
    configuration: Configuration = scored(**args)
    with pytest.raises(ConfigError, match=message):
        expand(configuration)
