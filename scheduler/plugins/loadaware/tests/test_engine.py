"""LoadAwareScheduling in the engine: many nodes at once, changes of reports, expiry, waiting pods."""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.scheduler.cache.columns import Batch
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.config import ConfigError
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.loadaware.tests.loadrig import LoadRig, asking, usage
from seatrial.scheduler.serving.routes import RequestContext
from seatrial.scheduler.tests.oracle import judge
from seatrial.scheduler.tests.rig import Rig

CLASSES = ("koord-prod", "koord-mid", "koord-batch", "")
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "usage": {"usageThresholds": {"cpu": 65, "memory": 80}},
    "prod": {
        "usageThresholds": {"cpu": 65},
        "prodUsageThresholds": {"cpu": 40},
        "prodUsageIncludeSys": True,
        "scoreAccordingProdUsage": True,
        "dominantResourceWeight": 3,
    },
    "aggregated": {
        "aggregated": {
            "usageThresholds": {"cpu": 60},
            "usageAggregationType": "p95",
            "scoreAggregationType": "p90",
            "scoreAggregatedDuration": "5m",
        },
        "resourceWeights": {"cpu": 2, "memory": 1},
        "estimatedSecondsAfterPodScheduled": 90,
    },
    "stale": {
        "filterExpiredNodeMetrics": False,
        "usageThresholds": {"cpu": 65},
        "supportedResources": ["example.com/x"],
    },
}


class Story:
    """Random reports, pods and times on a few nodes."""

    def __init__(self, seed: int, configuration: str) -> None:
        self.chance = random.Random(seed)  # noqa: S311 no secret
        self.rig = LoadRig(**CONFIGURATIONS[configuration])
        self.names = [f"n{number}" for number in range(8)]
        self.made = 0
        for name in self.names:
            self.machine(name)
            self.report(name)

    def machine(self, name: str) -> None:
        custom = [
            {},
            {"thresholds": json.dumps({"usageThresholds": {"cpu": 20}})},
            {"raw": '{"cpu":"48"}'},
            {
                "thresholds": json.dumps(
                    {
                        "aggregatedUsage": {
                            "usageThresholds": {"memory": 40},
                            "usageAggregationType": "p99",
                            "usageAggregatedDuration": "5m",
                        }
                    }
                )
            },
        ]
        self.rig.machine(name, **self.chance.choice(custom))

    def pod(self) -> PodBuilder:
        self.made += 1
        builder = asking(f"p{self.made}", self.chance.choice((1, 4, 12)), self.chance.choice(("4Gi", "64Gi")))
        named = self.chance.choice(CLASSES)
        return builder.label("koordinator.sh/priority-class", named) if named else builder

    def usage(self) -> dict[str, Any]:
        return usage(f"{self.chance.randrange(20_000, 96_000)}m", f"{self.chance.randrange(480)}Gi")

    def report(self, name: str = "") -> None:
        name = name or self.chance.choice(self.names)
        there = [info.pod.metadata.name for info in self.rig.core.cache.nodes[name].pods.values()]
        pods = {
            pod: (f"{self.chance.randrange(9000)}m", "3Gi", self.chance.choice(CLASSES))
            for pod in there
            if self.chance.random() < 0.7
        }
        aggregates = {
            duration: {kind: self.usage() for kind in ("p90", "p95", "p99")}
            for duration in ("5m", "30m")
            if self.chance.random() < 0.7
        }
        age = self.chance.choice((0.0, 30.0, 200.0))
        self.rig.report(name, self.usage(), age=age, pods=pods, aggregates=aggregates, system=usage("3", "2Gi"))

    def step(self) -> None:
        match self.chance.randrange(8):
            case 0 | 1 | 2 | 3:
                self.report()
            case 4:
                self.rig.clock.advance(self.chance.choice((1, 20, 90)))
            case 5:
                self.rig.core.intake.remove_node_metric(self.chance.choice(self.names))
            case 6:
                self.machine(self.chance.choice(self.names))
            case _:
                placed = [info for node in self.rig.core.cache.nodes.values() for info in node.pods.values()]
                if placed:
                    self.rig.core.intake.remove_pod(self.chance.choice(placed).uid)


@pytest.mark.parametrize("configuration", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("seed", range(4))
def test_decisions_equal_those_of_the_plain_methods(seed: int, configuration: str) -> None:
    """120 pods between random events; each decision is compared with one from scratch, node by node."""
    story = Story(seed, configuration)
    core = story.rig.core
    (runner,) = core.runners.values()
    bound = 0
    for _ in range(120):
        for _ in range(story.chance.randrange(3)):
            story.step()
        pod = story.rig.pod(story.pod())
        expected = judge(core, runner, PodInfo(pod, core.cache.classes.of(pod)))
        core.intake.set_pod(pod)
        entry = next(decision for decision in _decided(story.rig, pod.metadata.uid))
        assert (entry.node if isinstance(entry, Bind) else "") == expected.node
        if isinstance(entry, Bind):
            bound += 1
            core.bound(pod.metadata.uid)
        else:
            assert expected.message
            assert entry.message.startswith(expected.message.rstrip("."))
            core.intake.remove_pod(pod.metadata.uid)
    assert 10 < bound < 120, "the story must have both placements and rejections"


def _decided(rig: LoadRig, uid: str) -> Iterator[Bind | Reject]:
    while rig.core.busy:
        for decision in rig.core.decide():
            if isinstance(decision, Bind | Reject) and decision.info.uid == uid:
                yield decision
                return


@pytest.mark.parametrize("configuration", sorted(CONFIGURATIONS))
def test_batch_methods_equal_plain_ones(configuration: str) -> None:
    """All forms of the filter and the score, for all classes on all nodes."""
    story = Story(7, configuration)
    plugin, columns = story.rig.plugin, story.rig.core.cache.columns
    for number in range(40):
        placed = story.rig.running(story.pod(), story.chance.choice(story.names))
        assert placed.spec.node_name
        story.step()
        story.report()
        if number % 8:
            continue
        states, infos = [], []
        for _ in range(5):
            info, state = story.rig.info(story.pod()), CycleState()
            plugin.pre_filter(state, info.pod)
            states.append(state)
            infos.append(info)
        nodes = [story.rig.core.cache.nodes[columns.names[row]] for row in range(columns.count)]
        plain = [
            [plugin.filter(state, info.pod, node).ok for node in nodes]
            for state, info in zip(states, infos, strict=True)
        ]
        scores = [
            [plugin.score(state, info.pod, node) for node in nodes] for state, info in zip(states, infos, strict=True)
        ]
        stacked, batch = plugin.stack(states), Batch(columns, None)
        passing, points = plugin.filter_batch(stacked, batch), plugin.score_batch(stacked, batch)
        assert (np.ones((5, len(nodes)), bool) if passing is None else passing).tolist() == plain
        assert (np.zeros((5, len(nodes)), int) if points is None else points).tolist() == scores
        for place, node in enumerate(nodes):
            assert plugin.filter_classes_batch(stacked, node).tolist() == [row[place] for row in plain]
            assert plugin.score_classes_batch(stacked, node).tolist() == [row[place] for row in scores]


def test_a_report_touches_one_row() -> None:
    rig = LoadRig(usageThresholds={"cpu": 65})
    for number in range(20):
        rig.machine(f"n{number}")
    columns = rig.core.cache.columns
    before = columns.changes
    rig.report("n7", usage("40"))
    assert columns.changed_since(before) == [columns.rows["n7"]]
    before = columns.changes
    rig.report("n7", usage("40"))  # the same again
    assert columns.changed_since(before) == []


def test_a_report_expires() -> None:
    """The report is 180 s old: the node takes no pod, until the next report."""
    rig = LoadRig(usageThresholds={"cpu": 65})
    rig.machine()
    rig.report(node=usage("1"))
    rig.clock.advance(179)
    rig.submit(asking("a", 1))
    rig.run()
    assert rig.where("a") == "n1"
    rig.clock.advance(1)
    rig.submit(asking("b", 1))
    rig.run()
    assert rig.where("b") == ""
    assert rig.message("b").startswith("0/1 nodes are available: 1 node(s) nodeMetric expired.")
    rig.report(node=usage("1"))
    rig.clock.advance(30)
    rig.run()
    assert rig.where("b") == "n1"


def test_a_pod_that_waits_for_a_hot_node_is_placed_when_it_cools() -> None:
    rig = LoadRig(usageThresholds={"cpu": 65})
    rig.machine()
    rig.report(node=usage("70"))
    rig.submit(asking("a", 1))
    rig.run()
    assert "1 node(s) cpu usage exceed threshold" in rig.message("a")
    rig.clock.advance(20)
    rig.report(node=usage("69"))
    rig.clock.advance(2)
    rig.run()
    assert rig.where("a") == ""
    rig.report(node=usage("30"))
    rig.clock.advance(2)
    rig.run()
    assert rig.where("a") == "n1"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        pytest.param({"node": usage("many")}, "NodeMetric n1: 'many' is not a quantity", id="no-quantity"),
        pytest.param({"node": usage("-3")}, "NodeMetric n1: expected usage of 0 and more, found", id="negative"),
    ],
)
def test_a_report_that_cannot_be_read_is_ignored(report: dict[str, Any], why: str) -> None:
    """The report before it counts on."""
    rig = LoadRig(usageThresholds={"cpu": 65})
    rig.machine()
    rig.report(node=usage("70"))
    rig.report(**report)
    assert rig.complaints()[-1].startswith(why)
    assert rig.rejection(asking(cpu=1)) == "node(s) cpu usage exceed threshold"
    assert rig.plugin.loads.counts() == {"current": 1, "expired": 0, "empty": 0, "missing": 0}
    assert rig.plugin.loads.refused == 1


def test_an_annotation_that_cannot_be_read_is_said_and_ignored() -> None:
    rig = LoadRig(usageThresholds={"cpu": 65})
    rig.machine(thresholds="{", raw='{"cpu":"much"}')
    text = "\n".join(rig.complaints())
    assert "annotation scheduling.koordinator.sh/usage-thresholds: expected thresholds as JSON" in text
    assert "annotation node.koordinator.sh/raw-allocatable: 'much' is not a quantity" in text
    rig.report(node=usage("70"))
    assert rig.rejection(asking(cpu=1)) == "node(s) cpu usage exceed threshold"


def test_an_explanation_has_the_rejection_and_the_score() -> None:
    """`seatrial explain` shows both: n1 is hot, n2 has 85 percent of CPU and 95 of memory free with the pod."""
    rig = LoadRig(usageThresholds={"cpu": 65})
    for name in ("n1", "n2"):
        rig.machine(name)
    rig.report("n1", usage("80"))
    rig.report("n2", usage())
    (runner,) = rig.core.runners.values()
    explanation = explain(runner, rig.info(asking()))
    assert {name: status.message for name, status in explanation.rejected.items()} == {
        "n1": "node(s) cpu usage exceed threshold"
    }
    assert explanation.rejected["n1"].plugin == "LoadAwareScheduling"
    assert [(row.node, row.by_plugin["LoadAwareScheduling"]) for row in explanation.feasible] == [("n2", 90)]


def test_the_service_and_metrics() -> None:
    """One pod that is not reported, on one of two nodes; the other has an old report."""
    rig = LoadRig(estimatedScalingFactors={"cpu": 100, "memory": 100})
    for name in ("n1", "n2"):
        rig.machine(name)
    rig.running(asking("there", 4, "8Gi"), "n1")
    rig.report("n1", usage("2", "1Gi"))
    rig.report("n2", age=500)
    handle = rig.core.handle
    pattern = "plugins/LoadAwareScheduling/nodes/:nodeName"
    (answer,) = (handler for text, handler in handle.routes if text == pattern)
    body = json.loads(answer(RequestContext("GET", "", {"nodeName": "n1"}, {})).body)
    assert body["nodeUsage"] == {"cpu": "2", "memory": "1Gi"}
    assert body["nodeDelta"] == body["nodeEstimated"] == {"cpu": "4", "memory": "8Gi"}
    assert body["nodeDeltaPods"] == ["default/there"]
    assert answer(RequestContext("GET", "", {"nodeName": "absent"}, {})).code == 404
    lines = [line for families in handle.exports for *_, samples in families() for line in samples]
    assert 'scheduler_node_metric_updates_total{result="used"} 2' in lines
    assert 'scheduler_node_load_nodes{state="current"} 1' in lines
    assert 'scheduler_node_load_nodes{state="expired"} 1' in lines


def test_profiles_without_the_plugin_follow_no_reports() -> None:
    """Such a scheduler has no watch of NodeMetrics, no route and no column."""
    rig = Rig()
    handle = rig.core.handle
    assert not any(watch.path == NODE_METRICS_PATH for watch in handle.watches)
    assert not any("LoadAware" in pattern for pattern, _ in handle.routes)
    assert any(watch.path == NODE_METRICS_PATH for watch in LoadRig().core.handle.watches)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        pytest.param({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds: expected 1 or more, found 0"),
        pytest.param({"usageThresholds": {"cpu": 101}}, "usageThresholds[cpu]: expected 0 to 100, found 101"),
        pytest.param({"prodUsageThresholds": {"cpu": -1}}, "prodUsageThresholds[cpu]: expected 0 to 100, found -1"),
        pytest.param({"resourceWeights": {"cpu": 0}}, "resourceWeights[cpu]: expected 1 to 100, found 0"),
        pytest.param({"dominantResourceWeight": 101}, "dominantResourceWeight: expected 0 to 100, found 101"),
        pytest.param(
            {"estimatedScalingFactors": {"cpu": 0}}, "estimatedScalingFactors[cpu]: expected 1 to 100, found 0"
        ),
        pytest.param({"resourceWeights": {"x/y": 1}}, "expected a factor for x/y, which has a weight; found none"),
        pytest.param({"estimator": "magic"}, "estimator: expected defaultEstimator, found 'magic'"),
        pytest.param(
            {"aggregated": {"usageAggregationType": "p42"}},
            "aggregated.usageAggregationType: expected one of avg, p50, p90, p95, p99, found 'p42'",
        ),
        pytest.param(
            {"aggregated": {"scoreAggregatedDuration": "soon"}},
            "aggregated.scoreAggregatedDuration: expected a duration such as 15s or 1m30s, found 'soon'",
        ),
        pytest.param({"usageTresholds": {}}, "usageTresholds"),
    ],
)
def test_arguments_refused(args: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LoadRig(**args)
    assert why in str(refused.value)
