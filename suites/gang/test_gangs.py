"""PodGroups and annotation gangs: all or nothing, modes, groups, retries, and early size checks.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import orjson
import pytest

from seatrial.fixtures.allocated_devices import minors, reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.fault_injection.transport import bindings
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, node, pod, priority_class, reservation
from seatrial.scheduler.api.podgroup import (
    BIND_GANG_GROUP,
    BIND_MEMBER_COUNT,
    GANG_GROUPS,
    GANG_MODE,
    OLD_BIND_GANG_GROUP,
    OLD_BIND_MEMBER_COUNT,
)
from seatrial.scheduler.api.transport import Request
from seatrial.suites.gang.members import bound, names, status, workers
from seatrial.suites.gang.namespaces import second_namespace

__all__ = ["second_namespace"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-001", severity="blocker")
def test_five_with_room_for_three_bind_nobody(trial: Trial, expect: Expect) -> None:
    """A gang of five on three free cards: no member is bound, and the cards stay free for a pod without a gang."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 5))
    trial.submit(*workers("train", 5))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(pod("whole").gpus(3))

    expect.bound("whole")


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-002", severity="blocker")
@pytest.mark.long(seconds=6)
def test_bound_together_when_the_room_comes(trial: Trial, expect: Expect) -> None:
    """A gang of five waits on three cards; one more card does not help, the second one does."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 5))
    trial.submit(*workers("train", 5))
    expect.stable(seconds=2)
    trial.add(node("n2").cards(1))
    expect.stable(seconds=12)
    assert bound(trial) == []

    trial.add(node("n3").cards(1))

    expect.bound(*names("train", 5))


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-003", severity="blocker")
def test_two_gangs_that_each_fit_alone_do_not_deadlock(trial: Trial, expect: Expect) -> None:
    """Two gangs of three on four cards, members submitted in turn: one runs whole, then the other."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("a", 3), gang("b", 3))
    for worker, other in zip(workers("a", 3), workers("b", 3), strict=True):
        trial.submit(worker, other)
    assert trial.reaches(lambda: len(bound(trial)) == 3, within=30), trial.timeline()
    first = bound(trial)[0][0]
    assert bound(trial) == names(first, 3)
    expect.stable(seconds=5)

    trial.delete(*names(first, 3))

    expect.bound(*names("b" if first == "a" else "a", 3), within=60)


@pytest.mark.feature("GANG-1.quorum")
@pytest.mark.case("GA-004", severity="critical")
def test_more_members_than_the_minimum(trial: Trial, expect: Expect) -> None:
    """A gang of two among four pods on three cards: three are bound, the fourth waits alone and gets the next card."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 4))
    assert trial.reaches(lambda: len(bound(trial)) == 3, within=30), trial.timeline()
    expect.stable(seconds=3)

    trial.add(node("n2").cards(1))

    expect.bound(*names("train", 4))


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-037", severity="critical", source="ours: within 40 s, not five minutes")
@pytest.mark.long(seconds=4)
def test_the_member_that_stands_in_the_queue_for_its_gang_is_deleted(trial: Trial, expect: Expect) -> None:
    """One of two members waits. The others come while the queue is full of more important pods; the first of them is
    deleted before its turn, with no event after it: the two that are left are bound."""
    important = [f"first-{number}" for number in range(500)]
    members = [pod(name).gpus(1).in_light_gang("train", 2) for name in names("train", 3)]
    trial.apply(priority_class("trial-first", 9000))
    trial.add(node("n0").taint("full"))
    trial.submit(*(pod(name).request(cpu="10m").priority_class("trial-first") for name in important))
    trial.submit(members[0])
    expect.stable(seconds=12)
    path, transport = f"/api/v1/namespaces/{trial.name}/pods", trial.cluster.transport
    coming = [built.select({TRIAL_LABEL: trial.name}).manifest for built in members[1:]]

    def react(line: bytes) -> None:
        """As a controller that acts at once: the members come with the first placement, and one goes when it came."""
        event = orjson.loads(line)
        metadata, bound_to = event["object"]["metadata"], event["object"].get("spec", {}).get("nodeName")
        if bound_to and metadata["name"] in important:
            while coming:
                transport.send(Request("POST", path, orjson.dumps(coming.pop(0))), lambda _: None)
        if event["type"] == "ADDED" and metadata["name"] == "train-1":
            transport.send(Request("DELETE", f"{path}/train-1"), lambda _: None)

    version = orjson.loads(trial.call("GET", path).body)["metadata"]["resourceVersion"]
    stream = transport.stream(Request("GET", f"{path}?watch=1&resourceVersion={version}"), react, lambda _: None)
    try:
        trial.add(node("n1").cpu(64).cards(2).pods(1000))
        expect.bound("train-0", within=60)
        expect.bound("train-2", within=60)
    finally:
        stream.close()


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-005", severity="normal")
def test_the_status_of_a_pod_group(trial: Trial, expect: Expect) -> None:
    """status.phase becomes Running with the number of running members; a gang without room stays Scheduling."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2), gang("large", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    trial.submit(*workers("large", 2))

    assert trial.reaches(lambda: status(trial).get("phase") == "Running", within=30), status(trial)
    assert (status(trial).get("scheduled"), status(trial).get("running")) == (2, 2)
    assert trial.reaches(lambda: status(trial, "large").get("phase") == "Scheduling", within=30)
    assert not status(trial, "large").get("scheduled")


@pytest.mark.feature("GANG-2.strict-default")
@pytest.mark.case("GA-010", severity="blocker")
def test_strict_gives_its_places_back(trial: Trial, expect: Expect) -> None:
    """Strict is the default: while a gang of three lacks a card, other pods use the two free ones."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=2)

    trial.submit(pod("x").gpus(1), pod("y").gpus(1))

    x, y = expect.bound("x", "y", within=20)
    assert sorted([*minors(x), *minors(y)]) == [0, 1]


@pytest.mark.feature("GANG-2.nonstrict", "GANG-2.mode-on-pod")
@pytest.mark.case("GA-011", severity="blocker", source="ours")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("light", [False, True], ids=["PodGroup", "pods"])
def test_non_strict_keeps_its_places(trial: Trial, expect: Expect, *, light: bool) -> None:
    """NonStrict on the PodGroup or on the pods: two of three members hold the cards, so another pod must wait; the
    third card completes the gang."""
    trial.add(node("n1").cards(2))
    if light:
        built = [
            pod(name).gpus(1).in_light_gang("train", 3).annotation(GANG_MODE, "NonStrict") for name in names("train", 3)
        ]
    else:
        trial.apply(gang("train", 3).waiting_time(300).mode("NonStrict"))
        built = workers("train", 3)
    trial.submit(*built)
    expect.stable(seconds=2)
    assert bound(trial) == []
    trial.submit(pod("x").gpus(1))
    expect.stable(seconds=5)
    assert bound(trial) == [], "a pod took a card that members of the gang hold"

    trial.add(node("n2").cards(1))

    expect.bound(*names("train", 3))
    assert bound(trial, "x") == []


@pytest.mark.feature("GANG-2.nonstrict")
@pytest.mark.case("GA-150", severity="critical", source="ours")
def test_non_strict_starts_without_the_member_that_has_no_room(trial: Trial, expect: Expect) -> None:
    """A NonStrict gang needs two of three members. No node has room for the most important one: the others start."""
    trial.apply(gang("train", 2).waiting_time(300).mode("NonStrict"), priority_class("trial-high", 9000))
    trial.add(node("n1").cards(2))
    large, *others = workers("train", 3)

    trial.submit(large.gpus(4).priority_class("trial-high"), *others)

    expect.bound(*names("train", 2, first=1))
    expect.pending("train-0")


@pytest.mark.feature("GANG-1.timeout")
@pytest.mark.case("GA-012", severity="blocker", source="ours")
@pytest.mark.long(20)
def test_the_schedule_timeout_frees_everything(trial: Trial, expect: Expect) -> None:
    """Members of a NonStrict gang hold two cards for scheduleTimeoutSeconds; a pod of higher priority in the queue gets
    one of them afterwards."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(10).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=2)
    trial.submit(pod("whole").gpus(2))
    expect.stable(seconds=4)
    assert bound(trial) == []
    trial.pass_time(5)

    trial.delete("train-2")  # no further attempt of the gang: two of three members

    expect.bound("whole", within=60)


@pytest.mark.feature("GANG-1.timeout", "GANG-2.nonstrict")
@pytest.mark.case("GA-013", severity="critical", source="ours")
def test_deleted_members_give_back_what_they_hold(trial: Trial, expect: Expect) -> None:
    """Members of a NonStrict gang hold two cards; all are deleted long before the timeout: another pod gets both."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(600).mode("NonStrict"))
    trial.submit(*workers("train", 3))
    # The third has no card, or the first two wait for it, and say so.
    assert trial.reaches(lambda: any(one.status.conditions for one in trial.pods()), within=30)
    expect.stable(seconds=5)  # a busy machine sees the three one after the other
    trial.submit(pod("whole").gpus(2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.delete(*names("train", 3))

    expect.bound("whole")


@pytest.mark.feature("GANG-1.all-or-nothing", "RSV-1.held")
@pytest.mark.case("GA-014", severity="critical")
def test_a_gang_that_fails_gives_its_reservation_back(trial: Trial, expect: Expect) -> None:
    """A gang of three owners has room for two, inside of a reservation: a single owner gets all of it afterwards."""
    trial.add(node("n1").cpu(8))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held")
    trial.submit(pod("filler").request(cpu=4))
    expect.bound("filler")
    trial.apply(gang("train", 3))
    trial.submit(*(pod(name).request(cpu=2).label("app", "owner").in_gang("train") for name in names("train", 3)))
    expect.stable(seconds=5)
    assert bound(trial, "train") == []

    trial.submit(pod("single").request(cpu=4).label("app", "owner").into_reservation())

    assert reservation_of(expect.bound("single")) == "held"


@pytest.mark.feature("GANG-3.cycle-counter", "GANG-3.no-stale-time")
@pytest.mark.case("GA-020", severity="critical")
@pytest.mark.long(60)
def test_a_failed_cycle_does_not_poison_the_next(trial: Trial, expect: Expect) -> None:
    """A gang fails several times while cards come one by one over a minute; it is bound soon after the last one."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 4))
    trial.submit(*workers("train", 4))
    for number in (2, 3):
        expect.stable(seconds=20)
        trial.add(node(f"n{number}").cards(1))
    expect.stable(seconds=20)
    assert bound(trial) == []

    trial.add(node("n4").cards(1))

    expect.bound(*names("train", 4), within=15)


@pytest.mark.feature("GANG-3.restart")
@pytest.mark.case("GA-021", severity="critical")
@pytest.mark.long(seconds=6)
def test_restarted_in_the_middle(trial: Trial, expect: Expect, subject: Subject | None) -> None:
    """The scheduler is killed when a gang is bound and another one waits: nothing moves, and the other one is bound
    when there is room for it, although the successor has no record of its failure."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; this one runs elsewhere")
    trial.add(node("n1").cards(4))
    trial.apply(gang("a", 3), gang("b", 3))
    trial.submit(*workers("a", 3))
    expect.bound(*names("a", 3))
    trial.submit(*workers("b", 3))
    expect.stable(seconds=2)

    subject.kill()
    subject.start_again()

    expect.stable(seconds=5)
    assert bound(trial) == names("a", 3)
    trial.delete("a-0", "a-1")
    expect.bound(*names("b", 3), within=60)


@pytest.mark.feature("GANG-1.replaced")
@pytest.mark.case("GA-022", severity="critical")
def test_a_member_that_is_replaced_joins_the_gang(trial: Trial, expect: Expect) -> None:
    """After the gang was bound once, a member that died comes back and is bound alone, below the minimum."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 3))
    trial.submit(*workers("train", 3))
    expect.bound(*names("train", 3))
    trial.delete("train-1")

    trial.submit(*workers("train", 1, first=7))

    assert len(minors(expect.bound("train-7"))) == 1
    assert sorted(minor for pod in trial.pods() for minor in minors(pod)) == [0, 1, 2]


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-030", severity="blocker")
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize(("small", "large"), [("a", "b"), ("b", "a")], ids=["small-first", "large-first"])
def test_roles_in_one_group_start_together(trial: Trial, expect: Expect, small: str, large: str) -> None:
    """A group of one pod with one card and two with two cards each, on four cards: either gang alone would fit."""
    trial.add(node("n1").cards(4))
    ids = [f"{trial.name}/{name}" for name in (small, large)]
    trial.apply(gang(small, 1).together_with(*ids), gang(large, 2).together_with(*ids))
    trial.submit(*workers(large, 2, cards=2), *workers(small, 1))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.add(node("n2").cards(1))

    expect.bound(f"{small}-0", f"{large}-0", f"{large}-1")


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-346", severity="normal", source="spec GANG-R31, GANG-M8")
def test_the_message_counts_the_waiting_members_of_the_whole_group(trial: Trial, expect: Expect) -> None:
    """Two gangs of two make a group, and there are three cards: three members wait for the fourth one."""
    trial.add(node("n1").cards(3))
    ids = [f"{trial.name}/{name}" for name in "ab"]
    trial.apply(*(gang(name, 2).together_with(*ids) for name in "ab"))

    trial.submit(*workers("a", 2), *workers("b", 2))

    expect.pending(*names("a", 2), saying="alreadyWaitForBound: 3")
    assert bound(trial) == []


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-031", severity="critical")
def test_a_group_waits_for_its_missing_gang(trial: Trial, expect: Expect) -> None:
    """The first gang of a group is complete and fits; it is bound only with the second, which comes later."""
    trial.add(node("n1").cards(4))
    ids = [f"{trial.name}/ps", f"{trial.name}/worker"]
    trial.apply(gang("worker", 2).together_with(*ids))
    trial.submit(*workers("worker", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.apply(gang("ps", 1).together_with(*ids))
    trial.submit(*workers("ps", 1))

    expect.bound("ps-0", "worker-0", "worker-1")


@pytest.mark.feature("GANG-4.across-namespaces")
@pytest.mark.case("GA-036", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
def test_the_gangs_of_a_group_are_in_two_namespaces(trial: Trial, expect: Expect, second_namespace: str) -> None:
    """A complete gang that fits waits for the other gang of its group, which comes in another namespace."""
    trial.add(node("n1").cards(4))
    ids = [f"{trial.name}/worker", f"{second_namespace}/ps"]
    trial.apply(gang("worker", 2).together_with(*ids))
    trial.submit(*workers("worker", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    other = gang("ps", 1).together_with(*ids).manifest
    trial.accept(other, f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{second_namespace}/podgroups")
    pods = f"/api/v1/namespaces/{second_namespace}/pods"
    (server,) = workers("ps", 1)
    trial.accept(server.select({TRIAL_LABEL: trial.name}).manifest, pods)

    expect.bound("worker-0", "worker-1")
    body = orjson.loads(trial.call("GET", f"{pods}/ps-0").body)
    assert body["spec"]["nodeName"] == "n1"


@pytest.mark.feature("GANG-1.marked")
@pytest.mark.case("GA-034", severity="normal")
@pytest.mark.parametrize(
    ("group", "count"),
    [(BIND_GANG_GROUP, BIND_MEMBER_COUNT), (OLD_BIND_GANG_GROUP, OLD_BIND_MEMBER_COUNT)],
    ids=["internal", "deprecated"],
)
def test_members_that_are_bound_together_say_so(trial: Trial, expect: Expect, group: str, count: str) -> None:
    """Both members have the ID of their group and the number of members; a pod without a gang has neither."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2), pod("single").gpus(1))
    *members, single = expect.bound("train-0", "train-1", "single")
    marks = {(pod.metadata.annotations.get(group), pod.metadata.annotations.get(count)) for pod in members}
    assert marks == {(f"{trial.name}/train", "2")}
    assert group not in single.metadata.annotations


@pytest.mark.feature("GANG-1.marked", "HIL-4.api-errors")
@pytest.mark.case("GA-344", severity="normal", source="spec GANG-R40, GANG-R41")
@pytest.mark.long(seconds=4)
def test_members_whose_bindings_were_refused_say_who_is_bound_with_them_now(
    trial: Trial, expect: Expect, subject: Subject | None
) -> None:
    """The bindings of a gang of two are refused. Then its minimum is three, and there is a third member: all three say
    that three are bound together."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    trial.add(node("n1").cards(3))
    with subject.troubled() as link:
        link.refuse(500, bindings)
        trial.apply(gang("train", 2))
        trial.submit(*workers("train", 2))
        assert trial.reaches(lambda: link.refused >= 2, within=30), "both members were to be bound"
        assert trial.call("PATCH", trial.path("PodGroup", "train"), {"spec": {"minMember": 3}}).ok
        trial.pass_time(2)
        link.heal()
    trial.submit(*workers("train", 1, first=2))

    members = expect.bound(*names("train", 3), within=60)

    assert [each.metadata.annotations.get(BIND_MEMBER_COUNT) for each in members] == ["3"] * 3


@pytest.mark.feature("GANG-1.marked")
@pytest.mark.case("GA-300", severity="normal", source="spec GANG-R40, GANG-R41")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("policy", "left", "later", "count"),
    [
        ("only-waiting", True, 2, "2"),
        ("only-waiting", False, 2, "2"),
        ("waiting-and-running", True, 1, None),
        ("waiting-and-running", False, 2, "2"),
        ("once-satisfied", True, 2, None),
    ],
)
def test_members_that_come_later_say_who_is_bound_with_them(
    trial: Trial, expect: Expect, policy: str, *, left: bool, later: int, count: str | None
) -> None:
    """A gang of two is bound, then further members are, beside it or when it is gone. They have marks only if the gang
    binds them together: not where one is bound alone, nor where each is bound like a pod without a gang."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 2).match_policy(policy))
    trial.submit(*workers("train", 2))
    expect.running("train-0", "train-1")
    if not left:
        trial.delete("train-0", "train-1")
        expect.gone("train-0", "train-1")
    expect.stable(seconds=3)

    trial.submit(*workers("train", later, first=2))

    for name in names("train", later, first=2):
        marks = expect.bound(name).metadata.annotations
        group = f"{trial.name}/train" if count else None
        assert (marks.get(BIND_GANG_GROUP), marks.get(BIND_MEMBER_COUNT)) == (group, count)


@pytest.mark.feature("GANG-1.match-policy")
@pytest.mark.case("GA-033", severity="critical")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("policy", "beside_one", "beside_none"),
    [
        pytest.param("once-satisfied", True, True, id="once-satisfied"),
        pytest.param("waiting-and-running", True, False, id="waiting-and-running"),
        pytest.param("only-waiting", False, False, id="only-waiting"),
    ],
)
def test_which_members_count_for_the_minimum(
    trial: Trial, expect: Expect, policy: str, *, beside_one: bool, beside_none: bool
) -> None:
    """A gang of two is bound. A third member comes beside one that is left, and a fourth when none is left."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 2).match_policy(policy))
    trial.submit(*workers("train", 2))
    expect.bound("train-0", "train-1")
    trial.delete("train-0")
    trial.submit(*workers("train", 1, first=2))
    if beside_one:
        expect.bound("train-2")
    expect.stable(seconds=10)
    assert ("train-2" in bound(trial)) == beside_one

    trial.delete("train-1", "train-2")
    trial.submit(*workers("train", 1, first=3))
    if beside_none:
        expect.bound("train-3")
    expect.stable(seconds=10)
    assert ("train-3" in bound(trial)) == beside_none
    expect.refusal()


@pytest.mark.feature("GANG-4.unreadable")
@pytest.mark.case("GA-032", severity="normal")
def test_an_unreadable_list_of_groups_leaves_the_gang_alone(trial: Trial, expect: Expect) -> None:
    """An annotation that is not JSON: the gang is its own group and is bound."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2).annotation(GANG_GROUPS, "[ps, worker]"))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert sorted(minor for pod in trial.pods() for minor in minors(pod)) == [0, 1]


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-040", severity="blocker")
def test_annotated_pods_start_together(trial: Trial, expect: Expect) -> None:
    """Pods with the annotations name and min-available: four of five are not bound on five cards, the fifth completes
    them."""
    trial.add(node("n1").cards(5))
    built = [pod(name).gpus(1).in_light_gang("light", 5) for name in names("light", 5)]
    trial.submit(*built[:4])
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(built[4])

    expect.bound(*names("light", 5))


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-350", severity="normal", source="koordinator: GetGangMinNumFromPod of coscheduling/util@v1.7.0")
def test_pods_with_the_deprecated_labels_start_together(trial: Trial, expect: Expect) -> None:
    """Pods with the labels of the lightweight form, name and min-available: the first waits for the second."""
    trial.add(node("n1").cards(2))
    key = "pod-group.scheduling.sigs.k8s.io"
    built = [
        pod(name).gpus(1).label(f"{key}/name", "light").label(f"{key}/min-available", "2") for name in names("light", 2)
    ]
    trial.submit(built[0])
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(built[1])

    expect.bound(*names("light", 2))


@pytest.mark.feature("GANG-5.unreadable")
@pytest.mark.case("GA-041", severity="normal")
def test_an_unreadable_minimum_is_told(trial: Trial, expect: Expect) -> None:
    """min-available is no number: the pod's condition names the mistake, and other pods are bound."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("odd").gpus(1).in_light_gang("light", "two"), pod("other").gpus(1))
    expect.bound("other")
    expect.held("odd", saying="min-available")


@pytest.mark.feature("GANG-6.pre-enqueue")
@pytest.mark.case("GA-050", severity="critical")
def test_a_gang_that_is_too_small_is_held_back(trial: Trial, expect: Expect) -> None:
    """Two of three members: they are not tried, hold nothing, and no pod behind them waits."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=3)
    assert not [event for event in trial.events("train-0") if "nodes are available" in event.message]

    trial.submit(pod("behind").gpus(2))

    expect.bound("behind")
    assert bound(trial, "train") == []


@pytest.mark.feature("GANG-6.said")
@pytest.mark.case("GA-051", severity="normal")
def test_a_gang_that_is_too_small_says_so(trial: Trial, expect: Expect) -> None:
    """The members' condition names the gang and what it lacks; a pod that comes after them is bound. So does that of a
    later gang's member."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3), gang("later", 3))
    trial.submit(*workers("train", 2), pod("other").gpus(1))
    expect.bound("other")
    expect.held(*names("train", 2), saying="child pod not collect enough")
    trial.submit(*workers("later", 1))
    expect.held("later-0", saying="child pod not collect enough")


@pytest.mark.feature("GANG-6.pre-enqueue")
@pytest.mark.case("GA-052", severity="critical")
def test_a_pod_group_that_comes_after_its_pods(trial: Trial, expect: Expect) -> None:
    """Members without their PodGroup are not bound; they are as soon as it is created."""
    trial.add(node("n1").cards(2))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.apply(gang("train", 2))

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-6.pre-enqueue")
@pytest.mark.case("GA-053", severity="normal")
def test_a_lowered_minimum_releases_the_members(trial: Trial, expect: Expect) -> None:
    """minMember is above the number of pods; when it is lowered to it, they are bound."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 9))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=3)
    assert bound(trial) == []

    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{trial.name}/podgroups/train"
    assert trial.call("PATCH", path, {"spec": {"minMember": 2}}).ok

    expect.bound(*names("train", 2))
