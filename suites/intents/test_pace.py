"""How quickly the same loads are placed: figures side by side on the scoreboard. Pace alone fails no case."""

import pytest

from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.results import ResultsWriter
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.intents.places import bound

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.REAL_TIME), pytest.mark.alone]

NODES, PODS = 20, 200
GANGS, MEMBERS = 10, 8
PLACED = "Kubernetes: a pod that fits is bound"
PREEMPTED = "Kubernetes: Pod Priority and Preemption"


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-070", severity="normal", source=PLACED)
def test_a_burst_of_pods(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """200 pods come at once to 20 nodes that have room for all: they are bound."""
    intents.add(*[node(f"n{number}").cpu(10) for number in range(NODES)])
    intents.submit(*[pod(f"p-{number}").request(cpu=1) for number in range(PODS)])

    assert trial.reaches(lambda: len(bound(trial)) == PODS, within=120), f"{len(bound(trial))} of {PODS} pods are bound"

    _record(trial, results, "pods")


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-071", severity="normal", source=PLACED)
def test_a_burst_of_gangs(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Ten gangs of eight come at once to 20 nodes that have room for all: they are bound."""
    intents.add(*[node(f"n{number}").cpu(4) for number in range(NODES)])
    for number in range(GANGS):
        intents.gang(f"g{number}", MEMBERS)
        names = [f"g{number}-{member}" for member in range(MEMBERS)]
        intents.submit(*[pod(name).request(cpu=1) for name in names], gang=f"g{number}")
    total = GANGS * MEMBERS

    assert trial.reaches(lambda: len(bound(trial)) == total, within=120), f"{len(bound(trial))} of {total} are bound"

    _record(trial, results, "gangs")


@pytest.mark.feature("INT-1.pace")
@pytest.mark.case("IN-072", severity="normal", source=PREEMPTED)
def test_a_burst_of_important_pods(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """20 nodes are full with pods of low priority; 20 important pods come at once: each evicts one and is bound."""
    low, high = f"{trial.name}-low", f"{trial.name}-high"
    trial.apply(priority_class(low, 10), priority_class(high, 50))
    intents.add(*[node(f"n{number}").cpu(1) for number in range(NODES)])
    intents.submit(*[pod(f"low-{number}").request(cpu=1).priority_class(low) for number in range(NODES)])
    assert trial.reaches(lambda: len(bound(trial, "low-")) == NODES, within=120), f"{len(bound(trial))} are bound"
    assert trial.recorder is not None
    trial.recorder.waits.clear()

    intents.submit(*[pod(f"high-{number}").request(cpu=1).priority_class(high) for number in range(NODES)])

    within = trial.reaches(lambda: len(bound(trial, "high-")) == NODES, within=120)
    assert within, f"{len(bound(trial, 'high-'))} of {NODES} are bound"
    _record(trial, results, "preemption")


def _record(trial: Trial, results: ResultsWriter | None, load: str) -> None:
    assert trial.recorder is not None
    if results is not None:
        waits = [1000 * seconds for seconds in trial.recorder.waits]
        results.measure("burst_create_to_bound", "ms", values=waits, labels={"load": load})
