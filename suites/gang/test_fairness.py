"""Gangs that never fit, beside pods that do: what a gang holds, it holds for its waiting time and not again before
others had their turn.

Sources: koordinator `pkg/scheduler/plugins/coscheduling/core/core.go`, where a gang that does not fit gives back what
it holds, and kube-scheduler's queue, where a pod that failed waits for its backoff behind those that are ready.
A member asks for one card of an A10 node, so the room is a number of cards.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import GANG_MODE, GANG_WAITING_TIME
from seatrial.suites.gang.members import bound, names, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE), pytest.mark.feature("GANG-1.fair")]

BACKOFFS = 30  # seconds: the pause of gangs and the backoffs of pods, of 10 s each


def two_of_three(trial: Trial, name: str, wait: int, mode: str, *, annotations: bool = False) -> None:
    """A gang of three for which the cluster has two cards."""
    if not annotations:
        trial.apply(gang(name, 3).waiting_time(wait).mode(mode))
        trial.submit(*workers(name, 3))
        return
    for member in names(name, 3):
        built = pod(member).gpus(1).in_light_gang(name, 3)
        trial.submit(built.annotation(GANG_MODE, mode).annotation(GANG_WAITING_TIME, f"{wait}s"))


@pytest.mark.feature("GANG-1.timeout")
@pytest.mark.case("GA-160", severity="blocker")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # waiting times of minutes
@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
@pytest.mark.parametrize("wait", [5, 20, 300])
@pytest.mark.parametrize("annotations", [False, True], ids=["PodGroup", "annotations"])
def test_a_gang_that_never_fits_lets_younger_pods_run(
    trial: Trial, expect: Expect, mode: str, wait: int, *, annotations: bool
) -> None:
    """Two of three members have a card. A younger pod of equal priority and of the same size gets one when the waiting
    time ends, and not only once: so does the next one."""
    trial.add(node("n1").cards(2))
    two_of_three(trial, "train", wait, mode, annotations=annotations)
    expect.stable(seconds=2)
    for younger in ("first", "second"):
        trial.submit(pod(younger).gpus(1))
        expect.bound(younger, within=wait + BACKOFFS)
        trial.delete(younger)
        expect.stable(seconds=12)
    assert bound(trial) == []


@pytest.mark.case("GA-161", severity="critical", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME, Capability.OWN_CLUSTER)  # waiting times of minutes
@pytest.mark.parametrize("gangs", [2, 3])
def test_gangs_that_take_turns_do_not_keep_a_larger_pod_waiting(trial: Trial, expect: Expect, gangs: int) -> None:
    """Each gang gets one card for a member, at other times than the other gangs; a younger pod needs all the cards. It
    has them after two waiting times: by then all that was held is given back, and none of it is taken again before."""
    trial.add(node("n1").cards(gangs))
    for number in range(gangs):
        trial.apply(gang(f"g{number}", 2).waiting_time(60).mode("NonStrict"))
        small, large = workers(f"g{number}", 2)
        large.gpus(8)
        trial.submit(small, large)
        expect.stable(seconds=20)
    assert bound(trial) == []
    trial.submit(pod("younger").gpus(gangs))

    expect.bound("younger", within=2 * 60 + BACKOFFS)


@pytest.mark.feature("GANG-2.nonstrict")
@pytest.mark.case("GA-162", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME, Capability.OWN_CLUSTER)  # waiting times of minutes
def test_a_gang_that_gave_its_places_back_starts_when_it_fits(trial: Trial, expect: Expect) -> None:
    """A NonStrict gang of three gave two cards back, which no pod wants. The third card comes at once, or in an hour:
    the gang starts."""
    trial.add(node("n1").cards(2))
    for name, pause in (("soon", 0), ("late", 3600)):
        two_of_three(trial, name, 60, "NonStrict")
        expect.stable(seconds=61 + pause)
        assert bound(trial, name) == []
        trial.add(node(f"for-{name}").cards(1))
        expect.bound(*names(name, 3), within=BACKOFFS)
        trial.delete(*names(name, 3))
        trial.settle()
        assert trial.call("DELETE", f"/api/v1/nodes/for-{name}").ok


@pytest.mark.feature("GANG-1.timeout")
@pytest.mark.case("GA-322", severity="normal", source="spec GANG-R28, GANG-R35")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # waiting times of minutes
def test_a_gang_whose_waiting_time_ended_holds_places_again(trial: Trial, expect: Expect) -> None:
    """Two of three members of a NonStrict gang have a card for two minutes, and no pod wants these cards. Later the
    members have them again: a pod that comes waits until the next end of the waiting time."""
    trial.add(node("n1").cards(2))
    two_of_three(trial, "train", 120, "NonStrict")
    trial.pass_time(120 + 2 * BACKOFFS)

    trial.submit(pod("younger").gpus(1))

    expect.pending("younger")
    expect.stable(seconds=5)
    expect.bound("younger", within=120 + BACKOFFS)


@pytest.mark.feature("GANG-2.changed", "GANG-1.timeout")
@pytest.mark.case("GA-321", severity="normal", source="spec GANG-R28: the waiting time begins at Permit")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # waiting times of minutes
def test_a_change_of_a_gang_does_not_begin_its_waiting_time_anew(trial: Trial, expect: Expect) -> None:
    """Two of four members of a NonStrict gang of three have a card for two minutes. Shortly before these end, the
    minimum becomes four: a pod gets a card when they end, and not another two minutes later."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 3).waiting_time(120).mode("NonStrict"))
    trial.submit(*workers("train", 4))
    trial.pass_time(100)
    assert trial.call("PATCH", trial.path("PodGroup", "train"), {"spec": {"minMember": 4}}).ok
    trial.submit(pod("younger").gpus(1))
    expect.pending("younger")
    expect.bound("younger", within=20 + BACKOFFS)
