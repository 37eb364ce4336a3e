"""The scheduler, or its way to the API server, fails: no pod is lost, none is bound twice, no card is given twice.

That a pod is bound once and keeps its devices is watched in every test; here the cards are compared as well.
"""

from typing import cast

import pytest

from fixtures.expect import Expect
from fixtures.promises import devices_of
from fixtures.trial import Trial
from harness.clusters.faulty import FaultyTransport, Picks, bindings, every, writes
from harness.clusters.protocol import Capability
from harness.subject.protocol import Subject
from scheduler.api.builders import node, pod
from scheduler.api.clock import SimClock

pytestmark = [pytest.mark.feature("HIL-4"), pytest.mark.needs(Capability.NODES)]

CHANGES = 20_000  # of pods, after which the embedded API server has forgotten the first; it keeps 16,384


@pytest.fixture
def running(subject: Subject | None) -> Subject:
    """The scheduler under test, if it is ours to end."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; somebody else runs this one")
    return subject


@pytest.fixture
def link(running: Subject) -> FaultyTransport:
    """The scheduler's way to the API server."""
    if running.link is None:
        pytest.skip("needs a scheduler whose requests can be made to fail; use --subject inprocess")
    return running.link


def cards(cluster: Trial) -> list[tuple[str, int]]:
    """Node and number of every card that was given to a pod."""
    return [
        (one.spec.node_name, share.minor) for one in cluster.pods() if one.spec.node_name for share in devices_of(one)
    ]


def submit(cluster: Trial, first: int, end: int) -> list[str]:
    """Pods of one card each."""
    names = [f"p{number}" for number in range(first, end)]
    cluster.submit(*(pod(name).gpus(1) for name in names))
    return names


def check(cluster: Trial, expect: Expect, names: list[str]) -> None:
    """Everybody is bound, each to cards of its own."""
    expect.bound(*names, within=90)
    given = cards(cluster)
    assert len(given) == len(names)
    assert len(set(given)) == len(given), f"a card was given twice: {sorted(given)}"


def some_bound(cluster: Trial) -> bool:
    return any(one.spec.node_name for one in cluster.pods())


@pytest.mark.case("FT-030", severity="blocker")
def test_killed_while_it_binds(cluster: Trial, expect: Expect, running: Subject) -> None:
    """Killed when the first binding has been carried out; its successor finishes what is left, and what came since."""
    cluster.add(node("n1").gpus("a10", 8), node("n2").gpus("a10", 8))
    if running.link is not None:
        running.link.delay = 0.5  # the answers are still under way when it dies
    names = submit(cluster, 0, 8)
    assert cluster.cluster.wait(lambda: some_bound(cluster), within=30)
    running.kill()
    if running.link is not None:
        assert running.link.answers[201] == 0, "it died before it heard of any binding"
    names += submit(cluster, 8, 16)
    running.start_again()
    check(cluster, expect, names)


@pytest.mark.case("FT-031", severity="blocker")
def test_killed_while_pods_wait(cluster: Trial, expect: Expect, running: Subject) -> None:
    """A pod that found no room before the crash finds some after it, although nothing told the successor to look."""
    cluster.add(node("n1").gpus("a10", 1))
    cluster.submit(pod("p0").gpus(1))
    expect.bound("p0")
    cluster.submit(pod("p1").gpus(1))
    expect.pending("p1")
    running.kill()
    cluster.delete("p0")
    running.start_again()
    check(cluster, expect, ["p1"])


@pytest.mark.case("FT-032", severity="blocker")
@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.parametrize("picks", [pytest.param(one, id=one.__name__) for one in (every, writes, bindings)])
def test_the_api_server_refuses(cluster: Trial, expect: Expect, link: FaultyTransport, code: int, picks: Picks) -> None:
    """For half a minute requests are refused; afterwards everything is made up for, and more work goes on as usual."""
    cluster.add(node("n1").gpus("a10", 8), node("n2").gpus("a10", 8))
    names = submit(cluster, 0, 4)
    expect.bound(*names)
    link.refuse(code, picks)
    link.break_streams()
    names += submit(cluster, 4, 10)
    cluster.cluster.wait(lambda: False, within=30)
    assert link.refused > 0
    assert len(cards(cluster)) == 4, "nothing can have been bound meanwhile"
    link.heal()
    names += submit(cluster, 10, 16)
    check(cluster, expect, names)


@pytest.mark.case("FT-033", severity="blocker")
@pytest.mark.parametrize("outage", [pytest.param(0.0, id="at-once"), pytest.param(40.0, id="then-nothing-for-a-while")])
def test_bindings_are_carried_out_unheard(cluster: Trial, expect: Expect, link: FaultyTransport, outage: float) -> None:
    """The API server takes bindings and the answers are lost, with or without the watch: no card is given again."""
    cluster.add(node("n1").gpus("a10", 8))
    link.lose_answers(bindings)
    names = submit(cluster, 0, 4)
    assert cluster.cluster.wait(lambda: len(cards(cluster)) == 4, within=30)
    if outage:
        link.cut()
        names += submit(cluster, 4, 6)
        cluster.cluster.wait(lambda: False, within=outage)
    assert link.lost == 4
    link.heal()
    names += submit(cluster, 6, 8) if outage else submit(cluster, 4, 8)
    check(cluster, expect, names)


@pytest.mark.case("FT-036", severity="blocker")
def test_nothing_is_heard_of_bindings(cluster: Trial, expect: Expect, link: FaultyTransport) -> None:
    """Bindings are taken, answers are lost and the watch is silent: the scheduler has to ask before it goes on."""
    cluster.add(node("n1").gpus("a10", 8))
    link.refuse(500, bindings)
    names = submit(cluster, 0, 8)
    cluster.cluster.wait(lambda: False, within=5)
    link.heal()
    link.hold_streams()
    link.lose_answers(bindings)
    cluster.cluster.wait(lambda: False, within=60)
    assert link.lost == 8, "each binding was sent once"
    link.heal()
    check(cluster, expect, names)


@pytest.mark.case("FT-034", severity="blocker")
def test_a_watch_that_fell_too_far_behind(cluster: Trial, expect: Expect, link: FaultyTransport) -> None:
    """So long without a connection that the API server has forgotten the changes: the world is listed anew."""
    cluster.add(node("n1").gpus("a10", 4), node("n2").gpus("a10", 4))
    first = submit(cluster, 0, 8)
    expect.bound(*first)
    expired = link.answers[410]
    link.cut()
    gone = [one.metadata.name for one in cluster.pods() if one.spec.node_name == "n1"]
    cluster.delete(*gone)
    names = [name for name in first if name not in gone] + submit(cluster, 8, 11)
    busy = f"/api/v1/namespaces/{cluster.name}/pods/busy"
    cluster.submit(pod("busy").scheduler("nobody"))
    for number in range(CHANGES):
        assert cluster.call("PATCH", busy, {"metadata": {"annotations": {"count": str(number)}}}).ok
    cluster.delete("busy")
    link.heal()
    check(cluster, expect, names)
    assert link.answers[410] > expired, "the watch must have been told that it is too old"


@pytest.mark.case("FT-035", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.parametrize("seconds", [pytest.param(7200, id="forward"), pytest.param(-7200, id="back")])
def test_the_wall_clock_jumps(cluster: Trial, expect: Expect, seconds: float) -> None:
    """The time of day is set by two hours: who waits goes on waiting no longer than before, who is bound stays."""
    cluster.add(node("n1").gpus("a10", 2))
    names = submit(cluster, 0, 2)
    expect.bound(*names)
    cluster.submit(pod("p2").gpus(1))
    expect.pending("p2")
    cast("SimClock", cluster.cluster.clock).jump(seconds)
    expect.stable(seconds=120)
    cluster.delete("p0")
    check(cluster, expect, ["p1", "p2"])
