"""Scores by other usage than the mean of all pods, or by none.

The profile PEAK scores by the 95th percentile over five minutes, and prod pods by the usage of prod pods; in MEAN an
old report decides in Filter.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.suites.loadaware.machines import BATCH, MEAN, OVER, PEAK, PROD, machines, small
from seatrial.suites.loadaware.reports import COVERED, report, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-060", severity="normal")
@pytest.mark.long(seconds=4)
def test_the_node_with_lower_peaks_is_preferred(trial: Trial, expect: Expect) -> None:
    """One node uses 2 of 20 cores on average and 12 at its peaks, the other one 8 all the time: pods go to the second.
    When its peaks are gone they go to the first."""
    machines(trial, "n1", "n2")
    report(trial, "n1", "2", "1Gi", peak="12")
    report(trial, "n2", "8", "1Gi", peak="8")
    settle(trial)
    trial.submit(small("a", PEAK))
    assert expect.bound("a").spec.node_name == "n2"

    report(trial, "n1", "2", "1Gi", peak="2")
    settle(trial)
    trial.submit(small("b", PEAK))
    assert expect.bound("b").spec.node_name == "n1"


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-061", severity="normal")
@pytest.mark.long(seconds=70)
def test_prod_pods_go_where_prod_pods_use_little(trial: Trial, expect: Expect) -> None:
    """A prod pod uses 8 cores of one node, and a batch pod 12 of the other: a prod pod goes to the second, a batch pod
    to the first."""
    machines(trial, "n1", "n2")
    for name, band in (("n1", PROD), ("n2", BATCH)):
        holder = pod(f"on-{name}").request(cpu=1, memory="1Gi").label(PRIORITY_CLASS_LABEL, band).scheduler(PEAK)
        trial.submit(holder.select({"kubernetes.io/hostname": name}))
        expect.running(f"on-{name}")
    settle(trial, COVERED + 5)
    report(trial, "n1", "8", "2Gi", pods={"on-n1": ("8", "2Gi", PROD)})
    report(trial, "n2", "12", "2Gi", pods={"on-n2": ("12", "2Gi", BATCH)})
    settle(trial)

    trial.submit(small("prod", PEAK, band=PROD), small("batch", PEAK))

    assert expect.bound("prod").spec.node_name == "n2"
    assert expect.bound("batch").spec.node_name == "n1"


@pytest.mark.profile(MEAN)
@pytest.mark.feature("SCORE-3.filter", "SCORE-3.score")
@pytest.mark.case("LA-062", severity="normal")
@pytest.mark.long(seconds=6)
def test_an_old_report_filters_and_does_not_score(trial: Trial, expect: Expect) -> None:
    """With filterExpiredNodeMetrics off, a node whose last report was hot takes no pod. One whose last report was idle
    does, and a node with a new report is preferred to it, though half of that is used."""
    machines(trial, "hot")
    report(trial, "hot", "18", "1Gi", age=200)
    settle(trial)
    trial.submit(small("a", MEAN))
    expect.pending("a", saying=OVER)

    machines(trial, "idle")
    report(trial, "idle", "0", "0", age=200)
    assert expect.bound("a").spec.node_name == "idle"

    machines(trial, "used")
    report(trial, "used", "10", "32Gi")
    settle(trial)
    trial.submit(small("b", MEAN))
    assert expect.bound("b").spec.node_name == "used"
