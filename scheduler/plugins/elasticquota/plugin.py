"""ElasticQuota: a pod waits while its quota has no room, and may preempt less important pods of the same quota.

The check is a `Gate`, called before all filters: the result does not depend on the node. Use is counted by
`QuotaCache`, which receives every assumed pod, so Reserve does nothing. Rules QUOTA-R41 to QUOTA-R54.
Deviations are in scheduler/DESIGN.md. Follows Koordinator `pkg/scheduler/plugins/elasticquota`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from seatrial.scheduler.api.core import PREEMPT_NEVER, Pod
from seatrial.scheduler.api.quota import DEFAULT_QUOTA, PREEMPTIBLE, SYSTEM_QUOTA
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.extension_points import Gate, PostFilter, PreFilter, Reserve, Scope
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SKIP, SUCCESS, PostFilterResult, Status
from seatrial.scheduler.plugins.elasticquota.args import ElasticQuotaArgs
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache, is_non_preemptible
from seatrial.scheduler.plugins.elasticquota.messages import insufficient, insufficient_min, insufficient_parent
from seatrial.scheduler.plugins.elasticquota.preemption import QuotaPreemption
from seatrial.scheduler.quota.tree import ROOT, Quota, QuotaTree

TERMINATING = "not eligible due to a terminating pod on the nominated node."
NEVER = "not eligible due to preemptionPolicy=Never."
NOTHING: Mapping[str, int] = {}


class ElasticQuota(Gate, PreFilter, PostFilter, Reserve):
    """Rejects pods whose quota has too little left, and preempts pods of the same quota, as Koordinator's plugin."""

    name = "ElasticQuota"
    scope: ClassVar[Scope] = Scope.NODE
    reads_labels = (PREEMPTIBLE,)
    reserves = False

    def __init__(self, handle: Handle, args: ElasticQuotaArgs | None = None) -> None:
        self._handle = handle
        self._args = args or ElasticQuotaArgs()
        self._cache = QuotaCache.of(handle, self._args)
        self._cache.is_used = True
        self._cache.checks_parents |= self._args.enable_check_parent_quota
        # Whether the share and the hooks alone decide about pods that are preemptible.
        self._share_decides = self._args.enable_runtime_quota and not self._args.enable_check_parent_quota

    def gate_key(self, pod: Pod) -> str:
        cache = self._cache
        if not cache.active:
            return ""
        name = cache.quota_of(pod)
        if not name or (self._args.enable_runtime_quota and name in {DEFAULT_QUOTA, SYSTEM_QUOTA}):
            return ""  # no limit (QUOTA-R40)
        return cache.wake_key_of(pod.metadata.uid, name)

    def gate(self, info: PodInfo) -> Status:
        cache = self._cache
        account = cache.accounts.get(info.uid)
        if account is not None and account.pod is info.pod:
            if (
                self._share_decides
                and not account.non_preemptible
                and cache.trees[account.tree].has_room(account.home, account.charge)
                and not (cache.hooks and self._refused_by_hook(account.quota, info.pod))
            ):
                return SUCCESS  # the usual case, without building a message
            name = account.quota
        else:
            name = cache.quota_of(info.pod)
        result = self._cache.find(name)
        if result is None:
            return SUCCESS
        placed = account is not None and account.assigned  # a placed pod that is explained: without its own use
        own = self._cache.amounts_of(info) if placed else {}
        why = self.shortage(*result, info, own, own if is_non_preemptible(info.pod) else {})
        if not why:
            return SUCCESS
        cache.refused.setdefault(name, set()).add(cache.wake_key_of(info.uid, name))
        return Status.unschedulable(why)

    def gate_beside(self, info: PodInfo, planned: Sequence[PodInfo], gone: Sequence[PodInfo]) -> Status:
        """The check of a pod when pods of its quota are imagined to be placed, or gone (GANG-R89)."""
        cache, name = self._cache, self._cache.quota_of(info.pod)
        result = cache.find(name) if self.gate_key(info.pod) else None
        if result is None:
            return SUCCESS
        without: Counter[str] = Counter()
        strict: Counter[str] = Counter()
        for pods, sign in ((gone, 1), (planned, -1)):
            for pod in pods:
                if cache.quota_of(pod.pod) == name:
                    amounts = {key: sign * value for key, value in cache.amounts_of(pod).items()}
                    without.update(amounts)
                    if is_non_preemptible(pod.pod):
                        strict.update(amounts)
        why = self.shortage(*result, info, without, strict)
        return Status.unschedulable(why) if why else SUCCESS

    def shortage(
        self,
        tree: QuotaTree,
        quota: Quota,
        info: PodInfo,
        without: Mapping[str, int],
        strict_without: Mapping[str, int] = NOTHING,
    ) -> str:
        """Why the quota has no room for a pod; "" if it has. `without`: use that is imagined to be gone.

        `strict_without`: the part of it that non-preemptible pods use. Negative amounts are imagined to be used.
        """
        request = {key: value for key, value in self._cache.amounts_of(info).items() if key in quota.spec.max}
        limit = self._cache.limit(tree, quota)
        used = _less(quota.used, without)
        exceeded = [key for key in sorted(limit) if used.get(key, 0) + request.get(key, 0) > limit[key]]
        if exceeded:
            return insufficient(quota.name, limit, used, request, exceeded)
        if is_non_preemptible(info.pod):
            least, strict = quota.spec.min, _less(quota.non_preemptible_used, strict_without)
            exceeded = [key for key in sorted(request) if strict.get(key, 0) + request[key] > least.get(key, 0)]
            if exceeded:
                return insufficient_min(quota.name, least, strict, request, exceeded)
        why = self._refused_by_hook(quota.name, info.pod)
        if why or not self._args.enable_check_parent_quota:
            return why
        path = [quota.name]
        for above in quota.path()[1:]:
            if above.name == ROOT:
                break
            path.insert(0, above.name)
            limit = self._cache.limit(tree, above)
            used = _less(above.used, without)
            exceeded = [key for key in sorted(request) if key in limit and used.get(key, 0) + request[key] > limit[key]]
            if exceeded:
                return insufficient_parent(path, limit, used, request, exceeded)
        return ""

    def _refused_by_hook(self, quota: str, pod: Pod) -> str:
        for hook in self._cache.hooks:
            why = hook.check_pod(quota, pod)
            if why:
                return f"CheckPod failed for hook plugin {hook.key}, err: {why}"
        return ""

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        return SKIP

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Remove the pod from the cache: it is no longer assumed to be on a node."""

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        """Preempt inside the quota where the quota is what the pod lacks; nodes are DefaultPreemption's subject."""
        refusal = failure.pre_filter
        if refusal is None or refusal.plugin != self.name:
            return PostFilterResult(Status.unschedulable())
        if info.pod.spec.preemption_policy == PREEMPT_NEVER:
            return PostFilterResult(Status.unschedulable(f"preemption: {NEVER}"))
        name = self._cache.quota_of(info.pod)
        result = self._cache.find(name)
        if result is None or (name == DEFAULT_QUOTA and self._args.disable_default_quota_preemption):
            return PostFilterResult(Status.unschedulable())
        tree, quota = result
        preemption = QuotaPreemption(
            self._handle,
            self._handle.runner_of(info),
            self._cache,
            fits=lambda without: not self.shortage(tree, quota, info, without),
        )
        if preemption.awaits_victims(info, name):
            return PostFilterResult(Status.unschedulable(f"preemption: {TERMINATING}"))
        best = preemption.best(state, info, name)
        if best is None:
            return PostFilterResult(Status.unschedulable(), clear_nomination=True)
        return PostFilterResult(SUCCESS, *best)


def _less(used: Mapping[str, int], without: Mapping[str, int]) -> dict[str, int]:
    """The amounts of `used` that are not 0, less those of `without`."""
    left = {key: value - without.get(key, 0) for key, value in used.items() if value}
    left.update({key: -value for key, value in without.items() if value < 0 and key not in left})
    return left
