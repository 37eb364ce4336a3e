"""What a container gets of each vendor's devices: environment, device nodes, mounts. Pure functions of the assignment.

NVIDIA follows koordlet's hook "gpu env inject" and NVIDIA's container runtime; HAMi-core's part follows the same hook.
Ascend follows ascend-docker-runtime, Cambricon its device plugin, RDMA koordlet's hook "rdma device inject".
"""

from collections.abc import Callable, Mapping

from harness.devices.provider import Assignment, ContainerGrant, Mount, ProviderError, Share
from harness.devices.provider import Failing as Why
from harness.hami.protocol import incompatible
from scheduler.api import device as words

VGPU_FOLDER = "/usr/local/vgpu"
VGPU_LIBRARY = f"{VGPU_FOLDER}/libvgpu.so"
VGPU_LOCK = "/tmp/vgpulock"  # noqa: S108 the protocol's own path
MONITOR_ANNOTATION = "seatrial.dev/vgpu-monitor"

NVIDIA_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
ASCEND_CONTROL = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
CAMBRICON_CONTROL = ("/dev/cambricon_ctl", "/dev/cambricon_gdr")
RDMA_CONTROL = "/dev/infiniband/rdma_cm"

DSMLU_PROFILE = "CAMBRICON_DSMLU_PROFILE"
DSMLU_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"  # the plugin's spelling is the protocol
DSMLU_INSTANCE = "CAMBRICON_DSMLU_PROFILE_INSTANCE"


def nvidia_grant(assignment: Assignment) -> ContainerGrant:
    """Koordlet names cards by minor. NVIDIA's own runtime reads the numbers as NVML indices, which on some machines are
    others; what is modelled here is what was promised."""
    minors = [share.device.minor for share in assignment.shares]
    env = {"NVIDIA_VISIBLE_DEVICES": ",".join(map(str, minors))}
    nodes = (*(f"/dev/nvidia{minor}" for minor in minors), *NVIDIA_CONTROL)
    first = assignment.shares[0]
    if assignment.isolation != words.HAMI_CORE or first.whole:
        return ContainerGrant(env, nodes)
    hami_env, mounts = hami_grant(assignment, first)
    return ContainerGrant({**env, **hami_env}, nodes, mounts)


def hami_grant(assignment: Assignment, first: Share) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """HAMi-core around a share: the limits of the first card hold, as in the hook.

    Raises:
        ProviderError: the allocation does not say how much memory was given, or the host's library would hang.
    """
    why = incompatible(assignment.hami)
    if why is not None:
        raise ProviderError(Why.UNSUPPORTED, vendor="nvidia", call="HAMi-core", code=0, text=why)
    if words.GPU_MEMORY not in first.resources:
        raise ProviderError(
            Why.UNKNOWN, vendor="nvidia", call="gpu env inject", code=0, text="gpu memory not found in gpu resource"
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


def ascend_grant(assignment: Assignment) -> ContainerGrant:
    """Whole chips by their physical ids; a vNPU under its own id, which the runtime shows as a davinci node."""
    slices = [part for share in assignment.shares for part in share.slices]
    if slices:
        ids = [part.id for part in slices]
        env = {
            "ASCEND_VISIBLE_DEVICES": ",".join(ids),
            "ASCEND_VNPU_SPECS": slices[0].template,
            "ASCEND_RUNTIME_OPTIONS": "VIRTUAL",
        }
        return ContainerGrant(env, (*(f"/dev/davinci{one}" for one in ids), *ASCEND_CONTROL))
    minors = [share.device.minor for share in assignment.shares]
    env = {"ASCEND_VISIBLE_DEVICES": ",".join(map(str, minors))}
    return ContainerGrant(env, (*(f"/dev/davinci{minor}" for minor in minors), *ASCEND_CONTROL))


def cambricon_grant(assignment: Assignment) -> ContainerGrant:
    """Whole cards with their control nodes; an sMLU instance by its cap node beside its card's."""
    nodes: list[str] = []
    annotations: dict[str, str] = {}
    for share in assignment.shares:
        minor = share.device.minor
        nodes += [f"/dev/cambricon_dev{minor}", f"/dev/cambricon_ipcm{minor}"]
        if share.slices:
            nodes += [f"/dev/cambricon-caps/cap_dev{minor}_mi{part.id}" for part in share.slices]
            profile = assignment.annotations.get(DSMLU_PROFILE, f"{minor}_0_0")
            annotations = {DSMLU_ASSIGNED: "true", DSMLU_INSTANCE: f"{profile}_{share.slices[0].id}"}
        else:
            nodes += [f"/dev/cambr-msgq:{minor}", f"/dev/cambr-rpc:{minor}", f"/dev/cmsg_ctrl{minor}"]
    env = {"CAMBRICON_VISIBLE_DEVICES": ",".join(str(share.device.minor) for share in assignment.shares)}
    return ContainerGrant(env, (*nodes, *CAMBRICON_CONTROL), annotations=annotations)


def rdma_grant(assignment: Assignment) -> ContainerGrant:
    """The connection manager, then the verbs node of each virtual function, or of the NIC where none was given."""
    nodes = [RDMA_CONTROL]
    for share in assignment.shares:
        if share.functions:
            nodes += [f"/dev/infiniband/uverbs{one.uverbs}" for one in share.functions if one.uverbs is not None]
        else:
            nodes += share.device.nodes
    return ContainerGrant(nodes=tuple(nodes))


GRANTS: Mapping[str, Callable[[Assignment], ContainerGrant]] = {
    "nvidia": nvidia_grant,
    "huawei": ascend_grant,
    "cambricon": cambricon_grant,
    "mellanox": rdma_grant,
}
