"""How long the calls of hook plugins take, by plugin and method.

Koordinator: `scheduler_elastic_quota_hook_plugin_latency`, `pkg/scheduler/metrics`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.plugins.elasticquota.hooks import QuotaHook
from seatrial.scheduler.quota.tree import QuotaSpec
from seatrial.scheduler.serving.histogram import Histogram

METRIC = "scheduler_elastic_quota_hook_plugin_latency"
SECONDS = tuple(0.000001 * 2**power for power in range(24))  # upstream's: 1 µs to 8.4 s


class MeasuredHook(QuotaHook):
    """A hook plugin, with a histogram of seconds for each of its methods."""

    def __init__(self, hook: QuotaHook, monotonic: Callable[[], float]) -> None:
        super().__init__(hook.key)
        self.hook, self._monotonic = hook, monotonic
        self.latency: dict[str, Histogram] = {}  # by upstream's name of the method

    def _measured(self, operation: str, method: Callable[..., Any], *args: Any) -> Any:
        start = self._monotonic()
        try:
            return method(*args)
        finally:
            histogram = self.latency.get(operation)
            if histogram is None:
                histogram = self.latency[operation] = Histogram(SECONDS)
            histogram.observe(self._monotonic() - start)

    def is_quota_updated(self, old: QuotaSpec, new: QuotaSpec, quota: ElasticQuota) -> bool:
        return bool(self._measured("IsQuotaUpdated", self.hook.is_quota_updated, old, new, quota))

    def pre_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        self._measured("PreQuotaUpdate", self.hook.pre_quota_update, old, new, quota, state)

    def post_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        self._measured("PostQuotaUpdate", self.hook.post_quota_update, old, new, quota, state)

    def on_pod_updated(self, quota: str, old: Pod | None, new: Pod | None) -> None:
        self._measured("OnPodUpdated", self.hook.on_pod_updated, quota, old, new)

    def update_quota_status(self, quota: ElasticQuota) -> Mapping[str, str]:
        status: Mapping[str, str] = self._measured("UpdateQuotaStatus", self.hook.update_quota_status, quota)
        return status

    def check_pod(self, quota: str, pod: Pod) -> str:
        return str(self._measured("CheckPod", self.hook.check_pod, quota, pod))
