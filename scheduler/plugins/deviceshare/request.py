"""Device requests: every accepted spelling converted to a number of devices and amounts of each.

Names are grouped by device type. A group must be one of the known combinations. The pod's sum is then split over
cards. Reasons of refusal are Koordinator's (deviceshare/utils.go, devicehandler_*.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from seatrial.scheduler.api.device import (
    AMD_GPU,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RDMA,
    DeviceType,
)
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.plugins.deviceshare.hints import NO_HINT, NO_HINTS, DeviceHints, TypeHint, survivors

_CARDS = frozenset({NVIDIA_GPU, AMD_GPU, HYGON_DCU})  # counted in whole cards
_GROUPS: Mapping[str, DeviceType] = {
    **dict.fromkeys(
        (*_CARDS, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP), "gpu"
    ),
    RDMA: "rdma",
    FPGA: "fpga",
}
_DIVIDED = (GPU_CORE, NPU_CORE, NPU_CPU, NPU_DVPP)

_COMBINATIONS: frozenset[frozenset[str]] = frozenset(
    frozenset(names)
    for names in (
        {NVIDIA_GPU},
        {AMD_GPU},
        {HYGON_DCU},
        {GPU},
        {FPGA},
        {RDMA},
        {GPU_MEMORY},
        {GPU_MEMORY_RATIO},
        {GPU_CORE, GPU_MEMORY},
        {GPU_CORE, GPU_MEMORY_RATIO},
        {NPU_CORE, GPU_MEMORY_RATIO},
        {GPU_SHARED, GPU_MEMORY},
        {GPU_SHARED, GPU_MEMORY_RATIO},
        {GPU_SHARED, GPU_CORE, GPU_MEMORY},
        {GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO},
        {GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY},
        {GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY},
    )
)


class InvalidRequestError(ValueError):
    """The request is invalid on every node; the text is Koordinator's reason."""


@dataclass(frozen=True, slots=True, eq=False)
class TypeRequest:
    """A number of devices of one type, and the amounts of each."""

    type: DeviceType
    count: int
    each: tuple[tuple[str, int], ...]  # resource and amount, sorted by name
    shared: bool = False
    everyone: bool = False  # every device that the hint selects, whatever their number; `count` has no meaning then
    hint: TypeHint = NO_HINT
    numa: frozenset[int] | None = None  # only devices on these NUMA nodes; None: any
    preferred: frozenset[int] = frozenset()  # minors that a plain list takes first

    @property
    def amounts(self) -> Amounts:
        return dict(self.each)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRequest:
    """A pod's device request, one entry for each type. Compared by identity: the plugin keeps one of each."""

    types: tuple[TypeRequest, ...]
    hints: DeviceHints = NO_HINTS
    joint: tuple[DeviceType, ...] = ()  # types that go together, the leading one first
    templates: tuple[tuple[str, str], ...] = ()  # vendor-model and name of slice templates with exactly these amounts

    @staticmethod
    def of(requests: Amounts, hints: DeviceHints = NO_HINTS) -> "DeviceRequest | None":
        """The request in a pod's summed requests and its annotations; None if they name no device.

        Raises:
            InvalidRequestError: the amounts or their combination mean nothing.
        """
        groups: dict[DeviceType, Amounts] = {}
        for name, amount in requests.items():
            group = _GROUPS.get(name)
            if group is not None and amount:
                groups.setdefault(group, {})[name] = amount
        if not groups:
            return None
        types = tuple(_of_type(group, groups[group], hints.hint(group)) for group in sorted(groups))
        return DeviceRequest(types, hints, survivors(hints, sorted(groups)))

    def within(self, numa: frozenset[int]) -> "DeviceRequest":
        """The same request restricted to devices on these NUMA nodes."""
        return replace(self, types=tuple(replace(part, numa=numa) for part in self.types))

    def preferring(self, devices: frozenset[tuple[str, int]]) -> "DeviceRequest":
        """The same request with a preference for these devices, given by type and minor."""
        types = (
            replace(part, preferred=frozenset(minor for kind, minor in devices if kind == part.type))
            for part in self.types
        )
        return replace(self, types=tuple(types))

    @property
    def plain(self) -> bool:
        """Whether amounts alone decide."""
        return (
            not self.joint
            and not self.templates
            and self.hints.partition is None
            and all(part.hint is NO_HINT for part in self.types)
        )

    def get(self, kind: DeviceType) -> TypeRequest | None:
        return next((request for request in self.types if request.type == kind), None)


def validate(group: Amounts) -> None:
    """Check one type's amounts (DEV-R4).

    Raises:
        InvalidRequestError: with Koordinator's text.
    """
    if not group:
        raise InvalidRequestError("pod request should not be empty")
    for name in (GPU, FPGA, RDMA):
        amount = group.get(name, 0)
        if amount > 100 and amount % 100:
            raise InvalidRequestError(f"invalid resource unit {name}: {amount}")
    names = frozenset(group)
    if names not in _COMBINATIONS or not _amounts_agree(group):
        raise InvalidRequestError(f"invalid resource device requests: [{' '.join(sorted(names))}]")


def _amounts_agree(group: Amounts) -> bool:
    core, ratio, shared = group.get(GPU_CORE, 0), group.get(GPU_MEMORY_RATIO, 0), group.get(GPU_SHARED, 0)
    if not shared:
        return all(amount <= 100 or amount % 100 == 0 for amount in (core, ratio))
    if NPU_CORE in group:
        return shared <= 1 and group.get(NPU_DVPP, 0) <= 100
    return all(amount % shared == 0 and amount // shared <= 100 for amount in (core, ratio))


def unified(group: Amounts) -> Amounts:
    """One type's amounts with vendors' and abbreviated names replaced (DEV-R6)."""
    for name in _CARDS:
        if name in group:
            return {GPU_CORE: group[name] * 100, GPU_MEMORY_RATIO: group[name] * 100}
    if GPU in group:
        return {GPU_CORE: group[GPU], GPU_MEMORY_RATIO: group[GPU]}
    return group


def _of_type(device_type: DeviceType, group: Amounts, hint: TypeHint) -> TypeRequest:
    validate(group)
    group = unified(group)
    return split_gpu(group, hint) if device_type == "gpu" else _split_plain(device_type, group, hint)


def split_gpu(group: Amounts, hint: TypeHint = NO_HINT) -> TypeRequest:
    """Split the sum over cards (DEV-R7), and whether the part of a card leaves room for other pods (DEV-R8)."""
    ratio = group.get(GPU_MEMORY_RATIO, 0)
    count = group.get(GPU_SHARED, 0) or (ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1)
    each = {name: group[name] // count for name in _DIVIDED if name in group}
    if ratio:
        each[GPU_MEMORY_RATIO] = ratio // count
    else:
        each[GPU_MEMORY] = group[GPU_MEMORY] // count
    shared = not ratio or each[GPU_MEMORY_RATIO] < 100
    return TypeRequest("gpu", count, tuple(sorted(each.items())), shared, hint=hint)


def _split_plain(device_type: DeviceType, group: Amounts, hint: TypeHint) -> TypeRequest:
    """Split NICs and FPGAs: multiples of 100 are whole devices; smaller amounts follow the hint (DEV-R14)."""
    ((name, amount),) = group.items()
    if amount > 100 and amount % 100 == 0:
        return TypeRequest(device_type, amount // 100, ((name, 100),), hint=hint)
    if hint.apply_for_all:
        return TypeRequest(device_type, 0, ((name, amount),), everyone=True, hint=hint)
    if hint.requests_as_count:
        return TypeRequest(device_type, amount, ((name, 100 if hint.whole_devices else 1),), hint=hint)
    return TypeRequest(device_type, 1, ((name, amount),), hint=hint)
