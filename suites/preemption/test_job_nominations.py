"""Job-level preemption: what ends the nominations of a gang, and what becomes of its room.

A gang of three has evicted a pod from each of three nodes. One victim has ended, so that a card is free and held; the
others still end. A pod of low priority waits for that card.
"""

from collections.abc import Callable

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, pod
from seatrial.suites.preemption.jobs import PREEMPTING, filler, hosts, names, nominated, workers
from seatrial.suites.preemption.nominations import end, freeze
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import patch

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]
GROUP = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/podgroups/train"
LABEL = "pod-group.scheduling.sigs.k8s.io"


def on(trial: Trial, host: str) -> str:
    """The member that is nominated to this node."""
    (name,) = (one for one in names("train", 3) if nominated(trial, one) == [host])
    return name


def member_deleted(trial: Trial) -> None:
    trial.delete(on(trial, "n2"))


def node_deleted(trial: Trial) -> None:
    assert trial.call("DELETE", "/api/v1/nodes/n3").ok


def more_members_needed(trial: Trial) -> None:
    patch(trial, GROUP.format(trial.name), {"spec": {"minMember": 4}})


def group_deleted(trial: Trial) -> None:
    assert trial.call("DELETE", GROUP.format(trial.name)).ok


def member_leaves_the_gang(trial: Trial) -> None:
    patch(trial, trial.path("Pod", on(trial, "n2")), {"metadata": {"labels": {LABEL: "other"}}})


def member_with_a_free_card_leaves_the_gang(trial: Trial) -> None:
    patch(trial, trial.path("Pod", on(trial, "n1")), {"metadata": {"labels": {LABEL: "other"}}})


def room_taken(trial: Trial) -> None:
    trial.submit(filler("boss", "n2", priority="trial-top"))


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-098", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # simulated containers end soon, whatever their grace period is
@pytest.mark.parametrize(
    "cause",
    [
        member_deleted,
        node_deleted,
        more_members_needed,
        group_deleted,
        member_leaves_the_gang,
        member_with_a_free_card_leaves_the_gang,
        room_taken,
    ],
    ids=lambda call: call.__name__,
)
def test_what_gives_the_room_of_a_gang_back(classes: Trial, expect: Expect, cause: Callable[[Trial], object]) -> None:
    """Something ends the plan of the gang: no member is nominated any more, and the free card goes to the other pod."""
    hosts(classes, n1=1, n2=1, n3=1)
    preempt(classes, expect)
    classes.submit(filler("next", "n1"))
    expect.pending("next")

    cause(classes)

    expect.bound("next", within=30)
    left = [name for name in names("train", 3) if classes.find(name) is not None]
    assert nominated(classes, *left) == [""] * len(left)


@pytest.mark.feature("PRE-3.given-back", "PRE-3.node-gone")
@pytest.mark.case("JP-099", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
@pytest.mark.parametrize(
    ("cause", "lost"),
    [pytest.param(node_deleted, "n3", id="node_deleted"), pytest.param(room_taken, "n2", id="room_taken")],
)
def test_a_gang_that_lost_a_part_of_its_room_is_planned_again(
    classes: Trial, expect: Expect, cause: Callable[[Trial], object], lost: str
) -> None:
    """A fourth node has a more important pod than the others had. The gang loses one of its nodes, to a more important
    pod or with the node: the pod of the fourth node goes, and the members are nominated to the nodes that are left."""
    hosts(classes, n1=1, n2=1, n3=1, n4=1)
    classes.submit(filler("dear", "n4", priority="trial-middle", grace=600))
    expect.running("dear")
    preempt(classes, expect)
    freeze(classes, "n4")
    expect.pending(*names("train", 3))

    cause(classes)

    expect.gone("dear")
    rest = sorted({"n1", "n2", "n3", "n4"} - {lost})
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 3))) == rest, within=5)


@pytest.mark.feature("PRE-3.holds-capacity", "PRE-3.node-gone")
@pytest.mark.case("PR-260", severity="normal", source="spec GANG-R87, GANG-R88")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
@pytest.mark.long(seconds=60)
def test_a_second_plan_does_not_end_with_the_first(classes: Trial, expect: Expect) -> None:
    """A gang of two whose members wait half a minute is nominated to n1, which is free already, and n2. n2 is deleted:
    the pod of n3 goes, and ends slowly. A minute later both are nominated, and no other pod has the card of n1."""
    hosts(classes, n1=1, n2=1, n3=1)
    slow = {"n2": filler("slow", "n2", grace=600), "n3": filler("dear", "n3", priority="trial-middle", grace=600)}
    classes.submit(filler("quick", "n1"), *slow.values())
    expect.running("quick", "slow", "dear")
    for host in slow:
        freeze(classes, host)
    classes.apply(gang("train", 2).waiting_time(30))
    classes.submit(*workers("train", 2, priority="trial-high"))
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == ["n1", "n2"], within=10)
    assert classes.call("DELETE", "/api/v1/nodes/n2").ok
    expect.gone("dear")
    classes.submit(filler("next", "n1"))

    classes.pass_time(60)

    expect.pending("next")
    assert sorted(nominated(classes, *names("train", 2))) == ["n1", "n3"]


def nodes_closed(classes: Trial, expect: Expect, *closed: str, minimum: int = 3, ending: bool = False) -> None:
    """Have the gang nominated to n1, n2 and n3; nodes are cordoned before all victims have ended. Two other nodes have
    more important pods than the others had. `ending`: n2 and n3 have pods that a user deletes, and that end slowly."""
    hosts(classes, n1=1, n2=1, n3=1, n4=1, n5=1)
    others = [pod(f"late-{host}").priority_class("trial-low").on(host=host) for host in ("n2", "n3")] if ending else []
    dear = [filler(f"dear-{host}", host, priority="trial-middle", grace=600) for host in ("n4", "n5")]
    classes.submit(*dear, *others)
    expect.running(*(built.name for built in (*dear, *others)))
    preempt(classes, expect)
    for built in others:
        assert classes.call("DELETE", classes.path("Pod", built.name)).ok
    patch(classes, GROUP.format(classes.name), {"spec": {"minMember": minimum}})
    for host in closed:
        patch(classes, f"/api/v1/nodes/{host}", {"spec": {"unschedulable": True}})
    classes.settle()
    end(classes, "slow-2")
    classes.pass_time(15)  # a backoff: only the end of the last victim has the gang tried
    end(classes, "slow-3")


def nominated_to(classes: Trial, *where: str) -> bool:
    return classes.reaches(lambda: sorted(nominated(classes, *names("train", 3))) == sorted(where), within=30)


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("PR-261", severity="normal", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_a_member_that_is_not_in_the_next_plan_is_not_nominated(classes: Trial, expect: Expect) -> None:
    """The minimum of the gang becomes two, and n2 and n3 are cordoned: two members are nominated to n1 and n4, the
    third one nowhere."""
    nodes_closed(classes, expect, "n2", "n3", minimum=2)

    assert nominated_to(classes, "n1", "n4", "")


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("PR-262", severity="normal", source="spec GANG-R71, GANG-R85, GANG-R88")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
@pytest.mark.parametrize("ending", [False, True], ids=["", "beside-pods-that-end"])
def test_a_gang_whose_nodes_were_closed_is_planned_again(classes: Trial, expect: Expect, *, ending: bool) -> None:
    """n2 and n3 are cordoned: when the victims have ended, the gang is nominated to the other nodes. It does not wait
    for pods of these nodes that a user has deleted."""
    nodes_closed(classes, expect, "n2", "n3", ending=ending)

    assert nominated_to(classes, "n1", "n4", "n5")


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("PR-265", severity="normal", source="spec GANG-R79")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_a_gang_that_can_preempt_no_more_is_not_nominated(classes: Trial, expect: Expect) -> None:
    """n2, n3 and n4 are cordoned: when the victims have ended, there is no room for the gang by any eviction. No member
    is nominated any more, no pod goes, and another pod has the card of n1."""
    nodes_closed(classes, expect, "n2", "n3", "n4")
    classes.submit(filler("next", "n1"))

    assert nominated_to(classes, "", "", "")
    expect.bound("next", within=60)
    assert not [left.metadata.name for left in classes.pods() if left.deleting]


@pytest.mark.feature("PRE-2.nominate")
@pytest.mark.case("PR-266", severity="normal", source="spec GANG-R84, GANG-M23")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # as above
def test_the_message_counts_members_that_have_places(classes: Trial, expect: Expect) -> None:
    """One of two members has a free card, and a pod goes for the other one."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low", "n2", grace=60))
    expect.running("low")
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.gone("low")
    expect.pending(*names("train", 2), saying="preempt success, alreadyWaitingForBound: 1/2", cooled=False)


def preempt(classes: Trial, expect: Expect) -> None:
    """Have the gang nominated to n1, which is free already, n2 and n3."""
    classes.submit(filler("quick", "n1"), filler("slow-2", "n2", grace=600), filler("slow-3", "n3", grace=600))
    expect.running("quick", "slow-2", "slow-3")
    for host in ("n2", "n3"):
        freeze(classes, host)
    classes.apply(gang("train", 3))
    classes.submit(*workers("train", 3, priority="trial-high"))
    expect.gone("quick", "slow-2", "slow-3")
    assert classes.reaches(lambda: classes.find("quick") is None, within=10)
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 3))) == ["n1", "n2", "n3"], within=5)
