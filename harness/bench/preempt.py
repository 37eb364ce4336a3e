"""`bench preempt`: what one preemption costs our scheduler's core on a cluster that is full.

Every card is held by a pod of low priority; then important pods come one after the other, and each must make others go.
What is timed is the one decision that finds no node, tries who could go on which, and picks. Then the victims go, the
pod is bound where it was nominated, and the next one comes.
"""

import gc
import time
from typing import Any

from harness.bench.core import Progress
from harness.bench.mixes import NODE_GPUS, device_manifest, names, node_manifest, pod_spec
from harness.errors import SubjectError, UsageError
from harness.sample_statistics import percentile, spread
from harness.subject.inprocess import BareCore
from scheduler.api import device
from scheduler.api.wire import ResourceList

BUDGET_MS = 2.0  # a preemption, median
WEAK, STRONG = 10, 1000  # priorities of who is there: 0 to 9, by turns; of who comes
ASKED = (1, 2, 4, 8)  # cards that the important pods ask for, by turns
PAUSE = 15.0  # seconds, longer than any backoff


def bench_preempt(
    nodes: int, pods: int, preemptions: int, progress: Progress, *, repeat: int = 1, seed: int = 0
) -> dict[str, Any]:
    """The documented fields of `bench preempt`.

    Raises:
        UsageError: `pods` is no multiple of `nodes` with a divisor of eight cards for each.
        SubjectError: a pod that should have made others go did not, or was not placed afterwards.
    """
    each, rest = divmod(pods, nodes)
    if rest or not 1 <= each <= NODE_GPUS or NODE_GPUS % each:
        raise UsageError(
            f"bench preempt: expected --pods to be 1, 2, 4 or 8 times --nodes, to fill the {NODE_GPUS} cards"
            f" of each node, found {pods} pods and {nodes} nodes"
        )
    medians: list[float] = []
    samples: list[float] = []
    victims = 0
    for number in range(repeat):
        core = _filled(nodes, pods, NODE_GPUS // each, seed)
        taken = _preempt(core, preemptions)
        samples += [milliseconds for milliseconds, _ in taken]
        medians.append(percentile(sorted(milliseconds for milliseconds, _ in taken), 50))
        victims = sum(gone for _, gone in taken)
        progress(f"repetition {number + 1} of {repeat}: {medians[-1]:.2f} ms a preemption, {victims} victims")
    ordered = sorted(samples)
    return {
        "through": "core",
        "nodes": nodes,
        "pods": pods,
        "preemptions": preemptions,
        "victims": victims,
        "repeat": repeat,
        "seed": seed,
        "preemption_ms": {
            "p50": round(percentile(ordered, 50), 3),
            "p99": round(percentile(ordered, 99), 3),
            "highest": round(ordered[-1], 3),
        },
        "median_ms": {name: round(value, 3) for name, value in spread(medians).items()},
        "budget_ms": BUDGET_MS,
        "within_budget": percentile(ordered, 50) <= BUDGET_MS,
    }


def _filled(nodes: int, pods: int, cards: int, seed: int) -> BareCore:
    """A scheduler whose nodes are full of unimportant pods of so many cards."""
    core = BareCore(seed=seed)
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    specs = [core.spec(_spec(cards, priority, core.scheduler_name)) for priority in range(WEAK)]
    for number, name in enumerate(names("pod", pods)):
        core.add_pod(name, specs[number % WEAK])
    placed = 0
    while core.ready:
        placed += core.decide()
    if placed != pods:
        raise SubjectError(f"bench preempt: only {placed} of {pods} pods could be placed to fill the nodes")
    return core


def _preempt(core: BareCore, count: int) -> list[tuple[float, int]]:
    """For each pod that made others go: milliseconds to decide who, and how many they were."""
    specs = {cards: core.spec(_spec(cards, STRONG, core.scheduler_name)) for cards in ASKED}
    taken: list[tuple[float, int]] = []
    gc.collect()
    gc.freeze()  # as the scheduler's process does once it has seen the cluster
    try:
        for number, name in enumerate(names("important", 4 * count)):
            if len(taken) == count:
                break
            core.add_pod(name, specs[ASKED[number % len(ASKED)]])
            core.evicted.clear()
            began = time.perf_counter()
            bound = core.decide()
            seconds = time.perf_counter() - began
            if bound:  # larger victims have left room
                continue
            if not core.evicted:
                raise SubjectError(f"bench preempt: nobody was made to go for pod {name}")
            taken.append((seconds * 1000, len(core.evicted)))
            for victim in core.evicted:
                core.remove_pod(victim)
            core.pause(PAUSE)
            if not (core.ready and core.decide()):
                raise SubjectError(f"bench preempt: pod {name} was not placed although its victims went")
    finally:
        gc.unfreeze()
    if len(taken) < count:
        raise SubjectError(f"bench preempt: only {len(taken)} of {count} pods had to make others go")
    return taken


def _spec(cards: int, priority: int, scheduler: str) -> dict[str, Any]:
    shape: ResourceList = {"cpu": str(cards), "memory": f"{cards}Gi", device.GPU: cards * 100}
    return {**pod_spec(shape, scheduler), "priority": priority}
