"""CustomPriority, FragmentationAware and ScaleDownBinPack, with the worked examples of the specification (E10)."""

import math
from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.descheduler.args import ArgsError, read_args
from seatrial.scheduler.descheduler.framework import Handle
from seatrial.scheduler.descheduler.plugins.custom_priority import CustomPriority, CustomPriorityArgs
from seatrial.scheduler.descheduler.plugins.fragmentation_aware import (
    FragmentationAware,
    FragmentationAwareArgs,
    imbalance,
)
from seatrial.scheduler.descheduler.plugins.scale_down_bin_pack import (
    NodePods,
    ScaleDownBinPack,
    ScaleDownBinPackArgs,
    rank,
)
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import RecordingEvictor, handle_of, node, pod

LEVELS = [
    {"name": "dear", "nodeSelector": {"matchLabels": {"price": "dear"}}},
    {"name": "cheap", "nodeSelector": {"matchLabels": {"price": "cheap"}}},
]


class Recorded:
    """A handle with what went through it."""

    def __init__(self, state: ClusterState) -> None:
        self.handle: Handle = handle_of(state, SimClock())
        self.patches: list[tuple[str, Any]] = []
        self.handle.send = lambda path, body: self.patches.append((path, body))

    @property
    def evictor(self) -> RecordingEvictor:
        assert isinstance(self.handle.evictor, RecordingEvictor)
        return self.handle.evictor


# -- FragmentationAware ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "allocatable", "names", "want"),
    [
        pytest.param(
            {"example.com/gpu": 1}, {"example.com/gpu": 2, "cpu": 1000}, ["example.com/gpu", "cpu"], 0.25, id="gpu"
        ),
        pytest.param({"cpu": 500, "memory": 512}, {"cpu": 1000, "memory": 0}, ["cpu", "memory"], 0.0, id="no-memory"),
        pytest.param({"cpu": 500, "memory": 512}, {"cpu": 1000, "memory": 1024}, ["cpu", "memory"], 0.0, id="even"),
        pytest.param({"cpu": 3000, "memory": 1000}, {"cpu": 4000, "memory": 4000}, ["cpu", "memory"], 0.25, id="skew"),
        pytest.param({"cpu": 500, "memory": 500}, {"cpu": 4000, "memory": 4000}, ["cpu", "memory"], 0.0, id="after"),
    ],
)
def test_imbalance(requested: dict[str, int], allocatable: dict[str, int], names: list[str], want: float) -> None:
    """E10, scoring_test.go and fragmentation_aware_test.go."""
    assert imbalance(requested, allocatable, names) == want


def skewed() -> ClusterState:
    """n1 with 0.75 of its CPU and 0.25 of its memory requested; n2 empty."""
    state = ClusterState()
    for name in ("n1", "n2"):
        state.set_node(node(name, cpu="4", memory="4000"))
    state.set_pod(pod("heavy", "n1", cpu="2500m", memory="500"))
    state.set_pod(pod("even", "n1", cpu="500m", memory="500"))
    return state


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, ["heavy"], id="largest-gain"),
        pytest.param({"imbalanceThreshold": 0.25}, [], id="even-enough"),
        pytest.param({"minImprovementThreshold": 0.25}, [], id="too-little-gained"),
        pytest.param({"dryRun": True}, [], id="dry-run"),
        pytest.param({"paused": True}, [], id="paused"),
        pytest.param({"nodeSelector": {"matchLabels": {"a": "b"}}}, [], id="other-nodes"),
        pytest.param({"evictableNamespaces": {"exclude": ["default"]}}, [], id="other-namespaces"),
    ],
)
def test_the_pod_that_skews_its_node_leaves(changes: dict[str, Any], want: list[str]) -> None:
    """E10: 0.25 before, 0 after."""
    state = skewed()
    run = Recorded(state)
    FragmentationAware(read_args(FragmentationAwareArgs, changes)).run(run.handle, list(state.nodes.values()))
    assert run.evictor.evicted == want
    if want:
        assert run.evictor.reasons == ["fragmentation reduction: stdBefore=0.2500 stdAfter=0.0000 gain=0.2500"]


# -- ScaleDownBinPack --------------------------------------------------------------------------------------------------


def ranked_cluster() -> tuple[ClusterState, list[NodePods]]:
    state = ClusterState()
    rows = [
        ("p1", "node1"),
        ("p2", "node2"),
        ("p4a", "node4"),
        ("p4b", "node4"),
        ("p5a", "node5"),
        ("p5b", "node5"),
        ("p6-large", "node6"),
        ("p6-newest", "node6"),
        ("p6-same1", "node6"),
        ("p6-same2", "node6"),
        ("p6-same3", "node6"),
        ("p6-oldest", "node6"),
    ]
    at = {"p6-newest": "2026-01-01T01:00:00Z", "p6-oldest": "2025-12-31T23:00:00Z"}
    namespaces = {"p6-same1": "a-ns", "p6-same2": "b-ns", "p6-same3": "b-ns"}
    node_pods = {f"node{number}": NodePods(node(f"node{number}", cpu="4", memory="8Gi")) for number in range(1, 7)}
    for name, on in rows:
        size = ("2", "2Gi") if name == "p6-large" else ("1", "1Gi")
        made = pod(
            name,
            on,
            cpu=size[0],
            memory=size[1],
            namespace=namespaces.get(name, "default"),
            creationTimestamp=at.get(name, "2026-01-01T00:00:00Z"),
        )
        state.set_pod(made)
        node_pods[on].eligible.append(made)
    for name, on in (("nt2", "node2"), ("nt3", "node3")):
        made = pod(name, on, cpu="1", memory="1Gi")
        state.set_pod(made)
        node_pods[on].others.append(made)
    return state, [one for one in node_pods.values() if one.eligible]


def test_pods_are_ranked_so_that_nodes_become_empty() -> None:
    """E10, ranker_test.go TestRankPods."""
    state, nodes = ranked_cluster()
    assert [one.metadata.name for one in rank(state, nodes, {"cpu": 1.0, "memory": 1.0})] == [
        "p1",
        "p4a",
        "p4b",
        "p5a",
        "p5b",
        "p6-large",
        "p6-newest",
        "p6-same1",
        "p6-same2",
        "p6-same3",
        "p6-oldest",
        "p2",
    ]


def two_kinds() -> ClusterState:
    """`web` on both nodes; n2 also has a pod of another workload and a protected pod of `web`."""
    state = ClusterState()
    for name in ("n1", "n2"):
        state.set_node(node(name))
    state.set_pod(pod("web-1", "n1", labels={"app": "web"}))
    state.set_pod(pod("web-2", "n2", labels={"app": "web"}))
    state.set_pod(pod("web-3", "n2", labels={"app": "web"}))
    state.set_pod(pod("other", "n2", labels={"app": "other"}))
    return state


WEB = {"podSelectors": [{"selector": {"matchLabels": {"app": "web"}}}]}


def test_ranks_are_written_as_deletion_costs() -> None:
    """The protected target gets the largest cost; a pod that no selector matches gets none."""
    state = two_kinds()
    run = Recorded(state)
    run.evictor.protected = {"web-3"}
    ScaleDownBinPack(read_args(ScaleDownBinPackArgs, WEB)).run(run.handle, list(state.nodes.values()))
    assert run.evictor.evicted == []
    assert {
        path.rsplit("/", 1)[1]: body["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]
        for path, body in run.patches
    } == {"web-1": "0", "web-2": "1", "web-3": "2147483647"}


def test_no_more_pods_are_evicted_than_allowed() -> None:
    state = two_kinds()
    run = Recorded(state)
    args = read_args(ScaleDownBinPackArgs, {**WEB, "strategy": "EvictDirectly", "maxPodsToEvict": 1})
    ScaleDownBinPack(args).run(run.handle, list(state.nodes.values()))
    assert (run.evictor.evicted, run.evictor.reasons) == (["web-1"], ["scale-down binpack"])


# -- CustomPriority ----------------------------------------------------------------------------------------------------


def priced(*, cheap_cpu: str = "4") -> ClusterState:
    state = ClusterState()
    for name, price, cpu in (("d1", "dear", "4"), ("c1", "cheap", cheap_cpu)):
        made = node(name, cpu=cpu, labels={"price": price})
        state.set_node(made)
    for name, cpu in (("large", "2"), ("small", "500m"), ("middle", "1")):
        state.set_pod(pod(name, "d1", cpu=cpu))
    return state


@pytest.mark.parametrize(
    ("changes", "cheap_cpu", "want"),
    [
        pytest.param({}, "4", ["small", "middle", "large"], id="all-fit"),
        pytest.param({}, "2", ["small", "middle"], id="those-that-fit-together"),
        pytest.param({"nodeFit": False}, "1", ["small", "middle", "large"], id="no-fit-asked-for"),
        pytest.param({"mode": "DrainNode"}, "4", ["small", "middle", "large"], id="drain"),
        pytest.param({"mode": "DrainNode"}, "2", [], id="drain-all-or-nothing"),
        pytest.param({"dryRun": True}, "4", [], id="dry-run"),
    ],
)
def test_pods_go_to_cheaper_nodes(changes: dict[str, Any], cheap_cpu: str, want: list[str]) -> None:
    state = priced(cheap_cpu=cheap_cpu)
    run = Recorded(state)
    args = read_args(CustomPriorityArgs, {"evictionOrder": LEVELS, **changes})
    CustomPriority(args).run(run.handle, list(state.nodes.values()))
    assert run.evictor.evicted == want
    if want:
        drained = "drain node d1 (sourcePriority=dear)"
        moved = "evicting from dear priority resource to lower priority resource"
        assert set(run.evictor.reasons) == {drained if changes.get("mode") else moved}
    assert run.patches == []


def test_nothing_moves_to_dearer_nodes() -> None:
    state = priced()
    run = Recorded(state)
    args = read_args(CustomPriorityArgs, {"evictionOrder": LEVELS[::-1]})
    CustomPriority(args).run(run.handle, list(state.nodes.values()))
    assert run.evictor.evicted == []


def test_a_refused_eviction_ends_the_drain_and_uncordons() -> None:
    state = priced()
    run = Recorded(state)
    run.evictor.refused = {"middle"}
    args = read_args(CustomPriorityArgs, {"evictionOrder": LEVELS, "mode": "DrainNode", "autoCordon": True})
    CustomPriority(args).run(run.handle, list(state.nodes.values()))
    assert run.evictor.evicted == ["small"]
    assert run.patches == [
        ("/api/v1/nodes/d1", {"metadata": {"uid": "d1"}, "spec": {"unschedulable": True}}),
        ("/api/v1/nodes/d1", {"metadata": {"uid": "d1"}, "spec": {"unschedulable": None}}),
    ]


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (CustomPriorityArgs, {"evictionOrder": LEVELS[:1]}, "requires at least 2 resource priority levels"),
        (CustomPriorityArgs, {"evictionOrder": [LEVELS[0], LEVELS[0]]}, "duplicate priority name: dear"),
        (CustomPriorityArgs, {"evictionOrder": [LEVELS[0], {"name": "x"}]}, "priority x must have a nodeSelector"),
        (CustomPriorityArgs, {"evictionOrder": LEVELS, "mode": "Drain"}, "mode: expected BestEffort or DrainNode"),
        (
            CustomPriorityArgs,
            {"evictionOrder": [LEVELS[0], {"name": "x", "nodeSelector": {"matchExpressions": [{"key": "a"}]}}]},
            r'evictionOrder\[1\].nodeSelector: "" is not a valid label selector operator',
        ),
        (FragmentationAwareArgs, {"resources": ["cpu", "cpu"]}, "resources: expected different names, found cpu, cpu"),
        (FragmentationAwareArgs, {"imbalanceThreshold": -2}, "imbalanceThreshold: expected 0 or more, found -2"),
        (FragmentationAwareArgs, {"minImprovementThreshold": math.nan}, "expected 0 or more, found nan"),
        (
            FragmentationAwareArgs,
            {"podSelectors": [{"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]},
            r"podSelectors\[0\]: key a: for 'in', 'notin' operators, values set can't be empty",
        ),
        (ScaleDownBinPackArgs, {"resourceWeights": {"cpu": 0}}, "expected a finite number above 0, found 0"),
        (ScaleDownBinPackArgs, {"resourceWeights": {"cpu": math.inf}}, "expected a finite number above 0, found inf"),
        (ScaleDownBinPackArgs, {"strategy": "EvictDirectly"}, "maxPodsToEvict: expected more than 0 with"),
        (ScaleDownBinPackArgs, {"strategy": "Evict"}, "expected CalculateOnly or EvictDirectly, found 'Evict'"),
    ],
)
def test_bad_arguments_are_refused_in_words(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(kind, values)
