"""Under load every pod is bound once; latencies are measured from outside of the scheduler."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.occupancy import occupancy
from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.running import RunningAudit
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.load.bounds import Bounds, out_of_bounds
from seatrial.harness.load.measurements import record
from seatrial.harness.load.run import run_load
from seatrial.harness.load.settings import LoadSettings
from seatrial.harness.results import INVALID_LOAD, ResultsWriter
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import NVIDIA_GPU
from seatrial.scheduler.api.transport import Request

WORKLOADS = yaml.safe_load((Path(__file__).parent / "workloads.yaml").read_bytes())

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.alone]


@pytest.mark.feature("HIL-8.bound-once", "HIL-8.floors")
@pytest.mark.case("TP-001", severity="blocker")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in WORKLOADS])
def test_every_pod_is_bound_once(  # noqa: PLR0917
    request: pytest.FixtureRequest,
    fleet: Cluster,
    seatrial_audit: RunningAudit,
    subject: Subject | None,
    results: ResultsWriter | None,
    seed: int,
    row: dict[str, Any],
    tmp_path: Path,
) -> None:
    """Locust users create, watch and delete pods; none is lost or bound twice, and the figures are within bounds.

    A load that is not valid, as on a busy machine, verifies nothing: the case is skipped with the reason.
    """
    if fleet.endpoint is None:
        pytest.skip(f"needs a cluster that load processes can reach; {fleet.name} lives in this process")
    settings = LoadSettings(seed=seed, **{key: value for key, value in row.items() if key not in {"name", "bounds"}})
    bounds = Bounds.of(row["bounds"])
    begun = fleet.clock.now()
    violations_before = len(seatrial_audit.violations)

    result = run_load(settings, fleet.endpoint.kubeconfig, samples=tmp_path / "samples.jsonl")
    memory = subject.memory_mib() if subject is not None else None

    if results is not None:
        record(result, results, workload=row["name"], case=request.node.nodeid, begun=begun, memory_mib=memory)
        results.attach(request.node.nodeid, "load", orjson.dumps(result.as_json(), option=orjson.OPT_INDENT_2), ".json")
    assert result.created > 0, "the load created nothing"
    assert result.rebound == 0, f"{result.rebound} of {result.created} pods were bound more than once"
    assert result.unbound == 0, f"{result.unbound} of {result.created} pods were never bound"
    seatrial_audit.settle(fleet.clock.monotonic())
    seatrial_audit.check_state()
    violations = seatrial_audit.violations[violations_before:]
    assert not violations, "\n".join(map(str, violations))
    if not result.valid:
        pytest.skip(f"{INVALID_LOAD}: {'; '.join(result.invalid_because)}")
    breaches = out_of_bounds(bounds, result, memory_mib=memory)
    assert not breaches, "\n".join(breaches)


@pytest.mark.feature("DEV-1.once", "DEV-4.no-idle-card")
@pytest.mark.case("TP-002", severity="critical")
def test_a_fleet_fills_up(fleet: Cluster, trial: Trial, expect: Expect, results: ResultsWriter | None) -> None:
    """Whole cards and shares are placed until nothing fits; no card is idle while a pod waits for one."""
    cards = sum(1 for node in occupancy(fleet) for device in node.devices if device.type == "gpu")
    for number in range(0, cards * 2, 3):
        trial.submit(
            pod(f"whole-{number}").nvidia(1),
            pod(f"half-{number}").gpu_share(50),
            pod(f"quarter-{number}").gpu_share(25),
        )

    def settled() -> bool:
        return all(
            pod.spec.node_name or any(each.type == "PodScheduled" for each in pod.status.conditions)
            for pod in trial.pods()
        )

    assert trial.wait(settled, within=60), "some pods were neither bound nor refused"
    expect.stable(seconds=2)
    waiting = [pod.metadata.name for pod in trial.pods() if not pod.spec.node_name]
    states = occupancy(fleet)
    used = [
        device.used_core_percent
        for node in states
        if node.name in nvidia_nodes(fleet)
        for device in node.devices
        if device.type == "gpu"
    ]
    if results is not None:
        results.fleet(states)
        results.measure("GPU cores given out", "%", sum(used) / len(used), labels={"pods": "whole, half, quarter"})
    assert waiting, "the fleet was to be filled beyond what it holds"
    assert max(used) <= 100
    if any(name.startswith("whole") for name in waiting):
        assert all(share > 0 for share in used), f"a card is idle while whole-card pods wait: {used}"
    if any(name.startswith("quarter") for name in waiting):
        assert all(share > 75 for share in used), f"a quarter would fit while quarters wait: {used}"


def nvidia_nodes(fleet: Cluster) -> set[str]:
    """The names of the nodes that offer nvidia.com/gpu."""
    rows = orjson.loads(fleet.call(Request("GET", "/api/v1/nodes")).body)["items"]
    return {row["metadata"]["name"] for row in rows if NVIDIA_GPU in row["status"].get("allocatable", {})}
