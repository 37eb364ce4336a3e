"""Rules between pods: affinity, anti-affinity and topology spread.

Each case is set up where scores and chance cannot give the same result: one node is left, or none.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, priority_class
from seatrial.suites.scoring.rules import (
    HOST,
    PREFERRED,
    REQUIRED,
    Json,
    apart_from,
    patch,
    pod_with,
    spread,
    term,
    waits,
)

pytestmark = [pytest.mark.needs(Capability.NODES)]


# -- affinity between pods ---------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-101", severity="critical")
def test_anti_affinity_of_a_placed_pod_keeps_others_away(trial: Trial, expect: Expect) -> None:
    """A placed pod with anti-affinity to app b keeps a pod of app b from the only node; a pod of app c is placed."""
    trial.add(node("n1"))
    trial.submit(pod_with("guard", affinity=apart_from("b")))
    expect.bound("guard")
    trial.submit(pod_with("b", "b"), pod_with("c", "c"))
    expect.bound("c")
    waits(expect, "b", "existing pods anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-102", severity="critical")
def test_affinity_to_nobody_waits(trial: Trial, expect: Expect) -> None:
    """A pod with affinity to an app that does not exist waits, and is placed beside the first pod of that app."""
    trial.add(node("n1"), node("n2"))
    trial.submit(pod_with("follower", affinity={"podAffinity": {REQUIRED: [term("leader")]}}))
    waits(expect, "follower")
    trial.submit(pod_with("leader", "leader"))
    where = expect.bound("leader").spec.node_name
    assert expect.bound("follower").spec.node_name == where


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-103", severity="critical")
def test_terms_name_namespaces(trial: Trial, expect: Expect) -> None:
    """Anti-affinity to pods of another namespace does not concern pods of this one; without a namespace it does."""
    trial.add(node("n1"))
    trial.submit(pod_with("first", "b"))
    expect.bound("first")
    trial.submit(
        pod_with("second", affinity=apart_from("b", namespaces=["elsewhere"])),
        pod_with("third", affinity=apart_from("b")),
    )
    expect.bound("second")
    waits(expect, "third", "anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-104", severity="critical")
def test_terms_select_namespaces(trial: Trial, expect: Expect) -> None:
    """An empty namespace selector is all namespaces; one that no namespace matches is none, beside those that are
    named."""
    trial.add(node("n1"))
    trial.submit(pod_with("first", "b"))
    expect.bound("first")
    nobody = {"matchLabels": {"team": "nobody"}}
    trial.submit(
        pod_with("refused", affinity=apart_from("b", namespaceSelector={})),
        pod_with("placed", affinity=apart_from("b", namespaceSelector=nobody)),
        pod_with("named", affinity=apart_from("b", namespaceSelector=nobody, namespaces=[trial.name])),
    )
    expect.bound("placed")
    waits(expect, "refused", "anti-affinity")
    waits(expect, "named", "anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-179", severity="critical")
@pytest.mark.long(seconds=5)
def test_labels_of_a_namespace_come_and_go(trial: Trial, expect: Expect) -> None:
    """Anti-affinity to pods in namespaces of a team, of a placed pod or of the next one, concerns the pods of this
    namespace while it has the team's label."""

    def team(label: str | None) -> None:
        patch(trial, f"/api/v1/namespaces/{trial.name}", {"metadata": {"labels": {"team": label}}})
        trial.settle()

    def rule(app: str) -> Json:
        return apart_from(app, namespaceSelector={"matchLabels": {"team": trial.name}})

    trial.add(node("n1"))
    trial.submit(pod_with("guard", affinity=rule("c")))
    expect.bound("guard")
    team(trial.name)
    trial.submit(pod_with("kept-away", "c"))
    waits(expect, "kept-away", "anti-affinity")
    team(None)
    expect.bound("kept-away")
    trial.submit(pod_with("first", "b"))
    expect.bound("first")
    trial.submit(pod_with("before", affinity=rule("b")))
    expect.bound("before")
    team(trial.name)
    trial.submit(pod_with("within", affinity=rule("b")))
    waits(expect, "within", "anti-affinity")
    team(None)
    expect.bound("within")


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-431", severity="critical", source="kubernetes v1.28: interpodaffinity/filtering.go")
@pytest.mark.long(seconds=8)
def test_labels_of_a_placed_pod_come_and_go(trial: Trial, expect: Expect) -> None:
    """A pod with anti-affinity to app b waits for the only node, until the pod there is of app c. When that one is of
    app b again, the next pod waits."""
    trial.add(node("n1"))
    trial.submit(pod_with("there", "b"))
    expect.bound("there")
    trial.submit(pod_with("p0", affinity=apart_from("b")))
    waits(expect, "p0", "anti-affinity")
    patch(trial, trial.path("Pod", "there"), {"metadata": {"labels": {"app": "c"}}})
    expect.bound("p0")
    patch(trial, trial.path("Pod", "there"), {"metadata": {"labels": {"app": "b"}}})
    trial.settle()
    trial.submit(pod_with("p1", affinity=apart_from("b")))
    waits(expect, "p1", "anti-affinity")


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-432", severity="normal", source="kubernetes v1.28: interpodaffinity/filtering.go")
@pytest.mark.long(seconds=4)
def test_labels_of_a_waiting_pod_change(trial: Trial, expect: Expect) -> None:
    """A pod waits, because one on the only node has anti-affinity to its app; as one of another app it is placed."""
    trial.add(node("n1"))
    trial.submit(pod_with("guard", affinity=apart_from("b")))
    expect.bound("guard")
    trial.submit(pod_with("p", "b"))
    waits(expect, "p", "anti-affinity")
    patch(trial, trial.path("Pod", "p"), {"metadata": {"labels": {"app": "c"}}})
    expect.bound("p")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-105", severity="normal")
def test_affinity_needs_the_topology_label(trial: Trial, expect: Expect) -> None:
    """The first of a group with affinity to itself is not placed on a node without the topology label."""
    trial.add(node("bare"))
    trial.submit(pod_with("first", affinity={"podAffinity": {REQUIRED: [term("a", key="rack")]}}))
    waits(expect, "first", "pod affinity")
    trial.add(node("racked").label("rack", "r1"))
    assert expect.bound("first").spec.node_name == "racked"


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-108", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity, podMatchesAllAffinityTerms"
)
@pytest.mark.parametrize("order", [("app", "tier"), ("tier", "app")], ids=["own-first", "own-last"])
def test_the_first_of_a_group_matches_all_of_its_terms(trial: Trial, expect: Expect, order: tuple[str, ...]) -> None:
    """A pod with affinity to its own app and to a tier that it is not of waits, though it is the first of its app. A
    pod that is of both comes to one of two nodes: there it is placed."""
    trial.add(node("n1"), node("n2"))
    terms = [{"labelSelector": {"matchLabels": {key: "a"}}, "topologyKey": HOST} for key in order]
    trial.submit(pod_with("first", affinity={"podAffinity": {REQUIRED: terms}}))
    waits(expect, "first", "pod affinity")
    trial.submit(pod_with("both").label("tier", "a"))
    assert expect.bound("first").spec.node_name == expect.bound("both").spec.node_name


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-109", severity="critical", source="KEP-3633: matchLabelKeys and mismatchLabelKeys")
@pytest.mark.parametrize(
    ("keys", "placed", "refused"),
    [("matchLabelKeys", "other", "same"), ("mismatchLabelKeys", "same", "other")],
    ids=["match", "mismatch"],
)
def test_label_keys_say_of_whom_a_term_is(trial: Trial, expect: Expect, keys: str, placed: str, refused: str) -> None:
    """Anti-affinity to an app by the key of a tenant: to pods of the same tenant, or to those of the others only."""
    trial.add(node("n1"))
    trial.submit(pod_with("first").label("tenant", "same"))
    expect.bound("first")
    rule = apart_from("a", **{keys: ["tenant"]})
    trial.submit(*(pod_with(one, "b", affinity=rule).label("tenant", one) for one in (refused, placed)))
    expect.bound(placed)
    waits(expect, refused, "anti-affinity")


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-182", severity="critical", source="kubernetes v1.28: interpodaffinity/filtering.go")
@pytest.mark.parametrize("holder", ["new", "placed"])
def test_each_of_two_terms_keeps_away(trial: Trial, expect: Expect, holder: str) -> None:
    """One term closes a node, another one the two nodes of a rack; terms of the new pod, or of two that are placed. The
    new pod waits for a fourth node."""
    trial.add(node("n1"), node("n2").label("rack", "1"), node("n3").label("rack", "1"))
    if holder == "new":
        trial.submit(pod_with("host", "b").select({HOST: "n1"}), pod_with("rack", "c").select({HOST: "n2"}))
        new = pod_with("new", affinity={"podAntiAffinity": {REQUIRED: [term("b"), term("c", key="rack")]}})
    else:
        for name, home, rule in (("host", "n1", apart_from("a")), ("rack", "n2", apart_from("a", key="rack"))):
            trial.submit(pod_with(name, "b", affinity=rule).select({HOST: home}))
        new = pod_with("new")
    expect.bound("host", "rack")
    trial.submit(new)
    waits(expect, "new", "anti-affinity")
    trial.add(node("n4"))
    assert expect.bound("new").spec.node_name == "n4"


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-183", severity="critical", source="kubernetes plugins/interpodaffinity/scoring.go")
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_a_wish_refuses_nobody(trial: Trial, expect: Expect, kind: str) -> None:
    """There is one node. A placed pod would rather be beside, or without, pods like the next one, and that one would
    rather be beside, or without, others: all are bound."""
    trial.add(node("n1"))

    def wishing(name: str, app: str, other: str) -> PodBuilder:
        wish = {"weight": 100, "podAffinityTerm": term(other)}
        return pod_with(name, app, affinity={kind: {PREFERRED: [wish]}})

    trial.submit(wishing("first", "a", "b"))
    expect.bound("first")
    trial.submit(wishing("second", "b", "a"), wishing("third", "b", "nobody"))
    expect.bound("second", "third")
    expect.refusal()


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-106", severity="normal")
def test_preferred_anti_affinity_outweighs_utilisation(trial: Trial, expect: Expect) -> None:
    """A pod goes to the fuller node, because the emptier one has the pod that it prefers to avoid; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        trial.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        trial.submit(
            pod_with(f"{prefix}-avoided", f"{prefix}b").select({HOST: here}),
            pod_with(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: there}),
        )
        expect.bound(f"{prefix}-avoided", f"{prefix}-filler")
        wish = {"weight": 100, "podAffinityTerm": term(f"{prefix}b")}
        chooser = pod_with(f"{prefix}-chooser", affinity={"podAntiAffinity": {PREFERRED: [wish]}}).select(
            {"pair": prefix}
        )
        trial.submit(chooser)
        assert expect.bound(f"{prefix}-chooser").spec.node_name == there


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-107", severity="normal")
def test_preferred_affinity_outweighs_utilisation(trial: Trial, expect: Expect) -> None:
    """A pod follows the pod that it prefers to the fuller node; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        trial.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        trial.submit(pod_with(f"{prefix}-wanted", f"{prefix}b").request(cpu=6).select({HOST: here}))
        expect.bound(f"{prefix}-wanted")
        wish = {"weight": 100, "podAffinityTerm": term(f"{prefix}b")}
        chooser = pod_with(f"{prefix}-chooser", affinity={"podAffinity": {PREFERRED: [wish]}}).select({"pair": prefix})
        trial.submit(chooser)
        assert expect.bound(f"{prefix}-chooser").spec.node_name == here


# -- spread ------------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-110", severity="critical")
def test_max_skew_refuses_free_room(trial: Trial, expect: Expect) -> None:
    """With the other node full, the second pod waits, although the first node has room: the skew would be two."""
    trial.add(node("n1").cpu(16), node("n2").cpu(2))
    trial.submit(pod_with("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    expect.bound("filler")
    trial.submit(pod_with("first", topologySpreadConstraints=spread()).request(cpu=1))
    assert expect.bound("first").spec.node_name == "n1"
    trial.submit(pod_with("second", topologySpreadConstraints=spread()).request(cpu=1))
    waits(expect, "second", "topology spread constraints")
    trial.delete("filler")
    assert expect.bound("second").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-111", severity="critical")
def test_spread_needs_the_topology_label(trial: Trial, expect: Expect) -> None:
    """A node without the topology label gets no pod of the constraint."""
    trial.add(node("bare"))
    trial.submit(pod_with("first", topologySpreadConstraints=spread(topologyKey="rack")))
    waits(expect, "first", "missing required label")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-112", severity="normal")
def test_min_domains(trial: Trial, expect: Expect) -> None:
    """With two domains of at least three, each gets one pod and the third pod waits for another domain. With three the
    emptiest one counts again: there is a fourth pod beside another one."""
    trial.add(node("n1"), node("n2"))
    constraint = spread(minDomains=3)
    trial.submit(*(pod_with(f"p{number}", topologySpreadConstraints=constraint) for number in range(2)))
    expect.bound("p0", "p1")
    trial.submit(pod_with("p2", topologySpreadConstraints=constraint))
    waits(expect, "p2", "topology spread constraints")
    trial.add(node("n3"))
    assert expect.bound("p2").spec.node_name == "n3"
    trial.submit(pod_with("p3", topologySpreadConstraints=constraint))
    expect.bound("p3")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-113", severity="normal")
def test_match_label_keys(trial: Trial, expect: Expect) -> None:
    """Pods of another revision are not counted: the new revision starts on the only node with room."""
    trial.add(node("n1").cpu(16), node("n2").cpu(2))
    trial.submit(pod_with("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    expect.bound("filler")
    constraint = spread(matchLabelKeys=["rev"])
    for revision in ("1", "2"):
        one = pod_with(f"rev{revision}", topologySpreadConstraints=constraint).label("rev", revision).request(cpu=1)
        trial.submit(one)
        assert expect.bound(one.name).spec.node_name == "n1"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-114", severity="normal")
def test_excluded_nodes_are_no_domains(trial: Trial, expect: Expect) -> None:
    """An empty node that the pods' selector excludes does not hold them back: two pods on each of the others."""
    trial.add(node("n1").label("pool", "a"), node("n2").label("pool", "a"), node("n3"))
    names = [f"p{number}" for number in range(4)]
    trial.submit(*(pod_with(name, topologySpreadConstraints=spread()).select({"pool": "a"}) for name in names))
    where = [pod.spec.node_name for pod in expect.bound(names[0], names[1], *names[2:])]
    assert sorted(where) == ["n1", "n1", "n2", "n2"]


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-115", severity="normal")
def test_tainted_nodes_are_no_domains_on_request(trial: Trial, expect: Expect) -> None:
    """An empty node with a taint counts as a domain by default, and not with nodeTaintsPolicy Honor."""
    trial.add(node("n1"), node("n2"), node("n3").taint("team"))
    names = [f"p{number}" for number in range(4)]
    honor = spread(nodeTaintsPolicy="Honor")
    trial.submit(*(pod_with(name, topologySpreadConstraints=honor) for name in names))
    expect.bound(names[0], names[1], *names[2:])
    trial.submit(*(pod_with(f"d{n}", "d", topologySpreadConstraints=spread("d")) for n in range(2)))
    expect.bound("d0", "d1")
    trial.submit(pod_with("d2", "d", topologySpreadConstraints=spread("d")))
    waits(expect, "d2", "topology spread constraints")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-118", severity="critical", source="kubernetes v1.28: podtopologyspread/filtering.go, Filter")
@pytest.mark.parametrize("order", [("zone", "rack"), ("rack", "zone")], ids=["zone-first", "rack-first"])
def test_each_of_two_constraints_holds(trial: Trial, expect: Expect, order: tuple[str, ...]) -> None:
    """The first pod is in zone 1, rack 1. One free node is in the other zone, one in the other rack; the only one in
    both is full: the second pod waits for it."""
    places = {"n1": ("1", "1"), "n2": ("2", "1"), "n3": ("1", "2"), "n4": ("2", "2")}
    trial.add(*(node(name).cpu(2).label("zone", zone).label("rack", rack) for name, (zone, rack) in places.items()))
    both = [constraint for key in order for constraint in spread(topologyKey=key)]
    trial.submit(
        pod_with("first", topologySpreadConstraints=both).request(cpu=1).select({HOST: "n1"}),
        pod_with("filler", "filler").request(cpu=2).select({HOST: "n4"}),
    )
    expect.bound("first", "filler")
    trial.submit(pod_with("second", topologySpreadConstraints=both).request(cpu=1))
    waits(expect, "second", "topology spread constraints")
    trial.delete("filler")
    assert expect.bound("second").spec.node_name == "n4"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case(
    "SC-119", severity="critical", source="kubernetes v1.28: podtopologyspread/filtering.go, requireAllTopologies"
)
@pytest.mark.parametrize("order", [(HOST, "rack"), ("rack", HOST)], ids=["rack-last", "rack-first"])
def test_a_node_without_a_label_of_another_constraint_is_no_domain(
    trial: Trial, expect: Expect, order: tuple[str, ...]
) -> None:
    """Two nodes of one rack, and an empty one without: it does not hold back the third and fourth pod by its host."""
    trial.add(node("n1").label("rack", "1"), node("n2").label("rack", "1"), node("bare"))
    both = [constraint for key in order for constraint in spread(topologyKey=key)]
    names = [f"p{number}" for number in range(4)]
    trial.submit(*(pod_with(name, topologySpreadConstraints=both) for name in names))
    where = [pod.spec.node_name for pod in expect.bound(names[0], names[1], *names[2:])]
    assert sorted(where) == ["n1", "n1", "n2", "n2"]


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-433", severity="critical", source="kubernetes v1.28: podtopologyspread/common.go")
@pytest.mark.long(seconds=4)
def test_a_pod_that_is_being_deleted_is_not_counted(trial: Trial, expect: Expect) -> None:
    """One pod of the app is on n1 and none on n2, which is closed: the next one waits. The first is deleted, though a
    finalizer keeps it: one pod has room on n1 then, and a second has not."""
    trial.add(node("n1"), node("n2"))
    first = pod_with("first", topologySpreadConstraints=spread()).select({HOST: "n1"})
    first.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    trial.submit(first)
    expect.bound("first")
    patch(trial, "/api/v1/nodes/n2", {"spec": {"unschedulable": True}})
    trial.settle()
    trial.submit(pod_with("early", topologySpreadConstraints=spread()))
    waits(expect, "early", "spread")
    trial.delete("early")
    path = trial.path("Pod", "first")
    try:
        assert trial.call("DELETE", path).ok
        trial.settle()
        trial.submit(pod_with("late", topologySpreadConstraints=spread()))
        assert expect.bound("late").spec.node_name == "n1"
        trial.submit(pod_with("later", topologySpreadConstraints=spread()))
        waits(expect, "later", "spread")
    finally:
        patch(trial, path, {"metadata": {"finalizers": None}})


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-434", severity="critical", source="kubernetes v1.28: podtopologyspread/plugin.go, Node Delete")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("full", [True, False], ids=["full", "bare"])
def test_a_node_that_is_deleted_is_no_domain(trial: Trial, expect: Expect, *, full: bool) -> None:
    """One pod of the app is on n1 and none on n2, which is full, or a node object that nothing else is known of: the
    next one waits, until n2 is deleted. A finalizer keeps the pod there."""
    trial.add(node("n1"), *([node("n2").cpu(1)] if full else []))
    if full:
        filler = pod_with("filler", "filler").request(cpu=1).select({HOST: "n2"})
        filler.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
        trial.submit(filler)
        expect.bound("filler")
    else:
        labels = {HOST: "n2", TRIAL_LABEL: trial.name}
        bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": labels}}
        trial.create(bare, "/api/v1/nodes")
    trial.submit(pod_with("first").select({HOST: "n1"}))
    expect.bound("first")
    trial.submit(pod_with("p", topologySpreadConstraints=spread()).request(cpu=1))
    waits(expect, "p", "spread")
    try:
        assert trial.call("DELETE", "/api/v1/nodes/n2").ok
        assert expect.bound("p").spec.node_name == "n1"
    finally:
        trial.call("PATCH", trial.path("Pod", "filler"), {"metadata": {"finalizers": None}})


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-438", severity="critical", source="KEP-3094: nodeAffinityPolicy")
@pytest.mark.long(seconds=6)
def test_a_node_that_is_not_selected_any_more_is_no_domain(trial: Trial, expect: Expect) -> None:
    """Pods of the app select two nodes, of which n2 is closed: the second pod waits. It is placed on n1 once n2 has the
    label no longer, and the third waits when n2 has it again."""
    trial.add(*(node(name).label("disk", "fast") for name in ("n1", "n2")))
    patch(trial, "/api/v1/nodes/n2", {"spec": {"unschedulable": True}})
    trial.settle()

    def submit(name: str) -> None:
        trial.submit(pod_with(name, topologySpreadConstraints=spread()).select({"disk": "fast"}))

    submit("p0")
    expect.bound("p0")
    submit("p1")
    waits(expect, "p1", "spread")
    patch(trial, "/api/v1/nodes/n2", {"metadata": {"labels": {"disk": None}}})
    assert expect.bound("p1").spec.node_name == "n1"
    patch(trial, "/api/v1/nodes/n2", {"metadata": {"labels": {"disk": "fast"}}})
    trial.settle()
    submit("p2")
    waits(expect, "p2", "spread")


@pytest.mark.feature("SCORE-4.anti-affinity", "PRE-1.lower-goes")
@pytest.mark.case("SC-439", severity="critical", source="kubernetes v1.28: interpodaffinity/filtering.go, RemovePod")
@pytest.mark.parametrize("holder", ["there", "important"])
def test_a_less_important_pod_goes_with_its_anti_affinity(trial: Trial, expect: Expect, holder: str) -> None:
    """The less important pod on the only node, or the important one that comes, has anti-affinity to the other's app:
    the first one goes, and one of another app stays."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1"))
    of_there, of_important = (
        {"affinity": apart_from(app)} if holder == name else {} for name, app in (("there", "b"), ("important", "a"))
    )
    trial.submit(pod_with("there", "a", **of_there), pod_with("other", "c"))
    expect.bound("there", "other")
    trial.submit(pod_with("important", "b", **of_important).priority_class("trial-high"))
    expect.gone("there")
    expect.bound("important", "other")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-116", severity="normal")
def test_soft_spread_outweighs_utilisation(trial: Trial, expect: Expect) -> None:
    """With ScheduleAnyway a pod goes to the fuller node that has no pod of its app; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        trial.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        crowd = [pod_with(f"{prefix}-{number}", prefix).select({HOST: here}) for number in range(3)]
        trial.submit(*crowd, pod_with(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: there}))
        expect.bound(f"{prefix}-filler", *(member.name for member in crowd))
        soft = spread(prefix, whenUnsatisfiable="ScheduleAnyway")
        trial.submit(pod_with(f"{prefix}-new", prefix, topologySpreadConstraints=soft).select({"pair": prefix}))
        assert expect.bound(f"{prefix}-new").spec.node_name == there


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-117", severity="normal")
def test_pods_of_a_service_spread_by_default(trial: Trial, expect: Expect) -> None:
    """Without constraints of its own, a pod of a Service goes to the fuller node without pods of the Service; without
    the Service the next one goes to the emptier node."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]},
    }
    trial.accept(service, f"/api/v1/namespaces/{trial.name}/services")
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    crowd = [pod_with(f"p{number}").select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod_with("new"))
    assert expect.bound("new").spec.node_name == "n2"
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/services/s").ok
    trial.settle()
    trial.submit(pod_with("late"))
    assert expect.bound("late").spec.node_name == "n1"
    expect.refusal()
