"""The node agent of this machine reports the values of /proc and cgroup files."""

from pathlib import Path

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import milli, units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import CPU_BASIC_INFO
from seatrial.suites.loadaware.reports import INTERVAL, next_report

pytestmark = [pytest.mark.needs(Capability.CONTAINERS)]


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-026", severity="critical")
@pytest.mark.long(seconds=100)
def test_use_of_this_machine_is_reported(trial: Trial, expect: Expect) -> None:
    """One pod computes all the time, another sleeps: their use differs, and the node uses as much as they do."""
    only = trial.machine()
    name = only["metadata"]["name"]
    policy = {"reportIntervalSeconds": INTERVAL, "aggregateDurationSeconds": 60}
    trial.apply(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "spec": {"metricCollectPolicy": policy},
        }
    )
    busy, idle = pod("busy").request(cpu="500m", memory="64Mi"), pod("idle").request(cpu="500m", memory="64Mi")
    busy.manifest["spec"]["containers"][0]["command"] = ["sh", "-c", "while :; do :; done"]
    idle.manifest["spec"]["containers"][0]["command"] = ["sleep", "600"]
    trial.submit(busy, idle)
    expect.running("busy", "idle")
    next_report(trial, name)
    report = next_report(trial, name)

    used = {
        row["name"]: milli(row["podUsage"]["resources"]["cpu"])
        for row in report["podsMetric"]
        if row["namespace"] == trial.name
    }
    assert used["busy"] > 50 * max(used["idle"], 1), f"milli-CPU by pod: {used}"
    node = report["nodeMetric"]["nodeUsage"]["resources"]
    assert milli(node["cpu"]) >= used["busy"] * 0.9
    assert units(node["memory"]) > units(report["podsMetric"][0]["podUsage"]["resources"]["memory"]) > 0
    assert "systemUsage" in report["nodeMetric"]
    by_numa = [milli(entry["nodeUsage"]["resources"]["cpu"]) for entry in report["nodeMetric"]["numaUsages"]]
    assert len(by_numa) == len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    assert abs(sum(by_numa) - milli(node["cpu"])) <= 0.05 * milli(node["cpu"]) + 20


@pytest.mark.feature("CPU-4.reported")
@pytest.mark.case("LA-034", severity="normal")
def test_the_cpu_model_of_this_machine_is_reported(trial: Trial) -> None:
    """The model in /proc/cpuinfo is in the annotation that CPU normalization reads."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    if not model:
        pytest.skip("/proc/cpuinfo of this machine names no model")
    only = trial.machine()
    path = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{only['metadata']['name']}"
    annotations = orjson.loads(trial.call("GET", path).body)["metadata"]["annotations"]
    assert orjson.loads(annotations[CPU_BASIC_INFO])["cpuModel"] == model
