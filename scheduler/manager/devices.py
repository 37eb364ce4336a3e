"""What a node has of GPUs, NPUs and RDMA NICs: the sums over the healthy devices of its Device object (NR-23).

Follows Koordinator's pkg/slo-controller/noderesource/plugins/gpudeviceresource and rdmadevicereource. Messages are
Koordinator's.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_DRIVER_LABEL,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_SHARED,
    GPU_VENDOR_LABEL,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    Device,
)
from seatrial.scheduler.api.quantity import Quantity, QuantityError, amount
from seatrial.scheduler.api.wire import ObjectMeta, Wire, decoder

GPU_SHARED_GATE = "EnableSyncGPUSharedResource"
GPU_NAMES = (GPU, GPU_CORE, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
LABELS = (GPU_VENDOR_LABEL, GPU_MODEL_LABEL, GPU_DRIVER_LABEL)
PER_DEVICE = 100  # of gpu.shared and rdma
_WITH_GPU = {"", "nvidia"}  # vendors whose cards are also `koordinator.sh/gpu`

Totals = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """A Device object as the node's status shows it."""

    metadata: ObjectMeta
    amounts: Totals  # None: to be removed; names that are not there stay as they are
    labels: Mapping[str, str]
    wrong: str = ""  # why amounts stay as they are

    def on(self, node: Node) -> "NodeChange":
        """What differs on a node. A name that is to be removed stays with an allocatable amount of 0: kubelet would
        write it again, for a device plugin whose cards have all failed."""
        amounts = {name: value for name, value in self.amounts.items() if not _has(node, name, value)}
        labels = {label: value for label, value in self.labels.items() if node.metadata.labels.get(label) != value}
        return NodeChange(self, amounts, labels)

    @property
    def why(self) -> str:
        """What becomes of the amounts, a line for GPUs and one for NICs (D3-5)."""
        by_kind = {
            kind: {self.amounts[name] for name in names if name in self.amounts}
            for kind, names in (("gpu", GPU_NAMES), ("rdma", (RDMA,)))
        }
        return "\n".join(
            f"reset node {kind} resources" if values == {None} else f"node {kind} resources from device"
            for kind, values in by_kind.items()
            if values
        )


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What of a node differs from the totals: amounts, and labels to be written."""

    totals: DeviceTotals
    amounts: Totals
    labels: Mapping[str, str]


NO_DEVICE = DeviceTotals(ObjectMeta(), dict.fromkeys((*GPU_NAMES, RDMA)), {})


class _Head(Wire, frozen=True):
    metadata: ObjectMeta


_decode, _decode_head = decoder(Device), decoder(_Head)


def read_totals(manifest: bytes, *, shared: bool = False) -> DeviceTotals:
    """The totals of a Device object; `shared`: with `gpu.shared`.

    Raises:
        msgspec.MsgspecError: it has no readable metadata.
    """
    try:
        device = _decode(manifest)
    except msgspec.MsgspecError as error:
        return DeviceTotals(_decode_head(manifest).metadata, {}, {}, str(error))
    return device_totals(device, shared=shared)


def device_totals(device: Device, *, shared: bool = False) -> DeviceTotals:
    """The sums over healthy devices. Where an amount of a GPU cannot be read, only NICs have theirs (NR-24)."""
    healthy = [each for each in device.spec.devices if each.health]
    nics = sum(each.type == "rdma" for each in healthy)
    amounts: dict[str, int | None] = {RDMA: PER_DEVICE * nics or None}
    cards = [each for each in healthy if each.type == "gpu"]
    if not cards:
        return DeviceTotals(device.metadata, {**amounts, **dict.fromkeys(GPU_NAMES)}, {})
    sums: Counter[str] = Counter()
    try:
        for card in cards:
            sums.update({name: _amount(name, value) for name, value in card.resources.items() if name in GPU_NAMES})
    except QuantityError as error:
        return DeviceTotals(device.metadata, amounts, {}, str(error))
    own = device.metadata.labels
    if own.get(GPU_VENDOR_LABEL, "") in _WITH_GPU:
        sums[GPU] = sums[GPU_CORE]
    if shared:
        sums[GPU_SHARED] = PER_DEVICE * len(cards)
    labels = {label: own[label] for label in LABELS if label in own}
    return DeviceTotals(device.metadata, {**amounts, **sums}, labels)


def _amount(name: str, quantity: Quantity) -> int:
    value = amount(name, quantity)
    if value < 0:
        raise QuantityError(quantity, f"{name} is negative")
    return value


class NodeTotals:
    """The totals by node, as the watch of Devices shows them."""

    def __init__(self, reconcile: Callable[[str], object], reconcile_all: Callable[[], object]) -> None:
        """Called for a node whose Device has changed, and once when all Devices are known."""
        self._reconcile, self._reconcile_all = reconcile, reconcile_all
        self._totals: dict[str, DeviceTotals] = {}
        self._changes: dict[str, tuple[Node, NodeChange]] = {}  # reports come far more often than either changes
        self._listed = False

    def change(self, node: Node) -> NodeChange | None:
        """What differs on a node; None: the Devices are not known, or their kind is not served."""
        if not self._listed:
            return None
        totals = self._totals.get(node.name, NO_DEVICE)
        known = self._changes.get(node.name)
        if known is None or known[0] is not node or known[1].totals is not totals:
            known = self._changes[node.name] = (node, totals.on(node))
        return known[1]

    def set(self, totals: DeviceTotals) -> None:
        self._totals[totals.metadata.name] = totals
        if self._listed:
            self._reconcile(totals.metadata.name)

    def gone(self, totals: DeviceTotals) -> None:
        self._totals.pop(totals.metadata.name, None)
        if self._listed:
            self._reconcile(totals.metadata.name)

    def listed(self) -> None:
        """All Devices are known, now or longer."""
        if not self._listed:
            self._listed = True
            self._reconcile_all()

    def node_gone(self, name: str) -> None:
        self._changes.pop(name, None)


def _has(node: Node, name: str, value: int | None) -> bool:
    capacity, allocatable = node.status.capacity, node.status.allocatable
    try:
        if value is None:
            return not amount(name, allocatable.get(name, 0))
        return all(name in amounts and amount(name, amounts[name]) == value for amounts in (capacity, allocatable))
    except QuantityError:
        return False
