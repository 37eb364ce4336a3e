"""`bench quota`: what elastic quotas cost our scheduler's core.

A tree of quotas in five levels is built. Then pods of its leaves come and go: each changes requests on the path to the
root. Then nodes are added. Last, equal pods are placed with and without quotas, in turns, on equal nodes.
"""

import sys
import time
import tracemalloc
from typing import Any

from seatrial.harness.bench.core import Progress, starved, timed
from seatrial.harness.bench.mixes import device_manifest, names, node_manifest, pod_spec
from seatrial.harness.errors import SubjectError
from seatrial.harness.sample_statistics import percentile, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api.builders import quota
from seatrial.scheduler.api.quota import QUOTA_NAME

LEVELS = 5
REQUEST_BUDGET_US, NODE_BUDGET_MS, LOSS_BUDGET = 100.0, 50.0, 15.0
CARDS = 8  # of a node


def bench_quota(
    quotas: int, changes: int, nodes: int, progress: Progress, *, placing: int = 1000, repeat: int = 3, seed: int = 0
) -> dict[str, Any]:
    """Run the benchmark and return its figures. `placing`: the number of quotas while pods are placed.

    Raises:
        SubjectError: a pod was not placed although its quota has room.
    """
    tracemalloc.start()
    core = BareCore(seed=seed)
    before = tracemalloc.get_traced_memory()[0]
    leaves = _tree(core, quotas)
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    progress(f"{quotas:,} quotas, {len(leaves):,} of them leaves")
    requests = _changes(core, leaves, changes)
    added = _nodes(core, nodes)
    progress(f"a request change {percentile(requests, 50):.1f} us, a node added {percentile(added, 50):.3f} ms")
    rates: dict[int, list[float]] = {0: [], placing: []}
    shares: list[float] = []
    for number in range(repeat):
        for count, numbers in rates.items():
            rate, share = _placed_per_second(count, placing, nodes, seed)
            numbers.append(rate)
            shares.append(share)
        progress(f"repetition {number + 1} of {repeat}: {rates[placing][-1]:,.0f} pods/s, {rates[0][-1]:,.0f} without")
    with_quotas, without = spread(rates[placing]), spread(rates[0])
    loss = 100 * (1 - with_quotas["median"] / without["median"])
    return {
        "through": "core",
        "quotas": quotas,
        "levels": LEVELS,
        "request_us": {"p50": round(percentile(requests, 50), 2), "p99": round(percentile(requests, 99), 2)},
        "node_ms": {"p50": round(percentile(added, 50), 4), "p99": round(percentile(added, 99), 4)},
        "bytes_per_quota": round(memory / quotas),
        "placing_quotas": placing,
        "pods_per_second": {name: round(value, 1) for name, value in with_quotas.items()},
        "pods_per_second_without": {name: round(value, 1) for name, value in without.items()},
        "loss_percent": round(loss, 1),
        "within_budget": (
            percentile(requests, 50) <= REQUEST_BUDGET_US
            and percentile(added, 50) <= NODE_BUDGET_MS
            and loss <= LOSS_BUDGET
        ),
        "valid": not (because := starved(shares)),
        "invalid_because": because,
        "python": sys.version.split()[0],
    }


def _tree(core: BareCore, count: int) -> list[str]:
    """A tree of `count` quotas in `LEVELS` levels; each parent has about as many children as any other."""
    width = 1
    while sum(width**level for level in range(1, LEVELS + 1)) < count:
        width += 1
    above = [""]
    made = 0
    for level in range(1, LEVELS + 1):
        below: list[str] = []
        for parent in above:
            for _ in range(width):
                if made == count:
                    break
                name = f"quota-{made:05}"
                builder = quota(name).max(cpu=100000, memory="1Pi").min(cpu=1, memory="1Gi")
                if parent:
                    builder.below(parent)
                if level < LEVELS:
                    builder.parent()
                core.add_quota(builder.namespace("bench").manifest)
                below.append(name)
                made += 1
        if below:
            above = below
    return above


def _changes(core: BareCore, leaves: list[str], count: int) -> list[float]:
    """Microseconds of each event of a pod that comes or goes, ascending."""
    spec = core.spec(pod_spec({"cpu": "1", "memory": "1Gi"}, core.scheduler_name))
    taken: list[float] = []
    for number, name in enumerate(names("pod", count // 2)):
        labels = {QUOTA_NAME: leaves[number * 7919 % len(leaves)]}
        began = time.perf_counter()
        core.add_pod(name, spec, labels)
        between = time.perf_counter()
        core.remove_pod(name)
        taken += [(between - began) * 1e6, (time.perf_counter() - between) * 1e6]
    return sorted(taken)


def _nodes(core: BareCore, count: int) -> list[float]:
    """Milliseconds for each node that is added, ascending."""
    taken: list[float] = []
    for name in names("node", count):
        node, device = node_manifest(name), device_manifest(name)
        began = time.perf_counter()
        core.add_node(node, device)
        taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)


def _placed_per_second(quotas: int, placing: int, nodes: int, seed: int) -> tuple[float, float]:
    """Pods placed per second, one card each until all cards are taken; and the share of a core that this process got.

    Args:
        quotas: Number of quotas in one level; 0 for none.
        placing: Number of quotas that the labels of the pods name, whether these exist or not.
    """
    core = BareCore(seed=seed)
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    for name in (f"quota-{number:05}" for number in range(quotas)):
        core.add_quota(quota(name).max(cpu=100000, memory="1Pi").min(cpu=1).namespace("bench").manifest)
    spec = core.spec(pod_spec({"cpu": "1", "memory": "1Gi", "koordinator.sh/gpu": 100}, core.scheduler_name))
    pods = nodes * CARDS
    for number, name in enumerate(names("pod", pods)):
        core.add_pod(name, spec, {QUOTA_NAME: f"quota-{number % placing:05}"})  # equal pods with and without quotas
    if not core.ready:  # this also settles what follows from the last quota
        raise SubjectError(f"bench quota: expected {pods} pods to wait for their placement, found none")
    seconds, cpu_seconds, _, placed = timed(core)
    if placed != pods:
        raise SubjectError(f"bench quota: expected {pods} pods to be placed, found {placed}")
    return pods / seconds, cpu_seconds / seconds
