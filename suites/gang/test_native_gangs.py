"""Gangs of Kubernetes' own API: PodGroups of scheduling.k8s.io, of which pods are members by `spec.schedulingGroup`.

The API and the scheduling of these gangs are beta in 1.37 and off by default: on a cluster that does not serve them the
cases are skipped. A member asks for one CPU, so the room is a number of CPUs.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import BindingsOf, Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import PodBuilder, gang, native_gang, node, pod, priority_class
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.gang.members import bound, names
from seatrial.suites.gang.native import API, condition, path, reaches
from seatrial.suites.preemption.nominations import freeze, thaw

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.gate("GenericWorkload")]

UPSTREAM = "kubernetes 1.37 pkg/scheduler/schedule_one_podgroup.go and plugins/gangscheduling"


@pytest.fixture(autouse=True)
def _served(trial: Trial) -> None:
    if not trial.call("GET", f"{API}/podgroups").ok:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")


def create(trial: Trial, name: str, min_count: int | None, **spec: object) -> None:
    trial.accept(native_gang(name, min_count, **spec), path(trial))


def workers(group: str, count: int, first: int = 0) -> list[PodBuilder]:
    return [pod(name).request(cpu=1).in_native_gang(group) for name in names(group, count, first)]


def words(trial: Trial, name: str) -> str:
    """Why the pod is not tried; kube-scheduler says nothing of pods that PreEnqueue holds back."""
    messages = [one.message for one in trial.pod(name).status.conditions if one.type == "PodScheduled"]
    return messages[0].removeprefix("0/1 nodes are available: ").removesuffix(".") if messages else ""


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-271", severity="normal", source="spec WAS-R35")
def test_a_gang_that_was_scheduled_once_says_so_for_ever(trial: Trial, expect: Expect, subject: Subject | None) -> None:
    """A gang was bound, and its members are gone. A scheduler that never saw that finds no room for new members: the
    condition stays True."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    trial.add(node("n1").cpu(2))
    create(trial, "train", 2)
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert reaches(trial, "True", "Scheduled"), condition(trial)
    trial.delete(*names("train", 2))
    trial.submit(pod("filler").request(cpu=1))
    expect.bound("filler")

    subject.kill()
    subject.start_again()
    trial.submit(*workers("train", 2, first=2))

    expect.pending(*names("train", 2, first=2))
    expect.stable(seconds=5)
    assert condition(trial)["status"] == "True"


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-201", severity="critical", source=UPSTREAM)
@pytest.mark.parametrize("members", [4, 6])
def test_a_native_gang_is_bound_whole_or_not_at_all(trial: Trial, expect: Expect, members: int) -> None:
    """A gang of four, which may have more members, has three CPUs: none is bound for a minute, and the condition is
    False. A fourth CPU comes: four are bound, and the condition is True."""
    trial.add(node("n1").cpu(3))
    create(trial, "train", 4)
    trial.submit(*workers("train", members))
    expect.stable(seconds=60)
    assert bound(trial) == []
    assert reaches(trial, "False", "Unschedulable"), condition(trial)
    message = condition(trial)["message"]  # beside what preemption or, with its gate, topology found
    assert "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining" in message
    group = orjson.loads(trial.call("GET", path(trial, "train")).body)
    assert condition(trial).get("observedGeneration") == group["metadata"].get("generation")

    trial.add(node("n2").cpu(1))

    assert trial.wait(lambda: len(bound(trial)) == 4, within=60), bound(trial)
    assert reaches(trial, "True", "Scheduled"), condition(trial)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-202", severity="critical", source=UPSTREAM)
def test_a_native_gang_that_failed_holds_no_room(trial: Trial, expect: Expect) -> None:
    """A gang of four has three CPUs. A plain pod that asks for three CPUs is bound, and no member is nominated."""
    trial.add(node("n1").cpu(3))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))
    assert reaches(trial, "False", "Unschedulable"), condition(trial)

    trial.submit(pod("plain").request(cpu=3))

    expect.bound("plain")
    assert [one.status.nominated_node_name for one in trial.pods()] == [""] * 5


@pytest.mark.feature("WAS-1.quorum", "HIL-4.api-errors")
@pytest.mark.case("GA-404", severity="critical", source=f"{UPSTREAM}; spec WAS-R30, chapter 16, 25")
def test_a_member_whose_binding_is_refused_is_tried_alone(trial: Trial, expect: Expect, link: Link) -> None:
    """The binding of one of four members is refused for a while: the others are bound and stay. Then it is bound."""
    trial.add(node("n1").cpu(4))
    create(trial, "train", 4)
    link.refuse(500, BindingsOf("train-2"))
    trial.submit(*workers("train", 4))
    others = ["train-0", "train-1", "train-3"]
    expect.bound(*others)
    assert trial.wait(lambda: bool(link.refused), within=30), "a binding was to be tried"
    trial.pass_time(5)
    assert bound(trial) == others
    assert reaches(trial, "True", "Scheduled"), condition(trial)

    link.heal()

    expect.bound("train-2", within=60)
    assert bound(trial) == names("train", 4)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-203", severity="normal", source=UPSTREAM)
def test_a_native_gang_without_its_quorum_waits(trial: Trial, expect: Expect) -> None:
    """Three of four members exist, with room for four: they wait for the fourth. It comes: all are bound."""
    trial.add(node("n1").cpu(4))
    create(trial, "train", 4)
    trial.submit(*workers("train", 3))
    expect.stable(seconds=5)
    assert bound(trial) == []
    assert words(trial, "train-0") in {"", "waiting for minCount pods from a gang to appear in scheduling queue"}
    assert condition(trial) == {}

    trial.submit(*workers("train", 1, first=3))

    expect.bound(*names("train", 4))


@pytest.mark.feature("WAS-1.changes")
@pytest.mark.case("GA-204", severity="critical", source=UPSTREAM)
def test_pods_may_come_before_their_native_gang(trial: Trial, expect: Expect) -> None:
    """Members wait for a PodGroup that does not exist. It is created ten seconds later: they are bound."""
    trial.add(node("n1").cpu(2))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=10)
    assert bound(trial) == []
    assert words(trial, "train-0") in {"", 'waiting for pods\'s pod group "train" to appear in scheduling queue'}

    create(trial, "train", 2)

    expect.bound(*names("train", 2))


@pytest.mark.feature("WAS-1.condition")
@pytest.mark.case("GA-205", severity="normal", source=UPSTREAM)
def test_more_members_than_the_minimum_are_bound_as_room_allows(trial: Trial, expect: Expect) -> None:
    """Six members, a minimum of four, five CPUs: five are bound, the condition is True and stays so."""
    trial.add(node("n1").cpu(5))
    create(trial, "train", 4)
    trial.submit(*workers("train", 6))
    assert trial.wait(lambda: len(bound(trial)) == 5, within=30), bound(trial)
    assert reaches(trial, "True", "Scheduled"), condition(trial)

    expect.stable(seconds=5)

    (left,) = set(names("train", 6)) - set(bound(trial))
    expect.pending(left, saying="Insufficient")
    assert condition(trial)["status"] == "True"


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-212", severity="critical", source=UPSTREAM)
def test_a_member_that_never_fits_does_not_stop_the_minimum(trial: Trial, expect: Expect) -> None:
    """Three members, a minimum of two: the first asks for more than the node has, the other two are bound."""
    trial.add(node("n1").cpu(4))
    create(trial, "train", 2)
    trial.submit(pod("train-0").request(cpu=8).in_native_gang("train"), *workers("train", 2, first=1))

    expect.bound("train-1", "train-2")

    expect.pending("train-0", saying="Insufficient")
    assert reaches(trial, "True", "Scheduled"), condition(trial)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-213", severity="critical", source=UPSTREAM)
def test_a_member_that_never_fits_does_not_keep_the_others_from_new_room(trial: Trial, expect: Expect) -> None:
    """Three members, a minimum of two: the first asks for more than any node has, and there is room for one more. A
    second CPU comes: the other two are bound."""
    trial.add(node("n1").cpu(1))
    create(trial, "train", 2)
    trial.submit(pod("train-0").request(cpu=8).in_native_gang("train"), *workers("train", 2, first=1))
    assert reaches(trial, "False", "Unschedulable"), condition(trial)

    trial.add(node("n2").cpu(1))

    expect.bound("train-1", "train-2", within=60)


@pytest.mark.feature("WAS-1.changes")
@pytest.mark.case("GA-206", severity="critical", source=UPSTREAM)
def test_a_lower_minimum_wakes_a_native_gang(trial: Trial, expect: Expect) -> None:
    """A gang of four has two members and two CPUs. The minimum becomes two: both are bound. It becomes eight: both
    stay."""
    trial.add(node("n1").cpu(2))
    create(trial, "train", 4)
    trial.submit(*workers("train", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []
    for minimum in (2, 8):
        change = {"spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}
        assert trial.call("PATCH", path(trial, "train"), change).ok
        expect.bound(*names("train", 2))
    expect.stable(seconds=5)
    assert bound(trial) == names("train", 2)


def behind_a_gate(trial: Trial, expect: Expect) -> None:
    """Three of four members, of which three are the minimum, wait for the fourth, which has a scheduling gate."""
    trial.add(node("n1").cpu(4))
    create(trial, "train", 3)
    (last,) = workers("train", 1, first=3)
    last.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(last, *workers("train", 3))
    expect.stable(seconds=5)
    assert bound(trial) == []


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-207", severity="normal", source=UPSTREAM)
def test_one_member_with_a_gate_holds_the_whole_gang(trial: Trial, expect: Expect) -> None:
    """The gate goes: all four are bound."""
    behind_a_gate(trial, expect)
    change = {"spec": {"schedulingGates": None}}
    assert trial.call("PATCH", trial.path("Pod", "train-3"), change).ok
    expect.bound(*names("train", 4))


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-259", severity="normal", source="ours: upstream wakes no pod when a member is deleted")
def test_a_member_with_a_gate_that_is_deleted_holds_the_gang_no_more(trial: Trial, expect: Expect) -> None:
    """The member with the gate is deleted: the other three are bound."""
    behind_a_gate(trial, expect)
    trial.delete("train-3")
    expect.bound(*names("train", 3))


@pytest.mark.feature("WAS-1.condition")
@pytest.mark.case("GA-208", severity="normal", source=UPSTREAM)
@pytest.mark.parametrize("first", ["group", "pods"])
def test_members_with_another_priority_than_their_group_are_refused(trial: Trial, expect: Expect, first: str) -> None:
    """The group has no class, its pods, which come later or before, have one: the condition says SchedulerError.
    Another gang is bound."""
    trial.add(node("n1").cpu(4))
    trial.apply(priority_class("was-high", 1000))
    if first == "group":
        create(trial, "train", 2)
    trial.submit(*[one.priority_class("was-high") for one in workers("train", 2)])
    if first == "pods":
        trial.settle()
        create(trial, "train", 2)
    assert reaches(trial, "False", "SchedulerError"), condition(trial)
    assert condition(trial)["message"] == (
        "all pods in a single pod group should have the same priority as the pod group's priority, got 1000 and 0"
    )

    create(trial, "other", 2)
    trial.submit(*workers("other", 2))

    expect.bound(*names("other", 2))
    assert bound(trial, "train") == []


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-326", severity="normal", source="spec WAS-R22: all members, scheduled ones included")
def test_a_later_member_with_another_priority_is_refused(trial: Trial, expect: Expect) -> None:
    """A gang of two is bound. A third member has another priority than the gang: it waits, and a fourth one too as long
    as the third is there."""
    trial.add(node("n1").cpu(8))
    trial.apply(priority_class("was-high", 1000))
    create(trial, "train", 2)
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    (odd,) = workers("train", 1, first=2)
    trial.submit(odd.priority_class("was-high"))
    trial.settle(2)
    trial.submit(*workers("train", 1, first=3))

    expect.stable(seconds=12)
    assert bound(trial, "train") == names("train", 2)

    trial.delete("train-2")
    expect.bound("train-3", within=20)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-209", severity="critical", source=UPSTREAM)
def test_of_two_native_gangs_with_room_for_one_exactly_one_is_bound(trial: Trial, expect: Expect) -> None:
    """Two gangs of four, six CPUs, members created by turns: four of one gang are bound."""
    trial.add(node("n1").cpu(6))
    for group in ("a", "b"):
        create(trial, group, 4)
    trial.submit(*[one for pair in zip(workers("a", 4), workers("b", 4), strict=True) for one in pair])

    assert trial.wait(lambda: len(bound(trial)) >= 4, within=30)
    expect.stable(seconds=5)

    assert sorted((len(bound(trial, "a")), len(bound(trial, "b")))) == [0, 4]


@pytest.mark.feature("WAS-1.order")
@pytest.mark.case("GA-246", severity="normal", source="kubernetes 1.37 pkg/scheduler: by priority, then by age")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize(
    "gets_it",
    [
        pytest.param("late", id="the-more-important"),
        # kube-scheduler moves the pods that an event wakes one by one, and may try any of them meanwhile.
        pytest.param("early", id="the-older", marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),
    ],
)
def test_the_more_important_or_the_older_native_gang_gets_the_room(trial: Trial, expect: Expect, gets_it: str) -> None:
    """Two gangs of two wait for two CPUs. When they come, the later gang gets them if it is more important, and the
    older one if both are alike."""
    trial.apply(priority_class("trial-low", 10), priority_class("trial-high", 9000))
    trial.add(node("none").cpu(0))
    for group, level in (("early", "trial-low"), ("late", "trial-high" if gets_it == "late" else "trial-low")):
        create(trial, group, 2, priorityClassName=level)
        trial.submit(*[one.priority_class(level) for one in workers(group, 2)])
        trial.pass_time(1)
    trial.pass_time(12)  # the backoff of all is over

    trial.add(node("n1").cpu(2))

    expect.bound(*names(gets_it, 2), within=60)
    assert len(bound(trial)) == 2


@pytest.mark.feature("WAS-1.protection")
@pytest.mark.case("GA-210", severity="normal", source=UPSTREAM)
def test_a_deleted_native_gang_stays_until_its_last_pod_ends(trial: Trial, expect: Expect) -> None:
    """A PodGroup with two running pods is deleted: it stays while one has succeeded and the other one is being deleted,
    and goes with that."""
    trial.add(node("n1").cpu(2))
    create(trial, "train", 2)
    slow, short = workers("train", 2)
    slow.manifest["spec"]["terminationGracePeriodSeconds"] = 60
    short.annotation("seatrial.dev/runs-for", "5").manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(slow, short)
    expect.running("train-0")
    assert trial.call("DELETE", path(trial, "train")).ok
    assert trial.reaches(lambda: trial.pod("train-1").status.phase == "Succeeded", within=60)
    freeze(trial, "n1")  # its pods end when it is thawed
    assert trial.call("DELETE", trial.path("Pod", "train-0")).ok
    expect.gone("train-0")
    expect.stable(seconds=5)
    assert trial.call("GET", path(trial, "train")).ok

    thaw(trial, "n1")

    assert trial.wait(lambda: trial.call("GET", path(trial, "train")).code == 404, within=90)


@pytest.mark.feature("WAS-1.two-dialects")
@pytest.mark.case("GA-211", severity="critical", source="ours")
def test_a_native_and_a_koordinator_gang_of_one_name_compete(trial: Trial, expect: Expect) -> None:
    """Two gangs of four named train, one of each API group, and six CPUs: four of one gang are bound."""
    trial.add(node("n1").cpu(6))
    trial.apply(gang("train", 4))
    create(trial, "train", 4)
    labelled = [pod(f"k-{number}").request(cpu=1).in_gang("train") for number in range(4)]
    native = [pod(f"n-{number}").request(cpu=1).in_native_gang("train") for number in range(4)]
    trial.submit(*[one for pair in zip(labelled, native, strict=True) for one in pair])

    assert trial.wait(lambda: len(bound(trial)) >= 4, within=30)
    expect.stable(seconds=5)

    assert sorted((len(bound(trial, "k-")), len(bound(trial, "n-")))) == [0, 4]


@pytest.mark.feature("WAS-1.condition", "WAS-1.changes")
@pytest.mark.case("GA-253", severity="normal", source=f"{UPSTREAM}; spec WAS-R22")
@pytest.mark.parametrize(
    "differs",
    ["priority", "preemption policy", pytest.param(".spec.schedulerName", marks=pytest.mark.profile("no-preemption"))],
)
def test_a_native_gang_is_bound_when_the_member_that_does_not_belong_is_gone(
    trial: Trial, expect: Expect, differs: str
) -> None:
    """One of three members has another priority than its group, or another preemption policy or scheduler than the
    other members: none is bound. It is deleted: the others are."""
    trial.add(node("n1").cpu(4))
    trial.apply(priority_class("was-high", 1000), priority_class("was-calm", 0, preempts=False))
    create(trial, "train", 2)
    first, *others = workers("train", 3)
    odd = {
        "priority": lambda: first.priority_class("was-high"),
        "preemption policy": lambda: first.priority_class("was-calm"),
        ".spec.schedulerName": lambda: first.scheduler("no-preemption"),
    }[differs]()
    trial.submit(odd, *others)
    assert reaches(trial, "False", "SchedulerError"), condition(trial)
    assert f"have the same {differs}" in condition(trial)["message"]
    assert bound(trial) == []

    trial.delete("train-0")

    expect.bound("train-1", "train-2", within=20)
    assert reaches(trial, "True", "Scheduled"), condition(trial)


@pytest.mark.feature("WAS-1.condition")
@pytest.mark.case("GA-254", severity="normal", source="kubernetes api-conventions: lastTransitionTime; spec WAS-R34")
@pytest.mark.long(seconds=20)
def test_the_condition_of_a_native_gang_has_the_time_of_its_status(trial: Trial, expect: Expect) -> None:
    """A gang waits, and the message of its condition changes with its minimum: its time does not. The gang is bound:
    its time does."""
    trial.add(node("n1").cpu(2))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))
    assert reaches(trial, "False", "Unschedulable"), condition(trial)
    first = condition(trial)
    trial.pass_time(12)  # times are whole seconds, and the backoff is over

    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    assert trial.call("PATCH", path(trial, "train"), change).ok
    assert trial.reaches(lambda: condition(trial)["message"] != first["message"], within=60), first
    assert condition(trial)["lastTransitionTime"] == first["lastTransitionTime"]

    trial.add(node("n2").cpu(2))
    expect.bound(*names("train", 4))
    assert reaches(trial, "True", "Scheduled"), condition(trial)
    assert condition(trial)["lastTransitionTime"] > first["lastTransitionTime"]


@pytest.mark.feature("WAS-1.condition")
@pytest.mark.case("GA-302", severity="normal", source=f"{UPSTREAM}; spec WAS-R34")
def test_the_conditions_that_others_wrote_to_a_native_gang_stay(trial: Trial, expect: Expect) -> None:
    """Somebody wrote another condition to a group: it is there when the group waits, and when the group is bound."""
    trial.add(node("n1").cpu(1))
    create(trial, "train", 2)
    other = {"type": "example.com/Checked", "status": "True", "reason": "Checked", "message": ""}
    written = {"status": {"conditions": [other | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    assert trial.call("PATCH", f"{path(trial, 'train')}/status", written).ok

    def types() -> list[str]:
        status = orjson.loads(trial.call("GET", path(trial, "train")).body)["status"]
        return sorted(one["type"] for one in status["conditions"])

    trial.submit(*workers("train", 2))
    assert reaches(trial, "False", "Unschedulable"), condition(trial)
    assert types() == ["PodGroupInitiallyScheduled", "example.com/Checked"]
    trial.add(node("n2").cpu(1))
    expect.bound(*names("train", 2))
    assert reaches(trial, "True", "Scheduled"), condition(trial)
    assert types() == ["PodGroupInitiallyScheduled", "example.com/Checked"]


@pytest.mark.feature("WAS-1.order")
@pytest.mark.case("GA-360", severity="normal", source=f"{UPSTREAM}; spec WAS-R21")
@pytest.mark.long(seconds=24)
def test_older_members_of_a_native_gang_come_first(trial: Trial, expect: Expect) -> None:
    """Four members of a gang of two come one after the other, the last by name first. There is room for two: the
    oldest get it."""
    trial.add(node("none").cpu(0))
    create(trial, "train", 2)
    for worker in reversed(workers("train", 4)):
        trial.submit(worker)
        trial.pass_time(2)
    trial.pass_time(15)  # the backoff is over

    trial.add(node("n1").cpu(2))

    expect.bound("train-2", "train-3", within=60)
    assert bound(trial) == ["train-2", "train-3"]


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-361", severity="critical", source=f"{UPSTREAM}; spec WAS-R32")
def test_a_basic_group_is_bound_as_far_as_there_is_room(trial: Trial, expect: Expect) -> None:
    """Three members of a group of policy basic and one CPU: one is bound, and the condition is True. With another CPU
    a second one is."""
    trial.add(node("n1").cpu(1))
    create(trial, "train", None)
    trial.submit(*workers("train", 3))
    assert trial.wait(lambda: len(bound(trial)) == 1, within=30), bound(trial)
    assert reaches(trial, "True", "Scheduled"), condition(trial)

    trial.add(node("n2").cpu(1))

    assert trial.wait(lambda: len(bound(trial)) == 2, within=60), bound(trial)
    expect.stable(seconds=3)
    assert len(bound(trial)) == 2


@pytest.mark.feature("WAS-1.protection")
@pytest.mark.case("GA-362", severity="normal", source="spec WAS-R11")
def test_a_native_gang_that_is_being_deleted_takes_members(trial: Trial, expect: Expect) -> None:
    """A gang of two is bound and then deleted: it stays for its members. Two more come, and are bound."""
    trial.add(node("n1").cpu(4))
    create(trial, "train", 2)
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert trial.call("DELETE", path(trial, "train")).ok
    trial.settle()
    assert trial.call("GET", path(trial, "train")).ok

    trial.submit(*workers("train", 2, first=2))

    expect.bound(*names("train", 4), within=20)


@pytest.mark.feature("WAS-1.two-dialects")
@pytest.mark.case("GA-363", severity="normal", source="spec WAS-R80")
def test_a_pod_of_two_dialects_is_in_its_native_gang(trial: Trial, expect: Expect) -> None:
    """Two pods name a PodGroup of each API group: that of their field has a minimum of two, that of their label one of
    three. They are bound."""
    trial.add(node("n1").cpu(4))
    trial.apply(gang("labelled", 3))
    create(trial, "train", 2)

    trial.submit(*[one.in_gang("labelled") for one in workers("train", 2)])

    expect.bound(*names("train", 2))
    assert reaches(trial, "True", "Scheduled"), condition(trial)
