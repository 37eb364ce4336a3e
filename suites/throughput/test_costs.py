"""What one placement costs, in figures that a busy machine does not change: against another cost, in calls, in objects.

Times are the lowest of many, and are compared with what the cluster itself takes for a pod that no scheduler serves.
"""

import time
from collections.abc import Callable

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.footprint import counting
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, pod

pytestmark = [
    pytest.mark.needs(Capability.NODES, Capability.VIRTUAL_TIME),
    pytest.mark.alone,
]

MAX_TIMES = 20  # a placement takes about four times as long as a pod that no scheduler serves
MAX_GROWTH = 1.5  # calls of a placement with eight times as many pods; a call for each pod there would give over 2
MAX_OBJECTS = 0.5  # that each pod leaves behind when it is gone


def place(cluster: Trial, name: str) -> None:
    """Create a pod and wait until it is placed."""
    cluster.submit(pod(name).request(cpu="10m"))
    placed = cluster.cluster.wait(lambda: bool(cluster.pod(name).spec.node_name), within=30)
    assert placed, f"expected pod {name!r} to be placed within 30 s"


def lowest(prefix: str, count: int, step: Callable[[str], None]) -> float:
    """The shortest real time of `count` steps."""
    found = []
    for number in range(count):
        began = time.perf_counter()
        step(f"{prefix}{number}")
        found.append(time.perf_counter() - began)
    return min(found)


@pytest.mark.feature("HIL-8.decision-time")
@pytest.mark.case("TP-010", severity="critical")
def test_a_decision_takes_little_time(cluster: Trial) -> None:
    """The fastest of 30 placements takes at most 20 times as long as the fastest pod that no scheduler serves."""
    cluster.add(node("n1").cpu(64), node("n2").cpu(64))

    def unserved(name: str) -> None:
        cluster.submit(pod(name).request(cpu="10m").scheduler("absent-scheduler"))
        cluster.cluster.wait(lambda: False, within=0.01)
        cluster.pod(name)

    alone = lowest("u", 30, unserved)
    placed = lowest("p", 30, lambda name: place(cluster, name))
    assert placed < MAX_TIMES * alone, (
        f"the fastest placement took {placed * 1000:.1f} ms, {placed / alone:.0f} times a pod that no scheduler "
        f"serves; allowed are {MAX_TIMES} times"
    )


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-011", severity="critical")
def test_a_placement_costs_the_same_among_many_pods(cluster: Trial, subject: Subject | None) -> None:
    """The calls inside of the scheduler for one placement, with 20 pods and with 160 pods on ten nodes."""
    if subject is None or subject.objects() is None:
        pytest.skip("needs a scheduler in this process, whose calls can be counted")
    cluster.add(*(node(f"n{number}").cpu(64).pods(1000) for number in range(10)))

    def calls(prefix: str, pods: int) -> int:
        for number in range(pods):
            place(cluster, f"{prefix}{number}")
        found = []
        for number in range(5):
            with counting() as counted:
                place(cluster, f"{prefix}-counted-{number}")
            found.append(counted.count)
        return min(found)

    few = calls("few", 20)
    many = calls("many", 135)
    assert many <= MAX_GROWTH * few, (
        f"one placement took {few} calls among 20 pods and {many} among 160; allowed are {MAX_GROWTH} times as many"
    )


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-012", severity="critical")
def test_pods_that_are_gone_leave_nothing(cluster: Trial, subject: Subject | None) -> None:
    """Rounds of 30 pods come and go; from the second round on the scheduler has as many objects as before."""
    if subject is None or subject.objects() is None:
        pytest.skip("needs a scheduler in this process, whose objects can be counted")
    cluster.add(node("n1").cpu(64), node("n2").cpu(64))

    def round_of(number: int, pods: int) -> None:
        names = [f"r{number}-{one}" for one in range(pods)]
        for name in names:
            place(cluster, name)
        cluster.delete(*names)
        cluster.cluster.wait(lambda: False, within=20)

    for number in range(2):
        round_of(number, 30)
    before = subject.objects()
    for number in range(2, 5):
        round_of(number, 30)
    after = subject.objects()
    assert before is not None
    assert after is not None
    left = after.total() - before.total()
    kinds = ", ".join(f"{count} {kind}" for kind, count in (after - before).most_common(5))
    assert left <= MAX_OBJECTS * 90, f"90 pods that are gone left {left} objects behind: {kinds}"
