"""How much of the cards is in use when no more of a recorded trace's pods fit: a figure on the scoreboard.

$SEATRIAL_OPENB names a folder with the two files of the openb trace (docs/openb.md), which is not part of seatrial.
"""

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.replay.openb import Trace, arrivals, load
from seatrial.harness.results import ResultsWriter
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.HARDWARE, Capability.REAL_TIME), pytest.mark.alone]

FOLDER = "SEATRIAL_OPENB"
NODES, PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
EACH = 101  # every so many nodes of the trace
LOAD = 1.3  # what all pods ask for, of the cards
QUIET = 15  # seconds in which no more pods are bound
QUIET_SHARES = 35  # some schedulers count shares anew every 30 seconds
FITS = "Kubernetes: a pod that fits is bound"
CARD = 1000  # thousandths, as in the trace
SHARE = "Koordinator v0.7, KAI and HAMi: the shares of a card add up to one card"


class Need(NamedTuple):
    """What a pod asks for: thousandths of a core, MiB, cards, thousandths of each card."""

    cpu: int
    memory: int
    cards: int
    milli: int

    def amounts(self) -> Counter[str]:
        return Counter(cpu=self.cpu, memory=self.memory, cards=self.cards)


@pytest.mark.feature("INT-1.packing")
@pytest.mark.case("IN-073", severity="normal", source=FITS)
@pytest.mark.long(seconds=60)
def test_whole_cards_of_a_trace(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Pods with whole cards come until they ask for 130 percent of the cards: in the end no waiting pod fits."""
    trace = _trace(shares=False)
    needs = _place(trial, intents, trace, QUIET)

    free = {each.name: Counter(cpu=each.cpu_milli, memory=each.memory_mib, cards=each.gpus) for each in trace.nodes}
    for each in _bound(trial):
        free[each.spec.node_name].subtract(needs[each.metadata.name].amounts())
    waiting = [needs[each.metadata.name] for each in trial.pods() if not each.spec.node_name]
    fitting = [(need, name) for need in waiting for name, left in free.items() if need.amounts() <= left]
    assert not fitting, f"a pod waits that fits: {fitting[0]}"
    _record(trace, results, "whole cards", [needs[each.metadata.name] for each in _bound(trial)])


@pytest.mark.feature("INT-1.packing")
@pytest.mark.case("IN-074", severity="normal", source=SHARE)
@pytest.mark.long(seconds=60)
def test_shares_of_a_trace(trial: Trial, intents: Intents, results: ResultsWriter | None) -> None:
    """Pods with shares and whole cards come until they ask for 130 percent of the cards: no card is given twice."""
    trace = _trace(shares=True)
    needs = _place(trial, intents, trace, QUIET_SHARES)

    held: Counter[str] = Counter()
    for each in _bound(trial):
        held.update(intents.held(each) or {})
    assert max(held.values(), default=0) <= 100
    _record(trace, results, "shares and whole cards", [needs[each.metadata.name] for each in _bound(trial)])


def _trace(*, shares: bool) -> Trace:
    """Some nodes of the trace, and its pods with cards of any model; without `shares` those with whole cards."""
    if FOLDER not in os.environ:
        pytest.skip(f"${FOLDER} names no folder with {NODES} and {PODS}")
    folder = Path(os.environ[FOLDER])
    whole = load(folder / NODES, folder / PODS)
    pods = [each for each in whole.pods if each.shape.gpus and not each.shape.models]
    return Trace(whole.nodes[::EACH], tuple(each for each in pods if shares or not each.shape.shares))


def _place(trial: Trial, intents: Intents, trace: Trace, quiet: float) -> dict[str, Need]:
    """Create nodes and pods, and wait until no more pods are bound. Returns what each pod asks for."""
    intents.add(*[node(n.name).cpu(n.cpu_milli // 1000).memory(f"{n.memory_mib}Mi").cards(n.gpus) for n in trace.nodes])
    needs = {
        f"p-{number:03}": Need(each.cpu_milli, each.memory, each.gpus, each.gpu_milli)
        for number, each in enumerate(arrivals(trace, LOAD, seed=1))
    }
    for name, need in needs.items():
        made = pod(name).request(cpu=f"{need.cpu}m", memory=f"{need.memory}Mi")
        if need.milli < CARD:
            intents.submit(made, share=-(-need.milli * 100 // CARD))
        else:
            intents.submit(made, cards=need.cards)
    recorder = trial.recorder
    assert recorder is not None
    before = -1
    while before != len(recorder.bound):
        before = len(recorder.bound)
        trial.pass_time(quiet)
    return needs


def _bound(trial: Trial) -> list[Pod]:
    return [each for each in trial.pods() if each.spec.node_name]


def _record(trace: Trace, results: ResultsWriter | None, kind: str, placed: list[Need]) -> None:
    if results is not None:
        used = 100 * sum(each.cards * each.milli for each in placed) / trace.gpu_capacity
        results.measure("openb_cards_in_use", "%", used, labels={"pods": kind})
