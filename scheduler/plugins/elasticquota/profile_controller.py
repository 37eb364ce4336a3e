"""ElasticQuotaProfile controller: the nodes of a profile become the root quota of a tree.

Rules QUOTA-R60 to QUOTA-R64. Upstream runs it in koord-manager. Here the scheduler runs it where its argument
`multiQuotaTree` is set.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.quantity import CPU, MEMORY, quantities
from seatrial.scheduler.api.quota import PROFILES_PATH, QUOTAS_PATH, AnnotationError, ElasticQuotaProfile, string_list
from seatrial.scheduler.api.transport import Done, Response
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.client.rest import refusal
from seatrial.scheduler.framework.controllers import Controller, ControllerContext
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.plugins.elasticquota.specs import read_amounts
from seatrial.scheduler.pods.selectors import selector_matches

log = logging.getLogger(__name__)

PERIOD = 10.0  # seconds between two passes
RETRY = 2.0  # seconds after an error of the API server
UNLIMITED = (2**63 - 1) // 2000  # max of each resource of a tree root


class ProfileController(Controller):
    """Runs while this scheduler leads, if there is a profile."""

    def __init__(self, cache: QuotaCache, context: ControllerContext) -> None:
        self._cache, self._rest, self._clock = cache, context.rest, context.clock
        self._timer: Timer | None = None
        self._stopped = True

    def start(self) -> None:
        self._stopped = False
        self._cache.on_profile = self._soon
        if self._cache.profiles:
            self._soon()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _soon(self) -> None:
        self._plan(0.0)

    def _plan(self, pause: float) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(pause, self._pass)

    def _pass(self) -> None:
        self._timer = None
        if self._cache.profiles:
            self._plan(PERIOD)
        for profile in list(self._cache.profiles.values()):
            with self._clock.faults.guard("ProfileController._reconcile", profile.metadata.key):
                self._reconcile(profile)

    def _reconcile(self, profile: ElasticQuotaProfile) -> None:
        tree = profile.metadata.labels.get(keys.TREE_ID, "")
        if not tree:
            tree = tree_id(profile.metadata.key)
            path = f"{_collection(PROFILES_PATH, profile.metadata.namespace)}/{profile.metadata.name}"
            labels = {"metadata": {"labels": {keys.TREE_ID: tree}}}
            self._rest.merge(path, labels, self._done(profile), uid=profile.metadata.uid)
        amounts = root_quota(profile, tree, self._cache.node_objects.values())
        known = self._cache.objects.get(profile.spec.quota_name)
        path = _collection(QUOTAS_PATH, profile.metadata.namespace)
        if known is None:
            self._rest.post(path, amounts, self._done(profile))
            return
        metadata = {
            "labels": _changed(known.metadata.labels, amounts["metadata"]["labels"]),
            "annotations": _changed(known.metadata.annotations, amounts["metadata"]["annotations"]),
        }
        spec = {"min": dict((known.spec and known.spec.min) or {}), "max": dict((known.spec and known.spec.max) or {})}
        if any(metadata.values()) or spec != amounts["spec"]:
            patch = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": amounts["spec"]}
            name = profile.spec.quota_name
            self._rest.merge(f"{path}/{name}", patch, self._done(profile), uid=known.metadata.uid)

    def _done(self, profile: ElasticQuotaProfile) -> Done:
        def done(response: Response) -> None:
            if not response.ok:
                log.warning("quota-profile failed name=%s why=%s", profile.metadata.key, refusal(response))
                self._plan(RETRY)

        return done


def root_quota(profile: ElasticQuotaProfile, tree: str, nodes: Iterable[Node]) -> dict[str, Any]:
    """The tree root that belongs to a profile, as a manifest."""
    total: Counter[str] = Counter()
    unschedulable: Counter[str] = Counter()
    selector = profile.spec.node_selector
    for node in nodes:
        if selector is not None and selector_matches(selector, node.metadata.labels):
            amounts = read_amounts(node.name, "allocatable", node.status.allocatable, [])
            total.update(amounts)
            if node.spec.unschedulable or not _is_ready(node):
                unschedulable.update(amounts)
    factor = ratio(profile.spec.resource_ratio)
    whole, closed = _scaled(total, factor), _scaled(unschedulable, factor)
    try:
        limited = string_list(profile.metadata.annotations, keys.RESOURCE_KEYS)
    except AnnotationError:
        limited = None
    limited = [CPU, MEMORY] if limited is None else limited
    labels = {
        keys.PROFILE: profile.metadata.name,
        **(profile.spec.quota_labels or {}),
        keys.TREE_ID: tree,
        keys.IS_ROOT: "true",
    }
    least = quantities({key: whole.get(key, 0) for key in limited})
    group = QUOTAS_PATH.removeprefix("/apis/").rpartition("/")[0]
    return {
        "apiVersion": group,
        "kind": "ElasticQuota",
        "metadata": {
            "name": profile.spec.quota_name,
            "namespace": profile.metadata.namespace,
            "labels": labels,
            "annotations": {
                keys.TOTAL_RESOURCE: to_json(quantities(whole)).decode(),
                keys.UNSCHEDULABLE_RESOURCE: to_json(quantities(closed)).decode(),
            },
        },
        "spec": {"min": least, "max": {key: str(UNLIMITED) for key in sorted(limited)}},
    }


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in after.items() if before.get(key) != value}


def ratio(text: str | None) -> Fraction:
    """`resourceRatio` if it is in (0, 1], else 1."""
    value = finite(text or "1")
    return Fraction(text or "1") if value is not None and 0 < value <= 1 else Fraction(1)


def tree_id(key: str) -> str:
    """The ID of a profile's tree where its label has none: FNV-1a, 64 bits, of `namespace/name`, in decimal."""
    digest = 0xCBF29CE484222325
    for byte in key.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return str(digest)


def _scaled(total: Mapping[str, int], factor: Fraction) -> dict[str, int]:
    return {key: int(value * factor) for key, value in total.items()}


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def _collection(path: str, namespace: str) -> str:
    group, _, plural = path.rpartition("/")
    return f"{group}/namespaces/{namespace}/{plural}"
