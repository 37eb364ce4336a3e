"""What counts for spread constraints, and for preferences between pods.

Each row of a table is set up where scores of nodes and chance cannot give the same result.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.suites.gang.namespaces import second_namespace
from seatrial.suites.scoring.rules import HOST, PREFERRED, REQUIRED, ZONE, Json, patch, pod_with, spread, term, waits

__all__ = ["second_namespace"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-480", severity="critical", source="kubernetes v1.28: podtopologyspread/common.go, filtering.go")
@pytest.mark.parametrize(
    ("selector", "app", "skew", "fits"),
    [
        pytest.param({"matchLabels": {"app": "a"}}, "a", 1, False, id="one-there-and-itself"),
        pytest.param({"matchLabels": {"app": "a"}}, "a", 2, True, id="skew-of-two"),
        pytest.param({"matchLabels": {"app": "a"}}, "b", 1, True, id="itself-not-selected"),
        pytest.param({"matchLabels": {"app": "b"}}, "b", 1, True, id="itself-alone"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, "b", 1, False, id="in"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, "b", 1, True, id="not"
        ),
        pytest.param({}, "a", 1, True, id="empty-selector-counts-nobody"),
        pytest.param(None, "a", 1, True, id="no-selector-counts-nobody"),
    ],
)
def test_which_pods_a_constraint_counts(  # noqa: PLR0917
    trial: Trial, expect: Expect, selector: Json | None, app: str, skew: int, fits: bool
) -> None:
    """One pod of app a is on n1, beside one of app c, and none on n2, which is full. The next pod is bound to n1,
    unless the skew would be too large: then it waits for n2."""
    trial.add(node("n1").cpu(16), node("n2").cpu(2))
    trial.submit(pod_with("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    trial.submit(pod_with("first").select({HOST: "n1"}), pod_with("other", "c").select({HOST: "n1"}))
    expect.bound("filler", "first", "other")
    (constraint,) = spread(maxSkew=skew)
    del constraint["labelSelector"]
    if selector is not None:
        constraint["labelSelector"] = selector
    trial.submit(pod_with("next", app, topologySpreadConstraints=[constraint]).request(cpu=1))
    if not fits:
        waits(expect, "next", "topology spread constraints")
        trial.delete("filler")
    assert expect.bound("next").spec.node_name == ("n1" if fits else "n2")
    expect.refusal()


def serve(trial: Trial, name: str, **labels: str) -> None:
    service = {"metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"port": 80}]}}
    trial.accept({"apiVersion": "v1", "kind": "Service", **service}, f"/api/v1/namespaces/{trial.name}/services")


def replicas(trial: Trial, kind: str, count: int) -> None:
    """Create a controller of pods of app a."""
    like = pod_with("x").select({TRIAL_LABEL: trial.name}).manifest
    template = {"metadata": {"labels": like["metadata"]["labels"]}, "spec": {**like["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    of_kind = {"serviceName": "none", "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    trial.apply({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "r"}, "spec": {**spec, **of_kind}})


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-483", severity="normal", source="kubernetes v1.28: plugins/helper/spread.go, DefaultSelector")
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_of_a_controller_spread_by_default(trial: Trial, expect: Expect, kind: str) -> None:
    """One of two nodes is emptier. Each gets one of two pods of a controller, which no Service selects."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    trial.submit(pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler")
    replicas(trial, kind, 0)
    trial.settle()  # the scheduler knows the controller before the pods come
    path = f"/apis/apps/v1/namespaces/{trial.name}/{kind.lower()}s/r"
    assert trial.call("PATCH", path, {"spec": {"replicas": 2}}).ok

    def places() -> list[str]:
        return sorted(each.spec.node_name for each in trial.pods() if each.metadata.labels.get("app") == "a")

    assert trial.reaches(lambda: len(places()) == 2 and all(places()), within=30), trial.timeline()
    assert places() == ["n1", "n2"]
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case(
    "SC-730", severity="normal", source="kubernetes v1.28: plugins/helper/spread.go, GetControllerOfNoCopy"
)
@pytest.mark.parametrize(("controller", "where"), [(True, "n2"), (False, "n1")])
def test_an_owner_that_is_no_controller_has_no_part_in_spreading(
    trial: Trial, expect: Expect, *, controller: bool, where: str
) -> None:
    """The pods of a StatefulSet are on the emptier node. Another pod names it as its owner, and is bound there unless
    that is its controller."""
    trial.add(node("n1").cpu(16))
    replicas(trial, "StatefulSet", 3)
    expect.bound("r-0", "r-1", "r-2")
    trial.add(node("n2").cpu(16))
    trial.submit(pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler")
    (owner,) = trial.pod("r-0").metadata.owner_references
    built = pod_with("next", "b")
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "r", "uid": owner.uid}
    built.manifest["metadata"]["ownerReferences"] = [{**reference, "controller": controller}]
    trial.submit(built)
    assert expect.bound("next").spec.node_name == where
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-484", severity="normal", source="kubernetes v1.28: plugins/helper/spread.go, DefaultSelector")
@pytest.mark.parametrize(
    ("app", "tier"), [("a", "x"), ("a", "other"), ("b", "x")], ids=["of-both-services", "of-one", "of-the-other"]
)
def test_a_pod_of_two_services_spreads_from_pods_of_both(trial: Trial, expect: Expect, app: str, tier: str) -> None:
    """Three pods on the emptier node are of both Services of the next pod, or of one: those of both count."""
    serve(trial, "app", app="a")
    serve(trial, "tier", tier="x")
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    crowd = [pod_with(f"p{number}", app).label("tier", tier).select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod_with("next").label("tier", "x"))
    assert expect.bound("next").spec.node_name == ("n2" if (app, tier) == ("a", "x") else "n1")
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-680", severity="normal", source="kubernetes v1.35: podtopologyspread/common.go")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_pods_of_other_namespaces_do_not_count(trial: Trial, expect: Expect, second_namespace: str) -> None:
    """On n1 is a pod of the app in another namespace, and n2 is full: the first pod of the app in its own namespace is
    bound to n1, and the second one waits."""
    trial.add(node("n1").cpu(16), node("n2").cpu(2))
    pods = f"/api/v1/namespaces/{second_namespace}/pods"
    trial.accept(pod_with("theirs").select({HOST: "n1", TRIAL_LABEL: trial.name}).manifest, pods)
    trial.submit(pod_with("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    expect.bound("filler")
    assert trial.reaches(lambda: b'"nodeName"' in trial.call("GET", f"{pods}/theirs").body, within=30)
    for name in ("first", "second"):
        trial.submit(pod_with(name, topologySpreadConstraints=spread()).request(cpu=1))
        expect.bound(name) if name == "first" else waits(expect, name, "topology spread constraints")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-681", severity="normal", source="kubernetes v1.35: podtopologyspread/plugin.go")
@pytest.mark.parametrize(("other", "same"), [("n2", "n3"), ("n3", "n2")])
def test_zones_spread_by_default(trial: Trial, expect: Expect, other: str, same: str) -> None:
    """Three pods of a Service are on a node of zone x. The next one goes to the node of zone y, though the second node
    of zone x is emptier."""
    serve(trial, "app", app="a")
    zones = {"n1": "x", same: "x", other: "y"}
    trial.add(*(node(name).cpu(16).label(ZONE, zones[name]) for name in sorted(zones)))
    crowd = [pod_with(f"p{number}").select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=4).select({HOST: other}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod_with("next"))
    assert expect.bound("next").spec.node_name == other
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-521", severity="normal", source="kubernetes v1.28: podtopologyspread/common.go, scoring.go")
@pytest.mark.parametrize("own", [True, False], ids=["a-constraint-of-its-own", "none"])
def test_defaults_are_for_pods_without_constraints(trial: Trial, expect: Expect, own: bool) -> None:
    """Three pods of its Service are on the emptier node. The next pod goes to the other one, unless it has a constraint
    of its own, which both nodes meet."""
    serve(trial, "app", app="a")
    trial.add(*(node(name).cpu(16).label(ZONE, name) for name in ("n1", "n2")))
    crowd = [pod_with(f"p{number}").select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod_with("next", topologySpreadConstraints=spread(maxSkew=9)) if own else pod_with("next"))
    assert expect.bound("next").spec.node_name == ("n1" if own else "n2")
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-522", severity="normal", source="kubernetes v1.28: podtopologyspread/scoring.go, scoreForCount")
@pytest.mark.parametrize(("skew", "home"), [(1, "n2"), (9, "n1")])
def test_a_large_skew_makes_a_difference_small(trial: Trial, expect: Expect, skew: int, home: str) -> None:
    """A pod prefers n1, where a pod of its kind is already. It is more than an uneven spread if the constraint allows
    a large skew, and less if it allows none."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    trial.submit(pod_with("first").select({HOST: "n1"}))
    expect.bound("first")
    prefers = {"weight": 1, "preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n1"]}]}}
    constraints = spread(maxSkew=skew, whenUnsatisfiable="ScheduleAnyway")
    affinity = {"nodeAffinity": {PREFERRED: [prefers]}}
    trial.submit(pod_with("next", topologySpreadConstraints=constraints, affinity=affinity))
    assert expect.bound("next").spec.node_name == home
    expect.refusal()


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case(
    "SC-523", severity="normal", source="kubernetes v1.28: podtopologyspread/scoring.go, topologyNormalizingWeight"
)
def test_a_key_of_many_domains_weighs_more(trial: Trial, expect: Expect) -> None:
    """Zones are to be even in pods of app b, of which zone x has eight and zone y none; racks in pods of app c. In zone
    x rack 1 has none and rack 2 seven of these; in zone y rack 3 has seven and rack 4 nine. As there are four racks and
    two zones, seven pods of a rack are more than eight of a zone: the pod goes to rack 1."""
    for number, zone in enumerate("xxyy", 1):
        trial.add(node(f"n{number}").cpu(64).pods(200).label(ZONE, zone).label("rack", f"r{number}"))
    crowd = {"b": {"n2": 8}, "c": {"n2": 7, "n3": 7, "n4": 9}}
    pods = [
        pod_with(f"{app}-{where}-{number}", app).request(cpu="1m", memory="1Mi").select({HOST: where})
        for app, places in crowd.items()
        for where, count in places.items()
        for number in range(count)
    ]
    trial.submit(*pods)
    expect.bound(*(one.name for one in pods))
    soft = [
        *spread("b", topologyKey=ZONE, whenUnsatisfiable="ScheduleAnyway"),
        *spread("c", topologyKey="rack", whenUnsatisfiable="ScheduleAnyway"),
    ]
    trial.submit(pod_with("next", "a", topologySpreadConstraints=soft).request(cpu="1m", memory="1Mi"))
    assert expect.bound("next").spec.node_name == "n1"
    expect.refusal()


def wish(app: str, weight: int) -> Json:
    return {"weight": weight, "podAffinityTerm": term(app)}


def near(*wishes: Json) -> Json:
    return {"podAffinity": {PREFERRED: [*wishes]}}


def far(*wishes: Json) -> Json:
    return {"podAntiAffinity": {PREFERRED: [*wishes]}}


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-481", severity="normal", source="kubernetes v1.28: interpodaffinity/scoring.go")
@pytest.mark.parametrize(
    ("on_fuller", "on_emptier", "own"),
    [
        pytest.param([("c", {})], [("b", {})], near(wish("b", 10), wish("c", 90)), id="weights"),
        pytest.param([("b", {}), ("b", {})], [("c", {})], near(wish("b", 40), wish("c", 60)), id="each-pod-counts"),
        pytest.param([("b", {})], [("c", {})], near(wish("b", 60)) | far(wish("c", 10)), id="near-and-far"),
        pytest.param([("b", {})], [("b", {}), ("b", {})], far(wish("b", 50)), id="fewer-to-avoid"),
        pytest.param([("b", near(wish("new", 100)))], [("b", {})], {}, id="wish-of-a-placed-pod"),
        pytest.param([("b", {})], [("b", far(wish("new", 100)))], {}, id="aversion-of-a-placed-pod"),
        pytest.param(
            [("new", {"podAffinity": {REQUIRED: [term("new")]}})], [("b", {})], {}, id="requirement-of-a-placed-pod"
        ),
    ],
)
@pytest.mark.parametrize(("fuller", "emptier"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_preferences_between_pods(  # noqa: PLR0917
    trial: Trial,
    expect: Expect,
    on_fuller: list[tuple[str, Json]],
    on_emptier: list[tuple[str, Json]],
    own: Json,
    fuller: str,
    emptier: str,
) -> None:
    """Pods of two nodes, and what they or the next pod prefer: that goes to the fuller node."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    trial.submit(pod_with("filler", "filler").request(cpu=6).select({HOST: fuller}))
    expect.bound("filler")
    for where, pods in ((fuller, on_fuller), (emptier, on_emptier)):
        for number, (app, affinity) in enumerate(pods):
            trial.submit(pod_with(f"{where}-{number}", app, affinity=affinity).select({HOST: where}))
            expect.bound(f"{where}-{number}")
    trial.submit(pod_with("new", "new", affinity=own))
    assert expect.bound("new").spec.node_name == fuller
    expect.refusal()


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-482", severity="normal", source="kubernetes v1.28: plugins/interpodaffinity, podMatchesAllAffinityTerms"
)
def test_one_pod_matches_all_terms(trial: Trial, expect: Expect) -> None:
    """A pod has affinity to an app and to a tier. The emptier node has a pod of the app and one of the tier: it waits
    for a pod that is of both, and goes to that."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    trial.submit(pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    trial.submit(
        pod_with("app", "a").select({HOST: "n1"}), pod_with("tier", "t").label("tier", "x").select({HOST: "n1"})
    )
    expect.bound("filler", "app", "tier")
    of_tier = {"labelSelector": {"matchLabels": {"tier": "x"}}, "topologyKey": HOST}
    trial.submit(pod_with("p", "p", affinity={"podAffinity": {REQUIRED: [term("a"), of_tier]}}))
    waits(expect, "p", "pod affinity")
    trial.submit(pod_with("both", "a").label("tier", "x").select({HOST: "n2"}))
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.affinity", "SCORE-4.spread")
@pytest.mark.case(
    "SC-485", severity="normal", source="kubernetes v1.28: interpodaffinity/scoring.go, podtopologyspread/scoring.go"
)
@pytest.mark.parametrize("rule", ["near", "far", "spread", "spread-of-all-nodes"])
@pytest.mark.parametrize(("fuller", "emptier"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_pods_of_a_whole_zone_count(trial: Trial, expect: Expect, rule: str, fuller: str, emptier: str) -> None:
    """Zones a and b have a node of the pool each, and a has a full node of another pool, which alone has pods of app b.
    A pod of the pool goes to the zone that it prefers by these, and not to the one whose node is emptier. For an even
    spread nodes of other pools count where the constraint says so: else the pod in zone b is alone."""
    of_a_counts = rule != "spread"
    in_a, in_b = (emptier, fuller) if rule in {"far", "spread-of-all-nodes"} else (fuller, emptier)
    for name, zone in ((in_a, "a"), (in_b, "b")):
        trial.add(node(name).cpu(16).label(ZONE, zone).label("pool", "x"))
    trial.add(node("full").cpu(16).label(ZONE, "a").label("pool", "y"))
    crowd = [pod_with(f"p{number}", "b").select({HOST: "full"}) for number in range(3)]
    if not of_a_counts:
        crowd.append(pod_with("alone", "b").select({HOST: in_b}))
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=6).select({HOST: fuller}))
    expect.bound("filler", *(member.name for member in crowd))
    builder = pod_with("new", "new").select({"pool": "x"})
    zone_wish = {"weight": 100, "podAffinityTerm": term("b", key=ZONE)}
    if rule in {"near", "far"}:
        builder.manifest["spec"]["affinity"] = near(zone_wish) if rule == "near" else far(zone_wish)
    else:
        policy = "Ignore" if of_a_counts else "Honor"
        soft = spread("b", topologyKey=ZONE, whenUnsatisfiable="ScheduleAnyway", nodeAffinityPolicy=policy)
        builder.manifest["spec"]["topologySpreadConstraints"] = soft
    trial.submit(builder)
    assert expect.bound("new").spec.node_name == fuller
    expect.refusal()


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-524", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity, satisfyPodAffinity"
)
@pytest.mark.parametrize("full", [False, True], ids=["room", "full"])
def test_a_pod_that_matches_its_own_term_follows_the_first(trial: Trial, expect: Expect, full: bool) -> None:
    """Pods of an app must be on one node. The first is on the fuller one: the second goes there, or waits if it has no
    room, though the other node is empty."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    together = {"podAffinity": {REQUIRED: [term("a")]}}
    trial.submit(pod_with("first", affinity=together).request(cpu=8).select({HOST: "n2"}))
    expect.bound("first")
    trial.submit(pod_with("second", affinity=together).request(cpu=12 if full else 4))
    if full:
        waits(expect, "second", "pod affinity rules")
    else:
        assert expect.bound("second").spec.node_name == "n2"
    expect.refusal()


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-525", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity, satisfyPodAffinity"
)
@pytest.mark.parametrize("keys", [(HOST, ZONE), (ZONE, HOST)], ids=["host-first", "zone-first"])
def test_all_terms_hold_on_the_node(trial: Trial, expect: Expect, keys: tuple[str, ...]) -> None:
    """A pod must be on the node of a pod, and in its zone. The other node of the zone is empty, that one is full: the
    pod waits until it has room."""
    trial.add(*(node(name).cpu(4).label(ZONE, "x") for name in ("n1", "n2")))
    trial.submit(pod_with("first").request(cpu=1).select({HOST: "n1"}))
    trial.submit(pod_with("filler", "filler").request(cpu=3).select({HOST: "n1"}))
    expect.bound("first", "filler")
    terms = [term("a", key=key) for key in keys]
    trial.submit(pod_with("next", "b", affinity={"podAffinity": {REQUIRED: terms}}).request(cpu=2))
    waits(expect, "next", "pod affinity rules")
    trial.delete("filler")
    assert expect.bound("next").spec.node_name == "n1"


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-526", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity; labels.Selector, In"
)
@pytest.mark.parametrize("app", ["b", "c"])
def test_each_value_of_a_selector_counts_for_pods_that_come_later(trial: Trial, expect: Expect, app: str) -> None:
    """A placed pod must not be near apps b and c: pods of either come later and do not get its node. Another pod must
    be near one of these: it goes where the later pod is."""
    trial.add(node("n1").cpu(16), node("n2").cpu(4))
    either = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["b", "c"]}]}
    of_either = {"labelSelector": either, "topologyKey": HOST}
    trial.submit(pod_with("alone", affinity={"podAntiAffinity": {REQUIRED: [of_either]}}).select({HOST: "n1"}))
    trial.submit(pod_with("near", "d", affinity={"podAffinity": {REQUIRED: [of_either]}}))
    expect.bound("alone")
    waits(expect, "near", "pod affinity rules")
    trial.submit(pod_with("later", app).request(cpu=3))
    assert expect.bound("later").spec.node_name == "n2"
    assert expect.bound("near").spec.node_name == "n2"
    expect.refusal()


@pytest.mark.feature("SCORE-4.affinity", "SCORE-4.spread")
@pytest.mark.case(
    "SC-527", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity, podtopologyspread, Filter"
)
@pytest.mark.parametrize("rule", ["near", "far", "spread"])
def test_a_node_gets_its_zone_later(trial: Trial, expect: Expect, rule: str) -> None:
    """The only node with room has no zone. A pod that must be near one of zone x, or be spread over zones, waits until
    it has one; a pod that avoids one of zone x is bound to it as long as it has none."""
    trial.add(node("n1").cpu(8).label(ZONE, "x"), node("n2").cpu(8))
    trial.submit(pod_with("first").request(cpu=8).select({HOST: "n1"}))
    expect.bound("first")
    one = term("a", key=ZONE)
    rules: Json = {
        "near": {"affinity": {"podAffinity": {REQUIRED: [one]}}},
        "far": {"affinity": {"podAntiAffinity": {REQUIRED: [one]}}},
        "spread": {"topologySpreadConstraints": spread(topologyKey=ZONE, maxSkew=2)},
    }
    trial.submit(pod_with("before", "b", **rules[rule]).request(cpu=2))
    if rule == "far":
        assert expect.bound("before").spec.node_name == "n2"
    else:
        waits(expect, "before")

    patch(trial, "/api/v1/nodes/n2", {"metadata": {"labels": {ZONE: "x"}}})

    trial.settle()
    trial.submit(pod_with("after", "b", **rules[rule]).request(cpu=2))
    if rule == "far":
        waits(expect, "after")
    else:
        assert [each.spec.node_name for each in expect.bound("before", "after")] == ["n2", "n2"]


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case(
    "SC-530", severity="critical", source="kubernetes v1.28: plugins/interpodaffinity, satisfyExistingPodsAntiAffinity"
)
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_pod_keeps_its_aversion_when_it_changes(trial: Trial, expect: Expect, part: str) -> None:
    """A placed pod must not be near app b, and gets a label or an annotation: a pod of b still waits, until it is
    gone."""
    trial.add(node("n1").cpu(16))
    trial.submit(pod_with("alone", affinity={"podAntiAffinity": {REQUIRED: [term("b")]}}))
    expect.bound("alone")
    patch(trial, trial.path("Pod", "alone"), {"metadata": {part: {"example.com/mark": "x"}}})
    trial.settle()
    trial.submit(pod_with("next", "b"))
    waits(expect, "next", "existing pods anti-affinity rules")
    trial.delete("alone")
    expect.bound("next")
