"""Defaults of LoadAwareScheduling's arguments beside those that are given. A scheduler each."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import open_subject
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.slo import AGGREGATIONS, NODE_METRICS_PATH
from seatrial.suites.loadaware.machines import OVER, PROD, admitted, machines, small
from seatrial.suites.loadaware.reports import COVERED, report, settle
from seatrial.suites.scoring.rules import HOST, PREFERRED, expression

pytestmark = [pytest.mark.needs(Capability.VIRTUAL_TIME)]  # a scheduler of its own

DEFAULTS = "koordinator: pkg/scheduler/apis/config/v1/defaults.go@v1.7.0 (SetDefaults_LoadAwareSchedulingArgs)"
PLUGIN = "LoadAwareScheduling"
POWER = "example.com/power"


@contextmanager
def scheduling(
    backend: ClusterBackend, subject: str, folder: Path, args: Mapping[str, object], *, affinity: bool = False
) -> Iterator[Trial]:
    """A cluster of its own, and a scheduler that scores by load alone, with these arguments; `affinity`: and by
    preferred node affinity, with a twelfth of the weight."""
    others = [{"name": "NodeAffinity", "weight": 1}] if affinity else []
    plugins = {
        **{key: {"enabled": [{"name": PLUGIN}]} for key in ("preFilter", "filter", "reserve")},
        "score": {"enabled": [{"name": PLUGIN, "weight": 12}, *others], "disabled": [{"name": "*"}]},
    }
    arguments = [{"name": PLUGIN, "args": dict(args)}]
    profile = {"schedulerName": KOORD_SCHEDULER, "plugins": plugins, "pluginConfig": arguments}
    config = folder / "config.yaml"
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "profiles": [profile]}))
    with backend.start() as cluster, open_subject(subject, cluster, seed=0, config=config):
        yield Trial(cluster, "case")


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-116", severity="normal", source=DEFAULTS)
@pytest.mark.parametrize(
    ("args", "cpu", "memory", "saying"),
    [
        ({}, "14", "4Gi", "cpu usage exceed"),
        ({}, "2", "50Gi", "memory usage exceed"),
        ({"usageThresholds": {"memory": 95}}, "14", "4Gi", ""),
        ({"usageThresholds": {"cpu": 65}}, "2", "50Gi", ""),
        ({"estimatedScalingFactors": {"cpu": 50}}, "2", "50Gi", "memory usage exceed"),
        ({"estimatedScalingFactors": {"memory": 50}}, "2", "50Gi", ""),
    ],
    ids=["none-cpu", "none-memory", "threshold-memory", "threshold-cpu", "factor-cpu", "factor-memory"],
)
def test_defaults_beside_arguments(  # noqa: PLR0917
    seatrial_backend: ClusterBackend,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    args: Mapping[str, object],
    cpu: str,
    memory: str,
    saying: str,
) -> None:
    """A node uses 14 of 20 cores, or 50 of 64 Gi, and a pod asks for a core and 20 Gi. Thresholds that are given
    replace all defaults, 65 percent of the CPU and 95 of the memory; factors replace their own default alone."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        expect = Expect(trial)
        machines(trial, "n1")
        report(trial, "n1", cpu, memory)
        settle(trial)
        trial.submit(
            pod("a").request(cpu=1, memory="20Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(KOORD_SCHEDULER)
        )
        if saying:
            expect.pending("a", saying=saying)
        else:
            expect.bound("a")


@pytest.mark.feature("SCORE-3.dominant-weight")
@pytest.mark.case("LA-117", severity="normal", source=DEFAULTS)
@pytest.mark.parametrize(
    ("args", "home"),
    [
        ({}, "n2"),
        ({"dominantResourceWeight": 1}, "n1"),
        ({"dominantResourceWeight": 1, "resourceWeights": {"cpu": 1, "memory": 1}}, "n2"),
        ({"resourceWeights": {"cpu": 9, "memory": 1}}, "n1"),
        ({"dominantResourceWeight": 10, "resourceWeights": {"memory": 1}}, "n1"),
    ],
    ids=["none", "dominant-alone", "both", "most-for-cpu", "dominant-without-weight"],
)
def test_weights_beside_that_of_the_dominant_resource(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, args: Mapping[str, object], home: str
) -> None:
    """Half of the CPU and memory of n1 is free, and of n2 two fifths of the CPU and nine tenths of the memory: n2 has
    more on the whole, and n1 of what is scarcest. The dominant weight alone is without the default weights."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        machines(trial, "n1", "n2")
        report(trial, "n1", "10", "32Gi")
        report(trial, "n2", "12", "6Gi")
        settle(trial)
        trial.submit(pod("a").request(cpu="10m", memory="10Mi").scheduler(KOORD_SCHEDULER))
        assert Expect(trial).bound("a").spec.node_name == home


@pytest.mark.feature("SCORE-3.dominant-weight")
@pytest.mark.case(
    "LA-118", severity="normal", source="spec FWK-R61; loadaware/load_aware.go (loadAwareSchedulingScorer)"
)
def test_the_dominant_weight_is_one_of_all_weights(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """The same nodes score 49 and 56 with the three weights: twelve times the difference is less than the node
    affinity that the pod prefers n1 by."""
    subject = pytestconfig.getoption("--seatrial-subject")
    args = {"dominantResourceWeight": 1, "resourceWeights": {"cpu": 1, "memory": 1}}
    prefers = {"weight": 1, "preference": {"matchExpressions": [expression(HOST, "In", "n1")]}}
    with scheduling(seatrial_backend, subject, tmp_path, args, affinity=True) as trial:
        machines(trial, "n1", "n2")
        report(trial, "n1", "10", "32Gi")
        report(trial, "n2", "12", "6Gi")
        settle(trial)
        builder = pod("a").request(cpu="10m", memory="10Mi").scheduler(KOORD_SCHEDULER)
        builder.manifest["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: [prefers]}}
        trial.submit(builder)
        assert Expect(trial).bound("a").spec.node_name == "n1"


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-120", severity="normal", source="spec FWK-R52; loadaware/helper.go (isNodeMetricExpired)")
@pytest.mark.parametrize(("seconds", "age", "saying"), [(60, 100, "nodeMetric expired"), (600, 300, "")])
def test_reports_expire_when_the_arguments_say_so(  # noqa: PLR0917
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, seconds: int, age: int, saying: str
) -> None:
    """An idle node has a report of this age: it is older than the seconds of the arguments, or it is not."""
    subject = pytestconfig.getoption("--seatrial-subject")
    args = {"nodeMetricExpirationSeconds": seconds}
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        machines(trial, "n1")
        report(trial, "n1", "1", "1Gi", age=age)
        settle(trial)
        trial.submit(small("a", KOORD_SCHEDULER))
        admitted(Expect(trial), "a", saying, scheduler=KOORD_SCHEDULER)


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-121", severity="normal", source="spec FWK-R56; loadaware/helper.go (getTargetAggregatedUsage)")
@pytest.mark.parametrize("kind", ["avg", "p50", "p90", "p99"])
def test_each_type_of_aggregates_counts(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, kind: str
) -> None:
    """n1 is hot by the aggregate of the arguments alone, and n2 by all others: the pod goes to n2."""
    subject = pytestconfig.getoption("--seatrial-subject")
    args = {"aggregated": {"usageThresholds": {"cpu": 65}, "usageAggregationType": kind}}
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        machines(trial, "n1", "n2")
        for name in ("n1", "n2"):
            usage = {
                each: {"resources": {"cpu": "18" if (each == kind) == (name == "n1") else "1", "memory": "1Gi"}}
                for each in AGGREGATIONS
            }
            mean = {"resources": {"cpu": "1", "memory": "1Gi"}}
            aggregates = [{"duration": "5m0s", "usage": usage}]
            report(trial, name, "1", "1Gi", nodeMetric={"nodeUsage": mean, "aggregatedNodeUsages": aggregates})
        settle(trial)
        trial.submit(small("a", KOORD_SCHEDULER))
        assert Expect(trial).bound("a").spec.node_name == "n2"


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-122", severity="normal", source="spec FWK-R55, FWK-R59; loadaware/pod_assign_cache.go")
@pytest.mark.parametrize(
    ("args", "after", "saying"),
    [
        ({}, COVERED + 5, ""),
        ({}, COVERED - 20, OVER),
        ({"estimatedSecondsAfterPodScheduled": 600}, COVERED + 5, OVER),
        ({"estimatedSecondsAfterInitialized": 600}, COVERED + 5, OVER),
    ],
    ids=["covered", "within-60-s", "600-s-after-it-was-scheduled", "600-s-after-it-was-initialized"],
)
def test_how_long_estimates_count_by_the_arguments(  # noqa: PLR0917
    seatrial_backend: ClusterBackend,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    args: Mapping[str, object],
    after: int,
    saying: str,
) -> None:
    """A pod of 12 cores, estimated at 10.2, uses 1 of 6 cores by a report of a NodeMetric without a policy, whose
    interval is 60 s. It counts with its estimate until it was there for that time, or as long as the arguments say."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        expect = Expect(trial)
        machines(trial, "n1")
        trial.submit(
            pod("holder").request(cpu=12, memory="1Gi").label(PRIORITY_CLASS_LABEL, PROD).scheduler(KOORD_SCHEDULER)
        )
        expect.running("holder")
        settle(trial, after)
        report(trial, "n1", "6", "4Gi", pods={"holder": ("1", "1Gi", PROD)})
        spec = {"spec": {"metricCollectPolicy": None}}
        accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/n1", spec), "remove the policy of n1")
        settle(trial)
        trial.submit(small("a", KOORD_SCHEDULER))
        admitted(expect, "a", saying, scheduler=KOORD_SCHEDULER)


@pytest.mark.feature("SCORE-3.filter")
@pytest.mark.case("LA-123", severity="normal", source="spec FWK-R49, FWK-R53; loadaware/helper.go")
@pytest.mark.parametrize(
    ("args", "saying"),
    [
        ({"usageThresholds": {POWER: 50}}, "usage"),
        ({"prodUsageThresholds": {POWER: 50}, "prodUsageIncludeSys": True}, "usage"),
        ({"aggregated": {"usageThresholds": {POWER: 50}, "usageAggregationType": "p95"}}, "aggregated usage"),
    ],
    ids=["all", "prod", "aggregated"],
)
def test_any_resource_may_have_a_threshold(
    seatrial_backend: ClusterBackend,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    args: Mapping[str, object],
    saying: str,
) -> None:
    """The system uses 60 of 100 units of n1, and half may be used. n2 lacks the resource, and takes the pod."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, args) as trial:
        trial.add(node("n1").cpu(20).memory("64Gi").extended(POWER, 100))
        machines(trial, "n2")
        used = {"resources": {"cpu": "1", "memory": "1Gi", POWER: "60"}}
        report(trial, "n1", "1", "1Gi", nodeMetric={"nodeUsage": used, "systemUsage": used})
        report(trial, "n2", "1", "1Gi")
        settle(trial)
        a, b = (small(name, KOORD_SCHEDULER, band=PROD) for name in "ab")
        trial.submit(a, b.select({HOST: "n1"}))
        assert Expect(trial).bound("a").spec.node_name == "n2"
        Expect(trial).pending("b", saying=f"1 node(s) {POWER} {saying} exceed threshold")
