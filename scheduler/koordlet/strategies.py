"""What a NodeSLO asks of the agent, with koordlet's defaults (NS-3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.scheduler.koordlet.burst import BurstConfig

CPUSET, CFS_QUOTA = "cpuset", "cfsQuota"
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


class HostApplication(msgspec.Struct, frozen=True, rename="camel"):
    """A program outside of pods, and its control group."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: dict[str, str] | None = None

    @property
    def folder(self) -> str:
        """Its group, relative to the root (A6)."""
        path = self.cgroup_path
        if path is None:
            below = {
                "LSE": "host-latency-sensitive/",
                "LSR": "host-latency-sensitive/",
                "LS": "host-latency-sensitive/",
            }
            return below.get(self.qos, "host-best-effort/" if self.qos == "BE" else "") + self.name
        base = {
            "Kubepods": "kubepods",
            "KubepodsBurstable": "kubepods/burstable",
            "KubepodsBesteffort": "kubepods/besteffort",
        }.get(path.get("base", ""), "")
        parts = (base, path.get("parentDir", ""), path.get("relativePath", ""))
        return "/".join(part.strip("/") for part in parts if part.strip("/"))

    @property
    def best_effort(self) -> bool:
        """Whether it is suppressed with best-effort pods (CS-2)."""
        return self.qos == "BE" and (self.cgroup_path or {}).get("base") == "KubepodsBesteffort"


@dataclass(frozen=True, slots=True)
class Strategies:
    """All blocks; `known`: a NodeSLO was there."""

    threshold: Threshold = field(default_factory=Threshold)
    burst: BurstConfig = field(default_factory=BurstConfig)
    qos: Mapping[str, Any] = field(default_factory=dict)
    applications: tuple[HostApplication, ...] = ()
    known: bool = False


def strategies(spec: Mapping[str, Any], before: Strategies) -> tuple[Strategies, list[str]]:
    """The blocks of a NodeSLO's spec, and what is wrong: a block that cannot be read keeps what it was."""
    wrong: list[str] = []

    def read(block: str, kind: Any, last: Any, value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wrong.append(f"{block}: {error}")
            return last

    burst = spec.get("cpuBurstStrategy") or {}
    names = {
        "policy": "policy",
        "cpuBurstPercent": "cpu_burst_percent",
        "cfsQuotaBurstPercent": "cfs_quota_burst_percent",
        "cfsQuotaBurstPeriodSeconds": "cfs_quota_burst_period_seconds",
        "sharePoolThresholdPercent": "share_pool_threshold_percent",
    }
    given = {names[name]: value for name, value in burst.items() if name in names} if isinstance(burst, dict) else burst
    found = Strategies(
        read("resourceUsedThresholdWithBE", Threshold, before.threshold, spec.get("resourceUsedThresholdWithBE") or {}),
        read("cpuBurstStrategy", BurstConfig, before.burst, given),
        read("resourceQOSStrategy", dict[str, Any], before.qos, spec.get("resourceQOSStrategy") or {}),
        read("hostApplications", tuple[HostApplication, ...], before.applications, spec.get("hostApplications") or ()),
        known=True,
    )
    return found, wrong
