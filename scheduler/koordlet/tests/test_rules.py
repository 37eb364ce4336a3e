"""Worked examples E13 to E19 of Koordinator's tests: burst, eviction, resctrl, classes, arithmetic, cold pages."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.numa import (
    KUBELET_CPU_MANAGER,
    POD_CPU_ALLOCS,
    RESOURCE_STATUS,
    SYSTEM_QOS,
    NodeResourceTopology,
    cpuset_text,
)
from seatrial.scheduler.api.slo import BATCH_CPU
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.koordlet import burst, evict, pod_rules, resctrl
from seatrial.scheduler.koordlet.burst import BurstConfig, Limiter
from seatrial.scheduler.koordlet.cgroups import Layout, shares_of, weight_of
from seatrial.scheduler.koordlet.cold_pages import IdleStatsError, cold_bytes
from seatrial.scheduler.koordlet.cpu_pools import KubeletCpus, kubelet_cpus, pod_cpus, pools
from seatrial.scheduler.koordlet.evict import Shortage, Victim, Window
from seatrial.scheduler.koordlet.machine import Cpu
from seatrial.scheduler.koordlet.numa_usage import group_bytes, node_usages
from seatrial.scheduler.koordlet.objects import AgentPod, LocalPod
from seatrial.scheduler.koordlet.pod_rules import Limits
from seatrial.scheduler.koordlet.samples import Sample, Samples, average, percentile
from seatrial.scheduler.koordlet.strategies import QosStrategy

G = 10**9


@pytest.mark.parametrize(
    ("policy", "percent", "cores", "expected"),
    [
        ("auto", 1000, 5, 5_000_000),
        ("cpuBurstOnly", 1000, 3, 3_000_000),
        ("auto", 500, 5, 2_500_000),
        ("auto", 500, 3, 1_500_000),
        ("cfsQuotaBurstOnly", 1000, 5, 0),
        ("auto", 1000, 0, 0),
    ],
)
def test_saved_time(policy: str, percent: int, cores: int, expected: int) -> None:
    """Row 61."""
    assert burst.burst_of(BurstConfig(policy, percent), cores) == expected


@pytest.mark.parametrize(
    ("bound", "state"), [(7, burst.IDLE), (6.25, burst.COOLING), (5, burst.OVERLOAD), (None, burst.UNKNOWN)]
)
def test_state_of_the_shared_cpus(bound: float | None, state: str) -> None:
    """Row 62: 16 CPUs, 8 of them bound, the node uses 10."""
    assert burst.pool_state(50, 16, 8, 10, bound) == state


def test_without_shared_cpus_the_node_is_overloaded() -> None:
    assert burst.pool_state(50, 8, 8, 1, 1) == burst.OVERLOAD


@pytest.mark.parametrize(
    ("state", "quota", "more", "expected"),
    [
        (burst.IDLE, 200_000, {}, 240_000),
        (burst.IDLE, 580_000, {}, 600_000),
        (burst.COOLING, 400_000, {}, 400_000),
        (burst.UNKNOWN, 400_000, {}, 400_000),
        (burst.OVERLOAD, 400_000, {}, 320_000),
        (burst.OVERLOAD, 202_000, {}, 200_000),
        (burst.IDLE, 400_000, {"allowed": False}, 320_000),
        (burst.IDLE, 400_000, {"percent": 90}, 200_000),
        (burst.IDLE, 400_000, {"policy": "cpuBurstOnly"}, 200_000),
        (burst.IDLE, 400_000, {"throttled": 0.0}, 400_000),
        (burst.IDLE, 400_000, {"throttled": None}, 400_000),
    ],
)
def test_quotas(state: str, quota: int, more: dict[str, Any], expected: int) -> None:
    """Row 63: limit of 2 cores."""
    config = BurstConfig(more.get("policy", "auto"), cfs_quota_burst_percent=more.get("percent", 300))
    throttled, allowed = more.get("throttled", 0.5), more.get("allowed", True)
    assert burst.next_quota(config, state, limit_cores=2, quota=quota, throttled=throttled, allowed=allowed) == expected


@pytest.mark.parametrize(
    ("period", "token", "usage", "after"),
    [(100, 5000, 150, 4500), (100, 50, 200, -950), (10, 5, 200, -500), (100, 500, 40, 1100), (100, 4500, 40, 5000)],
)
def test_limiter(period: int, token: int, usage: int, after: int) -> None:
    """Row 64: ten seconds, 150 %."""
    limiter = Limiter(period, 150, 0.25)
    limiter.token = token
    assert limiter.allow(usage, 10) is (after > 0)
    assert limiter.token == after


def test_a_period_of_0_allows_nothing() -> None:
    assert not Limiter(0, 300, 0.4).allow(10, 10)


@pytest.mark.parametrize(
    ("average_", "current", "expected"),
    [
        (Window(9500, 50000, 10000), Window(13000, 50000, 14000), 6000),
        (Window(12000, 50000, 13000), Window(10000, 50000, 11000), 7000),
        (Window(19000, 40000, 20000), Window(19000, 40000, 20000), 0),
        (Window(0, 0, 10000), Window(0, 0, 10000), 0),
        (Window(6000, 50000, -1), Window(6000, 50000, -1), 0),
    ],
)
def test_satisfaction(average_: Window, current: Window, expected: int) -> None:
    """Rows 65 to 67."""
    assert evict.satisfaction_release(average_, current, 30, 40) == expected


def test_satisfaction_by_allocatable() -> None:
    """Rows 68 and 69: usage threshold 50."""
    assert evict.satisfaction_release(Window(6000, 50000, 8000), Window(4000, 50000, 8000), 30, 40, 50) == 12000
    assert evict.satisfaction_release(Window(6000, 50000, 1), Window(4000, 50000, 1), 30, 40, 50) == 19999


@pytest.mark.parametrize(
    ("lower", "upper", "why"),
    [
        (0, 50, "CPUEvictBESatisfactionLowerPercent(0) is not valid! must (0,60]"),
        (61, 70, "CPUEvictBESatisfactionLowerPercent(61) is not valid! must (0,60]"),
        (30, 100, "CPUEvictBESatisfactionUpperPercent(100) is not valid,must (0,100)"),
        (30, 20, "CPUEvictBESatisfactionUpperPercent(20) < CPUEvictBESatisfactionLowerPercent(30)"),
        (60, 60, ""),
    ],
)
def test_lines_of_satisfaction(lower: int, upper: int, why: str) -> None:
    assert evict.satisfaction_error(lower, upper) == why


@pytest.mark.parametrize(
    ("capacity", "used", "lower", "expected"),
    [
        (100_000, 81_000, None, 3000),
        (100_000, 81_000, 80, 1000),
        (100_000, 11_000, None, 0),
        (120 * G, 115 * G, None, 20_400_000_000),
        (120 * G, 80 * G, None, 0),
        (120 * G, 115 * G, 80, 18 * G),
        (0, 1, None, 0),
    ],
)
def test_release_by_usage(capacity: int, used: int, lower: int | None, expected: int) -> None:
    """Rows 70 and 72: threshold 80."""
    assert evict.usage_release(capacity, used, 80, lower) == expected


def test_release_by_allocatable() -> None:
    """Row 71."""
    assert evict.allocatable_release(85_000, 100_000, 80, 70) == 15_000
    assert evict.allocatable_release(80_000, 100_000, 80, 70) == 0
    assert evict.allocatable_release(85_000, None, 80, 70) == 85_000


@pytest.mark.parametrize(
    ("threshold", "lower", "evicted"), [(82, None, ["20"]), (80, None, ["20", "5"]), (80, 74, ["20", "5", "10"])]
)
def test_victims_of_memory(threshold: int, lower: int | None, evicted: list[str]) -> None:
    """Row 73."""
    values = [("10", 120, 10), ("5", 100, 5), ("20", 100, 20)]
    victims = [Victim(name, name, priority, used * G, 0) for name, priority, used in values]
    release = evict.usage_release(120 * G, 115 * G, threshold, lower)
    ordered = evict.by_memory([*victims, Victim("none", "none", 120, None, 0)])
    assert [victim.name for victim in ordered] == ["20", "5", "10", "none"]
    shortage = Shortage("BEMemoryEvict", evict.USED, {"memory": release}, ordered)
    assert [uid for _, uid in evict.chosen([shortage], [], ())] == evicted


def test_victims_of_cpu() -> None:
    """EV-8: the largest part of its request first; without a sample last."""
    victims = [Victim("a", "a", 5500, 500, 1000), Victim("b", "b", 5500, 900, 1000), Victim("c", "c", 5500, None, 1)]
    assert [victim.name for victim in evict.by_cpu([*victims, Victim("d", "d", 5400, 1, 9)])] == ["d", "b", "a", "c"]


def test_victims_of_all_classes() -> None:
    """EV-8: the annotation eviction-priority, the priority, the label priority, then the usage; not above the
    threshold, and none without a sample."""
    victims = [
        Victim("used-more", "", 5500, 900, 1),
        Victim("used-less", "", 5500, 100, 1),
        Victim("sub", "", 5500, 1, 1, sub_priority=-1),
        Victim("low", "", 5400, 1, 1),
        Victim("annotated", "", 5900, 1, 1, eviction_priority=-1),
        Victim("high", "", 6001, 900, 1),
        Victim("unknown", "", 5000, None, 1),
    ]
    ordered = evict.by_priority(victims, 6000, evict.USED)
    assert [each.uid for each in ordered] == ["annotated", "low", "sub", "used-more", "used-less"]


BATCH_PODS = [Victim("a", "", 5500, 1, 45_000), Victim("b", "", 5500, 1, 40_000), Victim("c", "", 7500, 1, 9, "mid")]


@pytest.mark.parametrize(
    ("earlier", "leaving", "refused", "expected"),
    [
        pytest.param(0, [], (), ["a"], id="the-first-is-enough"),
        pytest.param(0, BATCH_PODS[1:2], (), [], id="what-leaves-counts"),
        pytest.param(0, [], ("a",), ["b"], id="after-a-refusal-the-next"),
        pytest.param(9, [], (), ["c", "a"], id="one-account-for-all-tasks"),
    ],
)
def test_who_is_chosen(earlier: float, leaving: list[Victim], refused: tuple[str, ...], expected: list[str]) -> None:
    """Row 71: 15000 of batch-cpu are to be released. EV-10."""
    first = Shortage("CPUEvict", evict.REQUESTED, {"mid": earlier}, BATCH_PODS)
    second = Shortage("CPUAllocatableEvict", evict.REQUESTED, {BATCH_CPU: 15_000}, BATCH_PODS)
    assert [uid for _, uid in evict.chosen([first, second], leaving, refused)] == expected


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [(None, True), ('["BECPUEvict"]', True), ('["BEMemoryEvict"]', False), ("[]", False), ("{", False), ("[1]", False)],
)
def test_who_lets_itself_be_evicted(policy: str | None, allowed: bool) -> None:
    annotations = {} if policy is None else {"koordinator.sh/eviction-policy": policy}
    assert evict.may_evict(annotations, "BECPUEvict") is allowed


@pytest.mark.parametrize(
    ("cbm", "start", "end", "mask"),
    [("ff", 0, 100, "ff"), ("3ff", 10, 80, "fe"), ("7ff", 10, 50, "3c"), ("3ff", 0, 30, "7"), ("3ff", 10, 85, "1fe")],
)
def test_cache_masks(cbm: str, start: int, end: int, mask: str) -> None:
    """E15."""
    assert resctrl.cache_mask(cbm, start, end) == mask


@pytest.mark.parametrize(
    ("cbm", "start", "end", "why"),
    [
        ("101", 0, 100, "illegal cbm 101"),
        ("4", 0, 100, "illegal cbm 4"),
        ("", 0, 100, "illegal cbm "),
        ("ff", -10, 100, "illegal l3 cat percent: start -10, end 100"),
        ("ff", 30, 30, "illegal l3 cat percent: start 30, end 30"),
    ],
)
def test_masks_that_are_none(cbm: str, start: int, end: int, why: str) -> None:
    with pytest.raises(resctrl.ResctrlError) as refused:
        resctrl.cache_mask(cbm, start, end)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("percent", "intel", "amd"),
    [
        (85, "90", "136"),
        (80, "80", "128"),
        (30, "30", "48"),
        (100, "100", "2048"),
        (0, "", ""),
        (101, "", ""),
        (None, "", ""),
    ],
)
def test_bandwidth(percent: int | None, intel: str, amd: str) -> None:
    assert (resctrl.bandwidth(percent, amd=False), resctrl.bandwidth(percent, amd=True)) == (intel, amd)


def test_groups_of_pods() -> None:
    """RC-6: a cache of its own goes before what holds for all; a bad range drops L3 alone."""
    annotation = {
        "llc": {"schemata": {"range": [0, 30]}, "schemataPerCache": [{"cacheID": 1, "range": [0, 50]}]},
        "mb": {"schemata": {"percent": 20}},
    }
    lines = resctrl.pod_lines(json.dumps(annotation), [0, 1], "3ff", amd=False)
    assert lines == ["L3:0=7;1=1f;", "MB:0=20;1=20;"]
    annotation["llc"] = {"schemata": {"range": [40, 30]}}
    assert resctrl.pod_lines(json.dumps(annotation), [0, 1], "3ff", amd=False) == ["MB:0=20;1=20;"]
    assert resctrl.pod_lines('{"mb":{"schemataPerCache":[{"cacheID":0,"percent":20}]}}', [0, 1], "ff", amd=False) == []
    for bad in (
        "{",
        "[]",
        '{"llc": {"schemataPerCache": [{}]}}',
        '{"llc": {"schemataPerCache": 1}}',
        '{"llc": {"schemata": 5}}',
        '{"mb": []}',
    ):
        with pytest.raises(resctrl.ResctrlError):
            resctrl.pod_lines(bad, [0], "ff", amd=False)


def spec(**containers: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, str]:
    names = {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"}
    by_name = {
        name: {
            part: {names[key]: value for key, value in amounts.items()}
            for part, amounts in zip(("requests", "limits"), container, strict=True)
        }
        for name, container in containers.items()
    }
    return {"node.koordinator.sh/extended-resource-spec": json.dumps({"containers": by_name})}


def test_batch_pods() -> None:
    """E17: shares and quotas of pods and containers."""
    one = spec(a=({"cpu": "500"}, {"cpu": "500", "memory": "1Gi"}))
    assert pod_rules.batch_limits(one)[""] == Limits(512, 50_000, 1 << 30)
    assert pod_rules.batch_limits(one, ratio=1.2)[""].quota == 41_667
    assert pod_rules.batch_limits(one, quotas=False)[""].quota == -1
    assert pod_rules.batch_limits(spec(a=({"cpu": 500}, {"cpu": 1500})))[""].quota == 150_000
    two = pod_rules.batch_limits(spec(a=({"cpu": 500}, {"cpu": 500}), b=({"cpu": 500}, {})))
    assert (two[""].quota, two["a"].quota, two["b"].quota) == (-1, 50_000, -1)
    assert pod_rules.batch_limits(spec(a=({}, {"cpu": 1000})))["a"] == Limits(2, 100_000, -1)
    assert pod_rules.batch_limits({}) == {}


@pytest.mark.parametrize(("ratio", "quota"), [(1.2, 83_334), (1.0, 100_000), (0, 100_000), (-1, 100_000)])
def test_normalized_quotas(ratio: float, quota: int) -> None:
    assert pod_rules.normalized(100_000, ratio) == quota


def strategy(policy: str = "groupIdentity", **values: int) -> QosStrategy:
    blocks = {f"{name}Class": {"cpuQOS": {"enable": True, "groupIdentity": value}} for name, value in values.items()}
    return msgspec.convert({"policies": {"cpuPolicy": policy}, **blocks}, QosStrategy)


@pytest.mark.parametrize(
    ("qos", "classes", "folders", "kubernetes"),
    [
        (strategy(lsr=2, ls=2, be=-1), (2, 2, 2, -1), (0, 2, -1), (2, 2, -1)),
        (strategy(ls=2, be=-1), (0, 0, 2, -1), (0, 2, -1), (2, 2, -1)),
        (strategy(be=-1), (0, 0, 0, -1), (0, 0, -1), (0, 0, -1)),
    ],
)
def test_group_identities(
    qos: QosStrategy, classes: tuple[int, ...], folders: tuple[int, ...], kubernetes: tuple[int, ...]
) -> None:
    """E17, parseRule."""
    identities = pod_rules.identities(qos)
    assert tuple(identities.by_class.values()) == classes
    assert tuple(identities.folders.values()) == folders
    assert tuple(identities.by_kubernetes.values()) == kubernetes
    assert set(pod_rules.identities(strategy("coreSched", ls=2)).by_class.values()) == {0}


@pytest.mark.parametrize(
    ("annotation", "qos", "expected"),
    [
        ('{"enable": true, "groupIdentity": 1}', "LS", 1),
        ('{"groupIdentity": 1}', "LS", 0),
        ('{"enable": true, "groupIdentity": 1}', "BE", 2),
        ("{", "LS", 2),
        ("", "LS", 2),
    ],
)
def test_identity_of_one_pod(annotation: str, qos: str, expected: int) -> None:
    """HK-2: the announcement's own example has no `enable`, and gives 0."""
    assert pod_rules.own_identity({"koordinator.sh/cpuQOS": annotation}, qos, 2) == expected


@pytest.mark.parametrize(
    ("shares", "weight"), [(1024, 39), (1000, 39), (2000, 77), (50000, 1908), (2, 1), (262144, 10000)]
)
def test_shares_and_weights(shares: int, weight: int) -> None:
    """E18."""
    assert weight_of(shares) == weight
    assert (shares_of(1), shares_of(10000)) == (2, 262144)


def test_percentiles() -> None:
    """E19: 0, 100 … 800 without 900."""
    samples = [Sample(0, value) for value in range(0, 900, 100)]
    assert (percentile(samples, 0.9), percentile(samples, 0.5), average(samples)) == (700, 300, 400)
    assert percentile([Sample(0, 7)], 0.99) == 7
    assert (percentile([], 0.5), average([])) == (None, None)


def test_samples_end() -> None:
    """Old ones are dropped."""
    samples = Samples()
    samples.add("m", 0.0, 1)
    samples.add("m", 2000.0, 2)
    assert [sample.value for sample in samples.between("m", 0, 9999)] == [2]
    assert (samples.last("m", 1999), samples.last("m", 2001), samples.last("n")) == (2, None, None)


def idle_stats(**rows: str) -> str:
    head = [
        "# version: 1.0",
        "# page_scans: 24",
        "# slab_scans: 0",
        "# scan_period_in_seconds: 120",
        "# use_hierarchy: 1",
    ]
    head += ["# buckets: 1,2,5,15,30,60,120,240", *["#"] * 8]
    names = [a + b + c + d for a in "cd" for b in "sf" for c in "eu" for d in "ia"]
    return "\n".join(
        [*head, *(f"{name} {rows.get(name, '1 1 1 1 1 1 1 1')}" for name in names), "slab 0 0 0 0 0 0 0 0"]
    )


def test_cold_pages() -> None:
    """E19: files that are inactive, from the sixth bucket on."""
    nothing = "0 0 0 0 0 0 0 0"
    rows = dict.fromkeys(("dfei", "cfui", "dfui"), nothing)
    text = idle_stats(cfei="2633728 4640768 66531328 340172800 52834304 52834304 0 0", **rows)
    assert cold_bytes(text) == 52_834_304
    for bad in ("", text + "\n", text.replace("1,2,5", "1,2,6"), text.replace("52834304 0 0", "x 0 0")):
        with pytest.raises(IdleStatsError, match="format err"):
            cold_bytes(bad)


def cpus_of(labels: dict[str, str], status: Any, *, kind: str = "Burstable", kubelet: Any = KubeletCpus()) -> str:  # noqa: B008
    """On a node of two NUMA nodes with CPUs 0 to 7 and 8 to 15, of which pods have 0 and 8."""
    cpus = [Cpu(number, number // 2, number // 8, number // 8) for number in range(16)]
    plain = {
        "metadata": {"name": "p", "labels": labels, "annotations": {RESOURCE_STATUS: json.dumps(status)}},
        "status": {"qosClass": kind},
    }
    pod = LocalPod(msgspec.convert(plain, AgentPod), Layout(systemd=False))
    return cpuset_text(pod_cpus(pod, pools(cpus, frozenset({0, 8}), kubelet)))


def on_node(resources: dict[str, str], node: int = 1) -> dict[str, Any]:
    return {"numaNodeResources": [{"node": node, "resources": resources}]}


STATIC = KubeletCpus(static=True, apart=frozenset({1, 9}))
QOS = "koordinator.sh/qosClass"


@pytest.mark.parametrize(
    ("labels", "status", "more", "expected"),
    [
        ({QOS: "LSR"}, {"cpuset": "2-3"}, {"kubelet": None}, "2-3"),
        ({QOS: "LS"}, {}, {}, "1-7,9-15"),
        ({QOS: "LS"}, {}, {"kind": "BestEffort"}, "1-7,9-15"),
        ({QOS: "LS"}, {}, {"kubelet": STATIC}, "2-7,10-15"),
        ({QOS: "LS"}, on_node({"hugepages-1Gi": "1Gi"}), {}, "1-7,9-15"),
        ({QOS: "LS"}, on_node({"cpu": "4"}), {}, "9-15"),
        ({QOS: "LS"}, on_node({"cpu": "4"}, 7), {}, ""),
        ({QOS: "BE"}, on_node({"kubernetes.io/batch-cpu": "4000"}), {"kind": "BestEffort"}, ""),
        ({}, on_node({"cpu": "4"}), {"kubelet": STATIC}, "10-15"),
        ({}, {}, {}, "1-7,9-15"),
        ({}, {}, {"kubelet": STATIC}, ""),
        ({}, {}, {"kind": "BestEffort"}, ""),
        ({QOS: "SYSTEM"}, {}, {"kubelet": KubeletCpus(system=frozenset({5}))}, "5"),
        ({QOS: "SYSTEM"}, {}, {}, "1-7,9-15"),
        ({QOS: "LS"}, {}, {"kubelet": None}, ""),
    ],
)
def test_the_cpus_of_a_pod(labels: dict[str, str], status: Any, more: dict[str, Any], expected: str) -> None:
    """HK-5, E17, NUMA-R67: the first rule that fits."""
    assert cpus_of(labels, status, **more) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, KubeletCpus()),
        ({KUBELET_CPU_MANAGER: {"policy": "static", "reservedCPUs": "0"}, POD_CPU_ALLOCS: None}, KubeletCpus(True)),
        (
            {POD_CPU_ALLOCS: [{"cpuset": "1-2", "managedByKubelet": True}, {"cpuset": "3"}]},
            KubeletCpus(apart=frozenset({1, 2})),
        ),
        ({SYSTEM_QOS: {"cpuset": "4"}}, KubeletCpus(apart=frozenset({4}), system=frozenset({4}))),
        ({SYSTEM_QOS: {"cpuset": "4", "cpusetExclusive": False}}, KubeletCpus(system=frozenset({4}))),
    ],
)
def test_what_kubelet_keeps(annotations: dict[str, Any], expected: KubeletCpus) -> None:
    """NUMA-R67: kubelet's reserved CPUs stay in the pools."""
    texts = {key: json.dumps(value) for key, value in annotations.items()}
    assert kubelet_cpus(NodeResourceTopology(metadata=ObjectMeta(annotations=texts))) == expected


def test_files_of_two_numa_nodes(tmp_path: Path) -> None:
    """KM-1 and KM-2: lines of single CPUs are summed; free, file and reclaimable pages are not in use; a node whose
    files cannot be read is left out."""
    for number, cpus in ((0, "0,2"), (1, "1"), (2, "x")):
        folder = tmp_path / f"devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        rows = {"MemTotal": 100, "MemFree": 40, "Active(file)": 10, "Inactive(file)": 5, "SReclaimable": 5 + number}
        (folder / "meminfo").write_text("".join(f"Node {number} {name}: {kib} kB\n" for name, kib in rows.items()))
    (tmp_path / "devices/system/node/node1x").mkdir()
    wrong = "\ncpu9 1\ncpux 1 1 1 1 1 1 1\ncpu  9 9 9 9\n"
    stat = wrong + "".join(f"cpu{number} 100 0 {number}00 900 50 0 0 0 0 0\n" for number in range(3))
    assert node_usages(tmp_path, stat, 100) == {0: (1.0 + 3.0, 40 * 1024), 1: (2.0, 39 * 1024)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anon N0=4096 N1=8192\nfile N0=100 N1=0\nslab N0=9 N1=9\n", {0: 4196.0, 1: 8192.0}),
        (
            "total=3 N0=1 N1=2\nanon=1 N0=1 N1=0\nhierarchical_anon=3 N0=1 N1=2\nhierarchical_file=1 N0=0 N1=1\n",
            {0: 4096.0, 1: 3 * 4096.0},
        ),
        ("\nanon N0=x N1\nfile N0=1\n", {0: 1.0}),
    ],
    ids=["v2", "v1", "no-rows"],
)
def test_memory_of_a_group_by_numa_node(text: str, expected: dict[int, float]) -> None:
    """E18: TestParseMemoryNumaStatV2."""
    assert group_bytes(text) == expected
