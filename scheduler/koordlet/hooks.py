"""What a container gets before the runtime makes it: the functions of the ten-second rounds, for one container.

Rules HK-5, HK-7, HK-8, HK-10 to HK-12 and RC-6; group identity and limits of the pod are written to its group by the
enforcer. Core scheduling needs processes, and stays with the rounds, as at Koordinator.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from seatrial.scheduler.api.numa import CpusetError, cpuset_text
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.koordlet.cgroups import NO_LIMIT
from seatrial.scheduler.koordlet.cpu_pools import Pools, bound_cpus, pod_cpus
from seatrial.scheduler.koordlet.device_hooks import DeviceHookError, allocations, gpu_changes, rdma_files
from seatrial.scheduler.koordlet.nri_messages import KeyValue, LinuxDevice, Mount
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.oom_score import oom_score
from seatrial.scheduler.koordlet.pod_rules import batch_limits, normalized, shares_cpus
from seatrial.scheduler.pods.qos import BE

LIBRARY = "/usr/local/vgpu/libvgpu.so"
CPUSET, BATCH, NORMALIZATION, OOM_SCORE = "CPUSetAllocator", "BatchResource", "CPUNormalization", "OOMScoreAdj"
GPU, RDMA, VGPU_MONITOR, RESCTRL = "GPUEnvInject", "RDMADeviceInject", "HamiCoreVGPUMonitor", "Resctrl"
ERRORS = (CpusetError, DeviceHookError, QuantityError, msgspec.MsgspecError)  # of annotations


@dataclass(frozen=True, slots=True)
class Setting:
    """A container and its node.

    `pools`: the CPUs that pods share. `quota`: that which kubelet has asked for, in microseconds; 0: none is known.
    `quotas`: False where suppression is by quota, and best-effort pods have none of their own. `ratio`: CPU
    normalization of the node. `sys`: where /sys is. `library`: HAMi-core. `monitored`: whether what containers use of
    cards is read. `rdt_class`: the resctrl group of the pod, if it has one. `created`: False for a container that is
    there, which gets no devices any more.
    """

    pod: LocalPod
    container: str
    pools: Pools
    quota: int = 0
    quotas: bool = True
    ratio: float = 1.0
    sys: Path = Path("/sys")
    library: Path = Path(LIBRARY)
    monitored: bool = False
    rdt_class: str = ""
    created: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from what kubelet has asked for; None: nothing does. Microseconds, bytes, a list of CPUs."""

    shares: int | None = None
    quota: int | None = None
    memory: int | None = None
    cpus: str | None = None
    oom_score: int | None = None
    rdt_class: str | None = None
    env: tuple[KeyValue, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[LinuxDevice, ...] = ()


def _batch(setting: Setting, changes: Changes) -> Changes:
    if setting.pod.raw_qos != BE:
        return changes
    annotations = setting.pod.pod.metadata.annotations
    limits = batch_limits(annotations, quotas=setting.quotas, ratio=setting.ratio).get(setting.container)
    if limits is None:
        return changes
    return replace(changes, shares=limits.shares, quota=limits.quota, memory=limits.memory)


def _bound(setting: Setting, changes: Changes) -> Changes:
    cpus = pod_cpus(setting.pod, setting.pools)
    if bound_cpus(setting.pod):
        changes = replace(changes, quota=NO_LIMIT)
    return replace(changes, cpus=cpuset_text(cpus)) if cpus else changes


def _normalized(setting: Setting, changes: Changes) -> Changes:
    if setting.ratio <= 1 or setting.quota <= 0 or not shares_cpus(setting.pod):
        return changes
    return replace(changes, quota=normalized(setting.quota, setting.ratio))


def _score(setting: Setting, changes: Changes) -> Changes:
    return replace(changes, oom_score=oom_score(setting.pod.pod.metadata.annotations, setting.container))


def _gpu(setting: Setting, changes: Changes) -> Changes:
    metadata = setting.pod.pod.metadata
    devices = allocations(metadata.annotations, "gpu")
    if not devices:
        return changes
    monitored = f"{metadata.uid}_{setting.container}" if setting.monitored else ""
    env, mounts = gpu_changes(devices, metadata.labels, setting.library, monitored)
    return replace(changes, env=env, mounts=mounts)


def _rdma(setting: Setting, changes: Changes) -> Changes:
    devices = allocations(setting.pod.pod.metadata.annotations, "rdma")
    return replace(changes, devices=rdma_files(devices, setting.sys))


def _resctrl(setting: Setting, changes: Changes) -> Changes:
    return replace(changes, rdt_class=setting.rdt_class or None)


HOOKS: dict[str, Callable[[Setting, Changes], Changes]] = {  # by gate, in Koordinator's order
    CPUSET: _bound,
    GPU: _gpu,
    RDMA: _rdma,
    BATCH: _batch,
    NORMALIZATION: _normalized,
    RESCTRL: _resctrl,
    OOM_SCORE: _score,
}

AT_CREATION = frozenset({GPU, RDMA, RESCTRL, OOM_SCORE})


def changes_by_hook(setting: Setting, enabled: Callable[[str], bool]) -> Iterator[Changes | Exception]:
    """The changes so far after each hook that is enabled, or why it has none: it stops no other."""
    result = Changes()
    for gate, hook in HOOKS.items():
        if enabled(gate) and (setting.created or gate not in AT_CREATION):
            try:
                result = hook(setting, result)
                yield result
            except ERRORS as error:
                yield error
