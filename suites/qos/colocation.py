"""Settings of colocation, and what a node offers to batch and mid pods."""

from typing import Any

from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import QuantityError, amount
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, node, pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

WITHIN = 15.0  # seconds until a manager has written what a report changes
# Seconds between reports of the node's own agent, which come only after that time: until then the case alone reports.
APART = {"metricReportIntervalSeconds": 600, "metricAggregateDurationSeconds": 600}
NAMES = {"batch": (BATCH_CPU, BATCH_MEMORY), "mid": (MID_CPU, MID_MEMORY)}


def colocation(**settings: Any) -> dict[str, Any]:
    """The ConfigMap's key that enables colocation, with 65 % of a node for all pods but batch ones."""
    settings = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65, **settings}
    return {"colocation-config": {**settings, **APART}}


def machine(name: str) -> NodeBuilder:
    """100 cores and 120 G, as the worked examples of Koordinator's tests have."""
    return node(name).cpu(100).memory("120G")


def prod(name: str, on: str, cpu: int, memory: int) -> PodBuilder:
    """A running pod of the class LS with these requests, in cores and G."""
    return pod(name).request(cpu=cpu, memory=f"{memory}G").qos("LS").node_name(on)


def batch(name: str, cpu: int, memory: int = 1) -> PodBuilder:
    """A batch pod with these requests, in thousandths of a core and G."""
    amounts: dict[str, str | int | float] = {BATCH_CPU: cpu, BATCH_MEMORY: f"{memory}G"}
    return pod(name).resources(amounts).qos("BE").label(PRIORITY_CLASS_LABEL, "koord-batch")


def offered(trial: Trial, name: str, kind: str = "batch") -> tuple[int, int] | None:
    """Thousandths of a core and bytes that a node offers to pods of that class; None: it has no such resources."""
    status = trial.node(name)["status"]
    statuses = [status[part] for part in ("capacity", "allocatable")]
    assert statuses[0].items() >= {k: v for k, v in statuses[1].items() if k in NAMES[kind]}.items(), (
        f"expected equal amounts for {kind} in capacity and allocatable of {name}, found {statuses}"
    )
    try:
        cpu, memory = (amount(each, statuses[1][each]) if each in statuses[1] else None for each in NAMES[kind])
    except QuantityError as error:
        raise AssertionError(f"expected amounts for {kind} on {name}: {error}") from error
    return None if cpu is None or memory is None else (cpu, memory)


def expect_offer(trial: Trial, name: str, expected: tuple[int, int] | None, kind: str = "batch") -> None:
    """Thousandths of a core and G; None: no such resources."""
    amounts = (expected[0], expected[1] * 10**9) if expected is not None else None
    arrived = trial.reaches(lambda: offered(trial, name, kind) == amounts, within=WITHIN)
    assert arrived, f"expected {kind} resources {amounts} on {name}, found {offered(trial, name, kind)}"
