"""CPU burst: time beyond the quota for containers that are throttled while the node has CPU to spare (CB-1 to CB-7).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/cpuburst.
"""

import msgspec

from seatrial.scheduler.koordlet.cgroups import PERIOD

OVERLOAD, COOLING, IDLE, UNKNOWN = "overload", "cooling", "idle", "unknown"
_COOLING_FROM = 0.9  # of the threshold
_UP, _DOWN = 1.2, 0.8
_FULL = 100  # percent
_SAVED_BELOW = 60  # percent of the limit


class BurstConfig(msgspec.Struct, frozen=True, rename="camel"):
    """CPUBurstStrategy of a NodeSLO or of a pod's annotation."""

    policy: str = "none"
    cpu_burst_percent: int = 1000
    cfs_quota_burst_percent: int = 300
    cfs_quota_burst_period_seconds: int = -1
    share_pool_threshold_percent: int = 50

    @property
    def bursts(self) -> bool:
        """Whether the kernel may save unused time."""
        return self.policy in {"auto", "cpuBurstOnly"}

    @property
    def raises_quota(self) -> bool:
        return self.policy in {"auto", "cfsQuotaBurstOnly"}


def burst_of(config: BurstConfig, limit_cores: float) -> int:
    """`cpu.cfs_burst_us` of a container with this limit; 0 without one (CB-2)."""
    return int(limit_cores * config.cpu_burst_percent / 100 * PERIOD) if config.bursts and limit_cores > 0 else 0


def pool_state(
    threshold: int, cpus: float, bound_request: float, node_used: float | None, bound_used: float | None
) -> str:
    """How loaded the CPUs are that LS pods share: all but those of LSE and LSR pods (CB-3).

    `bound_used`: usage of LSE, LSR and BE pods, which do not count.
    """
    if node_used is None or bound_used is None:
        return UNKNOWN
    pool = cpus - bound_request
    ratio = (node_used - bound_used) / pool if pool > 0 else 1.0
    if ratio >= threshold / 100:
        return OVERLOAD
    return COOLING if ratio >= threshold / 100 * _COOLING_FROM else IDLE


def next_quota(
    config: BurstConfig, state: str, *, limit_cores: float, quota: int, throttled: float | None, allowed: bool
) -> int:
    """The quota of a container in microseconds (CB-4, CB-5).

    Args:
        throttled: part of the periods in which it was throttled; None: not known.
        allowed: what the limiter says.
    """
    base = round(limit_cores * PERIOD)  # of a limit in thousandths, which floats do not have exactly
    percent = config.cfs_quota_burst_percent
    ceiling = base if percent <= _FULL else int(base * percent / 100)
    if not config.raises_quota:
        amount = base
    elif not allowed or state == OVERLOAD:
        amount = int(quota * _DOWN)
    elif throttled is not None and throttled > 0 and state == IDLE:
        amount = int(quota * _UP)
    else:
        amount = quota
    return min(max(amount, base), ceiling)


class Limiter:
    """Tokens of a container, in percent of its limit times seconds (CB-7)."""

    def __init__(self, period: int, percent: int, start: float) -> None:
        """`start`: the part of the capacity that it has at first, below one half."""
        self.capacity = period * (percent - _FULL)
        self.token = int(self.capacity * start)

    def allow(self, usage: int, seconds: int) -> bool:
        """Whether the container may use more than its limit, after it used `usage` percent of it for some seconds."""
        if usage >= _FULL:
            self.token -= (usage - _FULL) * seconds
        elif usage < _SAVED_BELOW:
            self.token += (_FULL - usage) * seconds
        self.token = max(-self.capacity, min(self.capacity, self.token))
        return self.token > 0
