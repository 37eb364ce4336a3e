"""Job-level preemption: the room of victims is held for the gang until it is bound, or given back.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, pod, quota
from seatrial.suites.preemption.jobs import PREEMPTING, filler, hosts, left, names, nominated, workers, workers_on
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]

HOSTS = ("n1", "n2", "n3", "n4")


def slow_node(trial: Trial) -> str:
    return trial.pod("slow").spec.node_name


@pytest.mark.feature("PRE-2.nominate")
@pytest.mark.case("JP-020", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # simulated containers end soon, whatever their grace period is
def test_each_member_has_its_nominated_node(classes: Trial, expect: Expect) -> None:
    """While the victims terminate, status.nominatedNodeName of the members names both nodes."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1", grace=8), filler("low-2", "n2", grace=8))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.gone("low-1", "low-2")
    node_names = sorted(pod.spec.node_name for pod in classes.pods() if pod.metadata.name.startswith("low-"))
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == node_names, within=5)
    expect.running(*names("train", 2), within=60)


@pytest.mark.feature("PRE-3.holds-capacity")
@pytest.mark.case("JP-030", severity="blocker")
def test_a_smaller_pod_does_not_get_the_nominated_room(classes: Trial, expect: Expect) -> None:
    """One victim ends at once, the other one later. Meanwhile a pod of half a card does not get the free card."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=15))
    expect.running("quick", "slow")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("quick", "slow")
    assert classes.reaches(lambda: classes.find("quick") is None, within=10)

    classes.submit(pod("thief").gpu_share(50).priority_class("trial-low").scheduler(PREEMPTING))

    expect.pending("thief")
    expect.running(*names("train", 2), within=60)
    assert not classes.pod("thief").spec.node_name


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-031", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_the_room_is_given_back_when_a_member_is_deleted(classes: Trial, expect: Expect) -> None:
    """A gang of two without its second member: the card that is free already goes to the pod that waits for it."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=300))
    expect.running("quick", "slow")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next", cooled=False)  # simulated containers end soon, whatever their grace period is

    other = next(name for name in names("train", 2) if nominated(classes, name) == [slow_node(classes)])
    classes.delete(other)

    expect.running("next", within=30)


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("PR-270", severity="critical", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_a_nominated_member_that_is_being_deleted_is_no_member(classes: Trial, expect: Expect) -> None:
    """As JP-031, but a finalizer keeps the deleted member, as a Job's pods have one: the room is given back at once."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=300))
    expect.running("quick", "slow")
    classes.apply(gang("train", 2))
    members = workers("train", 2)
    for member in members:
        member.manifest["metadata"]["finalizers"] = ["seatrial.dev/hold"]
    classes.submit(*members)
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next", cooled=False)

    other = next(name for name in names("train", 2) if nominated(classes, name) == [slow_node(classes)])
    assert classes.call("DELETE", classes.path("Pod", other)).ok

    try:
        expect.running("next", within=30)
        assert classes.pod(other).deleting
    finally:
        for name in names("train", 2):
            classes.call("PATCH", classes.path("Pod", name), {"metadata": {"finalizers": None}})


@pytest.mark.feature("PRE-3.node-gone")
@pytest.mark.case("JP-032", severity="critical")
@pytest.mark.long(seconds=14)
def test_a_gang_whose_nominated_node_is_gone_is_planned_again(classes: Trial, expect: Expect) -> None:
    """The gang is nominated to n1 of two full nodes with two cards. Its backoff ends, and n1 is deleted: it gets n2."""
    hosts(classes, n1=2, n2=2)
    classes.submit(filler("a", "n1", 2, grace=120), filler("b", "n2", 2, "trial-middle"))
    expect.running("a", "b")
    classes.inject({"node": "n1", "verb": "frozen"})  # so that the victim is still there when the node is deleted
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("a")
    assert classes.reaches(lambda: nominated(classes, *names("train", 2)) == ["n1", "n1"], within=5)
    expect.pending(*names("train", 2))

    assert classes.call("DELETE", "/api/v1/nodes/n1").ok

    expect.running(*names("train", 2), within=60)
    assert {classes.pod(name).spec.node_name for name in names("train", 2)} == {"n2"}


@pytest.mark.feature("PRE-3.restart")
@pytest.mark.case("JP-033", severity="critical")
def test_restarted_between_eviction_and_binding(classes: Trial, expect: Expect, subject: Subject | None) -> None:
    """The scheduler is killed while the victims terminate: its successor keeps the room and evicts no other pod."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    hosts(classes, n1=1, n2=1, n3=1, n4=1)
    classes.submit(
        *(filler(f"low-{number}", f"n{number}", grace=10) for number in (1, 2)),
        *(filler(f"middle-{number}", f"n{number}", priority="trial-middle", grace=10) for number in (3, 4)),
    )
    expect.running("low-1", "low-2", "middle-3", "middle-4")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("low-1", "low-2")
    assert classes.reaches(lambda: all(nominated(classes, *names("train", 2))), within=5)

    subject.kill()
    classes.submit(pod("thief").gpu_share(50).priority_class("trial-low").scheduler(PREEMPTING))
    subject.start_again()

    expect.running(*names("train", 2), within=60)
    assert left(classes) == ["middle-3", "middle-4", "thief"]
    assert not classes.pod("thief").spec.node_name


@pytest.mark.feature("PRE-3.restart", "PRE-3.given-back")
@pytest.mark.case("JP-035", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a victim that takes its time to end
def test_a_successor_gives_the_room_back_when_a_member_is_deleted(
    classes: Trial, expect: Expect, subject: Subject | None
) -> None:
    """As JP-031, but the scheduler was replaced meanwhile: the new one has the room only from the members' status."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=300))
    expect.running("quick", "slow")
    classes.inject({"node": "n2", "verb": "frozen"})  # the victim there does not end
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next", cooled=False)
    assert all(nominated(classes, *names("train", 2)))

    subject.kill()
    subject.start_again()
    expect.stable(seconds=5)
    assert not classes.pod("next").spec.node_name

    other = next(name for name in names("train", 2) if nominated(classes, name) == [slow_node(classes)])
    classes.delete(other)

    expect.running("next", within=30)


@pytest.mark.feature("PRE-3.restart", "PRE-3.given-back")
@pytest.mark.case("PR-300", severity="critical", source="spec GANG-R88")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # victims that take their time to end
def test_a_successor_knows_the_room_of_each_of_two_gangs(
    classes: Trial, expect: Expect, subject: Subject | None
) -> None:
    """Two gangs of two are nominated, each with a free card and one whose victim still ends, and the scheduler is
    replaced. A member of the first gang is deleted: its free card goes to a pod of low priority, and the other gang
    keeps its own until it loses a member, too."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    hosts(classes, n1=1, n2=1, n3=1, n4=1)
    ending = {"n2": "slow-2", "n4": "slow-4"}
    classes.submit(*(filler(ending.get(host, f"quick-{host}"), host, grace=300 * (host in ending)) for host in HOSTS))
    expect.running("quick-n1", "slow-2", "quick-n3", "slow-4")
    for host in ending:
        classes.inject({"node": host, "verb": "frozen"})
    classes.apply(gang("train", 2), gang("other", 2))
    classes.submit(*workers_on("train", "n1", "n2"), *workers_on("other", "n3", "n4"))
    expect.gone("quick-n1", "slow-2", "quick-n3", "slow-4")
    waiting = {"train": filler("next-1", "n1"), "other": filler("next-3", "n3")}
    classes.submit(*waiting.values())
    expect.pending("next-1", "next-3", cooled=False)
    assert nominated(classes, *names("train", 2), *names("other", 2)) == [*HOSTS]
    subject.kill()
    subject.start_again()
    expect.stable(seconds=5)
    assert not classes.pod("next-1").spec.node_name

    classes.delete("train-1")

    expect.running("next-1", within=30)
    expect.stable(seconds=5)
    assert not classes.pod("next-3").spec.node_name, "the room of a gang went with that of another one"

    classes.delete("other-1")

    expect.running("next-3", within=30)


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-037", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_a_gang_whose_victims_still_end_evicts_no_other_pod(classes: Trial, expect: Expect) -> None:
    """The victims on n1 do not end, and n1 is cordoned meanwhile: the pods on n2 stay."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low", "n1", grace=300), filler("middle", "n2", priority="trial-middle"))
    expect.running("low", "middle")
    classes.inject({"node": "n1", "verb": "frozen"})
    classes.apply(gang("train", 1).waiting_time(600))
    classes.submit(*workers("train", 1))
    expect.gone("low")
    where = classes.pod("low").spec.node_name

    assert classes.call("PATCH", f"/api/v1/nodes/{where}", {"spec": {"unschedulable": True}}).ok

    expect.stable(seconds=20)
    assert left(classes) == ["middle"]


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-038", severity="critical")
@pytest.mark.parametrize(
    ("seconds", "within", "restarted"),
    [
        pytest.param(60, 150, False, marks=pytest.mark.long(80)),
        pytest.param(60, 150, True, marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),
        pytest.param(7200, 1000, False, marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),
    ],
    ids=["a-minute", "restarted", "two-hours"],
)
def test_room_that_the_quota_no_longer_admits_is_given_back(  # noqa: PLR0917
    classes: Trial, expect: Expect, subject: Subject | None, seconds: int, within: int, restarted: bool
) -> None:
    """While the victims terminate, the quota of the gang becomes too small for it. The room is held until the waiting
    time of the gang ends, a quarter of an hour at most; then it goes to a less important pod. So it is if the scheduler
    is replaced meanwhile."""
    if restarted and subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    hosts(classes, n1=1, n2=1)
    name = f"{classes.name}-team"
    classes.apply(quota(name).min(cpu=2).max(cpu=4).manifest)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    for where in ("n1", "n2"):
        classes.inject({"node": where, "verb": "frozen", "for": 8})
    classes.apply(gang("train", 2).waiting_time(seconds))
    classes.submit(*(built.request(cpu=2).quota(name) for built in workers("train", 2)))
    expect.gone("low-1", "low-2")
    assert classes.reaches(lambda: all(nominated(classes, *names("train", 2))), within=5)
    if restarted and subject is not None:
        subject.kill()

    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{classes.name}/elasticquotas/{name}"
    assert classes.call("PATCH", path, {"spec": {"max": {"cpu": "2"}}}).ok
    if restarted and subject is not None:
        subject.start_again()
    assert classes.reaches(lambda: classes.find("low-1") is None and classes.find("low-2") is None, within=30)
    classes.submit(filler("next", "n1"))
    expect.stable(seconds=5)
    assert not classes.pod("next").spec.node_name, "the room of the gang was given away before its time ended"

    expect.running("next", within=within)


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-054", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # the victim terminates for minutes
def test_the_room_is_given_back_when_a_more_important_pod_takes_a_part(classes: Trial, expect: Expect) -> None:
    """A gang of two has evicted a pod from each of two nodes, and one of them still ends. A more important pod preempts
    there: the other node, which is free already, goes to the pod of low priority that waits for it."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=300))
    expect.running("quick", "slow")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2, priority="trial-middle"))
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next", cooled=False)
    assert all(nominated(classes, *names("train", 2)))

    classes.submit(filler("boss", "n2", priority="trial-top"))

    expect.running("next", within=30)
    assert nominated(classes, *names("train", 2)) == ["", ""]


@pytest.mark.feature("PRE-2.nominate")
@pytest.mark.case("PR-113", severity="normal", source="spec GANG-R83")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # victims that take their time to end
def test_a_gang_ends_the_nominations_of_less_important_pods_on_all_its_nodes(classes: Trial, expect: Expect) -> None:
    """On each of two nodes a pod is nominated while its victim ends slowly. A more important gang is nominated to both
    nodes: both pods are nominated no more."""
    hosts(classes, n1=1, n2=1)
    numbers = ("1", "2")
    classes.submit(*(filler(f"slow-{number}", f"n{number}", grace=300) for number in numbers))
    expect.running(*(f"slow-{number}" for number in numbers))
    for number in numbers:
        classes.inject({"node": f"n{number}", "verb": "frozen"})
    classes.submit(*(filler(f"lesser-{number}", f"n{number}", priority="trial-middle") for number in numbers))
    for number in numbers:
        expect.nominated(f"lesser-{number}", f"n{number}")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == ["n1", "n2"], within=20)
    lesser = [f"lesser-{number}" for number in numbers]
    assert classes.reaches(lambda: nominated(classes, *lesser) == ["", ""], within=5)
