"""The node agent: best-effort pods give way, bursts, evictions, classes of programs and pods, cold memory.

Figures follow Koordinator's pkg/koordlet; the node is a fake root of 8 CPUs.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import exact
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.numa import (
    GROUP_VERSION,
    NODE_TOPOLOGIES_PATH,
    PRIORITY_CLASS_LABEL,
    RESOURCE_STATUS,
    SYSTEM_QOS,
)
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.qos.agent import GI, ROUND, AgentNode, agent_node
from seatrial.suites.qos.colocation import WITHIN

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

StartAgent = Callable[..., AgentNode]
BESTEFFORT = "kubepods/besteffort"
SUPPRESS = {"enable": True, "cpuSuppressThresholdPercent": 65}


@pytest.fixture
def start_agent(request: pytest.FixtureRequest, trial: Trial, expect: Expect) -> Iterator[StartAgent]:
    """Starts a node with its agent; the names of features switch them on."""
    foreign = request.config.getoption("--seatrial-agent")
    if request.config.getoption("--seatrial-manager") and not foreign:
        pytest.skip("judges the node agent")
    with ExitStack() as running:
        yield lambda *gates, **more: running.enter_context(agent_node(trial, expect, *gates, foreign=foreign, **more))


def announced(file: str, kind: str, name: str = "") -> dict[str, Any]:
    """An object in a manifest of a release post."""
    path = suites_folder() / "manifests" / file
    document: dict[str, Any] = next(
        each
        for each in yaml.safe_load_all(path.read_bytes())
        if each["kind"] == kind and name in {"", each["metadata"]["name"]}
    )
    return document


def prod(name: str, cpu: int = 1) -> PodBuilder:
    return pod(name).request(cpu=cpu).qos("LS").label(PRIORITY_CLASS_LABEL, "koord-prod")


def best_effort(name: str) -> PodBuilder:
    return pod(name).qos("BE").label(PRIORITY_CLASS_LABEL, "koord-batch")


def batch(name: str, cpu: int) -> PodBuilder:
    """A pod that requests thousandths of a core by its annotation alone: this node offers none."""
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": "1Gi"}
    spec = {"containers": {"main": {"requests": amounts, "limits": amounts}}}
    return best_effort(name).annotation(EXTENDED_RESOURCE_SPEC, json.dumps(spec))


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-040", severity="critical")
@pytest.mark.long(seconds=15)
def test_best_effort_pods_give_way(start_agent: StartAgent) -> None:
    """As a prod pod uses more, best-effort pods have fewer CPUs, at once and two at least; as it uses less, more again,
    step by step; and all when suppression is disabled. Pods and containers have the CPUs of their class."""
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

    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": False})
    node.pass_time(3)
    assert [node.cpus(group) for group in groups] == ["0-7"] * 3
    assert node.cpus(service) == "0-7"


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-041", severity="critical")
@pytest.mark.long(seconds=6)
def test_best_effort_pods_give_way_by_quota(start_agent: StartAgent) -> None:
    """With the policy cfsQuota all best-effort pods together have a quota instead, and all CPUs."""
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


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-042", severity="normal")
@pytest.mark.long(seconds=14)
def test_exclusive_cpus_stay_exclusive(trial: Trial, start_agent: StartAgent) -> None:
    """The CPUs of an LSE pod, of pods of class SYSTEM, and those that the node reserves, are never given to best-effort
    pods, also by quota and after suppression, until the LSE pod is gone."""
    node = start_agent()
    system = {"metadata": {"annotations": {SYSTEM_QOS: '{"cpuset": "6"}'}}}  # koordlet takes it from the node
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", system).ok
    reservation = {"node.koordinator.sh/reservation": '{"reservedCPUs": "7"}'}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": reservation}}).ok
    if trial.call("GET", f"{NODE_TOPOLOGIES_PATH}/{node.name}").code == 404:
        trial.apply({"apiVersion": GROUP_VERSION, "kind": "NodeResourceTopology", "metadata": {"name": node.name}})
    assert trial.call("PATCH", f"{NODE_TOPOLOGIES_PATH}/{node.name}", system).ok
    node.slo(resourceUsedThresholdWithBE=SUPPRESS)
    exclusive = prod("exclusive", 2).qos("LSE").annotation(RESOURCE_STATUS, '{"cpuset": "0-1"}')
    node.run(exclusive, cores=0.5)
    node.run(best_effort("job"), cores=1.0)
    node.pass_time(4)
    assert node.cpus(BESTEFFORT) == "2-5"
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": "cfsQuota"})
    node.pass_time(2)
    assert node.cpus(BESTEFFORT) == "2-5"
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "enable": False})
    node.pass_time(3)
    assert node.cpus(BESTEFFORT) == "2-5"
    trial.delete("exclusive")
    node.pass_time(3)
    assert node.cpus(BESTEFFORT) == "0-5"


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


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-043", severity="critical")
@pytest.mark.long(seconds=8)
def test_memory_that_runs_short(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """When the node uses 75 % of its memory, the best-effort pod that has most is evicted, with an event that says why;
    prod pods stay however much they have, and so does a best-effort pod whose policy forbids it."""
    node = start_agent("BEMemoryEvict")
    node.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 75})
    node.run(prod("service"), memory=7 * GI)
    spared = best_effort("spared").annotation("koordinator.sh/eviction-policy", '["BECPUEvict"]')
    node.run(spared, memory=2 * GI)
    node.run(best_effort("small"), memory=GI)
    large = node.run(best_effort("large"), memory=GI)
    node.pass_time(2)
    assert {pod.metadata.name for pod in trial.pods()} == {"service", "spared", "small", "large"}

    node.uses(large, 0.0, 2 * GI)
    node.pass_time(2)

    assert trial.reaches(lambda: ended(trial, "large"), within=WITHIN), "expected pod 'large' to be evicted"
    node.uses(large, 0.0, 0)
    node.pass_time(3)
    for name in ("service", "spared", "small"):
        expect.running(name)
    assert any("kill pod: large" in event.message for event in trial.events("large")), "expected an event that says why"


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-052", severity="critical")
@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("policy", ["evictByRealLimit", "evictByAllocatable"])
def test_pods_that_get_too_little(trial: Trial, expect: Expect, start_agent: StartAgent, policy: str) -> None:
    """Best-effort pods that use what they can get and get less than half of what they request: one goes, of the lowest
    priority; by evictByAllocatable, what they can get is what the node offers, not what its CPUs are, and the other
    goes as well when it offers nothing."""
    node = start_agent("BECPUEvict")
    amounts = {"kubernetes.io/batch-cpu": "20000", "kubernetes.io/batch-memory": "8Gi"}
    offer = {"status": {"capacity": amounts, "allocatable": amounts}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}/status", offer).ok
    lines = {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 60}
    groups = []
    for name, priority in (("first", 5900), ("second", 5100)):
        builder = best_effort(name).resources({"kubernetes.io/batch-cpu": 10000, "kubernetes.io/batch-memory": "1Gi"})
        value = priority_class(trial, priority)
        groups.append(node.run(builder.priority_class(value), cores=1.0))
    node.slo(
        resourceUsedThresholdWithBE={
            "enable": True,
            "cpuSuppressThresholdPercent": 100,
            **lines,
            "cpuEvictTimeWindowSeconds": 6,
            "cpuEvictPolicy": policy,
        }
    )

    node.pass_time(6)
    assert not ended(trial, "second"), "they use a quarter of what they can get"
    for group in groups:
        node.uses(group, 3.9)
    node.pass_time(7)

    if policy == "evictByRealLimit":
        assert trial.reaches(lambda: ended(trial, "second"), within=WITHIN), "expected pod 'second' to be evicted"
        expect.running("first")
    else:
        assert not ended(trial, "second"), "they can get all that they request of what the node offers"
        for name, amount, seconds in (("second", "8000", 4), ("first", "0", 22)):
            less = {"kubernetes.io/batch-cpu": amount}
            lower = {"status": {"capacity": less, "allocatable": less}}
            assert trial.call("PATCH", f"/api/v1/nodes/{node.name}/status", lower).ok
            node.pass_time(seconds)
            assert trial.reaches(lambda: ended(trial, name), within=WITHIN), f"expected pod {name!r} to be evicted"  # noqa: B023


def evictable(name: str, priority: str) -> PodBuilder:
    """A batch pod that may be evicted for all features."""
    return best_effort(name).label("koordinator.sh/eviction-enabled", "true").priority_class(priority)


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-053", severity="critical", source="v1.7 NodeSLO: cpuEvictThresholdPercent; spec EV-1, EV-5, EV-8")
@pytest.mark.long(seconds=30)
def test_a_node_that_uses_too_much_cpu(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Of 8 cores 7.2 are used, 80 % may be: of the pods with the label eviction-enabled and a priority of at most the
    threshold, that of the lowest priority goes, although another uses more; pods without the label stay, and so do
    those above the threshold, whatever their annotation eviction-priority. The next one goes 20 s later."""
    node = start_agent("CPUEvict")
    lowest, low, high = (priority_class(trial, value) for value in (5000, 5100, 5900))
    service = prod("service").label("koordinator.sh/eviction-enabled", "true")
    node.run(service.annotation("koordinator.sh/eviction-priority", "-1"), cores=2.0)
    node.run(best_effort("plain").priority_class(lowest), cores=2.0)
    node.run(evictable("larger", high), cores=2.0)
    node.run(evictable("lower", low), cores=1.2)
    slo = {"enable": True, "cpuSuppressThresholdPercent": 100, "cpuEvictThresholdPercent": 80}
    slo["cpuEvictTimeWindowSeconds"] = 2
    node.slo(resourceUsedThresholdWithBE=slo)
    node.pass_time(4)
    assert not ended(trial, "lower"), "without a threshold of priorities nobody is evicted"

    node.slo(resourceUsedThresholdWithBE={**slo, "evictEnabledPriorityThreshold": 5999})
    node.pass_time(3)

    assert trial.reaches(lambda: ended(trial, "lower"), within=WITHIN), "expected pod 'lower' to be evicted"
    node.pass_time(12)
    for name in ("service", "plain", "larger"):
        expect.running(name)
    assert any("kill pod: lower" in event.message for event in trial.events("lower")), "expected an event that says why"
    node.pass_time(10)
    assert trial.reaches(lambda: ended(trial, "larger"), within=WITHIN), "expected 'larger' to follow after 20 s"
    for name in ("service", "plain"):
        expect.running(name)


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-054", severity="critical", source="v1.7 NodeSLO: memoryAllocatableEvict…; spec EV-7, EV-10")
@pytest.mark.long(seconds=10)
def test_a_node_that_offers_less_than_is_requested(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Batch pods request 6 and 2 GiB of 10 GiB; then the node offers 8 GiB, of which 80 % may be requested: the larger
    pod goes, and no other while it leaves. A threshold that prod pods are below evicts nobody."""
    node = start_agent("MemoryAllocatableEvict")

    def offer(size: int) -> None:
        amounts = {"kubernetes.io/batch-memory": str(size * GI), "kubernetes.io/batch-cpu": "8000"}
        assert trial.call(
            "PATCH", f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": amounts, "allocatable": amounts}}
        ).ok

    offer(10)
    batch_class = priority_class(trial, 5500)
    for name, size in (("small", 2), ("large", 6)):
        builder = evictable(name, batch_class)
        builder.resources({"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": f"{size}Gi"})
        node.run(builder, cores=0.1, memory=GI)
    metadata = {"metadata": {"finalizers": ["example.com/stays"]}}
    assert trial.call("PATCH", trial.path("Pod", "large"), metadata).ok
    lines = {"memoryAllocatableEvictThresholdPercent": 80, "memoryAllocatableEvictLowerPercent": 75}
    slo = {"enable": True, "allocatableEvictPriorityThreshold": 9000, **lines}
    node.slo(resourceUsedThresholdWithBE=slo)
    offer(8)
    node.pass_time(3)
    assert not ended(trial, "large"), "prod pods must not be killed"
    node.slo(resourceUsedThresholdWithBE={**slo, "allocatableEvictPriorityThreshold": 5999})
    node.pass_time(3)
    assert trial.reaches(lambda: ended(trial, "large"), within=WITHIN), "expected pod 'large' to be evicted"
    node.pass_time(6)
    expect.running("small")
    assert trial.call("PATCH", trial.path("Pod", "large"), {"metadata": {"finalizers": None}}).ok


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-055", severity="normal", source="spec EV-11: evictions go through the eviction API")
@pytest.mark.long(seconds=8)
def test_a_budget_that_refuses(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """A PodDisruptionBudget refuses the eviction of the pod that has most memory: the next one is evicted."""
    node = start_agent("BEMemoryEvict")
    node.run(best_effort("guarded").label("guard", "yes"), memory=8 * GI)
    node.run(best_effort("other"), memory=5 * GI)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
    trial.apply({**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guard": "yes"}}}})
    node.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 80})
    node.pass_time(5)
    assert trial.reaches(lambda: ended(trial, "other"), within=WITHIN), "expected pod 'other' to be evicted"
    expect.running("guarded")


def priority_class(trial: Trial, value: int) -> str:
    name = f"{trial.name}-{value}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    trial.apply({**kind, "value": value})
    return name


def ended(trial: Trial, name: str) -> bool:
    pod = trial.find(name)
    return pod is None or pod.metadata.deletion_timestamp is not None


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
    for container in containers:
        (node.root.cgroup / "cpu" / container / "cpu.cfs_quota_us").write_text("100000")
        (node.root.cgroup / "cpu" / container / "cpu.cfs_burst_us").write_text("0")
        node.throttles(container, 10, 5)
    node.pass_time(7)
    assert [node.number(each, "cpu.cfs_quota_us") for each in containers] == [150_000, 100_000]
    assert [node.number(each, "cpu.cfs_burst_us") for each in containers] == [200_000, 0]
    node.system = 1.2
    node.pass_time(7)
    assert node.number(containers[0], "cpu.cfs_quota_us") == 100_000, "2.2 of 4 cores are more than half"


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case(
    "CO-101",
    severity="normal",
    source="spec CB-7; koordinator: pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go@v1.7.0",
)
@pytest.mark.long(seconds=40)
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
    node.uses(service, 0.1)
    node.pass_time(12)
    assert node.number(container, "cpu.cfs_quota_us") == 150_000, "200 % seconds are saved in 3 s"


@pytest.mark.feature("QOS-5.group-identity", "QOS-5.share-pool")
@pytest.mark.case("CO-045", severity="critical")
@pytest.mark.long(seconds=13)
def test_programs_outside_of_pods(start_agent: StartAgent) -> None:
    """An LS program has the group identity of its class and the CPUs that are bound to no pod; a BE program has that of
    its class."""
    node = start_agent(anolis=True)
    nginx, yarn = node.root.group("host-latency-sensitive/nginx"), node.root.group(f"{BESTEFFORT}/hadoop/yarn")
    bound = prod("bound", 2).qos("LSR").annotation(RESOURCE_STATUS, '{"cpuset": "0-1"}')
    node.run(bound)
    classes = {"lsClass": 2, "beClass": -1}
    node.slo(
        hostApplications=[
            {"name": "nginx", "priority": "koord-prod", "qos": "LS"},
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
    assert [node.number(group, "cpu.bvt_warp_ns") for group in (nginx, yarn)] == [2, -1]
    assert node.cpus(nginx) == "2-7"


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
    if trial.call("GET", f"{NODE_TOPOLOGIES_PATH}/{node.name}").code == 404:
        trial.apply({"apiVersion": GROUP_VERSION, "kind": "NodeResourceTopology", "metadata": {"name": node.name}})
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


@pytest.mark.feature("QOS-4.collectors")
@pytest.mark.case("CO-088", severity="critical", source="spec KM-6, KM-7, RP-3")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=60)
def test_the_use_of_each_pod_and_program_is_reported(trial: Trial, start_agent: StartAgent) -> None:
    """Each of two pods, and of two programs outside of pods; and the peaks of the node and of what is in no pod, but
    not those of a duration of which less than half is known."""
    node = start_agent()
    programs, pods = {"nginx": 1.5, "proxy": 0.5}, {"api": 1.0, "web": 2.0}
    for name, used in programs.items():
        node.uses(node.root.group(f"host-latency-sensitive/{name}"), used, GI)
    for name, used in pods.items():
        node.run(prod(name), cores=used, memory=GI)
    node.slo(hostApplications=[{"name": name, "priority": "koord-prod", "qos": "LS"} for name in programs])
    policy = {
        "aggregateDurationSeconds": 30,
        "reportIntervalSeconds": 30,
        "nodeAggregatePolicy": {"durations": ["30s", "600s"]},
    }
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply({**kind, "spec": {"metricCollectPolicy": policy}})
    node.system = 0.5
    trial.inject({"node": node.name, "verb": "frozen", "for": 60})  # else its own report would be in the agent's
    expected = {**pods, **programs, "node": 5.5, "system": 0.5}
    figures: dict[str, float] = {}
    for _ in range(60):
        node.pass_time(1)
        status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
        figures = {
            **{each["name"]: cores(each["podUsage"]) for each in status.get("podsMetric") or []},
            **{each["name"]: cores(each["usage"]) for each in status.get("hostApplicationMetric") or []},
            "node": peak(status, "aggregatedNodeUsages"),
            "system": peak(status, "aggregatedSystemUsages"),
        }
        if figures == pytest.approx(expected, rel=0.2):  # in real time seconds are not all alike
            long = [status["nodeMetric"][f"aggregated{kind}Usages"][1]["usage"] for kind in ("Node", "System")]
            assert not any(long), f"expected nothing of ten minutes, of which less than five are known, found {long}"
            return
    raise AssertionError(f"expected cores {expected}, found {figures}")


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("CO-111", severity="normal", source="spec RP-1")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=520)
def test_the_use_of_a_pod_over_the_time_of_the_policy(trial: Trial, start_agent: StartAgent) -> None:
    """The policy asks for ten minutes, after the agent has started with another one: in them a pod has used one core
    for four minutes and three for four minutes, and two are reported."""
    node = start_agent()
    service = node.run(prod("service"), cores=1.0, memory=GI)
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply(
        {**kind, "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}}}
    )
    node.pass_time(2)
    policy = {"spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 600}}}
    assert trial.call("PATCH", f"{NODE_METRICS_PATH}/{node.name}", policy).ok
    trial.inject({"node": node.name, "verb": "frozen", "for": 600})
    for used in (1.0, 3.0):
        node.uses(service, used, GI)
        node.pass_time(240)

    def average() -> float:
        status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
        return next((cores(each["podUsage"]) for each in status.get("podsMetric") or []), 0.0)

    assert average() == pytest.approx(2.0, rel=0.1)


@pytest.mark.feature("QOS-1.numa")
@pytest.mark.case(
    "CO-098", severity="normal", source="ours: spec KM-1, KM-2, KM-8, which no release of koordlet has yet"
)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=60)
def test_the_use_of_each_numa_node_is_reported(trial: Trial, start_agent: StartAgent) -> None:
    """Of a node with two NUMA nodes of which pods and the system use equal parts: each has half of what the node uses,
    half of the system's CPU, and its memory less that of pods."""
    node = start_agent(numa_nodes=2)
    node.slo()
    node.run(prod("service"), cores=3.0, memory=4 * GI)
    policy = {"reportIntervalSeconds": 30, "aggregateDurationSeconds": 30}
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply({**kind, "spec": {"metricCollectPolicy": policy}})
    node.system = 1.0
    trial.inject({"node": node.name, "verb": "frozen", "for": 120})  # else its own report would be in the agent's
    expected = {(number, name): cpu for number in (0, 1) for name, cpu in (("nodeUsage", 2.0), ("systemUsage", 0.5))}
    usages: dict[tuple[int, str], dict[str, Any]] = {}
    for _ in range(100):
        node.pass_time(1)
        status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
        zones = status.get("nodeMetric", {}).get("numaUsages") or []
        usages = {(each["numaNodeID"], name): each[name] for each in zones for name in each if name != "numaNodeID"}
        if {key: cores(usage) for key, usage in usages.items()} == pytest.approx(expected, rel=0.2):
            break
    assert usages.keys() == expected.keys(), f"expected the use of two NUMA nodes, found {usages}"
    assert {key: cores(usage) for key, usage in usages.items()} == pytest.approx(expected, rel=0.2)
    assert [memory(usages[number, "nodeUsage"]) for number in (0, 1)] == [pytest.approx(2 * GI, rel=0.05)] * 2
    assert max(memory(usages[number, "systemUsage"]) for number in (0, 1)) < GI / 10


def memory(usage: dict[str, Any]) -> float:
    return float(exact(usage["resources"]["memory"]))


def cores(usage: dict[str, Any]) -> float:
    return float(exact(usage["resources"]["cpu"]))


def peak(status: dict[str, Any], name: str) -> float:
    """The 99th percentile of the only duration; 0 while there is none."""
    rows = (status.get("nodeMetric") or {}).get(name) or []
    usages = rows[0].get("usage") or {} if rows else {}
    return cores(usages["p99"]) if "p99" in usages else 0.0


@pytest.mark.feature("QOS-4.collectors")
@pytest.mark.case(
    "CO-103",
    severity="normal",
    source="spec PR-7 to PR-9, RP-4; koordinator: pkg/koordlet/prediction/peak_predictor.go@v1.7.0",
)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=260)
def test_what_prod_pods_will_not_use(trial: Trial, start_agent: StartAgent) -> None:
    """Of the 4 cores of a pod that is two days old and uses 1, what its peak and a margin leave can be taken, and
    nothing of a pod that is younger than a day; at most what the node has beside them, without amplification."""
    node = start_agent()
    node.slo()
    node.run(prod("old", 4), cores=1.0, memory=GI)
    node.run(prod("young", 2), cores=0.5, memory=GI)
    since = {"status": {"startTime": rfc3339(trial.cluster.clock.now() - 2 * 86400)}}
    assert trial.call("PATCH", f"{trial.path('Pod', 'old')}/status", since).ok
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply(
        {**kind, "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30, "aggregateDurationSeconds": 60}}}
    )
    trial.inject({"node": node.name, "verb": "frozen", "for": 400})  # else its own report would be in the agent's
    node.pass_time(130)
    assert reclaimable(trial, node) == pytest.approx(2.84, rel=0.05), "4 less 1.1 times the end of the bucket of 1 core"
    raw = {"metadata": {"annotations": {"node.koordinator.sh/raw-allocatable": '{"cpu": "5"}'}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", raw).ok
    node.pass_time(60)
    assert reclaimable(trial, node) == pytest.approx(1.84, rel=0.05), "5 less 1.16 of the one and 2 of the other"


def reclaimable(trial: Trial, node: AgentNode) -> float:
    """The cores in the report that prod pods have requested and will not use."""
    status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
    return cores(status["prodReclaimableMetric"]["resource"])


@pytest.mark.feature("QOS-6.cpu-qos")
@pytest.mark.case("CO-046", severity="normal")
@pytest.mark.long(seconds=86)
def test_the_identity_of_one_pod(start_agent: StartAgent) -> None:
    """A pod's annotation cpuQOS goes before its class. Without `enable`, as in the announcement, it is disabled. A
    value of another writer is corrected after a minute."""
    node = start_agent(anolis=True)
    strategy = {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}}
    node.slo(resourceQOSStrategy=strategy)
    own = {"plain": "", "own": '{"enable": true, "groupIdentity": 1}', "announced": '{"groupIdentity": 1}'}
    groups = {}
    for name, text in own.items():
        builder = prod(name)
        groups[name] = node.run(builder.annotation("koordinator.sh/cpuQOS", text) if text else builder)
    node.pass_time(12)
    expected = {"plain": 2, "own": 1, "announced": 0}
    assert {name: node.number(group, "cpu.bvt_warp_ns") for name, group in groups.items()} == expected
    (node.root.cgroup / "cpu" / groups["own"] / "cpu.bvt_warp_ns").write_text("-1")  # by another writer
    node.pass_time(72)
    assert {name: node.number(group, "cpu.bvt_warp_ns") for name, group in groups.items()} == expected


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
    own = prod("own").annotation("node.koordinator.sh/resctrl", '{"llc": {"schemata": {"range": [0, 30]}}}')
    service = node.run(own)
    parts = {"llc": {"schemataPerCache": [{"cacheID": 0, "range": [0, 30]}]}, "mb": {"schemata": {"percent": 20}}}
    partial = node.run(prod("partial").annotation("node.koordinator.sh/resctrl", json.dumps(parts)))
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
    assert (words(f"koordlet-{uid}/schemata"), words(f"koordlet-{uid}/tasks")) == (["L3:0=7;1=7;"], ["13"])
    partial_uid = partial.rpartition("/pod")[2]
    assert words(f"koordlet-{partial_uid}/schemata") == ["MB:0=20;1=20;"], "the annotation has ways of one cache alone"

    (node.root.cgroup / "cpu" / node.container(job) / "tasks").write_text("11\n14")
    node.slo(resourceQOSStrategy={"beClass": {"resctrlQOS": {**block["resctrlQOS"], "catRangeEndPercent": 80}}})
    trial.delete("own")
    node.pass_time(11)
    assert words("BE/schemata") == ["L3:0=ff;1=ff;", "MB:0=50;1=50;"]
    assert sorted(words("BE/tasks")) == ["11", "12", "14"]
    assert not (node.root.resctrl / f"koordlet-{uid}").exists(), "expected the group to go with its pod"


@pytest.mark.feature("QOS-4.strategies", "QOS-4.collectors", "QOS-4.manifest-cold-memory")
@pytest.mark.case("CO-048", severity="critical")
@pytest.mark.long(seconds=100)
@pytest.mark.parametrize(
    ("policy", "size"), [("usageWithoutPageCache", 4), ("usageWithPageCache", 6), ("usageWithHotPageCache", 5)]
)
def test_three_ways_to_count_memory(trial: Trial, start_agent: StartAgent, policy: str, size: int) -> None:
    """Of 6 GiB that a node uses, two are page cache, and one of these nobody has touched for minutes (kidled)."""
    node = start_agent("ColdPageCollector", anolis=True)
    node.root.idle_pages(GI)
    node.root.page_cache = 2 * GI
    spec = announced("v1.4/cold-memory.yaml", "NodeMetric")["spec"]
    spec["metricCollectPolicy"] |= {"reportIntervalSeconds": 30, "aggregateDurationSeconds": 60}
    spec["metricCollectPolicy"]["nodeMemoryCollectPolicy"] = policy
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply({**kind, "spec": spec})
    node.run(prod("service"), memory=4 * GI)
    value = 0
    for _ in range(110):  # the simulated node reports beside the agent, and knows nothing of the fake root
        node.pass_time(1)
        status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
        usage = (status.get("nodeMetric") or {}).get("nodeUsage") or {}
        value = int(usage.get("resources", {}).get("memory", "0").replace("Gi", "") or 0) if usage else 0
        if value in (size, pytest.approx(size * GI, rel=0.05)):  # the mean begins before the pod
            return
    raise AssertionError(f"expected a report of {size}Gi with {policy}, found {value}")


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-049", severity="critical")
@pytest.mark.long(seconds=13)
@pytest.mark.parametrize("quota", ["cpuset", "cfsQuota"])
def test_limits_of_batch_pods(start_agent: StartAgent, quota: str) -> None:
    """A batch pod and its container get shares, quota and memory of its batch resources; its own quota is lifted where
    suppression is by quota."""
    node = start_agent()
    node.slo(resourceUsedThresholdWithBE={**SUPPRESS, "cpuSuppressPolicy": quota})
    job = node.run(batch("job", 500))
    node.pass_time(12)
    for group in (job, node.container(job)):
        assert node.number(group, "cpu.shares") == 512
        assert node.number(group, "cpu.cfs_quota_us") == (50_000 if quota == "cpuset" else -1)
        assert node.number(group, "memory.limit_in_bytes", "memory") == GI


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
    request and limit it is throttled. A pod whose annotation says `none` has neither; and when the class is disabled,
    all is neutral again."""
    node = start_agent("CgroupReconcile", anolis=True)
    pods = [prod(name).resources({"memory": "2Gi"}).limits({"memory": "4Gi"}) for name in ("service", "own")]
    pods[1].annotation("koordinator.sh/memoryQOS", '{"policy": "none"}')
    service, own = (node.run(each) for each in pods)
    enabled = {"enable": True, "minLimitPercent": 50, "throttlingPercent": 80}
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": enabled}})
    node.pass_time(12)
    groups = (service, node.container(service), "kubepods/burstable", "kubepods")
    assert [node.number(group, "memory.min", "memory") for group in groups] == [GI] * 4
    assert node.number(node.container(service), "memory.high", "memory") == 3865468928, "2 GiB and 80 % of 2 GiB"
    assert node.number(service, "memory.wmark_ratio", "memory") == 95
    assert [node.number(own, f"memory.{name}", "memory") for name in ("min", "wmark_ratio")] == [0, 0]

    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {**enabled, "enable": False}}})
    node.pass_time(11)
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
    node.run(pod("same").qos("LSR").label(PRIORITY_CLASS_LABEL, "koord-prod").resources({"cpu": "1", "memory": "1Gi"}))
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
    assert amounts("kubepods", "min", "low") == (5 * GI // 2, 15 * GI // 4)


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-102", severity="normal", source="koordlet CgroupReconcile; spec CG-2, CG-3, CG-6")
@pytest.mark.long(seconds=14)
def test_memory_without_a_limit(trial: Trial, start_agent: StartAgent) -> None:
    """A container without a limit is throttled as if it were what the node offers, not what the machine has. What is
    protected is at least the minimum."""
    node = start_agent("CgroupReconcile", anolis=True)
    amounts = {"status": {"allocatable": {"memory": "8Gi"}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}/status", amounts).ok
    free = prod("free")
    free.manifest["spec"]["containers"][0]["resources"] = {"requests": {"memory": "2Gi"}}
    group = node.run(free)
    percent = {"minLimitPercent": 50, "lowLimitPercent": 25, "throttlingPercent": 80}
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, **percent}}})
    node.pass_time(ROUND)
    amounts_of = {
        name: node.number(node.container(group), f"memory.{name}", "memory") for name in ("min", "low", "high")
    }
    assert amounts_of == {"min": GI, "low": GI, "high": (2 * GI + 6 * GI * 80 // 100) // 4096 * 4096}


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-106", severity="normal", source="ours: spec CG-6 on control groups of version 1 as well")
@pytest.mark.long(seconds=14)
def test_the_page_cache_of_a_pod_is_at_most_its_limit(start_agent: StartAgent) -> None:
    """A pod of 1 GiB may have 4 GiB of page cache by its annotation."""
    node = start_agent("CgroupReconcile", anolis=True)
    capped = prod("capped").resources({"memory": "1Gi"})
    group = node.run(capped.annotation("koordinator.sh/memoryQOS", '{"pageCacheLimitSize": "4Gi"}'))
    sizes = node.root.cgroup / "memory" / group / "memory.pagecache_limit.size"
    sizes.write_text("0")
    node.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True}}})
    node.pass_time(ROUND)
    assert int(sizes.read_text()) == GI


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
    pod of which one container has no limit has no quota itself."""
    node = start_agent("CPUNormalization")
    annotation = {"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.20"}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", annotation).ok
    service = node.run(prod("service"))
    half = prod("half")
    half.manifest["spec"]["containers"].append({"name": "free", "image": "x"})
    free = node.run(half)
    for group in (service, node.container(service), node.container(free)):
        (node.root.cgroup / "cpu" / group / "cpu.cfs_quota_us").write_text("100000")
    node.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150})
    node.pass_time(12)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, node.container(service))] == [83_334] * 2
    assert [node.number(group, "cpu.cfs_quota_us") for group in (free, node.container(free))] == [-1, 83_334]
    node.throttles(node.container(service), 10, 5)
    node.pass_time(5)
    assert [node.number(group, "cpu.cfs_quota_us") for group in (service, node.container(service))] == [125_001] * 2


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-064", severity="normal", source="koordlet BlkIOReconcile, OOMScoreAdj; spec BK-1, HK-12")
@pytest.mark.long(seconds=23)
def test_disks_and_oom_scores(start_agent: StartAgent) -> None:
    """Best-effort pods read a mebibyte a second from a disk, until the NodeSLO names it no more; the processes of a
    container have the OOM score of the annotation, those of another pod theirs."""
    node = start_agent("BlkIOReconcile", "OOMScoreAdj")
    node.root.disk("sdb", "8:16")
    scores = {"koordinator.sh/oom-score-adj": "-500", "koordinator.sh/oom-score-adj-spec": '{"main": 200}'}
    own = prod("own")
    for key, value in scores.items():
        own.annotation(key, value)
    processes = [
        node.root.process(node.container(node.run(each)), number) for number, each in ((101, own), (102, prod("plain")))
    ]
    block = {"type": "device", "name": "/dev/sdb", "ioCfg": {"readBPS": 1 << 20}}
    node.slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": True, "blocks": [block]}}})
    node.pass_time(12)
    assert node.root.read(BESTEFFORT, "blkio.throttle.read_bps_device", "blkio") == "8:16 1048576"
    assert [path.read_text() for path in processes] == ["200", "0"]
    node.slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": False}}})
    node.pass_time(11)
    assert node.root.read(BESTEFFORT, "blkio.throttle.read_bps_device", "blkio") == "8:16 0"


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-066", severity="normal", source="koordlet CoreSched; spec HK-9")
@pytest.mark.long(seconds=23)
def test_core_scheduling(start_agent: StartAgent) -> None:
    """Pods with the same group share a core-scheduling cookie, an exclusive pod has one alone, best-effort pods have
    another; with the policy groupIdentity nobody has one."""
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
