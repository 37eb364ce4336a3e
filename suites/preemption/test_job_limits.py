"""Job-level preemption: its limits. Which member decides, for how many members pods are evicted, what is kept for them.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, gang
from seatrial.suites.preemption.jobs import PREEMPTING, filler, hosts, left, names, nominated, of_job, workers
from seatrial.suites.preemption.nominations import freeze, thaw
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-080", severity="critical")
def test_a_budget_gives_way_where_no_other_job_will_do(classes: Trial, expect: Expect) -> None:
    """All possible victims are under a budget that their eviction violates: they are evicted."""
    hosts(classes, n1=1, n2=1)
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=2))
    classes.submit(*(filler(f"low-{where}", where).label("app", "guarded") for where in ("n1", "n2")))
    expect.running("low-n1", "low-n2")
    classes.cluster.pass_time(2)  # the budget's status counts them
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == []


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-081", severity="critical")
def test_a_job_costs_its_rank_and_not_its_priority(classes: Trial, expect: Expect) -> None:
    """Six jobs of 1000 fill n1, one of 5000 fills n2. Priorities cost 0 and 1: the six go, although 6 · 1000 > 5000."""
    hosts(classes, n1=6, n2=6)
    classes.submit(*(filler(f"low-{number}", "n1") for number in range(6)), filler("middle", "n2", 6, "trial-middle"))
    expect.running(*(f"low-{number}" for number in range(6)), "middle")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=6))

    expect.running("train-0")
    assert left(classes) == ["middle"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-082", severity="critical")
def test_the_priority_of_the_member_without_room_decides(classes: Trial, expect: Expect) -> None:
    """The member of high priority has a free card. The other one is less important than the pod in its way."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("middle", "n2", priority="trial-middle"))
    expect.running("middle")
    classes.apply(gang("train", 2))
    strong, weak = workers("train", 2)

    classes.submit(strong.on(host="n1"), weak.on(host="n2").priority_class("trial-low"))

    expect.pending(*names("train", 2))
    expect.stable(seconds=12)
    assert left(classes) == ["middle"]


@pytest.mark.feature("PRE-2.whole-gang-only")
@pytest.mark.case("JP-083", severity="critical")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("surplus", [1, 3])
def test_no_pods_go_for_members_beyond_the_minimum(classes: Trial, expect: Expect, surplus: int) -> None:
    """Of the members only the first is more important than the pods in the way. The PodGroup comes when all members are
    there, and says that one is enough: one pod goes."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    first, *others = workers("train", 1 + surplus)
    classes.submit(first, *(built.priority_class("trial-low") for built in others))
    classes.settle()

    classes.apply(gang("train", 1))

    expect.running("train-0")
    expect.stable(seconds=12)
    assert len(left(classes)) == 1


@pytest.mark.feature("PRE-2.whole-gang-only")
@pytest.mark.case("JP-084", severity="critical", source="ours")
def test_a_gang_that_is_not_strict_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """One member has a free card, a pod of low priority is in the way of the other. NonStrict: the first one waits."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low", "n2"))
    expect.running("low")
    classes.apply(gang("train", 2).mode("NonStrict"))

    classes.submit(*workers("train", 2))

    expect.stable(seconds=20)
    assert left(classes) == ["low"]
    assert nominated(classes, *names("train", 2)) == ["", ""]
    assert [classes.pod(name).spec.node_name for name in names("train", 2)] == ["", ""]


@pytest.mark.feature("PRE-3.holds-capacity")
@pytest.mark.case("JP-085", severity="critical")
def test_the_room_of_members_that_need_no_victim_is_held_too(classes: Trial, expect: Expect) -> None:
    """n1 is free, and the pod of n2 ends slowly. Meanwhile a pod that is less important than the gang wants n1: it
    waits, and the gang runs when n2 is free."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("slow", "n2", grace=30))
    expect.running("slow")
    freeze(classes, "n2")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2))
    expect.gone("slow")

    classes.submit(filler("next", "n1", priority="trial-middle"))

    expect.pending("next")
    assert sorted(nominated(classes, *names("train", 2))) == ["n1", "n2"]
    thaw(classes, "n2")
    expect.running(*names("train", 2), within=60)


@pytest.mark.feature("PRE-2.for-the-rest", "PRE-2.whole-jobs")
@pytest.mark.case("JP-086", severity="critical")
def test_room_that_a_job_leaves_on_another_node_serves_the_next_member(classes: Trial, expect: Expect) -> None:
    """The job wide has pods on n1 and n2. It goes for the first member, so that the second one needs no pod of n3."""
    hosts(classes, n1=2, n2=2, n3=2)
    classes.submit(
        of_job("wide", "n1", cards=2), of_job("wide", "n2", cards=2), filler("third", "n3", 2, "trial-middle")
    )
    expect.running("wide-n1", "wide-n2", "third")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2, cards=2))

    expect.running(*names("train", 2))
    assert left(classes) == ["third"]
