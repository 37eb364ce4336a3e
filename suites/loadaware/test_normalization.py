"""CPU normalization: the ratio of a node's CPU model, its amplified allocatable CPU, and what pods get of it."""

import json
from typing import Any

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.numa import CPU_BASIC_INFO, CPU_NORMALIZATION_ENABLED, CPU_NORMALIZATION_RATIO
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE, USAGE_THRESHOLDS
from seatrial.suites.loadaware.reports import INTERVAL, settle

FAST, PLAIN = "Fast CPU @ 4.00GHz", "Plain CPU @ 2.00GHz"
# Without `enable` Koordinator's manager calculates nothing for a node. Its LoadAwareScheduling waits for reports.
COLOCATION = {"colocation-config": {"enable": True, "metricReportIntervalSeconds": INTERVAL}}
CONFIG = {
    **COLOCATION,
    "cpu-normalization-config": {
        "enable": True,
        "ratioModel": {FAST: {"baseRatio": 1.5, "hyperThreadEnabledRatio": 1.2}, PLAIN: {"baseRatio": 0.8}},
    },
}
WITHIN = 40.0  # seconds; a node's status is written again within ten

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.alone]


def model(cluster: Trial, name: str, cpu: str, *, threads: bool = False, turbo: bool = False) -> None:
    """Write the CPU model of a node, as koordlet reports it."""
    info = {"cpuModel": cpu, "hyperThreadEnabled": threads, "turboEnabled": turbo}
    patch = {"metadata": {"annotations": {CPU_BASIC_INFO: json.dumps(info)}}}
    path = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{name}"
    accepted(cluster.call("PATCH", path, patch), f"write the CPU model of {name}")


def allocatable(cluster: Trial, name: str) -> str:
    found: str = cluster.node(name)["status"]["allocatable"]["cpu"]
    return found


def annotation(cluster: Trial, name: str, key: str) -> str:
    found: str = (cluster.node(name)["metadata"].get("annotations") or {}).get(key, "")
    return found


def expect_cpu(cluster: Trial, name: str, cpu: str) -> None:
    cluster.cluster.wait(lambda: allocatable(cluster, name) == cpu, within=WITHIN)
    assert allocatable(cluster, name) == cpu, (
        f"ratio {annotation(cluster, name, CPU_NORMALIZATION_RATIO)!r},"
        f" raw {annotation(cluster, name, RAW_ALLOCATABLE)!r}"
    )


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-030", severity="critical")
@pytest.mark.long(seconds=60)
def test_allocatable_cpu_is_multiplied_by_the_ratio(cluster: Trial, start_manager: StartManager) -> None:
    """Model, hyper-threading and turbo decide the ratio; a ratio below 1 is refused, and the label turns it off."""
    cluster.add(*(node(name).cpu(16).memory("64Gi") for name in ("base", "threads", "slow", "off")))
    model(cluster, "base", FAST)
    model(cluster, "threads", FAST, threads=True)
    model(cluster, "slow", PLAIN)
    model(cluster, "off", FAST)
    patch = {"metadata": {"labels": {CPU_NORMALIZATION_ENABLED: "false"}}}
    accepted(cluster.call("PATCH", "/api/v1/nodes/off", patch), "label off")
    start_manager(CONFIG, webhook=True)

    expect_cpu(cluster, "base", "24")
    expect_cpu(cluster, "threads", "19200m")
    assert json.loads(annotation(cluster, "base", RAW_ALLOCATABLE))["cpu"] == "16"
    assert cluster.node("base")["status"]["capacity"]["cpu"] == "16"
    assert (allocatable(cluster, "slow"), annotation(cluster, "slow", CPU_NORMALIZATION_RATIO)) == ("16", "")
    assert (allocatable(cluster, "off"), annotation(cluster, "off", CPU_NORMALIZATION_RATIO)) == ("16", "1.00")

    patch = {"metadata": {"labels": {CPU_NORMALIZATION_ENABLED: "false"}}}
    accepted(cluster.call("PATCH", "/api/v1/nodes/base", patch), "label base")
    expect_cpu(cluster, "base", "16")


@pytest.mark.feature("CPU-4.scheduled-by-ratio")
@pytest.mark.case("LA-031", severity="critical")
@pytest.mark.long(seconds=60)
def test_pods_are_scheduled_by_the_amplified_amount(
    cluster: Trial, expect: Expect, start_manager: StartManager
) -> None:
    """A node of 16 real cores with ratio 1.5 takes two pods of 12 cores and no third.

    Before the ratio the second pod waits. 14 bound CPUs are real, so they count as 21 and leave no room for 4 more.
    Thresholds of usage do not hold for the node.
    """
    cluster.add(node("n1").cpu(16).memory("64Gi"))
    unlimited = {"metadata": {"annotations": {USAGE_THRESHOLDS: json.dumps({"usageThresholds": {"cpu": 0}})}}}
    accepted(cluster.call("PATCH", "/api/v1/nodes/n1", unlimited), "no threshold")
    cluster.submit(pod("a").request(cpu=12, memory="1Gi"), pod("b").request(cpu=12, memory="1Gi"))
    assert cluster.reaches(lambda: bool(bound(cluster)), within=30)
    settle(cluster)
    assert len(bound(cluster)) == 1
    model(cluster, "n1", FAST)
    start_manager(CONFIG, webhook=True)
    expect_cpu(cluster, "n1", "24")
    expect.running("a", "b", within=60)
    cluster.submit(pod("c").request(cpu=1, memory="1Gi"))
    expect.pending("c", saying="Insufficient cpu")
    cluster.delete("a", "b")
    expect.bound("c")
    cluster.delete("c")
    pinned = pod("pinned").request(cpu=14, memory="1Gi").qos("LSR").bind_cpus(required="FullPCPUs")
    cluster.submit(pinned)
    expect.bound("pinned")
    cluster.submit(pod("d").request(cpu=4, memory="1Gi"))
    expect.pending("d", saying="Insufficient amplified cpu")


def bound(cluster: Trial) -> list[str]:
    return [found.metadata.name for found in cluster.pods() if found.spec.node_name]


@pytest.mark.feature("CPU-4.reported")
@pytest.mark.case("LA-033", severity="critical")
@pytest.mark.long(seconds=60)
def test_the_model_that_the_agent_reports_decides(cluster: Trial, start_manager: StartManager) -> None:
    """Nodes of three CPU models: agents report them, and nothing is written by hand. One has a ratio with and one
    without hyper-threading, and a model that the table lacks leaves its node as it is."""
    cluster.add(
        node("fast").cpu(16).memory("64Gi").processor(FAST),
        node("threads").cpu(16).memory("64Gi").processor(FAST, hyper_threading=True),
        node("unknown").cpu(16).memory("64Gi").processor("Other CPU"),
    )
    start_manager(CONFIG, webhook=True)

    expect_cpu(cluster, "fast", "24")
    expect_cpu(cluster, "threads", "19200m")
    assert (allocatable(cluster, "unknown"), annotation(cluster, "unknown", CPU_NORMALIZATION_RATIO)) == ("16", "")


@pytest.mark.feature("CPU-4.manifest-cpu-normalization")
@pytest.mark.case("LA-032", severity="critical")
@pytest.mark.long(seconds=60)
def test_the_released_ratios(cluster: Trial, start_manager: StartManager) -> None:
    """The ConfigMap of the announcement, on nodes of its two CPU models.

    Colocation is on. Its ratio 0.82 for a model with hyper-threading and without turbo is below 1, which Koordinator
    refuses.
    """
    path = suites_folder() / "manifests/v1.4/cpu-normalization.yaml"
    data: dict[str, Any] = next(
        found["data"] for found in yaml.safe_load_all(path.read_bytes()) if found["kind"] == "ConfigMap"
    )
    ice_lake, cascade_lake = "Intel Xeon Platinum 8369B CPU @ 2.90GHz", "Intel(R) Xeon(R) Platinum 8269CY CPU @ 2.50GHz"
    cluster.add(*(node(name).cpu(20).memory("64Gi") for name in ("fast", "both", "refused", "none")))
    model(cluster, "fast", ice_lake, threads=True, turbo=True)
    model(cluster, "both", cascade_lake, threads=True, turbo=True)
    model(cluster, "refused", cascade_lake, threads=True)
    model(cluster, "none", cascade_lake)
    start_manager(COLOCATION | data, webhook=True)

    expect_cpu(cluster, "fast", "24")
    expect_cpu(cluster, "none", "25800m")
    assert (allocatable(cluster, "both"), annotation(cluster, "both", CPU_NORMALIZATION_RATIO)) == ("20", "1.00")
    assert (allocatable(cluster, "refused"), annotation(cluster, "refused", CPU_NORMALIZATION_RATIO)) == ("20", "")


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-045", severity="critical")
@pytest.mark.long(seconds=60)
def test_other_changes_of_a_node_leave_its_amount(cluster: Trial, start_manager: StartManager) -> None:
    """Labels and conditions of a node with ratio 1.5 change: its amount is not multiplied again."""
    cluster.add(node("fast").cpu(16).memory("64Gi").processor(FAST))
    start_manager(CONFIG, webhook=True)
    expect_cpu(cluster, "fast", "24")
    for number in range(3):
        label = {"metadata": {"labels": {"example.com/change": str(number)}}}
        condition = {"type": "ExampleChange", "status": "True", "reason": f"Change{number}"}
        for path, patch in (("", label), ("/status", {"status": {"conditions": [condition]}})):
            accepted(cluster.call("PATCH", f"/api/v1/nodes/fast{path}", patch), "change the node")
            assert allocatable(cluster, "fast") == "24"
    assert json.loads(annotation(cluster, "fast", RAW_ALLOCATABLE))["cpu"] == "16"
