"""`bench gang-day`: a day of gangs that come and go, in virtual time, and a digest of all placements.

Nothing waits for real time: the scheduler's clock is moved to the next arrival or end. The digest covers each placement
with its second, so that two runs with one seed can be compared.
"""

import hashlib
import heapq
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial.harness.bench.mixes import device_manifest, in_network, names, node_manifest, pod_spec, topology_manifest
from seatrial.harness.sample_statistics import percentiles
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api import device
from seatrial.scheduler.api.networktopology import GATHER_SPEC, MUST_GATHER, PREFER_GATHER
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_MODE, GANG_NAME

DAY = 24 * 3600.0
GANGS_PER_HOUR = 40.0  # about nine tenths of the cards of 200 nodes
SIZES = (1, 2, 4, 8, 8, 16, 16, 32, 64)
CARDS = (1, 1, 2, 4, 8)
MEAN_SECONDS = 2400.0
STEP = 10.0  # seconds; longest time between two checks of the scheduler's timers
LAYERS = ("SpineLayer", "BlockLayer")


@dataclass(slots=True)
class Gang:
    """One job of the day: pods that end together, some time after the last of them was bound."""

    name: str
    members: int
    duration: float
    arrived: float
    waiting: int


def gang_day(nodes: int, seed: int, progress: Callable[[str], None], *, hours: float = 24.0) -> dict[str, Any]:
    """Run the day and return its figures."""
    rng = random.Random(seed)  # noqa: S311 a benchmark's arrivals
    core = BareCore(seed=seed)
    core.add_network_topology(topology_manifest())
    for name in names("node", nodes):
        core.add_node(in_network(node_manifest(name), nodes), device_manifest(name))
    began = time.perf_counter()
    digest = hashlib.sha256()
    gangs: dict[str, Gang] = {}
    ends: list[tuple[float, str]] = []
    waits: list[float] = []
    now, arrival, came, last = 0.0, rng.expovariate(GANGS_PER_HOUR / 3600), 0, hours * 3600
    rate = GANGS_PER_HOUR * nodes / 200 / 3600
    while now < last:
        moment = min(arrival, ends[0][0] if ends else last, now + STEP, last)
        core.pause(moment - now)
        now = moment
        while ends and ends[0][0] <= now:
            ended = gangs.pop(heapq.heappop(ends)[1])
            for number in range(ended.members):
                core.remove_pod(f"{ended.name}-{number}")
        if arrival <= now:
            submit = _submit(core, rng, f"gang-{came}", now)
            gangs[submit.name] = submit
            came += 1
            arrival = now + rng.expovariate(rate)
        for pod, node in core.place_all():
            digest.update(f"{now:.3f} {pod} {node}\n".encode())
            gang = gangs[pod.rpartition("-")[0]]
            gang.waiting -= 1
            if not gang.waiting:
                waits.append(now - gang.arrived)
                heapq.heappush(ends, (now + gang.duration, gang.name))
    progress(f"{hours:g} virtual hours in {time.perf_counter() - began:.1f} s")
    return {
        "nodes": nodes,
        "hours": hours,
        "seed": seed,
        "gangs": came,
        "bound": len(waits),
        "waiting": sum(1 for gang in gangs.values() if gang.waiting),
        "partly_bound": sum(1 for gang in gangs.values() if 0 < gang.waiting < gang.members),
        "wait_seconds": percentiles(waits) if waits else {},
        "digest": digest.hexdigest(),
        "seconds": round(time.perf_counter() - began, 2),
    }


def _submit(core: BareCore, rng: random.Random, name: str, now: float) -> Gang:
    members, cards = rng.choice(SIZES), rng.choice(CARDS)
    annotations = {GANG_NAME: name, GANG_MIN: str(members)}
    if rng.random() < 0.2:
        annotations[GANG_MODE] = "NonStrict"
    elif rng.random() < 0.6:
        rule = {"layer": rng.choice(LAYERS), "strategy": rng.choice((MUST_GATHER, PREFER_GATHER))}
        annotations[GATHER_SPEC] = json.dumps({"gatherStrategy": [rule]})
    spec = core.spec(pod_spec({"cpu": "4", "memory": "16Gi", device.GPU: 100 * cards}, core.scheduler_name))
    for number in range(members):
        core.add_pod(f"{name}-{number}", spec, annotations=annotations)
    return Gang(name, members, rng.expovariate(1 / MEAN_SECONDS) + 60, now, members)
