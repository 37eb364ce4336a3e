"""What admission of quotas does to pods: limits at creation, and the node affinity of quota trees.

Rules QUOTA-R65 and QUOTA-R78 to QUOTA-R81. Upstream keeps the sum of requests in an annotation of the quota, which the
admission updates. Here the pods themselves are counted, those included that were just admitted and that the watch has
not delivered yet; so nothing is written, and no write can conflict.
Follows Koordinator `pkg/webhook/quotaevaluate` and `pkg/webhook/pod/mutating/multi_quota_tree_affinity.go`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import CPU, MEMORY, QuantityError, quantities
from seatrial.scheduler.api.quota import AnnotationError, ElasticQuota, ElasticQuotaProfile, read_amount, resource_list
from seatrial.scheduler.cache.classes import renamed
from seatrial.scheduler.pods.requests import pod_requests

UNSEEN_SECONDS = 10.0  # for which a pod that was admitted counts although the watch has not delivered it
_COUNTED = frozenset({CPU, MEMORY, "ephemeral-storage"})
_PREFIXES = ("requests.", "kubernetes.io/batch-", "kubernetes.io/mid-")
_DEVICES = ("nvidia.com/", "koordinator.sh/", "kubernetes.io/gpu", "huawei.com/", "cambricon.com/", "amd.com/")


class QuotaAdmission:
    """Refuses pods whose quota's limit is used up by requests, pending pods included."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._requests: dict[str, Counter[str]] = {}  # by quota: of pods that the watch has delivered
        self._seen: dict[str, tuple[str, Mapping[str, int]]] = {}  # by namespace/name: quota, request
        self._unseen: dict[str, tuple[str, Mapping[str, int], float]] = {}  # and the time of admission

    def set_pod(self, pod: Pod, quota: str) -> None:
        """The watch delivered a pod."""
        self.remove_pod(pod)
        if pod.terminated:
            return
        request = request_of(pod)
        self._seen[pod.key] = quota, request
        self._requests.setdefault(quota, Counter()).update(request)

    def remove_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        self._unseen.pop(pod.key, None)
        found = self._seen.pop(pod.key, None)
        if found is not None:
            quota, request = found
            self._requests[quota].subtract(request)

    def requested(self, quota: str) -> Counter[str]:
        """The requests of a quota's pods."""
        now = self._monotonic()
        self._unseen = {key: entry for key, entry in self._unseen.items() if now - entry[2] < UNSEEN_SECONDS}
        total = Counter(self._requests.get(quota, Counter()))
        for owner, request, _ in self._unseen.values():
            if owner == quota:
                total.update(request)
        return total

    def exceeded(self, pod: Pod, quota: ElasticQuota) -> str:
        """Why the pod may not be created, in upstream's words; "" if it may, and then it counts."""
        limit = limit_of(quota)
        if not any(key in _COUNTED or key.startswith((*_PREFIXES, *_DEVICES)) for key in limit):
            return ""
        wanted = {key: value for key, value in request_of(pod).items() if value and key in limit}
        used = self.requested(quota.name)
        over = sorted(key for key, value in wanted.items() if used[key] + value > limit[key])
        if over:

            def shown(amounts: Mapping[str, int]) -> str:
                return ",".join(f"{key}={text}" for key, text in quantities({k: amounts[k] for k in over}).items())

            return (
                f"exceeded quota: {quota.metadata.namespace}/{quota.name}, requested: {shown(wanted)}, "
                f"used: {shown(used)}, limited: {shown(limit)}"
            )
        if wanted and pod.key not in self._seen:
            self._unseen[pod.key] = quota.name, request_of(pod), self._monotonic()
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
        found = resource_list(quota, keys.ADMISSION)
        if found:
            return found
        return {key: read_amount(key, text) for key, text in ((quota.spec and quota.spec.max) or {}).items()}
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
    wanted: list[dict[str, Any]] = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    for rule in selector.match_expressions or ():
        values = {"values": list(rule.values)} if rule.values else {}
        wanted.append({"key": rule.key, "operator": rule.operator, **values})
    if not wanted:
        return []
    affinity = dict(pod.get("spec", {}).get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *wanted]} for term in terms
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return [{"op": "add", "path": "/spec/affinity", "value": {**affinity, "nodeAffinity": node}}]
