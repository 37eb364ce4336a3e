"""The node agent: bursts, classes of pods, memory, quotas and disks of groups, settings of the kernel.

Figures follow Koordinator's pkg/koordlet; the node is a fake root of 8 CPUs.
"""

import json
from typing import Any

import pytest

from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, RESOURCE_STATUS
from seatrial.suites.qos.agent import BESTEFFORT, GI, ROUND, StartAgent, announced, best_effort, prod, start_agent

__all__ = ["start_agent"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case("CO-044", severity="critical")
@pytest.mark.long(seconds=15)
def test_burst(start_agent: StartAgent) -> None:
    """A container that is throttled while the node has CPUs to spare gets a fifth more quota each second, up to three
    times its limit, and less again while the node is loaded, down to its limit; its pod has as much."""
    node = start_agent()
    node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150})
    service = node.run(prod("service"), cores=1.0)
    container = node.container(service)
    for group in (service, container):
        (node.root.cgroup / "cpu" / group / "cpu.cfs_quota_us").write_text("100000")
    node.pass_time(2)
    assert node.number(container, "cpu.cfs_quota_us") == 100_000, "it is not throttled"
    node.throttles(container, 10, 5)
    node.pass_time(1)
    assert node.number(container, "cpu.cfs_quota_us") in {100_000, 120_000}
    node.pass_time(5)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, container)] == [150_000, 150_000]
    node.system = 4.0
    node.pass_time(6)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, container)] == [100_000, 100_000]


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-100",
    severity="normal",
    source="spec CB-1 to CB-3; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.long(seconds=20)
def test_burst_of_one_pod(start_agent: StartAgent) -> None:
    """The annotation cpuBurst of a pod goes over the settings of the node field by field; another pod has none. The
    CPUs that LSR pods request are not shared: of the four others half may be used."""
    node = start_agent()
    node.slo(cpuBurstStrategy={"policy": "none", "cpuBurstPercent": 200, "cfsQuotaBurstPercent": 150})
    node.run(prod("bound", 4).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "0-3"}'))
    own = node.run(prod("own").annotation("koordinator.sh/cpuBurst", '{"policy": "auto"}'), cores=1.0)
    containers = [node.container(own), node.container(node.run(prod("plain")))]
    for policy in ("cpuBurstOnly", "cfsQuotaBurstOnly"):
        part = prod(policy.lower()).annotation("koordinator.sh/cpuBurst", json.dumps({"policy": policy}))
        containers.append(node.container(node.run(part)))
    for container in containers:
        (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
        (node.root.cgroup / "cpu" / container / "cpu.cfs_burst_us").write_text("0")
        node.throttles(container, 10, 5)
    node.pass_time(7)
    assert [node.number(each, "cpu.cfs_quota_us") for each in containers] == [150_000, 100_000, 100_000, 150_000]
    assert [node.number(each, "cpu.cfs_burst_us") for each in containers] == [200_000, 0, 200_000, 0]
    node.system = 1.2
    node.pass_time(7)
    assert node.number(containers[0], "cpu.cfs_quota_us") == 100_000, "2.2 of 4 cores are more than half"


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-152",
    severity="normal",
    source="spec CB-3, CB-4; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.parametrize(
    ("qos", "loaded", "less"),
    [("LS", 2.8, 2.4), ("LSR", 0.9, 0.5), ("LSE", 0.9, 0.5)],
    ids=["all-cpus", "beside-lsr", "beside-lse"],
)
def test_no_quota_grows_on_a_node_that_is_nearly_loaded(
    start_agent: StartAgent, qos: str, loaded: float, less: float
) -> None:
    """From nine tenths of the threshold on quotas stay as they are. The threshold is half of the CPUs that are bound to
    no pod."""
    node = start_agent()
    if qos != "LS":
        node.run(prod("bound", 4).qos(qos))
    node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150})
    container = node.container(node.run(prod("service"), cores=1.0))
    (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
    node.system = loaded
    node.pass_time(3)
    node.throttles(container, 10, 5)
    node.pass_time(7)
    assert node.number(container, "cpu.cfs_quota_us") == 100_000, "3.8 of 8 cores, or 1.9 of 4, are nearly half"
    node.system = less
    node.pass_time(7)
    assert node.number(container, "cpu.cfs_quota_us") == 150_000


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-101",
    severity="normal",
    source="spec CB-7; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.long(seconds=54)
def test_burst_that_is_limited(start_agent: StartAgent) -> None:
    """With a period a container must save what it uses beyond its limit: one that has used three times its limit for
    long gets no more quota, and after some idle seconds it does, because a debt has a bound."""
    node = start_agent()
    burst = {"policy": "auto", "cfsQuotaBurstPercent": 150, "cfsQuotaBurstPeriodSeconds": 4}
    node.slo(cpuBurstStrategy=burst)
    container = node.container(service := node.run(prod("service"), cores=3.0))
    (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
    node.throttles(container, 10, 5)
    node.pass_time(25)
    assert node.number(container, "cpu.cfs_quota_us") == 100_000
    node.uses(service, 0.8)
    node.pass_time(14)
    assert node.number(container, "cpu.cfs_quota_us") == 100_000, "four fifths of the limit save nothing"
    node.uses(service, 0.1)
    node.pass_time(12)
    assert node.number(container, "cpu.cfs_quota_us") == 150_000, "200 % seconds are saved in 3 s"


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-160",
    severity="normal",
    source="spec CB-4, CB-5; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_a_container_that_is_throttled_no_more_gets_no_more(start_agent: StartAgent) -> None:
    """A container was throttled while the node was overloaded, and is not since: it keeps its quota. One that may burst
    to half of its limit keeps its limit."""
    node = start_agent()
    node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150})
    half = prod("half").annotation("koordinator.sh/cpuBurst", '{"cfsQuotaBurstPercent": 50}')
    containers = [node.container(node.run(each, cores=0.5)) for each in (prod("service"), half)]
    for container in containers:
        (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
        node.throttles(container, 10, 5)
    node.system = 5.0
    node.pass_time(7)
    node.throttles(containers[0], 10, 0)
    node.pass_time(3)
    node.system = 0.0
    node.pass_time(7)
    assert [node.number(container, "cpu.cfs_quota_us") for container in containers] == [100_000] * 2

    node.throttles(containers[0], 10, 5)
    node.pass_time(7)
    assert node.number(containers[0], "cpu.cfs_quota_us") == 150_000


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-167",
    severity="normal",
    source="spec CB-7; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.long(seconds=24)
def test_a_longer_period_of_bursts_counts_at_once(start_agent: StartAgent) -> None:
    """A container uses three times its limit: with a period of 4 s it gets no more, with a longer one it does."""
    node = start_agent()
    container = node.container(node.run(prod("service"), cores=3.0))
    (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
    node.throttles(container, 10, 5)
    for period, seconds, quota in ((4, 14, 100_000), (10_000, 7, 150_000)):
        burst = {"policy": "auto", "cfsQuotaBurstPercent": 150, "cfsQuotaBurstPeriodSeconds": period}
        node.slo(cpuBurstStrategy=burst)
        node.pass_time(seconds)
        assert node.number(container, "cpu.cfs_quota_us") == quota


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-166",
    severity="normal",
    source="spec CB-6; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.long(seconds=16)
def test_the_quota_of_a_pod_grows_by_what_a_container_gets(start_agent: StartAgent) -> None:
    """Of two containers of a core each one is throttled: it gets half a core more, and so does the pod. By a smaller
    part that is set later, both get less again."""
    node = start_agent()
    pair = prod("pair")
    resources = {name: {"cpu": "1", "memory": "1Gi"} for name in ("requests", "limits")}
    pair.manifest["spec"]["containers"].append({"name": "second", "image": "x", "resources": resources})
    group = node.run(pair, cores=1.0)
    first, second = node.containers(group)
    for each, quota in ((group, 200_000), (first, 100_000), (second, 100_000)):
        (node.root.cgroup / "cpu" / each / "cpu.cfs_quota_us").write_text(str(quota))
    node.throttles(first, 10, 5)
    for part, more in ((150, 50_000), (120, 20_000)):
        node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": part})
        node.pass_time(7)
        quotas = [node.number(each, "cpu.cfs_quota_us") for each in (group, first, second)]
        assert quotas == [200_000 + more, 100_000 + more, 100_000]


@pytest.mark.feature("QOS-6.cpu-qos")
@pytest.mark.case("CO-046", severity="normal")
@pytest.mark.long(seconds=86)
def test_the_identity_of_one_pod(start_agent: StartAgent) -> None:
    """A pod's annotation cpuQOS goes before its class. Without `enable`, as in the announcement, it is disabled. A
    burstable pod without a class has that of LS pods. A value of another writer is corrected after a minute."""
    node = start_agent(anolis=True)
    strategy = {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}}
    node.slo(resourceQOSStrategy=strategy)
    own = {"plain": "", "own": '{"enable": true, "groupIdentity": 1}', "announced": '{"groupIdentity": 1}'}
    groups = {}
    for name, text in own.items():
        builder = prod(name)
        groups[name] = node.run(builder.annotation("koordinator.sh/cpuQOS", text) if text else builder)
    groups["without"] = node.run(pod("without").request(cpu="500m"))
    node.pass_time(12)
    expected = {"plain": 2, "own": 1, "announced": 0, "without": 2}
    assert {name: node.number(group, "cpu.bvt_warp_ns") for name, group in groups.items()} == expected
    (node.root.cgroup / "cpu" / groups["own"] / "cpu.bvt_warp_ns").write_text("-1")  # by another writer
    node.pass_time(72)
    assert {name: node.number(group, "cpu.bvt_warp_ns") for name, group in groups.items()} == expected


@pytest.mark.feature("QOS-6.cpu-qos")
@pytest.mark.case("CO-163", severity="normal", source="spec HK-1, HK-2")
@pytest.mark.long(seconds=26)
def test_the_identity_of_pods_without_a_class(start_agent: StartAgent) -> None:
    """A Guaranteed pod without a class has the identity of LSR pods, and that of LS pods where LSR has none; the group
    above all pods has none. The annotation cpuQOS counts for no best-effort pod."""
    node = start_agent(anolis=True)
    guaranteed = node.run(pod("guaranteed").request(cpu=1, memory="1Gi"))
    own = best_effort("job").annotation("koordinator.sh/cpuQOS", '{"enable": true, "groupIdentity": 1}')
    job, qos = node.run(own), {"lsClass": 2, "beClass": -1}
    for identity in (2, 1):
        classes = {name: {"cpuQOS": {"enable": True, "groupIdentity": value}} for name, value in qos.items()}
        node.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "groupIdentity"}, **classes})
        node.pass_time(12)
        groups = (guaranteed, job, "kubepods")
        assert [node.number(group, "cpu.bvt_warp_ns") for group in groups] == [identity, -1, 0]
        qos["lsrClass"] = 1


@pytest.mark.feature("QOS-6.llc", "QOS-8.sandbox")
@pytest.mark.case("CO-047", severity="critical")
@pytest.mark.long(seconds=24)
def test_cache_ways_and_bandwidth(trial: Trial, start_agent: StartAgent) -> None:
    """The classes have their part of the cache and of the bandwidth, pods with the annotation a group of their own. The
    tasks of a pod's sandbox are in the group too, and so is a task that comes later. A changed range counts, and the
    group of a deleted pod is removed."""
    node = start_agent(kernel="resctrl")
    node.root.mount_resctrl(caches=2, cbm="3ff")
    job = node.run(best_effort("job"))
    own = prod("own").annotation("node.koordinator.sh/resctrl", '{"llc": {"schemata": {"range": [15, 35]}}}')
    service = node.run(own)
    parts = {"llc": {"schemataPerCache": [{"cacheID": 0, "range": [0, 30]}]}, "mb": {"schemata": {"percent": 20}}}
    partial = node.run(prod("partial").annotation("node.koordinator.sh/resctrl", json.dumps(parts)))
    ways = [{"cacheID": cache, "range": ends} for cache, ends in enumerate(([0, 30], [50, 100]))]
    each = node.run(
        prod("each").annotation("node.koordinator.sh/resctrl", json.dumps({"llc": {"schemataPerCache": ways}}))
    )
    tasks = {node.container(job): "11", node.root.group(f"{job}/sandbox"): "12", node.container(service): "13"}
    for group, task in tasks.items():
        (node.root.cgroup / "cpu" / group / "tasks").write_text(task)
    block = {"resctrlQOS": {"enable": True, "catRangeEndPercent": 45, "mbaPercent": 45}}
    node.slo(resourceQOSStrategy={"beClass": block})
    node.pass_time(12)

    def words(path: str) -> list[str]:
        resctrl_qos = node.root.resctrl / path
        assert resctrl_qos.exists(), f"expected a group with the file {path}"
        return resctrl_qos.read_text().split()

    assert words("BE/schemata") == ["L3:0=1f;1=1f;", "MB:0=50;1=50;"]
    assert sorted(words("BE/tasks")) == ["11", "12"]
    uid = service.rpartition("/pod")[2]
    assert (words(f"koordlet-{uid}/schemata"), words(f"koordlet-{uid}/tasks")) == (["L3:0=c;1=c;"], ["13"]), (
        "both ends are rounded up to ways: from 1.5 of ten to 3.5"
    )
    partial_uid = partial.rpartition("/pod")[2]
    assert words(f"koordlet-{partial_uid}/schemata") == ["MB:0=20;1=20;"], "the annotation has ways of one cache alone"
    assert words(f"koordlet-{each.rpartition('/pod')[2]}/schemata") == ["L3:0=7;1=3e0;"]

    (node.root.cgroup / "cpu" / node.container(job) / "tasks").write_text("11\n14")
    node.slo(resourceQOSStrategy={"beClass": {"resctrlQOS": {**block["resctrlQOS"], "catRangeEndPercent": 80}}})
    trial.delete("own")
    node.pass_time(11)
    assert words("BE/schemata") == ["L3:0=ff;1=ff;", "MB:0=50;1=50;"]
    assert sorted(words("BE/tasks")) == ["11", "12", "14"]
    assert not (node.root.resctrl / f"koordlet-{uid}").exists(), "expected the group to go with its pod"


@pytest.mark.feature("QOS-6.llc")
@pytest.mark.case("CO-164", severity="normal", source="spec RC-1 to RC-4")
@pytest.mark.long(seconds=26)
def test_a_range_of_the_cache_until_it_is_switched_off(start_agent: StartAgent) -> None:
    """Best-effort pods have the middle half of the cache and 40 % of the bandwidth, although the range of LSR pods is
    none; then all, as LS pods, for which it is not enabled."""
    node = start_agent(kernel="resctrl")
    node.root.mount_resctrl(cbm="ff")

    def groups() -> list[list[str]]:
        return [(node.root.resctrl / group / "schemata").read_text().split() for group in ("LS", "BE")]

    part = {"enable": True, "catRangeStartPercent": 25, "catRangeEndPercent": 75, "mbaPercent": 40}
    wrong = {"enable": True, "catRangeStartPercent": 80, "catRangeEndPercent": 20}
    node.slo(resourceQOSStrategy={"lsrClass": {"resctrlQOS": wrong}, "beClass": {"resctrlQOS": part}})
    node.pass_time(12)
    everything = ["L3:0=ff;", "MB:0=100;"]
    assert groups() == [everything, ["L3:0=3c;", "MB:0=40;"]]

    node.slo(resourceQOSStrategy={"beClass": {"resctrlQOS": {**part, "enable": False}}})
    node.pass_time(12)
    assert groups() == [everything, everything]


@pytest.mark.feature("QOS-6.llc")
@pytest.mark.case("CO-155", severity="normal", source="spec RC-3, RC-6")
@pytest.mark.long(seconds=12)
def test_bandwidth_of_amd_cpus(start_agent: StartAgent) -> None:
    """AMD limits bandwidth in eighths of a GB/s, and not in percent: a part is one of 160 of them, and all is 2048."""
    node = start_agent(kernel="resctrl")
    node.root.mount_resctrl(vendor="AuthenticAMD")
    own = prod("own").annotation("node.koordinator.sh/resctrl", '{"mb": {"schemata": {"percent": 30}}}')
    uid = node.run(own).rpartition("/pod")[2]
    parts = {"lsClass": 100, "beClass": 45}
    node.slo(
        resourceQOSStrategy={name: {"resctrlQOS": {"enable": True, "mbaPercent": part}} for name, part in parts.items()}
    )

    node.pass_time(12)

    expected = {"LS": 2048, "BE": 72, f"koordlet-{uid}": 48}
    lines = {group: (node.root.resctrl / group / "schemata").read_text().split()[-1] for group in expected}
    assert lines == {group: f"MB:0={value};" for group, value in expected.items()}


@pytest.mark.feature("QOS-5.manifest-host-applications")
@pytest.mark.case("CO-050", severity="normal")
@pytest.mark.long(seconds=15)
def test_the_announced_programs(trial: Trial, start_manager: StartManager, start_agent: StartAgent) -> None:
    """The ConfigMap of the announcement reaches the agent through the manager: nginx gets the CPUs that are neither
    bound nor reserved by the node's annotation."""
    node = start_agent()
    nginx = node.root.group("host-latency-sensitive/nginx")
    annotations = announced("v1.4/host-applications.yaml", "Node")["metadata"]["annotations"]
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": annotations}}).ok
    start_manager(announced("v1.4/host-applications.yaml", "ConfigMap")["data"])
    node.pass_time(14)
    assert node.cpus(nginx) == "4-7"


@pytest.mark.feature("QOS-6.manifest-resctrl-cpuqos")
@pytest.mark.case("CO-051", severity="normal")
@pytest.mark.long(seconds=15)
def test_the_announced_annotations(start_agent: StartAgent) -> None:
    """The annotations of the announcement: a pod with its own cache ways and bandwidth; one whose cpuQOS lacks
    `enable`, which Koordinator takes for disabled."""
    node = start_agent(anolis=True, kernel="resctrl")
    node.root.mount_resctrl(caches=1, cbm="3ff")
    strategy = {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}}
    node.slo(resourceQOSStrategy=strategy)
    groups = {}
    for name in ("resctrl", "cpu-qos"):
        metadata = announced("v1.6/resctrl-cpuqos.yaml", "Pod", name)["metadata"]
        builder = prod(name)
        for key, value in metadata["annotations"].items():
            builder.annotation(key, value)
        groups[name] = node.run(builder)
    node.pass_time(12)
    uid = groups["resctrl"].rpartition("/pod")[2]
    assert (node.root.resctrl / f"koordlet-{uid}/schemata").read_text().split() == ["L3:0=7;", "MB:0=20;"]
    assert node.number(groups["cpu-qos"], "cpu.bvt_warp_ns") == 0


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-061", severity="critical", source="koordlet CgroupReconcile; spec CG-2 to CG-5")
@pytest.mark.long(seconds=24)
def test_memory_of_groups(start_agent: StartAgent) -> None:
    """Half of what a pod requests is protected, for its container, its class and all pods together; beyond 80 % between
    request and limit it is throttled. A pod whose annotation says `none` has neither, and one with `auto` has what its
    class has by default; when the class is disabled, all but that is neutral again."""
    node = start_agent("CgroupReconcile", anolis=True)
    pods = [prod(name).resources({"memory": "2Gi"}).limits({"memory": "4Gi"}) for name in ("service", "none", "auto")]
    for each in pods[1:]:
        each.annotation("koordinator.sh/memoryQOS", json.dumps({"policy": each.name}))
    service, own, auto = (node.run(each) for each in pods)
    enabled = {"enable": True, "minLimitPercent": 50, "throttlingPercent": 80}
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": enabled}})
    node.pass_time(12)
    groups = (service, node.container(service), "kubepods/burstable", "kubepods")
    assert [node.number(group, "memory.min", "memory") for group in groups] == [GI] * 4
    assert node.number(node.container(service), "memory.high", "memory") == 3865468928, "2 GiB and 80 % of 2 GiB"
    assert node.number(service, "memory.wmark_ratio", "memory") == 95
    assert [node.number(own, f"memory.{name}", "memory") for name in ("min", "wmark_ratio")] == [0, 0]
    assert [node.number(auto, f"memory.{name}", "memory") for name in ("min", "wmark_ratio")] == [0, 95]

    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {**enabled, "enable": False}}})
    node.pass_time(11)
    assert node.number(auto, "memory.wmark_ratio", "memory") == 95
    assert [node.number(group, "memory.min", "memory") for group in groups] == [0] * 4
    assert node.number(service, "memory.wmark_ratio", "memory") == 0


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-090", severity="critical", source="koordlet CgroupReconcile; spec CG-2 to CG-5")
@pytest.mark.long(seconds=13)
def test_memory_of_each_container(start_agent: StartAgent) -> None:
    """Of two containers each has its own protection and throttling; the pod has that of what both request, the class
    what its pods have, and all pods together what all classes have."""
    node = start_agent("CgroupReconcile", anolis=True)
    pair = prod("pair").resources({"memory": "2Gi"}).limits({"memory": "4Gi"})
    second = {"name": "second", "image": "x", "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}}
    pair.manifest["spec"]["containers"].append(second)
    group = node.run(pair)
    node.run(prod("other").resources({"memory": "1Gi"}).limits({"memory": "2Gi"}))
    for name, qos, size in (("bound", "LSR", "1Gi"), ("alone", "LSE", "2Gi")):
        bound = pod(name).qos(qos).label(PRIORITY_CLASS_LABEL, "koord-prod")
        node.run(bound.resources({"cpu": "1", "memory": size}))
    percent = {"minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 80}
    memory = {"memoryQOS": {"enable": True, **percent}}
    node.slo(resourceQOSStrategy={"lsClass": memory, "lsrClass": memory})
    node.pass_time(12)

    def amounts(folder: str, *names: str) -> tuple[int, ...]:
        return tuple(node.number(folder, f"memory.{name}", "memory") for name in names)

    containers = [path.name for path in (node.root.cgroup / "memory" / group).iterdir() if path.is_dir()]
    pairs = sorted(amounts(f"{group}/{name}", "min", "high") for name in containers)
    assert pairs == [(GI // 2, 1932734464), (GI, 3865468928)], "1 GiB and 80 % of 1 GiB; 2 GiB and 80 % of 2 GiB"
    assert amounts(group, "min", "low") == (3 * GI // 2, 9 * GI // 4)
    assert amounts("kubepods/burstable", "min", "low") == (2 * GI, 3 * GI)
    assert amounts("kubepods", "min", "low") == (7 * GI // 2, 21 * GI // 4), "pods of class LSE are as those of LSR"


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-102", severity="normal", source="koordlet CgroupReconcile; spec CG-2, CG-3, CG-6")
@pytest.mark.long(seconds=14)
def test_memory_without_a_limit(trial: Trial, start_agent: StartAgent) -> None:
    """A container without a limit is throttled as if it were what the node offers, not what the machine has. What is
    protected is at least the minimum, and no container is throttled below it, as by the rounding to pages."""
    node = start_agent("CgroupReconcile", anolis=True)
    amounts = {"status": {"allocatable": {"memory": "8Gi"}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}/status", amounts).ok
    free = prod("free")
    free.manifest["spec"]["containers"][0]["resources"] = {"requests": {"memory": "2Gi"}}
    group = node.run(free)
    own = prod("whole").annotation("koordinator.sh/memoryQOS", '{"minLimitPercent": 100}')
    whole = node.run(own.resources({"memory": "1000000001"}))
    percent = {"minLimitPercent": 50, "lowLimitPercent": 25, "throttlingPercent": 80}
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, **percent}}})
    node.pass_time(ROUND)
    amounts_of = {
        name: node.number(node.container(group), f"memory.{name}", "memory") for name in ("min", "low", "high")
    }
    assert amounts_of == {"min": GI, "low": GI, "high": (2 * GI + 6 * GI * 80 // 100) // 4096 * 4096}
    assert node.number(node.container(whole), "memory.high", "memory") == 1_000_000_001


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-106", severity="normal", source="ours: spec CG-6 on control groups of version 1 as well")
@pytest.mark.long(seconds=14)
def test_the_page_cache_of_a_pod_is_at_most_its_limit(start_agent: StartAgent) -> None:
    """Pods of 1 GiB may have 4 GiB of page cache by their annotation, a quarter of their memory, none, or what they
    like though there is a size; a quarter is nothing for a pod without a limit, or of which one container has none:
    its group stays as it is."""
    node = start_agent("CgroupReconcile", anolis=True)
    rows: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
        "capped": ({"pageCacheLimitSize": "4Gi"}, (1, GI)),
        "part": ({"pageCacheLimitPercent": 25}, (1, GI // 4)),
        "open": ({"pageCacheLimitPercent": 25}, (0, 4096)),
        "half-open": ({"pageCacheLimitPercent": 25}, (0, 4096)),
        "none": ({"pageCacheLimitSize": "0"}, (0, 0)),
        "off": ({"pageCacheLimitSize": "4Gi", "pageCacheEnable": False}, (0, GI)),
    }
    files = {}
    for name, (settings, _) in rows.items():
        builder = prod(name) if name == "open" else prod(name).resources({"memory": "1Gi"})
        if name == "half-open":
            builder.manifest["spec"]["containers"].append({"name": "second", "image": "x"})
        group = node.run(builder.annotation("koordinator.sh/memoryQOS", json.dumps(settings)))
        files[name] = [
            node.root.cgroup / "memory" / group / f"memory.pagecache_limit.{end}" for end in ("enable", "size")
        ]
        for path, value in zip(files[name], ("0", "4096"), strict=True):
            path.write_text(value)
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True}}})
    node.pass_time(ROUND)
    values = {name: tuple(int(path.read_text()) for path in paths) for name, paths in files.items()}
    assert values == {name: expected for name, (_, expected) in rows.items()}


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-062", severity="normal", source="koordlet SystemConfig; spec SY-1, SY-2")
@pytest.mark.long(seconds=23)
def test_settings_of_the_kernel(start_agent: StartAgent) -> None:
    """Of 16 GiB 1 % are kept free, and the watermarks are apart as the NodeSLO says; values that the kernel would not
    bear are not written."""
    node = start_agent("SystemConfig", anolis=True)
    files = [node.root.proc / "sys/vm" / name for name in ("min_free_kbytes", "watermark_scale_factor")]
    files.append(node.root.sys / "kernel/mm/memcg_reaper/reap_background")
    features = node.root.sys / "kernel/debug/sched_features"
    strategy = {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150, "memcgReapBackGround": 1}
    node.slo(systemStrategy={**strategy, "schedFeatures": {"ID_EXPELLER_SHARE_CORE": False}})
    node.pass_time(12)
    assert [int(file.read_text()) for file in files] == [167772, 150, 1]
    assert features.read_text().split() == ["NO_ID_EXPELLER_SHARE_CORE"], "the kernel takes one word at a time"
    node.slo(systemStrategy={"minFreeKbytesFactor": 1, "watermarkScaleFactor": 500, "memcgReapBackGround": 0})
    node.pass_time(11)
    assert [int(file.read_text()) for file in files] == [167772, 150, 0]


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-063", severity="normal", source="koordlet CPUNormalization; spec HK-8")
@pytest.mark.long(seconds=12)
def test_quotas_on_cpus_that_do_more(trial: Trial, start_agent: StartAgent) -> None:
    """On a node whose CPUs do a fifth more, the quota of an LS pod is less by as much; a burst starts from there. A
    pod of which one container has no limit has no quota itself. The quota of a pod without a class is less as well; a
    pod with CPUs of its own has none. On CPUs that do less all have what their limits say."""
    node = start_agent("CPUNormalization")
    annotation = {"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.20"}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", annotation).ok
    service = node.run(prod("service"))
    half = prod("half")
    half.manifest["spec"]["containers"].append({"name": "free", "image": "x"})
    free = node.run(half)
    plain = node.run(pod("plain").request(cpu=1))
    bound = node.run(prod("bound").annotation(RESOURCE_STATUS, '{"cpuset": "0"}'))
    for group in (service, node.container(service), node.container(free), node.container(plain), node.container(bound)):
        (node.root.cgroup / "cpu" / group / "cpu.cfs_quota_us").write_text("100000")
    node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150})
    node.pass_time(12)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, node.container(service))] == [83_334] * 2
    assert [node.number(group, "cpu.cfs_quota_us") for group in (free, node.container(free))] == [-1, 83_334]
    assert [node.number(node.container(group), "cpu.cfs_quota_us") for group in (plain, bound)] == [83_334, -1]
    node.throttles(node.container(service), 10, 5)
    node.pass_time(5)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, node.container(service))] == [125_001] * 2
    annotation["metadata"]["annotations"]["node.koordinator.sh/cpu-normalization-ratio"] = "0.80"
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", annotation).ok
    node.pass_time(12)
    assert node.number(node.container(plain), "cpu.cfs_quota_us") == 100_000


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-064", severity="normal", source="ours: spec BK-1, HK-12: OOMScoreAdj, in no release yet")
@pytest.mark.long(seconds=23)
def test_disks_and_oom_scores(start_agent: StartAgent) -> None:
    """Best-effort pods read a mebibyte a second from a disk, which is named by a partition, until the NodeSLO names it
    no more; the processes of a container have the OOM score of its own annotation, else that of its pod, those of
    another pod theirs."""
    node = start_agent("BlkIOReconcile", "OOMScoreAdj")
    node.root.disk("sdb", "8:16")
    node.root.partition("sdb", "sdb1", "8:17")
    scores = {"koordinator.sh/oom-score-adj": "-500", "koordinator.sh/oom-score-adj-spec": '{"main": 200}'}
    own = prod("own")
    for key, value in scores.items():
        own.annotation(key, value)
    of_pod = prod("of-pod").annotation("koordinator.sh/oom-score-adj", "-500")
    processes = [
        node.root.process(node.container(node.run(each)), number)
        for number, each in ((101, own), (102, prod("plain")), (103, of_pod))
    ]
    block = {"type": "device", "name": "/dev/sdb1", "ioCfg": {"readBPS": 1 << 20}}
    node.slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": True, "blocks": [block]}}})
    node.pass_time(12)
    assert node.root.read(BESTEFFORT, "blkio.throttle.read_bps_device", "blkio") == "8:16 1048576"
    assert [path.read_text() for path in processes] == ["200", "0", "-500"]
    node.slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": False}}})
    node.pass_time(11)
    assert node.root.read(BESTEFFORT, "blkio.throttle.read_bps_device", "blkio") == "8:16 0"


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-066", severity="normal", source="koordlet CoreSched; spec HK-9")
@pytest.mark.long(seconds=23)
def test_core_scheduling(start_agent: StartAgent) -> None:
    """Pods with the same group share a core-scheduling cookie, an exclusive pod has one alone, best-effort pods have
    another; with the policy groupIdentity no pod has one."""
    node = start_agent("CoreSched", anolis=True, kernel="core scheduling")
    label = "koordinator.sh/core-sched-group-id"
    pods = [each.label(label, "web") for each in (prod("a"), prod("b"), prod("alone"), best_effort("job"))]
    pods[2].label("koordinator.sh/core-sched-policy", "exclusive")
    files = [
        node.root.process(node.container(node.run(each)), 101 + number).with_name("core_sched_cookie")
        for number, each in enumerate(pods)
    ]
    classes = {"lsClass": {"cpuQOS": {"enable": True}}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}
    node.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "coreSched"}, **classes})
    node.pass_time(12)
    a, b, alone, job = (file.read_text() if file.exists() else "0" for file in files)
    assert a == b
    assert len({a, alone, job, "0"}) == 4
    assert node.number(BESTEFFORT, "cpu.idle") == 1
    node.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "groupIdentity"}, **classes})
    node.pass_time(11)
    assert [file.read_text() for file in files] == ["0"] * 4
    assert node.number(BESTEFFORT, "cpu.idle") == 0
