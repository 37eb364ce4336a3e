"""The node agent: what pods, programs and NUMA nodes use, and how memory is counted.

Figures follow Koordinator's pkg/koordlet; the node is a fake root of 8 CPUs.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import exact
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.qos.agent import GI, AgentNode, StartAgent, announced, prod, start_agent

__all__ = ["start_agent"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


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


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("CO-162", severity="normal", source="spec RP-1")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_usage_is_reported_over_a_minute_at_least(trial: Trial, start_agent: StartAgent) -> None:
    """The policy asks for 20 s: a pod has used one core, and three for half a minute, and two are reported."""
    node = start_agent()
    service = node.run(prod("service"), cores=1.0, memory=GI)
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    trial.apply(
        {**kind, "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 20, "reportIntervalSeconds": 30}}}
    )
    trial.inject({"node": node.name, "verb": "frozen", "for": 600})  # else its own report would be in the agent's
    node.pass_time(60)
    node.uses(service, 3.0, GI)
    usages = set[float]()
    for _ in range(32):
        node.pass_time(1)
        status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
        usages |= {cores(each["podUsage"]) for each in status.get("podsMetric") or []}

    assert max(usages) <= 2.2, usages


@pytest.mark.feature("QOS-4.collectors")
@pytest.mark.case("CO-169", severity="normal", source="spec MC-2, RP-3")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # each second is one sample
def test_one_second_of_a_minute_is_above_the_percentiles(trial: Trial, start_agent: StartAgent) -> None:
    """A node uses one core, and six in one of sixty seconds: of their values the 99th percentile is the second."""
    node = start_agent()
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node.name}}
    policy = {"reportIntervalSeconds": 30, "nodeAggregatePolicy": {"durations": ["59s"]}}
    trial.apply({**kind, "spec": {"metricCollectPolicy": policy}})
    trial.inject({"node": node.name, "verb": "frozen", "for": 600})  # else its own report would be in the agent's
    node.system = 1.0
    node.pass_time(70)
    node.system = 6.0
    node.pass_time(1)
    node.system = 1.0
    node.pass_time(32)

    status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body)["status"]
    assert peak(status, "aggregatedNodeUsages") == pytest.approx(1.0, rel=0.1)
    mean = status["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["avg"]
    assert cores(mean) == pytest.approx(1.08, rel=0.02), "the second is counted"


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
@pytest.mark.long(seconds=390)
def test_what_prod_pods_will_not_use(trial: Trial, start_agent: StartAgent) -> None:
    """Of the 4 cores of a pod that is two days old and uses 1, what its peak and a margin leave can be taken, and
    nothing of a pod that is younger than a day; at most what the node has beside them, without amplification, and
    what the system leaves of the requests of all. Nothing of a pod that has ended."""
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
    trial.inject({"node": node.name, "verb": "frozen", "for": 600})  # else its own report would be in the agent's
    node.pass_time(130)
    assert reclaimable(trial, node) == pytest.approx(2.84, rel=0.05), "4 less 1.1 times the end of the bucket of 1 core"
    raw = {"metadata": {"annotations": {"node.koordinator.sh/raw-allocatable": '{"cpu": "5"}'}}}
    assert trial.call("PATCH", f"/api/v1/nodes/{node.name}", raw).ok
    node.pass_time(60)
    assert reclaimable(trial, node) == pytest.approx(1.84, rel=0.05), "5 less 1.16 of the one and 2 of the other"
    node.system = 2.0
    node.pass_time(130)
    assert reclaimable(trial, node) == pytest.approx(1.08, rel=0.05), "5 less 1.1 times the ends of two buckets"
    node.system = 0.0
    ended = {"status": {"phase": "Succeeded"}}
    assert trial.call("PATCH", f"{trial.path('Pod', 'old')}/status", ended).ok
    node.pass_time(60)
    assert reclaimable(trial, node) == 0


def reclaimable(trial: Trial, node: AgentNode) -> float:
    """The cores in the report that prod pods have requested and will not use."""
    status = orjson.loads(trial.call("GET", f"{NODE_METRICS_PATH}/{node.name}").body).get("status") or {}
    return cores(status["prodReclaimableMetric"]["resource"])


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
