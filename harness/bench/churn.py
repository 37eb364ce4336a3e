"""`bench churn`: memory of our scheduler's core while pods come and go without end.

Pods of the mix `accelerators` are placed until the cluster holds a given number; from then on the oldest one leaves
for each that comes. A pod that fits nowhere leaves at once. Names never repeat. The memory of this process is read
after each tenth of the placements. What the first two tenths add is warming up: results for shapes and states of nodes
that are seen for the first time.
"""

import gc
import os
from collections import deque
from typing import Any

from seatrial.harness.bench.core import GC_THRESHOLDS, Progress
from seatrial.harness.bench.mixes import device_manifest, mix, names, node_manifest
from seatrial.harness.bench.usage import resident
from seatrial.harness.subject.inprocess import BareCore

MIX = "accelerators"
PODS_OF_A_NODE = 4  # alive at a time; the mix fills a node with about seven
READINGS = 10
WARM = 2  # readings that count as warming up
BUDGET_PERCENT = 5.0  # growth of memory after warming up


def bench_churn(nodes: int, placements: int, progress: Progress, *, seed: int = 0) -> dict[str, Any]:
    """Run the benchmark and return the documented fields."""
    core = BareCore(seed=seed)
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    pods = mix(MIX)
    specs = [core.spec(pods.spec(number, core.scheduler_name)) for number in range(len(pods.shapes))]
    shapes = pods.draw(placements, seed)
    alive: deque[str] = deque()
    unplaced = 0
    readings: list[int] = []
    objects: list[int] = []
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        for number, name in enumerate(names("pod", placements), start=1):
            core.add_pod(name, specs[shapes[number - 1]])
            core.bound.clear()
            while core.ready:
                core.decide()
            if core.bound:
                alive.append(name)
                if len(alive) > PODS_OF_A_NODE * nodes:
                    core.remove_pod(alive.popleft())
            else:
                unplaced += 1
                core.remove_pod(name)
            if number * READINGS // placements > len(readings):
                gc.collect()
                readings.append(_resident())
                objects.append(len(gc.get_objects()))
                progress(f"{number:,} placements: {readings[-1] >> 20} MiB, {objects[-1]:,} objects")
    finally:
        gc.set_threshold(*thresholds)
    warm, last = readings[WARM - 1], readings[-1]
    grown = 100 * (last - warm) / warm
    return {
        "nodes": nodes,
        "placements": placements,
        "unplaced": unplaced,
        "alive": len(alive),
        "mix": MIX,
        "seed": seed,
        "mib": [round(each / 2**20, 1) for each in readings],
        "objects": objects,
        "growth_percent": round(grown, 2),
        "bytes_per_placement": round((last - warm) / (placements * (READINGS - WARM) / READINGS), 2),
        "budget_percent": BUDGET_PERCENT,
        "within_budget": grown <= BUDGET_PERCENT,
    }


def _resident() -> int:
    """Bytes of memory that this process has."""
    return resident(os.getpid())
