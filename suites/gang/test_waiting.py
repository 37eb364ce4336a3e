"""What a gang waits for, what ends the waiting, and what its members say meanwhile.

A member asks for one card of an A10 node unless the case says otherwise, so the room is a number of cards.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod, quota, reservation
from seatrial.suites.gang.members import bound, names, workers
from seatrial.suites.quota.quotas import path_of as quota_path

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def written(trial: Trial, *target: str) -> dict[str, str]:
    """The versions of these pods and of the events about them: what anybody wrote since changes one."""
    resource_versions = {name: trial.pod(name).metadata.resource_version for name in target}
    path = f"/apis/events.k8s.io/v1/namespaces/{trial.name}/events"
    for event in orjson.loads(trial.call("GET", path).body)["items"]:
        if event["regarding"]["name"] in target:
            resource_versions[event["metadata"]["name"]] = event["metadata"]["resourceVersion"]
    return resource_versions


@pytest.mark.feature("GANG-3.cycle-counter", "GANG-6.said")
@pytest.mark.case("GA-104", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # several minutes
def test_a_waiting_gang_says_why_once(trial: Trial, expect: Expect) -> None:
    """Members ask for 80 % of a card, and 60 % and 100 % are free: by sums there is room for both. Each member says
    why it waits, and nothing is written in the next minutes, although pods come and go and the gang is tried again."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("filler").gpu_share(40))
    expect.bound("filler")
    trial.apply(gang("train", 2))
    trial.submit(*(pod(name).gpu_share(80).in_gang("train") for name in names("train", 2)))
    expect.pending("train-0", "train-1", saying="gets rejected due to")
    before = written(trial, "train-0", "train-1")

    for number in range(6):
        trial.submit(pod(f"short-{number}").request(cpu=1))
        expect.bound(f"short-{number}")
        trial.pass_time(60)
        trial.delete(f"short-{number}")

    expect.stable(seconds=5)
    assert written(trial, "train-0", "train-1") == before
    trial.delete("filler")
    expect.bound("train-0", "train-1")


@pytest.mark.feature("GANG-6.said")
@pytest.mark.case("GA-424", severity="normal", source="ours")
def test_the_reason_of_a_member_follows_its_gang(trial: Trial, expect: Expect) -> None:
    """The first member of a gang of two is gated, so that no autoscaler adds a node for it. The second one comes, and
    there is no room: then both are unschedulable. When that one is deleted, the first is gated again, and so on."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))

    def reason(name: str) -> list[str]:
        return [each.reason for each in trial.pod(name).status.conditions if each.type == "PodScheduled"]

    trial.submit(*workers("train", 1))
    assert trial.reaches(lambda: reason("train-0") == ["SchedulingGated"], within=10), reason("train-0")
    trial.submit(*workers("train", 1, first=1))
    expect.pending(*names("train", 2), saying="gets rejected due to")
    assert [reason(name) for name in names("train", 2)] == [["Unschedulable"]] * 2
    trial.delete("train-1")
    expect.pending("train-0", saying="train has 1 of 2 members", within=20)
    assert reason("train-0") == ["SchedulingGated"]
    trial.submit(*workers("train", 1, first=1))
    expect.pending(*names("train", 2), saying="gets rejected due to")
    assert [reason(name) for name in names("train", 2)] == [["Unschedulable"]] * 2


@pytest.mark.feature("GANG-6.said")
@pytest.mark.case("GA-351", severity="normal", source="koordinator: coscheduling/core/core.go@v1.7.0, PostFilter")
def test_a_member_with_room_says_which_one_has_none(trial: Trial, expect: Expect) -> None:
    """One of two members asks for more cards than a node has: the other one's condition names it."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(pod("train-0").gpus(1).in_gang("train"), pod("train-1").gpus(3).in_gang("train"))
    expect.pending("train-0", saying=f'due to member Pod "{trial.name}/train-1" is unschedulable')


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-105", severity="critical")
def test_a_member_with_a_scheduling_gate_holds_its_gang_back(trial: Trial, expect: Expect) -> None:
    """One of two members has a scheduling gate: none is bound, both are when the gate is gone."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    free, gated = workers("train", 2)
    gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(gated, free)
    expect.stable(seconds=12)
    assert bound(trial) == []

    path = f"/api/v1/namespaces/{trial.name}/pods/train-1"
    assert trial.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok

    expect.bound("train-0", "train-1")


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-106", severity="critical")
@pytest.mark.needs(Capability.NODES)
def test_a_gang_starts_when_its_node_is_uncordoned(trial: Trial, expect: Expect) -> None:
    """The only node with two cards is cordoned: a gang of two waits, and is bound as soon as the node is open."""
    trial.add(node("n1").cards(2), node("n2").cards(1))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=12)
    assert bound(trial) == []

    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}}).ok

    expect.bound("train-0", "train-1", within=20)


@pytest.mark.feature("GANG-1.all-or-nothing", "GANG-1.match-policy")
@pytest.mark.case("GA-425", severity="critical", source="spec GANG-R30")
@pytest.mark.needs(Capability.NODES)
@pytest.mark.long(seconds=20)
def test_all_members_start_where_there_are_more_than_the_minimum(trial: Trial, expect: Expect) -> None:
    """A gang of two, of which members that wait alone count, is bound. Four more members wait, as the node is cordoned.
    It opens: all four start, two by two."""
    trial.add(node("n1").cards(6))
    trial.apply(gang("train", 2).match_policy("only-waiting"))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    trial.settle()
    trial.submit(*workers("train", 4, first=2))
    expect.stable(seconds=12)
    assert bound(trial) == names("train", 2)

    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}}).ok

    expect.bound(*names("train", 4, first=2), within=40)


@pytest.mark.feature("GANG-1.all-or-nothing", "QUOTA-1.max-bound")
@pytest.mark.case("GA-107", severity="critical")
@pytest.mark.long(seconds=8)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # quotas count all pods
@pytest.mark.parametrize("groups", [("train",), ("a", "b")], ids=["one", "two"])
def test_gangs_start_when_their_quota_grows(trial: Trial, expect: Expect, groups: tuple[str, ...]) -> None:
    """Gangs of three exceed the max of their quota by one pod or more: none is bound. The max is raised to what they
    need, and all are."""
    own = f"{trial.name}-team"
    trial.add(node("n1").cpu(16).cards(4))
    trial.apply(quota(own).max(cpu=2).manifest)
    members = [(group, name) for group in groups for name in names(group, 3)]
    trial.apply(*(gang(group, 3) for group in groups))
    trial.submit(*(pod(name).request(cpu=1).quota(own).in_gang(group) for group, name in members))
    expect.stable(seconds=12)
    assert bound(trial) == []

    assert trial.call("PATCH", quota_path(trial, own), {"spec": {"max": {"cpu": str(len(members))}}}).ok

    for _, name in members:
        expect.bound(name, within=20)


@pytest.mark.feature("GANG-1.all-or-nothing", "RSV-1.held")
@pytest.mark.case("GA-108", severity="critical")
def test_a_gang_of_owners_starts_when_its_reservation_has_room(trial: Trial, expect: Expect) -> None:
    """A reservation has all of the node, and one owner in it. A gang of two owners waits; that owner ends, and the
    gang is bound inside of the reservation."""
    trial.add(node("n1").cpu(4))
    trial.reserve(reservation("held").like(pod("x").request(cpu=3)).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held")
    trial.submit(pod("single").request(cpu=2).label("app", "owner"))
    expect.bound("single")
    trial.apply(gang("train", 2))
    trial.submit(*(pod(name).request(cpu="1500m").label("app", "owner").in_gang("train") for name in names("train", 2)))
    expect.stable(seconds=12)
    assert bound(trial, "train") == []

    trial.delete("single")

    expect.bound("train-0", "train-1", within=20)
