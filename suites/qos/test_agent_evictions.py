"""The node agent: evictions for memory, for CPU, and for what is requested.

Figures follow Koordinator's pkg/koordlet; the node is a fake root of 8 CPUs.
"""

from typing import Any, NamedTuple

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, RESOURCE_STATUS
from seatrial.suites.descheduling.workloads import evictions_by_uid
from seatrial.suites.qos.agent import GI, AgentNode, StartAgent, best_effort, prod, start_agent
from seatrial.suites.qos.colocation import WITHIN

__all__ = ["start_agent"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-043", severity="critical", source="koordinator 1.8: eviction-policy; spec EV-6, EV-8, EV-9")
@pytest.mark.long(seconds=8)
def test_memory_that_runs_short(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """When the node uses 75 % of its memory, the best-effort pod that has most is evicted, with an event that says why;
    prod pods stay however much they have, and so does a best-effort pod whose policy forbids it or cannot be read, and
    one of a higher priority."""
    node = start_agent("BEMemoryEvict")
    node.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 75})
    node.run(prod("service"), memory=3 * GI)
    node.run(best_effort("higher").priority_class(priority_class(trial, 5900)), memory=3 * GI)
    spared = best_effort("spared").annotation("koordinator.sh/eviction-policy", '["BECPUEvict"]')
    node.run(spared, memory=2 * GI)
    node.run(best_effort("unclear").annotation("koordinator.sh/eviction-policy", "BEMemoryEvict"), memory=5 * GI // 2)
    node.run(best_effort("small"), memory=GI // 4)
    large = node.run(best_effort("large"), memory=GI)
    node.pass_time(2)
    assert {pod.metadata.name for pod in trial.pods()} == {"service", "higher", "spared", "unclear", "small", "large"}

    node.uses(large, 0.0, 2 * GI)
    node.pass_time(2)

    assert trial.reaches(lambda: ended(trial, "large"), within=WITHIN), "expected pod 'large' to be evicted"
    node.uses(large, 0.0, 0)
    node.pass_time(3)
    for name in ("service", "higher", "spared", "unclear", "small"):
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


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-161", severity="normal", source="spec EV-2, KM-9")
@pytest.mark.long(seconds=12)
def test_a_quota_beyond_the_cpus_is_no_limit(trial: Trial, start_agent: StartAgent) -> None:
    """Best-effort pods have a quota of about five cores and two CPUs, of 8, as the others are bound to an LSE pod. They
    use both, and request 5 cores: one goes."""
    node = start_agent("BECPUEvict")
    bound = prod("exclusive", 1).qos("LSE").annotation(RESOURCE_STATUS, '{"cpuset": "0-5"}')
    node.run(bound)
    for name in ("a", "b"):
        builder = best_effort(name).resources({"kubernetes.io/batch-cpu": 2500, "kubernetes.io/batch-memory": "1Gi"})
        node.run(builder, cores=0.98)
    lines = {**satisfaction(50, 60), "cpuEvictPolicy": "evictByRealLimit"}
    slo = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
    node.slo(resourceUsedThresholdWithBE={**slo, **lines})

    node.pass_time(9)

    assert any(ended(trial, name) for name in "ab"), "expected a pod to be evicted"


def evictable(name: str, priority: str) -> PodBuilder:
    """A batch pod that may be evicted for all features."""
    return best_effort(name).label("koordinator.sh/eviction-enabled", "true").priority_class(priority)


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-053", severity="critical", source="v1.7 NodeSLO: cpuEvictThresholdPercent; spec EV-1, EV-5, EV-8")
@pytest.mark.long(seconds=30)
def test_a_node_that_uses_too_much_cpu(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Of 8 cores 7.2 are used, 80 % may be: of the pods with the label eviction-enabled and a priority of at most the
    threshold, that of the lowest priority goes, although another uses more; pods without the label stay, and so do
    those above the threshold, whatever their annotation eviction-priority. The next one, of just the threshold, goes
    20 s later."""
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
    assert not ended(trial, "lower"), "without a threshold of priorities no pod is evicted"

    node.slo(resourceUsedThresholdWithBE={**slo, "evictEnabledPriorityThreshold": 5900})
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
@pytest.mark.case("CO-125", severity="normal", source="ours: spec EV-5, EV-6, EV-8: eviction-priority")
@pytest.mark.long(seconds=6)
def test_a_node_that_uses_too_much_memory(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Of 16 GiB 13 are used, 75 % may be, and 60 % are to be left in use: the pod of the lowest eviction-priority goes,
    and then that of the lowest priority; a prod pod and one of a higher priority stay."""
    node = start_agent("MemoryEvict")
    low, high = (priority_class(trial, value) for value in (5100, 5900))
    node.run(prod("service").label("koordinator.sh/eviction-enabled", "true"), memory=5 * GI)
    node.run(evictable("marked", high).annotation("koordinator.sh/eviction-priority", "-1"), memory=2 * GI)
    stays = {"metadata": {"finalizers": ["example.com/stays"]}}
    assert trial.call("PATCH", trial.path("Pod", "marked"), stays).ok
    node.run(evictable("low", low), memory=3 * GI)
    node.run(evictable("high", high), memory=3 * GI)
    lines = {"memoryEvictThresholdPercent": 75, "memoryEvictLowerPercent": 60}
    node.slo(resourceUsedThresholdWithBE={"enable": True, "evictEnabledPriorityThreshold": 5999, **lines})
    node.pass_time(3)
    for name in ("marked", "low"):
        assert trial.reaches(lambda: ended(trial, name), within=WITHIN), f"expected pod {name!r} to be evicted"  # noqa: B023
    for name in ("service", "high"):
        expect.running(name)
    assert trial.call("PATCH", trial.path("Pod", "marked"), {"metadata": {"finalizers": None}}).ok


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-054", severity="critical", source="ours: spec EV-7, EV-10: what leaves counts as released")
@pytest.mark.long(seconds=10)
def test_a_node_that_offers_less_than_is_requested(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Batch pods request 6 and 2 GiB of 10 GiB; then the node offers 8 GiB, of which 80 % may be requested: the larger
    pod goes, and no other while it leaves. A threshold that prod pods are below evicts no pod."""
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
@pytest.mark.case("CO-055", severity="normal", source="spec EV-11: by the eviction API, with the UID as precondition")
@pytest.mark.long(seconds=25)
def test_a_budget_that_refuses(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """A PodDisruptionBudget refuses the eviction of the pod that has most memory: the next one is evicted, by its UID,
    and the first one when the budget is gone."""
    node = start_agent("BEMemoryEvict")
    node.run(best_effort("guarded").label("guard", "yes"), memory=8 * GI)
    node.run(best_effort("other"), memory=5 * GI)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
    trial.apply({**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guard": "yes"}}}})
    evictions_by_uid(trial)
    node.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 80})
    node.pass_time(5)
    assert trial.reaches(lambda: ended(trial, "other"), within=WITHIN), "expected pod 'other' to be evicted"
    expect.running("guarded")
    path = f"/apis/policy/v1/namespaces/{trial.name}/poddisruptionbudgets/guard"
    assert trial.call("DELETE", path).ok
    node.pass_time(15)
    assert trial.reaches(lambda: ended(trial, "guarded"), within=WITHIN), "expected pod 'guarded' to follow"


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-168", severity="normal", source="spec EV-1: since the last successful eviction; EV-11")
@pytest.mark.long(seconds=12)
def test_a_refused_eviction_delays_no_other(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """CPU is short, and a PodDisruptionBudget keeps the pod of the lowest priority: the next one goes in seconds."""
    node = start_agent("CPUEvict")
    low, high = (priority_class(trial, value) for value in (5000, 5100))
    node.run(evictable("guarded", low).label("guard", "yes"), cores=1.0)
    node.run(evictable("other", high), cores=6.2)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
    trial.apply({**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guard": "yes"}}}})
    lines = {"cpuEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": 5999, "cpuEvictTimeWindowSeconds": 2}
    node.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 100, **lines})

    node.pass_time(8)

    assert trial.reaches(lambda: ended(trial, "other"), within=WITHIN), "expected pod 'other' to be evicted"
    expect.running("guarded")


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-132", severity="normal", source="spec EV-1: 4 s for memory, 20 s for CPU")
@pytest.mark.long(seconds=12)
def test_an_eviction_for_memory_delays_none_for_cpu(trial: Trial, start_agent: StartAgent) -> None:
    """A pod is evicted because memory is short; then CPU is short: another one goes within seconds."""
    node = start_agent("BEMemoryEvict", "CPUEvict")
    large = node.run(best_effort("large"), memory=13 * GI)
    busy = node.run(evictable("busy", priority_class(trial, 5100)), memory=GI // 4)
    slo = {"enable": True, "memoryEvictThresholdPercent": 75, "cpuEvictThresholdPercent": 80}
    slo |= {"cpuSuppressThresholdPercent": 100, "cpuEvictTimeWindowSeconds": 2, "evictEnabledPriorityThreshold": 5999}
    node.slo(resourceUsedThresholdWithBE=slo)
    node.pass_time(3)
    assert trial.reaches(lambda: ended(trial, "large"), within=WITHIN), "expected pod 'large' to be evicted"

    node.uses(large, 0.0, 0)
    node.uses(busy, 7.2, GI // 4)
    node.pass_time(5)

    assert ended(trial, "busy"), "expected pod 'busy' to be evicted"


class Load(NamedTuple):
    """A batch pod: thousandths of a core that it requests, cores and GiB that it uses, its label of priority."""

    request: int = 1000
    cores: float = 0.0
    memory: float = 0.0
    label: str = ""
    mid: bool = False  # a mid pod instead
    priority: int = 5500


class Eviction(NamedTuple):
    """A feature and its lines, batch CPU that the node offers, and which of the pods a, b, … it evicts at once."""

    feature: str
    lines: dict[str, Any]
    pods: tuple[Load, ...]
    goes: str
    offers: int = 32000
    service: Load = Load()  # a prod pod beside them


def satisfaction(lower: int, upper: int) -> dict[str, Any]:
    lines = {"cpuEvictBESatisfactionLowerPercent": lower, "cpuEvictBESatisfactionUpperPercent": upper}
    return {**lines, "cpuEvictPolicy": "evictByAllocatable", "cpuEvictTimeWindowSeconds": 6}


def memory(threshold: int, **lines: int) -> dict[str, Any]:
    return {"memoryEvictThresholdPercent": threshold, **lines}


CPU_80 = {"cpuEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": 5999, "cpuEvictTimeWindowSeconds": 2}
PARTS = Load(2000, 1.8), Load(8000, 3.0)
HALVES = Load(5000, 3.2), Load(5000, 2.8)
TINY = Load(1000, 0.05), Load(1000, 0.04)
MANY = tuple(Load(2500, 0.97 - 0.01 * each) for each in range(8))
EVICTIONS = {
    # 78 % of 16 GiB are used, 73 are to be left: 0.8 GiB.
    "two-percent-below": Eviction(
        "BEMemoryEvict",
        memory(75),
        tuple(Load(memory=0.27 - 0.01 * each) for each in range(6)),
        "abcd",
        service=Load(memory=11.1),
    ),
    "lower-is-no-lower": Eviction("BEMemoryEvict", memory(75, memoryEvictLowerPercent=75), (Load(memory=14),), ""),
    # 88 % of 8 cores are used, 78 are to be left: 0.8 cores.
    "cpu": Eviction(
        "CPUEvict", CPU_80, tuple(Load(cores=0.37 - 0.01 * each) for each in range(4)), "abc", service=Load(cores=5.66)
    ),
    "label": Eviction(
        "CPUEvict", CPU_80, (Load(cores=0.9, label="2"), Load(cores=0.8, label="1")), "b", service=Load(cores=4.94)
    ),
    "label-beside-none": Eviction(
        "CPUEvict", CPU_80, (Load(cores=0.9), Load(cores=0.8, label="1")), "b", service=Load(cores=4.94)
    ),
    # They get 45 % of 10 cores, and are to get 60: 1.5 cores are requested too much.
    "most-of-its-request": Eviction("BECPUEvict", satisfaction(50, 60), PARTS, "a", offers=4500),
    "upper-line": Eviction("BECPUEvict", satisfaction(50, 60), MANY, "ab", offers=8000),
    "just-the-lower-line": Eviction("BECPUEvict", satisfaction(50, 60), HALVES, "a", offers=5000),
    "highest-lower-line": Eviction("BECPUEvict", satisfaction(60, 70), HALVES, "a", offers=5500),
    "upper-below-lower": Eviction("BECPUEvict", satisfaction(60, 50), PARTS, "", offers=4500),
    "less-than-a-core": Eviction("BECPUEvict", satisfaction(50, 60), TINY, "a", offers=500),
}


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-133", severity="normal", source="koordinator pkg/koordlet/qosmanager/plugins@v1.7.0; spec EV-2 to EV-8"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("row", EVICTIONS.values(), ids=EVICTIONS)
def test_how_much_is_evicted_at_once(trial: Trial, start_agent: StartAgent, row: Eviction) -> None:
    """By the lines of a feature some pods go in one round, and others stay."""
    check_eviction(trial, start_agent, row)


REQUESTS = tuple(Load(2300 - 200 * each) for each in range(4))  # 8 cores


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-134", severity="normal", source="koordinator 1.8 pkg/koordlet/qosmanager/plugins/cpuevict; spec EV-7"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize(
    ("offers", "most", "goes"),
    [(9000, 5999, "ab"), (10000, 5999, ""), (9000, 7999, "ab"), (9000, 8000, ""), (9000, 4999, "")],
    ids=["beyond", "just-the-threshold", "highest-priority", "prod", "lower-priority"],
)
def test_how_much_is_evicted_by_requests(
    trial: Trial, start_agent: StartAgent, offers: int, most: int, goes: str
) -> None:
    """Of what the node offers 80 % may be requested, and 60 are to be left."""
    lines = {"cpuAllocatableEvictThresholdPercent": 80, "cpuAllocatableEvictLowerPercent": 60}
    lines["allocatableEvictPriorityThreshold"] = most
    check_eviction(trial, start_agent, Eviction("CPUAllocatableEvict", lines, REQUESTS, goes, offers))


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-156", severity="normal", source="koordinator 1.8 pkg/koordlet/qosmanager/plugins/cpuevict; spec EV-7"
)
@pytest.mark.long(seconds=12)
def test_requests_above_the_priority_evict_no_pod_below_it(trial: Trial, start_agent: StartAgent) -> None:
    """Batch pods request 8 of 9 cores, 3 of them by a pod of at most the priority: nothing is to be released."""
    lines = {"cpuAllocatableEvictThresholdPercent": 80, "cpuAllocatableEvictLowerPercent": 60}
    lines["allocatableEvictPriorityThreshold"] = 5499
    pods = Load(5000, priority=5600), Load(3000, priority=5400)
    check_eviction(trial, start_agent, Eviction("CPUAllocatableEvict", lines, pods, "", 9000))


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-157", severity="normal", source="koordinator pkg/koordlet/qosmanager/plugins/cpuevict@v1.7.0; spec EV-2, EV-5"
)
@pytest.mark.long(seconds=40)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # averages over seconds decide
@pytest.mark.parametrize("feature", ["CPUEvict", "BECPUEvict"])
def test_the_average_of_the_window_decides(trial: Trial, start_agent: StartAgent, feature: str) -> None:
    """Pods use too much of the node, or all that they can get, for some seconds of a window of 30: none goes yet."""
    node, lines = start_agent(feature), satisfaction(50, 60) if feature == "BECPUEvict" else CPU_80
    slo = {"enable": True, "cpuSuppressThresholdPercent": 100, **lines, "cpuEvictTimeWindowSeconds": 30}
    node.slo(resourceUsedThresholdWithBE=slo)
    if feature == "CPUEvict":
        node.pass_time(30)
    groups = run(trial, node, HALVES)
    offer(trial, node.name, 5000)
    for group in groups:
        node.uses(group, 3.8)

    node.pass_time(6)
    assert not any(ended(trial, name) for name in "ab")

    node.pass_time(26)
    assert any(ended(trial, name) for name in "ab"), "expected a pod to be evicted"


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-158", severity="normal", source="ours: spec EV-7, EV-10: what leaves counts as released")
@pytest.mark.long(seconds=8)
def test_a_pod_that_somebody_deletes_counts_as_released(trial: Trial, expect: Expect, start_agent: StartAgent) -> None:
    """Of 16 GiB 13 are used, 75 % may be: a pod of 2 GiB is being deleted already, and no other pod is evicted."""
    node = start_agent("BEMemoryEvict")
    node.run(prod("service"), memory=10 * GI)
    node.run(best_effort("leaving"), memory=2 * GI)
    node.run(best_effort("other"), memory=GI)
    stays = {"metadata": {"finalizers": ["example.com/stays"]}}
    assert trial.call("PATCH", trial.path("Pod", "leaving"), stays).ok
    assert trial.call("DELETE", trial.path("Pod", "leaving")).ok
    node.pass_time(2)

    node.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 75})
    node.pass_time(5)

    expect.running("other")
    assert trial.call("PATCH", trial.path("Pod", "leaving"), {"metadata": {"finalizers": None}}).ok


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-135", severity="normal", source="koordinator pkg/koordlet/qosmanager/plugins/cpuevict@v1.7.0; spec EV-4"
)
@pytest.mark.long(seconds=15)
def test_pods_that_want_no_more_by_now_stay(trial: Trial, start_agent: StartAgent) -> None:
    """Best-effort pods have used all that they can get for some seconds, and use less by now: none is evicted. They
    want it again for as long: one is."""
    node = start_agent("BECPUEvict")
    groups = run(trial, node, HALVES)
    node.pass_time(7)
    for group in groups:
        node.uses(group, 1.0)
    node.pass_time(1)
    offer(trial, node.name, 5000)
    slo = {"enable": True, "cpuSuppressThresholdPercent": 100, **satisfaction(50, 60)}
    node.slo(resourceUsedThresholdWithBE=slo)
    node.pass_time(2)
    assert not any(ended(trial, name) for name in "ab")

    for group in groups:
        node.uses(group, 3.0)
    node.pass_time(2)
    assert not any(ended(trial, name) for name in "ab"), "on the average they want less"
    node.pass_time(8)
    assert trial.reaches(lambda: ended(trial, "a") or ended(trial, "b"), within=WITHIN), "expected a pod to be evicted"


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-140", severity="normal", source="koordinator 1.8 pkg/koordlet/qosmanager/plugins/cpuevict; spec EV-7, EV-10"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize(
    ("mid", "goes"), [((3000, 2000), "ab"), ((2000, 1000), "a")], ids=["both-are-short", "mid-has-enough"]
)
def test_batch_and_mid_requests_are_released_apart(
    trial: Trial, start_agent: StartAgent, mid: tuple[int, int], goes: str
) -> None:
    """A batch pod requests 8 of 9 cores, so that it goes. Of 5 mid cores all are requested: the larger of two mid pods
    goes as well, for which a batch pod releases nothing; 3 are requested: both stay."""
    lines = {"cpuAllocatableEvictThresholdPercent": 80, "cpuAllocatableEvictLowerPercent": 60}
    pods = Load(8000), *(Load(request, mid=True) for request in mid)
    lines["allocatableEvictPriorityThreshold"] = 7999
    check_eviction(trial, start_agent, Eviction("CPUAllocatableEvict", lines, pods, goes, 9000))


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case(
    "CO-141", severity="normal", source="koordinator pkg/koordlet/qosmanager/plugins/cpuevict@v1.7.0; spec EV-4"
)
@pytest.mark.long(seconds=15)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # averages over seconds decide
def test_what_is_released_by_the_end_of_a_pod_is_not_released_again(trial: Trial, start_agent: StartAgent) -> None:
    """Best-effort pods requested 14 cores for some seconds, and request 7 since the largest ended, of which they get
    3.5 and are to get 60 %: one of 1 core goes. By what they requested on the average it would be three."""
    node, names = start_agent("BECPUEvict"), "abcdefg"
    groups = run(trial, node, (*(Load(1000, 0.52) for _ in names), Load(7000)))
    node.pass_time(7)
    assert trial.call("DELETE", trial.path("Pod", "h")).ok
    assert trial.reaches(lambda: ended(trial, "h"), within=WITHIN)
    offer(trial, node.name, 3500)
    slo = {"enable": True, "cpuSuppressThresholdPercent": 100, **satisfaction(50, 60)}
    node.slo(resourceUsedThresholdWithBE=slo)
    for _ in range(4):
        node.pass_time(1)
        for name, group in zip(names, groups, strict=False):
            if ended(trial, name):
                node.uses(group, 0.0)

    assert sum(ended(trial, name) for name in names) == 1


def check_eviction(trial: Trial, start_agent: StartAgent, row: Eviction) -> None:
    node, names = start_agent(row.feature), "abcdefgh"[: len(row.pods)]
    if row.service != Load():
        node.run(prod("service"), cores=row.service.cores, memory=int(row.service.memory * GI))
    groups = run(trial, node, row.pods)
    node.pass_time(1)
    offer(trial, node.name, row.offers)
    node.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 100, **row.lines})

    for _ in range(3 if row.feature == "BEMemoryEvict" else 8):
        node.pass_time(1)
        for name, group in zip(names, groups, strict=True):
            if ended(trial, name):
                node.uses(group, 0.0)

    # The next round for requests comes 20 s after one that evicted.
    assert trial.reaches(lambda: all(ended(trial, name) for name in row.goes), within=10), "expected more to go"
    assert "".join(name for name in names if ended(trial, name)) == row.goes


def run(trial: Trial, node: AgentNode, loads: tuple[Load, ...]) -> list[str]:
    """Start pods a, b, …, and return their control groups."""
    offer(trial, node.name, 32000)
    of = {value: priority_class(trial, value) for value in {7500, *(load.priority for load in loads)}}
    groups = []
    for name, load in zip("abcdefgh", loads, strict=False):
        if load.mid:
            builder = evictable(name, of[7500]).label(PRIORITY_CLASS_LABEL, "koord-mid")
            builder.resources({"kubernetes.io/mid-cpu": load.request})
        else:
            builder = evictable(name, of[load.priority])
            builder.resources({"kubernetes.io/batch-cpu": load.request, "kubernetes.io/batch-memory": "1Gi"})
        if load.label:
            builder.label("koordinator.sh/priority", load.label)
        groups.append(node.run(builder, cores=load.cores, memory=int(load.memory * GI)))
    return groups


def offer(trial: Trial, node: str, batch_cpu: int) -> None:
    amounts = {"kubernetes.io/batch-cpu": str(batch_cpu), "kubernetes.io/batch-memory": "16Gi"}
    amounts["kubernetes.io/mid-cpu"] = "5000"
    offered = {"status": {"capacity": amounts, "allocatable": amounts}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node}/status", offered).ok


def priority_class(trial: Trial, value: int) -> str:
    name = f"{trial.name}-{value}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    trial.apply({**kind, "value": value})
    return name


def ended(trial: Trial, name: str) -> bool:
    pod = trial.find(name)
    return pod is None or pod.metadata.deletion_timestamp is not None
