"""The node agent: CPUs of best-effort pods, of pods with CPUs of their own, and of programs outside of pods.

Figures follow Koordinator's pkg/koordlet; the node is a fake root of 8 CPUs.
"""

import json

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.cpusets import parse_cpuset
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.numa import (
    GROUP_VERSION,
    KUBELET_CPU_MANAGER,
    NODE_TOPOLOGIES_PATH,
    POD_CPU_ALLOCS,
    RESOURCE_STATUS,
    SYSTEM_QOS,
)
from seatrial.scheduler.api.slo import BATCH_CPU
from seatrial.suites.qos.agent import (
    BESTEFFORT,
    GI,
    ROUND,
    SUPPRESS,
    AgentNode,
    StartAgent,
    batch,
    best_effort,
    prod,
    start_agent,
)

__all__ = ["start_agent"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


def tell(trial: Trial, node: AgentNode, **annotations: str) -> None:
    """Write annotations of the node's NodeResourceTopology, and of the node, from which koordlet takes some."""
    path = f"{NODE_TOPOLOGIES_PATH}/{node.name}"
    if trial.call("GET", path).code == 404:
        trial.apply({"apiVersion": GROUP_VERSION, "kind": "NodeResourceTopology", "metadata": {"name": node.name}})
    for each in (f"/api/v1/nodes/{node.name}", path):
        assert trial.call("PATCH", each, {"metadata": {"annotations": annotations}}).ok


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-040", severity="critical")
@pytest.mark.long(seconds=15)
def test_best_effort_pods_give_way(start_agent: StartAgent) -> None:
    """As a prod pod uses more, best-effort pods have fewer CPUs, at once and two at least; as it uses less, more again,
    step by step; a part of the node is theirs if so set, and all when suppression is disabled. Pods and containers have
    the CPUs of their class."""
    node = start_agent()
    node.slo(resourceUsedThresholdWithBE=SUPPRESS)
    service = node.run(prod("service"), cores=1.0)
    job = node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    groups = (BESTEFFORT, job, node.container(job))
    assert [node.cpus(group) for group in groups] == ["0-4"] * 3, "65 % of 8 less 1 are 4.2 cores"

    node.uses(service, 4.5)
    node.pass_time(2)
    assert [node.cpus(group) for group in groups] == ["0-1"] * 3
    node.uses(service, 0.5)
    node.pass_time(2)
    assert node.cpus(BESTEFFORT) in {"0-2", "0-3"}, "at most a tenth of the node is added in a second"
    node.pass_time(4)
    assert node.cpus(BESTEFFORT) == "0-4"
    node.system = 2.0
    node.pass_time(2)
    assert node.cpus(BESTEFFORT) == "0-2", "what the system uses is theirs no more: 5.2 less 0.5 and 2 cores"

    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressMinPercent": 50})
    node.pass_time(3)
    assert node.cpus(BESTEFFORT) == "0-3"

    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": False})
    node.pass_time(3)
    assert [node.cpus(group) for group in groups] == ["0-7"] * 3
    assert node.cpus(service) == "0-7"


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-041", severity="critical")
@pytest.mark.long(seconds=6)
def test_best_effort_pods_give_way_by_quota(start_agent: StartAgent) -> None:
    """With the policy cfsQuota all best-effort pods together have a quota instead, and all CPUs; with the policy cpuset
    again fewer CPUs, and no quota."""
    node = start_agent()
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"})
    service = node.run(prod("service"), cores=2.0)
    node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == pytest.approx(320_000, rel=0.05)
    assert node.cpus(BESTEFFORT) == "0-7"
    node.uses(service, 5.5)
    node.pass_time(2)
    assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == 2_000, "a little is always left"
    assert node.number(service, "cpu.cfs_quota_us") == -1
    for policy, cpus, quota in (("cpuset", "0-1", -1), ("cfsQuota", "0-7", 2_000)):
        node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": policy})
        node.pass_time(3)
        assert parse_cpuset(node.cpus(BESTEFFORT)) == parse_cpuset(cpus)
        assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == quota


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case(
    "CO-165", severity="critical", source="koordinator: pkg/koordlet/qosmanager/plugins/cpusuppress@v1.7.0; spec CS-8"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("enable", [False, True], ids=["switched-off", "by-cpuset"])
def test_a_quota_of_an_agent_before_is_lifted(start_agent: StartAgent, *, enable: bool) -> None:
    """Best-effort pods have a quota that an agent before this one wrote, and the settings by now suppress nothing,
    or by CPUs. Suppression that is switched off for the second time is taken back as well."""
    node = start_agent()
    (node.root.cgroup / "cpu" / BESTEFFORT / "cpu.cfs_quota_us").write_text("50000")
    node.run(prod("service"), cores=4.0)
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": enable})
    node.pass_time(4)
    assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == -1
    for again in (True, False, True, False):
        node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": again})
        node.pass_time(3)
        assert (len(parse_cpuset(node.cpus(BESTEFFORT))) == 8) is not again


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-159", severity="normal", source="spec CS-7")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a hundredth of the node is less than what seconds differ by
def test_small_changes_of_the_quota_are_not_written(start_agent: StartAgent) -> None:
    """A prod pod uses 50 thousandths of a core more, less than a hundredth of the node; then 100 more."""
    node = start_agent()
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"})
    service = node.run(prod("service"), cores=2.0)
    node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    before = node.number(BESTEFFORT, "cpu.cfs_quota_us")
    for cores, after in ((2.05, before), (2.1, before - 10_000)):
        node.uses(service, cores)
        node.pass_time(3)
        assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == pytest.approx(after, abs=500 if after != before else 0)


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-042", severity="normal")
@pytest.mark.long(seconds=23)
def test_exclusive_cpus_stay_exclusive(trial: Trial, start_agent: StartAgent) -> None:
    """The CPUs of an LSE pod, of pods of class SYSTEM, and those that the node reserves, are never given to best-effort
    pods, also by quota and after suppression, until the LSE pod is gone; nor to an LS pod."""
    node = start_agent()
    tell(trial, node, **{SYSTEM_QOS: '{"cpuset": "6"}'})
    reservation = {"node.koordinator.sh/reservation": '{"reservedCPUs": "7"}'}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": reservation}}).ok
    node.slo(resourceUsedThresholdWithBE=SUPPRESS)
    exclusive = prod("exclusive", 2).qos("LSE").annotation(RESOURCE_STATUS, '{"cpuset": "0-1"}')
    node.run(exclusive, cores=0.5)
    node.run(best_effort("job"), cores=1.0)
    service = node.container(node.run(prod("service")))
    node.pass_time(4)
    assert node.cpus(BESTEFFORT) == "2-5"
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"})
    node.pass_time(2)
    assert node.cpus(BESTEFFORT) == "2-5"
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": False})
    node.pass_time(3)
    assert node.cpus(BESTEFFORT) == "2-5"
    trial.delete("exclusive")
    node.pass_time(ROUND)
    assert [node.cpus(group) for group in (BESTEFFORT, service)] == ["0-5"] * 2


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case(
    "CO-099",
    severity="normal",
    source="spec CS-5; koordinator: pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go@v1.7.0",
)
@pytest.mark.long(seconds=8)
def test_best_effort_pods_on_two_numa_nodes(start_agent: StartAgent) -> None:
    """The NUMA node that has most CPUs left gives the first pair, the others give theirs in turn."""
    node = start_agent(numa_nodes=2)
    node.slo(resourceUsedThresholdWithBE=SUPPRESS)
    node.run(prod("exclusive", 2).qos("LSE").annotation(RESOURCE_STATUS, '{"cpuset": "0-1"}'))
    service = node.run(prod("service"), cores=1.5)
    node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    assert node.cpus(BESTEFFORT) == "2-5", "65 % of 8 less 1.5 are 3.7 cores"
    node.uses(service, 4.5)
    node.pass_time(2)
    assert node.cpus(BESTEFFORT) == "4-5"


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case(
    "CO-151",
    severity="normal",
    source="spec CS-4; koordinator: pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go@v1.7.0",
)
@pytest.mark.long(seconds=6)
def test_best_effort_pods_have_their_part_of_cpus_that_are_bound(start_agent: StartAgent) -> None:
    """Of the CPUs that are bound to an LSR pod best-effort pods have the same part as of the others."""
    node = start_agent()
    node.slo(resourceUsedThresholdWithBE=SUPPRESS)
    node.run(prod("bound", 4).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "0-3"}'), cores=1.5)
    node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    assert node.cpus(BESTEFFORT) == "0-1,4-5", "65 % of 8 less 1.5 are 3.7 cores, half of which are bound"


@pytest.mark.feature("QOS-5.group-identity", "QOS-5.share-pool")
@pytest.mark.case("CO-045", severity="critical")
@pytest.mark.long(seconds=13)
def test_programs_outside_of_pods(start_agent: StartAgent) -> None:
    """An LS program has the group identity of its class and the CPUs that are bound to no pod, also among burstable
    pods; a BE program has that of its class."""
    node = start_agent(anolis=True)
    nginx, yarn = node.root.group("host-latency-sensitive/nginx"), node.root.group(f"{BESTEFFORT}/hadoop/yarn")
    daemon = node.root.group("kubepods/burstable/daemon")
    bound = prod("bound", 2).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "0-1"}')
    node.run(bound)
    classes = {"lsClass": 2, "beClass": -1}
    node.slo(
        hostApplications=[
            {"name": "nginx", "priority": "koord-prod", "qos": "LS"},
            {
                "name": "daemon",
                "priority": "koord-prod",
                "qos": "LS",
                "cgroupPath": {"base": "KubepodsBurstable", "relativePath": "daemon"},
            },
            {
                "name": "yarn-task",
                "priority": "koord-batch",
                "qos": "BE",
                "cgroupPath": {"base": "KubepodsBesteffort", "parentDir": "hadoop/", "relativePath": "yarn/"},
            },
        ],
        resourceQOSStrategy={
            "policies": {"cpuPolicy": "groupIdentity"},
            **{name: {"cpuQOS": {"enable": True, "groupIdentity": value}} for name, value in classes.items()},
        },
    )
    node.pass_time(12)
    assert [node.number(group, "cpu.bvt_warp_ns") for group in (nginx, daemon, yarn)] == [2, 2, -1]
    assert [parse_cpuset(node.cpus(group)) for group in (nginx, daemon)] == [set(range(2, 8))] * 2


@pytest.mark.feature("CPU-1.node-agent")
@pytest.mark.case(
    "CO-097",
    severity="critical",
    source="spec HK-5, NUMA-R67; koordinator: pkg/koordlet/runtimehooks/hooks/cpuset/rule.go@v1.7.0",
)
@pytest.mark.long(seconds=37)
def test_pods_run_on_their_own_cpus_and_on_those_that_are_left(trial: Trial, start_agent: StartAgent) -> None:
    """A pod runs on the CPUs that are bound to it. Pods of class LS and of none run on those that are
    bound to no pod, on more when CPUs are given back, and best-effort pods where suppression lets them."""
    node = start_agent()
    tell(trial, node)
    node.slo()
    bound = prod("bound", 2).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "2-3"}')
    own, job = node.run(bound), node.run(best_effort("job"))
    others = [node.run(prod("service")), node.run(pod("plain").request(cpu=1))]
    node.pass_time(ROUND)
    assert node.cpus(node.container(own)) == "2-3"
    assert [node.cpus(node.container(each)) for each in others] == ["0-1,4-7"] * 2
    assert node.cpus(node.container(job)) == "0-7"

    late = prod("late", 1).qos("LSE").annotation(RESOURCE_STATUS, '{"cpuset": "7"}')
    own = node.run(late)
    node.pass_time(ROUND)
    assert node.cpus(node.container(own)) == "7"
    assert [node.cpus(node.container(each)) for each in others] == ["0-1,4-6"] * 2
    trial.delete("bound")
    node.pass_time(ROUND)
    assert [node.cpus(node.container(each)) for each in others] == ["0-6"] * 2


@pytest.mark.feature("CPU-1.node-agent")
@pytest.mark.case(
    "CO-150",
    severity="normal",
    source="spec HK-5, NUMA-R67; koordinator: pkg/koordlet/runtimehooks/hooks/cpuset/rule.go@v1.7.0",
)
@pytest.mark.long(seconds=27)
def test_pods_run_on_their_numa_node_and_on_the_cpus_of_the_system(trial: Trial, start_agent: StartAgent) -> None:
    """Pods of class SYSTEM run on the CPUs of the system, which other pods share unless they are exclusive. Pods that
    are given a NUMA node run on what is left of it, but for best-effort pods."""
    node = start_agent(numa_nodes=2)
    node.slo()
    node.run(prod("bound", 1).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "5"}'))

    def on_second(resource: str) -> str:
        return json.dumps({"numaNodeResources": [{"node": 1, "resources": {resource: "1"}}]})

    groups = {
        "system": node.run(pod("system").request(cpu=1).qos("SYSTEM")),
        "shares": node.run(prod("shares")),
        "near": node.run(prod("near").annotation(RESOURCE_STATUS, on_second("cpu"))),
        "job": node.run(best_effort("job").annotation(RESOURCE_STATUS, on_second(BATCH_CPU))),
    }
    shared, whole = {0, 1, 2, 3, 4, 6, 7}, set(range(8))
    for exclusive, taken in ((False, set[int]()), (True, {6, 7})):
        tell(trial, node, **{SYSTEM_QOS: json.dumps({"cpuset": "6-7", "cpusetExclusive": exclusive})})
        node.pass_time(ROUND)
        assert {name: set(parse_cpuset(node.cpus(node.container(group)))) for name, group in groups.items()} == {
            "system": {6, 7},
            "shares": shared - taken,
            "near": {4, 6, 7} - taken,
            "job": whole - taken,
        }


@pytest.mark.feature("CPU-1.node-agent")
@pytest.mark.case(
    "CO-153",
    severity="normal",
    source="ours: spec HK-5: the policy of kubelet is what the topology says; koordlet writes it there itself",
)
@pytest.mark.long(seconds=14)
def test_pods_without_a_class_stay_where_a_kubelet_binds_cpus(trial: Trial, start_agent: StartAgent) -> None:
    """Those of class LS run on the CPUs that are left, also by kubelet."""
    node = start_agent()
    allocs = '[{"cpuset": "6", "managedByKubelet": true}, {"cpuset": "7"}]'
    tell(trial, node, **{KUBELET_CPU_MANAGER: '{"policy": "static"}', POD_CPU_ALLOCS: allocs})
    node.slo()
    node.run(prod("bound", 1).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "5"}'))
    groups = [node.run(prod("shares")), node.run(pod("plain").request(cpu=1))]
    node.pass_time(ROUND)
    assert [node.cpus(node.container(group)) for group in groups] == ["0-4,7", "0-7"]


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-049", severity="critical")
@pytest.mark.long(seconds=13)
@pytest.mark.parametrize(
    ("quota", "systemd"), [("cpuset", False), ("cfsQuota", False), ("cpuset", True)], ids=["cpuset", "quota", "systemd"]
)
def test_limits_of_batch_pods(start_agent: StartAgent, quota: str, *, systemd: bool) -> None:
    """A batch pod and its container get shares of what they request, quota and memory of their limits; its own quota is
    lifted where suppression is by quota. So it is by both of kubelet's drivers of control groups."""
    node = start_agent(systemd=systemd)
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": quota})
    job = node.run(batch("job", 500, limit=1000))
    node.pass_time(12)
    for group in (job, node.container(job)):
        assert node.number(group, "cpu.shares") == 512
        assert node.number(group, "cpu.cfs_quota_us") == (100_000 if quota == "cpuset" else -1)
        assert node.number(group, "memory.limit_in_bytes", "memory") == GI
    assert (node.cpus(node.root.of_class("besteffort")) == "0-7") == (quota == "cfsQuota")


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case(
    "CO-130",
    severity="critical",
    source="spec HK-7; koordinator: pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go@v1.7.0",
)
@pytest.mark.long(seconds=13)
def test_limits_of_a_batch_pod_with_several_containers(start_agent: StartAgent) -> None:
    """Each container has what it requests and its own limits, and the pod the sums: no quota if one of them has none. A
    container of which the annotation says nothing keeps what it has, and little is the least that the kernel takes."""
    node = start_agent()
    cpu, size = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
    of = {
        "main": {"requests": {cpu: "500", size: "1Gi"}, "limits": {cpu: "1000", size: "1Gi"}},
        "free": {"requests": {cpu: "250", size: "2Gi"}, "limits": {size: "2Gi"}},
    }
    several = best_effort("several").annotation(EXTENDED_RESOURCE_SPEC, json.dumps({"containers": of}))
    several.manifest["spec"]["containers"] += [{"name": name, "image": "i"} for name in ("free", "other")]
    pod, little = node.run(several), node.run(batch("little", 1, limit=5))
    before = [node.number(node.containers(pod)[2], f"cpu.{name}") for name in ("shares", "cfs_quota_us")]
    node.slo(resourceUsedThresholdWithBE={"enable": False})
    node.pass_time(ROUND)

    def written(group: str) -> tuple[int, int, int]:
        limit = node.number(group, "memory.limit_in_bytes", "memory")
        return node.number(group, "cpu.shares"), node.number(group, "cpu.cfs_quota_us"), limit // GI

    main, free, other = node.containers(pod)
    assert [written(group) for group in (pod, main, free)] == [(768, -1, 3), (512, 100_000, 1), (256, -1, 2)]
    assert [node.number(other, f"cpu.{name}") for name in ("shares", "cfs_quota_us")] == before
    assert written(little)[:2] == (2, 1000)


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-131", severity="critical", source="spec CS-2")
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(("system", "quota"), [(1.0, 250_000), (3.0, 150_000)], ids=["reserved", "system"])
def test_what_counts_besides_pods(trial: Trial, start_agent: StartAgent, system: float, quota: int) -> None:
    """65 % of 8 cores, less 0.2 of a pod, 0.5 of a program that is not among best-effort pods, and what the system
    uses, or the two CPUs that are reserved if they are more. A program among best-effort pods does not count."""
    node = start_agent()
    reservation = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0-1"}'}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": reservation}}).ok
    inside = {"base": "KubepodsBesteffort", "relativePath": "inside"}
    programs = [{"name": "inside", "qos": "BE", "cgroupPath": inside}, {"name": "outside", "qos": "BE"}]
    for folder in (f"{BESTEFFORT}/inside", "host-best-effort/outside"):
        node.uses(node.root.group(folder), 0.5)
    node.run(prod("service"), cores=0.2)
    node.run(best_effort("job"), cores=1.0)
    node.system = system
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"}, hostApplications=programs)

    node.pass_time(8)

    assert node.number(BESTEFFORT, "cpu.cfs_quota_us") == pytest.approx(quota, rel=0.04)
