"""The strategies of kubernetes-sigs/descheduler on clusters in memory."""

from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.descheduler.args import ArgsError, read_args
from seatrial.scheduler.descheduler.plugins.node_utilization import HighNodeUtilizationArgs, LowNodeUtilizationArgs
from seatrial.scheduler.descheduler.plugins.registry import PLUGINS
from seatrial.scheduler.descheduler.plugins.topology_spread import TopologySpreadArgs
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import RecordingEvictor, handle_of, node, pod, usage


def evicted(name: str, state: ClusterState, args: dict[str, Any], *, protected: set[str] | None = None) -> list[str]:
    """What one run of the strategy evicts."""
    handle = handle_of(state, SimClock())
    evictor = handle.evictor
    assert isinstance(evictor, RecordingEvictor)
    evictor.protected = protected or set()
    kind = PLUGINS[name]
    plugin = kind(read_args(kind.args, args))  # type: ignore[call-arg]
    plugin.run(handle, [node for _, node in sorted(state.nodes.items())])
    return evictor.evicted


# -- RemovePodsViolatingInterPodAntiAffinity ---------------------------------------------------------------------------


def avoids(app: str, key: str = "kubernetes.io/hostname", **term: Any) -> dict[str, Any]:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **term}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"podAntiAffinity": required}}


def two_hosts() -> ClusterState:
    state = ClusterState()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        state.set_node(node(name, labels={"kubernetes.io/hostname": name, "zone": zone}))
    state.namespaces = {"default": {}, "other": {"team": "x"}}
    return state


ANTI = "RemovePodsViolatingInterPodAntiAffinity"


def test_of_pods_that_avoid_each_other_one_stays() -> None:
    """Three pods avoid each other on n1: the first two in order leave, and the last is then alone."""
    state = two_hosts()
    for name in ("a", "b", "c"):
        state.set_pod(pod(name, "n1", labels={"app": "web"}, spec={**spec_on("n1"), **avoids("web")}))
    assert evicted(ANTI, state, {}) == ["a", "b"]


def spec_on(on: str, **more: Any) -> dict[str, Any]:
    return {"nodeName": on, **more}


def test_low_priority_leaves_first_and_protected_pods_stay() -> None:
    state = two_hosts()
    for name, priority in (("a", 10), ("b", 5)):
        spec = spec_on("n1", priority=priority, **avoids("web"))
        state.set_pod(pod(name, "n1", labels={"app": "web"}, spec=spec))
    assert evicted(ANTI, state, {}) == ["b"]
    assert evicted(ANTI, state, {}, protected={"b"}) == ["a"]


@pytest.mark.parametrize(
    ("key", "term", "on", "namespace", "want"),
    [
        pytest.param("kubernetes.io/hostname", {}, "n2", "default", [], id="another-host"),
        pytest.param("zone", {}, "n2", "default", ["careful"], id="the-same-zone"),
        pytest.param("zone", {}, "n3", "default", [], id="another-zone"),
        pytest.param("zone", {}, "n1", "other", [], id="another-namespace"),
        pytest.param("zone", {"namespaces": ["other"]}, "n1", "other", ["careful"], id="a-named-namespace"),
        pytest.param(
            "zone", {"namespaceSelector": {"matchLabels": {"team": "x"}}}, "n1", "other", ["careful"], id="selected"
        ),
        pytest.param("rack", {}, "n1", "default", [], id="a-label-that-no-node-has"),
    ],
)
def test_the_domain_and_the_namespaces_of_a_term(
    key: str, term: dict[str, Any], on: str, namespace: str, want: list[str]
) -> None:
    state = two_hosts()
    state.set_pod(pod("careful", "n1", spec=spec_on("n1", **avoids("noisy", key, **term))))
    state.set_pod(pod("noisy", on, labels={"app": "noisy"}, namespace=namespace))
    assert evicted(ANTI, state, {}) == want


# -- RemovePodsViolatingTopologySpreadConstraint -----------------------------------------------------------------------

SPREAD = "RemovePodsViolatingTopologySpreadConstraint"


def spread(sizes: dict[str, int], *, skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> ClusterState:
    """One node in each zone with so many pods of one application."""
    state = ClusterState()
    constraint = {
        "maxSkew": skew,
        "topologyKey": "zone",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }
    for zone, count in sizes.items():
        state.set_node(node(f"n-{zone}", labels={"zone": zone}))
        for number in range(count):
            spec = spec_on(f"n-{zone}", topologySpreadConstraints=[constraint])
            state.set_pod(pod(f"{zone}{number}", f"n-{zone}", labels={"app": "web"}, spec=spec))
    return state


@pytest.mark.parametrize(
    ("sizes", "skew", "want"),
    [
        pytest.param({"a": 3, "b": 1}, 1, 1, id="one-too-many"),
        pytest.param({"a": 2, "b": 1}, 1, 0, id="within-the-skew"),
        pytest.param({"a": 5, "b": 0}, 1, 2, id="an-empty-domain"),
        pytest.param({"a": 5, "b": 1}, 3, 1, id="a-larger-skew"),
        pytest.param({"a": 6, "b": 0, "c": 0}, 1, 4, id="three-domains"),
    ],
)
def test_large_domains_give_pods_to_small_ones(sizes: dict[str, int], skew: int, want: int) -> None:
    evictions = evicted(SPREAD, spread(sizes, skew=skew), {})
    assert len(evictions) == want
    assert {name[0] for name in evictions} <= {"a"}


@pytest.mark.parametrize(
    ("args", "when", "want"),
    [
        pytest.param({}, "ScheduleAnyway", 0, id="a-soft-constraint"),
        pytest.param({"constraints": ["ScheduleAnyway"]}, "ScheduleAnyway", 2, id="a-soft-constraint-asked-for"),
        pytest.param({"namespaces": {"exclude": ["default"]}}, "DoNotSchedule", 0, id="other-namespaces"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "x"}}}, "DoNotSchedule", 0, id="other-pods"),
    ],
)
def test_which_constraints_count(args: dict[str, Any], when: str, want: int) -> None:
    assert len(evicted(SPREAD, spread({"a": 5, "b": 0}, when=when), args)) == want


def test_a_pod_that_fits_nowhere_else_stays() -> None:
    """The small domain's node is cordoned; without topologyBalanceNodeFit that does not matter."""
    state = spread({"a": 5, "b": 0})
    state.set_node(node("n-b", labels={"zone": "b"}, unschedulable=True))
    assert evicted(SPREAD, state, {}) == []
    assert len(evicted(SPREAD, state, {"topologyBalanceNodeFit": False})) == 2


def test_match_label_keys_tell_revisions_apart() -> None:
    """Three pods of one revision and none of the other in each zone: each revision is judged by itself."""
    state = ClusterState()
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["rev"],
    }
    for zone, revision in (("a", "1"), ("b", "2")):
        state.set_node(node(f"n-{zone}", labels={"zone": zone}))
        for number in range(3):
            spec = spec_on(f"n-{zone}", topologySpreadConstraints=[constraint])
            state.set_pod(pod(f"{zone}{number}", f"n-{zone}", labels={"app": "web", "rev": revision}, spec=spec))
    assert sorted(evicted(SPREAD, state, {})) == ["a2", "b2"]


# -- LowNodeUtilization and HighNodeUtilization ------------------------------------------------------------------------


def loaded(counts: dict[str, int], *, cpu: str = "500m") -> ClusterState:
    """Nodes of 4 cores with so many pods."""
    state = ClusterState()
    for name, count in counts.items():
        state.set_node(node(name))
        for number in range(count):
            state.set_pod(pod(f"{name}-{number}", name, cpu=cpu))
    return state


LOW = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}}


@pytest.mark.parametrize(
    ("counts", "args", "want"),
    [
        pytest.param({"n1": 7, "n2": 1, "n3": 3}, LOW, 3, id="down-to-the-target"),
        pytest.param({"n1": 7, "n2": 2, "n3": 7}, LOW, 2, id="until-the-room-is-used"),
        pytest.param({"n1": 4, "n2": 1}, LOW, 0, id="nothing-over"),
        pytest.param({"n1": 7, "n2": 3}, LOW, 0, id="nothing-under"),
        pytest.param({"n1": 7, "n2": 1}, {**LOW, "numberOfNodes": 1}, 0, id="too-few-under"),
        pytest.param({"n1": 7, "n2": 1}, {**LOW, "evictionLimits": {"node": 1}}, 1, id="limit-of-a-node"),
        pytest.param({"n1": 7, "n2": 1}, {**LOW, "evictableNamespaces": {"exclude": ["default"]}}, 0, id="excluded"),
        pytest.param(
            {"n1": 7, "n2": 1, "n3": 4},
            {"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 10}, "useDeviationThresholds": True},
            3,
            id="deviation-from-the-mean",
        ),
    ],
)
def test_requests_are_levelled(counts: dict[str, int], args: dict[str, Any], want: int) -> None:
    evictions = evicted("LowNodeUtilization", loaded(counts), args)
    assert len(evictions) == want
    assert {name.split("-")[0] for name in evictions} <= {"n1"}


BY_USAGE = {**LOW, "metricsUtilization": {"source": "KubernetesMetrics"}}


@pytest.mark.parametrize(
    ("used", "args", "age", "want"),
    [
        pytest.param("800m", BY_USAGE, 0.0, 2, id="down-to-the-target"),
        pytest.param("800m", {**BY_USAGE, "metricsUtilization": {"metricsServer": True}}, 0.0, 2, id="older-spelling"),
        pytest.param("400m", BY_USAGE, 0.0, 0, id="usage-below-the-target"),
        pytest.param("800m", LOW, 0.0, 0, id="by-requests"),
        pytest.param("800m", BY_USAGE, 180.0, 0, id="stale-reports"),
    ],
)
def test_usage_is_levelled(used: str, args: dict[str, Any], age: float, want: int) -> None:
    """Four pods of n1 request 100m of 4 cores each, and use 800m or 400m: 80 or 40 percent. n2 is idle."""
    state, now = loaded({"n1": 5, "n2": 1}, cpu="100m"), SimClock().now()
    names = [f"n1-{number}" for number in range(4)]
    state.set_metric(usage("n1", {name: {"cpu": used} for name in names}, at=now - age))
    state.set_metric(usage("n2", {"n2-0": {"cpu": "100m"}}, at=now - age))
    evictions = evicted("LowNodeUtilization", state, args)
    assert len(evictions) == want
    assert "n1-4" not in evictions  # it has no report


@pytest.mark.parametrize(
    ("counts", "args", "want"),
    [
        pytest.param({"n1": 5, "n2": 1, "n3": 2}, {"thresholds": {"cpu": 30}}, ["n2-0", "n3-0", "n3-1"], id="emptied"),
        pytest.param({"n1": 7, "n2": 1, "n3": 2}, {"thresholds": {"cpu": 30}}, ["n2-0"], id="as-far-as-there-is-room"),
        pytest.param({"n1": 1, "n2": 1}, {"thresholds": {"cpu": 30}}, [], id="nobody-to-take-them"),
        pytest.param({"n1": 5, "n2": 1}, {"thresholds": {"cpu": 30}, "numberOfNodes": 1}, [], id="too-few"),
        pytest.param(
            {"n1": 5, "n2": 1},
            {"thresholds": {"cpu": 30}, "evictionModes": ["OnlyThresholdingResources"]},
            ["n2-0"],
            id="pods-with-a-listed-resource",
        ),
        pytest.param(
            {"n1": 5, "n2": 1},
            {"thresholds": {"memory": 30, "pods": 2}, "evictionModes": ["OnlyThresholdingResources"]},
            [],
            id="pods-without-a-listed-resource",
        ),
    ],
)
def test_nodes_are_emptied(counts: dict[str, int], args: dict[str, Any], want: list[str]) -> None:
    assert evicted("HighNodeUtilization", loaded(counts), args) == want


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (LowNodeUtilizationArgs, {"thresholds": {"cpu": 5}}, "expected the resources of thresholds .cpu., found none"),
        (LowNodeUtilizationArgs, {**LOW, "thresholds": {"cpu": 60}}, "expected at most targetThresholds.cpu .50."),
        (LowNodeUtilizationArgs, {**LOW, "thresholds": {"cpu": 101}}, "expected a percentage of 0 to 100, found 101"),
        (
            LowNodeUtilizationArgs,
            {**LOW, "metricsUtilization": {"source": "Prometheus"}},
            "metricsUtilization.source: expected KubernetesMetrics, found 'Prometheus'",
        ),
        (LowNodeUtilizationArgs, {**LOW, "metricsUtilization": {}}, "expected source KubernetesMetrics, found none"),
        (
            LowNodeUtilizationArgs,
            {**LOW, "metricsUtilization": {"source": "KubernetesMetrics", "metricsServer": True}},
            "expected source KubernetesMetrics or metricsServer, found both",
        ),
        (HighNodeUtilizationArgs, {}, "thresholds: expected at least one resource, found none"),
        (HighNodeUtilizationArgs, {"thresholds": {"cpu": 1}, "evictionModes": ["All"]}, "expected OnlyThresholding"),
        (TopologySpreadArgs, {"constraints": ["Never"]}, "expected DoNotSchedule or ScheduleAnyway"),
    ],
)
def test_bad_arguments_are_refused_in_words(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(kind, values)
