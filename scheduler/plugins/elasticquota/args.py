"""Arguments of ElasticQuota. Upstream's feature gates about quotas are arguments too."""

from msgspec import field

from seatrial.scheduler.api.durations import required_duration
from seatrial.scheduler.api.quantity import CPU, MEMORY, QuantityError, amounts
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.framework.extension_points import Args
from seatrial.scheduler.plugins.elasticquota.hooks import HookPlugin, build_hooks

_HUGE = (2**63 - 1) // 5  # upstream's math.MaxInt64/5


class ElasticQuotaArgs(Args, frozen=True):
    """Upstream's ElasticQuotaArgs with its defaults."""

    delay_evict_time: str = "120s"
    revoke_pod_interval: str = "1s"
    default_quota_group_max: ResourceList = field(default_factory=lambda: {CPU: _HUGE, MEMORY: _HUGE})
    system_quota_group_max: ResourceList = field(default_factory=lambda: {CPU: _HUGE, MEMORY: _HUGE})
    quota_group_namespace: str = "koordinator-system"
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False  # read and ignored: pods that wait for quota are always woken by their quota alone
    quota_snapshot_update_interval: str = "120s"  # likewise
    hook_plugins: tuple[HookPlugin, ...] = ()
    multi_quota_tree: bool = False  # upstream's feature gate MultiQuotaTree
    ignore_pod_overhead: bool = False  # upstream's feature gate ElasticQuotaIgnorePodOverhead
    ignore_terminating_pod: bool = False  # upstream's feature gate ElasticQuotaImmediateIgnoreTerminatingPod
    ignore_terminating_pod_after_grace_period: bool = False  # upstream's feature gate ElasticQuotaIgnoreTerminatingPod
    guarantee_usage: bool = False  # upstream's feature gate ElasticQuotaGuaranteeUsage
    disable_default_quota: bool = False  # upstream's feature gate DisableDefaultQuota

    def check(self) -> None:
        for name in ("delay_evict_time", "revoke_pod_interval"):
            words = {"delay_evict_time": "DelayEvictTime", "revoke_pod_interval": "RevokePodCycle"}[name]
            try:
                duration = required_duration(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"elasticQuotaArgs error, {words}: {error}") from None
            if duration <= 0:
                raise ValueError(f"elasticQuotaArgs error, {words} should be a positive value")
        build_hooks(self.hook_plugins)
        for name, listed in (
            ("defaultQuotaGroupMax", self.default_quota_group_max),
            ("systemQuotaGroupMax", self.system_quota_group_max),
        ):
            for key, quantity in listed.items():
                try:
                    negative = amounts({key: quantity})[key] < 0
                except QuantityError as error:
                    raise ValueError(f"{name}.{key}: {error}") from error
                if negative:
                    raise ValueError(
                        f"elasticQuotaArgs error, {name} should be a positive value, resourceName:{key}, got {quantity}"
                    )
