"""How a gang is declared: its numbers, the names of its annotations, and the namespace that it is in.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import GANG_GROUPS, GANG_MODE, GANG_NAME, GANG_TOTAL, POD_GROUP_MATCH_POLICY
from seatrial.suites.gang.members import bound, names, status, workers
from seatrial.suites.gang.namespaces import second_namespace

__all__ = ["second_namespace"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("GANG-1.quorum")
@pytest.mark.case("GA-120", severity="critical")
@pytest.mark.parametrize("light", [False, True], ids=["pod-group", "annotations"])
def test_a_total_above_the_minimum_is_not_waited_for(trial: Trial, expect: Expect, *, light: bool) -> None:
    """A gang has the minimum 2 and the total 5. Two members are bound, although three have not come."""
    trial.add(node("n1").cards(5))
    if light:
        built = [pod(name).gpus(1).in_light_gang("train", 2).annotation(GANG_TOTAL, "5") for name in names("train", 2)]
    else:
        trial.apply(gang("train", 2).annotation(GANG_TOTAL, "5"))
        built = workers("train", 2)
    trial.submit(built[0])
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(built[1])

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.match-policy")
@pytest.mark.case("GA-121", severity="normal")
@pytest.mark.parametrize("light", [False, True], ids=["pod-group", "annotations"])
def test_the_match_policy_has_a_second_name(trial: Trial, expect: Expect, *, light: bool) -> None:
    """`pod-group.scheduling.sigs.k8s.io/match-policy: only-waiting`: beside two bound members a third one waits for a
    fourth. By the default it would be bound alone."""
    trial.add(node("n1").cards(4))
    if light:
        built = [
            pod(name).gpus(1).in_light_gang("train", 2).annotation(POD_GROUP_MATCH_POLICY, "only-waiting")
            for name in names("train", 4)
        ]
    else:
        trial.apply(gang("train", 2).annotation(POD_GROUP_MATCH_POLICY, "only-waiting"))
        built = workers("train", 4)
    trial.submit(*built[:2])
    expect.bound(*names("train", 2))

    trial.submit(built[2])

    expect.stable(seconds=10)
    assert bound(trial) == names("train", 2)
    trial.submit(built[3])
    expect.bound("train-2", "train-3", within=60)


@pytest.mark.feature("GANG-5.annotations", "GANG-4.groups")
@pytest.mark.case("GA-260", severity="critical", source="spec GANG-R5, GANG-R16")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("last", ["a", "b"])
def test_a_member_that_came_before_the_numbers_starts_with_its_group(trial: Trial, expect: Expect, last: str) -> None:
    """The first pod of the gang a has its name alone, and waits. Another member brings the minimum and the list of
    groups, a and b: the first one starts with the group, whichever gang is complete last."""
    trial.add(node("n1").cards(4))
    groups = orjson.dumps([f"{trial.name}/{name}" for name in "ab"]).decode()
    members = [pod(name).gpus(1).in_light_gang(name[0], 2) for name in ("a-1", "b-0", "b-1")]
    early, *others = (
        pod("a-0").gpus(1).annotation(GANG_NAME, "a"),
        *(member.annotation(GANG_GROUPS, groups) for member in members),
    )
    trial.submit(early)
    expect.held("a-0")
    trial.submit(*(member for member in others if member.name[0] != last))
    expect.stable(seconds=3)
    assert bound(trial) == []

    trial.submit(*(member for member in others if member.name[0] == last))

    expect.bound("a-0", "a-1", "b-0", "b-1")


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-122", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
def test_gangs_of_one_name_in_two_namespaces_are_two(trial: Trial, expect: Expect, second_namespace: str) -> None:
    """The gang `train` of two is declared in two namespaces, and one pod of each is there: none is bound. A second
    member in the first namespace starts that gang alone."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 2))
    groups = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{second_namespace}/podgroups"
    trial.accept(gang("train", 2).manifest, groups)
    first, second = workers("train", 2)
    (elsewhere,) = workers("train", 1, first=9)
    pods = f"/api/v1/namespaces/{second_namespace}/pods"
    trial.submit(first)
    trial.accept(elsewhere.select({TRIAL_LABEL: trial.name}).manifest, pods)
    expect.stable(seconds=8)
    assert bound(trial) == []

    trial.submit(second)

    expect.bound(*names("train", 2))
    body = orjson.loads(trial.call("GET", f"{pods}/train-9").body)
    assert "nodeName" not in body["spec"]


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-123", severity="normal")
def test_a_pod_group_that_failed_stays_failed(trial: Trial, expect: Expect) -> None:
    """One of two members fails while the other one runs, and the PodGroup is Failed. The other one is deleted, which
    leaves one member of two: the phase is still Failed."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    path = f"/api/v1/namespaces/{trial.name}/pods/train-0/status"
    assert trial.call("PATCH", path, {"status": {"phase": "Failed"}}).ok
    assert trial.wait(lambda: status(trial).get("phase") == "Failed", within=30), status(trial)

    trial.delete("train-1")
    expect.gone("train-1")

    expect.stable(seconds=5)
    assert status(trial)["phase"] == "Failed", status(trial)


@pytest.mark.feature("GANG-5.unreadable")
@pytest.mark.case("GA-124", severity="normal", source="ours")
@pytest.mark.parametrize("light", [False, True], ids=["pod-group", "annotations"])
def test_members_that_wait_name_what_is_not_understood(trial: Trial, expect: Expect, *, light: bool) -> None:
    """A gang of two with an unknown mode has room for one: the conditions of both members name the annotation."""
    trial.add(node("n1").cards(1))
    if light:
        built = [pod(name).gpus(1).in_light_gang("train", 2).annotation(GANG_MODE, "Odd") for name in names("train", 2)]
    else:
        trial.apply(gang("train", 2).annotation(GANG_MODE, "Odd"))
        built = workers("train", 2)

    trial.submit(*built)

    expect.pending(*names("train", 2), saying=f"{GANG_MODE}: expected Strict or NonStrict, found 'Odd'")


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-331", severity="critical", source="spec GANG-R16")
@pytest.mark.long(seconds=10)
def test_a_group_starts_when_its_last_pod_group_comes(trial: Trial, expect: Expect) -> None:
    """Gangs a and b list each other. All pods are there, the PodGroup of b is not: none is bound. It comes, and nothing
    else does: all are bound."""
    starts_with_the_last(trial, expect, mutual=True)


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-332", severity="normal", source="ours")
@pytest.mark.long(seconds=10)
def test_a_gang_starts_when_the_pod_group_comes_that_it_lists(trial: Trial, expect: Expect) -> None:
    """The same where b lists no gang: its start has a tried again."""
    starts_with_the_last(trial, expect, mutual=False)


def starts_with_the_last(trial: Trial, expect: Expect, *, mutual: bool) -> None:
    ids = [f"{trial.name}/{name}" for name in "ab"]
    trial.add(node("n1").cards(4))
    trial.apply(gang("a", 2).together_with(*ids))
    trial.submit(*workers("a", 2), *workers("b", 2))
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.apply(gang("b", 2).together_with(*ids) if mutual else gang("b", 2))

    expect.bound(*names("a", 2), within=30)
    expect.bound(*names("b", 2), within=30)
