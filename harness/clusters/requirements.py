"""What a case's node must have, and which of the offered nodes have it. Pure functions over API objects.

Of cards and NICs a case gets exactly as many as it states, because it may expect the next pod to be refused: what a
node has beyond that is occupied for the time of the case. The same holds for CPU and memory where they are stated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seatrial.harness.allocations import device_allocations
from seatrial.harness.apiserver.quantities import amounts, binary
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import HardwareMissingError
from seatrial.harness.nodes.fleet import NodeEntry, checked_entry
from seatrial.harness.nodes.hardware import machine_of
from seatrial.harness.nodes.pod_requests import pod_requests
from seatrial.harness.nodes.topology import PLAIN
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_MODEL_LABEL, GPU_VENDOR_LABEL

TRIALS_LABEL = "seatrial.dev/trials"  # an administrator sets it to "true" on nodes that runs may use
CARD, NIC = "gpu", "rdma"
_CPU, _MEMORY = "cpu", "memory"


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A healthy device that no pod has a part of; `resources` as in the Device object."""

    minor: int
    id: str
    numa: int
    resources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OfferedNode:
    """A node of the cluster that is marked for trials, and what is free on it."""

    name: str
    vendor: str
    model: str
    cards: tuple[FreeDevice, ...]
    nics: tuple[FreeDevice, ...]
    cpu: int  # thousandths
    memory: int  # bytes
    lent: bool = False  # to a case that runs now
    taints: tuple[Mapping[str, str], ...] = ()  # of its owner; pods of the case tolerate them


@dataclass(frozen=True, slots=True)
class Requirement:
    """The hardware that a case states for one of its nodes."""

    node: str  # the name in the case
    cards: int = 0
    vendor: str = ""
    models: frozenset[str] = frozenset()  # labels of models; empty: any
    nics: int = 0
    numa: tuple[int, ...] = ()  # cards by NUMA node; empty: any
    cpu: int | None = None  # thousandths
    memory: int | None = None  # bytes
    only_simulated: str = ""  # what a case states that no real node can be made to have

    def __str__(self) -> str:
        which = " or ".join(sorted(self.models)) or self.vendor
        messages = [f"{self.cards} free cards ({which})"] if self.cards else []
        messages += [f"{self.nics} free NICs"] if self.nics else []
        messages += [f"cards by NUMA node {'+'.join(map(str, self.numa))}"] if self.numa else []
        messages += [f"{self.cpu / 1000:g} free cores"] if self.cpu is not None else []
        messages += [f"{binary(self.memory)} free memory"] if self.memory is not None else []
        return ", ".join(messages) or "anything"

    def shortage(self, offered: OfferedNode) -> str:
        """What the node lacks, in words; empty if it has all."""
        if self.cards and self.vendor != offered.vendor:
            return f"its cards are of vendor {offered.vendor or 'none'}"
        if self.cards and self.models and offered.model not in self.models:
            return f"its cards are {offered.model or 'of no model'}"
        if len(offered.cards) < self.cards:
            return f"{len(offered.cards)} free cards"
        if len(offered.nics) < self.nics:
            return f"{len(offered.nics)} free NICs"
        if self.numa and _by_numa(offered.cards) != self.numa:
            return f"cards by NUMA node {'+'.join(map(str, _by_numa(offered.cards)))}"
        if self.cpu is not None and offered.cpu < self.cpu:
            return f"{offered.cpu / 1000:g} free cores"
        if self.memory is not None and offered.memory < self.memory:
            return f"{binary(offered.memory)} free memory"
        return ""


def requirement_of(entry: Mapping[str, Any]) -> Requirement:
    """The requirement that an entry of a fleet states.

    Raises:
        UsageError: the entry has a mistake.
    """
    machine = machine_of(checked_entry(entry))
    node = msgspec.convert(dict(entry), NodeEntry)
    cards = [slot for slot in machine.slots if not slot.model.is_nic]
    vendors = {slot.model.vendor for slot in cards}
    models = {VENDORS[slot.model.vendor].label(slot.model.facts) for slot in cards}
    any_model = bool(node.devices) and all(group.vendor for group in node.devices if not _is_nic(group, machine))
    only_simulated = ""
    if len(models) > 1:
        only_simulated = "cards of several models in one node"
    elif node.pods is not None:
        only_simulated = f"a node for {node.pods} pods"
    elif node.kubelet != PLAIN:
        only_simulated = "settings of the kubelet"
    stated = amounts({key: value for key, value in ((_CPU, node.cpu), (_MEMORY, node.memory)) if value is not None})
    return Requirement(
        node.name,
        cards=len(cards),
        vendor=next(iter(vendors), ""),
        models=frozenset() if any_model else frozenset(models),
        nics=len(machine.slots) - len(cards),
        numa=_counts(slot.numa for slot in cards) if node.server else (),
        cpu=stated.get(_CPU),
        memory=stated.get(_MEMORY),
        only_simulated=only_simulated,
    )


def offered_node(
    node: Mapping[str, Any], device: Mapping[str, Any] | None, pods: Iterable[Pod], *, lent: bool
) -> OfferedNode:
    """What is free on a node: allocatable less requests, and devices of which no pod has a part."""
    taken: set[tuple[str, int]] = set()
    free = amounts((node.get("status") or {}).get("allocatable") or {})
    for pod in pods:
        if pod.status.phase in {"Succeeded", "Failed"}:
            continue
        taken |= {(kind, share.minor) for kind, shares in device_allocations(pod).items() for share in shares}
        for name, value in pod_requests(pod.spec).items():
            free[name] = free.get(name, 0) - value
    metadata = (device or {}).get("metadata") or {}
    labels = metadata.get("labels") or {}
    by_kind: dict[str, list[FreeDevice]] = {CARD: [], NIC: []}
    for entry in ((device or {}).get("spec") or {}).get("devices") or ():
        if entry.get("health") and (entry["type"], entry["minor"]) not in taken and entry["type"] in by_kind:
            numa = int((entry.get("topology") or {}).get("nodeID", -1))
            free_device = FreeDevice(entry["minor"], entry.get("id", ""), numa, entry.get("resources") or {})
            by_kind[entry["type"]].append(free_device)
    return OfferedNode(
        node["metadata"]["name"],
        labels.get(GPU_VENDOR_LABEL, ""),
        labels.get(GPU_MODEL_LABEL, ""),
        tuple(sorted(by_kind[CARD], key=lambda item: item.minor)),
        tuple(sorted(by_kind[NIC], key=lambda item: item.minor)),
        free.get(_CPU, 0),
        free.get(_MEMORY, 0),
        lent,
        tuple((node.get("spec") or {}).get("taints") or ()),
    )


def assign(requirements: Sequence[Requirement], offered: Sequence[OfferedNode]) -> dict[str, OfferedNode] | None:
    """A node for each requirement, those with the least surplus first; None while they are lent to other cases.

    Raises:
        HardwareMissingError: the nodes could not meet all requirements even if none of them was lent.
    """
    for requirement in requirements:
        if requirement.only_simulated:
            raise HardwareMissingError(f"needs {requirement.only_simulated}, which only simulated nodes have")
        lacking = {node.name: requirement.shortage(node) for node in offered}
        if all(lacking.values()):
            text = "; ".join(f"{name}: {why}" for name, why in sorted(lacking.items())) or "there are none"
            raise HardwareMissingError(
                f"needs a node with {requirement}; of the nodes with label {TRIALS_LABEL}: {text}"
            )
    if _assigned(list(requirements), list(offered)) is None:
        wanted_all = "; ".join(map(str, requirements))
        raise HardwareMissingError(
            f"needs {len(requirements)} nodes at once ({wanted_all}); {len(offered)} have the label {TRIALS_LABEL}"
        )
    return _assigned(list(requirements), [node for node in offered if not node.lent])


def _assigned(requirements: list[Requirement], offered: list[OfferedNode]) -> dict[str, OfferedNode] | None:
    if not requirements:
        return {}
    requirement, *others = requirements
    fitting = [node for node in offered if not requirement.shortage(node)]
    for node in sorted(fitting, key=lambda node: (len(node.cards) + len(node.nics), node.name)):
        rest = _assigned(others, [other for other in offered if other is not node])
        if rest is not None:
            return {requirement.node: node, **rest}
    return None


def _is_nic(group: Any, machine: Any) -> bool:
    return any(slot.model.is_nic and slot.model.model == group.model for slot in machine.slots)


def _by_numa(cards: Sequence[FreeDevice]) -> tuple[int, ...]:
    return _counts(card.numa for card in cards)


def _counts(numbers: Iterable[int]) -> tuple[int, ...]:
    """How often each number occurs, in the order of the numbers."""
    by_number: dict[int, int] = {}
    for number in sorted(numbers):
        by_number[number] = by_number.get(number, 0) + 1
    return tuple(by_number.values())
