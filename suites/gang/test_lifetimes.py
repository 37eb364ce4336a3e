"""How long gangs, their members and their waiting last.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod, priority_class, quota
from seatrial.scheduler.api.podgroup import GANG_MODE, GANG_WAITING_TIME
from seatrial.suites.gang.members import bound, names, status, workers
from seatrial.suites.preemption.nominations import freeze

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

MAX_WAIT = 900  # seconds; upstream's framework cuts longer waits


@pytest.mark.feature("GANG-1.timeout")
@pytest.mark.case("GA-070", severity="normal")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a quarter of an hour
def test_a_wait_ends_after_a_quarter_of_an_hour_at_the_latest(trial: Trial, expect: Expect) -> None:
    """A NonStrict gang of three with a waiting time of a day has room for two. After 15 minutes the
    conditions of the two members say that the waiting time is over."""
    trial.add(node("n1").cards(2))
    built = [
        pod(name)
        .gpus(1)
        .in_light_gang("light", 3)
        .annotation(GANG_MODE, "NonStrict")
        .annotation(GANG_WAITING_TIME, "24h")
        for name in names("light", 3)
    ]
    trial.submit(*built)
    expect.stable(seconds=MAX_WAIT - 30)
    assert bound(trial) == []
    conditions = [pod.status.conditions for pod in trial.pods() if "timeout" in str(pod.status.conditions)]
    assert not conditions

    expect.pending("light-0", "light-1", saying="timeout after waiting 15m0s", within=120)


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-071", severity="normal")
def test_an_annotation_gang_ends_with_its_last_pod(trial: Trial, expect: Expect) -> None:
    """Two pods of an annotation gang of three are deleted. Then a pod alone is a gang of that name, and is bound."""
    trial.add(node("n1").cards(2))
    trial.submit(*(pod(name).gpus(1).in_light_gang("light", 3) for name in names("light", 2)))
    expect.stable(seconds=5)
    trial.delete(*names("light", 2))
    expect.gone(*names("light", 2))

    trial.submit(pod("alone").gpus(1).in_light_gang("light", 1))

    expect.bound("alone")
    expect.refusal()


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-072", severity="critical")
@pytest.mark.long(seconds=9)
def test_a_gang_ends_with_its_pod_group(trial: Trial, expect: Expect) -> None:
    """The PodGroup of a waiting gang of two is deleted. The missing card comes: no member is bound, until a PodGroup
    of the name is there again."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.stable(seconds=5)
    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok
    expect.stable(seconds=2)
    trial.add(node("n2").cards(1))
    expect.stable(seconds=12)
    assert bound(trial) == []

    trial.apply(gang("train", 2))

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.all-or-nothing", "GANG-1.replaced")
@pytest.mark.case("GA-430", severity="normal", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # members that take their time to end
@pytest.mark.parametrize("first", ["podgroup", "pods"])
def test_members_of_a_former_pod_group_that_end_start_no_gang(trial: Trial, expect: Expect, first: str) -> None:
    """The members of a gang and their PodGroup are deleted, and the members end slowly. There is a PodGroup of the name
    again, and room for one of its two members: it is not bound until there is room for both."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    freeze(trial, "n1")
    paths = {
        "podgroup": [trial.path("PodGroup", "train")],
        "pods": [trial.path("Pod", name) for name in names("train", 2)],
    }
    for kind in sorted(paths, reverse=first == "pods"):
        for path in paths[kind]:
            assert trial.call("DELETE", path).ok
        trial.settle(2)

    trial.apply(gang("train", 2))
    trial.submit(*(pod(name).gpus(1).in_gang("train") for name in ("new-1", "new-2")))

    expect.pending("new-1", "new-2")
    trial.add(node("n2").cards(1))
    expect.bound("new-1", "new-2")


@pytest.mark.feature("GANG-6.said", "GANG-1.status")
@pytest.mark.case("GA-073", severity="normal")
def test_a_member_that_ended_is_no_member(trial: Trial, expect: Expect) -> None:
    """A gang of two, of which waiting members alone count. Both are bound and succeed: a third pod says that the gang
    lacks a member, and the PodGroup is Finished."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2).match_policy("only-waiting"))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    for name in names("train", 2):
        succeeded = {"status": {"phase": "Succeeded"}}
        assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/{name}/status", succeeded).ok

    trial.submit(*workers("train", 1, first=2))

    expect.held("train-2", saying="child pod not collect enough")

    assert trial.reaches(lambda: status(trial).get("phase") == "Finished", within=30), status(trial)


@pytest.mark.feature("GANG-1.all-or-nothing", "QUOTA-1.max-bound")
@pytest.mark.case("GA-074", severity="critical")
@pytest.mark.long(seconds=7)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # quotas count all pods
def test_a_gang_waits_for_its_quota_as_a_whole(trial: Trial, expect: Expect) -> None:
    """A gang of two in a quota with room for one: no member is bound. Another pod of the quota ends, and both are."""
    own = f"{trial.name}-team"
    trial.add(node("n1").cpu(16).cards(4))
    trial.apply(quota(own).max(cpu=4).manifest)
    trial.submit(pod("first").request(cpu=3).quota(own))
    expect.bound("first")
    trial.apply(gang("train", 2))
    trial.submit(*(pod(name).request(cpu=1).quota(own).in_gang("train") for name in names("train", 2)))
    expect.stable(seconds=12)
    assert bound(trial) == ["first"]

    trial.delete("first")

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.quorum")
@pytest.mark.case("GA-075", severity="normal")
@pytest.mark.long(seconds=7)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # priority classes
def test_of_more_members_than_the_minimum_the_more_important_start(trial: Trial, expect: Expect) -> None:
    """A gang of two has four members when a node with two cards comes: the two members of higher priority are bound,
    independent of the order in which the members were created."""
    classes = {level: f"{trial.name}-{level}" for level in ("low", "top")}
    for level, value in (("low", 10), ("top", 100)):
        manifest = priority_class(classes[level], value, preempts=False)  # no member takes the place of another
        trial.accept(manifest, "/apis/scheduling.k8s.io/v1/priorityclasses")
    trial.add(node("n0").cpu(1))
    trial.apply(gang("train", 2))
    levels = {"train-0": "low", "train-1": "top", "train-2": "low", "train-3": "top"}
    trial.submit(*(pod(name).gpus(1).in_gang("train").priority_class(classes[at]) for name, at in levels.items()))
    expect.stable(seconds=5)

    trial.add(node("n1").cards(2))

    expect.bound("train-1", "train-3")
    expect.stable(seconds=3)
    assert bound(trial) == ["train-1", "train-3"]
    for level in classes.values():
        trial.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{level}")


@pytest.mark.feature("GANG-1.match-policy")
@pytest.mark.case("GA-327", severity="normal", source="spec GANG-R26")
@pytest.mark.long(seconds=15)
def test_bound_members_below_the_minimum_are_not_enough(trial: Trial, expect: Expect) -> None:
    """A gang of three, of which waiting and running members count, is bound. Two are deleted, and there is room for one
    of the two members that come: it waits, until there is room for both."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 3).match_policy("waiting-and-running"))
    trial.submit(*workers("train", 3))
    expect.bound(*names("train", 3))
    trial.delete("train-0", "train-1")
    trial.submit(pod("other").gpus(1))
    expect.bound("other")

    trial.submit(*workers("train", 2, first=3))

    expect.stable(seconds=10)
    assert bound(trial, "train") == ["train-2"]
    trial.delete("other")
    expect.bound("train-3", "train-4")
