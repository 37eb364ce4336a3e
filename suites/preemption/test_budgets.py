"""Which pods a disruption budget protects, and how far its allowance goes.

Nodes have four CPUs. The pod of n1 is of low priority, that of n2 of middle priority and under no budget: a pod of high
priority takes the low one's place unless that violates a budget.
"""

from pathlib import Path

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.scheduler.api.builders import disruption_budget, native_gang, node, priority_class
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.suites.faults.schedulers import with_arguments
from seatrial.suites.preemption.nominations import of
from seatrial.suites.preemption.priorities import classes, second_namespace
from seatrial.suites.scoring.rules import Json, expression

__all__ = ["classes", "second_namespace"]

pytestmark = [pytest.mark.needs(Capability.NODES)]
GUARDED = {"app": "guarded"}
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
RULE = "spec FWK-R78, FWK-R81"


def hosts(trial: Trial, *names: str) -> None:
    trial.add(*(node(name).cpu(4).label("host", name) for name in names))


def preempts_on(trial: Trial, expect: Expect, where: str) -> None:
    """A pod of high priority takes the place of a pod on that node."""
    trial.settle(3)  # the budget's status counts its pods
    trial.submit(of("high", "high", 4))
    assert expect.running("high").spec.node_name == where


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-077", severity="critical", source=RULE)
@pytest.mark.parametrize(("strict", "loose"), [("a", "b"), ("b", "a")])
def test_each_budget_of_a_pod_counts(classes: Trial, expect: Expect, strict: str, loose: str) -> None:
    """The low pod is under a budget that allows a disruption and under one that allows none: the middle one goes."""
    hosts(classes, "n1", "n2")
    classes.apply(
        disruption_budget(strict, GUARDED, min_available=1), disruption_budget(loose, GUARDED, min_available=0)
    )
    classes.submit(of("low", "low", 4).label("app", "guarded").on(host="n1"), of("middle", "middle", 4).on(host="n2"))
    expect.running("low", "middle")

    preempts_on(classes, expect, "n2")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case(
    "PR-280",
    severity="normal",
    source="kubernetes plugins/defaultpreemption/default_preemption.go@v1.35: filterPodsWithPDBViolation",
)
@pytest.mark.parametrize(
    ("selector", "labels", "where"),
    [
        pytest.param({"matchExpressions": [expression("app", "In", "guarded")]}, GUARDED, "n2", id="in"),
        pytest.param({"matchExpressions": [expression("app", "NotIn", "guarded")]}, GUARDED, "n1", id="not-in"),
        pytest.param({"matchExpressions": [expression("team", "DoesNotExist")]}, GUARDED, "n2", id="no-such-label"),
        pytest.param({"matchExpressions": [expression("team", "DoesNotExist")]}, {}, "n1", id="no-label-at-all"),
        pytest.param({}, GUARDED, "n1", id="empty"),
    ],
)
def test_the_pods_that_a_selector_protects(
    classes: Trial, expect: Expect, selector: Json, labels: dict[str, str], where: str
) -> None:
    """A budget that allows no disruption covers the low pod by expressions. An empty selector covers no pod, and no
    selector a pod without labels."""
    hosts(classes, "n1", "n2")
    budget = disruption_budget("keep", GUARDED, min_available=0)
    budget["spec"] = {"maxUnavailable": 0, "selector": selector}
    classes.apply(budget)
    low, middle = of("low", "low", 4).on(host="n1"), of("middle", "middle", 4).on(host="n2")
    for key, value in labels.items():
        low.label(key, value)
    classes.submit(low, middle.label("team", "middle") if selector else middle)
    expect.running("low", "middle")

    preempts_on(classes, expect, where)


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-225", severity="critical", source=RULE)
@pytest.mark.parametrize(("allowed", "where"), [(1, "n2"), (2, "n1")])
def test_each_victim_counts(classes: Trial, expect: Expect, allowed: int, where: str) -> None:
    """Two low pods of a budget would have to go from n1: the middle one goes instead if it allows one disruption."""
    hosts(classes, "n1", "n2")
    classes.apply(disruption_budget("keep", GUARDED, min_available=2 - allowed))
    classes.submit(*(of("low", f"low-{number}", 2).label("app", "guarded").on(host="n1") for number in range(2)))
    classes.submit(of("middle", "middle", 4).on(host="n2"))
    expect.running("low-0", "low-1", "middle")

    preempts_on(classes, expect, where)


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-078", severity="normal", source=f"{RULE}: pods in disruptedPods are not counted")
@pytest.mark.parametrize("name", ["low", "another"])
def test_a_pod_that_is_disrupted_already_is_not_counted_again(classes: Trial, expect: Expect, name: str) -> None:
    """The budget of the low pod allows no disruption. Its status says that the pod is disrupted already: it goes."""
    hosts(classes, "n1", "n2")
    classes.apply(disruption_budget("keep", GUARDED, min_available=1))
    for one in (of("low", "low", 4).on(host="n1"), of("top", "another", 1).on(host="n3")):
        if one.name == "another":
            hosts(classes, "n3")
        classes.submit(one.label("app", "guarded"))
    classes.submit(of("middle", "middle", 4).on(host="n2"))
    expect.running("low", "middle", "another")
    classes.settle(3)
    disrupted = {"status": {"disruptionsAllowed": 0, "disruptedPods": {name: classes.cluster.clock.timestamp()}}}
    assert classes.call("PATCH", f"{BUDGETS.format(classes.name)}/keep/status", disrupted).ok

    preempts_on(classes, expect, "n1" if name == "low" else "n2")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-079", severity="critical", source=RULE)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
def test_a_budget_is_for_its_namespace(classes: Trial, expect: Expect, second_namespace: str) -> None:
    """A node has a low pod of another namespace with the label of the budget, and in the namespace of the budget a
    middle one without it and an important one with it: the low pod goes."""
    classes.add(node("n1").cpu(12).label("host", "n1"))
    classes.apply(disruption_budget("keep", GUARDED, min_available=1))
    pods = f"/api/v1/namespaces/{second_namespace}/pods"
    theirs = of("low", "theirs", 4).label("app", "guarded").on(host="n1").select({TRIAL_LABEL: classes.name})
    classes.accept(theirs.manifest, pods)
    classes.submit(of("middle", "middle", 4), of("top", "guarded", 4).label("app", "guarded"))
    expect.running("middle", "guarded")

    def phase() -> str:
        pod: dict[str, dict[str, str]] = orjson.loads(classes.call("GET", f"{pods}/theirs").body)
        return pod["status"]["phase"]

    assert classes.reaches(lambda: phase() == "Running", within=30)

    preempts_on(classes, expect, "n1")

    expect.running("middle", "guarded")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-223", severity="normal", source=RULE)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
def test_budgets_of_one_name_are_for_their_namespaces(classes: Trial, expect: Expect, second_namespace: str) -> None:
    """The low pod is under a budget that allows no disruption. A budget of that name in another namespace comes, and
    goes again: the middle pod goes each time."""
    hosts(classes, "n1", "n2")
    classes.apply(disruption_budget("keep", GUARDED, min_available=1))
    classes.submit(of("low", "low", 4).label("app", "guarded").on(host="n1"), of("middle", "middle", 4).on(host="n2"))
    expect.running("low", "middle")
    theirs = BUDGETS.format(second_namespace)
    classes.accept(disruption_budget("keep", GUARDED, min_available=0), theirs)

    preempts_on(classes, expect, "n2")

    classes.delete("high")
    classes.submit(of("middle", "middle", 4).on(host="n2"))
    expect.running("middle")
    assert classes.call("DELETE", f"{theirs}/keep").ok
    preempts_on(classes, expect, "n2")


@pytest.mark.feature("PRE-1.budgets", "WAS-1.units")
@pytest.mark.case("PR-080", severity="normal", source=RULE)
@pytest.mark.gate("GenericWorkload")
@pytest.mark.parametrize(
    ("least", "disrupted", "where"),
    [
        pytest.param(1, False, "n2", id="three"),
        pytest.param(0, False, "n1", id="four"),
        pytest.param(0, True, "n1", id="three-and-a-disrupted-one"),
    ],
)
def test_each_pod_of_a_whole_group_counts(
    classes: Trial, expect: Expect, least: int, where: str, *, disrupted: bool
) -> None:
    """Two groups of two pods fill n1 and go as a whole. Their budget allows three disruptions, which the first group
    and a pod of the second use up: the middle pod goes. With an allowance of four both groups go, and also where
    the budget's status says that a pod of the second is disrupted already, and allows three."""
    groups = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{classes.name}/podgroups"
    if not classes.call("GET", groups).ok:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")
    hosts(classes, "n1", "n2")
    classes.apply(disruption_budget("keep", GUARDED, min_available=least))
    for group in ("a", "b"):
        classes.accept(native_gang(group, 2, priorityClassName="trial-low", disruptionMode={"all": {}}), groups)
        members = (of("low", f"{group}-{number}", 1).label("app", "guarded") for number in range(2))
        classes.submit(*(one.on(host="n1").in_native_gang(group) for one in members))
    classes.submit(of("middle", "middle", 4).on(host="n2"))
    expect.running("a-0", "a-1", "b-0", "b-1", "middle")
    if disrupted:
        classes.settle(3)
        pods = {"status": {"disruptedPods": {"b-1": classes.cluster.clock.timestamp()}}}
        assert classes.call("PATCH", f"{BUDGETS.format(classes.name)}/keep/status", pods).ok

    preempts_on(classes, expect, where)


@pytest.mark.feature("PRE-1.budgets", "SHELL-1.plugin-args")
@pytest.mark.case("PR-222", severity="normal", source="spec FWK-R76: one of the candidates violates no budget")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a scheduler of its own
@pytest.mark.parametrize("free", [1, 4])
def test_the_search_goes_on_to_a_node_that_violates_no_budget(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, *, free: int
) -> None:
    """One candidate is enough by the plugin's arguments. Of four nodes one is under no budget: its pod goes, although
    it is more important than the others."""
    subject = pytestconfig.getoption("--seatrial-subject")
    args = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
    profile = DEFAULT_SCHEDULER
    with with_arguments(seatrial_backend, subject, tmp_path, "DefaultPreemption", args, profile=profile) as trial:
        expect = Expect(trial)
        trial.apply(*(priority_class(f"trial-{level}", value) for level, value in (("low", 1), ("middle", 2))))
        trial.apply(priority_class("trial-high", 3), disruption_budget("keep", GUARDED, min_available=3))
        for number in range(1, 5):
            hosts(trial, f"n{number}")
            one = of("middle" if number == free else "low", f"on-n{number}", 4).on(host=f"n{number}")
            trial.submit(one if number == free else one.label("app", "guarded"))
        expect.running(*(f"on-n{number}" for number in range(1, 5)))

        preempts_on(trial, expect, f"n{free}")
