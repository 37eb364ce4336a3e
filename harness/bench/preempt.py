"""`bench preempt`: time of a preemption decision of our scheduler's core on a full cluster.

Pods of low priority hold all cards. Then pods of high priority arrive one after the other, or gangs of them, and each
must preempt others. The decision that finds no room and selects the victims is timed. Then the victims are removed, and
the pod, or all members of the gang, are bound to their nominated nodes before the next ones arrive.
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.mixes import NODE_GPUS, device_manifest, names, node_manifest, pod_spec
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.sample_statistics import percentile, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api import device
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME
from seatrial.scheduler.api.wire import ResourceList

BUDGET_MS = 2.0  # a preemption by a pod, median
GANG_BUDGET_MS = 500.0  # one by a gang of 64 members with 8 cards each on 5,000 full nodes, highest
LOW_PRIORITIES, HIGH_PRIORITY = 10, 1000  # pods that fill the nodes have the priorities 0 to 9 in turn
REQUESTED_CARDS = (1, 2, 4, 8)  # of single preemptors, in turn; members of a gang take all cards of a node
JOB_LABEL = "scheduling.koordinator.sh/questioned-object-key"
PAUSE = 15.0  # seconds; longer than the longest backoff


@dataclass(frozen=True, slots=True)
class Preemptors:
    """What preempts, and what is in the way. `gang`: members of a gang, 0: single pods; `job`: pods of a job."""

    count: int
    gang: int = 0
    job: int = 1

    @property
    def budget_ms(self) -> float:
        return GANG_BUDGET_MS if self.gang else BUDGET_MS

    def arrivals(self, core: BareCore) -> Iterator[tuple[str, int]]:
        """Add the pods of one preemptor after the other; its name and the number of its pods."""
        cards = (NODE_GPUS,) if self.gang else REQUESTED_CARDS
        specs = [core.spec(_spec_of(each, HIGH_PRIORITY, core.scheduler_name)) for each in cards]
        for number, name in enumerate(names("important", 4 * self.count)):
            if self.gang:
                annotations = {GANG_NAME: name, GANG_MIN: str(self.gang)}
                for member in range(self.gang):
                    core.add_pod(f"{name}-{member}", specs[0], annotations=annotations)
                yield f"gang {name}", self.gang
            else:
                core.add_pod(name, specs[number % len(specs)])
                yield f"pod {name}", 1


def bench_preempt(
    nodes: int, pods: int, preemptors: Preemptors, progress: Progress, *, repeat: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench preempt`.

    Raises:
        UsageError: `pods` is not 1, 2, 4 or 8 times `nodes`.
        SubjectError: a preemptor found no victims, or was not bound afterwards.
    """
    each = _pods_of_a_node(nodes, pods)
    medians: list[float] = []
    samples: list[float] = []
    victims = 0
    for number in range(repeat):
        core = BareCore(seed=seed, preempting_jobs=bool(preemptors.gang))
        taken = _preempt(_filled(core, nodes, pods, NODE_GPUS // each, preemptors.job), preemptors)
        samples += [milliseconds for milliseconds, _ in taken]
        medians.append(percentile(sorted(milliseconds for milliseconds, _ in taken), 50))
        victims = sum(gone for _, gone in taken)
        progress(f"repetition {number + 1} of {repeat}: {medians[-1]:.2f} ms a preemption, {victims} victims")
    ordered = sorted(samples)
    judged = ordered[-1] if preemptors.gang else percentile(ordered, 50)
    return {
        "through": "core",
        "nodes": nodes,
        "pods": pods,
        "preemptions": preemptors.count,
        "gang": preemptors.gang,
        "job": preemptors.job,
        "victims": victims,
        "repeat": repeat,
        "seed": seed,
        "preemption_ms": {
            "p50": round(percentile(ordered, 50), 3),
            "p99": round(percentile(ordered, 99), 3),
            "highest": round(ordered[-1], 3),
        },
        "median_ms": {name: round(value, 3) for name, value in spread(medians).items()},
        "budget_ms": preemptors.budget_ms,
        "within_budget": judged <= preemptors.budget_ms,
    }


def _pods_of_a_node(nodes: int, pods: int) -> int:
    each, rest = divmod(pods, nodes)
    if rest or not 1 <= each <= NODE_GPUS or NODE_GPUS % each:
        raise UsageError(
            f"bench preempt: expected --pods to be 1, 2, 4 or 8 times --nodes, to fill the {NODE_GPUS} cards"
            f" of each node, found {pods} pods and {nodes} nodes"
        )
    return each


def _filled(core: BareCore, nodes: int, pods: int, cards: int, job: int) -> BareCore:
    """Fill the nodes with low-priority pods of `cards` cards each; `job` consecutive ones are a job."""
    for name in names("node", nodes):
        core.add_node(node_manifest(name), device_manifest(name))
    specs = [core.spec(_spec_of(cards, priority, core.scheduler_name)) for priority in range(LOW_PRIORITIES)]
    for number, name in enumerate(names("pod", pods)):
        labels = {JOB_LABEL: f"job-{number // job}"} if job > 1 else {}
        core.add_pod(name, specs[number // job % LOW_PRIORITIES], labels=labels)
    placed = 0
    while core.ready:
        placed += core.decide()
    if placed != pods:
        raise SubjectError(f"bench preempt: expected {pods} pods to fill the nodes, found {placed} placed")
    return core


def _preempt(core: BareCore, preemptors: Preemptors) -> list[tuple[float, int]]:
    """For each preemption: milliseconds of the decision, and the number of victims."""
    taken: list[tuple[float, int]] = []
    gc.collect()
    gc.freeze()  # as the scheduler's process does after the first synchronisation
    try:
        for name, members in preemptors.arrivals(core):
            core.evicted.clear()
            if not core.ready:
                raise SubjectError(f"bench preempt: expected {name} to be ready, found it held back")
            began = time.perf_counter()
            bound = core.decide()
            seconds = time.perf_counter() - began
            if bound:  # earlier victims have left enough room
                continue
            if not core.evicted:
                raise SubjectError(f"bench preempt: expected victims for {name}, found none")
            taken.append((seconds * 1000, len(core.evicted)))
            for victim in list(core.evicted):
                core.remove_pod(victim)
            core.pause(PAUSE)
            while bound < members and core.ready:
                bound += core.decide()
            if bound != members:
                raise SubjectError(
                    f"bench preempt: expected {members} pods of {name} to be placed after the victims were removed,"
                    f" found {bound}"
                )
            if len(taken) == preemptors.count:
                return taken
    finally:
        gc.unfreeze()
    raise SubjectError(f"bench preempt: expected {preemptors.count} preemptions, found {len(taken)}; use more pods")


def _spec_of(cards: int, priority: int, scheduler: str) -> dict[str, Any]:
    """The spec of a pod with whole cards."""
    shape: ResourceList = {"cpu": str(cards), "memory": f"{cards}Gi", device.GPU: cards * 100}
    return {**pod_spec(shape, scheduler), "priority": priority}
