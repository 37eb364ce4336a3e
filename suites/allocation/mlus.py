"""MLU cards, their slices, and the lock of a node."""

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_SHARED

SERVER, CARD = "mlu370-x8-8", "mlu370-x8"


UNIT = 256 << 20  # bytes that one unit of vmemory stands for


MLU, VCORE, VMEMORY = "cambricon.com/mlu", "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory"


PLUGINS = "vendor-plugins"


LOCK = "cambricon.com/dsmlu.lock"


def slice_of(name: str, core: int, memory: int) -> PodBuilder:
    """A dynamic sMLU slice of the given percent and bytes, with both resource names."""
    return pod(name).resources(
        {GPU_SHARED: 1, GPU_CORE: core, GPU_MEMORY: memory, VCORE: core, VMEMORY: memory // UNIT}
    )
