"""What one placement costs, in figures that a busy machine does not change: against another cost, in calls, in objects.

Times are the lowest of many, and are compared with what the cluster itself takes for a pod that no scheduler serves.
"""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.footprint import counting
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, members, node, pod

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.VIRTUAL_TIME), pytest.mark.alone]

MAX_TIMES = 20  # a placement takes about four times as long as a pod that no scheduler serves
MAX_GROWTH = 1.5  # calls of a placement with eight times as many pods; a call for each pod there would give over 2
MAX_OBJECTS = 0.5  # that each pod leaves behind when it is gone


def place(trial: Trial, name: str) -> None:
    """Create a pod and wait until it is placed."""
    trial.submit(pod(name).request(cpu="10m"))
    placed = trial.wait(lambda: bool(trial.pod(name).spec.node_name), within=30)
    assert placed, f"expected pod {name!r} to be placed within 30 s"


def lowest(prefix: str, count: int, step: Callable[[str], None]) -> float:
    """The shortest real time of `count` steps."""
    results = []
    for number in range(count):
        began = time.perf_counter()
        step(f"{prefix}{number}")
        results.append(time.perf_counter() - began)
    return min(results)


@pytest.mark.feature("HIL-8.decision-time")
@pytest.mark.case("TP-010", severity="critical")
def test_a_decision_takes_little_time(trial: Trial) -> None:
    """The fastest of 30 placements takes at most 20 times as long as the fastest pod that no scheduler serves."""
    trial.add(node("n1").cpu(64), node("n2").cpu(64))

    def unserved(name: str) -> None:
        trial.submit(pod(name).request(cpu="10m").scheduler("absent-scheduler"))
        trial.pass_time(0.01)
        trial.pod(name)

    alone = lowest("u", 30, unserved)
    placed = lowest("p", 30, lambda name: place(trial, name))
    assert placed < MAX_TIMES * alone, (
        f"the fastest placement took {placed * 1000:.1f} ms, {placed / alone:.0f} times a pod that no scheduler "
        f"serves; allowed are {MAX_TIMES} times"
    )


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-011", severity="critical")
def test_a_placement_costs_the_same_among_many_pods(trial: Trial, subject: Subject | None) -> None:
    """The calls inside of the scheduler for one placement, with 20 pods and with 160 pods on ten nodes."""
    if subject is None or subject.objects() is None:
        pytest.skip("needs a scheduler in this process, whose calls can be counted")
    trial.add(*(node(f"n{number}").cpu(64).pods(1000) for number in range(10)))

    def calls(prefix: str, pods: int) -> int:
        for number in range(pods):
            place(trial, f"{prefix}{number}")
        counts = []
        for number in range(5):
            with counting() as counted:
                place(trial, f"{prefix}-counted-{number}")
            counts.append(counted.count)
        return min(counts)

    few = calls("few", 20)
    many = calls("many", 135)
    assert many <= MAX_GROWTH * few, (
        f"one placement took {few} calls among 20 pods and {many} among 160; allowed are {MAX_GROWTH} times as many"
    )


def needs_counts(subject: Subject | None) -> Subject:
    if subject is None or subject.objects() is None:
        pytest.skip("needs a scheduler in this process, whose calls and objects can be counted")
    return subject


def refuse(trial: Trial, *names: str) -> None:
    """Create pods that want a card each, and wait until each of them is rejected."""
    trial.submit(*(pod(name).gpus(1) for name in names))

    def rejected() -> bool:
        return all(pod.status.conditions or pod.metadata.name not in names for pod in trial.pods())

    assert trial.wait(rejected, within=30), f"expected {len(names)} pods to be rejected within 30 s"
    trial.pass_time(15)  # the backoff of all is over


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-021", severity="critical")
def test_events_cost_the_same_among_many_waiting_pods(trial: Trial, subject: Subject | None) -> None:
    """Calls for a node whose change helps no pod, and for a card that becomes free, with 20 and 160 waiting pods.

    A free card is for one pod: the others are not tried.
    """
    needs_counts(subject)
    trial.add(node("n1").gpus("a10", 8))
    holders = [f"holder-{number}" for number in range(8)]
    trial.submit(*(pod(name).gpus(1) for name in holders))
    assert trial.wait(lambda: all(pod.spec.node_name for pod in trial.pods()), within=30)

    def change(number: int) -> int:
        with counting() as counted:
            patch = {"metadata": {"labels": {"seatrial.dev/round": str(number)}}}
            assert trial.call("PATCH", "/api/v1/nodes/n1", patch).ok
            trial.pass_time(0.5)
        return counted.count

    def free() -> int:
        with counting() as counted:
            trial.delete(holders.pop())
            trial.pass_time(0.5)
        return counted.count

    def costs(number: int) -> tuple[int, int]:
        return min(change(3 * number + one) for one in range(3)), min(free() for _ in range(3))

    refuse(trial, *(f"few-{number}" for number in range(20)))
    few = costs(0)
    refuse(trial, *(f"many-{number}" for number in range(143)))
    many = costs(1)
    for what, less, more in zip(("a change of a node", "a card that becomes free"), few, many, strict=True):
        assert more <= MAX_GROWTH * less, (
            f"{what} took {less} calls with 20 waiting pods and {more} with 160; allowed are {MAX_GROWTH} times as many"
        )


@pytest.mark.feature("HIL-8.decision-time")
@pytest.mark.case("TP-022", severity="critical")
def test_neither_placements_nor_rejections_sleep(trial: Trial, subject: Subject | None) -> None:
    """Pods are placed and rejected, and a node changes: the scheduler never sleeps for real."""
    needs_counts(subject)
    trial.add(node("n1").cpu(64).gpus("a10", 1))
    with counting() as counted:
        place(trial, "placed")
        trial.submit(pod("taken").gpus(1))
        refuse(trial, "rejected", "rejected-too")
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"seatrial.dev/round": "1"}}}).ok
        trial.pass_time(1)
    assert counted.count
    assert not counted.sleeps, f"the scheduler slept {counted.sleeps} times while two pods were placed and two rejected"


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-023", severity="critical")
@pytest.mark.parametrize("kind", ["rejected pods", "gangs"])
def test_what_came_and_went_leaves_nothing(trial: Trial, subject: Subject | None, kind: str) -> None:
    """Rounds of pods that are rejected, and of gangs, come and go; later rounds leave no objects in the scheduler."""
    counted = needs_counts(subject)
    trial.add(node("n1").cpu(64))

    def gangs(number: int) -> None:
        groups = [gang(f"g{number}-{one}", 2) for one in range(15)]
        pods = [member for group in groups for member in members(group, 2)]
        trial.apply(*groups)
        trial.submit(*(member.request(cpu="10m") for member in pods))
        names = [member.name for member in pods]
        bound = trial.wait(lambda: all(pod.spec.node_name for pod in trial.pods()), within=30)
        assert bound, "expected the gangs to be placed within 30 s"
        for group in groups:
            assert trial.call("DELETE", trial.path("PodGroup", group.name)).ok
        trial.delete(*names)

    def rejected(number: int) -> None:
        names = [f"r{number}-{one}" for one in range(30)]
        refuse(trial, *names)
        trial.delete(*names)

    def after(rounds: range) -> "Counter[str]":
        for number in rounds:
            (gangs if kind == "gangs" else rejected)(number)
            trial.pass_time(20)
        return counted.objects() or Counter()

    before = after(range(2))
    left = after(range(2, 5)) - before
    assert left.total() <= MAX_OBJECTS * 90, (
        f"three rounds of 30 pods that are gone ({kind}) left {left.total()} objects behind: "
        f"{', '.join(f'{count} {name}' for name, count in left.most_common(5))}"
    )


@pytest.mark.feature("HIL-8.growth")
@pytest.mark.case("TP-012", severity="critical")
def test_pods_that_are_gone_leave_nothing(trial: Trial, subject: Subject | None) -> None:
    """Rounds of 30 pods come and go; from the second round on the scheduler has as many objects as before."""
    if subject is None or subject.objects() is None:
        pytest.skip("needs a scheduler in this process, whose objects can be counted")
    trial.add(node("n1").cpu(64), node("n2").cpu(64))

    def round_of(number: int, pods: int) -> None:
        names = [f"r{number}-{one}" for one in range(pods)]
        for name in names:
            place(trial, name)
        trial.delete(*names)
        trial.pass_time(20)

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
