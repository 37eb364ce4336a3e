"""Worked examples of the specification: E1 to E4 of framework-scoring-diagnosis."""

import json
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import Condition, OwnerReference
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.plugins.loadaware.estimator import Estimator
from seatrial.scheduler.plugins.loadaware.tests.loadrig import GI, LoadRig, asking, usage
from seatrial.scheduler.pods.priority import class_with_default

PROD, BATCH = "koord-prod", "koord-batch"
LIMITED = {"usageThresholds": {"cpu": 65, "memory": 95}}


def prod(name: str = "p", cpu: int = 16, memory: str = "32Gi") -> PodBuilder:
    return asking(name, cpu, memory).label("koordinator.sh/priority-class", PROD)


def batch(cpu: int, memory: str) -> PodBuilder:
    amounts: dict[str, str | int | float] = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": memory}
    return pod("p").resources(amounts).label("koordinator.sh/priority-class", BATCH)


def with_limits(cpu: str, memory: str, *, limit_cpu: str = "", limit_memory: str = "", **annotations: str) -> Pod:
    limits = {name: value for name, value in (("cpu", limit_cpu), ("memory", limit_memory)) if value}
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}
    keys = {key.replace("_", "-"): text for key, text in annotations.items()}
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "uid": "uid-p",
                "annotations": {f"scheduling.koordinator.sh/{key}": text for key, text in keys.items()},
            },
            "spec": {"containers": [{"name": "main", "resources": resources}], "schedulerName": "default-scheduler"},
        },
        Pod,
    )


@pytest.mark.parametrize(
    ("args", "report", "incoming", "score"),
    [
        pytest.param({}, {}, asking(), 90, id="no-usage"),
        pytest.param({}, {}, with_limits("8", "16Gi", limit_cpu="16", limit_memory="32Gi"), 90, id="limits-count"),
        pytest.param({}, {"node": usage("32", "10Gi")}, asking(), 72, id="usage"),
        pytest.param(
            {"aggregated": {"scoreAggregationType": "p95"}},
            {"aggregates": {"5m": {"p95": usage("32", "10Gi")}}},
            asking(),
            72,
            id="aggregate",
        ),
        pytest.param(
            {"dominantResourceWeight": 10, "resourceWeights": {"cpu": 1, "memory": 1}},
            {},
            asking(),
            85,
            id="dominant-resource",
        ),
        pytest.param({}, {}, pod("p"), 99, id="no-requests"),
        pytest.param({}, {}, batch(16000, "32Gi"), 90, id="batch"),
        pytest.param({}, {"age": 180}, asking(), 0, id="expired"),
        pytest.param({}, None, asking(), 0, id="no-report"),
    ],
)
def test_scores(args: dict[str, Any], report: dict[str, Any] | None, incoming: PodBuilder | Pod, score: int) -> None:
    """E1: factors 85/70, weights 1/1, a node of 96 cores and 512 Gi."""
    rig = LoadRig(**args)
    rig.machine()
    if report is not None:
        rig.report(**report)
    assert rig.score(incoming) == score


def test_a_pod_that_is_not_reported_yet_counts_with_its_estimate() -> None:
    """E1: usage 32/10Gi and an assigned pod 16/32Gi: 63; without the aggregate wanted, the pod alone counts: 81."""
    rig = LoadRig()
    rig.machine()
    rig.running(asking("there"), "n1")
    rig.report(node=usage("32", "10Gi"))
    assert rig.score(asking()) == 63
    aggregated = LoadRig(aggregated={"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"})
    aggregated.machine()
    aggregated.running(asking("there"), "n1")
    aggregated.report(node=usage("32", "10Gi"))
    assert aggregated.score(asking()) == 81


def test_prod_pods_are_scored_by_the_usage_of_prod_pods() -> None:
    """E1: a prod pod of 16000 cores, prod usage 30/100Gi: cpu 0, memory 76."""
    rig = LoadRig(scoreAccordingProdUsage=True)
    rig.machine()
    rig.running(prod("there", 1, "1Gi"), "n1")
    rig.clock.advance(120)
    rig.report(node=usage("90", "500Gi"), pods={"there": ("30", "100Gi", PROD)})
    assert rig.score(prod(cpu=16000, memory="32Gi")) == 38


@pytest.mark.parametrize(
    ("args", "machine", "report", "message"),
    [
        pytest.param(LIMITED, {}, {"node": usage("60", "256Gi")}, "", id="62.5-percent-rounds-to-63"),
        pytest.param(LIMITED, {}, {"node": usage("70", "256Gi")}, "node(s) cpu usage exceed threshold", id="cpu"),
        pytest.param(
            {**LIMITED, "aggregated": {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}},
            {},
            {"node": usage("30"), "aggregates": {"5m": {"p95": usage("70")}}},
            "node(s) cpu aggregated usage exceed threshold",
            id="aggregate",
        ),
        pytest.param(LIMITED, {}, {"node": usage("30", "500Gi")}, "node(s) memory usage exceed threshold", id="memory"),
        pytest.param(
            LIMITED,
            {"thresholds": json.dumps({"usageThresholds": {"memory": 60}})},
            {"node": usage("30", "316Gi")},
            "node(s) memory usage exceed threshold",
            id="threshold-of-the-node",
        ),
        pytest.param(
            LIMITED,
            {"thresholds": json.dumps({"usageThresholds": {"memory": 0}})},
            {"node": usage("30", "500Gi")},
            "",
            id="threshold-0-is-off",
        ),
        pytest.param(LIMITED, {}, {"node": usage("10"), "age": 180}, "node(s) nodeMetric expired", id="expired"),
        pytest.param(
            {**LIMITED, "filterExpiredNodeMetrics": False},
            {},
            {"node": usage("70"), "age": 180},
            "node(s) cpu usage exceed threshold",
            id="stale-report-decides",
        ),
        pytest.param(
            {**LIMITED, "enableScheduleWhenNodeMetricsExpired": True},
            {},
            {"node": usage("90"), "age": 180},
            "",
            id="expired-report-is-ignored",
        ),
        pytest.param(
            {"usageThresholds": {"cpu": 0}}, {}, {"node": usage("96"), "age": 180}, "", id="nothing-is-limited"
        ),
        pytest.param(LIMITED, {}, None, "", id="no-report"),
        pytest.param(
            LIMITED,
            {"raw": json.dumps({"cpu": "48"})},
            {"node": usage("40")},
            "node(s) cpu usage exceed threshold",
            id="capacity-before-amplification",
        ),
    ],
)
def test_filter(args: dict[str, Any], machine: dict[str, str], report: dict[str, Any] | None, message: str) -> None:
    """E2; the incoming pod asks for nothing of note."""
    rig = LoadRig(**args)
    rig.machine(**machine)
    if report is not None:
        rig.report(**report)
    assert rig.rejection(with_limits("1m", "1Mi")) == message


@pytest.mark.parametrize(
    ("thresholds", "others", "incoming", "message"),
    [
        pytest.param({"cpu": 50}, ("30", "33"), 0, "node(s) cpu usage exceed threshold", id="prod-over"),
        pytest.param({}, ("30", "33"), 0, "", id="judged-by-the-node-s-usage"),
        pytest.param({"cpu": 60}, ("30", "23"), 0, "", id="prod-below"),
        pytest.param({"cpu": 60}, ("30", "23"), 20, "node(s) cpu usage exceed threshold", id="incoming-pod-counts"),
    ],
)
def test_prod_thresholds(thresholds: dict[str, int], others: tuple[str, str], incoming: int, message: str) -> None:
    """E2: two prod pods; the node as a whole is reported with 50 cores, below its threshold."""
    rig = LoadRig(usageThresholds={"cpu": 65, "memory": 100}, prodUsageThresholds=thresholds)
    rig.machine()
    for number in range(2):
        rig.running(prod(f"there-{number}", 1, "1Gi"), "n1")
    rig.clock.advance(120)
    pods = {f"there-{number}": (cpu, "1Gi", PROD) for number, cpu in enumerate(others)}
    rig.report(node=usage("50"), pods=pods)
    builder = prod(cpu=incoming, memory="1Mi") if incoming else prod(cpu=0, memory="1Mi").resources({"cpu": "1m"})
    assert rig.rejection(builder) == message


def test_pods_of_daemon_sets_pass() -> None:
    rig = LoadRig(**LIMITED)
    rig.machine()
    rig.report(node=usage("96"))
    plain = rig.pod(asking())
    owner = OwnerReference(kind="DaemonSet", name="agents", uid="d")
    metadata = msgspec.structs.replace(plain.metadata, owner_references=(owner,))
    assert rig.rejection(plain) == "node(s) cpu usage exceed threshold"
    assert rig.rejection(msgspec.structs.replace(plain, metadata=metadata)) == ""


@pytest.mark.parametrize(
    ("args", "result", "cpu", "memory"),
    [
        pytest.param({}, asking(cpu=4, memory="8Gi"), 3400, 6012954214, id="request-is-limit"),
        pytest.param({}, with_limits("4", "8Gi", limit_cpu="8"), 6800, 6012954214, id="limit-above-request"),
        pytest.param(
            {"allowCustomizeEstimation": True},
            with_limits("4", "8Gi", limit_cpu="4", load_estimated_scaling_factors='{"cpu":110}'),
            4000,
            6012954214,
            id="capped-at-the-limit",
        ),
        pytest.param({}, batch(4000, "8Gi"), 3400, 6012954214, id="batch"),
        pytest.param(
            {"estimatedScalingFactors": {"cpu": 80, "memory": 80}},
            with_limits("4", "8Gi"),
            3200,
            6871947674,
            id="factors",
        ),
        pytest.param(
            {"allowCustomizeEstimation": True},
            with_limits("4", "8Gi", load_estimated_scaling_factors='{"cpu":100}'),
            4000,
            6012954214,
            id="factors-of-the-pod",
        ),
        pytest.param(
            {},
            with_limits("4", "8Gi", load_estimated_scaling_factors='{"cpu":100}'),
            3400,
            6012954214,
            id="factors-of-the-pod-not-allowed",
        ),
        pytest.param({}, pod("p"), 250, 200 << 20, id="nothing"),
        pytest.param({}, pod("p").label("koordinator.sh/priority-class", "koord-free"), 0, 0, id="free"),
        pytest.param({}, asking().label("koordinator.sh/priority-class", "koord-mid"), 0, 0, id="mid-without-mid-cpu"),
    ],
)
def test_estimates(args: dict[str, Any], result: PodBuilder | Pod, cpu: int, memory: int) -> None:
    """E3. Pods without requests are BestEffort and so batch pods, which count the same."""
    arguments = msgspec.convert(args, LoadAwareSchedulingArgs)
    made = result if isinstance(result, Pod) else LoadRig().pod(result)
    priority_class = class_with_default(made.metadata.labels, made.spec)
    assert Estimator(arguments).of(made, priority_class) == (cpu, memory)


@pytest.mark.parametrize(
    ("args", "initialized", "expected"),
    [
        pytest.param({"estimatedSecondsAfterPodScheduled": 180}, ("True", 30), 120, id="after-scheduled"),
        pytest.param(
            {"estimatedSecondsAfterPodScheduled": 180, "estimatedSecondsAfterInitialized": 10},
            ("True", 30),
            -20,
            id="initialized-decides",
        ),
        pytest.param({"estimatedSecondsAfterInitialized": 180}, ("False", 30), None, id="not-initialized"),
    ],
)
def test_deadlines(args: dict[str, Any], initialized: tuple[str, float], expected: float | None) -> None:
    """E4: the pod was scheduled a minute ago."""
    now = 1_767_225_600.0
    status, ago = initialized
    conditions = (Condition("Initialized", status, last_transition_time=rfc3339(now - ago)),)
    plain = LoadRig().pod(pod("p"))
    results = msgspec.structs.replace(plain, status=msgspec.structs.replace(plain.status, conditions=conditions))
    deadline = Estimator(msgspec.convert(args, LoadAwareSchedulingArgs)).deadline(results, now - 60)
    assert deadline == (0 if expected is None else now + expected)


def test_prod_usage_of_reports() -> None:
    """E4: prod-1 50/200Gi counts, mid-1 does not; with prodUsageIncludeSys the system's 2/4Gi is prod usage."""
    rig = LoadRig()
    rig.machine()
    rig.running(prod("prod-1", 1, "1Gi"), "n1")
    rig.running(asking("mid-1", 1, "1Gi").label("koordinator.sh/priority-class", "koord-mid"), "n1")
    rig.clock.advance(120)
    rig.report(pods={"prod-1": ("50", "200Gi", PROD), "mid-1": ("20", "75Gi", "koord-mid")})
    load = rig.plugin.loads.load("n1")
    assert load is not None
    assert load.prod_usage == (50_000, 200 * GI)
    rig = LoadRig(prodUsageIncludeSys=True)
    rig.machine()
    rig.report(system=usage("2", "4Gi"))
    load = rig.plugin.loads.load("n1")
    assert load is not None
    assert load.usage_of_prod() == (2000, 4 * GI)


def test_the_longest_aggregate_counts_where_no_duration_is_given() -> None:
    """E4: aggregates of 1m and 1h."""
    rig = LoadRig(aggregated={"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"})
    rig.machine()
    rig.report(aggregates={"1m0s": {"p95": usage("90")}, "1h0m0s": {"p95": usage("10")}})
    assert rig.rejection(asking(cpu=1)) == ""
    rig.report(aggregates={"1m0s": {"p95": usage("10")}, "1h0m0s": {"p95": usage("90")}})
    assert rig.rejection(asking(cpu=1)) == "node(s) cpu aggregated usage exceed threshold"


def test_the_view_of_a_node() -> None:
    """E4: one assigned pod of 4/8Gi, factors 100, nothing reported of it."""
    rig = LoadRig(estimatedScalingFactors={"cpu": 100, "memory": 100})
    rig.machine()
    rig.running(prod("there", 4, "8Gi"), "n1")
    rig.report()
    load = rig.plugin.loads.load("n1")
    assert load is not None
    assert load.delta == load.prod_delta == load.estimated == (4000, 8 * GI)
    assert load.prod_usage == (0, 0)
    assert load.uncovered() == load.uncovered(prod=True) == ["default/there"]
