"""`bench schedule --through core`: our scheduler's decisions alone, no API server, no sockets.

Each repetition builds a fresh scheduler, shows it all nodes and pods, and then times one decision after the other. The
binding is confirmed at once, as if the API server answered in no time.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.bench.mixes import NODE_CPU, Mix, device_manifest, names, node_manifest, pod_spec
from harness.sample_statistics import percentiles, rounded, spread
from harness.subject.inprocess import BareCore

SELDOM = (200_000, 50, 1000)  # what `python -m scheduler` sets
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is; `run` pods in a row share a shape, `waiting` more pods wait that never fit."""

    nodes: int
    pods: int
    repeat: int = 3
    run: int = 1
    seed: int = 0
    waiting: int = 0


def bench_core(size: Size, mix: Mix, progress: Progress) -> dict[str, Any]:
    """The documented fields of `bench schedule`."""
    rates: list[float] = []
    decisions: list[float] = []
    placed = unplaced = 0
    for number in range(size.repeat):
        core = prepared(size, mix)
        seconds, each, placed, unplaced = timed(core)
        rates.append(size.pods / seconds)
        decisions += each
        progress(f"repetition {number + 1} of {size.repeat}: {rates[-1]:,.0f} pods/s, {unplaced} not placed")
    microseconds = percentiles([one * 1e6 for one in decisions])
    return {
        "through": "core",
        "nodes": size.nodes,
        "pods": size.pods,
        "mix": mix.name,
        "shapes": len(mix.shapes),
        "run": size.run,
        "seed": size.seed,
        "waiting": size.waiting,
        "repeat": size.repeat,
        "pods_per_second": rounded(spread(rates)),
        "decision_us": microseconds,
        "latency_ms": {name: round(value / 1000, 4) for name, value in microseconds.items()},
        "placed": placed,
        "unplaced": unplaced,
        "limit": "scheduler core (one core of one processor)",
        "valid": True,
        "invalid_because": [],
    }


def prepared(size: Size, mix: Mix) -> BareCore:
    """A scheduler that knows all nodes and has all pods in its queue."""
    core = BareCore(seed=size.seed)
    for name in names("node", size.nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    numbers = range(len(mix.shapes))
    if size.waiting:
        too_large = [core.spec(mix.spec(number, core.scheduler_name) | _too_large(mix, number)) for number in numbers]
        for name, shape in zip(names("waiting", size.waiting), mix.draw(size.waiting, size.seed + 1), strict=True):
            core.add_pod(name, too_large[shape], mix.labels(shape))
        while core.ready:
            if core.decide():
                raise AssertionError("a pod that fits on no node was placed")
    specs = [core.spec(mix.spec(number, core.scheduler_name)) for number in numbers]
    for name, shape in zip(names("pod", size.pods), mix.draw(size.pods, size.seed, run=size.run), strict=True):
        core.add_pod(name, specs[shape], mix.labels(shape))
    return core


def _too_large(mix: Mix, number: int) -> dict[str, Any]:
    """The containers of a shape, but with more processors than any node has."""
    return {"containers": pod_spec({**mix.shapes[number], "cpu": str(NODE_CPU + 1)}, "")["containers"]}


def timed(core: BareCore) -> tuple[float, list[float], int, int]:
    """Seconds from the first decision to the last, seconds of each, pods placed, pods refused."""
    each: list[float] = []
    placed = unplaced = 0
    clock = time.perf_counter
    gc.collect()
    gc.freeze()  # as the scheduler's process does once it has seen the cluster, thresholds included
    thresholds = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        start = before = clock()
        while core.ready:
            bound = core.decide()
            after = clock()
            each.append(after - before)
            before = after
            placed += bound
            unplaced += not bound
        return before - start, each, placed, unplaced
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
