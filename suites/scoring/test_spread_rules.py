"""What counts for spread constraints, and for preferences between pods.

Each row of a table is set up where scores of nodes and chance cannot give the same result.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.suites.scoring.rules import HOST, PREFERRED, REQUIRED, Json, pod_with, spread, term, waits

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


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-482", severity="normal", source="kubernetes v1.34: interpodaffinity, podMatchesAllAffinityTerms")
def test_one_pod_matches_all_terms(trial: Trial, expect: Expect) -> None:
    """A pod has affinity to an app and to a tier. The emptier node has a pod of the app and one of the tier: it waits for
    a pod that is of both, and goes to that."""
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
