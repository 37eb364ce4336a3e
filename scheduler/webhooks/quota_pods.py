"""What admission of quotas does to pods: limits at creation, and the node affinity of quota trees.

Rules QUOTA-R65 and QUOTA-R78 to QUOTA-R81. Upstream keeps the sum of requests in an annotation of the quota, which the
admission updates. Here the pods themselves are counted, those included that were just admitted and that the watch has
not delivered yet; so nothing is written, and no write can conflict. Two processes do not see what the other one has
just admitted.
Follows Koordinator `pkg/webhook/quotaevaluate` and `pkg/webhook/pod/mutating/multi_quota_tree_affinity.go`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import CPU, MEMORY, QuantityError, amounts, quantities
from seatrial.scheduler.api.quota import AnnotationError, ElasticQuota, ElasticQuotaProfile, resource_list
from seatrial.scheduler.cache.classes import renamed
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.webhooks.known_quotas import UNSEEN_SECONDS, newer

_COUNTED = frozenset({CPU, MEMORY, "ephemeral-storage"})
_PREFIXES = ("requests.", "kubernetes.io/batch-", "kubernetes.io/mid-")
_DEVICES = ("nvidia.com/", "koordinator.sh/", "kubernetes.io/gpu", "huawei.com/", "cambricon.com/", "amd.com/")


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a pod asks of a quota."""

    pod: Pod
    quota: str
    request: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Admitted:
    """What a pod was just admitted to."""

    counted: _Counted
    before: str  # the resource version that the write changes; "" for a new pod
    since: float

    def seen_in(self, pod: Pod) -> bool:
        """Whether the watch delivered the write, or something later; an earlier pod of the same name is neither."""
        same = pod.metadata.uid == self.counted.pod.metadata.uid
        return same and (not self.before or newer(pod.metadata.resource_version, self.before))


class QuotaAdmission:
    """Refuses pods whose quota's limit is used up by requests, pending pods included."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._requests: dict[str, Counter[str]] = {}  # by quota: of pods that the watch has delivered
        self._seen: dict[str, _Counted] = {}  # those pods by namespace/name
        self._unseen: dict[str, _Admitted] = {}  # by namespace/name

    def set_pod(self, pod: Pod, quota: str) -> None:
        """The watch delivered a pod."""
        admitted = self._unseen.get(pod.key)
        if admitted is not None and admitted.seen_in(pod):
            del self._unseen[pod.key]
        self._uncount(pod.key)
        if not pod.terminated:
            self._count(_Counted(pod, quota, request_of(pod)))

    def remove_pod(self, pod: Pod) -> None:
        """A pod is gone. A new one of the same name may have been admitted since."""
        admitted = self._unseen.get(pod.key)
        if admitted is not None and admitted.counted.pod.metadata.uid == pod.metadata.uid:
            del self._unseen[pod.key]
        self._uncount(pod.key)

    def recount(self, quota_of: Callable[[Pod], str]) -> None:
        """Quotas came or went, so pods may belong to others."""
        for entry in list(self._seen.values()):
            quota = quota_of(entry.pod)
            if quota != entry.quota:
                self._uncount(entry.pod.key)
                self._count(_Counted(entry.pod, quota, entry.request))

    def _count(self, entry: _Counted) -> None:
        self._seen[entry.pod.key] = entry
        self._requests.setdefault(entry.quota, Counter()).update(entry.request)

    def _uncount(self, key: str) -> None:
        entry = self._seen.pop(key, None)
        if entry is not None:
            self._requests[entry.quota].subtract(entry.request)

    def requested(self, quota: str, *, without: str = "") -> Counter[str]:
        """The requests of a quota's pods, except the pod `without` (namespace/name).

        Where a pod is gone or changed and its successor was admitted, the larger of both counts until the watch shows
        which of them is stored.
        """
        now = self._monotonic()
        self._unseen = {key: entry for key, entry in self._unseen.items() if now - entry.since < UNSEEN_SECONDS}
        total = Counter(self._requests.get(quota, Counter()))
        for key, entry in self._unseen.items():
            if entry.counted.quota == quota and key != without:
                seen = self._seen.get(key)
                known = seen.request if seen is not None and seen.quota == quota else {}
                total.update(Counter(entry.counted.request) - Counter(known))
        own = self._seen.get(without)
        if own is not None and own.quota == quota:
            total.subtract(own.request)
        return total

    def exceeded(self, pod: Pod, quota: ElasticQuota, *, before: str = "", trial: bool = False) -> str:
        """Why the pod may not be created, in upstream's words; "" if it may, and then it counts.

        `before`: the resource version of the pod that is changed. `trial`: nothing will be stored, so it does not
        count.
        """
        limit = limit_of(quota)
        if not any(key in _COUNTED or key.startswith((*_PREFIXES, *_DEVICES)) for key in limit):
            return ""
        values = {key: value for key, value in request_of(pod).items() if value and key in limit}
        used = self.requested(quota.name, without=pod.key)
        over = sorted(key for key, value in values.items() if used[key] + value > limit[key])
        if over:

            def shown(amounts: Mapping[str, int]) -> str:
                return ",".join(f"{key}={text}" for key, text in quantities({k: amounts[k] for k in over}).items())

            return (
                f"exceeded quota: {quota.metadata.namespace}/{quota.name}, requested: {shown(values)}, "
                f"used: {shown(used)}, limited: {shown(limit)}"
            )
        if values and not trial:
            counted = _Counted(pod, quota.name, request_of(pod))
            self._unseen[pod.key] = _Admitted(counted, before, self._monotonic())
        return ""


def request_of(pod: Pod) -> Mapping[str, int]:
    """The pod's request; empty if it cannot be read."""
    try:
        return renamed(pod_requests(pod.spec))
    except QuantityError:
        return {}


def limit_of(quota: ElasticQuota) -> dict[str, int]:
    """The limit at creation: the annotation `admission`, else max."""
    try:
        limit = resource_list(quota, keys.ADMISSION)
        if limit:
            return limit
        return amounts((quota.spec and quota.spec.max) or {})
    except (AnnotationError, QuantityError):
        return {}


def tree_affinity(pod: Mapping[str, Any], tree: str, profiles: Iterable[ElasticQuotaProfile]) -> list[dict[str, Any]]:
    """The JSON patch that keeps a pod on the nodes of a tree: each required term gets the profile's node selector."""
    selector = next(
        (
            profile.spec.node_selector
            for profile in sorted(profiles, key=lambda profile: profile.metadata.key)
            if profile.metadata.labels.get(keys.TREE_ID) == tree
        ),
        None,
    )
    if selector is None:
        return []
    labels = sorted((selector.match_labels or {}).items())
    targets: list[dict[str, Any]] = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    for rule in selector.match_expressions or ():
        values = {"values": list(rule.values)} if rule.values else {}
        targets.append({"key": rule.key, "operator": rule.operator, **values})
    if not targets:
        return []
    affinity = dict(pod.get("spec", {}).get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *targets]} for term in terms
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return [{"op": "add", "path": "/spec/affinity", "value": {**affinity, "nodeAffinity": node}}]
