"""Defaults of LoadAwareScheduling's arguments beside those that are given. A scheduler each."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import open_subject
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.suites.loadaware.machines import PROD, machines
from seatrial.suites.loadaware.reports import report, settle
from seatrial.suites.scoring.rules import HOST, PREFERRED, expression

pytestmark = [pytest.mark.needs(Capability.VIRTUAL_TIME)]  # a scheduler of its own

DEFAULTS = "koordinator: pkg/scheduler/apis/config/v1/defaults.go@v1.7.0 (SetDefaults_LoadAwareSchedulingArgs)"
PLUGIN = "LoadAwareScheduling"


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
    ],
    ids=["none", "dominant-alone", "both"],
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
