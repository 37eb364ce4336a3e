"""`bench preempt`: time of a preemption decision of our scheduler's core on a full cluster.

Pods of low priority hold all cards. Then pods of high priority arrive one after the other, and each must preempt
others. The decision that finds no node and selects the victims is timed. Then the victims are removed, the pod is bound
to its nominated node, and the next pod arrives.
"""

import gc
import time
from typing import Any

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.mixes import NODE_GPUS, device_manifest, names, node_manifest, pod_spec
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.sample_statistics import percentile, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api import device
from seatrial.scheduler.api.wire import ResourceList

BUDGET_MS = 2.0  # a preemption, median
LOW_PRIORITIES, HIGH_PRIORITY = 10, 1000  # pods that fill the nodes have the priorities 0 to 9 in turn
REQUESTED_CARDS = (1, 2, 4, 8)  # of the preemptors, in turn
JOB_LABEL = "scheduling.koordinator.sh/questioned-object-key"
PAUSE = 15.0  # seconds; longer than the longest backoff


def bench_preempt(
    nodes: int, pods: int, preemptions: int, progress: Progress, *, repeat: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench preempt`.

    Raises:
        UsageError: `pods` is not 1, 2, 4 or 8 times `nodes`.
        SubjectError: a pod did not preempt although it had to, or was not placed afterwards.
    """
    each = check_sizes(nodes, pods)
    medians: list[float] = []
    samples: list[float] = []
    victims = 0
    for number in range(repeat):
        core = filled(BareCore(seed=seed), nodes, pods, NODE_GPUS // each)
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


def check_sizes(nodes: int, pods: int) -> int:
    """The number of pods that fill a node.

    Raises:
        UsageError: the pods do not fill the nodes evenly.
    """
    each, rest = divmod(pods, nodes)
    if rest or not 1 <= each <= NODE_GPUS or NODE_GPUS % each:
        raise UsageError(
            f"bench preempt: expected --pods to be 1, 2, 4 or 8 times --nodes, to fill the {NODE_GPUS} cards"
            f" of each node, found {pods} pods and {nodes} nodes"
        )
    return each


def filled(core: BareCore, nodes: int, pods: int, cards: int, *, job: int = 1) -> BareCore:
    """Fill the nodes with low-priority pods of `cards` cards each. `job`: so many consecutive pods are a job."""
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    specs = [core.spec(spec_of(cards, priority, core.scheduler_name)) for priority in range(LOW_PRIORITIES)]
    for number, name in enumerate(names("pod", pods)):
        labels = {JOB_LABEL: f"job-{number // job}"} if job > 1 else {}
        core.add_pod(name, specs[number // job % LOW_PRIORITIES], labels=labels)
    placed = 0
    while core.ready:
        placed += core.decide()
    if placed != pods:
        raise SubjectError(f"bench preempt: expected {pods} pods to fill the nodes, found {placed} placed")
    return core


def _preempt(core: BareCore, count: int) -> list[tuple[float, int]]:
    """For each preemption: milliseconds of the decision, and the number of victims."""
    specs = {cards: core.spec(spec_of(cards, HIGH_PRIORITY, core.scheduler_name)) for cards in REQUESTED_CARDS}
    taken: list[tuple[float, int]] = []
    gc.collect()
    gc.freeze()  # as the scheduler's process does after the first synchronisation
    try:
        for number, name in enumerate(names("important", 4 * count)):
            if len(taken) == count:
                break
            core.add_pod(name, specs[REQUESTED_CARDS[number % len(REQUESTED_CARDS)]])
            core.evicted.clear()
            began = time.perf_counter()
            bound = core.decide()
            seconds = time.perf_counter() - began
            if bound:  # earlier victims have left enough room
                continue
            if not core.evicted:
                raise SubjectError(f"bench preempt: expected victims for pod {name}, found none")
            taken.append((seconds * 1000, len(core.evicted)))
            for victim in core.evicted:
                core.remove_pod(victim)
            core.pause(PAUSE)
            if not (core.ready and core.decide()):
                raise SubjectError(
                    f"bench preempt: expected pod {name} to be placed after its victims were removed, found it pending"
                )
    finally:
        gc.unfreeze()
    if len(taken) < count:
        raise SubjectError(f"bench preempt: expected {count} preemptions, found {len(taken)}; use more pods")
    return taken


def spec_of(cards: int, priority: int, scheduler: str) -> dict[str, Any]:
    shape: ResourceList = {"cpu": str(cards), "memory": f"{cards}Gi", device.GPU: cards * 100}
    return {**pod_spec(shape, scheduler), "priority": priority}
