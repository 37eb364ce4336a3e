"""Node agents report usage as the manager asks for it, and the scheduler follows."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import milli
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.nodes.usage_model import USAGE
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, RESOURCE_STATUS
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.loadaware.reporting import policy
from seatrial.suites.loadaware.reports import INTERVAL, Manifest, next_report, node_use, reported, settle

PROFILE = "load-aware"
PACE = {
    "colocation-config": {
        "enable": True,
        "metricReportIntervalSeconds": INTERVAL,
        "metricAggregateDurationSeconds": 60,
        "metricAggregatePolicy": {"durations": ["1m", "2m"]},
    }
}

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.alone]


def busy(name: str, cpu: str, memory: str = "1Gi") -> PodBuilder:
    """A pod that asks for a core and uses more or less."""
    use = orjson.dumps({"cpu": cpu, "memory": memory}).decode()
    return pod(name).request(cpu=1, memory="1Gi").annotation(USAGE, use)


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-020", severity="critical")
@pytest.mark.long(seconds=150)
def test_usage_is_reported_with_aggregates(trial: Trial, expect: Expect, start_manager: StartManager) -> None:
    """Two pods, system processes and a program outside of pods: each has its entry, and the node has the sum.

    The pod `a` uses 2 cores for more than two minutes, then 6: after 30 s more the mean over a minute is between the
    two, and the last minute's p99 is 6 cores.
    """
    trial.add(node("n1").cpu(32).memory("64Gi"))
    node_use(trial, "n1", cpu="1", memory="2Gi", hostApplications={"nginx": {"cpu": "500m", "memory": "1Gi"}})  # type: ignore[arg-type]
    start_manager(PACE)
    batch = busy("b", "3", "4Gi").label(PRIORITY_CLASS_LABEL, "koord-batch")
    trial.submit(busy("a", "2"), batch)
    expect.running("a", "b")
    settle(trial, 130)
    report = next_report(trial, "n1")
    assert rows(report) == {"a": ("koord-prod", "2", "1Gi"), "b": ("koord-batch", "3", "4Gi")}
    info = report["nodeMetric"]
    assert info["systemUsage"]["resources"] == {"cpu": "1", "memory": "2Gi"}
    (host,) = report["hostApplicationMetric"]
    assert (host["name"], host["usage"]["resources"]) == ("nginx", {"cpu": "500m", "memory": "1Gi"})
    assert info["nodeUsage"]["resources"] == {"cpu": "6500m", "memory": "8Gi"}
    assert [entry["duration"] for entry in info["aggregatedNodeUsages"]] == ["1m0s", "2m0s"]
    for entry in info["aggregatedNodeUsages"]:
        assert {kind: result["resources"]["cpu"] for kind, result in entry["usage"].items()} == dict.fromkeys(
            ("avg", "p50", "p90", "p95", "p99"), "6500m"
        )

    path = f"/api/v1/namespaces/{trial.name}/pods/a"
    trial.call("PATCH", path, {"metadata": {"annotations": {USAGE: '{"cpu":"6","memory":"1Gi"}'}}})
    report = next_report(trial, "n1")
    peak = next(entry["usage"] for entry in report["nodeMetric"]["aggregatedNodeUsages"] if entry["duration"] == "1m0s")
    assert peak["p99"]["resources"]["cpu"] == "10500m"
    assert peak["avg"]["resources"]["cpu"] not in {"6500m", "10500m"}
    assert rows(report)["a"][1] not in {"2", "6"}, "the mean of a minute in which the use changed"


@pytest.mark.feature("QOS-1.numa")
@pytest.mark.case("LA-027", severity="normal")
@pytest.mark.long(seconds=60)
def test_use_is_reported_by_numa_node(trial: Trial, expect: Expect, start_manager: StartManager) -> None:
    """A server with two NUMA nodes. A pod of 8 cores has one of them, a pod without a NUMA node uses 2 cores of both:
    the NUMA node of the first pod uses 9 cores and the other one 1, and together they use what the node does."""
    trial.add(node("n1").server("dgx-h100").numa_policy("SingleNUMANode"))
    start_manager(PACE)
    use = orjson.dumps({"cpu": "8", "memory": "8Gi"}).decode()
    trial.submit(pod("one").request(cpu=8, memory="8Gi").annotation(USAGE, use))
    expect.running("one")
    resource_status = orjson.loads(trial.pod("one").metadata.annotations.get(RESOURCE_STATUS, "{}"))
    zones = [entry["node"] for entry in resource_status.get("numaNodeResources", [])]
    assert len(zones) == 1, f"expected one NUMA node in resource-status, found {resource_status}"
    zone = zones[0]
    node_use(trial, "n1", cpu="2", memory="2Gi")

    next_report(trial, "n1")
    numa_usages = next_report(trial, "n1")["nodeMetric"]["numaUsages"]

    used = {entry["numaNodeID"]: milli(entry["nodeUsage"]["resources"]["cpu"]) for entry in numa_usages}
    assert set(used) == {0, 1}
    assert (used[zone], used[1 - zone]) == (9000, 1000)


def rows(status: Manifest) -> dict[str, tuple[str, str, str]]:
    return {
        row["name"]: (row["priority"], row["podUsage"]["resources"]["cpu"], row["podUsage"]["resources"]["memory"])
        for row in status["podsMetric"]
    }


@pytest.mark.feature("QOS-1.page-cache")
@pytest.mark.case("LA-025", severity="normal")
@pytest.mark.long(seconds=120)
@pytest.mark.parametrize(
    ("policy", "pod_memory", "node_memory"),
    [("usageWithPageCache", "4Gi", "9Gi"), ("usageWithoutPageCache", "1Gi", "3Gi")],
)
def test_page_cache_counts_by_policy(  # noqa: PLR0917 the fixtures and the row
    trial: Trial, expect: Expect, start_manager: StartManager, policy: str, pod_memory: str, node_memory: str
) -> None:
    """A pod with 3 Gi and a node with 3 Gi of page cache besides: they are reported where the policy includes them."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    node_use(trial, "n1", cpu="1", memory="2Gi", pageCache="3Gi")
    start_manager({"colocation-config": {**PACE["colocation-config"], "metricMemoryCollectPolicy": policy}})
    use = orjson.dumps({"cpu": "2", "memory": "1Gi", "pageCache": "3Gi"}).decode()
    trial.submit(pod("a").request(cpu=1, memory="1Gi").annotation(USAGE, use))
    expect.running("a")
    settle(trial, 65)
    report = next_report(trial, "n1")
    assert rows(report)["a"][2] == pod_memory
    assert report["nodeMetric"]["nodeUsage"]["resources"]["memory"] == node_memory


@pytest.mark.feature("QOS-1.expiry")
@pytest.mark.case("LA-021", severity="critical")
@pytest.mark.long(seconds=200)
def test_old_samples_of_the_system_expire(trial: Trial, start_manager: StartManager) -> None:
    """System processes use 20 cores, then 2: after more than the window of a minute the old samples count no more."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    node_use(trial, "n1", cpu="20", memory="4Gi")
    start_manager(PACE)
    settle(trial, 70)
    assert system(next_report(trial, "n1")) == "20"
    node_use(trial, "n1", cpu="2", memory="4Gi")
    settle(trial, 65)
    report = next_report(trial, "n1")
    assert system(report) == "2"
    assert report["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "2"


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-068", severity="normal")
@pytest.mark.long(seconds=200)
def test_programs_outside_of_pods_change_and_end(trial: Trial, start_manager: StartManager) -> None:
    """Two programs outside of pods use half a core. One uses two cores later, the other one ends: once the window of a
    minute is over, the first has its new use and the second has none."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    both = {name: {"cpu": "500m", "memory": "1Gi"} for name in ("nginx", "redis")}
    node_use(trial, "n1", cpu="1", memory="2Gi", hostApplications=both)  # type: ignore[arg-type]
    start_manager(PACE)

    def used() -> dict[str, str]:
        rows = next_report(trial, "n1").get("hostApplicationMetric") or ()
        return {
            row["name"]: row["usage"]["resources"]["cpu"] for row in rows if row["usage"]["resources"]["cpu"] != "0"
        }

    settle(trial, 70)
    assert used() == {"nginx": "500m", "redis": "500m"}
    more = {"nginx": {"cpu": "2", "memory": "1Gi"}}
    node_use(trial, "n1", cpu="1", memory="2Gi", hostApplications=more)  # type: ignore[arg-type]
    settle(trial, 70)
    assert used() == {"nginx": "2"}


def system(status: Manifest) -> str:
    amount: str = status["nodeMetric"]["systemUsage"]["resources"]["cpu"]
    return amount


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-022", severity="normal")
def test_the_manager_keeps_a_node_metric_for_each_node(trial: Trial, start_manager: StartManager) -> None:
    """It is made with the node, has the policy of the configuration, and goes with the node."""
    trial.add(node("n1"), node("n2"))
    start_manager(PACE)
    made = trial.reaches(lambda: bool(policy(trial, "n1") and policy(trial, "n2")), within=10)
    assert made, "expected a NodeMetric for n1 and n2"
    assert policy(trial, "n1") == {
        "aggregateDurationSeconds": 60,
        "reportIntervalSeconds": INTERVAL,
        "nodeAggregatePolicy": {"durations": [60, 120]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
    trial.cluster.remove_node("n2")
    gone = trial.reaches(lambda: trial.call("GET", f"{NODE_METRICS_PATH}/n2").code == 404, within=10)
    assert gone, "expected the NodeMetric of n2 to go with its node"
    assert policy(trial, "n1")
    trial.add(node("n2"))


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-057", severity="normal")
def test_nodes_may_have_a_collect_policy_of_their_own(trial: Trial, start_manager: StartManager) -> None:
    """Nodes of the pool `fast` report each 35 s by the first entry of nodeConfigs that selects them, others as all
    do. Settings that cannot be parsed change nothing: afterwards a new node has the policy of before."""
    entries = [
        {"name": "fast", "nodeSelector": {"matchLabels": {"pool": "fast"}}, "metricReportIntervalSeconds": 35},
        {"name": "late", "nodeSelector": {"matchLabels": {"pool": "fast"}}, "metricReportIntervalSeconds": 45},
    ]
    trial.add(node("n1").label("pool", "fast"), node("n2").label("pool", "slow"))
    start_manager({"colocation-config": {**PACE["colocation-config"], "nodeConfigs": entries}})

    def intervals(*names: str) -> list[object]:
        return [policy(trial, name).get("reportIntervalSeconds") for name in names]

    assert trial.reaches(lambda: intervals("n1", "n2") == [35, INTERVAL], within=10), intervals("n1", "n2")
    path = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config"
    assert trial.call("PATCH", path, {"data": {"colocation-config": "{"}}).ok
    settle(trial)
    trial.add(node("n3").label("pool", "fast"))

    assert trial.reaches(lambda: intervals("n1", "n2", "n3") == [35, INTERVAL, 35], within=10), intervals("n3")


@pytest.mark.profile(PROFILE)
@pytest.mark.feature("SCORE-3.filter", "QOS-1.node-metric")
@pytest.mark.case("LA-023", severity="critical")
@pytest.mark.long(seconds=120)
def test_a_pod_that_uses_more_than_it_asked_for_closes_its_node(
    trial: Trial, expect: Expect, start_manager: StartManager
) -> None:
    """From the pod's usage through the node's report to the next decision: no step is written by hand."""
    trial.add(node("n1").cpu(20).memory("64Gi"))
    start_manager(PACE)
    trial.submit(busy("greedy", "18"))
    expect.running("greedy")
    settle(trial, 30)
    next_report(trial, "n1")
    settle(trial)
    trial.submit(pod("a").request(cpu="10m", memory="10Mi").scheduler(PROFILE))
    expect.pending("a", saying="node(s) cpu usage exceed threshold")
    trial.delete("greedy")
    expect.bound("a", within=200)


@pytest.mark.profile(PROFILE)
@pytest.mark.feature("SCORE-3.filter", "QOS-1.expiry")
@pytest.mark.case("LA-024", severity="critical")
@pytest.mark.long(seconds=300)
@pytest.mark.parametrize("verb", ["metrics_silent", "metrics_stale"])
def test_a_node_whose_agent_does_not_report_takes_nobody(
    trial: Trial, expect: Expect, start_manager: StartManager, verb: str
) -> None:
    """After 180 s without a new report the node is closed, and it is open again after the next one."""
    trial.add(node("n1").cpu(20).memory("64Gi"))
    node_use(trial, "n1", cpu="1", memory="1Gi")
    start_manager(PACE)
    next_report(trial, "n1")
    trial.inject({"node": "n1", "verb": verb})
    settle(trial, INTERVAL + 5)
    before = reported(trial, "n1")["updateTime"]
    trial.submit(pod("early").request(cpu="10m", memory="10Mi").scheduler(PROFILE))
    expect.bound("early")
    settle(trial, 185)
    assert reported(trial, "n1")["updateTime"] == before
    trial.submit(pod("late").request(cpu="10m", memory="10Mi").scheduler(PROFILE))
    expect.pending("late", saying="node(s) nodeMetric expired")
    trial.heal("n1")
    expect.bound("late", within=80)
