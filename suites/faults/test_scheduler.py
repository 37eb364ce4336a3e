"""The scheduler or its connection to the API server fails: no pod is lost or bound twice, no card is allocated twice.

Every test checks that pods are bound once and keep their devices; these cases compare the cards as well.
"""

from typing import cast

import pytest

from seatrial.fixtures.allocated_devices import devices_of, minors, reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, Picks, bindings, every, writes
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import NodeBuilder, node, pod, reservation
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Pod
from seatrial.suites.faults.schedulers import link, pause, running, witnessed

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

CHANGES = 20_000  # of pods, after which the embedded API server has forgotten the first; it keeps 16,384


def add(trial: Trial, expect: Expect, *nodes: NodeBuilder) -> None:
    """Add nodes, and wait until the scheduler works: only a bound pod shows that for a foreign scheduler.

    The scheduler receives nodes and their devices on separate watches, whose order is not defined. A pod that came
    between the two would be bound without devices, as one on a node that reports none.
    """
    trial.add(*nodes)
    witnessed(trial, expect)


def cards(trial: Trial) -> list[tuple[str, int]]:
    """Node and minor of every allocated card."""
    return [
        (pod.spec.node_name, share.minor) for pod in trial.pods() if pod.spec.node_name for share in devices_of(pod)
    ]


def submit(trial: Trial, first: int, end: int) -> list[str]:
    """Pods of one card each."""
    names = [f"p{number}" for number in range(first, end)]
    trial.submit(*(pod(name).gpus(1) for name in names))
    return names


def check(trial: Trial, expect: Expect, names: list[str]) -> None:
    """Every pod is bound, each with its own cards."""
    expect.bound(*names, within=90)
    values = cards(trial)
    assert len(values) == len(names)
    assert len(set(values)) == len(values), f"a card was given twice: {sorted(values)}"


def some_bound(trial: Trial) -> bool:
    return any(pod.spec.node_name for pod in trial.pods())


@pytest.mark.feature("HIL-4.scheduler-crash")
@pytest.mark.case("FT-030", severity="blocker")
@pytest.mark.long(seconds=4)
def test_killed_while_it_binds(trial: Trial, expect: Expect, running: Subject, link: Link) -> None:
    """Killed after the first binding; its successor places the remaining pods and new ones."""
    add(trial, expect, node("n1").gpus("a10", 8), node("n2").gpus("a10", 8))
    heard = link.answers[201]
    link.delay = 5.0  # the answers are still under way when it dies
    names = submit(trial, 0, 8)
    assert trial.wait(lambda: some_bound(trial), within=30)
    running.kill()
    assert link.answers[201] == heard, "the scheduler must die before any answer to a binding"
    link.delay = 0.0
    names += submit(trial, 8, 16)
    running.start_again()
    check(trial, expect, names)


@pytest.mark.feature("HIL-4.scheduler-crash")
@pytest.mark.case("FT-031", severity="blocker")
def test_killed_while_pods_wait(trial: Trial, expect: Expect, running: Subject) -> None:
    """A pod without room before the crash is placed afterwards, although no event reaches the successor."""
    add(trial, expect, node("n1").gpus("a10", 1))
    trial.submit(pod("p0").gpus(1))
    expect.bound("p0")
    trial.submit(pod("p1").gpus(1))
    expect.pending("p1")
    running.kill()
    trial.delete("p0")
    running.start_again()
    check(trial, expect, ["p1"])


@pytest.mark.feature("RSV-1.survives-restart", "HIL-4.scheduler-crash")
@pytest.mark.case("FA-030", severity="critical")
def test_killed_with_cards_reserved(trial: Trial, expect: Expect, running: Subject) -> None:
    """A restarted scheduler finds reservations as they were: their cards and their owners."""
    add(trial, expect, node("n1").gpus("a10", 4))
    trial.reserve(reservation("held").like(pod("x").gpus(3)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(pod("inside").label("app", "owner").gpus(1))
    before = expect.bound("inside")

    def placed() -> list[Pod]:
        return [each for each in trial.pods() if each.spec.node_name]

    running.kill()
    running.start_again()

    trial.submit(*(pod(name).gpus(1) for name in ("first", "second")))
    trial.submit(*(pod(name).label("app", "owner").gpus(1) for name in ("a", "b", "c")))
    assert trial.reaches(lambda: len(placed()) == 4, within=60), [each.metadata.name for each in placed()]
    expect.stable(seconds=3)
    assert sorted(minor for each in placed() for minor in minors(each)) == [0, 1, 2, 3]
    inside = [each for each in placed() if reservation_of(each) == "held"]
    assert len(inside) == 3
    assert minors(before) == minors(next(each for each in inside if each.metadata.name == "inside"))


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-032", severity="blocker")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.parametrize("picks", [pytest.param(pick, id=pick.__name__) for pick in (every, writes, bindings)])
def test_the_api_server_refuses(trial: Trial, expect: Expect, link: Link, code: int, picks: Picks) -> None:
    """Requests are refused for a while; afterwards all pods are placed, and new ones too."""
    add(trial, expect, node("n1").gpus("a10", 8), node("n2").gpus("a10", 8))
    names = submit(trial, 0, 4)
    expect.bound(*names)
    link.refuse(code, picks)
    link.break_streams()
    names += submit(trial, 4, 10)
    pause(trial, 30, real=2)
    assert link.refused > 0
    assert len(cards(trial)) == 4, "nothing can have been bound meanwhile"
    link.heal()
    names += submit(trial, 10, 16)
    check(trial, expect, names)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-033", severity="blocker")
@pytest.mark.long(seconds=11)
@pytest.mark.parametrize("outage", [pytest.param(0.0, id="at-once"), pytest.param(40.0, id="then-nothing-for-a-while")])
def test_bindings_are_carried_out_unheard(trial: Trial, expect: Expect, link: Link, outage: float) -> None:
    """Bindings succeed and their answers are lost, with or without the watch: no card is allocated twice."""
    add(trial, expect, node("n1").gpus("a10", 8))
    link.lose_answers(bindings)
    names = submit(trial, 0, 4)
    assert trial.wait(lambda: len(cards(trial)) == 4, within=30)
    if outage:
        link.cut()
        names += submit(trial, 4, 6)
        pause(trial, outage, real=5)
    assert link.lost >= 4  # a binding that is sent again is answered with 409
    link.heal()
    names += submit(trial, 6, 8) if outage else submit(trial, 4, 8)
    check(trial, expect, names)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-036", severity="blocker")
@pytest.mark.long(seconds=8)
def test_nothing_is_heard_of_bindings(trial: Trial, expect: Expect, link: Link) -> None:
    """Bindings succeed, answers are lost and the watch is silent: no card is allocated twice, however often
    a binding is sent."""
    add(trial, expect, node("n1").gpus("a10", 8))
    link.refuse(500, bindings)
    names = submit(trial, 0, 8)
    assert trial.wait(lambda: link.refused >= 8, within=30)
    link.heal()
    link.hold_streams()
    link.lose_answers(bindings)
    assert trial.wait(lambda: link.lost >= 8, within=60)
    pause(trial, 60, real=4)
    values = cards(trial)
    assert len(values) == len(set(values)) == 8, f"all are bound, unknown to the scheduler, each to its card: {values}"
    link.heal()
    check(trial, expect, names)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-034", severity="blocker")
@pytest.mark.long(60)
def test_a_watch_that_fell_too_far_behind(trial: Trial, expect: Expect, link: Link) -> None:
    """Disconnected until the resource version has expired at the API server: the scheduler lists again."""
    add(trial, expect, node("n1").gpus("a10", 4), node("n2").gpus("a10", 4))
    first = submit(trial, 0, 8)
    expect.bound(*first)
    expired = link.answers[410]
    link.cut()
    gone = [pod.metadata.name for pod in trial.pods() if pod.spec.node_name == "n1"]
    trial.delete(*gone)
    names = [name for name in first if name not in gone] + submit(trial, 8, 11)
    busy = f"/api/v1/namespaces/{trial.name}/pods/busy"
    trial.submit(pod("busy").scheduler("absent-scheduler"))
    for number in range(CHANGES):
        assert trial.call("PATCH", busy, {"metadata": {"annotations": {"count": str(number)}}}).ok
    trial.delete("busy")
    link.heal()
    check(trial, expect, names)
    assert link.answers[410] > expired, "the watch must have been told that it is too old"


@pytest.mark.feature("HIL-4.clock-skew")
@pytest.mark.case("FT-035", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.parametrize("seconds", [pytest.param(7200, id="forward"), pytest.param(-7200, id="back")])
def test_the_wall_clock_jumps(trial: Trial, expect: Expect, seconds: float) -> None:
    """The wall clock is set by two hours: waiting pods wait no longer than before, bound pods stay."""
    add(trial, expect, node("n1").gpus("a10", 2))
    names = submit(trial, 0, 2)
    expect.bound(*names)
    trial.submit(pod("p2").gpus(1))
    expect.pending("p2")
    cast("SimClock", trial.cluster.clock).jump(seconds)
    expect.stable(seconds=120)
    trial.delete("p0")
    check(trial, expect, ["p1", "p2"])
