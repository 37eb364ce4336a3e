"""`bench schedule --trace`: decisions of our scheduler's core for the pods of a recorded trace, which come and leave.

Time is simulated and jumps from one pod to the next: a pod comes when it came in the trace, and leaves as long after
its binding as it stayed there. Only decisions are timed. A pod that fits nowhere waits, and is decided again when room
was made.
"""

import gc
import hashlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.harness.bench.core import GC_THRESHOLDS, Progress, nothing_placed, starved
from seatrial.harness.bench.mixes import device_manifest, names, node_manifest, pod_spec
from seatrial.harness.errors import UsageError
from seatrial.harness.load.trace import Trace
from seatrial.harness.sample_statistics import percentiles, rounded, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.harness.workers import CarriedFile, results_of, unpacked


@dataclass(slots=True)
class Replayed:
    """What one repetition came to."""

    decisions: list[float] = field(default_factory=list)  # seconds of each
    cpu_seconds: float = 0.0
    placed: int = 0
    left: int = 0
    most: int = 0  # pods that were on nodes at a time
    digest: str = ""  # of all placements, in order
    kernel: str = ""


def bench_trace(
    trace: Trace,
    nodes: int,
    progress: Progress,
    *,
    repeat: int = 3,
    seed: int = 0,
    config: Path | None = None,
    on: str = "",
) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench schedule`; `config` and `on` as of `bench_core`.

    Raises:
        UsageError: `config` is no configuration that the scheduler can use.
    """
    rates: list[float] = []

    def done(each: Replayed) -> None:
        rates.append(len(trace.pods) / sum(each.decisions))
        progress(f"repetition {len(rates)} of {repeat}: {rates[-1]:,.0f} pods/s, {each.placed:,} placed")

    every = results_of(
        _repetition, [(trace, nodes, seed, CarriedFile.of(config, "--scheduler-config"))] * repeat, on=on, done=done
    )
    last = every[-1]
    microseconds = percentiles([seconds * 1e6 for item in every for seconds in item.decisions])
    because = [
        *starved([item.cpu_seconds / sum(item.decisions) for item in every]),
        *nothing_placed(last.placed, len(trace.pods)),
    ]
    return {
        "through": "core",
        "trace": trace.name,
        "nodes": nodes,
        "pods": len(trace.pods),
        "shapes": len(trace.shapes),
        "seed": seed,
        "repeat": repeat,
        "pods_per_second": rounded(spread(rates)),
        "decision_us": microseconds,
        "latency_ms": {name: round(value / 1000, 4) for name, value in microseconds.items()},
        "decisions": len(last.decisions),
        "placed": last.placed,
        "unplaced": len(trace.pods) - last.placed,
        "left": last.left,
        "most_at_a_time": last.most,
        "digest": last.digest,
        "kernel": last.kernel,
        "limit": "scheduler core (one core of one processor)",
        "valid": not because,
        "invalid_because": because,
    }


def _repetition(trace: Trace, nodes: int, seed: int, config: CarriedFile | None) -> Replayed:
    with unpacked(config) as file:
        core = BareCore(seed=seed, configuration=file)
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    result = replayed(core, trace)
    result.kernel = core.kernel
    return result


def replayed(core: BareCore, trace: Trace, clock: Callable[[], float] = time.perf_counter) -> Replayed:
    """Replay a trace on a core that has its nodes; `clock` times the decisions.

    Raises:
        UsageError: no profile of the scheduler takes the pods.
    """
    specs = {name: core.spec(pod_spec(dict(s.requests), core.scheduler_name)) for name, s in trace.shapes.items()}
    result, now = Replayed(), 0.0
    leaving: list[tuple[float, str]] = []  # a heap: when, which pod
    stays: dict[str, float | None] = {}
    placements = hashlib.sha256()

    def pass_until(then: float) -> None:
        nonlocal now
        core.pause(then - now)
        now = then

    def decide() -> None:
        used = time.process_time()
        while core.ready:
            core.bound.clear()
            before = clock()
            core.decide()
            result.decisions.append(clock() - before)
            for name, node in core.bound:
                placements.update(f"{name} {node}\n".encode())
                result.placed += 1
                stay = stays.pop(name)
                if stay is not None:
                    heapq.heappush(leaving, (now + stay, name))
        result.cpu_seconds += time.process_time() - used
        result.most = max(result.most, result.placed - result.left)

    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        for pod, name in zip(trace.pods, names("pod", len(trace.pods)), strict=True):
            while leaving and leaving[0][0] <= pod.at:
                when, gone = heapq.heappop(leaving)
                pass_until(when)
                core.remove_pod(gone)
                result.left += 1
                decide()
            pass_until(pod.at)
            stays[name] = pod.stay
            core.add_pod(name, specs[pod.shape])
            decide()
            if not result.decisions:
                raise UsageError(f"--scheduler-config: expected a profile for scheduler {core.scheduler_name!r}")
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    result.digest = placements.hexdigest()[:16]
    return result
