"""Rules of thresholds, estimates and reports, each in a scenario for either side of it.

Nodes have 20 cores and 64 Gi. Of these may be used: 65 percent of the CPU and 95 of the memory, by prod pods 55 and 75;
PEAK limits the CPU alone, and ESTIMATES has no limits of prod pods. The rules are those of koordinator
`pkg/scheduler/plugins/loadaware` (`helper.go`, `pod_assign_cache.go`, `estimator/default_estimator.go`).
"""

import json
from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, pod, priority_class, reservation
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, QOS_LABEL
from seatrial.scheduler.api.slo import (
    ESTIMATED_AFTER_INITIALIZED,
    ESTIMATED_AFTER_SCHEDULED,
    ESTIMATED_FACTORS,
    NODE_METRICS_PATH,
    USAGE_THRESHOLDS,
)
from seatrial.suites.loadaware.machines import (
    BATCH,
    ESTIMATES,
    MEAN,
    OVER,
    OVER_PEAK,
    PEAK,
    PROD,
    RELEASED,
    admitted,
    machines,
    small,
)
from seatrial.suites.loadaware.reports import COVERED, annotate, report, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

AGGREGATED = {"aggregatedUsage": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95"}}
FREE = "koord-free"  # pods of this class estimate nothing
OVER_MEMORY = "node(s) memory usage exceed threshold"
EXPIRED = "node(s) nodeMetric expired"


def of(profile: str, *values: Any, id: str) -> Any:  # noqa: A002 - as pytest.param
    return pytest.param(profile, *values, id=id, marks=pytest.mark.profile(profile))


@pytest.mark.feature("SCORE-3.filter", "SCORE-3.prod-usage")
@pytest.mark.case("LA-080", severity="critical", source="spec FWK-R51, FWK-R53; loadaware/helper.go")
@pytest.mark.parametrize(
    ("profile", "own", "cpu", "memory", "system", "band", "saying"),
    [
        of(PEAK, {}, "2", "63Gi", "2", FREE, "", id="memory-without-limit"),
        of(PEAK, {"usageThresholds": {"cpu": 5}}, "2", "63Gi", "2", FREE, "", id="aggregates-of-the-profile-first"),
        of(RELEASED, {"usageThresholds": {"cpu": 90}}, "2", "63Gi", "2", FREE, "", id="own-cpu-alone"),
        of(RELEASED, {"usageThresholds": {"memory": 99}}, "18", "4Gi", "2", FREE, "", id="own-memory-alone"),
        of(RELEASED, {"usageThresholds": {"memory": 50}}, "2", "40Gi", "2", FREE, OVER_MEMORY, id="own-memory-over"),
        of(RELEASED, {"prodUsageThresholds": {"cpu": 90}}, "2", "63Gi", "2", PROD, "", id="own-prod-cpu-alone"),
        of(RELEASED, {"prodUsageThresholds": {"memory": 90}}, "18", "4Gi", "18", PROD, "", id="own-prod-memory-alone"),
        of(RELEASED, {"prodUsageThresholds": {"cpu": 20}}, "18", "4Gi", "2", FREE, OVER, id="own-prod-not-for-others"),
        of(RELEASED, {}, "18", "63Gi", "2", PROD, "", id="prod-is-judged-by-prod-alone"),
        of(RELEASED, {}, "12", "4Gi", "12", PROD, OVER, id="prod-over-its-own"),
        of(ESTIMATES, {}, "18", "4Gi", "2", PROD, OVER, id="prod-without-limits-of-its-own"),
        of(RELEASED, AGGREGATED, "12", "4Gi", "12", PROD, OVER, id="prod-is-not-judged-by-aggregates"),
    ],
)
def test_which_thresholds_are_in_force(
    trial: Trial,
    expect: Expect,
    *,
    profile: str,
    own: dict[str, dict[str, Any]],
    cpu: str,
    memory: str,
    system: str,
    band: str,
    saying: str,
) -> None:
    """A node's own section replaces that of the profile, other sections stay; a resource that is not in a section is
    not limited; prod pods are judged by limits and usage of prod pods alone, where there are any."""
    machines(trial, "n1")
    if own:
        annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, json.dumps(own))
    report(trial, "n1", cpu, memory, system=(system, memory if band == PROD and not saying and cpu == "2" else "0"))
    settle(trial)
    trial.submit(small("a", profile, band=band))
    admitted(expect, "a", saying)


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-071", severity="normal", source="spec FWK-R56")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("durations", [[], ["30m0s"]], ids=["none", "another-duration"])
def test_a_report_without_the_aggregate(trial: Trial, expect: Expect, durations: list[str]) -> None:
    """The profile limits a percentile over 5 minutes. In a report without it, or with one over another duration, the
    usage of 90 percent does not count, and an estimate of 11.9 cores, 60 percent, does, until its pod is gone."""
    machines(trial, "n1")
    used = {"resources": {"cpu": "18", "memory": "4Gi"}}
    others = [{"duration": duration, "usage": {"p95": used}} for duration in durations]
    report(trial, "n1", "18", "4Gi", nodeMetric={"nodeUsage": used, "aggregatedNodeUsages": others})
    settle(trial)
    trial.submit(pod("first").request(cpu=14, memory="1Gi").scheduler(PEAK))
    expect.running("first")
    trial.submit(pod("second").request(cpu=4, memory="1Gi").scheduler(PEAK))
    expect.pending("second", saying=OVER_PEAK)
    trial.delete("first")
    expect.bound("second")


def estimated(name: str, profile: str, requests: dict[str, str], factors: dict[str, int]) -> PodBuilder:
    builder = pod(name).label(PRIORITY_CLASS_LABEL, PROD).scheduler(profile)
    if requests:
        builder.resources(dict(requests))
    return builder.annotation(ESTIMATED_FACTORS, json.dumps(factors)) if factors else builder


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-072", severity="critical", source="spec FWK-R57, FWK-R58; estimator/default_estimator.go")
@pytest.mark.parametrize(
    ("profile", "cpu", "memory", "requests", "factors", "saying"),
    [
        of(ESTIMATES, "13097m", "4Gi", {"cpu": "2m"}, {}, "", id="two-thirds-of-a-milli-65.49"),
        of(ESTIMATES, "13098m", "4Gi", {"cpu": "2m"}, {}, OVER, id="rounded-up-65.5"),
        of(ESTIMATES, "9", "4Gi", {"cpu": "4"}, {"cpu": 300}, "", id="capped-at-the-limit-65"),
        of(ESTIMATES, "9100m", "4Gi", {"cpu": "4"}, {"cpu": 300}, OVER, id="capped-at-the-limit-66"),
        of(ESTIMATES, "1", "50Gi", {"memory": "20Gi"}, {"cpu": 50}, OVER_MEMORY, id="own-cpu-keeps-that-of-memory"),
        of(ESTIMATES, "1", "50Gi", {"memory": "20Gi"}, {"memory": 30}, "", id="own-memory"),
        of(ESTIMATES, "10", "4Gi", {"cpu": "4"}, {"memory": 30}, OVER, id="own-memory-keeps-that-of-cpu"),
        of(MEAN, "5", "4Gi", {"cpu": "4"}, {"cpu": 10}, "", id="own-factors-not-allowed-less"),
        of(PEAK, "10", "4Gi", {"cpu": "4"}, {"cpu": 10}, OVER_PEAK, id="own-factors-not-allowed-67"),
    ],
)
def test_what_a_pod_is_estimated_at(
    trial: Trial,
    expect: Expect,
    *,
    profile: str,
    cpu: str,
    memory: str,
    requests: dict[str, str],
    factors: dict[str, int],
    saying: str,
) -> None:
    """Estimates are 85 percent of the CPU and 70 of the memory, rounded, at most the limit. Factors of a pod replace
    those of the same resources, where the profile allows it."""
    machines(trial, "n1")
    report(trial, "n1", cpu, memory)
    settle(trial)
    trial.submit(estimated("a", profile, requests, factors))
    admitted(expect, "a", saying)


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-083", severity="critical", source="spec FWK-R57, FWK-R58; estimator/default_estimator.go")
@pytest.mark.parametrize(
    ("cpu", "memory", "saying"),
    [("12800m", "4Gi", ""), ("12900m", "4Gi", OVER), ("1", "62300Mi", ""), ("1", "62500Mi", OVER_MEMORY)],
)
@pytest.mark.parametrize("band", [PROD, BATCH])
def test_what_a_pod_without_requests_is_estimated_at(  # noqa: PLR0917
    trial: Trial, expect: Expect, cpu: str, memory: str, saying: str, band: str
) -> None:
    """A pod that requests nothing is estimated at 250m and 200Mi, a batch pod as well."""
    machines(trial, "n1")
    report(trial, "n1", cpu, memory)
    settle(trial)
    trial.submit(pod("a").label(PRIORITY_CLASS_LABEL, band).scheduler(ESTIMATES))
    admitted(expect, "a", saying)


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-090", severity="normal", source="spec FWK-R57; estimator/default_estimator.go")
@pytest.mark.parametrize(("band", "saying"), [(PROD, OVER), ("", OVER), ("koord-mid", ""), (BATCH, ""), (FREE, "")])
def test_cpu_that_a_class_does_not_use(trial: Trial, expect: Expect, band: str, saying: str) -> None:
    """12 of 20 cores are used. A pod asks for 4 cores of CPU, which prod pods and those without a class are estimated
    by; other classes have resources of their own."""
    machines(trial, "n1")
    report(trial, "n1", "12", "4Gi")
    settle(trial)
    builder = pod("a").request(cpu=4, memory="1Gi").scheduler(ESTIMATES)
    trial.submit(builder.label(PRIORITY_CLASS_LABEL, band) if band else builder)
    admitted(expect, "a", saying)


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-124", severity="normal", source="spec FWK-R57, FWK-R63; apis/extension/priority_utils.go")
@pytest.mark.parametrize(
    ("qos", "priority", "saying"),
    [("LS", 0, OVER), ("BE", 0, ""), ("", 9500, OVER), ("", 5500, ""), ("BE", 9500, OVER), ("LS", 5500, "")],
)
def test_the_class_of_a_pod_without_its_label(
    trial: Trial, expect: Expect, qos: str, priority: int, saying: str
) -> None:
    """The same by the band of the pod's priority, and for a pod in none by its QoS class: 4 cores of CPU count for prod
    pods, and not for batch pods."""
    machines(trial, "n1")
    report(trial, "n1", "12", "4Gi")
    settle(trial)
    builder = pod("a").request(cpu=4, memory="1Gi").scheduler(ESTIMATES)
    if qos:
        builder.label(QOS_LABEL, qos)
    if priority:
        trial.apply(priority_class(f"trial-{priority}", priority))
        builder.priority_class(f"trial-{priority}")
    trial.submit(builder)
    admitted(expect, "a", saying)


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.prod-usage")
@pytest.mark.case("LA-073", severity="critical", source="spec FWK-R55, FWK-R60")
@pytest.mark.parametrize("used", ["", "9"], ids=["estimated", "reported"])
@pytest.mark.long(seconds=4)
def test_a_prod_pod_that_is_gone_does_not_count(trial: Trial, expect: Expect, used: str) -> None:
    """The system uses 3 of 20 cores and a prod pod takes 8.5 by its estimate, or 9 by the report; prod pods may use
    55 percent. When it is gone, another one is placed by the same report."""
    machines(trial, "n1")
    report(trial, "n1", "0", "4Gi")
    settle(trial)
    trial.submit(pod("holder").request(cpu=10, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED))
    expect.running("holder")
    pods = {"holder": (used, "1Gi", PROD)} if used else {}
    report(trial, "n1", "3", "4Gi", system=("3", "0"), pods=pods)
    settle(trial)
    trial.submit(small("a", band=PROD))
    expect.pending("a", saying=OVER)
    trial.delete("holder")
    expect.bound("a")


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-074", severity="critical", source="spec FWK-R55, FWK-R58, FWK-R59; loadaware/pod_assign_cache.go")
@pytest.mark.long(seconds=70)
@pytest.mark.parametrize(
    ("interval", "scheduled", "initialized", "known", "saying"),
    [
        pytest.param(60, "0", "0", True, "", id="report-of-60-s"),
        pytest.param(60, "0", "0", False, OVER, id="report-without-pods"),
        pytest.param(60, "0", "0", None, OVER, id="report-without-usage-of-the-pod"),
        pytest.param(600, "0", "0", True, OVER, id="report-of-600-s"),
        pytest.param(60, "30", "0", True, "", id="30-s-after-it-was-scheduled"),
        pytest.param(60, "600", "0", True, OVER, id="600-s-after-it-was-scheduled"),
        pytest.param(60, "600", "30", True, "", id="30-s-after-it-was-initialized"),
        pytest.param(60, "30", "600", True, OVER, id="600-s-after-it-was-initialized"),
        pytest.param(60, "0", "-5", True, OVER, id="300-s-of-the-profile-by-less-than-0"),
        pytest.param(60, "0", "5m", True, OVER, id="300-s-of-the-profile-by-no-number"),
    ],
)
def test_how_long_a_pod_counts_with_its_estimate(  # noqa: PLR0917
    trial: Trial, expect: Expect, interval: int, scheduled: str, initialized: str, known: bool | None, saying: str
) -> None:
    """A pod of 12 cores, estimated at 10.2, has been there for 65 s and uses 1 of 6 cores. It counts with its estimate,
    76 percent, while its node's interval of reports or the time of its annotation is not over, and as long as no report
    has it. Of two times the one since it was initialized counts; one that is no number of 0 and more counts as none."""
    machines(trial, "n1")
    report(trial, "n1", "0", "4Gi")
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": interval}}
    accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/n1", {"spec": spec}), "set the interval of n1")
    holder = pod("holder").request(cpu=12, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(ESTIMATES)
    holder.annotation(ESTIMATED_AFTER_INITIALIZED, initialized).annotation(ESTIMATED_AFTER_SCHEDULED, scheduled)
    trial.submit(holder)
    expect.running("holder")
    settle(trial, COVERED + 5)
    nothing = {"namespace": trial.name, "name": "holder", "priority": PROD, "podUsage": {}}
    more: dict[str, Any] = {"podsMetric": [nothing]} if known is None else {}
    report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)} if known else {}, **more)
    settle(trial)
    trial.submit(small("a", ESTIMATES))
    admitted(expect, "a", saying)


@pytest.mark.profile(ESTIMATES)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-084", severity="normal", source="spec FWK-R59; loadaware/pod_assign_cache.go")
@pytest.mark.parametrize(
    ("scheduled", "initialized", "seconds", "saying"),
    [
        pytest.param(("True", 100), ("True", 100), ("0", "0"), "", id="covered"),
        pytest.param(("True", 20), ("True", 20), ("0", "0"), OVER, id="scheduled-during-the-interval"),
        pytest.param(("False", 100), ("True", 100), ("0", "0"), OVER, id="not-known-to-be-scheduled"),
        pytest.param(("True", 100), ("False", 100), ("0", "600"), "", id="not-initialized"),
        pytest.param(("True", 100), ("False", 100), ("600", "30"), OVER, id="not-initialized-600-s-since-scheduled"),
        pytest.param(("True", 100), ("True", 20), ("0", "30"), OVER, id="30-s-since-initialized"),
        pytest.param(("True", 100), ("True", 70), ("600", "30"), "", id="30-s-since-initialized-are-over"),
    ],
)
def test_which_condition_of_a_pod_says_since_when(  # noqa: PLR0917
    trial: Trial,
    expect: Expect,
    scheduled: tuple[str, int],
    initialized: tuple[str, int],
    seconds: tuple[str, str],
    saying: str,
) -> None:
    """A pod of 12 cores, estimated at 10.2, uses 1 of 6 cores, by a report of 60 s. Its conditions, which are written
    later than its node, say since when it is scheduled and initialized; one that is False says nothing."""
    machines(trial, "n1")
    report(trial, "n1", "0", "4Gi")
    trial.inject({"node": "n1", "verb": "frozen", "for": 60})
    settle(trial)
    holder = pod("holder").request(cpu=12, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(ESTIMATES)
    holder.annotation(ESTIMATED_AFTER_SCHEDULED, seconds[0]).annotation(ESTIMATED_AFTER_INITIALIZED, seconds[1])
    trial.submit(holder.node_name("n1"))
    trial.settle()
    now = trial.cluster.clock.now()
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": rfc3339(now - age)}
        for kind, (status, age) in (("PodScheduled", scheduled), ("Initialized", initialized))
    ]
    path = f"{trial.path('Pod', 'holder')}/status"
    accepted(trial.call("PATCH", path, {"status": {"conditions": conditions}}), "write the conditions of the pod")
    report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a", ESTIMATES))
    admitted(expect, "a", saying)


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter", "SCORE-3.prod-usage")
@pytest.mark.case("LA-085", severity="normal", source="spec FWK-R51, FWK-R52; loadaware/helper.go")
@pytest.mark.parametrize("age", [0, 200], ids=["hot", "old"])
@pytest.mark.parametrize(
    ("own", "band", "fits"),
    [
        ({"usageThresholds": {"cpu": 0}}, BATCH, True),
        ({"usageThresholds": {"cpu": 0}}, PROD, False),
        ({"prodUsageThresholds": {"cpu": 0}}, BATCH, False),
        ({"prodUsageThresholds": {"cpu": 0}}, PROD, False),
        ({"usageThresholds": {"cpu": 0}, "prodUsageThresholds": {"cpu": 0}}, PROD, True),
    ],
    ids=["all-for-batch", "all-for-prod", "prod-for-batch", "prod-as-all", "both"],
)
def test_a_node_without_limits(  # noqa: PLR0917
    trial: Trial, expect: Expect, own: dict[str, dict[str, int]], band: str, fits: bool, age: int
) -> None:
    """Thresholds of 0 limit nothing: a hot node, and one whose report is old, take the pods that they are for. Where
    those of prod pods are 0, prod pods are judged as all others."""
    machines(trial, "n1")
    annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, json.dumps(own))
    report(trial, "n1", "18", "4Gi", system=("18", "4Gi"), age=age)
    settle(trial)
    trial.submit(small("a", band=band))
    admitted(expect, "a", "" if fits else EXPIRED if age else OVER)


@pytest.mark.profile(MEAN, PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case(
    "LA-086", severity="normal", source="KubeSchedulerConfiguration: pluginConfig is of its profile; spec FWK-R51"
)
@pytest.mark.long(seconds=5)
def test_each_profile_judges_every_report(trial: Trial, expect: Expect) -> None:
    """One profile limits the mean and another one the peaks of the same node. It is hot by its mean first, and then by
    its peaks; then its NodeMetric is deleted."""
    machines(trial, "n1")
    for number, (mean, peak) in enumerate((("18", "1"), ("1", "18"))):
        report(trial, "n1", mean, "4Gi", peak=peak)
        settle(trial)
        trial.submit(small(f"mean-{number}", MEAN), small(f"peak-{number}", PEAK))
        by_mean = mean == "18"
        expect.pending(*([f"mean-{number}"] if by_mean else [f"peak-{number}"]), saying=OVER if by_mean else OVER_PEAK)
        expect.bound(*([f"peak-{number}"] if by_mean else [f"mean-{number}"]))
    expect.bound("mean-0")
    assert trial.call("DELETE", f"{NODE_METRICS_PATH}/n1").ok
    settle(trial)
    trial.submit(small("mean", MEAN), small("peak", PEAK))
    expect.bound("mean", "peak")


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-075", severity="critical", source="spec FWK-R52")
@pytest.mark.parametrize(
    ("profile", "saying"),
    [of(RELEASED, f"2 {EXPIRED}", id="closes-nodes"), of(ESTIMATES, "", id="enableScheduleWhenNodeMetricsExpired")],
)
@pytest.mark.long(seconds=20)
def test_each_report_gets_old(trial: Trial, expect: Expect, profile: str, saying: str) -> None:
    """Reports of two idle nodes are 172 and 168 s old; 14 s later both are older than 180 s. The profile says whether
    such nodes take pods."""
    machines(trial, "n1", "n2")
    report(trial, "n1", "18", "4Gi", age=172)
    report(trial, "n2", "18", "4Gi", age=168)
    settle(trial)
    trial.submit(small("a", profile))
    expect.pending("a", saying=f"2 {OVER}", cooled=False)
    settle(trial, 14)
    trial.submit(small("b", profile))
    admitted(expect, "b", saying)


@pytest.mark.profile(MEAN)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-076", severity="normal", source="spec FWK-R52, FWK-R60")
def test_a_report_that_is_deleted_does_not_count(trial: Trial, expect: Expect) -> None:
    """The only node is hot until its NodeMetric is deleted. Without one it takes a pod of ten cores, which goes before
    the next report comes: another one of ten cores is bound."""
    machines(trial, "n1")
    report(trial, "n1", "18", "4Gi")
    settle(trial)
    trial.submit(small("a", MEAN))
    expect.pending("a", saying=OVER)
    assert trial.call("DELETE", f"{NODE_METRICS_PATH}/n1").ok
    settle(trial)
    ten = [pod(name).request(cpu=10, memory="1Gi").scheduler(MEAN) for name in "bc"]
    trial.submit(ten[0])
    expect.bound("b")
    trial.delete("b")
    expect.gone("b")
    report(trial, "n1", "1", "4Gi")
    settle(trial)
    trial.submit(ten[1])
    expect.bound("c")
    expect.refusal()


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-079", severity="normal", source="ours")
def test_a_report_that_cannot_be_read_leaves_the_one_before(trial: Trial, expect: Expect) -> None:
    """The only node is hot; a report of an idle node whose duration is not one changes nothing."""
    machines(trial, "n1")
    report(trial, "n1", "18", "4Gi")
    settle(trial)
    usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
    unreadable = {"nodeUsage": usage, "aggregatedNodeUsages": [{"duration": "soon", "usage": {"p95": usage}}]}
    report(trial, "n1", "1", "1Gi", nodeMetric=unreadable)
    settle(trial)
    trial.submit(small("a", PEAK))
    expect.pending("a", saying=OVER_PEAK)
    report(trial, "n1", "1", "1Gi")
    expect.bound("a")


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-077", severity="normal", source="spec FWK-R62")
def test_scores_have_an_aggregate_of_their_own(trial: Trial, expect: Expect) -> None:
    """n1 limits its peaks of 30 minutes, 12 cores; the profile scores by those of 5, which are 2 on n1 and 8 on n2."""
    machines(trial, "n1", "n2")
    own = {"aggregatedUsage": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95"}}
    annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, json.dumps(own))
    report(trial, "n1", "1", "1Gi", peak="2", long_peak="12")
    report(trial, "n2", "8", "1Gi", peak="8", long_peak="8")
    settle(trial)
    trial.submit(small("a", PEAK))
    assert expect.bound("a").spec.node_name == "n1"


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-078", severity="normal", source="koordinator pkg/scheduler/plugins/loadaware/pod_assign_cache.go")
@pytest.mark.parametrize("reserved", [True, False], ids=["reservation", "pod"])
def test_a_reservation_uses_nothing(trial: Trial, expect: Expect, reserved: bool) -> None:
    """A pod of 10 cores is estimated at 43 percent beside 30 percent of usage; a reservation of them is no load."""
    machines(trial, "n1")
    report(trial, "n1", "6", "4Gi")
    settle(trial)
    holder = pod("holder").request(cpu=10, memory="1Gi").scheduler(RELEASED)
    if reserved:
        trial.reserve(reservation("r").like(holder).for_labels(app="owner"))
        expect.available("r")
    else:
        trial.submit(holder)
        expect.running("holder")
    trial.submit(small("a"))
    admitted(expect, "a", "" if reserved else OVER)
