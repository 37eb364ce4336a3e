"""Estimates of pods that a report does not cover, as far as they decide where a pod goes.

A pod's estimate is 85 percent of its CPU. Nodes have 20 cores, and up to 65 percent of these may be used.
"""

import json

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.slo import ESTIMATED_AFTER_INITIALIZED, ESTIMATED_FACTORS
from seatrial.suites.loadaware.machines import BATCH, ESTIMATES, MEAN, OVER, PROD, RELEASED, machines, small
from seatrial.suites.loadaware.reports import COVERED, report, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


def large(name: str, cores: int, profile: str) -> PodBuilder:
    """A prod pod whose estimate decides."""
    return pod(name).request(cpu=cores, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(profile)


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-050", severity="critical")
def test_a_pod_has_factors_of_its_own(trial: Trial, expect: Expect) -> None:
    """10 of 20 cores are used. A pod of 4 cores makes 67 percent with the factor 85, and 60 with its own factor 50. One
    of 3 cores makes 63 percent, and 74 with its own factor 160, as it has no limit."""
    machines(trial, "n1")
    report(trial, "n1", "10", "4Gi")
    settle(trial)
    more = large("more", 3, ESTIMATES).annotation(ESTIMATED_FACTORS, json.dumps({"cpu": 160}))
    del more.manifest["spec"]["containers"][0]["resources"]["limits"]
    trial.submit(large("by-profile", 4, ESTIMATES), more)
    expect.pending("by-profile", "more", saying=OVER)
    trial.submit(large("less", 4, ESTIMATES).annotation(ESTIMATED_FACTORS, json.dumps({"cpu": 50})))
    expect.bound("less")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-051", severity="normal")
def test_half_a_percent_is_rounded_up(trial: Trial, expect: Expect) -> None:
    """13.1 of 20 cores are 65.5 percent, which count as 66; 13.099 are 65.495, which count as 65. Pods of the class
    koord-free add nothing."""
    machines(trial, "n1")
    report(trial, "n1", "13100m", "8Gi")
    settle(trial)
    trial.submit(small("a", band="koord-free"))
    expect.pending("a", saying=OVER)
    report(trial, "n1", "13099m", "8Gi")
    expect.bound("a")


@pytest.mark.profile(ESTIMATES)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-052", severity="normal")
@pytest.mark.long(seconds=70)
def test_a_pod_counts_with_its_estimate_for_a_time_after_it_is_initialized(trial: Trial, expect: Expect) -> None:
    """Each node has a pod of 12 cores, estimated at 10.2, which was there before the report's interval and uses 1 core.

    The pod on n1 counts with its estimate for 300 s: 6 cores used and the missing 9.2 are 76 percent. The one on n2 has
    the annotation 0, so that 8 cores used are 40 percent. By usage alone n1 would be preferred.
    """
    machines(trial, "n1", "n2")
    by_profile = large("by-profile", 12, ESTIMATES).select({"kubernetes.io/hostname": "n1"})
    never = large("never", 12, ESTIMATES).select({"kubernetes.io/hostname": "n2"})
    trial.submit(by_profile, never.annotation(ESTIMATED_AFTER_INITIALIZED, "0"))
    expect.running("by-profile", "never")
    settle(trial, COVERED + 5)
    report(trial, "n1", "6", "4Gi", pods={"by-profile": ("1", "1Gi", PROD)})
    report(trial, "n2", "8", "4Gi", pods={"never": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a", ESTIMATES))
    assert expect.bound("a").spec.node_name == "n2"
    trial.submit(small("on-n1", ESTIMATES).select({"kubernetes.io/hostname": "n1"}))
    expect.pending("on-n1", saying=OVER)


@pytest.mark.profile(MEAN)
@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-053", severity="critical")
def test_a_pod_s_own_estimate_counts_in_the_score(trial: Trial, expect: Expect) -> None:
    """A node of 20 cores has 80 percent of its CPU free and one of 40 cores 75. A pod that is estimated at 5.1 cores
    leaves 54 percent of the small one and 62 of the large one, which is preferred."""
    machines(trial, "n1")
    trial.add(node("n2").cpu(40).memory("64Gi"))
    report(trial, "n1", "4", "4Gi")
    report(trial, "n2", "10", "4Gi")
    settle(trial)
    trial.submit(small("small", MEAN))
    assert expect.bound("small").spec.node_name == "n1"
    trial.submit(large("large", 6, MEAN))
    assert expect.bound("large").spec.node_name == "n2"


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-054", severity="normal")
@pytest.mark.parametrize(("count", "fits"), [(10, True), (14, False)])
def test_a_prod_pod_that_is_reported_with_another_class_counts_with_its_estimate(
    trial: Trial, expect: Expect, count: int, fits: bool
) -> None:
    """A prod pod uses 12 of 20 cores, 60 percent, and prod pods may use 55. As long as the report says that it is a
    batch pod, its estimate counts: 8.5 cores of a pod of 10, 43 percent, or 11.9 of one of 14."""
    machines(trial, "n1")
    trial.submit(large("holder", count, RELEASED))
    expect.running("holder")
    report(trial, "n1", "12", "4Gi", pods={"holder": ("12", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a", band=PROD))
    expect.pending("a", saying=OVER)
    report(trial, "n1", "12", "4Gi", pods={"holder": ("12", "1Gi", BATCH)})
    if not fits:
        settle(trial)
        trial.submit(small("b", band=PROD))
        expect.pending("a", "b", saying=OVER)
        trial.delete("holder")
    expect.bound("a")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-055", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_pod_that_came_during_the_interval_of_a_report_is_not_covered(trial: Trial, expect: Expect) -> None:
    """A pod of 10 cores, estimated at 8.5, came a few seconds before a report of 60 s that has 1 core for it: 6 cores
    used and the missing 7.5 are 68 percent. A report that has 8 cores of 9 for it makes 48 percent."""
    machines(trial, "n1")
    trial.submit(large("holder", 10, RELEASED))
    expect.running("holder")
    settle(trial)
    report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)})
    settle(trial)
    trial.submit(small("a"))
    expect.pending("a", saying=OVER)
    report(trial, "n1", "9", "4Gi", pods={"holder": ("8", "1Gi", PROD)})
    expect.bound("a")
