"""Batch and mid resources: what the manager writes on nodes, by usage, requests, settings and age of reports.

The figures are those of Koordinator's own tests (pkg/slo-controller/noderesource, plugin_test.go of batchresource and
midresource).
"""

from collections.abc import Collection
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager, write_config
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import amount, amounts
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_DRIVER_LABEL,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_VENDOR_LABEL,
    GROUP_VERSION,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
)
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, RESOURCE_STATUS
from seatrial.scheduler.api.slo import ORIGIN_ALLOCATABLE, THIRD_PARTY_ALLOCATIONS
from seatrial.suites.loadaware.normalization import CONFIG, FAST, model
from seatrial.suites.loadaware.reports import annotate, report, settle
from seatrial.suites.qos.colocation import (
    NAMES,
    WITHIN,
    batch,
    colocation,
    expect_offer,
    expect_parts,
    machine,
    of_zones,
    offered,
    prod,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

PROD, MID, BATCH = "koord-prod", "koord-mid", "koord-batch"
POLICIES = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}


def loaded(trial: Trial, name: str = "n1") -> None:
    """A prod pod that uses less than it requests, one that uses more, and a batch pod."""
    trial.add(machine(name))
    small = pod("b").qos("BE").node_name(name)
    trial.submit(prod("a", name, 20, 20), prod("c", name, 20, 40), small)


def reported(trial: Trial, name: str = "n1", **more: Any) -> None:
    """The usage of these pods, and 7 cores and 12 G of the system."""
    pods = {"a": ("11", "11G", PROD), "b": ("10", "10G", BATCH), "c": ("22", "22G", PROD)}
    report(trial, name, "50", "55G", system=("7", "12G"), pods=pods, **more)


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-001", severity="critical")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, (25000, 33), id="usage"),
        pytest.param(
            {**POLICIES, "cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 80},
            (21000, 36),
            id="larger-of-both-and-request",
        ),
        pytest.param(
            {**POLICIES, "cpuReclaimThresholdPercent": 150, "memoryReclaimThresholdPercent": 120},
            (101000, 84),
            id="more-than-the-node",
        ),
        pytest.param(
            {"memoryCalculatePolicy": "maxUsageRequest", "cpuCalculatePolicy": "maxUsageRequest"},
            (16000, 6),
            id="larger-of-both",
        ),
        pytest.param({"cpuCalculatePolicy": "request"}, (25000, 33), id="request-is-usage-for-cpu"),
        pytest.param(
            {"batchCPUThresholdPercent": 20, "batchMemoryThresholdPercent": 25}, (20000, 30), id="at-most-a-part"
        ),
    ],
)
def test_batch_resources(
    trial: Trial, start_manager: StartManager, settings: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Batch pods get what the reserve, the system and pods of higher classes leave, by each of the policies, and at
    most the part of the node that is set."""
    loaded(trial)
    reported(trial)
    start_manager(colocation(**settings))
    expect_offer(trial, "n1", expected)


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-002", severity="normal")
def test_a_node_s_own_settings(trial: Trial, start_manager: StartManager) -> None:
    """Nodes of a pool have smaller parts for batch pods, another is excluded, one has a label, one an annotation. What
    is set for a third pool is not valid, and does not count. A field in the annotation goes over those of the pool, and
    a label over the annotation; of two entries for a pool the first one counts."""
    for name in ("n1", "pool", "out", "labelled", "annotated", "wrong", "both"):
        trial.add(machine(name).label("pool", "pool" if name == "both" else name))
        report(trial, name, "5", "20G", system=("5", "20G"))
    annotate(trial, "/api/v1/nodes/annotated", "node.koordinator.sh/colocation-strategy", '{"enable": false}')
    annotate(
        trial, "/api/v1/nodes/both", "node.koordinator.sh/colocation-strategy", '{"cpuReclaimThresholdPercent": 50}'
    )
    own_ratios = {"node.koordinator.sh/cpu-reclaim-ratio": "0.7", "node.koordinator.sh/memory-reclaim-ratio": "0.5"}
    labels: dict[str, dict[str, dict[str, str]]] = {"metadata": {"labels": own_ratios}}
    assert trial.call("PATCH", "/api/v1/nodes/labelled", labels).ok
    annotate(
        trial, "/api/v1/nodes/labelled", "node.koordinator.sh/colocation-strategy", '{"cpuReclaimThresholdPercent": 20}'
    )
    parts = {"cpuReclaimThresholdPercent": 30, "memoryReclaimThresholdPercent": 40}
    own_settings: dict[str, dict[str, Any]] = {
        "pool": parts,
        "out": {"enable": False},
        "wrong": {**parts, "degradeTimeMinutes": 0},
    }
    own = [
        {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}, **settings}
        for name, settings in own_settings.items()
    ]
    own.append({"name": "later", "nodeSelector": {"matchLabels": {"pool": "pool"}}, "cpuReclaimThresholdPercent": 90})
    start_manager(colocation(nodeConfigs=own))

    expected = {"n1": (60000, 58), "pool": (25000, 28), "labelled": (65000, 40), "wrong": (60000, 58)}
    expected["both"] = (45000, 28)
    for name, offer in {**expected, "out": None, "annotated": None}.items():
        expect_offer(trial, name, offer)
    for ratio, cores in (("0.4", 35000), ("0", 0)):
        labels["metadata"]["labels"]["node.koordinator.sh/cpu-reclaim-ratio"] = ratio
        assert trial.call("PATCH", "/api/v1/nodes/labelled", labels).ok
        expect_offer(trial, "labelled", (cores, 40))


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case(
    "CO-104", severity="normal", source="Koordinator plugins/cpunormalization, batchresource; spec NR-12, NUMA-R51"
)
def test_batch_cores_of_cpus_that_do_more(trial: Trial, start_manager: StartManager) -> None:
    """The batch CPU of a node and of its NUMA nodes is multiplied by its normalization ratio, which follows the CPU
    model: 1.2, then 1.5."""
    trial.add(machine("n1").server("cpu-64"))
    report(trial, "n1", "4", "20G", system=("4", "20G"))
    start_manager(colocation())
    assert trial.reaches(lambda: offered(trial, "n1") is not None, within=WITHIN)
    whole = offered(trial, "n1")
    assert whole is not None
    for threads, ratio in ((True, 1.2), (False, 1.5)):
        model(trial, "n1", FAST, threads=threads)
        write_config(trial, {**colocation(), "cpu-normalization-config": CONFIG["cpu-normalization-config"]})
        expect_offer(trial, "n1", (round(whole[0] * ratio), whole[1] // 10**9))
        expect_parts(trial)


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-105", severity="normal", source="Koordinator plugins/batchresource; spec NR-5")
@pytest.mark.parametrize(
    ("reservation", "expected"),
    [
        pytest.param({}, (57000, 58), id="kubelet"),
        pytest.param({"resources": {"cpu": "4"}}, (57000, 58), id="less-than-kubelet"),
        pytest.param({"resources": {"cpu": "12"}}, (53000, 58), id="more-than-kubelet"),
        pytest.param({"reservedCPUs": "0-9", "resources": {"cpu": "2"}}, (55000, 58), id="cpus"),
        pytest.param({"resources": {"memory": "30G"}}, (57000, 48), id="memory"),
    ],
)
def test_the_larger_reservation_counts(
    trial: Trial, start_manager: StartManager, reservation: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Kubelet reserves 8 cores, the node's annotation others: the larger of both is left, or what the system uses."""
    trial.add(machine("n1"))
    amounts = {"status": {"allocatable": {"cpu": "92"}}}
    assert trial.call("PATCH", "/api/v1/nodes/n1/status", amounts).ok
    annotate(trial, "/api/v1/nodes/n1", "node.koordinator.sh/reservation", orjson.dumps(reservation).decode())
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation())
    expect_offer(trial, "n1", expected)


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-003", severity="critical")
@pytest.mark.parametrize("age", [100, 140])
def test_old_reports_offer_nothing(trial: Trial, start_manager: StartManager, age: float) -> None:
    """degradeTimeMinutes after the last report a node offers nothing, for batch and mid pods; before, what it did."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation(degradeTimeMinutes=2))
    expect_offer(trial, "n1", (60000, 58))
    settle(trial)  # a manager must see its own write before it can compare with it

    report(trial, "n1", "6", "20G", system=("6", "20G"), age=age)

    if age > 120:
        expect_offer(trial, "n1", None)
        expect_offer(trial, "n1", None, "mid")
    else:
        settle(trial)
        assert offered(trial, "n1") == (60000, 58 * 10**9)


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-109", severity="critical", source="Koordinator pkg/slo-controller/noderesource; spec NR-2")
@pytest.mark.long(seconds=190)
def test_reports_that_stay_away(trial: Trial, start_manager: StartManager) -> None:
    """No report follows: degradeTimeMinutes after the last one the node offers nothing, though nothing else happens."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation(degradeTimeMinutes=2))
    expect_offer(trial, "n1", (60000, 58))
    trial.pass_time(100)
    assert offered(trial, "n1") == (60000, 58 * 10**9)
    assert trial.wait(lambda: offered(trial, "n1") is None, within=90), f"found {offered(trial, 'n1')}"


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-004", severity="critical")
def test_disabled_colocation_takes_back_what_was_offered(trial: Trial, start_manager: StartManager) -> None:
    """The settings disable colocation while the manager runs, and those of a pool do not enable it; other resources of
    the node stay."""
    trial.add(machine("n1").gpus("a100-80g", 1).label("pool", "n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation())
    expect_offer(trial, "n1", (60000, 58))
    before = {key for key in trial.node("n1")["status"]["allocatable"] if "batch" not in key and "mid-" not in key}

    own = {"name": "n1", "nodeSelector": {"matchLabels": {"pool": "n1"}}, "enable": True}
    write_config(trial, colocation(enable=False, nodeConfigs=[own]))

    expect_offer(trial, "n1", None)
    expect_offer(trial, "n1", None, "mid")
    assert set(trial.node("n1")["status"]["allocatable"]) == before


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-005", severity="critical")
def test_batch_pods_run_on_what_is_left(trial: Trial, expect: Expect, start_manager: StartManager) -> None:
    """A pod of batch resources waits for a node that offers them, and runs as soon as prod pods use less. Prod pods are
    not counted against batch resources, nor batch pods against the cores of the node."""
    loaded(trial)
    reported(trial)
    start_manager(colocation())
    expect_offer(trial, "n1", (25000, 33))
    trial.submit(batch("fits", 20000), batch("waits", 20000))
    expect.running("fits")
    expect.pending("waits")

    pods = {"a": ("1", "11G", PROD), "b": ("10", "10G", BATCH), "c": ("2", "22G", PROD)}
    report(trial, "n1", "20", "55G", system=("7", "12G"), pods=pods)

    expect_offer(trial, "n1", (55000, 33))
    expect.running("waits")
    trial.submit(pod("whole").request(cpu=55).qos("LS"))
    expect.running("whole")


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-006", severity="normal")
def test_what_hadoop_has_is_not_offered(trial: Trial, start_manager: StartManager) -> None:
    """Allocations of third parties of the class batch are subtracted, as far as there is something; the annotation
    shows the amounts before it, and is written again if it is lost. When colocation is disabled it shows none."""
    trial.add(machine("n1"), machine("n2"))
    resources = {"kubernetes.io/batch-cpu": "10000", "kubernetes.io/batch-memory": "10G"}
    allocation = {"name": "hadoop-yarn", "priority": BATCH, "resources": resources}
    other = {**allocation, "name": "spark", "resources": {"kubernetes.io/batch-cpu": "5000"}}
    services = {**allocation, "name": "services", "priority": PROD}
    more = {**other, "resources": {"kubernetes.io/batch-cpu": "70000"}}
    for name, allocations in {"n1": [allocation, other, services], "n2": [more]}.items():
        text = orjson.dumps({"allocations": allocations}).decode()
        annotate(trial, f"/api/v1/nodes/{name}", THIRD_PARTY_ALLOCATIONS, text)
        report(trial, name, "5", "20G", system=("5", "20G"))
    start_manager(colocation())

    expect_offer(trial, "n1", (45000, 48))
    expect_offer(trial, "n2", (0, 58))

    def written() -> dict[str, int]:
        text = trial.node("n1")["metadata"]["annotations"].get(ORIGIN_ALLOCATABLE, '{"resources": {}}')
        return amounts(orjson.loads(text)["resources"])

    whole = {"kubernetes.io/batch-cpu": 60000, "kubernetes.io/batch-memory": 58 * 10**9}
    assert trial.reaches(lambda: written() == whole, within=WITHIN), f"expected {whole}, found {written()}"
    annotate(trial, "/api/v1/nodes/n1", ORIGIN_ALLOCATABLE, None)
    assert trial.reaches(lambda: written() == whole, within=WITHIN), f"expected {whole} again, found {written()}"
    write_config(trial, colocation(enable=False))
    none = dict.fromkeys(whole, 0)
    assert trial.reaches(lambda: written() == none, within=WITHIN), f"expected {none}, found {written()}"


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-007", severity="normal")
@pytest.mark.parametrize(("priority", "expected"), [(PROD, (25000, 33)), (MID, (25000, 33)), (BATCH, (29000, 40))])
def test_programs_outside_of_pods(
    trial: Trial, start_manager: StartManager, priority: str, expected: tuple[int, int]
) -> None:
    """Host applications of the classes prod and mid count as the system does; those of the class batch do not."""
    loaded(trial)
    applications = [
        {"name": name, "priority": priority, "usage": {"resources": {"cpu": cpu, "memory": memory}}}
        for name, cpu, memory in (("app", "3", "6G"), ("other", "1", "1G"))
    ]
    pods = {"a": ("11", "11G", PROD), "b": ("10", "10G", BATCH), "c": ("22", "22G", PROD)}
    report(trial, "n1", "50", "55G", system=("3", "5G"), pods=pods, hostApplicationMetric=applications)
    start_manager(colocation())
    expect_offer(trial, "n1", expected)


@pytest.mark.feature("QOS-2.mid")
@pytest.mark.case("CO-008", severity="critical")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, (10000, 15), id="unused"),
        pytest.param({"midCPUThresholdPercent": 5, "midMemoryThresholdPercent": 10}, (5000, 12), id="limit"),
        pytest.param({"midUnallocatedPercent": 10}, (16000, 21), id="and-unallocated"),
        pytest.param(
            {"midReclaimMode": "static", "midStaticCPUReservedPercent": 20, "midStaticMemoryReservedPercent": 10},
            (20000, 12),
            id="static",
            marks=pytest.mark.case("CO-008", severity="critical", source="Koordinator 1.8"),
        ),
        pytest.param(
            {"midReclaimMode": "static", "midStaticCPUReservedPercent": 20, "midCPUThresholdPercent": 5},
            (5000, 0),
            id="static-limit",
            marks=pytest.mark.case("CO-008", severity="critical", source="Koordinator 1.8"),
        ),
    ],
)
def test_mid_resources(
    trial: Trial, start_manager: StartManager, settings: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Mid pods get what prod pods have requested and do not use, with a part of what no prod pod has requested if so
    set, and at most a limit; or a fixed part of the node. What the system uses, with programs of class prod and without
    those of class mid, or what is reserved, the larger of both, counts as requested."""
    trial.add(machine("n1"))
    annotate(trial, "/api/v1/nodes/n1", "node.koordinator.sh/reservation", '{"resources": {"cpu": "20"}}')
    other = pod("m").request(cpu=10, memory="10G").label(PRIORITY_CLASS_LABEL, MID).node_name("n1")
    trial.submit(prod("a", "n1", 20, 40), other)
    reclaimable = {"resource": {"resources": {"cpu": "10", "memory": "15G"}}}
    pods = {"a": ("10", "20G", PROD)}
    programs = [
        {"name": name, "priority": name, "usage": {"resources": {"cpu": "1", "memory": memory}}}
        for name, memory in ((PROD, "10G"), (MID, "20G"))
    ]
    more: dict[str, Any] = {"prodReclaimableMetric": reclaimable, "hostApplicationMetric": programs}
    report(trial, "n1", "20", "45G", system=("10", "10G"), pods=pods, **more)
    start_manager(colocation(**settings))
    expect_offer(trial, "n1", expected, "mid")


@pytest.mark.feature("QOS-2.mid")
@pytest.mark.case("CO-126", severity="critical", source="Koordinator plugins/midresource; spec NR-16")
def test_mid_resources_of_a_busy_node(trial: Trial, start_manager: StartManager) -> None:
    """Mid pods get no more of what prod pods have requested than the node does not use."""
    trial.add(machine("n1"))
    reclaimable = {"resource": {"resources": {"cpu": "10", "memory": "15G"}}}
    report(trial, "n1", "95", "112G", system=("10", "10G"), prodReclaimableMetric=reclaimable)
    start_manager(colocation())
    expect_offer(trial, "n1", (5000, 8), "mid")


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-009", severity="normal")
def test_numa_nodes_offer_their_part(trial: Trial, start_manager: StartManager) -> None:
    """The topology of a node has batch resources for each NUMA node: half of those of the node where its load is not
    bound to one. When colocation is disabled they offer nothing."""
    trial.add(machine("n1").server("cpu-64"))
    report(trial, "n1", "4", "0", system=("4", "0"))
    start_manager(colocation())
    path = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1"

    def zones() -> list[tuple[Any, ...]]:
        return [
            tuple(
                orjson.dumps(resource[part]).decode().strip('"')
                for resource in zone["resources"]
                if resource["name"] == "kubernetes.io/batch-cpu"
                for part in ("capacity", "allocatable", "available")
            )
            for zone in orjson.loads(trial.call("GET", path).body)["zones"]
        ]

    assert trial.reaches(lambda: all(zones()), within=WITHIN), f"expected batch-cpu in each zone, found {zones()}"
    assert trial.reaches(lambda: offered(trial, "n1") is not None, within=WITHIN)  # koord-manager writes zones first
    whole = offered(trial, "n1")
    assert whole is not None
    count = len(zones())
    assert count > 1
    for zone in zones():
        assert len({*zone}) == 1
        each = float(zone[0].removesuffix("k")) * (1000 if zone[0].endswith("k") else 1)
        assert abs(each * count - whole[0]) <= count, f"expected {whole[0]} / {count} in each zone, found {zones()}"

    write_config(trial, colocation(enable=False))

    assert trial.reaches(lambda: {each for zone in zones() for each in zone} <= {"0"}, within=WITHIN), zones()


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-092", severity="normal", source="Koordinator plugins/batchresource; spec NR-8")
def test_reported_pods_that_are_gone(trial: Trial, start_manager: StartManager) -> None:
    """Usage of pods that a report names and that are no more counts by the class in the report: all but batch and free,
    with that of no class. Requests of a pod of class free do not count."""
    trial.add(machine("n1"))
    trial.submit(pod("f").request(cpu=10, memory="10G").label(PRIORITY_CLASS_LABEL, "koord-free").node_name("n1"))
    pods = {"a": ("10", "10G", PROD), "b": ("7", "7G", BATCH), "c": ("3", "3G", MID), "d": ("9", "9G", "koord-free")}
    pods["e"] = ("1", "1G", "")
    report(trial, "n1", "35", "50G", system=("5", "20G"), pods=pods)
    start_manager(colocation())
    expect_offer(trial, "n1", (46000, 44))


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-093", severity="normal", source="Koordinator plugins/batchresource; spec NR-13 to NR-15")
@pytest.mark.parametrize("policy", ["usage", "maxUsageRequest"])
def test_numa_nodes_offer_what_their_pods_leave(trial: Trial, start_manager: StartManager, policy: str) -> None:
    """Pods count on the NUMA nodes that they are bound to, in equal parts, and those that are bound to none, or are
    gone, on all, as does what is reserved. Together NUMA nodes offer what their node does."""
    trial.add(machine("n1").server("cpu-64"))
    reserved = {"resources": {"cpu": "8", "memory": "8G"}}
    annotate(trial, "/api/v1/nodes/n1", "node.koordinator.sh/reservation", orjson.dumps(reserved).decode())
    for name, cpu, places in (("d", 2, ()), ("c", 2, (0, 1)), ("a", 4, (0,)), ("b", 10, (1,))):
        amounts = {"cpu": str(cpu), "memory": f"{cpu}Gi"}
        zones = [{"node": place, "resources": amounts} for place in places]
        bound = orjson.dumps({"numaNodeResources": zones}).decode()
        trial.submit(prod(name, "n1", cpu, cpu).annotation(RESOURCE_STATUS, bound))
    used = {name: (cpu, f"{cpu}G", PROD) for name, cpu in {"a": "4", "b": "10", "c": "2", "d": "2", "e": "6"}.items()}
    report(trial, "n1", "28", "28G", system=("4", "4G"), pods=used)
    start_manager(colocation(cpuCalculatePolicy=policy, memoryCalculatePolicy=policy))

    expect_parts(trial)
    for name, unit in zip(NAMES["batch"], (1000, 10**9), strict=True):
        first, second = of_zones(trial, name)
        assert first - second == 6 * unit


@pytest.mark.feature("QOS-2.mid")
@pytest.mark.case("CO-094", severity="normal", source="Koordinator noderesource; spec NR-3")
def test_one_amount_that_changes_is_written(trial: Trial, start_manager: StartManager) -> None:
    """Nothing but the memory for mid pods changes."""
    trial.add(machine("n1"))

    def reclaimable(memory: str) -> None:
        amounts = {"resource": {"resources": {"cpu": "10", "memory": memory}}}
        report(trial, "n1", "5", "20G", system=("5", "20G"), prodReclaimableMetric=amounts)

    reclaimable("15G")
    start_manager(colocation())
    expect_offer(trial, "n1", (10000, 15), "mid")
    settle(trial)  # as above
    reclaimable("30G")
    expect_offer(trial, "n1", (10000, 30), "mid")


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-010", severity="normal")
def test_small_changes_are_not_written(trial: Trial, start_manager: StartManager) -> None:
    """The amount stays while it differs by at most resourceDiffThreshold, and changes with a larger difference."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation(resourceDiffThreshold=0.2))
    expect_offer(trial, "n1", (60000, 58))
    settle(trial)  # as above
    report(trial, "n1", "16", "20G", system=("16", "20G"))
    settle(trial)
    assert offered(trial, "n1") == (60000, 58 * 10**9)
    report(trial, "n1", "18", "20G", system=("18", "20G"))
    expect_offer(trial, "n1", (47000, 58))


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-120", severity="normal", source="Koordinator noderesource; spec NR-3")
@pytest.mark.long(seconds=12)
def test_small_changes_are_written_later(trial: Trial, start_manager: StartManager) -> None:
    """The amount follows a small difference in a report once updateTimeThresholdSeconds have passed."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation(resourceDiffThreshold=0.2, updateTimeThresholdSeconds=10))
    expect_offer(trial, "n1", (60000, 58))
    trial.pass_time(12)
    report(trial, "n1", "8", "20G", system=("8", "20G"))
    expect_offer(trial, "n1", (57000, 58))


@pytest.mark.feature("QOS-2.mid")
@pytest.mark.case("CO-121", severity="normal", source="koordinator 1.8; spec A3, C-3, NR-17")
def test_the_static_part_of_one_node(trial: Trial, start_manager: StartManager) -> None:
    """The labels of a node say which part of it mid pods have; another node has that of the settings."""
    ratio = "node.koordinator.sh/mid-static-{}-reserved-ratio"
    own = machine("n1").label(ratio.format("cpu"), "0.3").label(ratio.format("memory"), "0.2")
    trial.add(own, machine("n2"))
    for name in ("n1", "n2"):
        report(trial, name, "5", "20G")
    percent = {"midStaticCPUReservedPercent": 20, "midStaticMemoryReservedPercent": 10}
    start_manager(colocation(midReclaimMode="static", **percent))
    expect_offer(trial, "n1", (30000, 24), "mid")
    expect_offer(trial, "n2", (20000, 12), "mid")


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-011", severity="normal")
@pytest.mark.parametrize("broken", ["{", '{"enable": true, "degradeTimeMinutes": 0}'], ids=["no-json", "out-of-range"])
def test_settings_that_cannot_be_read_keep_the_last(trial: Trial, start_manager: StartManager, broken: str) -> None:
    """Broken settings change nothing, and an event at the ConfigMap says so; later good ones hold, after the ConfigMap
    is deleted as well."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation())
    expect_offer(trial, "n1", (60000, 58))

    write_config(trial, {"colocation-config": broken})

    def events() -> list[str]:
        items = orjson.loads(trial.call("GET", "/api/v1/namespaces/koordinator-system/events").body)["items"]
        return [item["type"] for item in items if item["involvedObject"].get("kind") == "ConfigMap"]

    assert trial.reaches(lambda: "Warning" in events(), within=WITHIN), "expected a Warning event at the ConfigMap"
    assert offered(trial, "n1") == (60000, 58 * 10**9)
    write_config(trial, colocation(cpuReclaimThresholdPercent=50))
    expect_offer(trial, "n1", (45000, 58))
    assert trial.call("DELETE", "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config").ok
    settle(trial)
    report(trial, "n1", "20", "20G", system=("20", "20G"))
    expect_offer(trial, "n1", (30000, 58))


@pytest.mark.feature("QOS-2.batch")
@pytest.mark.case("CO-014", severity="normal")
def test_pods_without_a_report_and_exclusive_pods(trial: Trial, start_manager: StartManager) -> None:
    """A pod that no report names counts with its request, until it ends or is deleted; an LSE pod counts with
    all of its cores."""
    trial.add(machine("n1"))
    exclusive = pod("exclusive").request(cpu=10, memory="10G").qos("LSE").node_name("n1")
    new = prod("new", "n1", 20, 20)
    new.manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(new, exclusive)
    assert trial.reaches(lambda: trial.pod("new").status.phase == "Running", within=WITHIN)
    pods = {"exclusive": ("5", "5G", PROD)}
    report(trial, "n1", "5", "5G", pods=pods)
    start_manager(colocation())
    expect_offer(trial, "n1", (35000, 53))
    assert trial.call("PATCH", f"{trial.path('Pod', 'new')}/status", {"status": {"phase": "Succeeded"}}).ok
    expect_next(trial, pods, (55000, 73))
    trial.submit(prod("next", "n1", 20, 20))
    expect_next(trial, pods, (35000, 53))
    trial.delete("next")
    expect_next(trial, pods, (55000, 73))


def expect_next(trial: Trial, pods: dict[str, tuple[str, str, str]], expected: tuple[int, int]) -> None:
    """What n1 offers after the next report, which names these pods."""
    settle(trial)
    report(trial, "n1", "5", "5G", pods=pods)
    expect_offer(trial, "n1", expected)


@pytest.mark.feature("QOS-2.devices")
@pytest.mark.case(
    "CO-091",
    severity="critical",
    source="Koordinator pkg/slo-controller/noderesource/plugins/gpudeviceresource, rdmadevicereource; spec NR-23",
)
def test_totals_of_devices(trial: Trial, start_manager: StartManager) -> None:
    """A node has the sums over the healthy cards of its Device object, whatever it reports of its usage: one of two
    cards fails, then the other one with the NIC, both cards are well again, the object goes. A changed label
    follows."""
    trial.add(machine("n1"))
    start_manager(colocation())
    labels = {GPU_VENDOR_LABEL: "nvidia", GPU_MODEL_LABEL: "A100", GPU_DRIVER_LABEL: "550.54"}
    path = add_device(trial, labels)
    expect_totals(trial, {GPU: 200, GPU_CORE: 200, GPU_MEMORY: 18000, GPU_MEMORY_RATIO: 200, RDMA: 100})
    arrived = trial.reaches(lambda: trial.node("n1")["metadata"]["labels"].items() >= labels.items(), within=WITHIN)
    assert arrived, f"expected labels {labels}, found {trial.node('n1')['metadata']['labels']}"
    assert trial.call("PATCH", f"{path}/n1", {"metadata": {"labels": {GPU_MODEL_LABEL: "H100"}}}).ok
    arrived = trial.reaches(lambda: trial.node("n1")["metadata"]["labels"][GPU_MODEL_LABEL] == "H100", within=WITHIN)
    assert arrived, f"expected the model H100, found {trial.node('n1')['metadata']['labels']}"

    for failed, expected in (
        ({1}, {GPU: 100, GPU_CORE: 100, GPU_MEMORY: 8000, GPU_MEMORY_RATIO: 100, RDMA: 100}),
        ({0, 1, 2}, {}),
        ({2}, {GPU: 200, GPU_CORE: 200, GPU_MEMORY: 18000, GPU_MEMORY_RATIO: 200}),
    ):
        assert trial.call("PATCH", f"{path}/n1", {"spec": {"devices": cards(failed)}}).ok
        expect_totals(trial, expected)
    assert trial.call("DELETE", f"{path}/n1").ok
    expect_totals(trial, {})


@pytest.mark.feature("QOS-2.devices")
@pytest.mark.case(
    "CO-122",
    severity="normal",
    source="Koordinator pkg/slo-controller/noderesource/plugins/gpudeviceresource; spec NR-23",
)
@pytest.mark.parametrize(
    ("labels", "more", "wrapped"),
    [({GPU_VENDOR_LABEL: "huawei"}, {NPU_CORE: "10", NPU_CPU: "7", NPU_DVPP: "100"}, {}), ({}, {}, {GPU: 200})],
    ids=["huawei", "no-vendor"],
)
def test_totals_of_cards_of_another_vendor(
    trial: Trial, start_manager: StartManager, labels: dict[str, str], more: dict[str, str], wrapped: dict[str, int]
) -> None:
    """Cards that name a vendor other than NVIDIA are not koordinator.sh/gpu; the other sums are those of all cards, of
    the resources of NPUs too."""
    trial.add(machine("n1"))
    start_manager(colocation())
    add_device(trial, labels, more)
    npus = {name: 2 * amount(name, value) for name, value in more.items()}
    expect_totals(trial, {GPU_CORE: 200, GPU_MEMORY: 18000, GPU_MEMORY_RATIO: 200, RDMA: 100, **npus, **wrapped})


def add_device(trial: Trial, labels: dict[str, str], more: dict[str, str] | None = None) -> str:
    """Make the Device object of n1; the path of its kind. `more`: resources of each card."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": trial.node("n1")["metadata"]["uid"]}
    device = {
        "apiVersion": GROUP_VERSION,
        "kind": "Device",
        "metadata": {"name": "n1", "labels": labels, "ownerReferences": [owner]},
        "spec": {"devices": cards(more=more)},
    }
    path = f"/apis/{GROUP_VERSION}/devices"
    assert trial.call("POST", path, device).ok
    return path


def cards(failed: Collection[int] = (), more: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Two cards and a NIC; `failed`: their places; `more`: resources of each card."""
    resources = [
        {GPU_CORE: "100", GPU_MEMORY: memory, GPU_MEMORY_RATIO: "100", **(more or {})} for memory in ("8000", "10000")
    ]
    entries = [*(("gpu", each) for each in resources), ("rdma", {RDMA: "100"})]
    return [
        {"type": kind, "id": f"d{place}", "minor": place, "health": place not in failed, "resources": amounts}
        for place, (kind, amounts) in enumerate(entries)
    ]


def expect_totals(trial: Trial, expected: dict[str, int]) -> None:
    """Equal amounts in capacity and allocatable of n1; others of these names are not there."""

    def totals() -> list[dict[str, int]]:
        status = trial.node("n1")["status"]
        return [
            {
                name: amount(name, status[part][name])
                for name in (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, NPU_CPU, NPU_DVPP, RDMA)
                if name in status[part]
            }
            for part in ("capacity", "allocatable")
        ]

    arrived = trial.reaches(lambda: totals() == [expected] * 2, within=WITHIN)
    assert arrived, f"expected {expected} in capacity and allocatable, found {totals()}"


@pytest.mark.feature("QOS-2.manifest-colocation-config")
@pytest.mark.case("CO-012", severity="critical")
def test_the_released_colocation_config(trial: Trial, start_manager: StartManager) -> None:
    """The ConfigMap of the announcement: batch resources are what neither use nor requests of higher classes claim."""
    loaded(trial)
    reported(trial)
    start_manager(released("v1.4/colocation-config.yaml"))
    expect_offer(trial, "n1", (11000, 6))  # 60 % and 65 % of the node, less 7 and 42 cores, 12 and 60 G


@pytest.mark.feature("QOS-2.manifest-mid-tier")
@pytest.mark.case("CO-013", severity="critical")
def test_the_released_mid_tier(trial: Trial, start_manager: StartManager) -> None:
    """The ConfigMap of the announcement: nodes of the pool `big` offer half of what nobody has requested, others none
    of it."""
    reclaimable = {"resource": {"resources": {"cpu": "10", "memory": "15G"}}}
    for name in ("big", "small"):
        trial.add(machine(name).label("node-pool", name))
        report(trial, name, "20", "45G", prodReclaimableMetric=reclaimable)
    start_manager(released("v1.6/mid-tier.yaml"))
    expect_offer(trial, "big", (60000, 75), "mid")
    expect_offer(trial, "small", (10000, 15), "mid")


def released(file: str) -> dict[str, str]:
    """The data of the ConfigMap in a manifest of a release post."""
    path = suites_folder() / "manifests" / file
    match: dict[str, str] = next(
        each["data"] for each in yaml.safe_load_all(path.read_bytes()) if each["kind"] == "ConfigMap"
    )
    return match
