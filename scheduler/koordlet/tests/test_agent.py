"""The agent over a fake root, in virtual time: what it reports, what it writes, whom it evicts."""

import json
from pathlib import Path

import msgspec
import pytest

from seatrial.scheduler.api.clock import from_rfc3339, rfc3339
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.slo import BATCH_CPU, NodeMetric
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.koordlet.tests.setting import GI, Setting
from seatrial.scheduler.serving.exposition import exposed

SUPPRESS = {"enable": True, "cpuSuppressThresholdPercent": 65}


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    return Setting(tmp_path, v2=request.param)


def test_a_report(setting: Setting) -> None:
    """RP-1 to RP-5, KM-1 to KM-7: averages of what pods and the node use; the rest is the system's."""
    a, b = setting.pod("a"), setting.pod("b", "besteffort", "BE", priority=5500)
    setting.slo()
    setting.load = {a: (2.0, GI), b: (1.0, 2 * GI)}
    setting.system = 0.5
    setting.root.memory_used = 5 * GI
    setting.run(61)
    status = setting.sent("/n1/status")[-1]["status"]
    info = status["nodeMetric"]
    cores = [info[part]["resources"]["cpu"] for part in ("nodeUsage", "systemUsage")]
    assert cores == ["3500m", "500m"]
    assert info["nodeUsage"]["resources"]["memory"] == str(5 * GI)
    assert info["systemUsage"]["resources"]["memory"] == str(2 * GI)
    assert [
        (pod["name"], pod["priority"], pod["qos"], pod["podUsage"]["resources"]) for pod in status["podsMetric"]
    ] == [
        ("a", "koord-prod", "LS", {"cpu": "2000m", "memory": str(GI)}),
        ("b", "koord-batch", "BE", {"cpu": "1000m", "memory": str(2 * GI)}),
    ]
    assert [each["usage"] for each in info["aggregatedNodeUsages"]] == [{}, {}, {}], "no duration is half covered"
    setting.run(120)
    usage = setting.sent("/n1/status")[-1]["status"]["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]
    assert usage["p95"]["resources"]["cpu"] == "3500m"


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_jumps(setting: Setting, seconds: float) -> None:
    """The time of the report follows the clock; usage does not."""
    setting.load = {setting.pod("a"): (2.0, GI)}
    setting.run(40)
    setting.clock.jump(seconds)
    setting.run(61)
    status = setting.sent("/n1/status")[-1]["status"]
    assert status["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "2000m"
    assert abs(from_rfc3339(status["updateTime"]) - setting.clock.now()) <= 31


@pytest.mark.parametrize(("age", "cores"), [(25, 0.7), (23, 0.0)])
def test_what_prod_pods_will_not_use(tmp_path: Path, age: int, cores: float) -> None:
    """PR-7 to PR-9: a request of one core of which 0.25 are used; young pods keep theirs. Nothing before training."""
    setting = Setting(tmp_path)
    amounts = {"cpu": "8", "memory": "16Gi"}
    setting.agent._set_node(msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}}, Node))
    setting.slo()
    setting.load = {setting.pod("a", started=rfc3339(setting.clock.now() - age * 3600)): (0.25, GI)}
    setting.run(31)
    assert setting.sent("/n1/status")[-1]["status"]["prodReclaimableMetric"] == {"resource": {}}
    setting.run(200)
    resources = setting.sent("/n1/status")[-1]["status"]["prodReclaimableMetric"]["resource"]["resources"]
    assert int(resources["cpu"].removesuffix("m")) / 1000 == pytest.approx(cores, abs=0.06)


def test_nothing_is_reported_without_a_node_metric(setting: Setting) -> None:
    setting.agent._metric_gone(NodeMetric())
    setting.run(61)
    assert setting.api.writes == []


def test_best_effort_cpus_follow_the_load(setting: Setting) -> None:
    """CS-2 to CS-6: 65 % of 8 CPUs less what the others use; growing by one CPU a round, at once down to two."""
    prod, be = setting.pod("a"), setting.pod("b", "besteffort", "BE")
    setting.slo(resourceUsedThresholdWithBE=SUPPRESS)
    setting.load = {prod: (1.0, 0), be: (1.0, 0)}
    setting.run(3)
    groups = ("kubepods/besteffort", be, f"{be}/b-c")
    cpus = [setting.file(group, "cpuset.cpus", "cpuset") for group in groups]
    assert len(set(cpus)) == 1
    assert cpus[0] == "0-4", "5.2 - 1 cores are five CPUs"
    setting.load[prod] = (4.0, 0)
    setting.run(2)
    assert setting.file("kubepods/besteffort", "cpuset.cpus", "cpuset") == "0-1"
    setting.load[prod] = (2.0, 0)
    setting.run(2)
    assert setting.file("kubepods/besteffort", "cpuset.cpus", "cpuset") == "0-3"
    setting.slo(resourceUsedThresholdWithBE={"enable": False})
    setting.run(1)
    assert setting.file(f"{be}/b-c", "cpuset.cpus", "cpuset") == "0-7"


def test_a_node_of_its_own_quota(setting: Setting) -> None:
    """CS-7: with the policy cfsQuota the CPUs are all of the node's; leaving it lifts the quota."""
    prod, be = setting.pod("a"), setting.pod("b", "besteffort", "BE")
    setting.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"})
    setting.load = {prod: (2.0, 0), be: (1.0, 0)}
    setting.run(3)
    name, unlimited = ("cpu.max", "max") if setting.root.v2 else ("cpu.cfs_quota_us", "-1")
    assert setting.file("kubepods/besteffort", name) == "320000"
    assert setting.file("kubepods/besteffort", "cpuset.cpus", "cpuset") == "0-7"
    if setting.root.v2:  # the kernel shows the period too
        setting.root._write(setting.root.cgroup / "kubepods/besteffort/cpu.max", "320000 100000")
    setting.agent.stop()
    assert setting.file("kubepods/besteffort", name) == unlimited


def test_limits_of_best_effort_pods(setting: Setting) -> None:
    """HK-7: shares, quota and memory by the annotation, for the pod and its container."""
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    spec = json.dumps({"containers": {"c": {"requests": amounts, "limits": amounts}}})
    be = setting.pod("b", "besteffort", "BE", annotations={"node.koordinator.sh/extended-resource-spec": spec})
    setting.run(11)
    for group in (be, f"{be}/b-c"):
        if setting.root.v2:
            assert setting.file(group, "cpu.weight") == "20"
            assert setting.file(group, "cpu.max") == "50000"
            assert setting.file(group, "memory.max") == str(GI)
        else:
            assert setting.file(group, "cpu.shares") == "512"
            assert setting.file(group, "cpu.cfs_quota_us") == "50000"
            assert setting.file(group, "memory.limit_in_bytes", "memory") == str(GI)


def test_group_identities(tmp_path: Path) -> None:
    """HK-1: on kernels that have them."""
    setting = Setting(tmp_path, anolis=True)
    prod, be = setting.pod("a"), setting.pod("b", "besteffort", "BE")
    block = {
        name: {"cpuQOS": {"enable": True, "groupIdentity": value}} for name, value in (("lsClass", 2), ("beClass", -1))
    }
    setting.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "groupIdentity"}, **block})
    setting.run(11)
    values = [setting.file(group, "cpu.bvt_warp_ns") for group in (prod, be, "kubepods/burstable", "kubepods")]
    assert values == ["2", "-1", "2", "0"]


@pytest.mark.parametrize(("throttled", "quota"), [(5, "240000"), (0, "200000")])
def test_burst(tmp_path: Path, throttled: int, quota: str) -> None:
    """CB-4 to CB-6: a throttled container gets a fifth more, and its pod the same amount."""
    setting = Setting(tmp_path)
    prod = setting.pod("a", limits={"cpu": "2"})
    for group in (prod, f"{prod}/a-c"):
        setting.root._write(setting.root.cgroup / "cpu" / group / "cpu.cfs_quota_us", "200000")
    setting.slo(cpuBurstStrategy={"policy": "auto"})
    setting.load = {prod: (1.0, 0)}
    setting.run(2)
    setting.root.throttle(f"{prod}/a-c", 10, throttled)
    setting.run(1)
    assert [setting.file(group, "cpu.cfs_quota_us") for group in (prod, f"{prod}/a-c")] == [quota, quota]


MEMORY = {"enable": True, "memoryEvictThresholdPercent": 80}


def test_memory_eviction_takes_the_largest_of_the_lowest_priority(setting: Setting) -> None:
    """EV-6, EV-8, EV-9: of best-effort pods only; a pod whose policy forbids it stays."""
    setting.gates.update(BEMemoryEvict=True)
    prod = setting.pod("prod")
    spared = setting.pod("spared", "besteffort", "BE", annotations={"koordinator.sh/eviction-policy": "[]"})
    small, large, later = (
        setting.pod(name, "besteffort", "BE", priority=priority)
        for name, priority in (("small", 5000), ("large", 5000), ("later", 5900))
    )
    setting.load = {prod: (1, 9 * GI), spared: (0, 3 * GI), small: (0, GI), large: (0, 2 * GI), later: (0, 3 * GI)}
    setting.slo(resourceUsedThresholdWithBE=MEMORY)
    setting.root.memory_used = 14 * GI
    setting.run(2)
    assert setting.evicted() == ["large"]
    assert setting.sent("large/eviction")[0]["deleteOptions"] == {"preconditions": {"uid": "large"}}
    assert setting.sent("/events")[0]["note"] == "trigger by koordlet feature BEMemoryEvict, kill pod: large"
    setting.run(2)
    assert len(setting.sent("/eviction")) == 1, "what is under way counts"


def test_eviction_by_satisfaction(setting: Setting) -> None:
    """EV-2 to EV-4: the pods want more than they get, so that those which use most of their request go."""
    setting.gates.update(BECPUEvict=True, BECPUSuppress=False)
    batch = {"requests": {"kubernetes.io/batch-cpu": "10000"}}
    pods = [setting.pod(name, "besteffort", "BE", resources=batch) for name in ("a", "b")]
    setting.load = {pods[0]: (3.8, 0), pods[1]: (3.7, 0)}
    lines = {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 60}
    setting.slo(resourceUsedThresholdWithBE={"enable": True, **lines})
    setting.run(4)
    assert setting.evicted() == ["a"], "8 of 20 cores are 40 %: 4000 are to be released, one pod is enough"


@pytest.mark.parametrize(
    ("block", "evicted", "why"),
    [
        ({"cpuEvictThresholdPercent": 80}, ["low"], ""),
        ({"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 40}, ["low", "batch"], ""),
        ({"cpuEvictThresholdPercent": 95}, [], ""),
        (
            {"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 80},
            [],
            "lower percent(80) should less than threshold percent(80)",
        ),
        (
            {"cpuEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": None},
            [],
            "EvictEnabledPriorityThreshold not config",
        ),
    ],
)
def test_eviction_by_usage_of_cpu(
    setting: Setting, caplog: pytest.LogCaptureFixture, block: dict[str, int], evicted: list[str], why: str
) -> None:
    """EV-5, EV-8: pods that have the label, up to the priority; 7.2 of 8 cores are 90 %."""
    setting.gates.update(CPUEvict=True, BECPUSuppress=False)
    label = {"koordinator.sh/eviction-enabled": "true"}
    pods = {
        "prod": (9500, 2.0, label),
        "plain": (5000, 1.0, {}),
        "batch": (5500, 3.0, label),
        "low": (3500, 1.2, label),
    }
    for name, (priority, cores, labels) in pods.items():
        setting.load[setting.pod(name, qos="", priority=priority, labels=labels)] = (cores, 0)
    setting.slo(resourceUsedThresholdWithBE={"enable": True, "evictEnabledPriorityThreshold": 6000, **block})
    setting.run(4)
    assert setting.evicted() == evicted
    assert why in caplog.text


@pytest.mark.parametrize(
    ("offer", "most", "evicted"),
    [
        ("100000", 7999, ["large"]),
        ("110000", 7999, []),
        ("0", 7999, ["large", "small"]),
        (None, 7999, ["large", "small"]),
        (None, 8000, []),
    ],
)
def test_eviction_by_what_the_node_offers(setting: Setting, offer: str | None, most: int, evicted: list[str]) -> None:
    """EV-7, row 71: 85000 are requested of 100000, more than 80 %; down to 70 %, the larger one goes. Without batch-cpu
    all do. Never by a threshold that prod pods would be below."""
    setting.gates.update(CPUAllocatableEvict=True, BECPUSuppress=False)
    amounts = {} if offer is None else {BATCH_CPU: offer}
    setting.agent._set_node(msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}}, Node))
    for name, request in (("small", "40000"), ("large", "45000")):
        resources = {"requests": {BATCH_CPU: request}}
        labels = {"koordinator.sh/eviction-enabled": "true"}
        setting.pod(name, "besteffort", "BE", priority=5500, labels=labels, resources=resources)
    lines = {"cpuAllocatableEvictThresholdPercent": 80, "cpuAllocatableEvictLowerPercent": 70}
    setting.slo(resourceUsedThresholdWithBE={"enable": True, "allocatableEvictPriorityThreshold": most, **lines})
    setting.run(4)
    assert setting.evicted() == evicted


def test_an_eviction_that_is_refused(setting: Setting) -> None:
    """A budget refuses each: the next pod is tried a second later, and the first one again after ten."""
    setting.gates.update(BEMemoryEvict=True)
    setting.load = {
        setting.pod(name, "besteffort", "BE", priority=priority): (0, GI)
        for name, priority in (("a", 5000), ("b", 5100))
    }
    setting.slo(resourceUsedThresholdWithBE=MEMORY)
    setting.root.memory_used, setting.api.code = 13 * GI, 429
    setting.run(11)
    assert setting.evicted() == ["a", "b", "a"]


def test_a_pod_that_is_leaving_counts_as_released(setting: Setting) -> None:
    """EV-10: also one that somebody else has deleted, until it is gone."""
    setting.gates.update(BEMemoryEvict=True)
    setting.load = {setting.pod(name, "besteffort", "BE"): (0, GI) for name in ("a", "b")}
    leaving = setting.agent._pods["a"].pod
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp=rfc3339(setting.clock.now()))
    setting.agent._set_pod(msgspec.structs.replace(leaving, metadata=metadata))
    setting.slo(resourceUsedThresholdWithBE=MEMORY)
    setting.root.memory_used = 13 * GI
    setting.run(9)
    assert setting.evicted() == []
    setting.agent._pod_gone(leaving)
    setting.run(2)
    assert setting.evicted() == ["b"]


@pytest.mark.parametrize(
    "wrong", [{"cpuEvictBESatisfactionLowerPercent": 0}, {"cpuEvictBESatisfactionUpperPercent": 100}]
)
def test_lines_that_are_none_evict_nobody(
    setting: Setting, wrong: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    setting.gates.update(BECPUEvict=True, BECPUSuppress=False)
    setting.load = {
        setting.pod("a", "besteffort", "BE", resources={"requests": {"kubernetes.io/batch-cpu": "90000"}}): (8, 0)
    }
    lines = {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 60, **wrong}
    setting.slo(resourceUsedThresholdWithBE={"enable": True, **lines})
    setting.run(4)
    assert setting.sent("/eviction") == []
    assert len([record for record in caplog.records if "is not valid" in record.message]) == 1


def test_a_pod_that_vanishes_costs_the_others_nothing(setting: Setting) -> None:
    a, b = setting.pod("a"), setting.pod("b")
    setting.slo(cpuBurstStrategy={"policy": "auto"})
    setting.load = {a: (1, GI), b: (1, GI)}
    setting.run(3)
    setting.root.remove(a)
    del setting.load[a]
    setting.run(60)
    status = setting.sent("/n1/status")[-1]["status"]
    assert "b" in [pod["name"] for pod in status["podsMetric"]]
    assert not setting.clock.faults.report()


def test_a_block_that_cannot_be_read_keeps_the_last(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    setting.slo(resourceUsedThresholdWithBE={**SUPPRESS, "memoryEvictThresholdPercent": 88})
    setting.slo(resourceUsedThresholdWithBE={"enable": "yes"}, cpuBurstStrategy={"policy": "auto"}, hostApplications=3)
    kept = setting.agent._strategies
    assert (kept.threshold.memory_evict_threshold_percent, kept.burst.policy) == (88, "auto")
    assert len(caplog.records) == 2


def test_files_that_cannot_be_written_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(tmp_path)
    spec = '{"containers": {"c": {"limits": {"kubernetes.io/batch-cpu": "500"}}}}'
    be = setting.pod("b", "besteffort", "BE", annotations={"node.koordinator.sh/extended-resource-spec": spec})
    quota = setting.root.cgroup / "cpu" / be / "cpu.cfs_quota_us"
    quota.unlink()
    quota.mkdir()
    setting.run(40)
    assert len([record for record in caplog.records if "unwritten" in record.message]) == 1
    assert setting.file(f"{be}/b-c", "cpu.cfs_quota_us") == "50000"
    assert not setting.clock.faults.report()


@pytest.mark.parametrize("text", ["", "cpu", "cpu  a b c d e f g", "intr 1"])
def test_proc_that_cannot_be_read(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(tmp_path)
    setting.run(1)
    for _ in range(3):
        setting.root._write(setting.root.proc / "stat", text)
        setting.clock.advance(1.0)
    assert len([record for record in caplog.records if "unread" in record.message]) == 1
    assert not setting.clock.faults.report()


def test_reserved_cpus_are_no_one_s(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    annotation = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0-1"}'}
    setting.agent._set_node(msgspec.convert({"metadata": {"name": "n1", "annotations": annotation}}, Node))
    prod, be = setting.pod("a"), setting.pod("b", "besteffort", "BE")
    setting.slo(resourceUsedThresholdWithBE=SUPPRESS)
    setting.load = {prod: (1.0, 0), be: (1.0, 0)}
    setting.run(3)
    assert setting.file(be, "cpuset.cpus", "cpuset") == "2-4", "5.2 - 1 - 2 reserved are three CPUs"


def test_cache_ways_and_bandwidth(tmp_path: Path) -> None:
    """RC-4 to RC-6: groups of classes with their pods' tasks, the sandbox's too; a pod's own group goes with it."""
    setting = Setting(tmp_path)
    setting.root.mount_resctrl(caches=2, cbm="3ff")
    annotation = {"node.koordinator.sh/resctrl": '{"llc": {"schemata": {"range": [0, 30]}}}'}
    be, own = setting.pod("b", "besteffort", "BE"), setting.pod("own", annotations=annotation)
    for folder, task in ((f"{be}/b-c", "11"), (setting.root.group(f"{be}/sandbox"), "12"), (f"{own}/own-c", "13")):
        setting.root._write(setting.root.cgroup / "cpu" / folder / "tasks", task)
    block = {"resctrlQOS": {"enable": True, "catRangeEndPercent": 40, "mbaPercent": 45}}
    setting.slo(resourceQOSStrategy={"beClass": block})
    setting.run(11)

    def group(name: str, file: str) -> list[str]:
        return (setting.root.resctrl / name / file).read_text().split()

    assert group("BE", "schemata") == ["L3:0=f;1=f;", "MB:0=50;1=50;"]
    assert group("LS", "schemata") == ["L3:0=3ff;1=3ff;", "MB:0=100;1=100;"]
    assert group("BE", "tasks") == ["11", "12"]
    assert (group("koordlet-own", "schemata"), group("koordlet-own", "tasks")) == (["L3:0=7;1=7;"], ["13"])
    setting.agent._pod_gone(setting.agent._pods["own"].pod)
    setting.run(11)
    assert not (setting.root.resctrl / "koordlet-own").exists()


def test_use_of_caches_by_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """KM-18: what the kernel counts in the groups of classes; a counter that it does not have now is left out."""
    setting = Setting(tmp_path, gates={"ResctrlCollector": True})
    setting.root.mount_resctrl()
    setting.root.cache_use("BE", 1, llc_occupancy="4096", mbm_local_bytes="7", mbm_total_bytes="9")
    setting.root.cache_use("LS", 0, llc_occupancy="Unavailable", mbm_total_bytes="5")
    (setting.root.resctrl / "BE/mon_data/mon_L3_x").mkdir()
    (setting.root.resctrl / "LSR/mon_data/mon_L3_00/llc_occupancy").mkdir(parents=True)
    page = exposed(setting.agent.families()).decode()
    assert [line for line in page.splitlines() if line.startswith("koordlet_resctrl")] == [
        'koordlet_resctrl_llc_occupancy{node="n1",cache_id="1",qos="BE"} 4096',
        'koordlet_resctrl_memory_bandwidth{node="n1",cache_id="0",qos="LS",mb_type="mbm_total_bytes"} 5',
        'koordlet_resctrl_memory_bandwidth{node="n1",cache_id="1",qos="BE",mb_type="mbm_local_bytes"} 7',
        'koordlet_resctrl_memory_bandwidth{node="n1",cache_id="1",qos="BE",mb_type="mbm_total_bytes"} 9',
    ]
    exposed(setting.agent.families())
    assert [record.message for record in caplog.records if "llc_occupancy" in record.message] == [
        "resctrl LSR: llc_occupancy: Is a directory"
    ]
    assert b"koordlet_resctrl" not in exposed(Setting(tmp_path / "off").agent.families())


def test_programs_outside_of_pods(tmp_path: Path) -> None:
    """HK-4, HK-6: an LS program gets the CPUs that are bound to no pod; its identity is that of its class."""
    setting = Setting(tmp_path, anolis=True)
    folder = setting.root.group("host-latency-sensitive/nginx")
    setting.pod("bound", "", "LSR", annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'})
    setting.slo(
        hostApplications=[{"name": "nginx", "qos": "LS", "priority": "koord-prod"}],
        resourceQOSStrategy={
            "policies": {"cpuPolicy": "groupIdentity"},
            "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        },
    )
    setting.load = {folder: (1.5, GI)}
    setting.run(61)
    assert setting.file(folder, "cpuset.cpus", "cpuset") == "2-7"
    assert setting.file(folder, "cpu.bvt_warp_ns") == "2"
    (program,) = setting.sent("/n1/status")[-1]["status"]["hostApplicationMetric"]
    assert (program["name"], program["usage"]["resources"]["cpu"]) == ("nginx", "1500m")


@pytest.mark.parametrize(
    ("policy", "size", "cold"),
    [
        ("usageWithoutPageCache", 4 * GI, True),
        ("usageWithPageCache", 6 * GI, True),
        ("usageWithHotPageCache", 5 * GI, True),
        ("usageWithHotPageCache", 4 * GI, False),
    ],
)
def test_three_ways_to_count_memory(tmp_path: Path, policy: str, size: int, cold: bool) -> None:
    """KM-2, KM-10, KM-13, KM-14: of 6 GiB two are page cache, one of which nobody has touched for minutes."""
    setting = Setting(tmp_path, gates={"ColdPageCollector": cold})
    setting.root.memory_used, setting.root.page_cache = 4 * GI, 2 * GI
    setting.root.idle_pages(GI)
    spec = {"metricCollectPolicy": {"nodeMemoryCollectPolicy": policy}}
    setting.agent._set_metric(msgspec.convert({"spec": spec}, NodeMetric))
    setting.run(61)
    usage = setting.sent("/n1/status")[-1]["status"]["nodeMetric"]["nodeUsage"]["resources"]
    assert usage["memory"] == str(size)


@pytest.mark.parametrize(
    ("key", "text", "qos"),
    [
        ("node.koordinator.sh/resctrl", '{"llc": {"schemata": 5}}', "LS"),
        (
            "node.koordinator.sh/extended-resource-spec",
            '{"containers": {"c": {"limits": {"kubernetes.io/batch-cpu": []}}}}',
            "BE",
        ),
        ("koordinator.sh/cpuBurst", '{"cpuBurstPercent": "all"}', "LS"),
        ("koordinator.sh/cpuQOS", '{"enable": 1}', "LS"),
        ("scheduling.koordinator.sh/resource-status", '{"cpuset": "x"}', "LSR"),
        ("koordinator.sh/eviction-policy", "5", "BE"),
    ],
)
def test_one_pod_s_annotation_concerns_no_other(tmp_path: Path, key: str, text: str, qos: str) -> None:
    """The first pod's cannot be read; the second pod gets what it is to get."""
    setting = Setting(tmp_path, anolis=True, gates={"BECPUEvict": True, "BEMemoryEvict": True})
    setting.root.mount_resctrl(caches=1, cbm="3ff")
    setting.slo(resourceUsedThresholdWithBE=SUPPRESS, cpuBurstStrategy={"policy": "auto"})
    setting.pod("a", "besteffort", qos, annotations={key: text})
    spec = '{"containers": {"c": {"limits": {"kubernetes.io/batch-cpu": "500"}}}}'
    good = {
        "node.koordinator.sh/extended-resource-spec": spec,
        "node.koordinator.sh/resctrl": '{"mb": {"schemata": {"percent": 20}}}',
    }
    be = setting.pod("b", "besteffort", "BE", annotations=good)
    setting.run(12)
    assert setting.file(be, "cpu.cfs_quota_us") == "50000"
    assert (setting.root.resctrl / "koordlet-b/schemata").read_text().split() == ["MB:0=20;"]
    assert not setting.clock.faults.report()


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
def test_what_a_killed_agent_left_is_taken_back(tmp_path: Path, policy: str) -> None:
    """The agent before was killed while it suppressed; then its policy changed, or suppression was disabled."""
    setting = Setting(tmp_path)
    setting.root._write(setting.root.cgroup / "cpu/kubepods/besteffort/cpu.cfs_quota_us", "20000")
    setting.root._write(setting.root.cgroup / "cpuset/kubepods/besteffort/cpuset.cpus", "0-1")
    setting.run(2)
    assert setting.file("kubepods/besteffort", "cpuset.cpus", "cpuset") == "0-1", "its settings are not known yet"
    setting.slo(resourceUsedThresholdWithBE={"enable": policy == "cpuset", "cpuSuppressPolicy": policy})
    setting.run(12)
    assert setting.file("kubepods/besteffort", "cpu.cfs_quota_us") == "-1"
    expected = "0-5" if policy == "cpuset" else "0-7"
    assert setting.file("kubepods/besteffort", "cpuset.cpus", "cpuset") == expected


def test_groups_outside_of_the_root_are_refused(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    path = {"base": "CgroupRoot", "parentDir": "../..", "relativePath": "etc"}
    setting.slo(hostApplications=[{"name": "evil", "qos": "LS", "cgroupPath": path}])
    assert setting.agent._strategies.applications == ()
    assert "expected groups below the root" in caplog.text


def test_nothing_is_kept_of_pods_that_are_gone(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPeriodSeconds": 10})
    agent = setting.agent

    def kept() -> int:
        parts = len(agent.samples._series) + len(agent._collectors._counters) + len(agent._enforcer._limiters)
        return parts + len([key for key in agent._executor._written if "poda" in key[0]])

    setting.run(3)
    before = kept()
    setting.load = {setting.pod("a", limits={"cpu": "1"}): (0.5, GI)}
    (setting.root.cgroup / "cpu/kubepods/burstable/poda/a-c/cpu.cfs_quota_us").write_text("100000")
    setting.run(3)
    assert agent._enforcer._limiters
    assert kept() > before
    agent._pod_gone(agent._pods["a"].pod)
    setting.load = {}
    setting.run(3)
    assert kept() == before


def test_pods_leave_bound_cpus_to_their_pod(tmp_path: Path) -> None:
    """HK-5 in the rounds: bound CPUs and no quota; the pods that share CPUs get the others, and them when the pod is
    gone; without a topology of the node, or with one that cannot be read, they keep what they have."""
    setting = Setting(tmp_path)
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
    pinned = setting.pod("a", "burstable", "LSR", annotations=bound)
    shared, job = setting.pod("b"), setting.pod("c", "besteffort", "BE")
    for folder in (pinned, f"{pinned}/a-c"):
        setting.root._write(setting.root.cgroup / "cpu" / folder / "cpu.cfs_quota_us", "200000")

    def cpus() -> list[str]:
        setting.run(11)
        containers = f"{pinned}/a-c", f"{shared}/b-c", f"{job}/c-c"
        return [setting.file(folder, "cpuset.cpus", "cpuset") for folder in containers]

    assert cpus() == ["2-3", "0-7", "0-7"]
    assert [setting.file(folder, "cpu.cfs_quota_us") for folder in (pinned, f"{pinned}/a-c")] == ["-1", "-1"]
    setting.agent._set_topology(NodeResourceTopology())
    assert cpus() == ["2-3", "0-1,4-7", "0-7"]
    wrong = ObjectMeta(name="n1", annotations={"kubelet.koordinator.sh/cpu-manager-policy": "x"})
    setting.agent._set_topology(NodeResourceTopology(metadata=wrong))
    setting.agent._pod_gone(setting.agent._pods["a"].pod)
    assert cpus()[1:] == ["0-7", "0-7"]
    setting.agent._topology_gone(NodeResourceTopology())
    setting.pod("d", "burstable", "LSR", annotations=bound)
    assert cpus()[1:] == ["0-7", "0-7"]


def test_only_latency_sensitive_programs_share_cpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HK-6, D4-6, said once."""
    setting = Setting(tmp_path)
    setting.slo(hostApplications=[{"name": "job", "qos": "BE", "cgroupPath": {"relativePath": "job"}}])
    setting.run(21)
    assert caplog.text.count("only LS is supported for host application job") == 1


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_numa_nodes_are_reported(tmp_path: Path, v2: bool) -> None:
    """KM-8: the system's CPU by the CPU of the NUMA nodes; a pod whose memory cannot be read is left to the system."""
    setting = Setting(tmp_path, v2=v2, nodes=2)
    setting.slo()
    setting.load = {setting.pod("a"): (2.0, 2 * GI), setting.pod("b"): (1.0, 4 * GI)}
    setting.system, setting.root.memory_used = 1.0, 6 * GI
    base = setting.root.cgroup if v2 else setting.root.cgroup / "memory"
    account = setting.root._account

    def without_b(folder: str) -> None:
        account(folder)
        (base / "kubepods/burstable/podb/memory.numa_stat").unlink(missing_ok=True)

    setting.root._account = without_b  # type: ignore[method-assign]
    setting.run(60)
    metric = setting.sent("/status")[-1]["status"]["nodeMetric"]
    cpu, memory = {"cpu": "2000m", "memory": str(3 * GI)}, {"cpu": "500m", "memory": str(2 * GI)}
    assert metric["numaUsages"] == [
        {"numaNodeID": number, "nodeUsage": {"resources": cpu}, "systemUsage": {"resources": memory}}
        for number in (0, 1)
    ]
