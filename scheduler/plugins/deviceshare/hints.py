"""Device hints in a pod's annotations: which devices, how many, and how close to each other.

Keys and values are Koordinator's (apis/extension/device_share.go). Invalid annotations are refused before any node is
evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    DEVICE_TYPES,
    GPU_PARTITION_SPEC,
    DeviceHint,
    DeviceType,
    JointAllocate,
    PartitionSpec,
)
from seatrial.scheduler.api.quantity import QuantityError, amount
from seatrial.scheduler.api.wire import LabelSelector, decode_as
from seatrial.scheduler.pods.selectors import selector_error

ANNOTATIONS = (DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE, GPU_PARTITION_SPEC)

NODE_LEVEL, NUMA_LEVEL, PCIE_LEVEL, DEVICE_LEVEL = 1, 2, 3, 4
_LEVELS = {"Node": NODE_LEVEL, "NUMANode": NUMA_LEVEL, "PCIe": PCIE_LEVEL, "Device": DEVICE_LEVEL}

T = TypeVar("T")


class InvalidHintError(ValueError):
    """An annotation is invalid; the text is Koordinator's reason."""


@dataclass(frozen=True, slots=True)
class TypeHint:
    """`device-allocate-hint` for one device type."""

    selector: LabelSelector | None = None  # only devices with matching labels
    vf_selector: LabelSelector | None = None  # each device must provide a virtual function of a matching group
    apply_for_all: bool = False
    requests_as_count: bool = False
    scope: int | None = None  # the widest scope that all GPUs must share, by level; None: any
    whole_devices: bool = False  # exclusivePolicy DeviceLevel
    whole_switches: bool = False  # exclusivePolicy PCIeLevel


NO_HINT = TypeHint()


@dataclass(frozen=True, slots=True)
class PartitionPreference:
    """`gpu-partition-spec`; a pod with this annotation requires the partition table."""

    restricted: bool = False  # only partitions with the best allocation score
    bandwidth: int = 0  # minimum ring bandwidth, in units of the quantity; 0: any


@dataclass(frozen=True, slots=True)
class DeviceHints:
    """The content of all device annotations of a pod."""

    hints: Mapping[str, TypeHint]
    joint: tuple[str, ...] = ()  # types that should share a PCIe switch, the first one leads
    same_pcie: bool = False  # the same PCIe switch is required
    partition: PartitionPreference | None = None

    def hint(self, device_type: DeviceType) -> TypeHint:
        return self.hints.get(device_type, NO_HINT)


NO_HINTS = DeviceHints({})


def read(annotations: Mapping[str, str]) -> DeviceHints:
    """Read a pod's device annotations (DEV-R13).

    Raises:
        InvalidHintError: one of the annotations is not what it should be.
    """
    if not any(name in annotations for name in ANNOTATIONS):
        return NO_HINTS
    hints = _decoded(annotations, DEVICE_ALLOCATE_HINT, dict[str, DeviceHint], "DeviceAllocateHint") or {}
    joint = _decoded(annotations, DEVICE_JOINT_ALLOCATE, JointAllocate, "DeviceJointAllocate") or JointAllocate()
    preference = _decoded(annotations, GPU_PARTITION_SPEC, PartitionSpec, "GPUPartitionSpec")
    return DeviceHints(
        {kind: _hint(kind, hint) for kind, hint in hints.items() if kind in DEVICE_TYPES},
        joint.device_types,
        joint.required_scope == "SamePCIe",
        _preference(preference) if preference is not None else None,
    )


def _decoded(annotations: Mapping[str, str], name: str, kind: type[T], spoken: str) -> T | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return decode_as(text, kind)
    except msgspec.DecodeError as error:
        raise InvalidHintError(f"invalid {spoken} annotation, err: {error}") from error


def _hint(kind: str, hint: DeviceHint) -> TypeHint:
    for selector, name in ((hint.selector, "Selector"), (hint.vf_selector, "VFSelector")):
        wrong = selector_error(selector) if selector is not None else ""
        if wrong:
            raise InvalidHintError(f"invalid {name} of DeviceHint, deviceType: {kind}, err: {wrong}")
    return TypeHint(
        hint.selector,
        hint.vf_selector,
        hint.allocate_strategy == "ApplyForAll",
        hint.allocate_strategy == "RequestsAsCount",
        _LEVELS.get(hint.required_topology_scope, 0) if hint.required_topology_scope else None,
        hint.exclusive_policy == "DeviceLevel",
        hint.exclusive_policy == "PCIeLevel",
    )


def _preference(spec: PartitionSpec) -> PartitionPreference:
    try:
        bandwidth = amount("ringBusBandwidth", spec.ring_bus_bandwidth) if spec.ring_bus_bandwidth != "" else 0
    except QuantityError as error:
        raise InvalidHintError(f"invalid GPUPartitionSpec annotation, err: {error}") from error
    return PartitionPreference(spec.allocate_policy == "Restricted", bandwidth)


def survivors(hints: DeviceHints, requested: Sequence[DeviceType]) -> tuple[DeviceType, ...]:
    """Types to allocate jointly, the primary one first; empty if the pod requests one type only (DEV-R17, DEV-R50)."""
    if len(requested) < 2:
        return ()
    return tuple(
        kind
        for name in dict.fromkeys(hints.joint)
        for kind in requested
        if kind == name and not hints.hint(kind).apply_for_all
    )
