"""Devices for a request on one node: which, and how much of each.

Steps for GPUs in upstream are template, partition, topology, plain list (R32); here the plain list, which ranks devices
by score and takes the first that suffice. Upstream: deviceshare/device_allocator.go, device_resources.go.
"""

from scheduler.api.device import GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.api.requests import Amounts
from scheduler.framework.status import Status
from scheduler.plugins.deviceshare.cache import NodeDevices, Share, Shares, Slot
from scheduler.plugins.deviceshare.request import DeviceRequest, TypeRequest
from scheduler.plugins.deviceshare.scoring import Scorer


def allocate(node: NodeDevices, request: DeviceRequest, scorer: Scorer | None) -> Shares | Status:
    """Devices for every type of the request, or why not. Without a scorer: any that suffice (a trial)."""
    chosen: list[Share] = []
    for one in request.types:
        slots = list(node.slots(one.type))
        if not slots:
            return Status.unresolvable(f"Insufficient {one.type} devices")
        found = from_list(slots, one, scorer)
        if found is None:
            return Status.unschedulable(f"Insufficient {one.type} devices")
        chosen += [_share(slot, one) for slot in found]
    return tuple(chosen)


def from_list(slots: list[Slot], request: TypeRequest, scorer: Scorer | None) -> list[Slot] | None:
    """The best `request.count` devices: highest score first, then lowest minor (R47 to R49)."""
    enough = [slot for slot in slots if slot.healthy and all(slot.free(n) >= amount for n, amount in request.each)]
    if len(enough) < request.count:
        return None
    if scorer is not None and len(enough) > request.count:
        wanted = request.amounts
        enough.sort(key=lambda slot: (-scorer.score(slot.total, slot.frees(), wanted), slot.minor))
    return enough[: request.count]


def _share(slot: Slot, request: TypeRequest) -> Share:
    amounts = request.amounts
    if request.type == "gpu":
        fill_memory(amounts, slot.total)
    return Share(request.type, slot.minor, tuple(sorted(amounts.items())), slot.info.id if slot.info else "")


def fill_memory(amounts: Amounts, total: Amounts) -> None:
    """Say memory both ways, in bytes and in percent of this very card (R10)."""
    memory = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY_RATIO in amounts and GPU_MEMORY not in amounts:
        amounts[GPU_MEMORY] = amounts[GPU_MEMORY_RATIO] * memory // 100
    elif GPU_MEMORY in amounts and GPU_MEMORY_RATIO not in amounts:
        amounts[GPU_MEMORY_RATIO] = int(amounts[GPU_MEMORY] / memory * 100) if memory else 0
