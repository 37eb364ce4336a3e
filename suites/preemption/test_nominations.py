"""From nomination to binding: what is written, what is kept free meanwhile, and for whom.

The node is frozen, so that its victims end when the case lets them.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, gang, node, priority_class
from seatrial.suites.preemption.nominations import end, freeze, of, preempt_on_frozen, thaw
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-030", severity="critical")
def test_the_nominated_node_is_written(classes: Trial, expect: Expect) -> None:
    """While its victim terminates, the pod's status names the node, and the victim's condition has the reason."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    reasons = [
        (condition.type, condition.reason)
        for condition in classes.pod("victim").status.conditions
        if condition.status == "True"
    ]
    assert ("DisruptionTarget", "PreemptionByScheduler") in reasons, f"the victim's conditions are {reasons}"
    thaw(classes, "n1")
    assert expect.bound("high").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-296", severity="normal", source="kubernetes 1.34 pkg/scheduler/framework/preemption: PreemptPod")
def test_a_victim_keeps_its_conditions(classes: Trial, expect: Expect) -> None:
    """The condition that says why it goes comes to those that it had. Kubernetes 1.28 took the preemptor's."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    kept = {condition.type for condition in classes.pod("victim").status.conditions}
    assert {"PodScheduled", "Ready", "DisruptionTarget"} <= kept, f"the victim's conditions are {sorted(kept)}"


@pytest.mark.feature("PRE-1.freed-place", "PRE-1.minimal-victims")
@pytest.mark.case("PR-031", severity="critical")
@pytest.mark.long(seconds=4)
def test_no_further_victims_while_the_first_terminate(classes: Trial, expect: Expect) -> None:
    """A pod with a nomination is tried again while its victim terminates; a cheaper victim elsewhere stays."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("middle", "victim", 4), by=of("high", "high", 4))
    classes.add(node("n2").cpu(4).taint("closed"))  # an empty node without it would be taken by the pod that waits
    classes.submit(of("low", "cheaper", 4).node_name("n2"))
    expect.running("cheaper")
    assert classes.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": []}}).ok
    classes.add(node("n3").cpu(1))  # an event that wakes the pod
    expect.stable(seconds=15)
    assert not classes.pod("cheaper").deleting, "expected no further victim while the first one terminates"
    thaw(classes, "n1")
    assert expect.bound("high").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-032", severity="critical")
def test_half_of_the_room_is_not_given_away(classes: Trial, expect: Expect) -> None:
    """One of two victims is gone: a less important pod that fits beside the other waits; a more important one goes."""
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "first", 4), of("low", "second", 4), by=of("high", "high", 8))
    end(classes, "first")
    classes.submit(of("middle", "thief", 4))
    expect.pending("thief")
    expect.stable(seconds=3)
    classes.submit(of("top", "top", 4))
    expect.bound("top")
    thaw(classes, "n1")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-061", severity="critical")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    ("cooled", "ends"),
    [(True, False), (False, False), (True, True)],
    ids=["after-backoff", "in-backoff", "from-a-pod-that-ends"],
)
def test_a_pod_whose_room_was_taken_preempts_again(classes: Trial, expect: Expect, *, cooled: bool, ends: bool) -> None:
    """One of two victims is gone, and a more important pod takes its room. When the other is gone too, the nominated
    pod does not fit there any more: it preempts on another node, at the latest when its backoff is over. From then on
    it holds no room on the first: a less important pod gets the rest of that."""
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "first", 4), of("low", "second", 4), by=of("high", "high", 8))
    end(classes, "first")
    classes.submit(of("top", "top", 4))
    expect.bound("top")
    classes.add(node("n2").cpu(8).taint("closed"))  # an empty node without it would be taken by the pod that waits
    classes.submit(of("low", "third", 8).node_name("n2"))
    expect.running("third")
    freeze(classes, "n2")
    assert classes.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": []}}).ok
    expect.stable(seconds=12)  # the backoff is over, and nothing but the end of the second pod has it tried again
    if not cooled:  # an event that has it tried again, so that another backoff begins
        assert classes.call("PATCH", classes.path("Pod", "high"), {"metadata": {"labels": {"tried": "again"}}}).ok
        end(classes, "second")
    if ends:  # slowly, by a deletion and not by a preemption
        assert classes.call("DELETE", classes.path("Pod", "top")).ok
        end(classes, "second")
    else:
        thaw(classes, "n1")

    expect.gone("third")
    expect.nominated("high", "n2")
    classes.submit(of("middle", "rest", 4))
    assert expect.bound("rest").spec.node_name == "n1"
    for name in ("n1", "n2"):
        thaw(classes, name)
    assert expect.bound("high").spec.node_name == "n2"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-033", severity="normal")
def test_a_nomination_ends_with_its_pod(classes: Trial, expect: Expect) -> None:
    """The nominated pod is deleted before its victims are gone: a less important pod gets what is free."""
    classes.apply(priority_class("trial-polite", 5000, preempts=False))
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "first", 4), of("low", "second", 4), by=of("high", "high", 8))
    end(classes, "first")
    classes.submit(of("polite", "next", 4))
    expect.pending("next")
    end(classes, "high")
    assert expect.bound("next").spec.node_name == "n1"
    thaw(classes, "n1")


@pytest.mark.feature("PRE-1.freed-place", "GANG-1.all-or-nothing")
@pytest.mark.case(
    "PR-065",
    severity="normal",
    source="kubernetes 1.34 pkg/scheduler/eventhandlers.go: deletePodFromSchedulingQueue wakes for a nominated pod",
)
@pytest.mark.long(seconds=15)
def test_a_gang_gets_the_room_of_a_nomination_that_ends(classes: Trial, expect: Expect) -> None:
    """A gang that does not preempt waits for the half of the node that is free and nominated. The nominated pod is
    deleted: the gang is bound, although the other victim still terminates."""
    classes.apply(priority_class("trial-polite", 5000, preempts=False), gang("train", 2))
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "first", 4), of("low", "second", 4), by=of("high", "high", 8))
    end(classes, "first")
    classes.submit(*(of("polite", f"train-{number}", 2).in_gang("train") for number in range(2)))
    expect.stable(seconds=12)
    assert not any(one.spec.node_name for one in classes.pods() if one.metadata.name.startswith("train-"))
    end(classes, "high")
    expect.bound("train-0", "train-1", within=20)
    thaw(classes, "n1")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-034", severity="normal")
def test_a_more_important_pod_ends_lesser_nominations(classes: Trial, expect: Expect) -> None:
    """A more important pod is nominated to the node of a lesser nomination: the lesser one is taken back."""
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "victim", 8), by=of("middle", "lesser", 8))
    classes.submit(of("high", "greater", 8))
    expect.nominated("greater", "n1")
    expect.nominated("lesser", "")
    thaw(classes, "n1")
    assert expect.bound("greater").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place", "PRE-1.lower-goes")
@pytest.mark.case(
    "PR-224",
    severity="normal",
    source="kubernetes preemption/preemption.go: without a nomination the place is open before the victims have ended",
)
@pytest.mark.long(seconds=15)
def test_a_pod_that_lost_its_nomination_preempts_elsewhere(classes: Trial, expect: Expect) -> None:
    """A more important pod needs all of the node that another is nominated to. That one's nomination is taken back, and
    it preempts on n2, at the latest when a pod leaves that, though its first victim has not ended."""
    classes.add(*(node(name).cpu(9).label("host", name) for name in ("n1", "n2")))
    classes.submit(of("middle", "second", 5).on(host="n1"), of("middle", "other", 8).on(host="n2"))
    classes.submit(of("top", "leaves", 1).on(host="n2"))
    expect.running("second", "other", "leaves")
    preempt_on_frozen(classes, expect, of("low", "victim", 4).on(host="n1"), by=of("high", "lesser", 4))
    classes.submit(of("top", "greater", 9).on(host="n1"))
    expect.gone("second")
    expect.nominated("lesser", "")

    classes.delete("leaves")

    expect.gone("other", within=20)
    assert expect.bound("lesser").spec.node_name == "n2"
    thaw(classes, "n1")
    assert expect.bound("greater").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-045", severity="normal")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_a_nomination_ends_where_it_cannot_help_any_more(classes: Trial, expect: Expect) -> None:
    """The node is cordoned while its victim terminates: the nomination is taken back, and others can have the node."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    assert classes.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    expect.nominated("high", "", within=700)  # a waiting pod is tried again every five to ten minutes


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-035", severity="normal")
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_of_equal_victims_the_younger_goes(classes: Trial, expect: Expect, names: tuple[str, str]) -> None:
    """Of two pods of one priority on one node, the one that started later is the victim."""
    older, younger = names
    classes.add(node("n1").cpu(8))
    classes.submit(of("low", older, 4))
    expect.running(older)
    classes.cluster.pass_time(2)  # start times have whole seconds
    classes.submit(of("low", younger, 4))
    expect.running(younger)
    classes.submit(of("high", "high", 4))
    expect.bound("high")
    assert [pod.metadata.name for pod in classes.pods() if pod.metadata.name in names and not pod.deleting] == [older]


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-036", severity="critical")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(("guarded", "other"), [("a", "b"), ("b", "a")])
def test_a_budget_outweighs_age(classes: Trial, expect: Expect, guarded: str, other: str) -> None:
    """The guarded pod is the younger one, which would be the victim without its budget; it stays."""
    classes.add(node("n1").cpu(8))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(of("low", other, 4))
    expect.running(other)
    classes.cluster.pass_time(2)
    classes.submit(of("low", guarded, 4).label("app", "guarded"))
    expect.running(guarded)
    classes.cluster.pass_time(2)  # the budget's status counts it
    classes.submit(of("high", "high", 4))
    expect.gone(other)
    expect.bound("high")
    assert not classes.pod(guarded).deleting


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-037", severity="normal")
@pytest.mark.parametrize(("guarded", "other"), [("n1", "n2"), ("n2", "n1")])
def test_a_budget_with_disruptions_left_does_not_protect(
    classes: Trial, expect: Expect, guarded: str, other: str
) -> None:
    """A budget allows one disruption: the node with its pod of low priority is chosen before one of middle priority."""
    classes.add(node(guarded).cpu(4), node(other).cpu(4), node("n3").cpu(1))
    classes.apply(disruption_budget("loose", {"app": "guarded"}, min_available=1))
    host = "kubernetes.io/hostname"
    classes.submit(
        of("low", "spare", 4).label("app", "guarded").select({host: guarded}),
        of("top", "kept", 1).label("app", "guarded").select({host: "n3"}),
        of("middle", "dear", 4).select({host: other}),
    )
    expect.running("spare", "kept", "dear")
    classes.cluster.pass_time(2)
    classes.submit(of("high", "high", 4))
    expect.gone("spare")
    assert expect.bound("high").spec.node_name == guarded
    assert not classes.pod("dear").deleting


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-062", severity="critical")
def test_a_waiting_pod_preempts_when_that_becomes_enough(classes: Trial, expect: Expect) -> None:
    """A pod needs all of a node, where a pod of its own priority has the half and a less important one the other. An
    equal pod that waits, too, is deleted. When the first ends, no node is free for the one that is left, but it may
    preempt: the other goes at once."""
    classes.add(node("n1").cpu(8))
    classes.submit(of("high", "equal", 4), of("low", "victim", 4))
    expect.running("equal", "victim")
    classes.submit(of("high", "waits", 8), of("high", "deleted", 8))
    expect.pending("waits", "deleted")
    assert not classes.pod("victim").deleting
    classes.delete("deleted")

    classes.delete("equal")

    expect.gone("victim")
    expect.bound("waits")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case(
    "PR-066", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromCache moves pods"
)
@pytest.mark.long(seconds=25)
def test_a_waiting_pod_preempts_when_the_second_pod_has_left(classes: Trial, expect: Expect) -> None:
    """A pod needs all of a node, where two pods of its own priority have two thirds and a less important one the rest.
    The first one ends, which is not enough; later the second one does: the less important one goes at once."""
    classes.add(node("n1").cpu(12))
    classes.submit(of("high", "first", 4), of("high", "second", 4), of("low", "victim", 4))
    expect.running("first", "second", "victim")
    classes.submit(of("high", "waits", 12))
    expect.pending("waits")
    classes.pass_time(12)  # its backoff is over
    classes.delete("first")
    classes.pass_time(8)
    assert not classes.pod("victim").deleting

    classes.delete("second")

    expect.gone("victim")
    expect.bound("waits")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case(
    "PR-226", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromCache moves pods"
)
@pytest.mark.long(seconds=15)
def test_a_pod_preempts_beside_an_older_one_that_is_nominated(classes: Trial, expect: Expect) -> None:
    """Two equal pods wait, of which the older one is nominated to n1, where its victim ends slowly. A pod of equal
    importance leaves n2, so that the eviction of a less important one there is enough: the younger one preempts."""
    classes.add(node("n1").cpu(4).label("host", "n1"), node("n2").cpu(5).label("host", "n2"))
    classes.submit(of("high", "leaves", 2).on(host="n2"), of("low", "low", 2).on(host="n2"))
    expect.running("leaves", "low")
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "older", 4))
    classes.submit(of("high", "younger", 4))
    expect.pending("younger")
    assert not classes.pod("low").deleting

    classes.delete("leaves")

    expect.gone("low", within=20)
    assert expect.bound("younger").spec.node_name == "n2"
    thaw(classes, "n1")
    assert expect.bound("older").spec.node_name == "n1"
