"""`bench schedule --through core`: decisions of our scheduler's core, without API server and sockets.

Each repetition builds a fresh scheduler, adds all nodes and pods, and then times each decision. A binding is
confirmed immediately, so the figures do not include an API server.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seatrial.harness.bench.claims import before_nodes, claim_of, slice_of
from seatrial.harness.bench.mixes import (
    GATHER,
    NODE_CPU,
    Mix,
    device_manifest,
    in_network,
    names,
    node_manifest,
    pod_spec,
    topology_manifest,
)
from seatrial.harness.errors import UsageError
from seatrial.harness.sample_statistics import percentiles, rounded, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.harness.workers import CarriedFile, results_of, unpacked

MIN_CPU_SHARE = 0.9  # of a core; the measured loop never waits, so on a quiet machine it gets all of one
GC_THRESHOLDS = (20_000, 500, 1000)  # as `python -m seatrial.scheduler` sets them
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run: `run` consecutive pods share a shape; `waiting` more pods never fit."""

    nodes: int
    pods: int
    repeat: int = 3
    run: int = 1
    seed: int = 0
    waiting: int = 0


class Repetition(NamedTuple):
    """What one repetition came to; as of `timed`."""

    seconds: float
    cpu_seconds: float
    decisions: list[float]
    placed: int
    kernel: str


def bench_core(size: Size, mix: Mix, progress: Progress, *, config: Path | None = None, on: str = "") -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench schedule`. `config`: the scheduler's.

    `on`: a Dask cluster, on whose workers the repetitions run.

    Raises:
        UsageError: `config` is no configuration that the scheduler can use.
    """
    rates: list[float] = []

    def done(each: Repetition) -> None:
        rates.append(size.pods / each.seconds)
        unplaced = size.pods - each.placed
        progress(f"repetition {len(rates)} of {size.repeat}: {rates[-1]:,.0f} pods/s, {unplaced} not placed")

    file = CarriedFile.of(config, "--scheduler-config")
    every = results_of(_repetition, [(size, mix, file)] * size.repeat, on=on, done=done)
    decisions = [seconds for each in every for seconds in each.decisions]
    shares, placed = [each.cpu_seconds / each.seconds for each in every], every[-1].placed
    microseconds = percentiles([seconds * 1e6 for seconds in decisions])
    return {
        "through": "core",
        "nodes": size.nodes,
        "pods": size.pods,
        "mix": mix.name,
        "shapes": len(mix.shapes),
        "run": size.run,
        "seed": size.seed,
        "waiting": size.waiting,
        "gang": mix.gang,
        "repeat": size.repeat,
        "pods_per_second": rounded(spread(rates)),
        "decision_us": microseconds,
        "latency_ms": {name: round(value / 1000, 4) for name, value in microseconds.items()},
        "placed": placed,
        "unplaced": size.pods - placed,
        "kernel": every[-1].kernel,
        "limit": "scheduler core (one core of one processor)",
        "valid": not (because := [*starved(shares), *nothing_placed(placed, size.pods)]),
        "invalid_because": because,
    }


def _repetition(size: Size, mix: Mix, config: CarriedFile | None) -> Repetition:
    with unpacked(config) as file:
        core = prepared(size, mix, file)
    if not core.ready:
        name = core.scheduler_name
        raise UsageError(f"--scheduler-config: expected a profile for scheduler {name!r}, found none")
    return Repetition(*timed(core), core.kernel)


def starved(shares: Sequence[float]) -> list[str]:
    """Why figures are not valid: repetitions that got less than a core, as on a machine with other load.

    Args:
        shares: CPU seconds of this process for each second of the measurement, by repetition.
    """
    if min(shares) >= MIN_CPU_SHARE:
        return []
    return [f"other load on the machine: a repetition got {min(shares):.0%} of a core, expected {MIN_CPU_SHARE:.0%}"]


def nothing_placed(placed: int, pods: int) -> list[str]:
    """Why figures are not valid: no pod was placed, so no placement was measured."""
    return [] if placed or not pods else [f"no pod was placed, of {pods:,}"]


def prepared(size: Size, mix: Mix, config: Path | None = None) -> BareCore:
    """A scheduler with all nodes added and all pods in its queue."""
    core = BareCore(seed=size.seed, configuration=config)
    if mix.name in GATHER:
        core.add_network_topology(topology_manifest())
    for name in names("node", size.nodes):
        node = node_manifest(name, claims=mix.claims)
        if mix.claims:
            core.add_node(node)
            core.add_object(*slice_of(name))
        else:
            core.add_node(in_network(node, size.nodes) if mix.name in GATHER else node, device_manifest(name))
    for path, manifest in before_nodes(len(mix.shapes)) if mix.claims else ():
        core.add_object(path, manifest)
    numbers = range(len(mix.shapes))
    if size.waiting:
        too_large = [core.spec(mix.spec(number, core.scheduler_name) | _too_large(mix, number)) for number in numbers]
        for name, shape in zip(names("waiting", size.waiting), mix.draw(size.waiting, size.seed + 1), strict=True):
            core.add_pod(name, too_large[shape], mix.labels(shape))
        while core.ready:
            if core.decide():
                raise AssertionError("a pod that fits on no node was placed")
    specs = [core.spec(mix.spec(number, core.scheduler_name)) for number in numbers]
    drawn = mix.draw(size.pods, size.seed, run=size.run)
    for index, (name, shape) in enumerate(zip(names("pod", size.pods), drawn, strict=True)):
        claim = claim_of(name, shape, core.namespace) if mix.claims else None
        core.add_pod(name, specs[shape], mix.labels(shape), mix.annotations(index, size.pods), claim=claim)
    return core


def _too_large(mix: Mix, number: int) -> dict[str, Any]:
    """The containers of a shape with a CPU request larger than any node."""
    return {"containers": pod_spec({**mix.shapes[number], "cpu": str(NODE_CPU + 1)}, "")["containers"]}


def timed(core: BareCore) -> tuple[float, float, list[float], int]:
    """Run all decisions.

    Returns:
        Seconds from the first decision to the last, CPU seconds of this process meanwhile, seconds of each decision,
        and the number of pods placed. Pods that wait may be decided more than once.
    """
    each: list[float] = []
    placed = 0
    clock = time.perf_counter
    gc.collect()
    gc.freeze()  # as the scheduler's process does after the first synchronisation, with the same thresholds
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        used = time.process_time()
        start = before = clock()
        while core.ready:
            bound = core.decide()
            after = clock()
            each.append(after - before)
            before = after
            placed += bound
        return before - start, time.process_time() - used, each, placed
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
