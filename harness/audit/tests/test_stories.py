"""Each invariant is broken by a story, and the same story without the break is silent."""

import json
from typing import Any

import pytest

from seatrial.harness.audit.auditor import INVARIANTS
from seatrial.harness.audit.state import GRACE
from seatrial.harness.audit.tests import device_stories, ordering_stories, placement_stories
from seatrial.harness.audit.tests.ordering_stories import REFUSED, takes_nominated
from seatrial.harness.audit.tests.story import CORE, RATIO, Story, affinity, card, gpu_pod, preempted
from seatrial.scheduler.api.device import DEVICE_ALLOCATED

STORIES = placement_stories.STORIES | device_stories.STORIES | ordering_stories.STORIES
ALSO = {  # other invariants that a story breaks by its nature
    "AUD-211": {"AUD-206"},
    "AUD-212": {"AUD-206"},
    "AUD-213": {"AUD-206"},
    "AUD-215": {"AUD-211", "AUD-212", "AUD-213"},
}


def test_there_are_stories_for_all_invariants() -> None:
    ids = [invariant.id for invariant in INVARIANTS]
    assert len(ids) == len(set(ids)) >= 30
    assert STORIES.keys() == set(ids)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_breaks_its_invariant(name: str) -> None:
    """The break is reported under its ID, with a timeline that ends with the binding or change."""
    story = Story()
    STORIES[name](story, True)
    assert story.ids() - ALSO.get(name, set()) | {name} == {name}
    assert name in story.ids()
    violation = next(candidate for candidate in story.auditor.violations if candidate.invariant == name)
    assert violation.text
    assert violation.timeline
    assert violation.pod in violation.timeline[-1] or any(violation.pod in line for line in violation.timeline)


@pytest.mark.parametrize("name", STORIES)
def test_the_story_without_the_break_is_silent(name: str) -> None:
    story = Story()
    STORIES[name](story, False)
    assert story.ids() - ALSO.get(name, set()) == set()


def test_a_change_within_the_grace_period_excuses_a_binding() -> None:
    """A node that was cordoned a second ago may still get a pod; the same after the grace period is a violation."""
    story = Story()
    story.pod("p")
    story.node("n1", spec={"unschedulable": True})
    story.bind("p")
    assert story.ids() == set()


@pytest.mark.parametrize(("later", "names"), [(0.0, set()), (3.0, {"AUD-504"})], ids=["under-way", "decided-after-it"])
def test_a_binding_under_way_takes_no_nominated_room(later: float, names: set[str]) -> None:
    """kube-scheduler 1.37 binds a pod that it has placed before it nominated another one to the node."""
    story = Story()
    story.auditor.state.in_flight = GRACE
    story.pod("low", cpu="3", priority=1)
    story.pod("high", cpu="6", priority=9)
    story.change("high", status={"nominatedNodeName": "n1", "conditions": REFUSED})
    story.at += later
    story.bind("low")
    assert story.ids() == names


def test_a_nomination_that_holds_no_room_accuses_nobody() -> None:
    """Volcano tries the nominated node first, and gives its room to any pod."""
    story = Story()
    story.auditor.state.holds_nominated = False
    takes_nominated(story, True)
    assert story.ids() == set()


@pytest.mark.parametrize(
    "apart",
    [
        pytest.param({"annotations": {"queue": "small"}}, id="in-another-queue"),
        pytest.param({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, id="with-a-port"),
    ],
)
def test_pods_that_ask_for_different_things_are_bound_in_any_order(apart: dict[str, Any]) -> None:
    story = Story()
    story.pod("high", cpu="" if "containers" in apart else "1", priority=9, **apart)
    story.pod("low", cpu="" if "containers" in apart else "1", priority=1)
    story.at += 5
    story.bind("low")
    assert story.ids() == set()


def test_the_first_of_its_kind_may_go_anywhere_although_the_last_one_has_just_gone() -> None:
    story = Story()
    story.node("n2")
    story.pod("last", labels={"app": "x"}).bind("last", "n2")
    story.pod("first", labels={"app": "x"}, affinity=affinity(anti=False, app="x"))
    story.at += 10
    story.delete("last")
    story.bind("first", "n1")
    story.at += 10
    assert story.ids() == set()


@pytest.mark.parametrize("gone", [False, True], ids=["ends", "is-gone"])
@pytest.mark.parametrize("invariant", ["AUD-121", "AUD-122"])
@pytest.mark.parametrize("later", [0.0, 3.0], ids=["in-time", "too-late"])
def test_a_pod_that_is_being_deleted_counts_for_a_while(invariant: str, later: float, gone: bool) -> None:
    """A scheduler that does not know of a deletion yet counts the pod, for affinity and for spread."""
    story = Story()
    story.node("n2")
    story.pod("there", labels={"app": "x"}).bind("there", "n2")
    story.pod("here", labels={"app": "x"}).bind("here", "n1")
    if invariant == "AUD-122":
        selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        constraint = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector}
        story.pod("p", labels={"app": "x"}, topologySpreadConstraints=[constraint])
    else:
        story.pod("p", affinity=affinity(anti=False, app="x"))
    story.at += 10
    node = "n1" if invariant == "AUD-122" else "n2"
    if gone:
        story.delete("there")
    else:
        story.change("there", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    story.at += later
    story.bind("p", node)
    story.at += 10
    broken = later and (gone or invariant == "AUD-122")  # a pod that ends counts for affinity until it is gone
    assert story.ids() == ({invariant} if broken else set())


@pytest.mark.parametrize("left", ["deleted", "bound"])
@pytest.mark.parametrize(("later", "names"), [(0.0, set()), (3.0, {"AUD-501"})], ids=["in-time", "too-late"])
def test_an_eviction_for_a_pod_that_has_just_left_is_excused(left: str, later: float, names: set[str]) -> None:
    """The scheduler's eviction was on its way when the pod with the higher priority went."""
    story = Story()
    story.pod("low", priority=5).bind("low")
    story.pod("high", priority=9)
    if left == "deleted":
        story.delete("high")
    else:
        story.bind("high")
    story.at += later
    preempted(story, "low")
    assert story.ids() == names


@pytest.mark.parametrize(("later", "names"), [(1.0, set()), (3.0, {"AUD-121"})], ids=["in-time", "too-late"])
def test_a_binding_that_was_stored_first_is_excused_by_the_one_it_needs(later: float, names: set[str]) -> None:
    """The scheduler sends both in parallel: the pod with affinity is stored first, the pod that it needs afterwards."""
    story = Story()
    story.pod("a", labels={"app": "x"}).pod("b", affinity=affinity(anti=False, app="x")).bind("b")
    assert story.ids() == set()
    story.at += later
    story.bind("a")
    story.at += 10
    assert story.ids() == names


def test_pods_bound_before_are_judged_by_the_state() -> None:
    """Two pods on one card are found on a cluster that is seen for the first time, and no binding is blamed."""
    story = Story()
    for name in ("a", "b"):
        marks = {DEVICE_ALLOCATED: json.dumps({"gpu": [card(0)]})}
        gpu_pod(story, name, annotations=marks, nodeName="n1")
    assert story.ids() == set()
    story.auditor.check_bound(story.at)
    assert "AUD-215" in story.ids()


@pytest.mark.parametrize("state", ["missing", "not-allocated", "not-served"])
def test_a_pod_without_its_resource_claim(state: str) -> None:
    """A claim that nobody made, one that has no device yet, and a server without such claims, which shows nothing."""
    story = Story()
    if state == "not-served":
        story.auditor.state.absent.append("ResourceClaim")
    if state == "not-allocated":
        body = {"metadata": {"name": "a", "namespace": "default", "uid": "c"}, "spec": {}}
        story.tell("ResourceClaim", "ADDED", {**body, "status": {"reservedFor": [{"resource": "pods", "uid": "p"}]}})
    story.pod("p", resourceClaims=[{"name": "a", "resourceClaimName": "a"}]).bind("p")
    assert story.ids() == (set() if state == "not-served" else {"AUD-123"})


@pytest.mark.parametrize(
    ("cpu", "text", "reason", "breach"),
    [
        pytest.param("1", "6", "", True, id="it-shrinks-and-the-node-has-not-followed"),
        pytest.param("1", "1", "", False, id="it-has-shrunk"),
        pytest.param("80", "1", "Infeasible", False, id="it-cannot-grow"),
        pytest.param("6", "1", "Deferred", True, id="it-is-to-grow"),
    ],
)
def test_a_pod_that_is_resized_counts_with_what_it_holds(cpu: str, text: str, reason: str, breach: bool) -> None:
    """Another pod with 4 of 8 CPUs is bound then."""
    story = Story()
    story.pod("p", cpu="6").bind("p")
    reported = {"name": "c", "allocatedResources": {"cpu": text}, "resources": {"requests": {"cpu": text}}}
    status = {"containerStatuses": [reported], "conditions": [{"type": "PodResizePending", "reason": reason}]}
    story.change("p", status=status, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
    story.pod("q", cpu="4").bind("q")
    assert story.ids() == ({"AUD-115"} if breach else set())


def test_a_scheduler_that_leaves_cards_to_kubelet_is_not_accused() -> None:
    """A vendor's plain resource needs no annotation until the scheduler has written one; Koordinator's do."""
    story = Story()
    story.auditor.state.allocating = set()
    story.pod("a", requests={"nvidia.com/gpu": "1"}).bind("a")
    assert story.auditor.violations == []
    story.pod("b", requests={CORE: "100", RATIO: "100"}).bind("b")
    assert [violation.invariant for violation in story.auditor.violations] == ["AUD-203"]


def test_a_nomination_for_a_binding_that_waits_is_no_preemption() -> None:
    """Kubernetes 1.35 nominates pods that wait at Permit or PreBind, whatever their policy; they were never refused."""
    story = Story()
    story.pod("p", priority=9, cpu="6", preemptionPolicy="Never")
    story.change("p", status={"nominatedNodeName": "n1"})
    story.pod("low", cpu="3", priority=1).bind("low")
    assert story.auditor.violations == []


@pytest.mark.parametrize(("template", "names"), [("large", set()), ("small", {"AUD-505"})])
def test_pods_with_other_claims_do_not_ask_for_the_same(template: str, names: set[str]) -> None:
    """A more important pod waits for a large device, while a small one is free."""
    story = Story()
    entry = {"name": "gpu", "resourceClaimTemplateName": template}
    story.pod("high", priority=9, resourceClaims=[entry])
    entry = {"name": "gpu", "resourceClaimTemplateName": "small"}
    status = {"resourceClaimStatuses": [{"name": "gpu"}]}  # none is needed
    story.pod("low", priority=1, resourceClaims=[entry], status=status)
    story.keep_deciding()
    story.bind("low")
    assert story.ids() == names


def test_pods_after_a_silence_may_be_bound_as_they_are_heard_of() -> None:
    """A scheduler was disconnected when the pods came; later it has no excuse."""
    story = Story()
    for name, priority in (("high", 9), ("low", 1), ("lower", 0)):
        story.pod(name, priority=priority)
    story.at += 5
    story.bind("low")
    assert story.ids() == set()
    story.keep_deciding()
    story.bind("lower")
    assert story.ids() == {"AUD-505"}


@pytest.mark.parametrize(
    ("policy", "replaced", "names"),
    [
        pytest.param("waiting-and-running", False, set(), id="lost-a-member"),
        pytest.param("waiting-and-running", True, {"AUD-601"}, id="all-but-half-replaced"),
        pytest.param("", True, set(), id="replaced-one-by-one"),
    ],
)
def test_a_gang_that_was_whole(policy: str, replaced: bool, names: set[str]) -> None:
    """Of two members that ran one is deleted, or both are and one of their successors is bound."""
    story = Story()
    notes = {"gang.scheduling.koordinator.sh/match-policy": policy}
    meta = {"name": "g", "namespace": "default", "annotations": notes}
    story.tell("PodGroup", "ADDED", {"metadata": meta, "spec": {"minMember": 2}})
    for name in ("a", "b", "c", "d"):
        story.pod(name, labels={"pod-group.scheduling.sigs.k8s.io": "g"}, status={"conditions": REFUSED})
    story.bind("a")
    story.bind("b")
    for name in ("a", "b")[: 1 + replaced]:
        story.delete(name)
    if replaced:
        story.bind("c")
    story.at += 300
    assert story.ids() == names


@pytest.mark.parametrize(
    ("bound", "least", "names"),
    [
        pytest.param(("a",), 2, {"AUD-601"}, id="never-whole"),
        pytest.param(("a", "b"), 2, set(), id="whole-before-its-group-was-known"),
        pytest.param(("a", "b"), 3, {"AUD-601"}, id="too-few-for-its-group"),
    ],
)
def test_a_gang_whose_group_is_heard_of_later(bound: tuple[str, ...], least: int, names: set[str]) -> None:
    """The watch of PodGroups tells later than that of pods; then the gang loses a member, which starts anew."""
    story = Story()
    member: Any = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}, "status": {"conditions": REFUSED}}
    for name in ("a", "b", "c"):
        story.pod(name, **member)
    for name in bound:
        story.bind(name)
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": least}}
    story.tell("PodGroup", "ADDED", group)
    if len(bound) > 1:
        story.delete(bound[-1])
    story.pod("d", **member)
    story.at += 300
    assert story.ids() == names


@pytest.mark.parametrize(("policy", "names"), [("", set()), ("waiting-and-running", {"AUD-601"})])
def test_a_gang_with_members_that_were_bound_before_the_audit(policy: str, names: set[str]) -> None:
    """One of three is on a node when the audit begins; another is bound then, and the third waits."""
    story = Story()
    notes = {"gang.scheduling.koordinator.sh/match-policy": policy}
    group = {"metadata": {"name": "g", "namespace": "default", "annotations": notes}, "spec": {"minMember": 3}}
    story.tell("PodGroup", "ADDED", group)
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    story.pod("a", labels=labels, nodeName="n1")
    for name in ("b", "c"):
        story.pod(name, labels=labels, status={"conditions": REFUSED})
    story.bind("b")
    story.at += 300
    assert story.ids() == names
