"""Job-level preemption: room for a whole gang at the cost of whole jobs, when no pod is evicted, and what is said.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import deletions
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, priority_class, quota
from seatrial.suites.preemption.jobs import PREEMPTING, filler, hosts, left, names, nominated, workers
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
        classes.cluster.pass_time(3)
        assert left(classes) == ["low"]
        link.heal()
        expect.gone("low", within=20)
    expect.running("train-0")


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-003", severity="blocker", source="ours")
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
@pytest.mark.case("JP-018", severity="critical", source="ours")
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
@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside-another-quota"])
def test_a_gang_that_its_quota_does_not_admit_evicts_no_pod(classes: Trial, expect: Expect, other: bool) -> None:
    """The quota has room for each of the two members alone, but not for both: the pods on the nodes stay. What they
    use of another quota is no room for the gang."""
    hosts(classes, n1=1, n2=1)
    name, others = f"{classes.name}-team", f"{classes.name}-rest"
    classes.apply(quota(name).min(cpu=3).max(cpu=3).manifest, quota(others).max(cpu=8).manifest)
    fillers = [filler("low-1", "n1"), filler("low-2", "n2")]
    classes.submit(*(built.request(cpu=2).quota(others) if other else built for built in fillers))
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
@pytest.mark.long(seconds=5)
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
    messages = [c.message for c in classes.pod("low").status.conditions if c.type == "DisruptionTarget"]
    assert messages
    assert f"preemptor: {classes.name}/train, triggerPod: {classes.name}/train-0" in messages[0]
