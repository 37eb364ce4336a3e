"""What a NodeSLO asks of the agent, with koordlet's defaults (NS-3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from seatrial.scheduler.api.numa import LSE, LSR
from seatrial.scheduler.koordlet.burst import BurstConfig
from seatrial.scheduler.koordlet.cgroups import Layout
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, BURSTABLE, GUARANTEED, LS

CPUSET, CFS_QUOTA = "cpuset", "cfsQuota"
_SENSITIVE = frozenset({LSE, LSR, LS})
BY_ALLOCATABLE = "evictByAllocatable"


class Threshold(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceThresholdStrategy."""

    enable: bool = False
    cpu_suppress_threshold_percent: int = 65
    cpu_suppress_min_percent: int | None = None
    cpu_suppress_policy: str = CPUSET
    memory_evict_threshold_percent: int = 70
    memory_evict_lower_percent: int | None = None
    cpu_evict_be_satisfaction_lower_percent: int | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionLowerPercent"
    )
    cpu_evict_be_satisfaction_upper_percent: int | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionUpperPercent"
    )
    cpu_evict_be_usage_threshold_percent: int = msgspec.field(default=90, name="cpuEvictBEUsageThresholdPercent")
    cpu_evict_time_window_seconds: int = 1
    cpu_evict_policy: str = ""
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    evict_enabled_priority_threshold: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class HostApplication(msgspec.Struct, frozen=True, rename="camel"):
    """A program outside of pods, and its control group."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: dict[str, str] | None = None

    def folder(self, layout: Layout) -> str:
        """Its group, relative to the root (A6)."""
        path = self.cgroup_path
        if path is None:
            below = "host-best-effort" if self.qos == BE else "host-latency-sensitive" if self.qos in _SENSITIVE else ""
            parts = [layout.parent, below, self.name]
        else:
            kinds = {"Kubepods": GUARANTEED, "KubepodsBurstable": BURSTABLE, "KubepodsBesteffort": BEST_EFFORT}
            base = path.get("base", "")
            above = layout.qos(kinds[base]) if base in kinds else layout.parent
            parts = [above, path.get("parentDir", ""), path.get("relativePath", "")]
        return "/".join(name for part in parts for name in part.split("/") if name)

    @property
    def leaves_the_root(self) -> bool:
        """Whether its path is not below the root."""
        return ".." in "/".join((self.name, *(self.cgroup_path or {}).values())).split("/")

    @property
    def best_effort(self) -> bool:
        """Whether it is suppressed with best-effort pods (CS-2)."""
        return self.qos == BE and (self.cgroup_path or {}).get("base") == "KubepodsBesteffort"


class CpuQos(msgspec.Struct, frozen=True, rename="camel"):
    """CPUQOS of a class."""

    enable: bool = False
    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None


class ResctrlQos(msgspec.Struct, frozen=True, rename="camel"):
    """ResctrlQOS of a class; None: the default of the class."""

    enable: bool = False
    cat_range_start_percent: int | None = None
    cat_range_end_percent: int | None = None
    mba_percent: int = 100


class MemoryQos(msgspec.Struct, frozen=True, rename="camel"):
    """MemoryQOS of a class or a pod; None: what is below it."""

    enable: bool = False
    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_size: str | int | None = None
    page_cache_limit_percent: int | None = None
    page_cache_reclaim_sync: bool | int | None = None


class IoConfig(msgspec.Struct, frozen=True, rename="camel"):
    """What a disk gives: limits in operations and bytes per second, latencies in microseconds, a model of its cost."""

    read_iops: int | None = msgspec.field(default=None, name="readIOPS")
    write_iops: int | None = msgspec.field(default=None, name="writeIOPS")
    read_bps: int | None = msgspec.field(default=None, name="readBPS")
    write_bps: int | None = msgspec.field(default=None, name="writeBPS")
    io_weight_percent: int | None = msgspec.field(default=None, name="ioWeightPercent")
    read_latency: int = 3000
    write_latency: int = 3000
    read_latency_percent: int = 95
    write_latency_percent: int = 95
    enable_user_model: bool = False
    model_read_bps: int = msgspec.field(default=0, name="modelReadBPS")
    model_write_bps: int = msgspec.field(default=0, name="modelWriteBPS")
    model_read_seq_iops: int = msgspec.field(default=0, name="modelReadSeqIOPS")
    model_write_seq_iops: int = msgspec.field(default=0, name="modelWriteSeqIOPS")
    model_read_rand_iops: int = msgspec.field(default=0, name="modelReadRandIOPS")
    model_write_rand_iops: int = msgspec.field(default=0, name="modelWriteRandIOPS")


class Block(msgspec.Struct, frozen=True):
    """A disk by the name of a device or of a volume group, and what it gives."""

    type: str = ""
    name: str = ""
    io: IoConfig = msgspec.field(default_factory=IoConfig, name="ioCfg")


class BlkioQos(msgspec.Struct, frozen=True):
    """BlkIOQOS of a class or a pod."""

    enable: bool = False
    blocks: tuple[Block, ...] = ()


class SystemStrategy(msgspec.Struct, frozen=True, rename="camel"):
    """SystemStrategy: settings of the kernel."""

    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    page_cache_limit_enabled: int | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] = {}


class QosClass(msgspec.Struct, frozen=True):
    """What a QoS class gets."""

    cpu: CpuQos = msgspec.field(default_factory=CpuQos, name="cpuQOS")
    resctrl: ResctrlQos = msgspec.field(default_factory=ResctrlQos, name="resctrlQOS")
    memory: MemoryQos = msgspec.field(default_factory=MemoryQos, name="memoryQOS")
    blkio: BlkioQos | None = msgspec.field(default=None, name="blkioQOS")


class QosStrategy(msgspec.Struct, frozen=True):
    """ResourceQOSStrategy."""

    policies: dict[str, str] = {}
    lsr: QosClass = msgspec.field(default_factory=QosClass, name="lsrClass")
    ls: QosClass = msgspec.field(default_factory=QosClass, name="lsClass")
    be: QosClass = msgspec.field(default_factory=QosClass, name="beClass")
    root: QosClass = msgspec.field(default_factory=QosClass, name="cgroupRoot")


@dataclass(frozen=True, slots=True)
class Strategies:
    """All blocks; `known`: a NodeSLO was there."""

    threshold: Threshold = field(default_factory=Threshold)
    burst: BurstConfig = field(default_factory=BurstConfig)
    qos: QosStrategy = field(default_factory=QosStrategy)
    system: SystemStrategy = field(default_factory=SystemStrategy)
    applications: tuple[HostApplication, ...] = ()
    known: bool = False

    @property
    def own_quotas(self) -> bool:
        """Whether best-effort pods have quotas of their own: not where suppression is by quota."""
        return not (self.threshold.enable and self.threshold.cpu_suppress_policy == CFS_QUOTA)


def strategies(spec: Mapping[str, Any], before: Strategies) -> tuple[Strategies, list[str]]:
    """The blocks of a NodeSLO's spec, and what is wrong: a block that cannot be read keeps what it was."""
    wrong: list[str] = []

    def read(block: str, kind: Any, last: Any, value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wrong.append(f"{block}: {error}")
            return last

    result = Strategies(
        read("resourceUsedThresholdWithBE", Threshold, before.threshold, spec.get("resourceUsedThresholdWithBE") or {}),
        read("cpuBurstStrategy", BurstConfig, before.burst, spec.get("cpuBurstStrategy") or {}),
        read("resourceQOSStrategy", QosStrategy, before.qos, spec.get("resourceQOSStrategy") or {}),
        read("systemStrategy", SystemStrategy, before.system, spec.get("systemStrategy") or {}),
        read("hostApplications", tuple[HostApplication, ...], before.applications, spec.get("hostApplications") or ()),
        known=True,
    )
    outside = [each.name for each in result.applications if each.leaves_the_root]
    if outside:
        wrong.append(f"hostApplications: expected groups below the root, found others: {', '.join(outside):.60}")
        result = replace(result, applications=before.applications)
    return result, wrong
