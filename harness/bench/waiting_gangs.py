"""`bench schedule --waiting-gangs`: what gangs that wait cost the pods that are placed meanwhile.

Three schedulers with the same nodes place the same pods: without waiting gangs, with gangs that wait for nodes of a
pool, and with such gangs that have to gather in one spine. They take turns, so that other load meets all three. Pods
leave again, so that room comes and goes on the nodes that the gangs wait for. Simulated time passes: backoffs end.
"""

import gc
import itertools
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.harness.bench.core import GC_THRESHOLDS, Progress, Size, nothing_placed
from seatrial.harness.bench.mixes import (
    NODE_CPU,
    NODE_GPUS,
    Mix,
    device_manifest,
    in_network,
    names,
    node_manifest,
    pod_spec,
    topology_manifest,
)
from seatrial.harness.errors import UsageError
from seatrial.harness.sample_statistics import rounded, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api import device
from seatrial.scheduler.api.networktopology import GATHER_SPEC, MUST_GATHER
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME
from seatrial.scheduler.api.wire import ResourceList

MEMBERS = 8
POOL = "seatrial.dev/pool"
POOL_NODES = MEMBERS - 1  # one node less than a gang needs: the gangs wait, however much room there is
SIZES = 8  # member shapes, so that not all gangs are alike
TURN = 50  # decisions of one scheduler before the next one has its turn
STEP = 0.01  # seconds of simulated time for each decision
KINDS = ("none", "plain", "gathered")


@dataclass(slots=True)
class _Contender:
    """One of the schedulers: its waiting gangs, and what it did."""

    core: BareCore
    running: deque[str] = field(default_factory=deque)
    placed: int = 0
    seconds: float = 0.0
    """Processor time of all decisions and departures."""

    def turn(self, most_running: int) -> None:
        """Make TURN decisions. Of the pods that were placed the oldest leave while more than `most_running` run."""
        core, running = self.core, self.running
        core.bound.clear()
        before = time.process_time()
        for _ in range(TURN):
            if not core.ready:
                break
            core.pause(STEP)
            self.placed += core.decide()
            running.extend(name for name, _ in core.bound)
            core.bound.clear()
            while len(running) > most_running:
                core.remove_pod(running.popleft())
        self.seconds += time.process_time() - before


def bench_waiting_gangs(
    size: Size, mix: Mix, gangs: int, progress: Progress, *, config: Path | None = None
) -> dict[str, Any]:
    """Run the benchmark; the field `waiting_gangs` of `bench schedule`.

    Args:
        gangs: Number of gangs that wait, of MEMBERS pods each.

    Raises:
        UsageError: `config` has no profile for the pods, or the nodes are too few.
    """
    if size.nodes <= POOL_NODES:
        raise UsageError(f"--waiting-gangs {gangs} needs more than {POOL_NODES} nodes, found --nodes {size.nodes}")
    samples: dict[str, list[float]] = {kind: [] for kind in KINDS}
    placed = 0
    for number in range(size.repeat):
        contenders = {kind: _Contender(_prepared(size, mix, kind, gangs, config)) for kind in KINDS}
        _run(list(contenders.values()), size.pods // 2)
        for kind, contender in contenders.items():
            samples[kind].append(contender.seconds * 1e6 / max(1, contender.placed))
        placed = contenders["none"].placed
        text = ", ".join(f"{kind} {samples[kind][-1]:.1f}" for kind in KINDS)
        progress(f"waiting gangs, repetition {number + 1} of {size.repeat}: us for a pod: {text}")
    return {
        "gangs": gangs,
        "members": MEMBERS,
        "placed": placed,
        "pod_us": {kind: rounded(spread(samples[kind]), 1) for kind in KINDS},
        "slower_percent": {kind: _slower(samples[kind], samples["none"]) for kind in KINDS[1:]},
        "invalid_because": nothing_placed(placed, size.pods),
    }


def _slower(samples: Sequence[float], without: Sequence[float]) -> dict[str, Any]:
    """How much longer a pod takes than without waiting gangs, in percent, by repetition."""
    return rounded(spread([100 * (one / other - 1) for one, other in zip(samples, without, strict=True)]), 1)


def _run(contenders: list[_Contender], most_running: int) -> None:
    """Let the schedulers take turns until none has a pod that is ready."""
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        for number in itertools.count():
            if not any(contender.core.ready for contender in contenders):
                return
            for offset in range(len(contenders)):  # another one is first each time
                contenders[(number + offset) % len(contenders)].turn(most_running)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _prepared(size: Size, mix: Mix, kind: str, gangs: int, config: Path | None) -> BareCore:
    """A scheduler whose gangs wait, with all pods in its queue."""
    core = BareCore(seed=size.seed, configuration=config)
    core.add_network_topology(topology_manifest())
    for number, name in enumerate(names("node", size.nodes)):
        node = in_network(node_manifest(name), size.nodes)
        if number < POOL_NODES:
            node["metadata"]["labels"][POOL] = "gangs"
        core.add_node(node, device_manifest(name))
    if kind != "none":
        _add_gangs(core, gangs, gathered=kind == "gathered")
    specs = [core.spec(mix.spec(number, core.scheduler_name)) for number in range(len(mix.shapes))]
    drawn = mix.draw(size.pods, size.seed, run=size.run)
    for index, (name, shape) in enumerate(zip(names("pod", size.pods), drawn, strict=True)):
        core.add_pod(name, specs[shape], mix.labels(shape), mix.annotations(index, size.pods))
    return core


def _add_gangs(core: BareCore, gangs: int, *, gathered: bool) -> None:
    """Add the gangs and let each be tried once.

    Raises:
        UsageError: the scheduler does not try them, or places one.
    """
    specs = [core.spec(_member(size, core.scheduler_name)) for size in range(SIZES)]
    for name, spec, annotations in _members(specs, gangs, gathered=gathered):
        core.add_pod(name, spec, None, annotations)
    if not core.ready:
        raise UsageError(f"--scheduler-config: expected a profile for scheduler {core.scheduler_name!r}, found none")
    while core.ready:
        if core.decide():
            raise UsageError(
                "--waiting-gangs: expected all gangs to wait, but one was placed: is Coscheduling disabled?"
            )


def _members(specs: list[Any], gangs: int, *, gathered: bool) -> Iterator[tuple[str, Any, dict[str, str]]]:
    rules = {GATHER_SPEC: json.dumps({"gatherStrategy": [{"layer": "SpineLayer", "strategy": MUST_GATHER}]})}
    for gang in range(gangs):
        annotations = {GANG_NAME: f"waits-{gang}", GANG_MIN: str(MEMBERS), **(rules if gathered else {})}
        for member in range(MEMBERS):
            yield f"waits-{gang}-{member}", specs[gang % SIZES], annotations


def _member(number: int, scheduler: str) -> dict[str, Any]:
    """A pod spec for all cards of a node of the pool; shapes differ in their CPUs."""
    allocatable: ResourceList = {"cpu": str(NODE_CPU - number), device.NVIDIA_GPU: str(NODE_GPUS)}
    return {**pod_spec(allocatable, scheduler), "nodeSelector": {POOL: "gangs"}}
