"""The arithmetic of autoscaling, and autoscalers in virtual time."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.autoscaling import (
    Reading,
    ScaleEvent,
    by_average,
    by_utilization,
    max_replicas_now,
    min_replicas_now,
    rules_of,
)
from seatrial.harness.apiserver.controllers.tests.bench import Bench, condition, running, workload


@pytest.mark.parametrize(
    ("usages", "target", "want"),
    [
        pytest.param([1000, 1000], 50, 4, id="twice-the-target-doubles"),
        pytest.param([250, 250, 250, 250], 50, 2, id="half-the-target-halves"),
        pytest.param([540, 540], 50, 2, id="within-the-tolerance-nothing-changes"),
        pytest.param([560, 560], 50, 3, id="beyond-it-one-more"),
        pytest.param([1000, None], 50, 2, id="who-is-not-measured-counts-as-idle-when-growing"),
        pytest.param([100, 100, None], 50, 2, id="and-as-busy-when-shrinking"),
    ],
)
def test_by_utilization(usages: list[int | None], target: int, want: int) -> None:
    assert by_utilization([Reading(1000, usage) for usage in usages], target, len(usages)).replicas == want


def test_by_average() -> None:
    readings = [Reading(0, 300), Reading(0, 500)]
    assert by_average(readings, 200, 2).replicas == 4
    assert by_average(readings, 200, 2).average == 400


@pytest.mark.parametrize(
    ("behavior", "current", "changes", "most"),
    [
        pytest.param(None, 1, [], 5, id="four-at-a-time-when-small"),
        pytest.param(None, 10, [], 20, id="double-when-large"),
        pytest.param(None, 14, [ScaleEvent(95, 4)], 20, id="what-was-added-just-now-counts"),
        pytest.param({"scaleUp": {"selectPolicy": "Min"}}, 10, [], 14, id="the-smaller-of-both"),
        pytest.param({"scaleUp": {"selectPolicy": "Disabled"}}, 10, [], 10, id="not-at-all"),
    ],
)
def test_scale_up_rate(behavior: dict[str, Any] | None, current: int, changes: list[ScaleEvent], most: int) -> None:
    assert max_replicas_now(rules_of(behavior, "scaleUp"), current, changes, 100.0) == most


def test_scale_down_rate() -> None:
    behavior: dict[str, Any] = {"scaleDown": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    rules = rules_of(behavior, "scaleDown")
    assert min_replicas_now(rules, 10, [], 100.0) == 8
    assert min_replicas_now(rules, 9, [ScaleEvent(70, -1)], 100.0) == 8


def autoscaler(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    body = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [metric], **spec}
    return {"metadata": {"name": "web"}, "spec": body}


def use(bench: Bench, cpu: str) -> None:
    """Report this usage for each pod."""
    path = bench.path("nodemetrics", "measured")  # of no node here: node agents keep the others
    if bench.call("GET", path).code == 404:
        bench.create(
            "nodemetrics",
            {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "measured"}},
        )
    pods = [
        {"namespace": "default", "name": pod["metadata"]["name"], "podUsage": {"resources": {"cpu": cpu}}}
        for pod in bench.live_pods()
    ]
    bench.patch("nodemetrics", "measured", {"status": {"podsMetric": pods}}, "status")


def deploy(bench: Bench, replicas: int) -> None:
    body = workload("web", replicas)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    bench.create("deployments", body)
    bench.wait(lambda: bench.status("deployments", "web").get("availableReplicas", 0) == replicas)


def replicas(bench: Bench) -> int:
    replicas: int = bench.get("deployments", "web")["spec"]["replicas"]
    return replicas


def test_scales_up_with_usage_and_down_after_five_minutes() -> None:
    with running() as bench:
        deploy(bench, 2)
        use(bench, "900m")
        bench.create("horizontalpodautoscalers", autoscaler())
        bench.wait(lambda: replicas(bench) == 4)
        status = bench.status("horizontalpodautoscalers", "web")
        assert status["desiredReplicas"] == 4
        assert status["currentMetrics"][0]["resource"]["current"] == {"averageUtilization": 90, "averageValue": "900m"}
        assert bench.events("SuccessfulRescale") == [
            "New size: 4; reason: cpu resource utilization (percentage of request) above target"
        ]
        bench.settle(5)
        use(bench, "100m")
        begin = bench.clock.monotonic()
        bench.wait(lambda: replicas(bench) == 1, within=600)
        assert 270 <= bench.clock.monotonic() - begin <= 330


def test_replicas_stay_within_bounds_and_the_condition_says_so() -> None:
    with running() as bench:
        deploy(bench, 2)
        use(bench, "1")
        bench.create("horizontalpodautoscalers", autoscaler(maxReplicas=3))
        bench.wait(lambda: replicas(bench) == 3)
        limited = condition(bench.get("horizontalpodautoscalers", "web"), "ScalingLimited")
        assert (limited["status"], limited["reason"]) == ("True", "TooManyReplicas")
        bench.patch("horizontalpodautoscalers", "web", {"spec": {"minReplicas": 5, "maxReplicas": 6}})
        bench.wait(lambda: replicas(bench) == 5)


def test_without_metrics_nothing_is_scaled() -> None:
    with running() as bench:
        deploy(bench, 2)
        bench.create("horizontalpodautoscalers", autoscaler())
        bench.settle(60)
        assert replicas(bench) == 2
        active = condition(bench.get("horizontalpodautoscalers", "web"), "ScalingActive")
        assert (active["status"], active["reason"]) == ("False", "FailedGetResourceMetric")


def test_a_target_with_zero_replicas_is_not_scaled() -> None:
    with running() as bench:
        deploy(bench, 0)
        bench.create("horizontalpodautoscalers", autoscaler())
        bench.settle(30)
        assert replicas(bench) == 0
        assert condition(bench.get("horizontalpodautoscalers", "web"), "ScalingActive")["reason"] == "ScalingDisabled"
