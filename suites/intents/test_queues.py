"""Limits and fair shares of queues, and reserved room, in any scheduler's words."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.suites.intents.places import bound

pytestmark = [pytest.mark.needs(Capability.NODES)]

LIMIT = "capability of Volcano's Queue, limit of KAI's, max of ElasticQuota: the pods of a queue get no more"
FAIR = "deserved of Volcano's Queue, quota of KAI's, min of ElasticQuota: a queue gets its part where others want more"
RESERVED = "Koordinator v1.0 Reservation: reserved room is for the pods of its owners"


@pytest.mark.feature("INT-1.queues")
@pytest.mark.case("IN-030", severity="critical", source=LIMIT)
def test_a_queue_gets_no_more_than_its_limit(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A queue may have two CPUs, and eight are free: two of three pods are bound, the third when one has ended. A pod
    outside of the queue does not wait."""
    intents.queue("team", limit={"cpu": 2, "memory": "100Gi"})
    intents.add(node("n1").cpu(8))
    intents.submit(*[pod(f"in-{number}").request(cpu=1) for number in range(3)], queue="team")
    intents.submit(pod("outside").request(cpu=1))
    expect.bound("outside", within=120)
    assert trial.reaches(lambda: len(bound(trial, "in-")) == 2, within=60), trial.timeline()
    expect.stable(seconds=3)
    assert len(bound(trial, "in-")) == 2

    trial.delete(bound(trial, "in-")[0])

    assert trial.reaches(lambda: len(bound(trial, "in-")) == 2, within=120), trial.timeline()


@pytest.mark.feature("INT-1.queues")
@pytest.mark.case("IN-031", severity="critical", source=FAIR)
def test_two_queues_get_their_parts(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two queues have a claim of two CPUs each and may have four. Both want four before there is a node; when one with
    four CPUs comes, each gets two."""
    for team in ("a", "b"):
        intents.queue(team, share={"cpu": 2, "memory": "10Gi"}, limit={"cpu": 4, "memory": "100Gi"})
    intents.add(node("none").cpu(0))
    for number in range(4):
        for team in ("a", "b"):
            intents.submit(pod(f"{team}-{number}").request(cpu=1), queue=team)
    expect.stable(seconds=3)

    intents.add(node("n1").cpu(4))

    assert trial.reaches(lambda: len(bound(trial)) == 4, within=120), trial.timeline()
    expect.stable(seconds=3)
    assert (len(bound(trial, "a-")), len(bound(trial, "b-"))) == (2, 2)


@pytest.mark.feature("INT-1.queues")
@pytest.mark.case("IN-032", severity="normal", source=FAIR)
def test_a_queue_takes_what_others_do_not_want(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A queue with a claim of two CPUs may have three of four, and nobody else wants any: three of four pods run."""
    for team in ("a", "b"):
        intents.queue(team, share={"cpu": 2, "memory": "10Gi"}, limit={"cpu": 3, "memory": "100Gi"})
    intents.add(node("n1").cpu(4))

    intents.submit(*[pod(f"a-{number}").request(cpu=1) for number in range(4)], queue="a")

    assert trial.reaches(lambda: len(bound(trial)) == 3, within=120), trial.timeline()
    expect.stable(seconds=3)
    assert len(bound(trial)) == 3


@pytest.mark.feature("INT-1.reservations")
@pytest.mark.case("IN-040", severity="critical", source=RESERVED)
def test_reserved_room_is_for_its_owners(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Three of four CPUs are reserved: a pod of somebody else with two waits, and the owner's with three is bound."""
    intents.add(node("n1").cpu(4))
    intents.reserve("held", pod("like").request(cpu=3), app="own")
    trial.settle(3)
    intents.submit(pod("other").request(cpu=2))
    expect.stable(seconds=3)
    assert not trial.pod("other").spec.node_name

    intents.submit(pod("own").request(cpu=3).label("app", "own"))

    expect.bound("own", within=120)
    assert not trial.pod("other").spec.node_name
