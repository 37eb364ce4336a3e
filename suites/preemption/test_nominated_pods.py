"""What a nomination means for its pod, for other pods, and for pods that end on the nominated node."""

from collections.abc import Callable

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, bindings
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.preemption.jobs import PREEMPTING
from seatrial.suites.preemption.nominations import end, freeze, of, preempt_on_frozen, thaw
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import HOST, REQUIRED, patch, resize, term

__all__ = ["classes", "link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]
Event = Callable[[], object]
BY_SCHEDULER = "PreemptionByScheduler"
CORDON = "node.kubernetes.io/unschedulable"


def submit_nominated(trial: Trial, built: PodBuilder, where: str) -> None:
    """A pod that comes into the queue with a nomination, as after a restart of the scheduler."""
    built.manifest["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    trial.submit(built)
    path = trial.path("Pod", built.name)
    assert trial.call("PATCH", f"{path}/status", {"status": {"nominatedNodeName": where}}).ok
    assert trial.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok


def grow(trial: Trial, name: str, cpu: int) -> None:
    amounts = {"cpu": str(cpu)}
    body = {"status": {"allocatable": amounts, "capacity": amounts}}
    assert trial.call("PATCH", f"/api/v1/nodes/{name}/status", body, kind=STRATEGIC_MERGE_PATCH).ok


def cordon(trial: Trial, name: str, *, on: bool) -> None:
    assert trial.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}}).ok


@pytest.mark.feature("PRE-1.lower-goes", "PRE-1.minimal-victims")
@pytest.mark.case(
    "PR-083",
    severity="critical",
    source="spec FWK-R75; kubernetes plugins/defaultpreemption: podTerminatingByPreemption",
)
@pytest.mark.parametrize(
    ("level", "reason", "status", "preempts"),
    [
        pytest.param("low", BY_SCHEDULER, "True", False, id="preempted"),
        pytest.param("low", BY_SCHEDULER, "False", True, id="no-longer-preempted"),
        pytest.param("low", "EvictionByEvictionAPI", "True", True, id="evicted"),
        pytest.param("low", "", "", True, id="deleted"),
        pytest.param("high", BY_SCHEDULER, "True", True, id="preempted-and-equal"),
    ],
)
def test_which_ending_pod_a_nominated_pod_waits_for(  # noqa: PLR0917
    classes: Trial, expect: Expect, level: str, reason: str, status: str, preempts: bool
) -> None:
    """A pod ends slowly on the node that another one is nominated to. Without the eviction of a second pod there is no
    room. That one is evicted at once, unless the first is less important and was preempted."""
    classes.add(node("n1").cpu(8))
    classes.submit(of(level, "ends", 4), of("low", "other", 4))
    expect.running("ends", "other")
    freeze(classes, "n1")
    assert classes.call("DELETE", classes.path("Pod", "ends")).ok
    expect.gone("ends")
    if reason:  # the pod that it stands for
        classes.submit(of("top", "too-large", 64))
        expect.pending("too-large")
        moment = classes.cluster.clock.timestamp()
        target = {"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": moment}
        body = {"status": {"conditions": [target]}}
        path = f"{classes.path('Pod', 'ends')}/status"
        assert classes.call("PATCH", path, body, kind=STRATEGIC_MERGE_PATCH).ok
    classes.settle()

    submit_nominated(classes, of("high", "high", 8 if level == "low" else 4), "n1")

    if preempts:
        expect.gone("other")
        if not reason:  # it ends anyway, so that it is not evicted
            assert "DisruptionTarget" not in [condition.type for condition in classes.pod("ends").status.conditions]
    else:
        expect.pending("high")
        expect.stable(seconds=3)
        assert not classes.pod("other").deleting
    thaw(classes, "n1")
    assert expect.bound("high").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-084", severity="critical", source="spec FWK-R44: a nominated node is tried first and alone")
@pytest.mark.parametrize("where", ["n1", "n2"])
def test_the_nominated_node_is_tried_first(classes: Trial, expect: Expect, where: str) -> None:
    """Two empty nodes, of which one scores much better: a pod goes to the one that it is nominated to."""
    (better,) = {"n1", "n2"} - {where}
    classes.add(node(where).cpu(4), node(better).cpu(64))

    submit_nominated(classes, of("low", "p", 4), where)

    assert expect.bound("p").spec.node_name == where


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case(
    "PR-085", severity="critical", source="kubernetes preemption/preemption.go: getLowerPriorityNominatedPods"
)
def test_equal_preemptors_of_one_node_stay_nominated(classes: Trial, expect: Expect) -> None:
    """Two equal pods have preempted one pod: both nominations stay, and both get their room."""
    classes.add(node("n1").cpu(8))
    preempt_on_frozen(classes, expect, of("low", "a", 8), by=of("high", "first", 4))
    classes.submit(of("high", "second", 4))
    expect.nominated("second", "n1")
    for _ in range(3):
        assert [classes.pod(name).status.nominated_node_name for name in ("first", "second")] == ["n1", "n1"]
        expect.stable(seconds=3)

    end(classes, "a")

    expect.bound("first", "second")
    thaw(classes, "n1")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-086", severity="critical", source="spec FWK-R16: the second pass is without the nominated pods")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("level", ["low", "high"])
def test_a_nominated_pod_is_no_partner_yet(classes: Trial, expect: Expect, level: str) -> None:
    """A pod has to be beside another one, which is nominated and has no place yet. There is room for it, or a victim
    that is less important: it waits, and evicts no pod, until the other one is bound."""
    classes.add(node("n1").cpu(10 if level == "low" else 8))
    classes.submit(of("middle", "other", 4))
    expect.running("other")
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "partner", 4).label("app", "partner"))
    classes.submit(beside_partner(of(level, "beside", 2 if level == "low" else 4)))
    expect.pending("beside")
    expect.stable(seconds=3)
    assert not classes.pod("other").deleting

    thaw(classes, "n1")

    expect.bound("partner", "beside")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case(
    "PR-092",
    severity="normal",
    source="kubernetes 1.34 pkg/scheduler/eventhandlers.go: deletePodFromSchedulingQueue wakes for a nominated pod",
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_the_next_preemptor_takes_over_a_nomination_that_ends(classes: Trial, expect: Expect, *, cooled: bool) -> None:
    """Two equal pods need the room of one victim, which ends slowly. The nominated one is deleted: the other one is
    nominated while the victim is still there."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "first", 4))
    classes.submit(of("high", "second", 4))
    expect.pending("second", cooled=cooled)

    end(classes, "first")

    expect.nominated("second", "n1", within=20)
    thaw(classes, "n1")
    expect.bound("second")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-087", severity="critical", source="spec FWK-R80: a nomination that does not help is cleared")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_room_of_a_nomination_that_does_not_help_is_free(classes: Trial, expect: Expect) -> None:
    """The node of a nomination is cordoned and its victim ends: the nomination is taken back. A less important pod that
    tolerates the cordon gets the room."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    cordon(classes, "n1", on=True)
    expect.nominated("high", "", within=700)  # a waiting pod is tried again every five to ten minutes
    thaw(classes, "n1")

    classes.submit(of("low", "tolerant", 4).tolerate(CORDON))

    expect.bound("tolerant")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case(
    "PR-088", severity="critical", source="kubernetes scheduler/eventhandlers.go: updateNodeInCache moves pods"
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("grows", ["n1", "n2"])
def test_a_node_that_grows_has_its_own_preemptor_placed(classes: Trial, expect: Expect, grows: str) -> None:
    """Two equal pods are nominated to a node each, where their victims end slowly. One node grows, so that there is
    room beside the victim: the pod that is nominated there is bound, whichever of the two is the older one."""
    classes.add(*(node(name).cpu(4).label("host", name) for name in ("n1", "n2")))
    classes.submit(*(of("low", f"victim-{name}", 4).on(host=name) for name in ("n1", "n2")))
    expect.running("victim-n1", "victim-n2")
    for name in ("n1", "n2"):
        freeze(classes, name)
    classes.submit(of("high", "first", 4), of("high", "second", 4))
    expect.gone("victim-n1", "victim-n2")
    expect.pending("first", "second")
    (own,) = (name for name in ("first", "second") if classes.pod(name).status.nominated_node_name == grows)

    grow(classes, grows, 8)

    assert expect.bound(own, within=20).spec.node_name == grows
    for name in ("n1", "n2"):
        thaw(classes, name)
    expect.bound("first", "second")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-089", severity="critical", source="spec FWK-R44")
@pytest.mark.long(seconds=15)
def test_a_preemptor_whose_binding_fails_is_placed_later(classes: Trial, expect: Expect, link: Link) -> None:
    """The binding of a nominated pod fails until its backoff is long. Then it succeeds."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    link.refuse(500, bindings)
    thaw(classes, "n1")
    assert classes.wait(lambda: link.refused >= 2, within=30), "two bindings were to be tried"
    link.heal()
    assert expect.bound("high", within=20).spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case(
    "PR-220",
    severity="normal",
    source="kubernetes pkg/scheduler/schedule_one.go@v1.37: handleBindingCycleError, clearNominatedNode",
)
def test_a_nomination_ends_with_a_refused_binding(classes: Trial, expect: Expect, link: Link) -> None:
    """The victim of a nominated pod is gone, and the pod's bindings are refused: its nomination is taken back."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=of("high", "high", 4))
    link.refuse(500, bindings)
    thaw(classes, "n1")
    expect.nominated("high", "")
    assert link.refused, "a binding was to be tried"
    link.heal()
    assert expect.bound("high", within=20).spec.node_name == "n1"


def nominate(trial: Trial, name: str, where: str | None) -> None:
    """Have the pod's status name a node, as another program does."""
    path = f"{trial.path('Pod', name)}/status"
    assert trial.call("PATCH", path, {"status": {"nominatedNodeName": where}}).ok
    trial.settle(2)


NOMINATOR = "kubernetes pkg/scheduler/backend/queue/nominator.go@v1.34: UpdateNominatedPod"


def nominated_by_another(trial: Trial, expect: Expect) -> None:
    """A pod waits, and another program nominates it to n1: a less important one does not get what is free there."""
    trial.add(node("n1").cpu(4), node("n2").cpu(1))
    trial.submit(of("top", "holder", 2), of("top", "small", 1).select({HOST: "n2"}))
    expect.running("holder", "small")
    trial.submit(of("high", "waits", 4))
    expect.pending("waits")
    nominate(trial, "waits", "n1")
    trial.submit(of("low", "first", 2))
    expect.pending("first")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-290", severity="normal", source=NOMINATOR)
@pytest.mark.parametrize("then", [None, "n2"], ids=["nowhere", "other-node"])
def test_another_program_nominates_a_waiting_pod(classes: Trial, expect: Expect, then: str | None) -> None:
    """The nomination is taken back later, or names n2, which is full: the next pod gets the room."""
    nominated_by_another(classes, expect)
    classes.delete("first")
    nominate(classes, "waits", then)
    classes.submit(of("low", "second", 2))
    assert expect.bound("second").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case(
    "PR-291", severity="normal", source="kubernetes 1.37 pkg/scheduler/eventhandlers.go: hasNominatedNodeNameChanged"
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("then", [None, "n2"], ids=["nowhere", "other-node"])
def test_another_program_ends_a_nomination(classes: Trial, expect: Expect, then: str | None) -> None:
    """The same where the less important pod waits: it is bound as soon as the nomination has ended."""
    nominated_by_another(classes, expect)
    nominate(classes, "waits", then)
    assert expect.bound("first", within=20).spec.node_name == "n1"


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case(
    "PR-302", severity="normal", source="kubernetes 1.37 pkg/scheduler/eventhandlers.go: hasNominatedNodeNameChanged"
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("cpu", [3, 4], ids=["smaller", "equal"])
def test_a_pod_preempts_when_another_program_ends_a_nomination(classes: Trial, expect: Expect, cpu: int) -> None:
    """Another program nominates a pod that never preempts to a full node: a less important pod evicts no pod there,
    until the nomination has ended."""
    classes.add(node("n1").cpu(4))
    classes.submit(of("low", "low", 4))
    expect.running("low")
    classes.submit(of("patient", "waits", 4))
    expect.pending("waits")
    nominate(classes, "waits", "n1")
    classes.submit(of("middle", "next", cpu))
    expect.pending("next")
    assert not classes.pod("low").deleting
    nominate(classes, "waits", None)
    expect.gone("low", within=20)


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-292", severity="critical", source="spec FWK-R75, GANG-R71: unless that node cannot help any more")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    "profile", ["", pytest.param(PREEMPTING, marks=pytest.mark.profile(PREEMPTING))], ids=["pod", "job"]
)
def test_a_pod_whose_nominated_node_is_closed_preempts_elsewhere(classes: Trial, expect: Expect, profile: str) -> None:
    """The victim on the nominated node ends slowly, and the node is cordoned. The pod that is in the way on another
    node, which opens, is evicted meanwhile."""
    classes.add(node("n1").cpu(4))
    high = of("high", "high", 4)
    preempt_on_frozen(classes, expect, of("low", "victim", 4), by=high.scheduler(profile) if profile else high)
    classes.add(node("n2").cpu(4).taint("closed"))
    classes.submit(of("low", "other", 4).node_name("n2"))
    expect.running("other")
    cordon(classes, "n1", on=True)
    expect.pending("high")
    patch(classes, "/api/v1/nodes/n2", {"spec": {"taints": []}})
    expect.gone("other")
    assert expect.bound("high", within=30).spec.node_name == "n2"
    thaw(classes, "n1")


def beside_partner(built: PodBuilder) -> PodBuilder:
    built.manifest["spec"]["affinity"] = {"podAffinity": {REQUIRED: [term("partner")]}}
    return built


def label_added(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4), node("n2").cpu(4).label("pool", "a"))
    trial.submit(of("low", "low", 4).select({HOST: "n1"}), of("high", "equal", 4).select({HOST: "n2"}))
    trial.submit(of("high", "waits", 4).on(pool="a"))
    return lambda: patch(trial, "/api/v1/nodes/n1", {"metadata": {"labels": {"pool": "a"}}})


def node_grows(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4))
    trial.submit(of("low", "low", 4), of("high", "waits", 8))
    return lambda: grow(trial, "n1", 8)


def taint_removed(trial: Trial, _expect: Expect) -> Event:
    trial.add(node("n1").cpu(4).taint("closed"), node("n2").cpu(2))
    trial.submit(of("low", "low", 4).tolerate("closed"), of("high", "waits", 4))
    return lambda: patch(trial, "/api/v1/nodes/n1", {"spec": {"taints": []}})


def partner_placed(trial: Trial, expect: Expect) -> Event:
    trial.add(node("n1").cpu(5))
    trial.submit(of("low", "low", 4))
    expect.running("low")
    trial.submit(beside_partner(of("high", "waits", 4)))
    return lambda: trial.submit(of("high", "partner", 1).label("app", "partner"))


def equal_leaves(trial: Trial, expect: Expect) -> Event:
    trial.add(node("n1").cpu(13))
    trial.submit(of("low", "low", 6), of("high", "stays", 2), of("high", "leaves", 4))
    expect.running("leaves")
    trial.submit(of("high", "waits", 10))
    return lambda: trial.delete("leaves")


def equal_succeeds(trial: Trial, expect: Expect) -> Event:
    equal_leaves(trial, expect)
    body = {"status": {"phase": "Succeeded"}}
    return lambda: patch(trial, f"{trial.path('Pod', 'leaves')}/status", body)


def equal_shrinks(trial: Trial, expect: Expect) -> Event:
    equal_leaves(trial, expect)
    return lambda: resize(trial, "leaves", "250m")


EVENTS = [
    label_added,
    node_grows,
    taint_removed,
    equal_leaves,
    pytest.param(equal_succeeds, marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),  # a kubelet writes its own status
]


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case(
    "PR-091",
    severity="critical",
    source="kubernetes 1.32 pkg/scheduler/eventhandlers.go: a changed node moves pods that it has no room for, too",
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
@pytest.mark.parametrize("prepared", EVENTS, ids=lambda call: call.__name__)
def test_an_event_makes_preemption_enough(
    classes: Trial, expect: Expect, prepared: Callable[[Trial, Expect], Event], *, cooled: bool
) -> None:
    """A pod that waits cannot preempt. An object changes, so that the eviction of a less important pod is enough: that
    one is evicted."""
    event = prepared(classes, expect)
    expect.running("low")
    expect.pending("waits", cooled=cooled)
    assert not classes.pod("low").deleting

    event()

    expect.gone("low", within=20)
    expect.bound("waits")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-094", severity="critical", source="kubernetes 1.34 pkg/scheduler/framework/events.go")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_a_pod_that_shrinks_makes_preemption_enough(classes: Trial, expect: Expect, *, cooled: bool) -> None:
    """A pod of equal importance is resized in place: now the eviction of a less important pod is enough."""
    test_an_event_makes_preemption_enough(classes, expect, equal_shrinks, cooled=cooled)


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-093", severity="normal", source="ours: a partner that is placed makes preemption enough")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_a_partner_makes_preemption_enough(classes: Trial, expect: Expect, *, cooled: bool) -> None:
    """A pod has to be beside another one. That one is placed; now the eviction of a less important pod is enough."""
    test_an_event_makes_preemption_enough(classes, expect, partner_placed, cooled=cooled)


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case(
    "PR-090", severity="critical", source="kubernetes scheduler/eventhandlers.go: deletePodFromCache moves pods"
)
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("cooled", [False, True], ids=["in-backoff", "after-backoff"])
def test_each_of_several_equal_pods_preempts(classes: Trial, expect: Expect, *, cooled: bool) -> None:
    """Three nodes, each with a pod of equal importance, one of less and another that is more important. Three pods
    would fit without the first two. The equal ones end: a less important one is evicted for each, though these do not
    end, so that nothing else has the pods tried again."""
    names = ("n1", "n2", "n3")
    classes.add(*(node(name).cpu(5).label("host", name) for name in names))
    for name in names:
        classes.submit(*(of(level, f"{level}-{name}", cpu).on(host=name) for level, cpu in PARTS))
    expect.running(*(f"{level}-{name}" for level, _ in PARTS for name in names))
    for name in names:
        freeze(classes, name)
    waiting = [f"waits-{number}" for number in range(3)]
    classes.submit(*(of("high", name, 4) for name in waiting))
    expect.pending(*waiting, cooled=cooled)

    for name in names:
        end(classes, f"high-{name}")

    expect.gone(*(f"low-{name}" for name in names), within=30)
    for name in names:
        thaw(classes, name)
    expect.bound(*waiting)


PARTS = (("top", 1), ("high", 2), ("low", 2))
