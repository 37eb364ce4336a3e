"""Batch and mid resources: worked examples of Koordinator's tests (plugin_test.go of batchresource, midresource)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.manager.batch import amplified, batch_of_node, batch_of_zones, remainder
from seatrial.scheduler.manager.loads import (
    HighPriority,
    NodeReport,
    Pair,
    PodLoad,
    high_priority,
    node_amounts,
    node_report,
    pod_load,
)
from seatrial.scheduler.manager.mid import mid_of_node, unallocated_of
from seatrial.scheduler.manager.strategy import checked
from seatrial.scheduler.manager.usage_report import UsageReport

G = 10**9
POLICIES = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}
WIDE = {**POLICIES, "cpuReclaimThresholdPercent": 150, "memoryReclaimThresholdPercent": 120}


def node(
    capacity: tuple[int, int] = (100, 120), allocatable: tuple[int, int] | None = None, **reservation: Any
) -> Node:
    resources = {
        name: {"cpu": cpu, "memory": f"{memory}G"}
        for name, (cpu, memory) in (("capacity", capacity), ("allocatable", allocatable or capacity))
    }
    annotations = {"node.koordinator.sh/reservation": json.dumps(reservation)} if reservation else {}
    return msgspec.convert({"metadata": {"name": "n", "annotations": annotations}, "status": resources}, Node)


def pod(name: str, request: tuple[int, int], *, qos: str = "", phase: str = "Running", **more: Any) -> Pod:
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    if "priority_class" in more:
        labels["koordinator.sh/priority-class"] = more.pop("priority_class")
    zone = more.pop("zone", None)
    annotations = {}
    if zone is not None:
        resources = [{"node": zone, "resources": {"cpu": "1"}}]
        annotations["scheduling.koordinator.sh/resource-status"] = json.dumps({"numaNodeResources": resources})
    requests = {"requests": {"cpu": request[0], "memory": f"{request[1]}G"}}
    return msgspec.convert(
        {
            "metadata": {"namespace": "d", "name": name, "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"resources": requests}], **more},
            "status": {"phase": phase},
        },
        Pod,
    )


def loads(*pods: Pod) -> list[PodLoad]:
    return [load for each in pods if (load := pod_load(each)) is not None]


def read(pods: Sequence[PodLoad], reported: UsageReport) -> tuple[HighPriority, NodeReport]:
    """The sums of the pods, and the report."""
    report = node_report(reported)
    return high_priority(pods, report), report


def amounts(used: tuple[float, float]) -> dict[str, Any]:
    return {"resources": {"cpu": f"{int(used[0] * 1000)}m", "memory": f"{int(used[1] * G)}"}}


def metric(
    pods: Mapping[str, tuple[float, float, str]],
    system: tuple[int, int] = (7, 12),
    applications: dict[str, tuple[int, int]] | None = None,
    used: tuple[int, int] | None = None,
    reclaimable: tuple[int, int] | None = None,
) -> UsageReport:
    info: dict[str, Any] = {"systemUsage": amounts(system)}
    if used is not None:
        info["nodeUsage"] = amounts(used)
    status = {
        "nodeMetric": info,
        "podsMetric": [
            {"namespace": "d", "name": name, "podUsage": amounts((cpu, memory)), "priority": priority}
            for name, (cpu, memory, priority) in pods.items()
        ],
        "hostApplicationMetric": [
            {"name": "app", "priority": name, "usage": amounts(use)} for name, use in (applications or {}).items()
        ],
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": amounts(reclaimable)}
    return msgspec.convert({"status": status}, UsageReport)


A, B = pod("a", (20, 20), qos="LS"), pod("b", (0, 0), qos="BE")
C, D = pod("c", (20, 40), phase="Pending"), pod("d", (0, 0), qos="BE", phase="Succeeded")
USED = {
    "a": (11, 11, "koord-prod"),
    "b": (10, 10, "koord-batch"),
    "c": (22, 22, "koord-prod"),
    "d": (0, 0, "koord-batch"),
}
RECLAIM = {"cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}
SEVENTY = {"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 80, "memoryCalculatePolicy": "request"}
KUBELET = node((100, 120), (90, 100))


@pytest.mark.parametrize(
    ("settings", "on", "reported", "cpu", "memory"),
    [
        pytest.param(RECLAIM, node(), metric(USED), 25000, 33, id="row-1"),
        pytest.param(RECLAIM, node(reservedCPUs="0-19"), metric(USED), 12000, 33, id="row-2"),
        pytest.param(RECLAIM, node(resources={"cpu": "30"}, reservedCPUs="0-9"), metric(USED), 22000, 33, id="row-3"),
        pytest.param(RECLAIM, node(resources={"memory": "20G"}), metric(USED), 25000, 25, id="row-4"),
        pytest.param(RECLAIM, KUBELET, metric(USED), 22000, 25, id="row-5"),
        pytest.param(SEVENTY, node(), metric(USED), 30000, 36, id="row-6"),
        pytest.param(
            SEVENTY, node((100, 120), (90, 100), resources={"memory": "5G"}), metric(USED), 27000, 16, id="row-7"
        ),
        pytest.param({**SEVENTY, **POLICIES}, node(), metric(USED), 21000, 36, id="row-8"),
        pytest.param(WIDE, node(), metric(USED), 101000, 84, id="row-9"),
        pytest.param({**WIDE, "batchCPUThresholdPercent": 100}, node(), metric(USED), 100000, 84, id="row-10"),
        pytest.param(
            {
                "cpuReclaimThresholdPercent": 150,
                "memoryReclaimThresholdPercent": 120,
                "memoryCalculatePolicy": "maxUsageRequest",
                "batchCPUThresholdPercent": 100,
                "batchMemoryThresholdPercent": 100,
            },
            node(),
            metric(USED),
            100000,
            72,
            id="row-11",
        ),
        pytest.param(RECLAIM, node(), metric(USED, (4, 6), {"koord-prod": (3, 6)}), 25000, 33, id="row-12"),
        pytest.param(RECLAIM, node(), metric(USED, (4, 6), {"koord-mid": (3, 6)}), 25000, 33, id="row-13"),
        pytest.param(RECLAIM, node(), metric(USED, (4, 6), {"koord-batch": (3, 6)}), 28000, 39, id="row-14"),
    ],
)
def test_batch_formulas(settings: dict[str, Any], on: Node, reported: UsageReport, cpu: int, memory: int) -> None:
    """E1: `TestPluginCalculate`."""
    batch, _ = batch_of_node(checked(settings), node_amounts(on), *read(loads(A, B, C, D), reported))
    assert batch == Pair(cpu, memory * G)


PROD, PROD1 = pod("prod", (10, 10), qos="LS", priority=9500), pod("prod1", (10, 10), qos="LSR", priority=9500)
MID = pod("mid", (20, 40), qos="BE", priority=7500)
MIXED = {
    "prod": (5, 5, "koord-prod"),
    "prod1": (6, 6, "koord-prod"),
    "be": (10, 10, "koord-batch"),
    "mid": (22, 22, "koord-mid"),
}


def test_who_counts() -> None:
    """E2, rows 15 to 17."""
    strategy, on = checked(RECLAIM), node_amounts(node())

    def batch(*pods: Pod, reported: UsageReport) -> Pair:
        return batch_of_node(strategy, on, *read(loads(*pods), reported))[0]

    be = pod("be", (0, 0), qos="BE")
    assert batch(PROD, PROD1, be, MID, reported=metric(MIXED)) == Pair(25000, 33 * G)
    absent = {"prod": (5, 5, "koord-prod"), "gone": (10, 10, "")}
    assert batch(PROD, PROD1, reported=metric(absent, (5, 10))) == Pair(35000, 43 * G)
    exclusive = pod("prod", (10, 10), qos="LSE", priority=9500)
    assert batch(exclusive, PROD1, be, MID, reported=metric(MIXED)) == Pair(20000, 33 * G)


ZONES = [Pair(50_000, 62 * G), Pair(50_000, 58 * G)]


@pytest.mark.parametrize(
    ("settings", "pods", "more", "batch", "zones"),
    [
        pytest.param(
            RECLAIM,
            (replace(pod_load(PROD), zones=(0,)), pod_load(PROD1), pod_load(MID)),  # type: ignore[type-var]
            {},
            (25000, 33),
            [(10000, 15.3), (15000, 17.7)],
            id="row-18",
        ),
        pytest.param(
            {**RECLAIM, "memoryCalculatePolicy": "request"},
            (pod_load(pod("prod", (10, 10), qos="LSE", priority=9500, zone=0)), pod_load(PROD1), pod_load(MID)),
            {"prod": None, "gone": (2, 4, "koord-prod")},
            (18000, 18),
            [(4000, 5.3), (14000, 12.7)],
            id="row-19",
        ),
        pytest.param(
            {**RECLAIM, "memoryCalculatePolicy": "request"},
            (pod_load(pod("prod", (10, 10), qos="LSE", priority=9500, zone=0)), pod_load(PROD1), pod_load(MID)),
            {"prod": None, "gone": (2, 4, "koord-prod"), "gone2": (4, 8, "koord-prod"), "gone3": (8, 8, "koord-batch")},
            (14000, 18),
            [(2000, 5.3), (12000, 12.7)],
            id="row-20",
        ),
    ],
)
def test_numa_nodes(
    settings: dict[str, Any],
    pods: tuple[PodLoad, ...],
    more: dict[str, Any],
    batch: tuple[int, int],
    zones: list[tuple[int, float]],
) -> None:
    """E2, rows 18 to 20."""
    used = {name: use for name, use in {**MIXED, **more}.items() if use is not None}
    report, on = node_report(metric(used)), node_amounts(node())
    strategy = checked(settings)
    assert batch_of_node(strategy, on, high_priority(pods, report), report)[0] == Pair(batch[0], batch[1] * G)
    assert batch_of_zones(strategy, on, ZONES, pods, report) == [Pair(cpu, round(memory * G)) for cpu, memory in zones]


def test_a_numa_node_that_is_not_there_is_all_of_them() -> None:
    strategy, on = checked(RECLAIM), node_amounts(node())
    bound, report = pod_load(PROD), node_report(metric(MIXED))
    assert bound is not None
    elsewhere = batch_of_zones(strategy, on, ZONES, [replace(bound, zones=(2,))], report)
    assert elsewhere == batch_of_zones(strategy, on, ZONES, [bound], report)


def test_texts_of_the_formulas() -> None:
    """D3-2."""
    args = node_amounts(node()), *read(loads(A, B, C, D), metric(USED))
    assert batch_of_node(checked(RECLAIM), *args)[1].splitlines() == [
        (
            "batchAllocatable[CPU(Milli-Core)]:25000 = nodeCapacity:100000 - nodeSafetyMargin:35000 - "
            "systemUsageOrNodeReserved:7000 - podHPUsed:33000"
        ),
        "batchAllocatable[Mem(GB)]:33 = nodeCapacity:120 - nodeSafetyMargin:42 - systemUsage:12 - podHPUsed:33",
    ]
    capped = {**WIDE, "batchCPUThresholdPercent": 100}
    assert batch_of_node(checked(capped), *args)[1].splitlines()[0] == (
        "batchAllocatable[CPU(Milli-Core)]:100000 = min(nodeCapacity:100000 * thresholdRatio:1, nodeCapacity:100000 - "
        "nodeSafetyMargin:-50000 - systemUsageOrNodeReserved:7000 - podHPMaxUsedRequest:42000)"
    )

    _, text = batch_of_node(checked(SEVENTY), *args)
    assert text.splitlines()[1] == (
        "batchAllocatable[Mem(GB)]:36 = nodeCapacity:120 - nodeSafetyMargin:24 - nodeReserved:0 - podHPRequest:60"
    )


def test_what_others_have_is_subtracted() -> None:
    """E3, rows 21, 22 and 24."""
    yarn: dict[str, str | int | float] = {"kubernetes.io/batch-cpu": 10000, "kubernetes.io/batch-memory": "10Gi"}
    everything: dict[str, str | int | float] = {"kubernetes.io/batch-cpu": 60000, "kubernetes.io/batch-memory": "120Gi"}
    batch = Pair(50000, 120 << 30)
    assert remainder(batch, [yarn]) == Pair(40000, 110 << 30)
    assert remainder(batch, [everything]) == Pair()
    assert (amplified(25000, 1.2), amplified(25000, 1.0), amplified(3, 1.5)) == (30000, 25000, 5)


TEN = {"midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20}
STATIC = {**TEN, "midReclaimMode": "static"}


@pytest.mark.parametrize(
    ("settings", "reported", "cpu", "memory"),
    [
        pytest.param({}, metric({}, (0, 0), used=(20, 45), reclaimable=(10, 15)), 10000, 15, id="row-25"),
        pytest.param(
            {**TEN, "midUnallocatedPercent": 10},
            metric({}, (0, 0), used=(30, 50), reclaimable=(15, 30)),
            10000,
            42,
            id="row-26",
        ),
        pytest.param({}, metric({}, (0, 0), used=(20, 45)), 0, 0, id="row-27"),
        pytest.param(
            {**STATIC, "midStaticCPUReservedPercent": 10, "midStaticMemoryReservedPercent": 10},
            metric({}, (0, 0)),
            10000,
            21,
            id="row-28",
        ),
        pytest.param(
            {**STATIC, "midStaticCPUReservedPercent": 100, "midStaticMemoryReservedPercent": 100},
            metric({}, (0, 0)),
            10000,
            42,
            id="row-29",
        ),
        pytest.param({}, metric({}, (0, 0), reclaimable=(20, 20)), 0, 0, id="row-30"),
        pytest.param({}, metric({}, (0, 0), used=(90, 200), reclaimable=(20, 20)), 10000, 10, id="row-31"),
    ],
)
def test_mid_formulas(settings: dict[str, Any], reported: UsageReport, cpu: int, memory: int) -> None:
    """E4: `TestPluginCalculate` of midresource."""
    on = node_amounts(node((100, 210), (100, 200)))
    pods = loads(pod("prod", (20, 40), qos="LS"), pod("batch", (0, 0), qos="BE"))
    assert mid_of_node(checked(settings), on, *read(pods, reported))[0] == Pair(cpu, memory * G)


def test_a_host_application_leaves_less_unallocated() -> None:
    """E4, row 32, and D3-3."""
    on = node_amounts(node((100, 210), (100, 200)))
    pods = loads(pod("prod", (20, 40), qos="LS"))
    reported = metric({}, (0, 0), {"koord-prod": (5, 15)}, used=(20, 45), reclaimable=(10, 15))
    sums, report = read(pods, reported)
    assert unallocated_of(on, sums, report) == Pair(75000, 155 * G)
    assert mid_of_node(checked({}), on, sums, report)[1].splitlines()[0] == (
        "midAllocatable[CPU(milli-core)]:10000 = min(min(ProdReclaimable:10000, NodeUnused:80000) + Unallocated:75000 "
        "* midUnallocatedRatio:0, NodeCapacity:100000 * thresholdRatio:1)"
    )


def test_the_texts_of_a_fixed_part() -> None:
    """D3-3."""
    settings = {**STATIC, "midStaticCPUReservedPercent": 10, "midStaticMemoryReservedPercent": 10}
    pods, on = loads(pod("prod", (20, 40), qos="LS")), node_amounts(node((100, 210), (100, 200)))
    assert mid_of_node(checked(settings), on, *read(pods, metric({}, (0, 0))))[1].splitlines() == [
        (
            "midAllocatable[CPU(milli-core)]:10000 = min(nodeCapacity:100000 * staticReservedPercent:0.1, "
            "nodeCapacity:100000 * thresholdRatio:0.1)"
        ),
        (
            "midAllocatable[Memory(GB)]:21 = min(nodeCapacity:210 * staticReservedPercent:0.1, "
            "nodeCapacity:210 * thresholdRatio:0.2)"
        ),
    ]


def test_parts_are_rounded_up() -> None:
    """E5: `Test_divideResourceList`."""
    assert Pair(1000, 1 << 30).divided(0) == Pair(1000, 1 << 30)
    assert Pair(1000, 1 << 30).divided(2) == Pair(500, 512 << 20)
    assert Pair(2000, 6 << 30).divided(3) == Pair(667, 2 << 30)
