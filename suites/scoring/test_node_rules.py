"""Rules between pods and nodes: taints, selectors, node affinity, cordons.

Each case is set up where scores and chance cannot give the same result: one node is left, or none.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.suites.scoring.rules import (
    HOST,
    PREFERRED,
    REQUIRED,
    Json,
    expression,
    node_terms,
    patch,
    pod_with,
    waits,
)

pytestmark = [pytest.mark.needs(Capability.NODES)]

NAME = "metadata.name"
OF_DISK = {"matchExpressions": [expression("disk", "In", "fast")]}


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-120", severity="critical")
def test_no_execute_keeps_pods_away(trial: Trial, expect: Expect) -> None:
    """A taint with effect NoExecute keeps a pod away that does not tolerate it."""
    trial.add(node("n1").taint("team", effect="NoExecute"))
    trial.submit(pod_with("p"), pod_with("tolerant", tolerations=[{"key": "team", "operator": "Exists"}]))
    expect.bound("tolerant")
    waits(expect, "p", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-121", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_toleration_names_key_and_value(trial: Trial, expect: Expect) -> None:
    """Tolerations of another key or another value do not help."""
    trial.add(node("n1").taint("team", "red"))
    trial.submit(
        pod_with("key", tolerations=[{"key": "other", "operator": "Exists"}]),
        pod_with("value", tolerations=[{"key": "team", "operator": "Equal", "value": "blue"}]),
        pod_with("right", tolerations=[{"key": "team", "operator": "Equal", "value": "red"}]),
    )
    expect.bound("right")
    waits(expect, "key", "untolerated taint")
    waits(expect, "value", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case(
    "SC-670", severity="critical", source="kubernetes k8s.io/api core/v1/toleration.go@v1.35: ToleratesTaint"
)
def test_a_toleration_need_not_name_everything(trial: Trial, expect: Expect) -> None:
    """Without a key, Exists tolerates every taint; without an operator, key and value are compared; another effect
    than that of the taint is not tolerated."""
    trial.add(node("n1").taint("team", "red"))
    trial.submit(
        pod_with("any", tolerations=[{"operator": "Exists"}]),
        pod_with("no-operator", tolerations=[{"key": "team", "value": "red"}]),
        pod_with("effect", tolerations=[{"key": "team", "operator": "Exists", "effect": "NoExecute"}]),
    )
    expect.bound("any", "no-operator")
    waits(expect, "effect", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-671", severity="critical", source="kubernetes plugins/tainttoleration@v1.35: Filter")
@pytest.mark.long(seconds=6)
def test_every_taint_has_to_be_tolerated(trial: Trial, expect: Expect) -> None:
    """A node has two taints: a pod that tolerates the first one, or the second one, waits."""
    trial.add(node("n1").taint("a").taint("b"))
    some = {key: {"key": key, "operator": "Exists"} for key in "ab"}
    trial.submit(
        pod_with("both", tolerations=list(some.values())),
        *(pod_with(f"one-{key}", tolerations=[some[key]]) for key in some),
    )
    expect.bound("both")
    waits(expect, "one-a", "untolerated taint")
    waits(expect, "one-b", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-672", severity="normal", source="kubernetes plugins/nodeunschedulable@v1.35: Filter")
def test_a_cordon_is_tolerated_as_a_taint(trial: Trial, expect: Expect) -> None:
    """A pod that tolerates the taint of cordoned nodes, as pods of a DaemonSet do, is placed on one."""
    trial.add(node("n1"))
    patch(trial, "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    trial.settle()
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    trial.submit(pod_with("p", tolerations=[cordon]), pod_with("q"))
    expect.bound("p")
    waits(expect, "q", "unschedulable")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-180", severity="normal")
@pytest.mark.parametrize(("tainted", "other"), [("n1", "n2"), ("n2", "n1")])
def test_a_tolerated_taint_costs_nothing(trial: Trial, expect: Expect, tainted: str, other: str) -> None:
    """A pod tolerates the NoSchedule taint of the emptier node, by that effect alone: it goes there."""
    trial.add(node(tainted).cpu(64).memory("256Gi").taint("team"), node(other).cpu(4).memory("16Gi"))
    toleration = {"key": "team", "operator": "Exists", "effect": "NoSchedule"}
    trial.submit(pod_with("p", tolerations=[toleration]).request(cpu=2, memory="8Gi"), pod_with("q").request(cpu=2))
    assert expect.bound("p").spec.node_name == tainted
    assert expect.bound("q").spec.node_name == other


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-122", severity="normal")
@pytest.mark.parametrize("both", [False, True], ids=["one-to-none", "two-to-one"])
def test_prefer_no_schedule_outweighs_utilisation(trial: Trial, expect: Expect, both: bool) -> None:
    """A pod goes to the fuller node, because the emptier one has one more PreferNoSchedule taint; for both names. One
    that tolerates that taint, whatever its effect is, goes to the emptier one."""
    for tainted, other, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        pair = [node(name).cpu(16).label("pair", prefix) for name in (tainted, other)]
        for each in pair if both else ():
            each.taint("old", effect="PreferNoSchedule")
        pair[0].taint("slow", effect="PreferNoSchedule")
        trial.add(*pair)
        trial.submit(pod_with(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: other}))
        expect.bound(f"{prefix}-filler")
        trial.submit(pod_with(f"{prefix}-p").select({"pair": prefix}))
        assert expect.bound(f"{prefix}-p").spec.node_name == other
        tolerant = pod_with(f"{prefix}-q", tolerations=[{"key": "slow", "operator": "Exists"}])
        trial.submit(tolerant.select({"pair": prefix}))
        assert expect.bound(tolerant.name).spec.node_name == tainted
    expect.refusal()


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-123", severity="critical")
def test_terms_are_alternatives_and_expressions_are_not(trial: Trial, expect: Expect) -> None:
    """Of several node selector terms one is enough; of the expressions of a term all must hold."""
    trial.add(node("n1").label("disk", "fast"))
    fast, big = expression("disk", "In", "fast"), expression("size", "In", "big")
    trial.submit(
        pod_with("either", affinity=node_terms([fast], [big])), pod_with("both", affinity=node_terms([fast, big]))
    )
    expect.bound("either")
    waits(expect, "both", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-124", severity="normal")
def test_not_in_admits_nodes_without_the_label(trial: Trial, expect: Expect) -> None:
    """NotIn and DoesNotExist admit a node without the label, In and Exists do not."""
    trial.add(node("n1"))
    trial.submit(
        pod_with("not-in", affinity=node_terms([expression("disk", "NotIn", "slow")])),
        pod_with("absent", affinity=node_terms([expression("disk", "DoesNotExist")])),
        pod_with("exists", affinity=node_terms([expression("disk", "Exists")])),
    )
    expect.bound("not-in", "absent")
    waits(expect, "exists", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-125", severity="normal")
@pytest.mark.long(seconds=6)
def test_gt_and_lt_exclude_the_bound(trial: Trial, expect: Expect) -> None:
    """Gt 5 and Lt 5 exclude a node with 5; Gt 4 and Lt 6 admit it."""
    trial.add(node("n1").label("size", "5"))
    for name, operator, value in (("gt4", "Gt", "4"), ("lt6", "Lt", "6"), ("gt5", "Gt", "5"), ("lt5", "Lt", "5")):
        trial.submit(pod_with(name, affinity=node_terms([expression("size", operator, value)])))
    expect.bound("gt4", "lt6")
    waits(expect, "gt5")
    waits(expect, "lt5")


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-126", severity="normal")
def test_preferences_have_weights(trial: Trial, expect: Expect) -> None:
    """One preference of weight 50 outweighs two of weight 1; for both names."""
    for heavy, light, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        trial.add(node(heavy).cpu(16).label("pair", prefix), node(light).cpu(16).label("pair", prefix))
        trial.submit(pod_with(f"{prefix}-filler", "filler").request(cpu=4).select({HOST: heavy}))
        expect.bound(f"{prefix}-filler")
        wishes = [(50, heavy), (1, light), (1, light)]
        preferred = [
            {"weight": weight, "preference": {"matchExpressions": [expression(HOST, "In", name)]}}
            for weight, name in wishes
        ]
        chooser = pod_with(f"{prefix}-p", affinity={"nodeAffinity": {PREFERRED: preferred}}).select({"pair": prefix})
        trial.submit(chooser)
        assert expect.bound(f"{prefix}-p").spec.node_name == heavy


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case(
    "SC-660",
    severity="normal",
    source="kubernetes 1.37 component-helpers/scheduling/corev1/nodeaffinity: NewPreferredSchedulingTerms",
)
def test_an_empty_preference_says_nothing(trial: Trial, expect: Expect) -> None:
    """A preference of weight 1 outweighs utilisation beside an empty one of weight 100; for both names."""
    for liked, other, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        trial.add(node(liked).cpu(16).label("pair", prefix), node(other).cpu(16).label("pair", prefix))
        trial.submit(pod_with(f"{prefix}-filler", "filler").request(cpu=4).select({HOST: liked}))
        expect.bound(f"{prefix}-filler")
        term = {"matchExpressions": [expression(HOST, "In", liked)]}
        preferred = [{"weight": 100, "preference": {}}, {"weight": 1, "preference": term}]
        chooser = pod_with(f"{prefix}-p", affinity={"nodeAffinity": {PREFERRED: preferred}}).select({"pair": prefix})
        trial.submit(chooser)
        assert expect.bound(f"{prefix}-p").spec.node_name == liked


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-127", severity="critical")
def test_selector_and_affinity_must_both_hold(trial: Trial, expect: Expect) -> None:
    """A node that the required affinity admits and the node selector does not is refused."""
    trial.add(node("n1").label("disk", "fast"))
    affinity = node_terms([expression("disk", "In", "fast")])
    trial.submit(pod_with("p", affinity=affinity).select({"size": "big"}), pod_with("q", affinity=affinity))
    expect.bound("q")
    waits(expect, "p", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-128", severity="normal")
def test_match_fields_name_the_node(trial: Trial, expect: Expect) -> None:
    """A term with metadata.name places the pod on that node although the other is empty; an unknown name waits."""
    trial.add(node("n1").cpu(16), node("n2").cpu(16))
    trial.submit(pod_with("filler", "filler").request(cpu=8).select({HOST: "n2"}))
    expect.bound("filler")
    for name, target in (("named", "n2"), ("lost", "n9")):
        terms = [{"matchFields": [expression("metadata.name", "In", target)]}]
        trial.submit(pod_with(name, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
    assert expect.bound("named").spec.node_name == "n2"
    waits(expect, "lost")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case(
    "SC-673",
    severity="normal",
    source="kubernetes plugins/nodeaffinity@v1.35: PreFilter; component-helpers nodeaffinity",
)
@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        pytest.param([{"matchFields": [expression(NAME, "NotIn", "n1")]}], True, id="not-that-node"),
        pytest.param([{"matchFields": [expression(NAME, "In", "n1")]}, OF_DISK], True, id="a-name-or-a-label"),
        pytest.param([{"matchFields": [expression(NAME, "In", "n1")], **OF_DISK}], False, id="a-name-and-a-label"),
    ],
)
def test_names_in_terms(trial: Trial, expect: Expect, terms: list[Json], fits: bool) -> None:
    """A pod has room on n2 alone, which has the label, and is placed there if a term selects it."""
    trial.add(node("n1").cpu(4), node("n2").cpu(16).label("disk", "fast"))
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    trial.submit(pod_with("p", affinity=affinity).request(cpu=8))
    if fits:
        expect.bound("p")
        expect.refusal()
    else:
        waits(expect, "p")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-129", severity="critical")
def test_a_cordoned_node_gets_no_pods_until_it_is_opened(trial: Trial, expect: Expect) -> None:
    """A pod waits while its only node is cordoned, and is placed when it is not any more."""
    trial.add(node("n1"))
    patch(trial, "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    trial.submit(pod_with("p"))
    waits(expect, "p", "unschedulable")
    patch(trial, "/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
    expect.bound("p")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-130", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_new_label_opens_a_node(trial: Trial, expect: Expect) -> None:
    """A waiting pod is placed when its node gets the label that it selects, and a taint that goes opens a node."""
    trial.add(node("n1").label("disk", "slow"), node("n2").taint("team"))
    trial.submit(pod_with("p").select({"disk": "fast"}), pod_with("q").select({HOST: "n2"}))
    waits(expect, "p")
    waits(expect, "q")
    patch(trial, "/api/v1/nodes/n1", {"metadata": {"labels": {"disk": "fast"}}})
    patch(trial, "/api/v1/nodes/n2", {"spec": {"taints": None}})
    assert expect.bound("p").spec.node_name == "n1"
    assert expect.bound("q").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-300", severity="critical", source="kubernetes component-helpers scheduling/corev1/nodeaffinity")
@pytest.mark.long(seconds=10)
def test_every_operator_refuses_what_it_excludes(trial: Trial, expect: Expect) -> None:
    """The only node has disk=slow: In of other values, NotIn of its value and DoesNotExist keep pods away."""
    trial.add(node("n1").label("disk", "slow"))
    for name, operator, values in (
        ("in", "In", ["fast", "faster"]),
        ("not-in", "NotIn", ["fast", "slow"]),
        ("absent", "DoesNotExist", []),
    ):
        trial.submit(pod_with(name, affinity=node_terms([expression("disk", operator, *values)])))
    trial.submit(
        pod_with("in-second", affinity=node_terms([expression("disk", "In", "fast", "slow")])),
        pod_with("not-in-other", affinity=node_terms([expression("disk", "NotIn", "fast")])),
        pod_with("exists", affinity=node_terms([expression("disk", "Exists")])),
    )
    expect.bound("in-second", "not-in-other", "exists")
    for name in ("in", "not-in", "absent"):
        waits(expect, name, "node affinity/selector")
