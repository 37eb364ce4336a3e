"""Reasons of pods that fit nowhere, while few nodes of many change between two failures of a class."""

import random

import pytest

from seatrial.scheduler.api.core import Container, Node, NodeSpec, NodeStatus, PodSpec, ResourceRequirements, Taint
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NVIDIA_GPU,
    Device,
    DeviceInfo,
    DeviceSpec,
)
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList
from seatrial.scheduler.cache.columns import Rows
from seatrial.scheduler.config import parse
from seatrial.scheduler.engine import reasons
from seatrial.scheduler.engine.reasons import ReasonCollector
from seatrial.scheduler.framework.fit_error import Reasons
from seatrial.scheduler.tests.play import Play

NODES = 32


def node(number: int) -> tuple[Node, Device | None]:
    """Every fourth node has no cards; a tenth is cordoned, another tenth has a taint."""
    name, cards = f"n{number}", 2 if number % 4 else 0
    allocatable: ResourceList = {"cpu": "8", "memory": "32Gi", "pods": "20"}
    device = None
    if cards:
        allocatable |= {GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100, NVIDIA_GPU: cards}
        each: dict[str, str | int | float] = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "24Gi"}
        infos = tuple(DeviceInfo("gpu", minor, f"{name}-{minor}", health=True, resources=each) for minor in range(2))
        device = Device(ObjectMeta(name=name), DeviceSpec(infos))
    taints = (Taint(key="gpu", effect="NoSchedule"),) if number % 10 == 1 else ()
    spec = NodeSpec(unschedulable=number % 10 == 2, taints=taints)
    return Node(ObjectMeta(name=name, uid=name), spec, NodeStatus(allocatable=allocatable)), device


def spec(cpu: str, devices: ResourceList) -> PodSpec:
    requests: ResourceList = {"cpu": cpu, **devices}
    return PodSpec(containers=(Container(resources=ResourceRequirements(requests)),))


@pytest.mark.parametrize("single", [reasons.SINGLE_ROWS, 0])
def test_reasons_of_changed_nodes_equal_those_of_all_nodes(single: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come and go on 32 nodes; in between, three classes fail that need two cards, much CPU, or both.

    Explained one by one and with arrays, their messages are those of the reference.
    """
    monkeypatch.setattr(reasons, "SINGLE_ROWS", single)
    explained: list[int] = []
    one, some = ReasonCollector._explain_row, ReasonCollector._explain

    def count_one(self: ReasonCollector, row: int, reasons: Reasons) -> None:
        explained.append(1)
        one(self, row, reasons)

    def count_some(self: ReasonCollector, rows: Rows | None, reasons: Reasons) -> None:
        explained.append(0 if rows is None else -1)
        some(self, rows, reasons)

    monkeypatch.setattr(ReasonCollector, "_explain_row", count_one)
    monkeypatch.setattr(ReasonCollector, "_explain", count_some)
    chance = random.Random(7)  # noqa: S311
    play = Play(
        parse({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [{}]})
    )
    small = [spec("1", {GPU: 50}), spec("2", {NVIDIA_GPU: 1}), spec("3", {})]
    large = [spec("1", {NVIDIA_GPU: 2}), spec("7", {GPU: 30}), spec("6", {NVIDIA_GPU: 2})]
    play.tell([node(number) for number in range(NODES)], [])
    for number in range(1, NODES):
        play.act("foreign", (small[number % 3], ObjectMeta(namespace="d")))
    for _ in range(60):
        for _ in range(chance.randrange(1, 4)):
            play.act("pod", (chance.choice(small), ObjectMeta(namespace="d")))
        play.act("delete", chance.randrange(1000))
        play.act("pod", (chance.choice(large), ObjectMeta(namespace="d")))

    assert explained.count(1 if single else -1) > 50, "few failures looked at changed nodes alone"
