"""CPU normalization: the ratio of a node's CPU model, its amplified allocatable CPU, and what pods get of it."""

import json
from typing import Any

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.numa import CPU_NORMALIZATION_ENABLED, CPU_NORMALIZATION_RATIO
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE, USAGE_THRESHOLDS
from seatrial.suites.loadaware.normalization import COLOCATION, CONFIG, FAST, PLAIN, annotation, model
from seatrial.suites.loadaware.reports import settle

WITHIN = 40.0  # seconds; a node's status is written again within ten

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.alone]


def allocatable(trial: Trial, name: str) -> str:
    cpu: str = trial.node(name)["status"]["allocatable"]["cpu"]
    return cpu


def expect_cpu(trial: Trial, name: str, cpu: str) -> None:
    trial.wait(lambda: allocatable(trial, name) == cpu, within=WITHIN)
    assert allocatable(trial, name) == cpu, (
        f"ratio {annotation(trial, name, CPU_NORMALIZATION_RATIO)!r}, raw {annotation(trial, name, RAW_ALLOCATABLE)!r}"
    )


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-030", severity="critical")
@pytest.mark.long(seconds=60)
def test_allocatable_cpu_is_multiplied_by_the_ratio(trial: Trial, start_manager: StartManager) -> None:
    """Model, hyper-threading and turbo decide the ratio; a ratio below 1 is refused, and the label turns it off."""
    trial.add(*(node(name).cpu(16).memory("64Gi") for name in ("base", "threads", "slow", "off")))
    model(trial, "base", FAST)
    model(trial, "threads", FAST, threads=True)
    model(trial, "slow", PLAIN)
    model(trial, "off", FAST)
    patch = {"metadata": {"labels": {CPU_NORMALIZATION_ENABLED: "false"}}}
    accepted(trial.call("PATCH", "/api/v1/nodes/off", patch), "label off")
    start_manager(CONFIG, webhook=True)

    expect_cpu(trial, "base", "24")
    expect_cpu(trial, "threads", "19200m")
    assert json.loads(annotation(trial, "base", RAW_ALLOCATABLE))["cpu"] == "16"
    assert trial.node("base")["status"]["capacity"]["cpu"] == "16"
    assert (allocatable(trial, "slow"), annotation(trial, "slow", CPU_NORMALIZATION_RATIO)) == ("16", "")
    assert (allocatable(trial, "off"), annotation(trial, "off", CPU_NORMALIZATION_RATIO)) == ("16", "1.00")

    patch = {"metadata": {"labels": {CPU_NORMALIZATION_ENABLED: "false"}}}
    accepted(trial.call("PATCH", "/api/v1/nodes/base", patch), "label base")
    expect_cpu(trial, "base", "16")
    assert trial.wait(lambda: not annotation(trial, "base", RAW_ALLOCATABLE), within=WITHIN), "nothing is amplified now"


@pytest.mark.feature("CPU-4.scheduled-by-ratio")
@pytest.mark.case("LA-031", severity="critical")
@pytest.mark.long(seconds=60)
def test_pods_are_scheduled_by_the_amplified_amount(trial: Trial, expect: Expect, start_manager: StartManager) -> None:
    """A node of 16 real cores with ratio 1.5 takes two pods of 12 cores and no third.

    Before the ratio the second pod waits. 14 bound CPUs are real, so they count as 21 and leave no room for 4 more.
    Thresholds of usage do not hold for the node.
    """
    trial.add(node("n1").cpu(16).memory("64Gi"))
    unlimited = {"metadata": {"annotations": {USAGE_THRESHOLDS: json.dumps({"usageThresholds": {"cpu": 0}})}}}
    accepted(trial.call("PATCH", "/api/v1/nodes/n1", unlimited), "no threshold")
    trial.submit(pod("a").request(cpu=12, memory="1Gi"), pod("b").request(cpu=12, memory="1Gi"))
    assert trial.reaches(lambda: bool(bound(trial)), within=30)
    settle(trial)
    assert len(bound(trial)) == 1
    model(trial, "n1", FAST)
    start_manager(CONFIG, webhook=True)
    expect_cpu(trial, "n1", "24")
    expect.running("a", "b", within=60)
    trial.submit(pod("c").request(cpu=1, memory="1Gi"))
    expect.pending("c", saying="Insufficient cpu")
    trial.delete("a", "b")
    expect.bound("c")
    trial.delete("c")
    pinned = pod("pinned").request(cpu=14, memory="1Gi").qos("LSR").bind_cpus(required="FullPCPUs")
    trial.submit(pinned)
    expect.bound("pinned")
    trial.submit(pod("d").request(cpu=4, memory="1Gi"))
    expect.pending("d", saying="Insufficient amplified cpu")


def bound(trial: Trial) -> list[str]:
    return [pod.metadata.name for pod in trial.pods() if pod.spec.node_name]


@pytest.mark.feature("CPU-4.reported")
@pytest.mark.case("LA-033", severity="critical")
@pytest.mark.long(seconds=60)
def test_the_model_that_the_agent_reports_decides(trial: Trial, start_manager: StartManager) -> None:
    """Nodes of three CPU models: agents report them, and nothing is written by hand. One has a ratio with and one
    without hyper-threading, and a model that the table lacks leaves its node as it is."""
    trial.add(
        node("fast").cpu(16).memory("64Gi").processor(FAST),
        node("threads").cpu(16).memory("64Gi").processor(FAST, hyper_threading=True),
        node("unknown").cpu(16).memory("64Gi").processor("Other CPU"),
    )
    start_manager(CONFIG, webhook=True)

    expect_cpu(trial, "fast", "24")
    expect_cpu(trial, "threads", "19200m")
    assert (allocatable(trial, "unknown"), annotation(trial, "unknown", CPU_NORMALIZATION_RATIO)) == ("16", "")


@pytest.mark.feature("CPU-4.manifest-cpu-normalization")
@pytest.mark.case("LA-032", severity="critical")
@pytest.mark.long(seconds=60)
def test_the_released_ratios(trial: Trial, start_manager: StartManager) -> None:
    """The ConfigMap of the announcement, on nodes of its two CPU models.

    Colocation is on. Its ratio 0.82 for a model with hyper-threading and without turbo is below 1, which Koordinator
    refuses.
    """
    path = suites_folder() / "manifests/v1.4/cpu-normalization.yaml"
    data: dict[str, Any] = next(
        document["data"] for document in yaml.safe_load_all(path.read_bytes()) if document["kind"] == "ConfigMap"
    )
    ice_lake, cascade_lake = "Intel Xeon Platinum 8369B CPU @ 2.90GHz", "Intel(R) Xeon(R) Platinum 8269CY CPU @ 2.50GHz"
    trial.add(*(node(name).cpu(20).memory("64Gi") for name in ("fast", "both", "refused", "none")))
    model(trial, "fast", ice_lake, threads=True, turbo=True)
    model(trial, "both", cascade_lake, threads=True, turbo=True)
    model(trial, "refused", cascade_lake, threads=True)
    model(trial, "none", cascade_lake)
    start_manager(COLOCATION | data, webhook=True)

    expect_cpu(trial, "fast", "24")
    expect_cpu(trial, "none", "25800m")
    assert (allocatable(trial, "both"), annotation(trial, "both", CPU_NORMALIZATION_RATIO)) == ("20", "1.00")
    assert (allocatable(trial, "refused"), annotation(trial, "refused", CPU_NORMALIZATION_RATIO)) == ("20", "")


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-045", severity="critical")
@pytest.mark.long(seconds=60)
def test_other_changes_of_a_node_leave_its_amount(trial: Trial, start_manager: StartManager) -> None:
    """Labels and conditions of a node with ratio 1.5 change: its amount is not multiplied again. What kubelet has
    measured anew is."""
    trial.add(node("fast").cpu(16).memory("64Gi").processor(FAST))
    start_manager(CONFIG, webhook=True)
    expect_cpu(trial, "fast", "24")
    for number in range(3):
        label = {"metadata": {"labels": {"example.com/change": str(number)}}}
        condition = {"type": "ExampleChange", "status": "True", "reason": f"Change{number}"}
        for path, patch in (("", label), ("/status", {"status": {"conditions": [condition]}})):
            accepted(trial.call("PATCH", f"/api/v1/nodes/fast{path}", patch), "change the node")
            assert allocatable(trial, "fast") == "24"
    assert json.loads(annotation(trial, "fast", RAW_ALLOCATABLE))["cpu"] == "16"
    measured = {"status": {"allocatable": {"cpu": "15"}}}
    answer = json.loads(accepted(trial.call("PATCH", "/api/v1/nodes/fast/status", measured), "measure anew").body)
    raw = json.loads(answer["metadata"]["annotations"][RAW_ALLOCATABLE])
    assert (raw["cpu"], answer["status"]["allocatable"]["cpu"]) == ("15", "22500m")


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case(
    "LA-150",
    severity="critical",
    source="koordinator pkg/webhook/node/plugins/resourceamplification/resource_amplification.go: supportedResources",
)
@pytest.mark.long(seconds=60)
def test_memory_is_multiplied_by_its_own_ratio(trial: Trial, start_manager: StartManager) -> None:
    """A node has ratios for CPU and memory. What kubelet measures anew is multiplied, also memory alone."""
    trial.add(node("n1").cpu(16).memory("64Gi"))
    values = {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5, "memory": 2}}
    start_manager({**CONFIG, "resource-amplification-config": values}, webhook=True)
    expect_cpu(trial, "n1", "24")
    assert amount("memory", trial.node("n1")["status"]["allocatable"]["memory"]) == 128 << 30

    measured = {"status": {"allocatable": {"memory": "60Gi"}}}
    answer = json.loads(accepted(trial.call("PATCH", "/api/v1/nodes/n1/status", measured), "measure anew").body)

    raw = json.loads(answer["metadata"]["annotations"][RAW_ALLOCATABLE])
    assert amount("memory", raw["memory"]) == 60 << 30
    assert amount("memory", answer["status"]["allocatable"]["memory"]) == 120 << 30
