"""Random stories in which reservations and their owners are bound and aligned, against the slow reference."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, ResourceRequirements
from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY_RATIO, Device
from seatrial.scheduler.api.numa import NUMA_TOPOLOGY_POLICY_LABEL, NUMA_TOPOLOGY_SPEC, QOS_LABEL, NodeResourceTopology
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList, to_plain
from seatrial.scheduler.app import build_core
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.engine.tests.test_engine import configuration
from seatrial.scheduler.engine.tests.test_engine_numa import _device
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.plugins.nodenuma.tests.machines import topology_of
from seatrial.scheduler.plugins.reservation.tests.test_reservation_stories import MARKS, OWNERS, Story, summed

REQUESTS: list[ResourceList] = [
    {"cpu": "2", "memory": "1Gi"},
    {"cpu": "3"},
    {"cpu": "4", "memory": "8Gi"},
    {"cpu": "6", "memory": "4Gi"},
    {"cpu": "2", GPU: 100},
    {"cpu": "4", GPU: 200},
    {"cpu": "1", GPU_CORE: 50, GPU_MEMORY_RATIO: 50},
    {"cpu": "10"},
]
KINDS = ["pod"] * 8 + ["reserve"] * 4 + ["delete"] * 4 + ["over", "leave", "later"]
SHAPE = (2, 1, 4, 2)


class Aligning(Story):
    """A story in which machines have NUMA nodes."""

    topologies: dict[str, NodeResourceTopology]

    def act(self, kind: str, what: Any) -> None:
        if kind == "machine":
            node, device, topology = what
            self.topologies = {**getattr(self, "topologies", {}), node.name: topology}
            self.core.intake.set_topology(node.name, topology)
            super().act("node", (node, device))
        else:
            super().act(kind, what)

    def check(self) -> None:
        fresh: Core = build_core(configuration(self.profile), SimClock(), seed=3)
        for node, device in self.nodes.values():
            fresh.intake.set_node(node)
            fresh.intake.set_device(node.name, device)
            fresh.intake.set_topology(node.name, self.topologies[node.name])
        for pod, name in self.bound.values():
            fresh.intake.set_pod(Pod(pod.metadata, replace(pod.spec, node_name=name)))
        for reservation in self.reservations.values():
            if not reservation.ended:
                fresh.intake.set_reservation(reservation)
        assert summed(fresh) == summed(self.core)
        assert aligned(fresh) == aligned(self.core)

    def check_bookings(self) -> None:
        for marks, allocated, totals in aligned(self.core).values():
            assert set(marks.values()) <= {1}, "no CPU is bound twice"
            for number, amounts in allocated.items():
                for name, value in amounts.items():
                    assert value <= totals[number][name], "no NUMA node is overbooked"


def aligned(core: Core) -> dict[str, Any]:
    """By node: how often each CPU is bound, and what is taken of each NUMA node, and what it has."""
    numa_cache = NumaCache.of(core.handle)
    by_node = {}
    for node in core.cache:
        there = numa_cache.find(node.name)
        assert there is not None
        state = there.state
        marks = {cpu: mark.pods for cpu, mark in sorted(state.marks.items())}
        allocated = {
            number: {name: value for name, value in sorted(amounts.items()) if value}
            for number, amounts in sorted(state.allocated.items())
        }
        by_node[node.name] = (marks, {number: cpus for number, cpus in allocated.items() if cpus}, state.totals)
    return by_node


def a_machine(rng: random.Random, number: int) -> tuple[Node, Device | None, NodeResourceTopology]:
    name, cards = f"n{number}", rng.choice([0, 4])
    allocatable: ResourceList = {"cpu": 16, "memory": "64Gi", "pods": "20"}
    allocatable |= {GPU: cards * 100, GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100}
    labels = {"zone": rng.choice("ab"), "kubernetes.io/hostname": name}
    policy = rng.choice(["", "SingleNUMANode", "SingleNUMANode", "Restricted", "BestEffort"])
    if policy:
        labels[NUMA_TOPOLOGY_POLICY_LABEL] = policy
    node = Node(ObjectMeta(name=name, uid=name, labels=labels), NodeSpec(), NodeStatus(allocatable=allocatable))
    return node, _device(name, cards, 2) if cards else None, topology_of(name, SHAPE, memory=32)


def words(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations that say how a pod is bound and aligned."""
    labels = {QOS_LABEL: "LSR"} if not rng.randrange(3) else {}
    message = {NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'} if not rng.randrange(4) else {}
    return labels, message


def a_spec(rng: random.Random) -> PodSpec:
    requests = rng.choice(REQUESTS)
    return PodSpec(containers=(Container(resources=ResourceRequirements(requests)),), priority=rng.choice([0, 0, 10]))


def an_event(rng: random.Random, marks: list[tuple[dict[str, str], dict[str, str]]]) -> tuple[str, Any]:
    kind = rng.choice(KINDS)
    labels, annotations = words(rng)
    match kind:
        case "pod":
            more, message = rng.choice(marks)
            return kind, (
                a_spec(rng),
                ObjectMeta(namespace="d", labels=labels | more, annotations=annotations | message),
            )
        case "reserve":
            template = {"spec": to_plain(a_spec(rng)), "metadata": {"labels": labels, "annotations": annotations}}
            spec = {
                "template": template,
                "owners": rng.choice(OWNERS),
                "ttl": "24h",
                "allocateOnce": not rng.randrange(3),
                "allocatePolicy": rng.choice(["", "Aligned", "Restricted"]),
            }
            return kind, {"spec": spec, "labels": {}, "annotations": {}}
        case _:
            return kind, rng.randrange(1000)


@pytest.mark.parametrize("profile", ["spread", "pack"])
@pytest.mark.parametrize("seed", range(15))
def test_aligned_pods_and_reservations_get_on(profile: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 a story, not a secret
    play = Aligning(profile)
    marks = MARKS if seed % 3 == 0 else MARKS[:-1]  # who ignores reservations takes what they hold as well
    for number in range(3):
        play.act("machine", a_machine(rng, number))
    for _ in range(60):
        play.act(*an_event(rng, marks))
        if marks is not MARKS:
            play.check_bookings()
    play.check()
