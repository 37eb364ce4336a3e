"""LowNodeLoad on clusters in memory: classes, order, stop conditions, reasons."""

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.descheduler.args import ArgsError, read_args
from seatrial.scheduler.descheduler.framework import Handle
from seatrial.scheduler.descheduler.plugins.anomaly import AnomalyDetector
from seatrial.scheduler.descheduler.plugins.low_node_load import (
    AnomalyCondition,
    LowNodeLoad,
    LowNodeLoadArgs,
    overutilized,
    usage_score,
)
from seatrial.scheduler.descheduler.plugins.node_load import NodeLoad, complete
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import RecordingEvictor, handle_of, node, pod, usage

ARGS = {
    "lowThresholds": {"cpu": 30},
    "highThresholds": {"cpu": 50},
    "anomalyCondition": {"timeout": "1m", "consecutiveAbnormalities": 1},
}


def cluster(*, per_pod: str = "400m", pods: int = 8, age: float = 0.0) -> tuple[ClusterState, SimClock]:
    """n1 with eight pods of 400m of 4 cores, n2 with one, n3 cordoned and empty."""
    state, clock = ClusterState(), SimClock()
    for name in ("n1", "n2"):
        state.set_node(node(name))
    state.set_node(node("n3", unschedulable=True))
    for number in range(pods):
        state.set_pod(pod(f"p{number}", "n1"))
    state.set_pod(pod("other", "n2"))
    at = clock.now() - age
    state.set_metric(usage("n1", {f"p{number}": {"cpu": per_pod} for number in range(pods)}, at=at))
    state.set_metric(usage("n2", {"other": {"cpu": "400m"}}, at=at))
    state.set_metric(usage("n3", {}, at=at))
    return state, clock


def evicted(handle: Handle) -> list[str]:
    evictor = handle.evictor
    assert isinstance(evictor, RecordingEvictor)
    return evictor.evicted


def run(handle: Handle, state: ClusterState, **changes: object) -> list[str]:
    LowNodeLoad(read_args(LowNodeLoadArgs, {**ARGS, **changes})).run(handle, list(state.nodes.values()))
    return evicted(handle)


def test_pods_go_until_the_node_is_no_longer_over() -> None:
    """80 % of n1 is used and 50 % the limit: three pods of 10 % go."""
    state, clock = cluster()
    assert len(run(handle_of(state, clock), state)) == 3


def test_the_target_takes_no_more_than_its_own_limit() -> None:
    """n1 uses 160 %; n2 takes four pods of 10 % beside its own."""
    state, clock = cluster(pods=16)
    assert len(run(handle_of(state, clock), state)) == 4


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"paused": True}, id="paused"),
        pytest.param({"dryRun": True}, id="dry-run"),
        pytest.param({"evictableNamespaces": {"exclude": ["default"]}}, id="namespace-excluded"),
        pytest.param({"podSelectors": [{"selector": {"matchLabels": {"a": "b"}}}]}, id="no-pod-selected"),
        pytest.param({"highThresholds": {"cpu": 90}}, id="not-over"),
        pytest.param({"lowThresholds": {"cpu": 5}}, id="no-target"),
        pytest.param({"numberOfNodes": 2}, id="too-few-low-nodes"),
        pytest.param({"anomalyCondition": {"consecutiveAbnormalities": 2}}, id="hot-for-one-round-only"),
    ],
)
def test_nothing_is_evicted(changes: dict[str, object]) -> None:
    state, clock = cluster()
    assert run(handle_of(state, clock), state, **changes) == []


@pytest.mark.parametrize(("age", "want"), [(179.0, 3), (180.0, 0)])
def test_a_stale_report_counts_for_nothing(age: float, want: int) -> None:
    state, clock = cluster(age=age)
    assert len(run(handle_of(state, clock), state)) == want


def test_a_second_round_on_the_same_report_moves_no_more() -> None:
    """The evicted pods are gone and their successors run on n2; both reports are those of the first round."""
    state, clock = cluster()
    handle = handle_of(state, clock)
    strategy = LowNodeLoad(read_args(LowNodeLoadArgs, ARGS))
    strategy.run(handle, list(state.nodes.values()))
    for name in evicted(handle):
        state.remove_pod(state.pods[name])
        state.set_pod(pod(f"new-{name}", "n2", cpu="400m"))
    strategy.run(handle, list(state.nodes.values()))
    assert len(evicted(handle)) == 3


def test_the_pod_that_just_covers_the_excess_goes_first() -> None:
    """E9: over by 10000m, pods of 1000, 3000, 2000 and 4000m: the fourth, second, third and first."""
    load = NodeLoad(node("n"), {"cpu": 40000}, {"cpu": 30000}, {}, {}, [], high={"cpu": 20000})
    pods = [pod(f"pod{number}") for number in (1, 2, 3, 4)]
    load.metrics = {entry.key: {"cpu": used} for entry, used in zip(pods, (1000, 3000, 2000, 4000), strict=True)}
    scores = {entry.metadata.name: usage_score(load, entry, ["cpu"], {"cpu": 1}, prod=False) for entry in pods}
    assert sorted(scores, key=scores.__getitem__, reverse=True) == ["pod4", "pod2", "pod3", "pod1"]


def test_the_reason_names_each_resource() -> None:
    """E9, TestOverUtilizedEvictionReason."""
    gib = 1 << 30
    load = NodeLoad(
        node("n"),
        {"cpu": 96000, "memory": 512 * gib},
        {"cpu": 64000, "memory": 400 * gib},
        {"cpu": 45000},
        {},
        [],
        high={"cpu": 48000, "memory": 256 * gib},
        prod_high={"cpu": 38400},
    )
    assert overutilized(load, prod=False) == (
        "node is overutilized, node cpu usage(66.67%)>threshold(50.00%), node memory usage(78.12%)>threshold(50.00%)"
    )
    assert overutilized(load, prod=True) == "node is overutilized, prod cpu usage(46.88%)>threshold(40.00%)"


def test_a_node_is_anomalous_after_more_than_so_many_rounds() -> None:
    """E9, Test_filterRealAbnormalNodes: N = 2, M = 2."""
    detector = AnomalyDetector(2, 2, 60.0)
    assert [detector.mark(0.0, abnormal=True) for _ in range(3)] == [False, False, True]
    assert [detector.mark(0.0, abnormal=False) for _ in range(3)] == [True, True, False]


def test_a_threshold_without_its_counterpart_limits_nothing() -> None:
    thresholds = complete({"cpu": 30}, {"memory": 50}, {}, {})
    assert (thresholds.high, thresholds.low) == ({"cpu": 100, "memory": 100}, {"cpu": 30, "memory": 100})


def test_thresholds_above_100_are_accepted() -> None:
    """As Koordinator does: no usage is above such a threshold."""
    assert read_args(LowNodeLoadArgs, {"highThresholds": {"cpu": 150}}).high_thresholds == {"cpu": 150}


def test_a_pool_inherits_counts_that_it_does_not_set() -> None:
    values = {
        "anomalyCondition": {"consecutiveAbnormalities": 2},
        "resourceWeights": {"cpu": 4, "memory": 0},
        "nodePools": [{"anomalyCondition": {"consecutiveNormalities": 7}}, {"resourceWeights": {"cpu": 2}}],
    }
    own, first, second = read_args(LowNodeLoadArgs, values).pools()
    conditions = [pool.anomaly_condition or AnomalyCondition() for pool in (own, first, second)]
    counts = [(condition.consecutive_abnormalities, condition.consecutive_normalities) for condition in conditions]
    assert counts == [(2, 3), (2, 7), (2, 3)]
    assert (own.resource_weights, second.resource_weights) == ({"cpu": 4, "memory": 1}, {"cpu": 2})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lowThresholds": {"cpu": 60}}, r"lowThresholds.cpu: expected at most highThresholds.cpu \(50\), found 60"),
        ({"highThresholds": {"cpu": -1}}, "highThresholds.cpu: expected a percentage of 0 and more, found -1"),
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds: expected more than 0"),
        ({"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "only one of Include/Exclude namespaces"),
        ({"highTreshholds": {}}, "unknown field `highTreshholds`"),
        ({"numberOfNodes": -1}, "numberOfNodes: expected 0 or more, found -1"),
        ({"prodHighThresholds": {"cpu": 51}}, r"prodHighThresholds.cpu: expected at most highThresholds.cpu \(50\)"),
        (
            {"useDeviationThresholds": True, "lowThresholds": {"cpu": 20}, "highThresholds": {"cpu": 10}},
            r"lowThresholds.cpu: expected at most highThresholds.cpu \(10\), found 20",
        ),
        ({"anomalyCondition": {"consecutiveNormalities": -1}}, "anomalyCondition: expected counts of 0"),
        (
            {"nodePools": [{"name": "a", "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]},
            r'nodePools\[0\].nodeSelector: "Is" is not a valid label selector operator',
        ),
        ({"nodePools": [{"prodLowThresholds": {"cpu": -3}}]}, r"nodePools\[0\].prodLowThresholds.cpu: expected a perc"),
    ],
)
def test_bad_arguments_are_refused_in_words(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(LowNodeLoadArgs, {**ARGS, **changes})
