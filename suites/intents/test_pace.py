"""How quickly the same loads are placed: figures side by side on the scoreboard. Pace alone fails no case."""

from collections.abc import Callable

import pytest

from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.results import ResultsWriter
from seatrial.scheduler.api.builders import node, pod, priority_class

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.REAL_TIME), pytest.mark.alone]

ROUNDS = 3
NODES, PODS = 20, 200
GANGS, MEMBERS = 10, 8
PLACED = "Kubernetes: a pod that fits is bound"
PREEMPTED = "Kubernetes: Pod Priority and Preemption"


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-070", severity="normal", source=PLACED)
def test_a_burst_of_pods(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """200 pods come at once to 20 nodes that have room for all: they are bound. Three times."""
    intents.add(*[node(f"n{number}").cpu(10) for number in range(NODES)])

    def burst(turn: int) -> None:
        intents.submit(*[pod(f"p{turn}-{number}").request(cpu=1) for number in range(PODS)])

    _measure(trial, results, "pods", PODS, burst)


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-071", severity="normal", source=PLACED)
def test_a_burst_of_gangs(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Ten gangs of eight come at once to 20 nodes that have room for all: they are bound. Three times."""
    intents.add(*[node(f"n{number}").cpu(4) for number in range(NODES)])

    def burst(turn: int) -> None:
        for number in range(GANGS):
            group = f"g{turn}-{number}"
            intents.gang(group, MEMBERS)
            intents.submit(*[pod(f"{group}-{each}").request(cpu=1) for each in range(MEMBERS)], gang=group)

    _measure(trial, results, "gangs", GANGS * MEMBERS, burst)


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-072", severity="normal", source=PREEMPTED)
def test_a_burst_of_important_pods(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """20 nodes are full with pods of low priority; 20 important pods come at once: each evicts one and is bound. Three
    times."""
    low, high = f"{trial.name}-low", f"{trial.name}-high"
    trial.apply(priority_class(low, 10), priority_class(high, 50))
    intents.add(*[node(f"n{number}").cpu(1) for number in range(NODES)])

    def fill(turn: int) -> None:
        intents.submit(*[pod(f"low{turn}-{number}").request(cpu=1).priority_class(low) for number in range(NODES)])

    def burst(turn: int) -> None:
        intents.submit(*[pod(f"high{turn}-{number}").request(cpu=1).priority_class(high) for number in range(NODES)])

    _measure(trial, results, "preemption", NODES, burst, prepare=fill)


def _measure(
    trial: Trial,
    results: ResultsWriter | None,
    load: str,
    count: int,
    burst: Callable[[int], None],
    *,
    prepare: Callable[[int], None] | None = None,
) -> None:
    """Run the rounds: `count` pods of `prepare` are bound, then as many of `burst`, and all are deleted."""
    recorder = trial.recorder
    assert recorder is not None
    waits: list[float] = []
    rates: list[float] = []
    for turn in range(ROUNDS):
        for submit in filter(None, (prepare, burst)):
            recorder.bound.clear()
            submit(turn)
            assert trial.reaches(lambda: len(recorder.bound) == count, within=120), (
                f"{len(recorder.bound)} of {count} pods are bound"
            )
        waits += [1000 * (end - begin) for begin, end in recorder.bound]
        rates.append(count / (max(end for _, end in recorder.bound) - min(begin for begin, _ in recorder.bound)))
        trial.delete(*[each.metadata.name for each in trial.pods()])
    if results is not None:
        results.measure("burst_create_to_bound", "ms", values=waits, labels={"load": load})
        results.measure("burst_rate", "pods/s", values=rates, labels={"load": load})
