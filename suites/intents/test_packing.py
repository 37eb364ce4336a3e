"""How much of the cards is in use when no more of a recorded trace's pods fit: a figure on the scoreboard.

$SEATRIAL_OPENB names a folder with the two files of the openb trace (docs/openb.md), which is not part of seatrial.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.replay.openb import Trace, arrivals, load
from seatrial.harness.results import ResultsWriter
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.packing.shapes import CARD, Shape

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.HARDWARE, Capability.REAL_TIME), pytest.mark.alone]

FOLDER = "SEATRIAL_OPENB"
NODES, PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
EACH = 101  # every so many nodes of the trace
LOAD = 1.3  # what all pods ask for, of the cards
QUIET = 35  # seconds; some schedulers count shares anew every 30
FITS = "Kubernetes: a pod that fits is bound"
SHARE = "Koordinator v0.7, KAI and HAMi: the shares of a card add up to one card"


@pytest.mark.feature("INT-1.packing")
@pytest.mark.case("IN-073", severity="normal", source=FITS)
@pytest.mark.long(seconds=60)
def test_whole_cards_of_a_trace(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Pods with whole cards come until they ask for 130 percent of the cards: in the end no waiting pod fits."""
    trace = _trace(shares=False)
    shapes = _place(trial, intents, trace)

    free = {each.name: Counter(cpu=each.cpu_milli, memory=each.memory_mib, cards=each.gpus) for each in trace.nodes}
    for each in _bound(trial):
        free[each.spec.node_name].subtract(_needs(shapes[each.metadata.name]))
    waiting = [shapes[each.metadata.name] for each in trial.pods() if not each.spec.node_name]
    fitting = [(shape, name) for shape in waiting for name, left in free.items() if _needs(shape) <= left]
    assert not fitting, f"a pod waits that fits: {fitting[0]}"
    _record(trace, results, "whole cards", [shapes[each.metadata.name] for each in _bound(trial)])


@pytest.mark.feature("INT-1.packing")
@pytest.mark.case("IN-074", severity="normal", source=SHARE)
@pytest.mark.long(seconds=60)
def test_shares_of_a_trace(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Pods with shares and whole cards come until they ask for 130 percent of the cards: no card is given twice."""
    trace = _trace(shares=True)
    shapes = _place(trial, intents, trace)

    held: Counter[str] = Counter()
    for each in _bound(trial):
        held.update(intents.held(each) or {})
    assert max(held.values(), default=0) <= 100
    _record(trace, results, "shares and whole cards", [shapes[each.metadata.name] for each in _bound(trial)])


def _trace(*, shares: bool) -> Trace:
    """Some nodes of the trace, and its pods with cards of any model; without `shares` those with whole cards."""
    if FOLDER not in os.environ:
        pytest.skip(f"${FOLDER} names no folder with {NODES} and {PODS}")
    folder = Path(os.environ[FOLDER])
    whole = load(folder / NODES, folder / PODS)
    pods = [each for each in whole.pods if each.shape.gpus and not each.shape.models]
    return Trace(whole.nodes[::EACH], tuple(each for each in pods if shares or not each.shape.shares))


def _place(trial: Trial, intents: Intents, trace: Trace) -> dict[str, Shape]:
    """Create nodes and pods, and wait until no more pods are bound. Returns what each pod asks for."""
    intents.add(*[node(n.name).cpu(n.cpu_milli // 1000).memory(f"{n.memory_mib}Mi").cards(n.gpus) for n in trace.nodes])
    shapes = {f"p-{number:03}": shape for number, shape in enumerate(arrivals(trace, LOAD, seed=1))}
    for name, shape in shapes.items():
        made = pod(name).request(cpu=f"{shape.cpu_milli}m", memory=f"{shape.memory}Mi")
        if shape.shares:
            intents.submit(made, share=-(-shape.gpu_milli * 100 // CARD))
        else:
            intents.submit(made, cards=shape.gpus)
    recorder = trial.recorder
    assert recorder is not None
    before = -1
    while before != len(recorder.bound):
        before = len(recorder.bound)
        trial.pass_time(QUIET)
    return shapes


def _bound(trial: Trial) -> list[Pod]:
    return [each for each in trial.pods() if each.spec.node_name]


def _needs(shape: Shape) -> Counter[str]:
    return Counter(cpu=shape.cpu_milli, memory=shape.memory, cards=shape.gpus)


def _record(trace: Trace, results: ResultsWriter | None, kind: str, placed: list[Shape]) -> None:
    if results is not None:
        used = 100 * sum(shape.gpu_request for shape in placed) / trace.gpu_capacity
        results.measure("openb_cards_in_use", "%", used, labels={"pods": kind})
