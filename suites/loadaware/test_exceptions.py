"""Nodes and pods to which the thresholds of a profile do not apply as they are."""

import json

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import HOSTNAME_LABEL
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.slo import (
    ESTIMATED_AFTER_INITIALIZED,
    ESTIMATED_AFTER_SCHEDULED,
    RAW_ALLOCATABLE,
    USAGE_THRESHOLDS,
)
from seatrial.suites.descheduling.workloads import daemon
from seatrial.suites.faults.schedulers import running
from seatrial.suites.loadaware.machines import OVER, PROD, RELEASED, machines, small
from seatrial.suites.loadaware.reports import COVERED, annotate, report, settle

__all__ = ["running"]

PEAKS = '{"aggregatedUsage":{"usageThresholds":{"cpu":65},"usageAggregationType":"p95"}}'

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(RELEASED)]


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-012", severity="normal")
@pytest.mark.parametrize(("age", "saying"), [(0, OVER), (200, "nodeMetric expired")], ids=["hot", "old"])
def test_a_hot_node_takes_pods_of_daemon_sets(trial: Trial, expect: Expect, age: int, saying: str) -> None:
    """The only node is above its threshold, or its report is old: the pod of a DaemonSet is bound there, and another
    pod is not."""
    machines(trial, "n1")
    report(trial, "n1", "14", "8Gi", age=age)
    settle(trial)
    trial.submit(small("other"))
    expect.pending("other", saying=saying)

    daemon(trial, "daemon", like=small("x"))

    def placed() -> bool:
        return any(pod.metadata.name.startswith("daemon-") and pod.spec.node_name for pod in trial.pods())

    assert trial.reaches(placed, within=30), trial.timeline()
    expect.pending("other", saying=saying)


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-013", severity="normal")
@pytest.mark.long(seconds=4)
def test_a_node_may_have_thresholds_of_its_own(trial: Trial, expect: Expect) -> None:
    """Both nodes use 70 percent of their CPU. One of them may use 90 percent: it takes the pod. When it may use 50, it
    takes no other, and the pod's condition has that reason."""
    machines(trial, "n1", "n2")
    for name in ("n1", "n2"):
        report(trial, name, "14", "8Gi")
    annotate(trial, "/api/v1/nodes/n2", USAGE_THRESHOLDS, json.dumps({"usageThresholds": {"cpu": 90}}))
    settle(trial)
    trial.submit(small("a"))
    expect.bound("a")
    assert trial.pod("a").spec.node_name == "n2"

    annotate(trial, "/api/v1/nodes/n2", USAGE_THRESHOLDS, json.dumps({"usageThresholds": {"cpu": 50}}))
    settle(trial)
    trial.submit(small("b"))

    expect.pending("b", saying=f"2 {OVER}")


@pytest.mark.feature("SCORE-3.prod-usage")
@pytest.mark.case("LA-056", severity="normal")
@pytest.mark.long(seconds=4)
def test_a_node_may_have_thresholds_of_its_own_for_prod(trial: Trial, expect: Expect) -> None:
    """The system uses 50 percent of both nodes; prod pods may use 55, on one node 45 by its annotation: prod pods go to
    the other one, although a batch pod goes to it where the other is cordoned."""
    machines(trial, "n1", "n2")
    for name in ("n1", "n2"):
        report(trial, name, "10", "8Gi", system=("10", "8Gi"))
    annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, json.dumps({"prodUsageThresholds": {"cpu": 45}}))
    settle(trial)
    trial.submit(*(small(f"a-{number}", band=PROD) for number in range(4)))
    pods = expect.bound("a-0", "a-1", "a-2", "a-3")
    assert {placed.spec.node_name for placed in pods} == {"n2"}

    assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}}).ok
    settle(trial)
    trial.submit(small("b"), small("c", band=PROD))

    assert expect.bound("b").spec.node_name == "n1"
    expect.pending("c", saying=OVER)


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-014", severity="critical", source="spec FWK-R51 to FWK-R53")
@pytest.mark.parametrize(
    ("raw", "cpu", "memory"),
    [
        pytest.param({"cpu": "10", "memory": "64Gi"}, "8", "8Gi", id="cpu"),
        pytest.param({"memory": "8Gi"}, "8", "8Gi", id="memory"),
        pytest.param({"memory": "64Gi"}, "18", "8Gi", id="cpu-that-is-not-listed"),
        pytest.param({"cpu": "20"}, "8", "63Gi", id="memory-that-is-not-listed"),
    ],
)
def test_use_is_compared_with_the_amounts_before_amplification(
    trial: Trial, expect: Expect, raw: dict[str, str], cpu: str, memory: str
) -> None:
    """Two nodes show 20 cores and 64 Gi and use 8 of each, which is 40 percent and less. One of them has 10 real cores,
    or 8 Gi, or uses nearly all of a resource that its annotation lacks: only the other one takes the pod."""
    machines(trial, "n1", "n2")
    annotate(trial, "/api/v1/nodes/n1", RAW_ALLOCATABLE, json.dumps(raw))
    report(trial, "n1", cpu, memory)
    report(trial, "n2", "8", "8Gi")
    settle(trial)
    trial.submit(*(small(f"a-{number}") for number in range(4)))

    pods = expect.bound("a-0", "a-1", "a-2", "a-3")

    assert {pod.spec.node_name for pod in pods} == {"n2"}
    trial.submit(small("b").select({"kubernetes.io/hostname": "n1"}))
    expect.pending("b", saying="usage exceed threshold")


@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-087", severity="normal", source="spec FWK-R53, FWK-R61; estimator/default_estimator.go")
@pytest.mark.parametrize("raw", [{"cpu": "10"}, {"memory": "32Gi"}], ids=["cpu", "memory"])
@pytest.mark.parametrize(("amplified", "real"), [("n1", "n2"), ("n2", "n1")])
def test_scores_count_the_amounts_before_amplification(
    trial: Trial, expect: Expect, raw: dict[str, str], amplified: str, real: str
) -> None:
    """Two nodes show 20 cores and 64 Gi, and use a quarter of both, or a little less. The latter has half as much in
    fact of one resource: pods go to the other one."""
    machines(trial, "n1", "n2")
    annotate(trial, f"/api/v1/nodes/{amplified}", RAW_ALLOCATABLE, json.dumps(raw))
    report(trial, amplified, "4", "13Gi")
    report(trial, real, "5", "16Gi")
    settle(trial)
    trial.submit(*(small(f"a-{number}") for number in range(3)))

    assert {bound.spec.node_name for bound in expect.bound("a-0", "a-1", "a-2")} == {real}


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-088", severity="normal", source="spec FWK-R51, FWK-R53; loadaware/helper.go")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize(
    ("key", "first", "then", "fits"),
    [
        pytest.param(USAGE_THRESHOLDS, '{"usageThresholds":{"cpu":90}}', "{", False, id="thresholds-of-the-profile"),
        pytest.param(USAGE_THRESHOLDS, '{"usageThresholds":{"cpu":50}}', None, True, id="thresholds-that-are-gone"),
        pytest.param(USAGE_THRESHOLDS, "{", '{"usageThresholds":{"cpu":90}}', True, id="thresholds-that-are-repaired"),
        pytest.param(USAGE_THRESHOLDS, None, PEAKS, False, id="peaks-of-the-report-that-is-there"),
        pytest.param(RAW_ALLOCATABLE, '{"cpu":"10"}', "{", True, id="amounts-of-the-node"),
        pytest.param(RAW_ALLOCATABLE, '{"cpu":"10"}', None, True, id="amounts-that-are-gone"),
        pytest.param(RAW_ALLOCATABLE, None, '{"cpu":"10"}', False, id="amounts-before-amplification"),
    ],
)
def test_an_annotation_that_changes(  # noqa: PLR0917
    trial: Trial, expect: Expect, key: str, first: str | None, then: str | None, fits: bool
) -> None:
    """The last annotation of a node counts for the report that is there, and one that cannot be read counts as none.
    The node uses 12 of 20 cores, 60 percent, or 14 where the annotation may allow it, and 18 at its peaks."""
    machines(trial, "n1")
    hot = key == USAGE_THRESHOLDS and "50" not in (first or "") and then != PEAKS
    report(trial, "n1", "14" if hot else "12", "8Gi", peak="18")
    for value in (first, then):
        annotate(trial, "/api/v1/nodes/n1", key, value)
        settle(trial)
    trial.submit(small("a"))
    if fits:
        expect.bound("a")
        expect.refusal()
    else:
        expect.pending("a", saying="usage exceed threshold")


@pytest.mark.feature("SCORE-3.prod-usage")
@pytest.mark.case("LA-089", severity="normal", source="spec FWK-R55, FWK-R60; loadaware/pod_assign_cache.go")
@pytest.mark.parametrize(("system", "saying"), [("4", OVER), ("2", "")], ids=["62-percent", "52-percent"])
def test_a_new_prod_pod_counts_with_its_estimate_beside_prod_usage(
    trial: Trial, expect: Expect, system: str, saying: str
) -> None:
    """A prod pod of 10 cores, estimated at 8.5, came during the report's interval and uses 1 core so far. With the
    system's it counts as 12.5 or 10.5 of 20; prod pods may use 55 percent."""
    machines(trial, "n1")
    holder = pod("holder").request(cpu=10, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED)
    trial.submit(holder)
    expect.running("holder")
    report(trial, "n1", "5", "4Gi", system=(system, "1Gi"), pods={"holder": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a", band=PROD))
    if saying:
        expect.pending("a", saying=saying)
    else:
        expect.bound("a")
        expect.refusal()


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case(
    "LA-110",
    severity="normal",
    source="koordinator: pkg/scheduler/plugins/loadaware/pod_assign_cache.go@v1.7.0 (getTargetAggregatedUsage)",
)
@pytest.mark.parametrize("empty", [False, True], ids=["none", "empty"])
@pytest.mark.parametrize(("cpu", "saying"), [("14", "cpu aggregated usage exceed threshold"), ("12", "")])
def test_the_usage_where_no_aggregate_is_reported(
    trial: Trial, expect: Expect, cpu: str, saying: str, *, empty: bool
) -> None:
    """A node limits a percentile of any duration to 65 percent, and its report has none, or one without amounts: the
    usage of 70 percent counts in its place, or of 60."""
    machines(trial, "n1")
    annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, PEAKS)
    usage = {"resources": {"cpu": cpu, "memory": "4Gi"}}
    aggregates = [{"duration": "5m0s", "usage": {"p95": {"resources": {}}}}] if empty else []
    report(trial, "n1", "0", "4Gi", nodeMetric={"nodeUsage": usage, "aggregatedNodeUsages": aggregates})
    settle(trial)
    trial.submit(small("a"))
    if saying:
        expect.pending("a", saying=saying)
    else:
        expect.bound("a")
        expect.refusal()


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case(
    "LA-111", severity="normal", source="koordinator: pkg/scheduler/plugins/loadaware/load_aware.go@v1.7.0 (Filter)"
)
def test_a_report_without_usage_limits_nothing(trial: Trial, expect: Expect) -> None:
    """The NodeMetric of one of two nodes has an update time and no usage: it takes a pod of which the estimate is above
    the threshold, which the other node, with a usage of nothing, does not take."""
    machines(trial, "n1", "n2")
    report(trial, "n1", "0", "0", nodeMetric=None)
    report(trial, "n2", "0", "0")
    settle(trial)
    trial.submit(pod("a").request(cpu=18, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED))
    assert expect.bound("a").spec.node_name == "n1"


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-112", severity="normal", source="spec FWK-R52; loadaware/load_aware.go, isNodeMetricExpired")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.long(seconds=15)
def test_each_report_expires_at_its_own_time(trial: Trial, expect: Expect) -> None:
    """Reports of three nodes come in another order than they expire: that of n2, which was 170 s old, has
    expired after 15 s, and those of n1 and n3, which came before and after it, have not."""
    machines(trial, "n1", "n2", "n3")
    for name, age in (("n1", 0), ("n2", 170), ("n3", 20)):
        report(trial, name, "1", "4Gi", age=age)
    settle(trial, 15)
    trial.submit(*(small(f"on-{name}").select({HOSTNAME_LABEL: name}) for name in ("n1", "n2", "n3")))
    expect.pending("on-n2", saying="nodeMetric expired")
    expect.bound("on-n1", "on-n3")


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-113", severity="normal", source="spec FWK-R59; loadaware/estimator/default_estimator.go")
@pytest.mark.long(seconds=70)
@pytest.mark.parametrize("key", [ESTIMATED_AFTER_SCHEDULED, ESTIMATED_AFTER_INITIALIZED])
def test_a_pod_may_not_say_how_long_its_estimate_counts(trial: Trial, expect: Expect, key: str) -> None:
    """A pod of 12 cores uses 1 of 6 cores, by a report that covers it. It asks to count with its estimate for longer,
    and its profile does not allow that."""
    machines(trial, "n1")
    report(trial, "n1", "0", "4Gi")
    holder = pod("holder").request(cpu=12, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED)
    trial.submit(holder.annotation(key, "600"))
    expect.running("holder")
    settle(trial, COVERED + 5)
    report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a"))
    expect.bound("a")
    expect.refusal()


@pytest.mark.feature("SCORE-3.filter", "HIL-4.scheduler-crash")
@pytest.mark.case("LA-114", severity="normal", source="spec FWK-R59; loadaware/pod_assign_cache.go")
@pytest.mark.long(seconds=75)
def test_a_pod_is_as_old_as_its_condition_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """The same pod without the wish: a scheduler that is started again reads in its conditions that it is covered."""
    machines(trial, "n1")
    report(trial, "n1", "0", "4Gi")
    trial.submit(pod("holder").request(cpu=12, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED))
    expect.running("holder")
    settle(trial, COVERED + 5)
    running.kill()
    running.start_again()
    report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a"))
    expect.bound("a")
    expect.refusal()


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-115", severity="normal", source="spec FWK-R57; loadaware/estimator/default_estimator.go")
@pytest.mark.parametrize("first", [1, 10], ids=["small-first", "large-first"])
def test_limits_tell_pods_of_equal_requests_apart(trial: Trial, expect: Expect, first: int) -> None:
    """Two pods request one core, of which one may use ten: that one is estimated at 8.5 beside a usage of 8 of 20 and
    waits, whichever came first; the other one is bound."""
    machines(trial, "n1")
    report(trial, "n1", "8", "4Gi", system=("8", "0"))
    settle(trial)
    for cores in (first, 11 - first):
        one = pod(f"up-to-{cores}").request(cpu=1, memory="1Gi").limits({"cpu": cores, "memory": "1Gi"})
        trial.submit(one.label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED))
        if cores == 1:
            expect.bound("up-to-1")
        else:
            expect.pending("up-to-10", saying=OVER)
