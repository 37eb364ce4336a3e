"""Settings of the manager, and objects that change while it runs: what it writes on nodes and NodeMetrics."""

from typing import Any

import pytest

from seatrial.fixtures.manager import StartManager, StartTroubledManager, write_config
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.fault_injection.transport import deletions
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.numa import AMPLIFICATION_RATIO, CPU_NORMALIZATION_ENABLED, CPU_NORMALIZATION_RATIO
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.loadaware.normalization import COLOCATION, CONFIG, FAST, annotation, model
from seatrial.suites.loadaware.reporting import policy
from seatrial.suites.loadaware.reports import INTERVAL, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

WITHIN = 15.0  # seconds


def expect_annotation(trial: Trial, name: str, key: str, value: str) -> None:
    answer = trial.reaches(lambda: annotation(trial, name, key) == value, within=WITHIN)
    assert answer, f"expected {key}={value!r} on {name}, found {annotation(trial, name, key)!r}"


def intervals(trial: Trial, *names: str) -> list[object]:
    """The seconds between reports that the nodes' NodeMetrics ask for; None where there is none."""
    return [policy(trial, name).get("reportIntervalSeconds") for name in names]


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case(
    "LA-063",
    severity="normal",
    source="koordinator pkg/slo-controller/noderesource/plugins/resourceamplification/plugin.go: Calculate, Prepare",
)
def test_configured_amplification(trial: Trial, start_manager: StartManager) -> None:
    """With resource-amplification-config a node gets the ratio that is set, by which the ratio of its CPU model is
    multiplied; nodes for which it is not enabled get that of their model alone, or none. Nodes lose a ratio that comes
    to less than 1; when all is disabled, that of the model alone is left."""
    trial.add(
        node("n1"),
        node("n2").processor(FAST),
        node("n3").label("pool", "off"),
        node("n4").label("pool", "off").processor(FAST),
    )
    off = {"name": "off", "nodeSelector": {"matchLabels": {"pool": "off"}}, "enable": False}
    ratios = {"cpu": 1.4, "memory": 1.2}
    values: dict[str, Any] = {"enable": True, "resourceAmplificationRatio": ratios, "nodeConfigs": [off]}
    start_manager({**CONFIG, "resource-amplification-config": values})

    for name, ratio in {
        "n1": '{"cpu":1.40,"memory":1.20}',
        "n2": '{"cpu":2.10,"memory":1.20}',
        "n4": '{"cpu":1.50}',
    }.items():
        expect_annotation(trial, name, AMPLIFICATION_RATIO, ratio)
    assert not annotation(trial, "n3", AMPLIFICATION_RATIO)
    write_config(
        trial, {**CONFIG, "resource-amplification-config": {**values, "resourceAmplificationRatio": {"cpu": 0.5}}}
    )
    for name in ("n1", "n2"):
        expect_annotation(trial, name, AMPLIFICATION_RATIO, "")
    write_config(trial, {**CONFIG, "resource-amplification-config": {**values, "enable": False}})
    for name, ratio in {"n1": "", "n2": '{"cpu":1.50}'}.items():
        expect_annotation(trial, name, AMPLIFICATION_RATIO, ratio)


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-064", severity="normal")
def test_a_cpu_model_that_is_reported_late(trial: Trial, start_manager: StartManager) -> None:
    """The manager runs already when the CPU model of a node becomes known: the node gets the ratio of its model."""
    trial.add(node("late"), node("known").processor(FAST))
    start_manager(CONFIG)
    expect_annotation(trial, "known", CPU_NORMALIZATION_RATIO, "1.50")
    assert not annotation(trial, "late", CPU_NORMALIZATION_RATIO)

    model(trial, "late", FAST, threads=True)

    expect_annotation(trial, "late", CPU_NORMALIZATION_RATIO, "1.20")


@pytest.mark.feature("CPU-4.ratio")
@pytest.mark.case("LA-081", severity="normal", source="Koordinator plugins/cpunormalization; spec NUMA-R51")
def test_the_default_ratio(trial: Trial, start_manager: StartManager) -> None:
    """A CPU model that the table lacks, and one without a ratio for what is switched on, have the default ratio; a
    model with a ratio has its own, also for turbo alone, but none above 5. The label of a node enables it where the
    settings do not."""
    pool = {"matchLabels": {"pool": "off"}}
    trial.add(
        node("own").processor(FAST),
        node("turbo").processor(FAST, turbo=True),
        node("unknown").processor("Other CPU"),
        node("both").processor("Two ratios", turbo=True),
        node("large").processor("Large ratio"),
        node("label").label("pool", "off").label(CPU_NORMALIZATION_ENABLED, "True").processor(FAST),
        node("off").label("pool", "off").processor(FAST),
    )
    models = {
        FAST: {"baseRatio": 1.5},
        "Two ratios": {"hyperThreadEnabledRatio": 1.2, "turboEnabledRatio": 1.7},
        "Large ratio": {"baseRatio": 5.5},
    }
    settings = {"enable": True, "defaultRatio": 1.3, "ratioModel": models}
    off = {"name": "off", "nodeSelector": pool, "enable": False}
    start_manager({**COLOCATION, "cpu-normalization-config": {**settings, "nodeConfigs": [off]}})

    expected = {"own": "1.50", "turbo": "1.30", "unknown": "1.30", "both": "1.70", "label": "1.50", "off": "1.00"}
    for name, ratio in expected.items():
        expect_annotation(trial, name, CPU_NORMALIZATION_RATIO, ratio)
    assert not annotation(trial, "large", CPU_NORMALIZATION_RATIO)


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-082", severity="normal", source="Koordinator pkg/slo-controller/nodemetric; spec NM-1")
def test_the_policy_where_colocation_is_disabled(trial: Trial, start_manager: StartManager) -> None:
    """Of two nodes one is excluded from colocation: its NodeMetric has the defaults, and so has that of the other one
    when colocation is disabled for all."""
    trial.add(node("n1"), node("off").label("pool", "off"))
    settings = {"enable": True, "metricReportIntervalSeconds": 45}
    off = {"name": "off", "nodeSelector": {"matchLabels": {"pool": "off"}}, "enable": False}
    start_manager({"colocation-config": {**settings, "nodeConfigs": [off]}})

    def expect_intervals(*expected: int) -> None:
        answer = trial.reaches(lambda: intervals(trial, "n1", "off") == [*expected], within=WITHIN)
        assert answer, f"expected {expected} s, found {intervals(trial, 'n1', 'off')}"

    expect_intervals(45, 60)
    write_config(trial, {"colocation-config": {**settings, "enable": False, "nodeConfigs": [off]}})
    expect_intervals(60, 60)


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-065", severity="normal")
def test_broken_settings_change_no_node_metric(trial: Trial, start_manager: StartManager) -> None:
    """The manager starts with settings that cannot be parsed: a NodeMetric that is there keeps its policy, and a node
    without one gets one. Once the settings are repaired, both have the policy of the settings."""
    trial.add(node("n1"), node("n2"))
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 45}}
    trial.apply(
        {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n1"}, "spec": spec}
    )
    start_manager({"colocation-config": "{"})
    assert trial.reaches(lambda: intervals(trial, "n2") != [None], within=WITHIN), "expected a NodeMetric of n2"
    settle(trial)
    assert intervals(trial, "n1") == [45]

    write_config(trial, COLOCATION)

    assert trial.reaches(lambda: intervals(trial, "n1", "n2") == [INTERVAL] * 2, within=WITHIN), (
        f"expected {INTERVAL} s, found {intervals(trial, 'n1', 'n2')}"
    )


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-066", severity="normal")
def test_a_node_metric_that_is_deleted_is_made_again(trial: Trial, start_manager: StartManager) -> None:
    """The NodeMetric of an existing node is deleted: the manager makes a new one, with the policy of the settings."""
    trial.add(node("n1"))
    start_manager(COLOCATION)
    assert trial.reaches(lambda: intervals(trial, "n1") == [INTERVAL], within=WITHIN), intervals(trial, "n1")

    accepted(trial.call("DELETE", f"{NODE_METRICS_PATH}/n1"), "delete the NodeMetric")

    assert trial.reaches(lambda: intervals(trial, "n1") == [INTERVAL], within=WITHIN), "expected a new NodeMetric"


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-067", severity="normal")
def test_nodes_may_have_aggregates_of_their_own(trial: Trial, start_manager: StartManager) -> None:
    """An entry of nodeConfigs has durations of aggregates, the settings of the cluster have none: the selected node has
    those of the entry, another one the defaults, and both have the interval of the cluster."""
    trial.add(node("n1").label("pool", "fast"), node("n2"))
    durations = {"metricAggregatePolicy": {"durations": ["3m"]}}
    entry = {"name": "fast", "nodeSelector": {"matchLabels": {"pool": "fast"}}, **durations}
    start_manager({"colocation-config": {**COLOCATION["colocation-config"], "nodeConfigs": [entry]}})

    def result() -> list[object]:
        return [(policy(trial, name).get("nodeAggregatePolicy") or {}).get("durations") for name in ("n1", "n2")]

    assert trial.reaches(lambda: result() == [[180.0], [300.0, 600.0, 1800.0]], within=WITHIN), result()
    assert intervals(trial, "n1", "n2") == [INTERVAL] * 2


@pytest.mark.feature("QOS-1.node-metric", "CPU-4.ratio")
@pytest.mark.case("LA-069", severity="normal")
@pytest.mark.long(4)
def test_settings_that_change_while_the_manager_writes(
    trial: Trial, start_troubled_manager: StartTroubledManager
) -> None:
    """The API server's answers take three seconds, its watch does not. Settings change twice in that time: the node and
    its NodeMetric have the last ones in the end."""
    trial.add(node("n1").processor(FAST))
    link = start_troubled_manager(CONFIG)
    expect_annotation(trial, "n1", CPU_NORMALIZATION_RATIO, "1.50")
    assert trial.reaches(lambda: intervals(trial, "n1") == [INTERVAL], within=WITHIN), intervals(trial, "n1")
    settle(trial)
    link.delay = 3.0

    for seconds, ratio in ((40, 2.5), (50, 3.5)):
        models = {FAST: {"baseRatio": ratio}}
        write_config(
            trial,
            {
                "colocation-config": {"enable": True, "metricReportIntervalSeconds": seconds},
                "cpu-normalization-config": {"enable": True, "ratioModel": models},
            },
        )
        first = trial.reaches(lambda: intervals(trial, "n1") != [INTERVAL], within=WITHIN)
        assert first, "expected the first change to be written"

    assert trial.reaches(lambda: intervals(trial, "n1") == [50], within=WITHIN), intervals(trial, "n1")
    expect_annotation(trial, "n1", CPU_NORMALIZATION_RATIO, "3.50")


@pytest.mark.feature("QOS-1.node-metric")
@pytest.mark.case("LA-070", severity="normal")
@pytest.mark.long(4)
def test_a_node_metric_whose_deletion_was_refused_goes(
    trial: Trial, start_troubled_manager: StartTroubledManager
) -> None:
    """A node is removed while the API server refuses deletions of the manager: its NodeMetric goes when the API server
    accepts them again."""
    trial.add(node("n1"))
    link = start_troubled_manager(COLOCATION)
    assert trial.reaches(lambda: intervals(trial, "n1") == [INTERVAL], within=WITHIN), intervals(trial, "n1")
    link.refuse(500, deletions)
    trial.cluster.remove_node("n1")
    assert trial.reaches(lambda: link.refused >= 4, within=WITHIN), "expected the deletion to be tried"
    link.heal()

    assert trial.reaches(lambda: intervals(trial, "n1") == [None], within=WITHIN), "expected no NodeMetric"
