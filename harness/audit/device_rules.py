"""Invariants of devices: sums of shares, existence, health, functions, scopes, partitions, and the annotation."""

from collections.abc import Iterator, Mapping

import msgspec

from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.harness.audit.invariants import Binding, BindingInvariant, Breach, Change, ChangeInvariant
from seatrial.harness.audit.placement_rules import selects
from seatrial.harness.audit.state import PodRecord
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_ISOLATION_PROVIDER,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS,
    NVIDIA_GPU,
    RDMA,
    DeviceAllocation,
    DeviceHint,
    DeviceInfo,
    JointAllocate,
    Partition,
)

_GPU_NAMES = frozenset({NVIDIA_GPU, "amd.com/gpu", "dcu.com/gpu", GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO})
_TYPE_OF = {**dict.fromkeys(_GPU_NAMES, "gpu"), RDMA: "rdma", FPGA: "fpga"}
KOORDINATOR = "koordinator.sh/"  # resources that only a scheduler which allocates can grant
_ROUNDING = 1  # percent that a conversion between bytes and percent may lose

Where = tuple[str, int]  # type and minor


def shares_of(record: PodRecord) -> Iterator[tuple[str, DeviceAllocation]]:
    """The pod's devices by type; none for an annotation that cannot be read (AUD-201 reports that)."""
    try:
        allocations = record.allocations
    except msgspec.DecodeError:
        return
    for kind, listed in allocations.items():
        for share in listed:
            yield kind, share


def _listed(binding: Binding) -> dict[Where, DeviceInfo]:
    if binding.device is None:
        return {}
    return {(device.type, device.minor): device for device in binding.device.spec.devices if device.minor is not None}


# -- the annotation ---------------------------------------------------------------------------------------------------


def _readable(binding: Binding) -> Breach | None:
    try:
        _ = binding.record.allocations
    except msgspec.DecodeError as error:
        return Breach(f"has an annotation {DEVICE_ALLOCATED} that cannot be read: {error}")
    return None


def _stable(change: Change) -> Breach | None:
    if not change.before.spec.node_name or change.after.terminated:
        return None
    before, after = (pod.metadata.annotations.get(DEVICE_ALLOCATED, "") for pod in (change.before, change.after))
    return Breach(f"had the devices {before} and later {after or 'none'}") if before and before != after else None


def _requested(requests: Amounts) -> dict[str, Amounts]:
    """Device requests by type."""
    totals: dict[str, Amounts] = {}
    for name, value in requests.items():
        if name in _TYPE_OF:
            totals.setdefault(_TYPE_OF[name], {})[name] = value
    return totals


def _granted(binding: Binding) -> Breach | None:
    """The cards of a vendor's plain resource are kubelet's to choose, unless the scheduler has shown that it does."""
    if binding.device is None:
        return None
    allocating, scheduler = binding.state.allocating, binding.pod.spec.scheduler_name
    there = {kind for kind, _ in _listed(binding)}
    kinds = {kind for kind, _ in shares_of(binding.record)}
    if allocating is not None and kinds:
        allocating.add(scheduler)
    ours = allocating is None or scheduler in allocating
    for kind, amounts_of in _requested(binding.record.requests).items():
        values = {name: value for name, value in amounts_of.items() if ours or name.startswith(KOORDINATOR)}
        if values and kind in there and kind not in kinds:
            return Breach(
                f"requests {_text(values)} and was bound to {binding.record.node} without devices of type {kind}"
            )
    return None


def _not_granted_unasked(binding: Binding) -> Breach | None:
    parts = {name.partition("/")[0] for name in binding.record.requests if "/" in name}
    kinds = [kind for kind, _ in shares_of(binding.record)]
    return Breach(f"requests no device and got devices of type {kinds[0]}") if kinds and not parts else None


def _amount(binding: Binding) -> Breach | None:
    """GPU amounts of the annotation equal those of the request, in percent of cards."""
    gpu = _requested(binding.record.requests).get("gpu", {})
    shares = [share for kind, share in shares_of(binding.record) if kind == "gpu"]
    if not shares:
        return None
    cards = sum(gpu.get(name, 0) * 100 for name in (NVIDIA_GPU, "amd.com/gpu", "dcu.com/gpu")) + gpu.get(GPU, 0)
    for name in (GPU_CORE, GPU_MEMORY_RATIO, GPU_MEMORY):
        amount = gpu.get(name, 0) or (cards if name != GPU_MEMORY else 0)
        total = sum(amounts(share.resources).get(name, 0) for share in shares)
        if amount and total != amount:
            return Breach(f"requests {amount} of {name} and got {total} on {len(shares)} cards")
    return None


def _memory_forms_agree(binding: Binding) -> Breach | None:
    listed = _listed(binding)
    for kind, share in shares_of(binding.record):
        info = listed.get((kind, share.minor))
        if kind != "gpu" or info is None:
            continue
        parts, total = amounts(share.resources), amounts(info.resources).get(GPU_MEMORY, 0)
        if not total or (GPU_MEMORY not in parts and GPU_MEMORY_RATIO not in parts):
            continue
        if GPU_MEMORY not in parts or GPU_MEMORY_RATIO not in parts:
            return Breach(f"its card {share.minor} has only one form of memory in the annotation: {_text(parts)}")
        if abs(parts[GPU_MEMORY] * 100 / total - parts[GPU_MEMORY_RATIO]) > _ROUNDING:
            return Breach(
                f"its card {share.minor} has {parts[GPU_MEMORY]} bytes, which is not {parts[GPU_MEMORY_RATIO]} %"
            )
    return None


def _no_duplicates(binding: Binding) -> Breach | None:
    seen: set[Where] = set()
    for kind, share in shares_of(binding.record):
        if (kind, share.minor) in seen:
            return Breach(f"got {kind} {share.minor} twice")
        seen.add((kind, share.minor))
    return None


def _ids(binding: Binding) -> Breach | None:
    listed = _listed(binding)
    for kind, share in shares_of(binding.record):
        info = listed.get((kind, share.minor))
        if info is not None and share.id and info.id and share.id != info.id:
            return Breach(
                f"its {kind} {share.minor} has the ID {share.id} in the annotation and {info.id} in the Device object"
            )
    return None


# -- the devices ------------------------------------------------------------------------------------------------------


def _exist(binding: Binding) -> Breach | None:
    listed = _listed(binding)
    for kind, share in shares_of(binding.record):
        if binding.device is not None and (kind, share.minor) not in listed:
            return Breach(f"got {kind} {share.minor}, which {binding.record.node} does not have")
    return None


def _healthy(binding: Binding) -> Breach | None:
    listed = _listed(binding)
    for kind, share in shares_of(binding.record):
        info = listed.get((kind, share.minor))
        if info is not None and not info.health:
            return Breach(f"got {kind} {share.minor} of {binding.record.node}, which is unhealthy")
    return None


def _sum(binding: Binding, resources: frozenset[str] | None) -> Breach | None:
    """Sums on each device of the pod; `resources` None: all but those of GPUs."""
    listed = _listed(binding)
    mine = {(kind, share.minor) for kind, share in shares_of(binding.record)}
    totals: dict[tuple[Where, str], int] = {}
    holders: dict[Where, list[PodRecord]] = {}
    for record in binding.use.with_devices.values():
        for kind, share in shares_of(record):
            where = (kind, share.minor)
            if where in mine:
                holders.setdefault(where, []).append(record)
                for name, value in amounts(share.resources).items():
                    totals[where, name] = totals.get((where, name), 0) + value
    for (where, name), total in totals.items():
        info = listed.get(where)
        if info is None or (name not in resources if resources is not None else name in _GPU_NAMES):
            continue
        have = amounts(info.resources).get(name)
        if have is not None and total > have:
            others = tuple(record for record in holders[where] if record.uid != binding.record.uid)
            text = f"{where[0]} {where[1]} of {binding.record.node} has {have} of {name}; its pods hold {total}"
            return Breach(f"{text}: {', '.join(record.key for record in holders[where])}", others)
    return None


def _core_sum(binding: Binding) -> Breach | None:
    return _sum(binding, frozenset({GPU_CORE}))


def _ratio_sum(binding: Binding) -> Breach | None:
    return _sum(binding, frozenset({GPU_MEMORY_RATIO}))


def _memory_sum(binding: Binding) -> Breach | None:
    return _sum(binding, frozenset({GPU_MEMORY}))


def _other_sum(binding: Binding) -> Breach | None:
    return _sum(binding, None)


def _whole_alone(binding: Binding) -> Breach | None:
    """A card of which one pod has 100 percent of memory has no other pod."""
    mine = {
        (kind, share.minor): amounts(share.resources).get(GPU_MEMORY_RATIO, 0) >= 100
        for kind, share in shares_of(binding.record)
        if kind == "gpu"
    }
    for other in binding.others_with_devices():
        for kind, share in shares_of(other):
            where = (kind, share.minor)
            if where in mine and (mine[where] or amounts(share.resources).get(GPU_MEMORY_RATIO, 0) >= 100):
                return Breach(
                    f"shares card {share.minor} of {binding.record.node} with {other.key}; one of them has it whole",
                    (other,),
                )
    return None


def _functions(record: PodRecord) -> Iterator[tuple[int, str]]:
    for kind, share in shares_of(record):
        if kind == "rdma" and share.extension is not None:
            for function in share.extension.vfs:
                yield share.minor, function.bus_id


def _functions_once(binding: Binding) -> Breach | None:
    mine = list(_functions(binding.record))
    if len(mine) != len(set(mine)):
        return Breach(f"got a virtual function twice: {mine}")
    for other in binding.others_with_devices():
        both = set(mine) & set(_functions(other))
        if both:
            return Breach(f"got the virtual function {min(both)[1]}, which {other.key} has", (other,))
    return None


# -- hints ------------------------------------------------------------------------------------------------------------


def _hints(record: PodRecord) -> Mapping[str, DeviceHint]:
    text = record.pod.metadata.annotations.get(DEVICE_ALLOCATE_HINT)
    try:
        return msgspec.json.decode(text, type=dict[str, DeviceHint]) if text else {}
    except msgspec.DecodeError:
        return {}


def _places(binding: Binding, kind: str) -> list[tuple[int, str]]:
    """NUMA node and PCIe switch of the pod's devices of one type, where known."""
    listed = _listed(binding)
    infos = (listed.get((of, share.minor)) for of, share in shares_of(binding.record) if of == kind)
    return [
        (device.topology.node_id, device.topology.pcie_id)
        for device in infos
        if device is not None and device.topology is not None
    ]


def _scope(binding: Binding) -> Breach | None:
    for kind, hint in _hints(binding.record).items():
        places = _places(binding, kind)
        numa, pcie = {place[0] for place in places}, set(places)
        wide = numa if hint.required_topology_scope == "NUMANode" else pcie
        if hint.required_topology_scope in {"NUMANode", "PCIe"} and len(wide) > 1:
            return Breach(f"requires {kind} devices of one {hint.required_topology_scope} and got {sorted(wide)}")
    return None


def _selected(binding: Binding) -> Breach | None:
    listed = _listed(binding)
    for kind, hint in _hints(binding.record).items():
        for of, share in shares_of(binding.record):
            info = listed.get((of, share.minor))
            if (
                of == kind
                and hint.selector is not None
                and info is not None
                and not selects(hint.selector, info.labels)
            ):
                return Breach(f"got {kind} {share.minor} with labels {info.labels}, which its hint excludes")
    return None


def _together(binding: Binding) -> Breach | None:
    text = binding.pod.metadata.annotations.get(DEVICE_JOINT_ALLOCATE)
    try:
        joint = msgspec.json.decode(text, type=JointAllocate) if text else JointAllocate()
    except msgspec.DecodeError:
        return None
    if joint.required_scope != "SamePCIe" or len(joint.device_types) < 2:
        return None
    first, *rest = ({place[1] for place in _places(binding, kind)} for kind in joint.device_types)
    for kind, switches in zip(joint.device_types[1:], rest, strict=True):
        if first and switches and first != switches:
            return Breach(f"requires {kind} on the switches {sorted(first)} and got {sorted(switches)}")
    return None


def _exclusive_switch(binding: Binding) -> Breach | None:
    for kind, hint in _hints(binding.record).items():
        if hint.exclusive_policy != "PCIeLevel":
            continue
        mine = {place[1] for place in _places(binding, kind)}
        listed = _listed(binding)
        for other in binding.others_with_devices():
            for of, share in shares_of(other):
                info = listed.get((of, share.minor))
                if of == kind and info is not None and info.topology is not None and info.topology.pcie_id in mine:
                    return Breach(
                        f"requires its switches exclusively; {other.key} has {kind} {share.minor} there", (other,)
                    )
    return None


def _partition(binding: Binding) -> Breach | None:
    """On a node whose partition table is mandatory, whole cards are a partition of the table."""
    device, node = binding.device, binding.node
    if device is None or node is None or not device.metadata.annotations.get(GPU_PARTITIONS):
        return None
    if device.metadata.labels.get(GPU_PARTITION_POLICY_LABEL) != "Honor":
        return None
    cards = [share for kind, share in shares_of(binding.record) if kind == "gpu"]
    minors = {card.minor for card in cards}
    if not cards or any(amounts(card.resources).get(GPU_MEMORY_RATIO, 0) < 100 for card in cards):
        return None
    try:
        table = msgspec.json.decode(device.metadata.annotations[GPU_PARTITIONS], type=dict[str, list[Partition]])
    except msgspec.DecodeError:
        return None
    if any(set(row.minors) == minors for row in table.get(str(len(minors)), ())):
        return None
    return Breach(f"got cards {sorted(minors)}, which are no partition of {node.name}")


def _isolation(binding: Binding) -> Breach | None:
    gpu_isolation_provider = binding.pod.metadata.labels.get(GPU_ISOLATION_PROVIDER, "")
    shared = [
        share
        for kind, share in shares_of(binding.record)
        if kind == "gpu" and amounts(share.resources).get(GPU_MEMORY_RATIO, 100) < 100
    ]
    if not gpu_isolation_provider or not shared or binding.node is None:
        return None
    has = binding.node.metadata.labels.get(GPU_ISOLATION_PROVIDER, "")
    if has == gpu_isolation_provider:
        return None
    return Breach(f"asks for isolation by {gpu_isolation_provider}; its node {binding.node.name} has {has or 'none'}")


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(counts.items()))


CHANGES = (ChangeInvariant("AUD-202", "The devices of a bound pod do not change", _stable),)
BINDINGS = (
    BindingInvariant("AUD-201", "The device annotation can be read", _readable, lasting=True),
    BindingInvariant("AUD-203", "A pod that requests devices gets devices, from a scheduler that allocates", _granted),
    BindingInvariant("AUD-204", "A pod that requests no devices gets none", _not_granted_unasked),
    BindingInvariant("AUD-205", "A pod gets the GPU amounts that it requests", _amount),
    BindingInvariant("AUD-206", "Memory in bytes and in percent of a card agree", _memory_forms_agree),
    BindingInvariant("AUD-207", "A pod does not get a device twice", _no_duplicates, lasting=True),
    BindingInvariant("AUD-208", "The annotation has the IDs of the Device object", _ids),
    BindingInvariant("AUD-209", "Devices in the annotation exist on the node", _exist),
    BindingInvariant("AUD-210", "An unhealthy device is not given out", _healthy),
    BindingInvariant("AUD-211", "Compute shares of a card are at most its capacity", _core_sum, lasting=True),
    BindingInvariant("AUD-212", "Memory shares of a card are at most 100 percent", _ratio_sum, lasting=True),
    BindingInvariant("AUD-213", "Memory of a card in bytes is not overcommitted", _memory_sum, lasting=True),
    BindingInvariant("AUD-214", "NICs, FPGAs and NPU resources are not overcommitted", _other_sum, lasting=True),
    BindingInvariant("AUD-215", "A whole card has one pod", _whole_alone, lasting=True),
    BindingInvariant("AUD-216", "A virtual function has one pod", _functions_once, lasting=True),
    BindingInvariant("AUD-217", "The required topology scope holds", _scope),
    BindingInvariant("AUD-218", "Devices match the selector of the hint", _selected),
    BindingInvariant("AUD-219", "A joint allocation with scope SamePCIe shares switches", _together),
    BindingInvariant("AUD-220", "A pod with exclusive policy PCIeLevel has its switches alone", _exclusive_switch),
    BindingInvariant("AUD-221", "Whole cards of a node with policy Honor are a partition", _partition),
    BindingInvariant("AUD-222", "The node provides the isolation that the pod asks for", _isolation),
)
