"""PodTopologySpread: where pods may go and go best, the messages, and who is woken by what changes elsewhere."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import Taint
from seatrial.scheduler.tests.rig import Rig, profile

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SKEWED = "node(s) didn't match pod topology spread constraints"


def spread(name: str, *constraints: dict[str, Any], app: str = "a", **more: str) -> PodBuilder:
    """A pod labelled app=a that spreads over pods with that label."""
    builder = pod(name).request(cpu="1").label("app", app)
    for key, value in more.items():
        builder.label(key, value)
    builder.manifest["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}},
        }
        | constraint
        for constraint in constraints
    ]
    return builder


def cluster(counts: dict[str, tuple[str | None, int]], **setup: Any) -> Rig:
    """Nodes by name: their zone, and how many pods of app=a run there."""
    rig = Rig(**setup)
    for node, (zone, running) in counts.items():
        rig.node(node, labels={HOST: node} | ({ZONE: zone} if zone else {}))
        for number in range(running):
            rig.running(pod(f"{node}-{number}").label("app", "a"), node)
    return rig


def outcome(rig: Rig, builder: PodBuilder) -> str:
    rig.submit(builder)
    rig.run()
    return rig.where(builder.name) or rig.message(builder.name)


TWO_ZONES: dict[str, tuple[str | None, int]] = {"a1": ("a", 1), "a2": ("a", 1), "b1": ("b", 0)}


@pytest.mark.parametrize(
    ("nodes", "constraint", "where"),
    [
        pytest.param(TWO_ZONES, {}, "b1", id="the-emptier-zone"),
        pytest.param({"a1": ("a", 1), "b1": ("b", 2)}, {"maxSkew": 1}, "a1", id="skew-counts-the-pod-itself"),
        pytest.param({"a1": ("a", 0), "b1": (None, 0)}, {}, "a1", id="a-node-without-the-label-is-out"),
        pytest.param(
            {"a1": ("a", 3), "b1": (None, 0)}, {}, "a1", id="a-node-without-the-label-is-no-domain-to-be-even-with"
        ),
        pytest.param(
            {"a1": ("a", 1)}, {"minDomains": 2}, SKEWED, id="too-few-domains-count-as-if-an-empty-one-were-there"
        ),
        pytest.param({"a1": ("a", 1)}, {"minDomains": 1}, "a1", id="enough-domains"),
        pytest.param({"a1": ("a", 5), "b1": ("b", 0)}, {"labelSelector": {}}, "", id="empty-selector-counts-nothing"),
        pytest.param({"a1": ("a", 5), "b1": ("b", 0)}, {"labelSelector": None}, "", id="no-selector-counts-nothing"),
        pytest.param(
            {"a1": ("a", 5), "b1": ("b", 0)}, {"matchLabelKeys": ["rev"]}, "", id="only-pods-of-the-same-revision"
        ),
        pytest.param({"a1": ("a", 1), "a2": ("a", 0)}, {"topologyKey": HOST}, "a2", id="over-hosts"),
    ],
)
def test_hard_constraints(nodes: dict[str, tuple[str | None, int]], constraint: dict[str, Any], where: str) -> None:
    """`where`: the node, "" if any will do, or a part of the message."""
    text = outcome(cluster(nodes), spread("p", constraint, rev="2"))
    if where == SKEWED:
        assert text.startswith(f"0/{len(nodes)} nodes are available: {len(nodes)} {SKEWED}.")
    else:
        assert text in ({where} if where else nodes.keys())


def test_labels_of_all_hard_constraints_make_a_place() -> None:
    rig = cluster({"a1": ("a", 1), "b1": ("b", 0)})
    rig.node("c1", labels={ZONE: "c"})  # no host label: its zone is no domain either
    rig.running(pod("c").label("app", "a"), "c1")
    assert outcome(rig, spread("p", {}, {"topologyKey": HOST})) == "b1"


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        pytest.param({}, "b1", id="nodes-the-selector-rules-out-do-not-count"),
        pytest.param({"nodeAffinityPolicy": "Ignore"}, SKEWED, id="unless-the-policy-ignores-it"),
    ],
)
def test_node_affinity_policy(policy: dict[str, Any], where: str) -> None:
    rig = cluster({"a1": ("a", 0), "b1": ("b", 1)})
    builder = spread("p", policy).select({ZONE: "b"})
    builder_outcome = outcome(rig, builder)
    assert builder_outcome == where or where in builder_outcome


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        pytest.param({}, SKEWED, id="tainted-nodes-count"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, "b1", id="unless-the-policy-honours-taints"),
    ],
)
def test_node_taints_policy(policy: dict[str, Any], where: str) -> None:
    rig = cluster({"b1": ("b", 1)})
    rig.node("a1", labels={ZONE: "a"}, taints=(Taint("k", "", "NoSchedule"),))
    text = outcome(rig, spread("p", policy))
    assert text == where or where in text


def test_messages_tell_a_missing_label_from_too_many_pods() -> None:
    rig = cluster({"a1": ("a", 1), "b1": (None, 0)})
    rig.node("c1", labels={ZONE: "c"}, unschedulable=True)
    message = outcome(rig, spread("p", {}))
    assert message == (
        f"0/3 nodes are available: 1 {SKEWED}, 1 {SKEWED} (missing required label), 1 node(s) were unschedulable. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def in_(zones: list[str]) -> dict[str, Any]:
    return {"key": ZONE, "operator": "In", "values": zones}


def test_likings_are_weighed_among_the_nodes_that_are_left() -> None:
    """Zone a is liked most but out: then b is liked twice as much as c, which outweighs that it is half full."""
    rig = cluster({"a1": ("a", 3), "b1": ("b", 0), "c1": ("c", 0)})
    rig.running(pod("other").request(cpu="32"), "b1")
    builder = spread("p", {})
    builder.manifest["spec"]["affinity"] = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": weight,
                    "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]},
                }
                for zone, weight in (("a", 100), ("b", 8), ("c", 4))
            ]
        }
    }
    assert outcome(rig, builder) == "b1"


def test_a_pod_being_deleted_does_not_count() -> None:
    rig = cluster({"a1": ("a", 1), "b1": ("b", 0)})
    rig.running(pod("b1-x").label("app", "a"), "b1")
    rig.running(pod("b1-y").label("app", "a"), "b1")
    rig.terminating("b1-x")
    rig.terminating("b1-y")
    assert outcome(rig, spread("p", {})) == "b1"


ONLY_SPREAD = {"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "PodTopologySpread"}]}}}


@pytest.mark.parametrize(
    ("nodes", "constraints", "where"),
    [
        pytest.param({"a1": ("a", 2), "b1": ("b", 0)}, [{}], {"b1"}, id="the-emptier-zone"),
        pytest.param({"a1": ("a", 2), "b1": (None, 0)}, [{}], {"a1"}, id="no-label-is-worst"),
        pytest.param({"a1": ("a", 0), "b1": ("b", 0)}, [{}], {"a1", "b1"}, id="all-empty"),
        pytest.param({"a1": ("a", 1), "a2": ("a", 0)}, [{"topologyKey": HOST}], {"a2"}, id="over-hosts"),
        # zone a holds 2·ln 4 = 2.8 and 0 on its second host; zone b 1·ln 4 + 1·ln 5 = 3.0
        pytest.param(
            {"a1": ("a", 2), "a2": ("a", 0), "b1": ("b", 1)},
            [{}, {"topologyKey": HOST}],
            {"a2", "b1"},
            id="both-rounded-to-three",
        ),
        pytest.param(
            {"a1": ("a", 3), "a2": ("a", 0), "b1": ("b", 1)}, [{}, {"topologyKey": HOST}], {"b1"}, id="zone-outweighs"
        ),
    ],
)
def test_soft_constraints(
    nodes: dict[str, tuple[str | None, int]], constraints: list[dict[str, Any]], where: set[str]
) -> None:
    rig = cluster(nodes, configuration=profile(**ONLY_SPREAD))
    softened = [{"whenUnsatisfiable": "ScheduleAnyway", **constraint} for constraint in constraints]
    assert outcome(rig, spread("p", *softened)) in where


def test_a_waiting_pod_goes_when_the_emptier_zone_has_caught_up() -> None:
    rig = cluster({"a1": ("a", 1), "b1": ("b", 0)})
    rig.node("b1", labels={HOST: "b1", ZONE: "b"}, unschedulable=True)
    assert SKEWED in outcome(rig, spread("p", {}))
    rig.clock.advance(30)
    assert not rig.run(), "nothing has changed"
    rig.running(pod("new").label("app", "a"), "b1")
    rig.run()
    assert rig.where("p") == "a1"


def test_pods_placed_one_by_one_let_those_that_wait_follow() -> None:
    rig = cluster({"a1": ("a", 0), "b1": ("b", 0)})
    rig.node("b1", labels={HOST: "b1", ZONE: "b"}, unschedulable=True)
    rig.submit(*(spread(f"p{number}", {}) for number in range(6)))
    rig.run()
    assert [rig.where(f"p{number}") for number in range(6)].count("a1") == 1
    rig.node("b1", labels={HOST: "b1", ZONE: "b"})
    rig.clock.advance(30)
    rig.run()
    assert sorted(rig.where(f"p{number}") for number in range(6)) == ["a1"] * 3 + ["b1"] * 3


def test_preemption_sees_that_a_victim_evens_the_zones_out() -> None:
    rig = Rig()
    rig.node("a1", labels={HOST: "a1", ZONE: "a"})
    rig.node("b1", labels={HOST: "b1", ZONE: "b"}, unschedulable=True)
    rig.running(pod("old").label("app", "a").request(cpu="1"), "a1")
    rig.running(pod("other").label("app", "x").request(cpu="1"), "a1")
    assert SKEWED in outcome(rig, spread("p", {}).priority(10))
    assert rig.victims() == ["old"], "the other would be gone for nothing"


@pytest.mark.parametrize(
    ("args", "service", "where"),
    [
        pytest.param({}, True, "a1", id="replicas-of-a-service-are-spread-by-default"),
        pytest.param({}, False, "b1", id="a-pod-of-no-service-is-not"),
        pytest.param({"defaultingType": "List"}, True, "b1", id="an-empty-list-spreads-nothing"),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
            },
            True,
            "a1",
            id="a-list-may-be-hard",
        ),
    ],
)
def test_default_constraints(args: dict[str, Any], service: bool, where: str) -> None:
    """Between equal nodes b1 wins by its hash, so a pod on a1 was spread."""
    rig = cluster(
        {"a1": ("a", 0), "b1": ("b", 3)},
        configuration=profile(**ONLY_SPREAD, pluginConfig=[{"name": "PodTopologySpread", "args": args}]),
    )
    if service:
        rig.core.cache.owners.set_service("default", "s", {"app": "a"})
    assert outcome(rig, pod("p").label("app", "a")) == where


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}]},
            "defaultConstraints: expected none with defaultingType System, found 1",
            id="system-has-its-own",
        ),
        pytest.param(
            {"defaultingType": "List", "defaultConstraints": [{"topologyKey": ZONE}]},
            "defaultConstraints[0].whenUnsatisfiable: expected DoNotSchedule or ScheduleAnyway, found ''",
            id="neither-hard-nor-soft",
        ),
        pytest.param(
            {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0, "topologyKey": ZONE}]},
            "defaultConstraints[0].maxSkew: expected 1 or more, found 0",
            id="no-skew",
        ),
    ],
)
def test_arguments_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"pluginConfig\[0\].args: PodTopologySpread") as refused:
        Rig(profile(pluginConfig=[{"name": "PodTopologySpread", "args": args}]))
    assert message in str(refused.value)
