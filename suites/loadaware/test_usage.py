"""Load-aware scheduling: usage that is reported in NodeMetrics decides, not requests.

The profiles score by usage alone. Nodes have 20 cores and 64 Gi.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.profiles import SHIPPED
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.slo import USAGE_THRESHOLDS
from seatrial.scheduler.api.wire import to_json
from seatrial.suites.loadaware.machines import MEAN, OVER, OVER_PEAK, PEAK, PROD, RELEASED, machines, small
from seatrial.suites.loadaware.reports import COVERED, annotate, report, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-001", severity="critical")
@pytest.mark.long(seconds=8)
def test_a_hot_node_takes_no_pod_until_it_has_cooled(trial: Trial, expect: Expect) -> None:
    """The only node uses 70 percent of its CPU, above its threshold of 65, and has all requests free."""
    machines(trial, "n1")
    report(trial, "n1", "14", "8Gi")
    settle(trial)
    trial.submit(small("a"))
    expect.pending("a", saying=OVER)
    report(trial, "n1", "13500m", "8Gi")
    settle(trial, 5)
    expect.pending("a", saying=OVER)
    report(trial, "n1", "4", "8Gi")
    expect.bound("a")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-002", severity="critical")
@pytest.mark.parametrize(
    ("cpu", "memory", "saying"),
    [
        pytest.param("13080m", "8Gi", "", id="65.4-percent-rounds-to-65"),
        pytest.param("13200m", "8Gi", OVER, id="66-percent"),
        pytest.param("1", "62Gi", "node(s) memory usage exceed threshold", id="memory-97-percent"),
    ],
)
def test_thresholds_are_percentages_of_each_resource(
    trial: Trial, expect: Expect, cpu: str, memory: str, saying: str
) -> None:
    """CPU may be used up to 65 percent, rounded, and memory up to 95 percent."""
    machines(trial, "n1")
    report(trial, "n1", cpu, memory)
    settle(trial)
    trial.submit(pod("a").label(PRIORITY_CLASS_LABEL, "koord-free").scheduler(RELEASED))
    if saying:
        expect.pending("a", saying=saying)
    else:
        expect.bound("a")
        expect.refusal()


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-003", severity="critical")
@pytest.mark.long(seconds=5)
def test_pods_that_are_not_reported_yet_count_with_estimates(trial: Trial, expect: Expect) -> None:
    """Batches of pods do not overrun a node between two reports: each counts with 85 percent of its 4 cores.

    Three make 10.2 of 20 cores, 51 percent; a fourth would make 68. All five would fit by their requests.
    """
    machines(trial, "n1")
    report(trial, "n1", "0", "0")
    settle(trial)
    names = [f"p{number}" for number in range(5)]
    trial.submit(*(pod(name).request(cpu=4, memory="1Gi").scheduler(PEAK) for name in names))
    held = trial.reaches(lambda: len(placed(trial)) == 3, within=30)
    assert held, f"expected three of the pods on the node, found {placed(trial)}"
    expect.stable(seconds=3)
    assert len(placed(trial)) == 3


def placed(trial: Trial) -> list[str]:
    return sorted(pod.metadata.name for pod in trial.pods() if pod.spec.node_name)


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-004", severity="normal")
def test_an_old_report_closes_a_node(trial: Trial, expect: Expect) -> None:
    """The report of an idle node is 200 s old, its limit is 180 s; a fresh one opens the node."""
    machines(trial, "n1")
    report(trial, "n1", "1", "1Gi", age=200)
    settle(trial)
    trial.submit(small("a"))
    expect.pending("a", saying="node(s) nodeMetric expired")
    report(trial, "n1", "1", "1Gi")
    expect.bound("a")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-010", severity="normal")
def test_a_node_without_reports_takes_pods(trial: Trial, expect: Expect) -> None:
    """Of a hot node and one that has no NodeMetric, pods go to the second."""
    machines(trial, "n1", "n2")
    report(trial, "n1", "18", "1Gi")
    settle(trial)
    trial.submit(*(small(f"p{number}") for number in range(3)))
    for number in range(3):
        assert expect.bound(f"p{number}").spec.node_name == "n2"


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-011", severity="normal")
def test_a_pod_that_hot_nodes_keep_away_goes_to_a_new_node(trial: Trial, expect: Expect) -> None:
    """A pod waits because the only node is hot; a node that is added takes it, at the latest with its first report."""
    machines(trial, "n1")
    report(trial, "n1", "18", "1Gi")
    settle(trial)
    trial.submit(small("a"))
    expect.pending("a", saying=OVER)
    machines(trial, "n2")
    report(trial, "n2", "1", "1Gi")  # a NodeMetric wakes pods that Koordinator's plugin refused, and a node does not
    assert expect.bound("a").spec.node_name == "n2"


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-005", severity="normal")
def test_peaks_decide_where_the_profile_says_so(trial: Trial, expect: Expect) -> None:
    """A node that is idle on average had peaks of 90 percent; the profile limits p95 over 5 minutes to 65."""
    machines(trial, "n1")
    report(trial, "n1", "1", "1Gi", peak="18")
    settle(trial)
    trial.submit(small("a", PEAK))
    expect.pending("a", saying=OVER_PEAK)
    report(trial, "n1", "1", "1Gi", peak="3")
    expect.bound("a")


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-035", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_node_has_thresholds_of_its_own(trial: Trial, expect: Expect) -> None:
    """A node's annotation limits p95 without a duration, so that the longest counts; the profile limits 5 minutes."""
    machines(trial, "n1")
    report(trial, "n1", "1", "1Gi", peak="3", long_peak="18")
    settle(trial)
    trial.submit(small("by-profile", PEAK))
    expect.bound("by-profile")
    own = {"aggregatedUsage": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95"}}
    annotate(trial, "/api/v1/nodes/n1", USAGE_THRESHOLDS, to_json(own).decode())
    settle(trial)
    trial.submit(small("by-node", PEAK))
    expect.pending("by-node", saying=OVER_PEAK)
    report(trial, "n1", "1", "1Gi", peak="18", long_peak="3")
    expect.bound("by-node")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-036", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_pod_that_is_reported_counts_once(trial: Trial, expect: Expect) -> None:
    """8 of 20 cores are used; a new pod's estimate of 6.8 cores makes 74 percent, also where a report has the usage of
    a pod of its name in another namespace. One that has its own says that its 8 cores are among these: 40 percent."""
    machines(trial, "n1")
    report(trial, "n1", "0", "0")
    settle(trial)
    trial.submit(pod("holder").request(cpu=8, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(RELEASED))
    expect.running("holder")
    report(trial, "n1", "8", "4Gi")
    settle(trial)
    trial.submit(small("a"))
    expect.pending("a", saying=OVER)
    usage = {"resources": {"cpu": "8", "memory": "1Gi"}}
    namesake = {"namespace": f"{trial.name}-other", "name": "holder", "priority": PROD, "podUsage": usage}
    report(trial, "n1", "8", "4Gi", podsMetric=[namesake])
    settle(trial)
    trial.submit(small("b"))
    expect.pending("b", saying=OVER)
    report(trial, "n1", "8", "4Gi", pods={"holder": ("8", "1Gi", PROD)})
    expect.bound("a")


@pytest.mark.profile(PEAK)
@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-037", severity="critical")
def test_estimates_count_limits_and_end_with_their_pods(trial: Trial, expect: Expect) -> None:
    """A pod that requests 1 core and may use 14 is estimated at 11.9 of 20; one of 4 more would make 76 percent. When
    the first is gone, the second is placed by the same report."""
    machines(trial, "n1")
    report(trial, "n1", "0", "0")
    settle(trial)
    first = pod("first").request(cpu=1, memory="1Gi").scheduler(PEAK)
    first.manifest["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "14"}
    trial.submit(first)
    expect.running("first")
    trial.submit(pod("second").request(cpu=4, memory="1Gi").scheduler(PEAK))
    expect.pending("second", saying=OVER_PEAK)
    trial.delete("first")
    expect.bound("second")


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.score")
@pytest.mark.case("LA-006", severity="critical")
@pytest.mark.long(seconds=70)
def test_the_node_with_less_usage_is_preferred(trial: Trial, expect: Expect) -> None:
    """One node is requested to 80 percent and idle, the other has no requests and is half used."""
    machines(trial, "n1", "n2")
    holder = pod("holder").request(cpu=16, memory="48Gi").scheduler(RELEASED)
    trial.submit(holder.select({"kubernetes.io/hostname": "n1"}))
    expect.running("holder")
    settle(trial, COVERED + 5)
    report(trial, "n1", "1", "1Gi", pods={"holder": ("1", "1Gi", PROD)})
    report(trial, "n2", "10", "32Gi")
    settle(trial)
    trial.submit(*(small(f"p{number}") for number in range(4)))
    for number in range(4):
        assert expect.bound(f"p{number}").spec.node_name == "n1"


@pytest.mark.feature("SCORE-3.dominant-weight")
@pytest.mark.case("LA-007", severity="critical")
@pytest.mark.parametrize(
    ("profile", "where"),
    [
        # Free percent of CPU and memory: n1 40 and 90, n2 60 and 60.
        pytest.param(RELEASED, "n2", id="dominant-resource-counts-56-against-60", marks=pytest.mark.profile(RELEASED)),
        pytest.param(MEAN, "n1", id="mean-65-against-60", marks=pytest.mark.profile(MEAN)),
    ],
)
def test_the_most_used_resource_has_a_weight(trial: Trial, expect: Expect, profile: str, where: str) -> None:
    """One node has much memory and little CPU left, the other has both in equal parts."""
    machines(trial, "n1", "n2")
    report(trial, "n1", "12", "6Gi")
    report(trial, "n2", "8", "25Gi")
    settle(trial)
    trial.submit(small("a", profile))
    assert expect.bound("a").spec.node_name == where
    expect.refusal()


@pytest.mark.feature("SCORE-3.prod-usage")
@pytest.mark.case("LA-008", severity="critical")
@pytest.mark.long(seconds=70)
@pytest.mark.parametrize(
    ("profile", "bound"),
    [
        pytest.param(RELEASED, False, id="system-counts-60", marks=pytest.mark.profile(RELEASED)),
        pytest.param(MEAN, True, id="prod-pods-alone-40", marks=pytest.mark.profile(MEAN)),
    ],
)
def test_the_system_s_usage_counts_as_prod_usage(trial: Trial, expect: Expect, profile: str, bound: bool) -> None:
    """Prod pods use 40 percent of the CPU and the system 20; prod usage is limited to 55 percent, and all to 65."""
    machines(trial, "n1")
    trial.submit(pod("holder").request(cpu=1, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(profile))
    expect.running("holder")
    settle(trial, COVERED + 5)
    report(trial, "n1", "12", "4Gi", system=("4", "2Gi"), pods={"holder": ("8", "2Gi", PROD)})
    settle(trial)
    trial.submit(small("batch", profile), small("prod", profile, band=PROD))
    expect.bound("batch")
    if bound:
        expect.bound("prod")
    else:
        expect.pending("prod", saying=OVER)
    expect.refusal()


@pytest.mark.profile(RELEASED)
@pytest.mark.feature("SCORE-3.configuration-load-aware")
@pytest.mark.case("LA-009", severity="critical")
@pytest.mark.long(seconds=70)
def test_the_released_configuration(trial: Trial, expect: Expect) -> None:
    """The arguments of the announcement, and what they do: pods avoid the node whose prod pods and system use much.

    Prod usage with the system's: n1 60 percent, n2 50. All usage: n1 60 percent, n2 64, so other scores prefer n1.
    """
    folder = suites_folder()
    announced = arguments(folder / "manifests/v1.7/config/load-aware.config.yaml", "koord-scheduler")
    assert announced == arguments(folder / SHIPPED, RELEASED), "the profile must have the announcement's arguments"
    machines(trial, "n1", "n2")
    for name in ("n1", "n2"):
        holder = pod(f"on-{name}").request(cpu=1, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD)
        holder.scheduler(RELEASED)
        trial.submit(holder.select({"kubernetes.io/hostname": name}))
        expect.running(f"on-{name}")
    settle(trial, COVERED + 5)
    report(trial, "n1", "12", "4Gi", system=("4", "2Gi"), pods={"on-n1": ("8", "2Gi", PROD)})
    report(trial, "n2", "12800m", "4Gi", system=("2", "2Gi"), pods={"on-n2": ("8", "2Gi", PROD)})
    settle(trial)
    trial.submit(*(small(f"p{number}", band=PROD) for number in range(3)))
    for number in range(3):
        assert expect.bound(f"p{number}").spec.node_name == "n2"
    trial.submit(small("batch"))
    assert expect.bound("batch").spec.node_name == "n1"


def arguments(path: Path, profile: str) -> dict[str, Any]:
    """The arguments of LoadAwareScheduling in a configuration file."""
    profiles = yaml.safe_load(path.read_bytes())["profiles"]
    entries = next(item["pluginConfig"] for item in profiles if item["schedulerName"] == profile)
    return next(dict(entry["args"]) for entry in entries if entry["name"] == "LoadAwareScheduling")
