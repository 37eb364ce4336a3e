"""Plugins whose verdict depends on what is elsewhere, against the slow reference that counts everything anew."""

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from seatrial.scheduler.api.core import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, Requirement
from seatrial.scheduler.config import Configuration, ProfileConfig
from seatrial.scheduler.tests.oracle import judge
from seatrial.scheduler.tests.play import Play, stories
from seatrial.scheduler.tests.rig import profile

HOST = "kubernetes.io/hostname"


def only(*names: str) -> dict[str, Any]:
    """Nothing else scores: what these say decides."""
    return {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}


PROFILES = {
    "defaults": Configuration(profiles=(ProfileConfig("default-scheduler"),)),
    "spread-alone": profile(plugins=only("PodTopologySpread")),
    "affinity-alone": profile(plugins=only("InterPodAffinity")),
    "spread-first": profile(
        plugins=only("PodTopologySpread", "NodeAffinity") | {"filter": {"enabled": [{"name": "PodTopologySpread"}]}}
    ),
}

LIKES = tuple(  # what the best of these gets depends on whether nodes that are liked more are feasible
    PreferredSchedulingTerm(weight, NodeSelectorTerm((Requirement("zone", "In", (zone,)),)))
    for zone, weight in (("a", 100), ("b", 8), ("c", 4))
)

labels = st.sampled_from([{}, {"app": "a"}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}, {"tier": "y"}])
keys = st.sampled_from(["zone", "zone", "rack", HOST])
selectors = st.sampled_from(
    [
        *[LabelSelector({"app": "a"})] * 4,
        LabelSelector({"app": "b"}),
        LabelSelector({}, (Requirement("app", "In", ("a", "b")),)),
        LabelSelector({}, (Requirement("tier", "Exists"),)),
        LabelSelector({}, (Requirement("tier", "DoesNotExist"),)),
        LabelSelector(),
        None,
    ]
)
spreads = st.lists(
    st.builds(
        TopologySpreadConstraint,
        max_skew=st.integers(1, 2),
        topology_key=keys,
        when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        label_selector=selectors,
        min_domains=st.sampled_from([None, None, 2, 3]),
        node_affinity_policy=st.sampled_from(["Honor", "Ignore"]),
        node_taints_policy=st.sampled_from(["Honor", "Ignore"]),
        match_label_keys=st.sampled_from([(), ("tier",)]),
    ),
    min_size=1,
    max_size=2,
).map(tuple)
terms = st.builds(
    PodAffinityTerm,
    topology_key=keys,
    label_selector=selectors,
    namespaces=st.sampled_from([(), (), (), ("e",), ("d", "e")]),
    namespace_selector=st.sampled_from([None, None, None, LabelSelector(), LabelSelector({"team": "x"})]),
    match_label_keys=st.sampled_from([(), (), ("tier",)]),
    mismatch_label_keys=st.sampled_from([(), (), ("tier",)]),
)
wishes = st.builds(
    PodAffinity,
    required=st.lists(terms, max_size=2).map(tuple),
    preferred=st.lists(
        st.builds(WeightedPodAffinityTerm, weight=st.sampled_from([1, 7, 100]), pod_affinity_term=terms), max_size=2
    ).map(tuple),
)
marks = st.builds(ObjectMeta, namespace=st.sampled_from(["d", "d", "e"]), labels=labels)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, None]:
    name = f"n{draw(st.integers(0, 7))}"
    places = {HOST: name, "zone": draw(st.sampled_from(["a", "a", "b", "c"]))} | draw(
        st.sampled_from([{}, {"rack": "r1"}, {"rack": "r2"}])
    )
    taints = draw(st.sampled_from([(), (), (), (Taint("t", "", "NoSchedule"),), (Taint("t", "", "PreferNoSchedule"),)]))
    spec = NodeSpec(unschedulable=not draw(st.integers(0, 7)), taints=taints)
    return Node(
        ObjectMeta(name=name, uid=name, labels=places),
        spec,
        NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": draw(st.sampled_from(["3", "40"]))}),
    ), None


@st.composite
def affinities(draw: st.DrawFn, to_nodes: NodeAffinity | None) -> Affinity | None:
    near = draw(wishes) if not draw(st.integers(0, 3)) else None
    far = draw(wishes) if not draw(st.integers(0, 3)) else None
    return Affinity(to_nodes, near, far) if to_nodes or near or far else None


@st.composite
def specs(draw: st.DrawFn) -> PodSpec:
    required = None
    if not draw(st.integers(0, 5)):
        required = NodeSelector((NodeSelectorTerm((Requirement("zone", "In", draw(pairs)),)),))
    elif not draw(st.integers(0, 5)):
        names = draw(st.sampled_from([("n3",), ("n0", "n2", "n5")]))
        required = NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", names),)),))
    preferred = draw(st.sampled_from([(), (), LIKES]))
    return PodSpec(
        containers=(Container(resources=ResourceRequirements({"cpu": draw(st.sampled_from(["1", "8"]))})),),
        node_selector={"zone": draw(st.sampled_from(["a", "b"]))} if not draw(st.integers(0, 6)) else {},
        affinity=draw(affinities(NodeAffinity(required, preferred) if required or preferred else None)),
        tolerations=(Toleration(key="t", operator="Exists"),) if draw(st.booleans()) else (),
        topology_spread_constraints=draw(spreads) if draw(st.booleans()) else (),
        priority=draw(st.sampled_from([0, 0, 10])),
    )


pairs = st.sampled_from([("a", "b"), ("b", "c")])


@st.composite
def events(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["pod"] * 8 + ["foreign"] * 3 + ["node", "gone", "delete", "leaving", "labels"]))
    match kind:
        case "pod" | "foreign":
            return kind, (draw(specs()), draw(marks))
        case "node":
            return kind, draw(nodes())
        case "labels":
            return kind, (draw(st.sampled_from(["d", "e"])), draw(st.sampled_from([{"team": "x"}, {}, None])))
        case _:
            return kind, draw(st.integers(0, 30))


@stories(60)
@given(start=st.lists(nodes(), min_size=2, max_size=8), story=st.lists(events(), min_size=5, max_size=40))
def test_kept_counts_equal_fresh_counts(start: list[tuple[Node, None]], story: list[tuple[str, Any]]) -> None:
    for name, configuration in PROFILES.items():
        note(f"profile {name}")
        play = Play(configuration)
        play.tell(start, story)
        assert_no_feasible_pod_waits(play)


def assert_no_feasible_pod_waits(play: Play) -> None:
    """When backoffs are over, and before the periodic retry, no pod waits that has a feasible node."""
    for _ in range(3):
        play.clock.advance(11)
        play.decide()
    core = play.core
    for place, entry in core.queue.entries():
        want = judge(core, core.runners.of(entry.info), entry.info)
        assert not want.node, f"{entry.info.key} is {place} and could go to {want.node}"


def plain_node(name: str, spec: NodeSpec | None = None) -> tuple[Node, None]:
    status = NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": "40"})
    return Node(ObjectMeta(name=name, uid=name, labels={HOST: name, "zone": "a"}), spec or NodeSpec(), status), None


def plain_pod(affinity: Affinity | None = None, **labels: str) -> tuple[PodSpec, ObjectMeta]:
    containers = (Container(resources=ResourceRequirements({"cpu": "1"})),)
    return PodSpec(containers=containers, affinity=affinity), ObjectMeta(namespace="d", labels=labels)


def test_the_first_preferred_taint_counts_against_its_node() -> None:
    """No node has such a taint while the class is scored first; then a node gets one. All pods avoid it."""
    play = Play(PROFILES["defaults"])
    tainted = plain_node("n0", NodeSpec(taints=(Taint("t", "", "PreferNoSchedule"),)))
    play.tell([plain_node("n0", NodeSpec(unschedulable=True)), plain_node("n1")], [("pod", plain_pod())])
    play.tell([tainted], [("pod", plain_pod())] * 6)
    assert [node for _, node in play.bound.values()] == ["n1"] * 7


def test_a_pod_is_tried_again_when_the_node_of_the_pod_that_it_avoids_is_gone() -> None:
    """Anti-affinity by zone: the only other pod is on a cordoned node of the zone, whose object is deleted."""
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector({"app": "a"}))
    play = Play(PROFILES["defaults"])
    cordoned = plain_node("n2", NodeSpec(unschedulable=True))
    avoid = Affinity(None, None, PodAffinity(required=(term,)))
    play.tell([cordoned], [("foreign", plain_pod(app="a")), ("node", plain_node("n3")), ("pod", plain_pod(avoid))])
    assert len(play.bound) == 1
    play.tell([], [("gone", 2)])
    play.clock.advance(11)
    play.decide()
    assert sorted(node for _, node in play.bound.values()) == ["n2", "n3"]
