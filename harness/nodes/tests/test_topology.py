"""The NodeResourceTopology of simulated machines, and that agents publish it before their node is Ready."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import checked_entry, node_manifest, parse_fleet, processor_of
from seatrial.harness.nodes.hardware import machine_of
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.harness.nodes.topology import Kubelet, cpus_of, manifest, reservation, zones_of
from seatrial.scheduler.api.builders import NodeBuilder, node
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.numa import CPU_TOPOLOGY, KUBELET_CPU_MANAGER, NODE_RESERVATION

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"


@pytest.mark.parametrize(
    ("built", "cpus", "cores", "numa_nodes"),
    [
        pytest.param(node("n").server("dgx-h100"), 224, 112, 2, id="a-machine-of-the-catalogue"),
        pytest.param(node("n").gpus("a10", 2).cpu(48), 48, 24, 2, id="described-by-its-devices"),
        pytest.param(node("n").cpu(6), 6, 6, 2, id="too-odd-for-two-threads-a-core"),
        pytest.param(node("n").cpu(1), 1, 1, 1, id="one-cpu"),
    ],
)
def test_cpus(built: NodeBuilder, cpus: int, cores: int, numa_nodes: int) -> None:
    statuses = cpus_of(machine_of(built.manifest))
    assert [cpu["id"] for cpu in statuses] == list(range(cpus))
    assert len({(cpu["socket"], cpu["core"]) for cpu in statuses}) == cores
    on = Counter(cpu["node"] for cpu in statuses)
    assert len(on) == numa_nodes
    assert max(on.values()) - min(on.values()) <= 1
    for core in {cpu["core"] for cpu in statuses}:
        assert len({(cpu["node"], cpu["socket"]) for cpu in statuses if cpu["core"] == core}) == 1


def test_zones_add_up_to_the_machine() -> None:
    zones = zones_of(machine_of(node("n").cpu(64).memory("256Gi").manifest))
    assert [zone["name"] for zone in zones] == ["node-0", "node-1"]
    assert [zone["resources"][0]["allocatable"] for zone in zones] == ["32", "32"]
    assert [zone["resources"][1]["allocatable"] for zone in zones] == ["128Gi", "128Gi"]


def test_what_the_kubelet_was_told() -> None:
    kubelet = Kubelet("SingleNUMANodePodLevel", full_pcpus_only=True, reserved_cpus="0-1")
    results = manifest("n", "uid", machine_of({"name": "n"}), kubelet)
    assert results["topologyPolicies"] == ["SingleNUMANodePodLevel"]
    assert json.loads(results["metadata"]["annotations"][KUBELET_CPU_MANAGER]) == {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "0-1",
    }


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        pytest.param({"topology_policy": "Single"}, "kubelet.topology_policy: expected one of None, ", id="policy"),
        pytest.param({"reserved_cpus": "1-"}, "kubelet.reserved_cpus: expected a list of CPUs", id="cpus"),
        pytest.param({"policy": "None"}, "unknown field `policy`", id="an-unknown-field"),
    ],
)
def test_words_that_no_kubelet_knows(kubelet: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_entry({"name": "n", "kubelet": kubelet})
    with pytest.raises(UsageError, match=message):
        parse_fleet({"nodes": [{"name": "n", "kubelet": kubelet}]}, where="f")


@pytest.fixture
def api() -> Iterator[LittleApi]:
    clock = SimClock()
    api = LittleApi(clock)
    agents = NodeAgents(api, clock)
    agents.start()
    clock.settle()
    yield api
    agents.stop()


@pytest.mark.parametrize(
    ("written", "cpus"),
    [
        pytest.param('{"resources":{"cpu":"2"}}', "0,4", id="a-whole-core"),
        pytest.param('{"resources":{"cpu":"2500m"}}', "0-1,4", id="a-core-and-one-more"),
        pytest.param('{"resources":{"cpu":"2"},"reservedCPUs":"6-7"}', "6-7", id="a-list-decides"),
        pytest.param('{"resources":{"memory":"2Gi"}}', None, id="no-cpu"),
        pytest.param('{"resources":{"cpu":"-2"}}', None, id="less-than-nothing"),
        pytest.param("{", None, id="not-json"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_cpus_that_are_kept(written: str, cpus: str | None) -> None:
    text = reservation(machine_of(node("n").cpu(8).manifest), written)
    assert (json.loads(text)["reservedCPUs"] if text else None) == cpus


def test_agents_follow_what_a_node_keeps(api: LittleApi) -> None:
    api.put("/api/v1/nodes", node_manifest(checked_entry(node("n").cpu(8).manifest)))
    api.clock.settle()
    for text in ('{"resources":{"cpu":"1"}}', None):
        api.patch("/api/v1/nodes/n", {"metadata": {"annotations": {NODE_RESERVATION: text}}})
        api.clock.settle()
        known = api.get(f"{TOPOLOGIES}/n")["metadata"]["annotations"].get(NODE_RESERVATION)
        assert (known and json.loads(known)["reservedCPUs"]) == (text and "0")


def test_agents_publish_it_first(api: LittleApi) -> None:
    built = node("n").gpus("a10", 1).kubelet(topology_policy="RestrictedPodLevel")
    api.put("/api/v1/nodes", node_manifest(checked_entry(built.manifest)))
    api.clock.settle()
    entry = api.get(f"{TOPOLOGIES}/n")
    assert entry["topologyPolicies"] == ["RestrictedPodLevel"]
    assert len(json.loads(entry["metadata"]["annotations"][CPU_TOPOLOGY])["detail"]) == 28
    assert entry["metadata"]["ownerReferences"][0]["name"] == "n"
    written = [request.path for request in api.sent if request.method != "GET"]
    assert written.index(TOPOLOGIES) < written.index("/api/v1/nodes/n/status")


def test_what_others_wrote_stays(api: LittleApi) -> None:
    theirs = {"metadata": {"name": "n", "labels": {"theirs": "x"}}, "topologyPolicies": ["None"], "zones": []}
    api.put(TOPOLOGIES, theirs)
    api.put("/api/v1/nodes", node_manifest(checked_entry(node("n").cpu(8).manifest)))
    api.clock.settle()
    entry = api.get(f"{TOPOLOGIES}/n")
    assert entry["metadata"]["labels"] == {"theirs": "x", "app.kubernetes.io/managed-by": "Koordinator"}
    assert len(entry["zones"]) == 2


@pytest.mark.parametrize(
    ("cpus", "processor", "want"),
    [
        (8, {}, ("Simulated CPU", True, False)),
        (7, {}, ("Simulated CPU", False, False)),  # an odd number: one thread per core
        (8, {"model": "x", "hyper_threading": False, "turbo": True}, ("x", False, True)),
    ],
)
def test_the_cpu_model_is_reported(cpus: int, processor: dict[str, Any], want: tuple[str, bool, bool]) -> None:
    entry = checked_entry({"name": "n", "cpu": cpus, "processor": processor})
    results = manifest("n", "uid", machine_of(entry), processor=processor_of(entry))
    info = json.loads(results["metadata"]["annotations"]["node.koordinator.sh/cpu-basic-info"])
    assert (info["cpuModel"], info.get("hyperThreadEnabled", False), info.get("turboEnabled", False)) == want


def test_an_unknown_field_of_a_processor_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown field `modle`"):
        checked_entry({"name": "n", "processor": {"modle": "x"}})
