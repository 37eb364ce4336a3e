"""Machines of the worked examples, and builders of device states and requests."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_PARTITION_SPEC,
    RDMA,
    DeviceInfo,
    DeviceTopology,
    VirtualFunction,
    VirtualFunctionGroup,
)
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.plugins.deviceshare.allocator import allocate
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.hints import read
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.shares import Function, Share
from seatrial.scheduler.plugins.deviceshare.states import NO_TRAITS, Choice, DeviceState, StateCache, Traits

GIB = 1 << 30
NIC_BUSES = {1: "0000:1f:00", 2: "0000:90:00", 3: "0000:51:00", 4: "0000:b9:00"}
NIC_LABELS = {"type": "fakeW"}
VF_LABELS = {"type": "fastVF"}


def card(minor: int, *, numa: int = 0, switch: str = "", memory: int = 80, health: bool = True) -> DeviceInfo:
    """A GPU; without a topology if no switch is given."""
    return DeviceInfo(
        "gpu",
        minor,
        f"GPU-{minor}",
        health=health,
        resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: f"{memory}Gi"},
        topology=DeviceTopology(0, numa, switch, f"0000:{minor:02}:00.0") if switch else None,
    )


def nic(
    minor: int, *, numa: int = 0, switch: str = "", bus: str = "", labels: Mapping[str, str] = NIC_LABELS
) -> DeviceInfo:
    """A NIC with four virtual functions if a bus is given."""
    functions = tuple(VirtualFunction(number, f"{bus}.{number}") for number in (4, 2, 5, 3)) if bus else ()
    return DeviceInfo(
        "rdma",
        minor,
        f"{bus}.0" if bus else f"nic-{minor}",
        labels=dict(labels),
        health=True,
        resources={RDMA: 100},
        topology=DeviceTopology(0, numa, switch, f"{bus}.0") if switch else None,
        vf_groups=(VirtualFunctionGroup(dict(VF_LABELS), functions),) if bus else (),
    )


def paired(nics_per_switch: int = 1) -> list[DeviceInfo]:
    """Eight cards, two per switch, two switches per NUMA node; NIC k is on switch k, and NIC k+4 optionally."""
    cards = [card(minor, numa=minor // 4, switch=f"s{minor // 2}") for minor in range(8)]
    nics = [
        nic(number, numa=(number - 1) % 4 // 2, switch=f"s{(number - 1) % 4}", bus=NIC_BUSES.get(number, "0000:dd:00"))
        for number in range(1, 4 * nics_per_switch + 1)
    ]
    return cards + nics


def single() -> list[DeviceInfo]:
    """Eight cards, each with a NIC on a switch of its own: card k and NIC k+1."""
    return [
        device
        for minor in range(8)
        for device in (
            card(minor, numa=minor // 4, switch=f"s{minor}"),
            nic(minor + 1, numa=minor // 4, switch=f"s{minor}"),
        )
    ]


def state(
    infos: Sequence[DeviceInfo],
    *,
    cards: Mapping[int, int] | None = None,
    nics: Mapping[int, int] | None = None,
    functions: Mapping[int, Sequence[str]] | None = None,
    traits: Traits = NO_TRAITS,
) -> DeviceState:
    """Cards and NICs in use by percent, and virtual functions by NIC."""
    states = StateCache()
    template, wrong = states.template(infos, traits)
    assert not wrong
    memory = {slot.minor: dict(slot.total).get(GPU_MEMORY, 0) for slot in template.slots if slot.type == "gpu"}
    shares = [
        Share(
            "gpu",
            minor,
            ((GPU_CORE, percent), (GPU_MEMORY_RATIO, percent), (GPU_MEMORY, memory[minor] * percent // 100)),
        )
        for minor, percent in (cards or {}).items()
    ]
    nics = dict.fromkeys(functions or {}, 1) | dict(nics or {})
    for minor, percent in nics.items():
        taken = tuple(Function(bus) for bus in (functions or {}).get(minor, ()))
        shares.append(Share("rdma", minor, ((RDMA, percent),), taken))
    return states.untouched(template).moved(shares, 1)


def whole(cards: int, **others: int) -> Amounts:
    """A request for whole cards, and percent of NICs if `rdma` is given."""
    return ({GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100} if cards else {}) | (
        {RDMA: others["rdma"]} if "rdma" in others else {}
    )


HALF: Amounts = {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}


def ask(amounts: Amounts, *, hint: Any = None, joint: Any = None, partition: Any = None) -> DeviceRequest:
    """A request with annotations, given as plain data."""
    messages = {DEVICE_ALLOCATE_HINT: hint, DEVICE_JOINT_ALLOCATE: joint, GPU_PARTITION_SPEC: partition}
    annotations = {name: msgspec.json.encode(value).decode() for name, value in messages.items() if value is not None}
    request = DeviceRequest.of(amounts, read(annotations))
    assert request is not None
    return request


JOINT = {"deviceTypes": ["gpu", "rdma"]}
FUNCTIONS = {"rdma": {"selector": {"matchLabels": NIC_LABELS}, "vfSelector": {"matchLabels": VF_LABELS}}}


def chosen(have: DeviceState, request: DeviceRequest, policy: Policy | None = None) -> dict[str, list[int]] | str:
    """Minors by type, or the reasons of the refusal."""
    allocation = allocate(have, request, policy or Policy())
    if not isinstance(allocation, Choice):
        return allocation.message
    minors: dict[str, list[int]] = {}
    for share in allocation.holding.shares:
        minors.setdefault(share.type, []).append(share.minor)
    return minors


def functions_chosen(have: DeviceState, request: DeviceRequest) -> list[str]:
    """Bus addresses of the virtual functions, device by device."""
    allocation = allocate(have, request, Policy())
    assert isinstance(allocation, Choice), allocation
    return [function.bus for share in allocation.holding.shares for function in share.functions]
