"""Job-level preemption: who may be a victim, and what counts as room already.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod, quota, reservation
from seatrial.suites.preemption.jobs import JOB, PREEMPTING, filler, hosts, left, names, nominated, of_job, workers
from seatrial.suites.preemption.nominations import freeze, thaw
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


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


@pytest.mark.feature("PRE-2.for-the-rest", "SHELL-5.refusal")
@pytest.mark.case(
    "PR-281", severity="normal", source="spec GANG-M28; koordinator coscheduling/core/preemption.go@v1.7.0"
)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the message has the real names of namespaces
def test_victims_say_which_gang_preempted_them(classes: Trial, expect: Expect) -> None:
    """The message of the condition DisruptionTarget names the gang, and the member that was tried."""
    hosts(classes, n1=2)
    classes.submit(filler("low", "n1", 2, grace=30))
    expect.running("low")
    freeze(classes, "n1")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.gone("low")
    (condition,) = (each for each in classes.pod("low").status.conditions if each.type == "DisruptionTarget")
    group = f"{classes.name}/train"
    words = f": preempting to accommodate higher priority pods, preemptor: {group}, triggerPod: {group}-"
    assert words in condition.message, condition


@pytest.mark.feature("PRE-2.for-the-rest")
@pytest.mark.case("JP-064", severity="critical")
@pytest.mark.long(seconds=7)
def test_room_of_a_pod_that_ends_is_used_first(classes: Trial, expect: Expect) -> None:
    """The pod of n2 is being deleted and ends slowly, that of n1 runs: the gang waits for n2, and no other pod goes."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low", "n1"), filler("ending", "n2", grace=30))
    expect.running("low", "ending")
    freeze(classes, "n2")
    assert classes.call("DELETE", f"/api/v1/namespaces/{classes.name}/pods/ending").ok
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.pending("train-0")
    expect.stable(seconds=12)
    assert left(classes) == ["low"]
    thaw(classes, "n2")
    expect.running("train-0", within=60)


@pytest.mark.feature("PRE-2.for-the-rest")
@pytest.mark.case("JP-071", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # reservations have no namespace
def test_reserved_room_of_the_members_counts(classes: Trial, expect: Expect) -> None:
    """One of two cards is reserved for the gang, the other one is used by a pod of low priority. A member that asks for
    two cards fits when that pod goes. On the other node two pods would have to go."""
    hosts(classes, n2=2)
    classes.reserve(
        reservation("held").like(pod("x").gpus(1).scheduler(PREEMPTING).on(host="n2")).for_labels(app="owner").many()
    )
    expect.available("held")
    hosts(classes, n1=2)
    classes.submit(filler("low", "n2"), filler("low-1", "n1"), filler("middle", "n1", priority="trial-middle"))
    expect.running("low", "low-1", "middle")
    classes.apply(gang("train", 1))

    classes.submit(*(built.label("app", "owner") for built in workers("train", 1, cards=2)))

    expect.running("train-0")
    assert left(classes) == ["low-1", "middle"]


@pytest.mark.feature("PRE-3.holds-capacity")
@pytest.mark.case("JP-062", severity="critical")
def test_the_room_is_held_as_long_as_a_victim_ends(classes: Trial, expect: Expect) -> None:
    """A victim ends for longer than the waiting time of the gang, on a frozen node. The other card, which is free, is
    kept from a pod that waits for it, and the gang runs when the victim has ended."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=30))
    expect.running("quick", "slow")
    freeze(classes, "n2")
    classes.apply(gang("train", 2).waiting_time(10))
    classes.submit(*workers("train", 2))
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next")

    expect.stable(seconds=25)

    assert all(nominated(classes, *names("train", 2)))
    thaw(classes, "n2")
    expect.running(*names("train", 2), within=60)


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("JP-007", severity="critical")
@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("scheduling.koordinator.sh/disable-preemptible", "true"),
        pytest.param(
            "quota.scheduling.koordinator.sh/preemptible", "false", marks=pytest.mark.needs(Capability.OWN_CLUSTER)
        ),
    ],
    ids=["disable-preemptible", "not-preemptible-in-its-quota"],
)
def test_a_job_with_a_protected_pod_stays_whole(classes: Trial, expect: Expect, label: str, value: str) -> None:
    """One of two pods of a job may not be preempted: the other one is not evicted either."""
    hosts(classes, n1=1, n2=1)
    first, second = (filler(f"worker-{number}", f"n{number}").label(JOB, "job-1") for number in (1, 2))
    classes.submit(first, second.label(label, value))
    expect.running("worker-1", "worker-2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.pending("train-0")
    expect.stable(seconds=12)
    assert left(classes) == ["worker-1", "worker-2"]


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("PR-273", severity="normal", source="spec GANG-R73")
@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("scheduling.koordinator.sh/disable-preemptible", "false"),
        ("quota.scheduling.koordinator.sh/preemptible", "true"),
    ],
    ids=["disable-preemptible", "preemptible"],
)
def test_the_other_value_of_a_label_protects_no_pod(classes: Trial, expect: Expect, label: str, value: str) -> None:
    """A pod says that it may be preempted: it goes for a gang."""
    hosts(classes, n1=1)
    classes.submit(filler("low", "n1").label(label, value))
    expect.running("low")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.gone("low")


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("JP-063", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # reservations have no namespace
def test_a_gang_evicts_no_reservation(classes: Trial, expect: Expect) -> None:
    """The CPUs of n1 are reserved, with a priority below all others, and the card of n2 is used by a pod: the pod
    goes."""
    classes.add(node("n1").cpu(8).gpus("a10", 1).label("host", "n1"))
    reserved = pod("x").request(cpu=6).scheduler(PREEMPTING).on(host="n1").priority(1)
    classes.reserve(reservation("held").like(reserved).for_labels(app="owner").many())
    expect.available("held")
    hosts(classes, n2=1)
    classes.submit(filler("low", "n2", priority="trial-high"))
    expect.running("low")
    classes.apply(gang("train", 1))

    classes.submit(*(built.request(cpu=4) for built in workers("train", 1)))

    expect.running("train-0")
    assert left(classes) == []
    expect.available("held")


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("JP-067", severity="critical")
def test_a_gang_evicts_none_of_its_own_members(classes: Trial, expect: Expect) -> None:
    """Two members of low priority run on both nodes. minMember becomes three, and a third member has high priority:
    none is evicted for it."""
    hosts(classes, n1=1, n2=1)
    classes.apply(gang("train", 2).match_policy("waiting-and-running"))
    classes.submit(*workers("train", 2, priority="trial-low"))
    expect.running(*names("train", 2))
    assert classes.call("PATCH", classes.path("PodGroup", "train"), {"spec": {"minMember": 3}}).ok

    classes.submit(workers("train", 3)[2])

    expect.pending("train-2")
    expect.stable(seconds=12)
    assert [pod.metadata.name for pod in classes.pods() if pod.deleting] == []
    assert len(classes.pods()) == 3


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


@pytest.mark.feature("PRE-2.protected")
@pytest.mark.case("JP-066", severity="critical")
def test_a_job_with_a_pod_as_important_as_the_gang_stays(classes: Trial, expect: Expect) -> None:
    """A job has a pod of low priority on n1 and one of the gang's priority on n2: both stay, and the gang waits."""
    hosts(classes, n1=1, n2=1)
    classes.submit(of_job("wide", "n1"), of_job("wide", "n2", "trial-top"))
    expect.running("wide-n1", "wide-n2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.pending("train-0")
    expect.stable(seconds=12)
    assert left(classes) == ["wide-n1", "wide-n2"]


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-068", severity="critical", source="ours")
def test_a_pod_without_a_gang_evicts_whole_jobs_too(classes: Trial, expect: Expect) -> None:
    """A job has two pods on two nodes. A pod without a gang needs one card: both go."""
    hosts(classes, n1=1, n2=1)
    classes.submit(of_job("wide", "n1"), of_job("wide", "n2"))
    expect.running("wide-n1", "wide-n2")

    classes.submit(filler("train-boss", "n1", priority="trial-top"))

    expect.running("train-boss")
    expect.gone("wide-n1", "wide-n2")


@pytest.mark.feature("PRE-2.whole-jobs", "PRE-2.protected")
@pytest.mark.case("PR-294", severity="critical", source="ours")
def test_a_pod_without_a_gang_evicts_no_part_of_a_job(classes: Trial, expect: Expect) -> None:
    """One of two pods of a job may not be preempted, and a pod without a gang needs the card of the other: both stay,
    also by the preemption of single pods that comes after that of jobs."""
    hosts(classes, n1=1, n2=1)
    protected = of_job("wide", "n2").label("scheduling.koordinator.sh/disable-preemptible", "true")
    classes.submit(of_job("wide", "n1"), protected)
    expect.running("wide-n1", "wide-n2")

    classes.submit(filler("boss", "n1", priority="trial-top"))

    expect.pending("boss")
    expect.stable(seconds=12)
    assert left(classes) == ["boss", "wide-n1", "wide-n2"]


@pytest.mark.feature("PRE-2.quota")
@pytest.mark.case("JP-069", severity="critical")
def test_what_the_victims_use_of_the_quota_is_free_for_the_gang(classes: Trial, expect: Expect) -> None:
    """The max is three CPUs, of which the two pods in the way use two: without them both members are within it."""
    hosts(classes, n1=1, n2=1)
    name = f"{classes.name}-team"
    classes.apply(quota(name).max(cpu=3).manifest)
    classes.submit(*(filler(f"low-{where}", where).request(cpu=1).quota(name) for where in ("n1", "n2")))
    expect.running("low-n1", "low-n2")
    classes.apply(gang("train", 2))

    classes.submit(*(built.request(cpu=1).quota(name) for built in workers("train", 2)))

    expect.running(*names("train", 2))
    assert left(classes) == []


@pytest.mark.feature("PRE-2.quota")
@pytest.mark.case("JP-097", severity="normal", source="spec GANG-R89: the quota of each member")
def test_members_of_two_quotas_count_each_in_its_own(classes: Trial, expect: Expect) -> None:
    """Each of two quotas has three CPUs, and a member of two CPUs: the pods in the way are evicted for both."""
    hosts(classes, n1=1, n2=1)
    teams = [f"{classes.name}-{team}" for team in ("a", "b")]
    classes.apply(*(quota(team).max(cpu=3).manifest for team in teams))
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))

    members = zip(workers("train", 2), teams, strict=True)
    classes.submit(*(built.request(cpu=2).quota(team) for built, team in members))

    expect.running(*names("train", 2))


@pytest.mark.feature("PRE-2.quota")
@pytest.mark.case("JP-070", severity="critical")
def test_a_non_preemptible_gang_that_exceeds_the_min_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """Non-preemptible pods may use the min of their quota, which has room for each of the two members, not for both."""
    hosts(classes, n1=1, n2=1)
    name = f"{classes.name}-team"
    classes.apply(quota(name).min(cpu=3).max(cpu=20).manifest)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 2))

    classes.submit(*(built.request(cpu=2).quota(name, preemptible=False) for built in workers("train", 2)))

    expect.pending(*names("train", 2))
    expect.stable(seconds=12)
    assert left(classes) == ["low-1", "low-2"]
