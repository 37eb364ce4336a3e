"""HAMi-core in a container: limits, library and mounts, as koordlet's hook "gpu env inject" writes them."""

from seatrial.harness.devices.hami_release import incompatible
from seatrial.harness.devices.provider import Assignment, FailureKind, Mount, ProviderError, Share
from seatrial.scheduler.api import device as words

VGPU_FOLDER = "/usr/local/vgpu"
VGPU_LIBRARY = f"{VGPU_FOLDER}/libvgpu.so"
VGPU_LOCK = "/tmp/vgpulock"  # noqa: S108 the protocol's own path
MONITOR_ANNOTATION = "seatrial.dev/vgpu-monitor"


def hami_grant(assignment: Assignment, first: Share) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """Environment and mounts of HAMi-core for a share of a card; as in koordlet's hook the limits of the first hold.

    Raises:
        ProviderError: the allocation has no amount of memory, or the host's library would hang.
    """
    why = incompatible(assignment.hami)
    if why is not None:
        raise ProviderError(FailureKind.UNSUPPORTED, vendor="nvidia", call="HAMi-core", code=0, text=why)
    if words.GPU_MEMORY not in first.resources:
        raise ProviderError(
            FailureKind.UNKNOWN,
            vendor="nvidia",
            call="gpu env inject",
            code=0,
            text="gpu memory not found in gpu resource",
        )
    env = {"CUDA_DEVICE_MEMORY_LIMIT": str(first.resources[words.GPU_MEMORY])}
    if words.GPU_CORE in first.resources:
        env["CUDA_DEVICE_SM_LIMIT"] = str(first.resources[words.GPU_CORE])
    env["LD_PRELOAD"] = VGPU_LIBRARY
    mounts = [Mount(VGPU_LIBRARY, VGPU_LIBRARY), Mount(VGPU_LOCK, VGPU_LOCK, read_only=False)]
    if assignment.annotations.get(MONITOR_ANNOTATION) == "true":
        own = f"{assignment.pod_uid}_{assignment.container}"
        env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{VGPU_FOLDER}/{own}.cache"
        mounts.append(Mount(f"{VGPU_FOLDER}/containers/{own}", VGPU_FOLDER, read_only=False))
    return env, tuple(mounts)
