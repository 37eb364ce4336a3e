"""Random stories with reservations: every decision against the slow reference, every sum counted from nothing."""

import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import (
    Affinity,
    Container,
    ContainerPort,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
)
from seatrial.scheduler.api.reservation import INNER_RESERVATION, RESERVATION_ORDER, Reservation, is_reserve_pod
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, ResourceList, to_plain
from seatrial.scheduler.app import build_core
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.engine.tests.test_engine import configuration
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.reservation import lifecycle
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.tests.play import Play

AWAY = Affinity(
    pod_anti_affinity=PodAffinity((PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "c"})),))
)  # from pods that some reservations stand for
MARKS: list[tuple[dict[str, str], dict[str, str]]] = [  # labels, annotations
    ({}, {}),
    ({"app": "a"}, {}),
    ({"app": "a"}, {}),
    ({"app": "b"}, {}),
    ({"app": "a"}, {"scheduling.koordinator.sh/reservation-affinity": "{}"}),
    ({"app": "b"}, {"scheduling.koordinator.sh/reservation-affinity": '{"name": "r1"}'}),
    ({"app": "a"}, {"scheduling.koordinator.sh/reservation-affinity": '{"tolerations": [{"operator": "Exists"}]}'}),
    ({"app": "a"}, {"scheduling.koordinator.sh/exact-match-reservation": '{"resourceNames": ["cpu"]}'}),
    ({"scheduling.koordinator.sh/reservation-ignored": "true"}, {}),
]
OWNERS: list[list[dict[str, Any]]] = [
    [{"labelSelector": {"matchLabels": {"app": "a"}}}],
    [{"labelSelector": {"matchLabels": {"app": "b"}}}],
    [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}],
    [{"object": {"name": "p3"}}, {"object": {"uid": "u0005"}}],
]


REQUESTS: list[ResourceList] = [
    {"cpu": "1"},
    {"cpu": "2", "memory": "1Gi"},
    {"cpu": "4", "memory": "4Gi"},
    {"cpu": "1", GPU: 100},
    {"cpu": "1", GPU: 200},
    {"cpu": "1", GPU: 50},
    {GPU_CORE: 30, GPU_MEMORY_RATIO: 20},
    {"cpu": "1", GPU: 100, RDMA: 50},
    {GPU: 400},
    {"cpu": "6"},
]
KINDS = ["pod"] * 8 + ["reserve"] * 4 + ["delete"] * 4 + ["over", "leave", "node", "gone", "foreign", "later"]


def a_node(rng: random.Random) -> tuple[Node, Device | None]:
    name, cards = f"n{rng.randrange(5)}", rng.choice([0, 2, 4, 4])
    topology = [DeviceTopology(node_id=minor // 2, pcie_id=str(minor // 2)) for minor in range(cards)]
    infos = [
        DeviceInfo(
            "gpu",
            minor,
            f"GPU-{minor}",
            health=True,
            topology=topology[minor] if name != "n1" else None,
            resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "24Gi"},
        )
        for minor in range(cards)
    ]
    infos.append(DeviceInfo("rdma", 0, "0000:1f:00.0", health=True, resources={RDMA: 100}))
    allocatable: ResourceList = {"cpu": rng.choice(["8", "16"]), "memory": "32Gi", "pods": rng.choice(["6", "20"])}
    allocatable |= {GPU: cards * 100, GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100, RDMA: 100}
    taints = () if rng.randrange(6) else (Taint("gpu", effect="NoSchedule"),)
    labels = {"zone": rng.choice("ab"), "kubernetes.io/hostname": name}
    node = Node(
        ObjectMeta(name=name, uid=name, labels=labels), NodeSpec(taints=taints), NodeStatus(allocatable=allocatable)
    )
    return node, Device(ObjectMeta(name=name), DeviceSpec(tuple(infos))) if cards else None


def a_spec(rng: random.Random) -> PodSpec:
    requests = rng.choice(REQUESTS)
    ports = (ContainerPort(80, 80),) if not rng.randrange(10) else ()
    return PodSpec(
        containers=(Container(resources=ResourceRequirements(requests), ports=ports),),
        node_selector={"zone": rng.choice("ab")} if not rng.randrange(6) else {},
        affinity=AWAY if not rng.randrange(8) else None,
        tolerations=(Toleration(key="gpu", operator="Exists"),) if rng.randrange(2) else (),
        priority=rng.choice([0, 0, 10]),
    )


def a_reservation(rng: random.Random) -> dict[str, Any]:
    template: dict[str, Any] = {"spec": to_plain(a_spec(rng)), "metadata": {"labels": {"app": rng.choice("abc")}}}
    spec: dict[str, Any] = {
        "template": template,
        "owners": rng.choice(OWNERS),
        "ttl": "24h",
        "allocateOnce": not rng.randrange(3),
        "allocatePolicy": rng.choice(["", "Aligned", "Restricted"]),
    }
    if not rng.randrange(6):
        template["spec"]["containers"][0]["resources"]["requests"]["pods"] = 2
    if not rng.randrange(6):
        spec["taints"] = [{"key": "t", "effect": "NoSchedule"}]
    if not rng.randrange(8):
        spec["unschedulable"] = True
    annotations = {INNER_RESERVATION: '{"resources": {"cpu": "1"}}'} if not rng.randrange(6) else {}
    labels = {RESERVATION_ORDER: str(rng.randrange(4))} if not rng.randrange(3) else {}
    return {"spec": spec, "labels": labels, "annotations": annotations}


def an_event(rng: random.Random) -> tuple[str, Any]:
    kind = rng.choice(KINDS)
    match kind:
        case "pod" | "foreign":
            labels, annotations = rng.choice(MARKS)
            return kind, (a_spec(rng), ObjectMeta(namespace="d", labels=labels, annotations=annotations))
        case "reserve":
            return kind, a_reservation(rng)
        case "node":
            return kind, a_node(rng)
        case _:
            return kind, rng.randrange(1000)


class Story(Play):
    """A play in which the API server's part for reservations is played as well."""

    def __init__(self, profile: str) -> None:
        super().__init__(configuration(profile))
        self.profile = profile
        self.reservations: dict[str, Reservation] = {}
        self.nodes: dict[str, tuple[Node, Device | None]] = {}

    def act(self, kind: str, what: Any) -> None:
        match kind:
            case "reserve":
                number = len(self.reservations)
                marks = {"labels": what["labels"], "annotations": what["annotations"]}
                metadata = {"name": f"r{number}", "uid": f"r{number:04}", "creationTimestamp": self.clock.timestamp()}
                self.show(msgspec.convert({"metadata": metadata | marks, "spec": what["spec"]}, Reservation))
            case "over" if self.reservations:
                self.change(self.reservation(what), lifecycle.run_out(self.reservation(what), self.clock.now()))
            case "leave" if self.reservations:
                gone = self.reservation(what)
                self.core.intake.remove_reservation(gone.metadata.uid)
                self.reservations[gone.metadata.uid] = replace(gone, status=replace(gone.status, phase="Failed"))
            case "node":
                self.nodes[what[0].name] = what
            case "gone":
                self.nodes.pop(f"n{what % 8}", None)
            case "later":
                self.clock.advance(float(what))
            case _:
                pass
        super().act(kind, what)

    def reservation(self, number: int) -> Reservation:
        return self.reservations[sorted(self.reservations)[number % len(self.reservations)]]

    def show(self, reservation: Reservation) -> None:
        self.reservations[reservation.metadata.uid] = reservation
        self.core.intake.set_reservation(reservation)

    def change(self, reservation: Reservation, fields: dict[str, Any]) -> None:
        """Write status as the API server would."""
        self.show(
            replace(
                reservation, status=msgspec.convert(to_plain(reservation.status) | fields, type(reservation.status))
            )
        )

    def bind(self, decision: Bind) -> None:
        info = decision.info
        self.core.bound(info.uid)
        if is_reserve_pod(info.pod):
            reservation = self.reservations[info.uid]
            metadata = replace(
                reservation.metadata, annotations={**reservation.metadata.annotations, **decision.annotations}
            )
            status = lifecycle.placed(reservation, decision.node, self.clock.now())
            self.change(replace(reservation, metadata=metadata), status)
            return
        metadata = replace(info.pod.metadata, annotations={**info.pod.metadata.annotations, **decision.annotations})
        pod = Pod(metadata, replace(info.pod.spec, node_name=decision.node))
        self.bound[info.uid] = (pod, decision.node)
        self.core.intake.set_pod(pod)

    def evict(self, victim: PodInfo) -> None:
        assert not is_reserve_pod(victim.pod), "a reservation is never a victim"

    def confirm(self) -> None:
        """Let status say who is in which reservation; those that serve once are done with that."""
        reservation_cache = ReservationCache.of(self.core.handle)
        while reservation_cache.moved:
            uid = reservation_cache.moved.pop()
            reserved = reservation_cache.find(uid)
            if reserved is not None:
                pods = [info.pod for info in reservation_cache.pods_in(uid)]
                fields = lifecycle.used(self.reservations[uid], pods, reserved.allocated, self.clock.now())
                if fields is not None:
                    fields["allocated"] = {k: v for k, v in fields["allocated"].items() if v is not None}
                    self.change(self.reservations[uid], fields)

    def check(self) -> None:
        """A scheduler that starts now finds everything as it is here."""
        fresh: Core = build_core(configuration(self.profile), SimClock(), seed=3)
        for node, device in self.nodes.values():
            fresh.intake.set_node(node)
            fresh.intake.set_device(node.name, device)
        for pod, name in self.bound.values():
            fresh.intake.set_pod(Pod(pod.metadata, replace(pod.spec, node_name=name)))
        for reservation in self.reservations.values():
            if not reservation.ended:
                fresh.intake.set_reservation(reservation)
        assert summed(fresh) == summed(self.core)


def summed(core: Core) -> dict[str, Any]:
    """By node: what is requested of each resource, and how much of each device is used.

    Devices of an object that was deleted are left out: a scheduler that starts after that does not know of them.
    """
    devices = DeviceCache.of(core.handle)
    names = core.cache.columns.resources.names
    by_node = {}
    for node in core.cache:
        there = devices.find(node.name)
        used = there.state.used if there is not None and there.listed and not there.deleted else None
        amounts = {name: value for name, value in zip(names, node.requested, strict=False) if value}
        by_node[node.name] = (amounts, used, sorted(node.pods))
    return by_node


@pytest.mark.parametrize("profile", ["spread", "pack"])
@pytest.mark.parametrize("seed", range(25))
def test_reservations_change_nothing_that_they_should_not(profile: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 a story, not a secret
    play = Story(profile)
    for _ in range(5):
        play.act("node", a_node(rng))
    for _ in range(70):
        play.act(*an_event(rng))
    play.check()
