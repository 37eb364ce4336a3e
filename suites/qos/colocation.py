"""Settings of colocation, and what a node offers to batch and mid pods."""

from typing import Any

import orjson

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


def of_zones(trial: Trial, name: str) -> list[float]:
    """What each NUMA node of the node n1 offers of a resource."""
    answer = trial.call("GET", "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1")
    return [
        amount(name, resource["allocatable"])
        for zone in orjson.loads(answer.body)["zones"]
        for resource in zone["resources"]
        if resource["name"] == name
    ]


def expect_parts(trial: Trial) -> None:
    """Both NUMA nodes of n1 together offer to batch pods what it does, but for rounding."""

    def parts() -> list[list[float]]:
        return [of_zones(trial, name) for name in NAMES["batch"]]

    def agree() -> bool:
        whole = offered(trial, "n1")
        return whole is not None and all(
            len(zones) == 2 and abs(sum(zones) - value) <= 2 for zones, value in zip(parts(), whole, strict=True)
        )

    assert trial.reaches(agree, within=WITHIN), f"expected parts of {offered(trial, 'n1')}, found {parts()}"


def expect_offer(trial: Trial, name: str, expected: tuple[int, int] | None, kind: str = "batch") -> None:
    """Thousandths of a core and G; None: no such resources."""
    amounts = (expected[0], expected[1] * 10**9) if expected is not None else None
    arrived = trial.reaches(lambda: offered(trial, name, kind) == amounts, within=WITHIN)
    assert arrived, f"expected {kind} resources {amounts} on {name}, found {offered(trial, name, kind)}"
