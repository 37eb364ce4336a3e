"""What counts for spread constraints, and for preferences between pods.

Each row of a table is set up where scores of nodes and chance cannot give the same result.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.suites.scoring.rules import HOST, PREFERRED, REQUIRED, ZONE, Json, pod_with, spread, term, waits

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-480", severity="critical", source="kubernetes v1.34: podtopologyspread/common.go, filtering.go")
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
@pytest.mark.case("SC-483", severity="normal", source="kubernetes v1.34: plugins/helper/spread.go, DefaultSelector")
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
@pytest.mark.case("SC-484", severity="normal", source="kubernetes v1.34: plugins/helper/spread.go, DefaultSelector")
@pytest.mark.parametrize("tier", ["x", ""], ids=["of-both-services", "of-one"])
def test_a_pod_of_two_services_spreads_from_pods_of_both(trial: Trial, expect: Expect, tier: str) -> None:
    """Three pods on the emptier node are of both Services of the next pod, or of one: those of both count."""
    serve(trial, "app", app="a")
    serve(trial, "tier", tier="x")
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    crowd = [pod_with(f"p{number}").label("tier", tier or "other").select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod_with("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod_with("next").label("tier", "x"))
    assert expect.bound("next").spec.node_name == ("n2" if tier else "n1")
    expect.refusal()


def wish(app: str, weight: int) -> Json:
    return {"weight": weight, "podAffinityTerm": term(app)}


def near(*wishes: Json) -> Json:
    return {"podAffinity": {PREFERRED: [*wishes]}}


def far(*wishes: Json) -> Json:
    return {"podAntiAffinity": {PREFERRED: [*wishes]}}


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-481", severity="normal", source="kubernetes v1.34: interpodaffinity/scoring.go")
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
@pytest.mark.case("SC-482", severity="normal", source="kubernetes v1.34: interpodaffinity, podMatchesAllAffinityTerms")
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
    "SC-485", severity="normal", source="kubernetes v1.34: interpodaffinity/scoring.go, podtopologyspread/scoring.go"
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
