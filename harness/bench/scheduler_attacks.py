"""Objects of `bench hostile` that would stop the scheduler without limits, and the latency of other pods beside them.

The scheduler runs in virtual time on a small cluster, on an API server that validates nothing. Each attack has a fresh
one. The latency of a pod, from its creation to its binding, is measured in processor time of the process.
"""

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.hostile import figures_of
from seatrial.harness.fuzzing.scheduler_objects import OBJECTS
from seatrial.harness.fuzzing.scheduler_world import PODS, PROBE_SECONDS, World
from seatrial.scheduler.api.device import DEVICE_ALLOCATE_HINT, GPU_PARTITION_SPEC, GPU_PARTITIONS
from seatrial.scheduler.api.numa import CPU_TOPOLOGY, NODE_RESERVATION, RESOURCE_STATUS
from seatrial.scheduler.api.podgroup import GANG_GROUPS, GANG_MIN, GANG_WAITING_TIME
from seatrial.scheduler.api.quota import NAMESPACES

PROBES: Final = 20  # pods that are created one after the other beside the objects of a round
LIMIT: Final = 2.0  # seconds of processor time: the p99 of the pods
_STEP: Final = 0.01  # seconds of virtual time after which a binding is looked for
_BY_NAME: Final = {(where.rpartition("/")[2], obj["metadata"]["name"]): (where, obj) for where, obj in OBJECTS}


@dataclass(frozen=True, slots=True)
class SchedulerAttack:
    """An object of OBJECTS with hostile values, one for each round."""

    name: str
    plural: str
    base: str
    change: Callable[[dict[str, Any]], None]

    def object(self, number: int) -> tuple[str, dict[str, Any]]:
        """The path of its collection, and the object."""
        where, obj = copy.deepcopy(_BY_NAME[self.plural, self.base])
        if where == PODS:  # a node, a quota and the like is changed again instead
            obj["metadata"] |= {"name": f"hostile-{number}", "uid": f"hostile-{number}"}
        self.change(obj)
        return where, obj


def _note(name: str, plural: str, base: str, key: str, value: Any) -> SchedulerAttack:
    """An attack by an annotation."""
    text = value if isinstance(value, str) else json.dumps(value)
    return SchedulerAttack(name, plural, base, lambda obj: obj["metadata"]["annotations"].update({key: text}))


def _fields(name: str, plural: str, base: str, part: str = "spec", **values: Any) -> SchedulerAttack:
    """An attack by fields of the spec, or of the status."""
    return SchedulerAttack(name, plural, base, lambda obj: obj[part].update(values))


def _containers(count: int, cpu: str) -> list[dict[str, Any]]:
    return [{"name": f"c{at}", "resources": {"requests": {"cpu": cpu}}} for at in range(count)]


def _affinity(count: int) -> dict[str, Any]:
    rules = [{"key": f"k{at}", "operator": "In", "values": [f"v{at}"]} for at in range(count)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in rules]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _pod_affinity(count: int) -> dict[str, Any]:
    terms = [
        {"topologyKey": f"key{at % 16}", "labelSelector": {"matchLabels": {"app": f"x{at}"}}} for at in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _spread(count: int) -> list[dict[str, Any]]:
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}
    return [{**rule, "topologyKey": f"key{at}"} for at in range(count)]


_CPUS: Final = [{"id": at, "core": at, "socket": 0, "node": 0} for at in range(5_000)]
_PARTITIONS: Final = {"1": [{"minors": [at % 8], "ringBusBandwidth": f"{at}Gi"} for at in range(4_000)]}
_OWNERS: Final = [{"labelSelector": {"matchLabels": {f"k{at}": "v"}}} for at in range(10_000)]
_REQUIREMENTS: Final = [{"key": f"k{at}", "operator": "Exists"} for at in range(10_000)]
_IMAGES: Final = [{"names": [f"i{at}:1"], "sizeBytes": at} for at in range(9_000)]
_USAGE: Final = [{"namespace": "a", "name": f"p{at}", "podUsage": {"resources": {"cpu": "1"}}} for at in range(10_000)]

_LOOP: Final = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(%s, "
_SLOW: Final = f"{_LOOP % 'a'}{_LOOP % 'b'}{_LOOP % 'c'}a + b + c > 0)))"
_DOUBLED: Final = "[1]" + ".map(x, [x, x])" * 60 + " == [[1]]"
_CARDS: Final = [{"name": f"d{at}", "attributes": {"n": {"int": at}}} for at in range(128)]


def _selectors(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


SCHEDULER_ATTACKS: Final[Sequence[SchedulerAttack]] = (
    _note("gang-waiting-time", "pods", "member", GANG_WAITING_TIME, "1" * 200_000),
    _note("gang-groups", "pods", "member", GANG_GROUPS, [f"default/g{at}" for at in range(10_000)]),
    _note("gang-size", "pods", "member", GANG_MIN, "9" * 5_000),
    _note("partition-spec", "pods", "cards", GPU_PARTITION_SPEC, {"ringBusBandwidth": "1" * 60_000 + "x"}),
    _note("deep-json", "pods", "cards", DEVICE_ALLOCATE_HINT, '{"gpu":' + "[" * 200_000),
    _note("cpuset", "pods", "bound", RESOURCE_STATUS, {"cpuset": "0-1," * 50_000 + "0-99999999999"}),
    _note("reserved-cpus", "nodes", "n1", NODE_RESERVATION, {"reservedCPUs": "0-99999999999," * 15_000}),
    _note("cpu-topology", "noderesourcetopologies", "n1", CPU_TOPOLOGY, {"detail": _CPUS}),
    _note("partitions", "devices", "n1", GPU_PARTITIONS, _PARTITIONS),
    _note("quota-namespaces", "elasticquotas", "team", NAMESPACES, [f"n{at}" for at in range(15_000)]),
    _fields("reservation-ttl", "reservations", "kept", ttl="1" * 100_000),
    _fields("reservation-expires", "reservations", "kept", expires="0000-01-01T00:00:00Z"),
    _fields("reservation-owners", "reservations", "kept", owners=_OWNERS),
    _fields("quota-amounts", "elasticquotas", "team", max={f"a.b/r{at}": "1e1000" for at in range(10_000)}),
    _fields("request", "pods", "cores", containers=_containers(1, "1e1000")),
    _fields("request-digits", "pods", "cores", containers=_containers(1, "1" * 1_000_000)),
    _fields("containers-of-a-pod", "pods", "cores", containers=_containers(5_000, "1m")),
    _fields("node-affinity", "pods", "cores", affinity=_affinity(10_000)),
    _fields("pod-anti-affinity", "pods", "cores", affinity=_pod_affinity(5_000)),
    _fields("spread-constraints", "pods", "cores", topologySpreadConstraints=_spread(2_000)),
    _fields("tolerations-of-a-pod", "pods", "cores", tolerations=[{"key": f"k{at}"} for at in range(5_000)]),
    _fields("node-selector", "pods", "cores", nodeSelector={f"k{at}": "v" for at in range(10_000)}),
    _fields("taints", "nodes", "n1", taints=[{"key": f"k{at}", "effect": "NoSchedule"} for at in range(5_000)]),
    _fields("allocatable", "nodes", "n1", "status", allocatable={"cpu": "1e1000", "memory": "1" * 1_000_000}),
    _fields("images", "nodes", "n1", "status", images=_IMAGES),
    _fields("node-metric", "nodemetrics", "n1", "status", podsMetric=_USAGE),
    _fields("slices", "resourceslices", "n1-x.io", devices=_CARDS),
    _fields(
        "class-steps", "deviceclasses", "card", selectors=_selectors(f"device.attributes['x.io'].n < 0 || {_SLOW}")
    ),
    _fields("class-lists", "deviceclasses", "card", selectors=_selectors(_DOUBLED)),
    _fields("disruption-budget", "poddisruptionbudgets", "budget", selector={"matchExpressions": _REQUIREMENTS}),
)


def bench_scheduler_attacks(
    attacks: Sequence[SchedulerAttack], rounds: int, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Give the scheduler the objects of each attack, one a round. Returns figures by attack, in milliseconds."""
    figures = {}
    for attack in attacks:
        world = World()
        latencies = [
            _latency(world, f"probe-{number}-{probe}", attack.object(number) if probe == 0 else None)
            for number in range(rounds)
            for probe in range(PROBES)
        ]
        figures[attack.name] = {
            "bound": sum(bound for bound, _ in latencies),
            "pods": len(latencies),
            **figures_of("processor", [seconds for _, seconds in latencies], LIMIT),
        }
        figures[attack.name]["within_limit"] &= all(bound for bound, _ in latencies)
        progress(f"{attack.name}: {figures[attack.name]}")
    return figures


def _latency(world: World, name: str, hostile: tuple[str, Any] | None) -> tuple[bool, float]:
    """Whether a new pod is bound, and the processor time until then. `hostile`: an object that is created before it."""
    end, before = world.clock.now() + PROBE_SECONDS, time.process_time()
    if hostile is not None:
        world.server.put(*hostile)
    world.create(name)
    while not (bound := world.is_bound(name)) and world.clock.now() < end:
        world.clock.advance(_STEP)
    seconds = time.process_time() - before
    world.delete(name)
    world.clock.advance(1)  # what was rejected is tried again
    return bound, seconds
