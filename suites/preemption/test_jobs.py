"""Job-level preemption: room for a whole gang at the cost of whole jobs, held until the gang is bound.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.faulty import deletions
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import disruption_budget, gang, pod, priority_class, quota
from seatrial.suites.preemption.jobs import (
    JOB,
    PREEMPTING,
    filler,
    hosts,
    left,
    names,
    nominated,
    of_job,
    workers,
    workers_on,
)
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.mark.feature("PRE-2.whole-gang-only")
@pytest.mark.case("JP-001", severity="blocker")
def test_a_gang_gets_the_room_of_less_important_pods(classes: Trial, expect: Expect) -> None:
    """A gang of two on two full nodes of one card: both pods there are evicted, and both members run."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == []


@pytest.mark.feature("PRE-2.whole-gang-only")
@pytest.mark.case("JP-002", severity="blocker")
def test_a_gang_that_does_not_fit_even_so_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """A gang of three; a third node has a more important pod. Evicting the two low pods would help two members only."""
    hosts(classes, n1=1, n2=1, n3=1)
    classes.apply(priority_class("trial-boss", 30000))
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"), filler("boss", "n3", priority="trial-boss"))
    expect.running("low-1", "low-2", "boss")
    classes.apply(gang("train", 3))

    classes.submit(*workers("train", 3))

    expect.pending(*names("train", 3))
    expect.stable(seconds=12)
    assert left(classes) == ["boss", "low-1", "low-2"]
    assert nominated(classes, *names("train", 3)) == ["", "", ""]


@pytest.mark.feature("PRE-2.whole-gang-only")
@pytest.mark.case("JP-053", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_victim_whose_deletion_was_refused_goes_later(
    classes: Trial, expect: Expect, subject: Subject | None
) -> None:
    """The API server refuses deletions for three seconds, after the room for the gang was chosen: the victim goes as
    soon as it can."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    hosts(classes, n1=1)
    classes.submit(filler("low", "n1"))
    expect.running("low")
    classes.apply(gang("train", 1))
    with subject.troubled() as link:
        link.refuse(500, deletions)
        classes.submit(*workers("train", 1))
        assert classes.reaches(lambda: link.refused >= 1, within=30), "the victim was to be deleted"
        classes.cluster.wait(lambda: False, within=3)
        assert left(classes) == ["low"]
        link.heal()
        expect.gone("low", within=20)
    expect.running("train-0")


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-003", severity="blocker")
def test_no_job_loses_a_part_of_its_pods(classes: Trial, expect: Expect) -> None:
    """A gang of three runs on three nodes. The important member needs one card: all three go, as they run together."""
    hosts(classes, n1=1, n2=1, n3=1)
    classes.apply(gang("old", 3))
    classes.submit(*workers("old", 3, priority="trial-low"))
    expect.running(*names("old", 3))
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    expect.gone(*names("old", 3))


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-018", severity="critical")
def test_no_gang_group_loses_one_of_its_gangs(classes: Trial, expect: Expect) -> None:
    """Two gangs of one group run on two nodes. The important member needs one card: the pods of both gangs go."""
    hosts(classes, n1=1, n2=1)
    both = [f"{classes.name}/old-a", f"{classes.name}/old-b"]
    classes.apply(gang("old-a", 1).together_with(*both), gang("old-b", 1).together_with(*both))
    classes.submit(*workers("old-a", 1, priority="trial-low"), *workers("old-b", 1, priority="trial-low"))
    expect.running("old-a-0", "old-b-0")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    expect.gone("old-a-0", "old-b-0")


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-004", severity="critical")
def test_the_cheapest_jobs_go(classes: Trial, expect: Expect) -> None:
    """Priorities 1000, 5000 and 9000 cost 0, 1 and 2. n1 has 1000 and 9000, n2 has 5000 alone: n2 is cheaper."""
    hosts(classes, n1=2, n2=2)
    classes.submit(
        filler("low", "n1"), filler("high", "n1", priority="trial-high"), filler("middle", "n2", 2, "trial-middle")
    )
    expect.running("low", "high", "middle")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=2))

    expect.running("train-0")
    assert left(classes) == ["high", "low"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-005", severity="critical")
def test_pods_of_one_job_count_once(classes: Trial, expect: Expect) -> None:
    """On n2 two pods of 5000 are one job: cost 1. On n1 pods of 1000, 5000 and 5000 are three jobs: cost 2. If each pod
    counted, both nodes would cost 2, and n1 would be the first."""
    hosts(classes, n1=4, n2=4)
    both = [filler(f"worker-{number}", "n2", 2, "trial-middle").label(JOB, "job-1") for number in (1, 2)]
    apart = [filler(f"single-{number}", "n1", 1, "trial-middle").label(JOB, f"job-{number + 1}") for number in (1, 2)]
    classes.submit(*both, filler("low", "n1", 2).label(JOB, "job-4"), *apart)
    expect.running("worker-1", "worker-2", "low", "single-1", "single-2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=4))

    expect.running("train-0")
    assert left(classes) == ["low", "single-1", "single-2"]


@pytest.mark.feature("PRE-2.for-the-rest")
@pytest.mark.case("JP-006", severity="critical")
def test_members_that_have_room_need_no_victims(classes: Trial, expect: Expect) -> None:
    """A gang of two with one free card: one of the three pods in the way is evicted."""
    hosts(classes, n1=2, n2=2)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n1"), filler("low-3", "n2"))
    expect.running("low-1", "low-2", "low-3")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    expect.stable(seconds=2)
    assert len(left(classes)) == 2


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-013", severity="blocker")
@pytest.mark.parametrize("peers", ["n1", "n2"])
def test_pods_of_equal_priority_stay(classes: Trial, expect: Expect, peers: str) -> None:
    """A gang of two has a less important pod on one node in its way, and one of its own priority on the other."""
    hosts(classes, n1=1, n2=1)
    lower = "n2" if peers == "n1" else "n1"
    classes.submit(filler("peer", peers, priority="trial-top"), filler("low", lower))
    expect.running("peer", "low")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.pending(*names("train", 2))
    expect.stable(seconds=5)
    assert left(classes) == ["low", "peer"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-014", severity="critical")
@pytest.mark.parametrize("order", [("trial-low", "trial-middle"), ("trial-middle", "trial-low")], ids="-".join)
def test_of_one_node_the_less_important_job_goes(classes: Trial, expect: Expect, order: tuple[str, str]) -> None:
    """Two jobs fill a node, the one or the other is older; a gang of one needs half of it."""
    hosts(classes, n1=2)
    for priority in order:
        classes.submit(filler(priority, "n1", priority=priority))
        expect.running(priority)
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["trial-middle"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-015", severity="critical")
@pytest.mark.parametrize(("guarded", "other"), [("n1", "n2"), ("n2", "n1")])
def test_a_budget_outweighs_the_cost(classes: Trial, expect: Expect, guarded: str, other: str) -> None:
    """The cheaper job has a disruption budget that its eviction would violate: the more important one is evicted."""
    hosts(classes, n1=1, n2=1)
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(filler("low", guarded).label("app", "guarded"), filler("middle", other, priority="trial-middle"))
    expect.running("low", "middle")
    classes.cluster.wait(lambda: False, within=2)  # the budget's status counts it
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["low"]


@pytest.mark.feature("PRE-2.for-the-rest", "PRE-2.cost")
@pytest.mark.case("JP-016", severity="critical")
@pytest.mark.parametrize("first", ["n1", "n2"])
def test_a_job_that_turns_out_not_to_be_needed_stays(classes: Trial, expect: Expect, first: str) -> None:
    """The job of n2 has a pod on n1 too. Once it goes for the member of n2, the job of n1 need not go for the other."""
    hosts(classes, n1=2, n2=1)
    classes.submit(filler("low", "n1"), *(of_job("both", where, "trial-middle") for where in ("n1", "n2")))
    expect.running("low", "both-n1", "both-n2")
    classes.apply(gang("train", 2))
    second = "n2" if first == "n1" else "n1"

    classes.submit(*workers_on("train", first, second))

    expect.running(*names("train", 2))
    assert left(classes) == ["low"]


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("JP-007", severity="critical")
def test_a_job_with_a_protected_pod_stays_whole(classes: Trial, expect: Expect) -> None:
    """One of two pods of a job may not be preempted: the other one is not evicted either."""
    hosts(classes, n1=1, n2=1)
    first, second = (filler(f"worker-{number}", f"n{number}").label(JOB, "job-1") for number in (1, 2))
    classes.submit(first, second.label("scheduling.koordinator.sh/disable-preemptible", "true"))
    expect.running("worker-1", "worker-2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.pending("train-0")
    expect.stable(seconds=12)
    assert left(classes) == ["worker-1", "worker-2"]


@pytest.mark.feature("PRE-2.never")
@pytest.mark.case("JP-008", severity="critical")
def test_a_gang_that_never_preempts_waits(classes: Trial, expect: Expect) -> None:
    """Members with preemptionPolicy Never wait until both pods in the way have ended."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2, priority="trial-patient"))
    expect.pending(*names("train", 2), saying="preemptionPolicy=Never")
    expect.stable(seconds=5)
    assert left(classes) == ["low-1", "low-2"]

    classes.delete("low-1", "low-2")

    expect.running(*names("train", 2), within=60)


@pytest.mark.feature("PRE-2.quota")
@pytest.mark.case("JP-009", severity="critical")
def test_a_gang_that_its_quota_does_not_admit_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """The quota has room for each of the two members alone, but not for both: the pods on the nodes stay."""
    hosts(classes, n1=1, n2=1)
    name = f"{classes.name}-team"
    classes.apply(quota(name).min(cpu=3).max(cpu=3).manifest)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))

    classes.submit(*(built.request(cpu=2).quota(name) for built in workers("train", 2)))

    expect.pending(*names("train", 2))
    expect.stable(seconds=12)
    assert left(classes) == ["low-1", "low-2"]


@pytest.mark.feature("PRE-2.said")
@pytest.mark.case("JP-010", severity="normal")
def test_the_members_say_why_no_pod_is_evicted(classes: Trial, expect: Expect) -> None:
    """The pods on both nodes are as important as the gang."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("a", "n1", priority="trial-top"), filler("b", "n2", priority="trial-top"))
    expect.running("a", "b")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.pending(*names("train", 2), saying="no potential victims")


@pytest.mark.feature("PRE-2.no-deadlock")
@pytest.mark.case("JP-011", severity="blocker")
def test_two_gangs_that_each_fit_alone_do_not_share_the_room(classes: Trial, expect: Expect) -> None:
    """Two gangs of two, members submitted in turn, on two cards of low pods: one gets both, then the other."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1", grace=2), filler("low-2", "n2", grace=5))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2), gang("other", 2))
    for worker, two in zip(workers("train", 2), workers("other", 2), strict=True):
        classes.submit(worker, two)

    def running() -> list[str]:
        return sorted(pod.metadata.name for pod in classes.pods() if pod.status.phase == "Running" and not pod.deleting)

    assert classes.reaches(lambda: running() in (names("train", 2), names("other", 2)), within=60), running()
    expect.stable(seconds=12)
    first = running()
    assert len(first) == 2

    classes.delete(*first)

    expect.running(*names("other" if first == names("train", 2) else "train", 2), within=60)


@pytest.mark.feature("PRE-2.victims-told")
@pytest.mark.case("JP-012", severity="normal")
def test_the_condition_of_a_victim_names_the_gang(classes: Trial, expect: Expect) -> None:
    """DisruptionTarget with reason PreemptionByScheduler names the gang group and the pod that triggered it."""
    hosts(classes, n1=1)
    classes.submit(filler("low", "n1", grace=20))
    expect.running("low")
    classes.inject({"node": "n1", "verb": "frozen"})  # the victim stays terminating
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.gone("low")
    said = [c.message for c in classes.pod("low").status.conditions if c.type == "DisruptionTarget"]
    assert said
    assert f"preemptor: {classes.name}/train, triggerPod: {classes.name}/train-0" in said[0]


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
    wanted = sorted(pod.spec.node_name for pod in classes.pods() if pod.metadata.name.startswith("low-"))
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == wanted, within=5)
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
    expect.pending("next")

    other = next(name for name in names("train", 2) if nominated(classes, name) == [slow_node(classes)])
    classes.delete(other)

    expect.running("next", within=30)


def slow_node(cluster: Trial) -> str:
    return cluster.pod("slow").spec.node_name


@pytest.mark.feature("PRE-3.node-gone")
@pytest.mark.case("JP-032", severity="critical")
def test_a_gang_whose_nominated_node_is_gone_is_planned_again(classes: Trial, expect: Expect) -> None:
    """The gang is nominated to n1 of two full nodes with two cards. n1 is deleted: the gang gets n2."""
    hosts(classes, n1=2, n2=2)
    classes.submit(filler("a", "n1", 2, grace=120), filler("b", "n2", 2, "trial-middle"))
    expect.running("a", "b")
    classes.inject({"node": "n1", "verb": "frozen"})  # so that the victim is still there when the node is deleted
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("a")
    assert classes.reaches(lambda: nominated(classes, *names("train", 2)) == ["n1", "n1"], within=5)

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
    expect.pending("next")
    assert all(nominated(classes, *names("train", 2)))

    subject.kill()
    subject.start_again()
    expect.stable(seconds=5)
    assert not classes.pod("next").spec.node_name

    other = next(name for name in names("train", 2) if nominated(classes, name) == [slow_node(classes)])
    classes.delete(other)

    expect.running("next", within=30)


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
@pytest.mark.long(80)
def test_room_that_the_quota_no_longer_admits_is_given_back(classes: Trial, expect: Expect) -> None:
    """While the victims terminate, the quota of the gang becomes too small for it. The room is held until the waiting
    time of the gang ends; then it goes to a less important pod."""
    hosts(classes, n1=1, n2=1)
    name = f"{classes.name}-team"
    classes.apply(quota(name).min(cpu=2).max(cpu=4).manifest)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    for where in ("n1", "n2"):
        classes.inject({"node": where, "verb": "frozen", "for": 8})
    classes.apply(gang("train", 2).waiting_time(60))
    classes.submit(*(built.request(cpu=2).quota(name) for built in workers("train", 2)))
    expect.gone("low-1", "low-2")
    assert classes.reaches(lambda: all(nominated(classes, *names("train", 2))), within=5)

    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{classes.name}/elasticquotas/{name}"
    assert classes.call("PATCH", path, {"spec": {"max": {"cpu": "2"}}}).ok
    assert classes.reaches(lambda: classes.find("low-1") is None and classes.find("low-2") is None, within=30)
    classes.submit(filler("next", "n1"))
    expect.stable(seconds=5)
    assert not classes.pod("next").spec.node_name, "the room of the gang was given away before its time ended"

    expect.running("next", within=150)
