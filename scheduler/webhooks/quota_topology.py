"""Admission rules for ElasticQuotas and for the pods of quotas, with upstream's messages.

Follows Koordinator `pkg/webhook/elasticquota/{quota_topology,quota_topology_check,pod_check}.go`, rules QUOTA-R72 and
V1 to V22. Two rules are stricter than upstream: a parent below the quota itself is refused (upstream never ends), and
an update that changes only the weight or the lending is validated too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import QuantityError, amount, amounts, canonical
from seatrial.scheduler.api.quota import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SPECIAL,
    SYSTEM_QUOTA,
    AnnotationError,
    ElasticQuota,
    ElasticQuotaProfile,
    resource_list,
    string_list,
)
from seatrial.scheduler.api.wire import ResourceList, decode_as, to_json
from seatrial.scheduler.webhooks.known_quotas import KnownQuotas
from seatrial.scheduler.webhooks.quota_pods import QuotaAdmission, tree_affinity


class QuotaRefusal(Exception):
    """The request is refused, with upstream's message."""


class QuotaExceeded(QuotaRefusal):
    """The pod is refused because the requests of its quota's pods have reached the limit."""


KEYS_DIFFER = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "


@dataclass(frozen=True, slots=True)
class QuotaGates:
    """Upstream's feature gates of the webhook: MultiQuotaTree, ElasticQuotaGuaranteeUsage, EnableQuotaAdmission[…],
    ElasticQuotaEnableUpdateResourceKey, SupportParentQuotaSubmitPod and DisableDefaultQuota.
    """

    multi_quota_tree: bool = False
    guarantee_usage: bool = False
    quota_admission: bool = False
    quota_admission_on_update: bool = False
    update_resource_key: bool = False
    parent_quota_pods: bool = False
    disable_default_quota: bool = False


class QuotaTopology:
    """The quotas and pods that are known, and the decision about each request."""

    def __init__(self, gates: QuotaGates | None = None, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """`monotonic`: seconds, for what was admitted and the watch has not delivered yet."""
        self.gates = gates or QuotaGates()
        self.profiles: dict[str, ElasticQuotaProfile] = {}  # by namespace/name; only with `multi_quota_tree`
        self.admission = QuotaAdmission(monotonic) if self.gates.quota_admission else None
        self._known = KnownQuotas(monotonic)
        self._namespaces: dict[str, str] | None = None  # to the quota that lists them; None: quotas changed since
        self._uncounted = False  # whether pods may belong to other quotas than they were counted for
        self.pods: dict[str, Pod] = {}  # by uid

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def quotas(self) -> Mapping[str, ElasticQuota]:
        """The quotas by name, those included that were just admitted."""
        return self._known.current

    def set_quota(self, quota: ElasticQuota) -> None:
        known = self.quotas.get(quota.name)
        self._known.set(quota)
        self._compare(known, self.quotas.get(quota.name))

    def remove_quota(self, quota: ElasticQuota) -> None:
        known = self.quotas.get(quota.name)
        self._known.remove(quota)
        self._compare(known, self.quotas.get(quota.name))

    def _compare(self, known: ElasticQuota | None, now: ElasticQuota | None) -> None:
        """Pods may belong to other quotas if one came or went, or lists other namespaces."""
        if known is None or now is None or _places(known) != _places(now):
            self._changed()

    def _changed(self) -> None:
        self._namespaces = None
        self._uncounted = True

    def _admitted(self, quota: ElasticQuota, old: ElasticQuota | None, *, trial: bool) -> None:
        if not trial:
            known = self.quotas.get(quota.name)
            self._known.admit(quota, old)
            self._compare(known, quota)

    def _refresh(self) -> None:
        """Before a decision: forget admitted quotas that were never stored, and find the quotas of pods again."""
        if self._known.expire():
            self._changed()
        if self._uncounted and self.admission is not None:
            self.admission.recount(self.quota_of)
        self._uncounted = False

    def _bound_namespaces(self) -> dict[str, str]:
        if self._namespaces is None:
            self._namespaces = {}
            for quota in sorted(self.quotas.values(), key=keys.age_of):
                for namespace in _namespaces(quota):
                    self._namespaces.setdefault(namespace, quota.name)
        return self._namespaces

    def set_pod(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        if self.admission is not None:
            self.admission.set_pod(pod, self.quota_of(pod))

    def remove_pod(self, pod: Pod) -> None:
        self.pods.pop(pod.metadata.uid, None)
        if self.admission is not None:
            self.admission.remove_pod(pod)

    def set_profile(self, profile: ElasticQuotaProfile) -> None:
        self.profiles[profile.metadata.key] = profile

    def remove_profile(self, profile: ElasticQuotaProfile) -> None:
        self.profiles.pop(profile.metadata.key, None)

    def children(self, name: str) -> list[ElasticQuota]:
        return [quota for quota in self.quotas.values() if quota.parent == name and quota.name != name]

    # -- quotas -------------------------------------------------------------------------------------------------------

    def defaults(self, quota: ElasticQuota) -> tuple[dict[str, str], dict[str, str]]:
        """Labels and annotations that a new quota gets (QUOTA-R72).

        Raises:
            QuotaRefusal: the shared weight cannot be read, or the parent is not known.
        """
        self._refresh()
        labels: dict[str, str] = {}
        if quota.name == ROOT_QUOTA:
            return {}, {}
        if not quota.metadata.labels.get(keys.PARENT):
            labels[keys.PARENT] = ROOT_QUOTA
        if not quota.tree and quota.parent != ROOT_QUOTA:
            parent = self.quotas.get(quota.parent)
            if parent is None:
                raise QuotaRefusal(f"fill quota {quota.name} failed, parent not exist")
            if parent.tree:
                labels[keys.TREE_ID] = parent.tree
        most = (quota.spec and quota.spec.max) or {}
        text = quota.metadata.annotations.get(keys.SHARED_WEIGHT)
        if not text:
            return labels, {keys.SHARED_WEIGHT: to_json(most).decode()}
        try:
            weight = decode_as(text, ResourceList)
        except msgspec.MsgspecError as error:
            raise QuotaRefusal(f"fillDefaultQuotaInfo unmarshal sharedWeight failed:{error}") from error
        aligned = {key: weight.get(key, quantity) for key, quantity in most.items()}
        return labels, {} if aligned == weight else {keys.SHARED_WEIGHT: to_json(aligned).decode()}

    def create(self, quota: ElasticQuota, *, trial: bool = False) -> None:
        """`trial`: nothing will be stored.

        Raises:
            QuotaRefusal: a rule is broken.
        """
        self._refresh()
        name = quota.name
        known = self.quotas.get(name)
        again = self._known.is_new(name) and known is not None and known.metadata.key == quota.metadata.key
        if known is not None and not again:  # of two writes of one object the API server refuses the later one
            raise QuotaRefusal(f"AddQuota quota already exist:{name}")
        for namespace, other in self._bound(quota):
            raise QuotaRefusal(
                f"AddQuota quota {name}'s annotation namespace {namespace} is already bound to quota {other}"
            )
        self._check_self(quota)
        self._check_topology(quota, None)
        self._admitted(quota, None, trial=trial)

    def update(self, old: ElasticQuota, new: ElasticQuota, *, trial: bool = False) -> None:
        """`trial`: nothing will be stored.

        Raises:
            QuotaRefusal: a rule is broken.
        """
        self._refresh()
        name = new.name
        if _relevant(old) == _relevant(new):
            self._admitted(new, old, trial=trial)
            return
        if name in {ROOT_QUOTA, SYSTEM_QUOTA}:
            raise QuotaRefusal(f"invalid quota {name}")
        for namespace, other in self._bound(new):
            raise QuotaRefusal(
                f"UpdadteQuota, quota {name} update namespaces, but namespace {namespace} "
                f"is already bound to quota {other}"
            )
        known = self.quotas.get(name)
        if known is None:
            raise QuotaRefusal(f"UpdateQuota quota not exist in quotaInfoMap:{name}")
        self._check_self(new)
        self._check_topology(new, old)
        self._admitted(new, old, trial=trial)

    def delete(self, quota: ElasticQuota) -> None:
        """
        Raises:
            QuotaRefusal: the quota is special, unknown, or has children or pods.
        """
        self._refresh()
        name = quota.name
        if name in SPECIAL:
            raise QuotaRefusal(f"can not delete quotaGroup :{name}")
        if name not in self.quotas:
            raise QuotaRefusal(f"not found quota:{name}")
        children = self.children(name)
        if children:
            raise QuotaRefusal(f"delete quota failed, quota {name} has {len(children)} child quotas")
        pods = sorted(pod.key for pod in self.pods.values() if pod.metadata.labels.get(keys.QUOTA_NAME) == name)
        if pods:
            shown = ", ".join(pods[:2]) + (", ..." if len(pods) > 2 else "")
            raise QuotaRefusal(f"delete quota failed, quota {name} has {len(pods)} child pods: {shown}")

    def _bound(self, quota: ElasticQuota) -> list[tuple[str, str]]:
        """The namespaces that the quota lists and another quota has, with that quota."""
        listed = _namespaces(quota)
        return [
            (namespace, other.name)
            for namespace in listed
            for other in self.quotas.values()
            if other.name != quota.name and namespace in _namespaces(other)
        ]

    def _check_self(self, quota: ElasticQuota) -> None:
        """Rules about the quota alone (V4 to V7)."""
        name = quota.name
        least, most = _listed(quota, "min"), _listed(quota, "max")
        for field, listed in (("Max", most), ("Min", least)):
            negative = sorted(key for key, value in listed.items() if value < 0)
            if negative:
                raise QuotaRefusal(f"{name} quota.Spec.{field}'s value < 0, in dimensions :[{' '.join(negative)}]")
        if quota.metadata.annotations.get(keys.SHARED_WEIGHT):
            try:
                weight = resource_list(quota, keys.SHARED_WEIGHT) or {}
            except AnnotationError as error:
                raise QuotaRefusal(str(error)) from error
            negative = sorted(key for key, value in weight.items() if value < 0)
            if negative:
                where = f"{name} quota.Annotation[{keys.SHARED_WEIGHT}]"
                raise QuotaRefusal(f"{where}'s value < 0, in dimension :[{' '.join(negative)}]")
        for key, value in sorted(least.items()):
            if key not in most:
                raise QuotaRefusal(
                    f"resourceKey {key} of quota {name} is included in min, which is not included in max"
                )
            if value > most[key]:
                shown = _shown(quota, "min", key), _shown(quota, "max", key)
                raise QuotaRefusal(f"resourceKey {key} of quota {name} min {shown[0]} > max {shown[1]}")
        self._check_strict_keys(quota, most)

    def _check_strict_keys(self, quota: ElasticQuota, most: Mapping[str, int]) -> None:
        name = quota.name
        try:
            strict = string_list(quota.metadata.annotations, keys.STRICT_KEYS) or []
        except AnnotationError as error:
            raise QuotaRefusal(f"{name} quota.Annotation[{keys.STRICT_KEYS}]'s value is invalid: {error}") from error
        used = (quota.status and quota.status.used) or {}
        for key in strict:
            if key not in used:
                continue
            if key not in most:
                raise QuotaRefusal(
                    f"resourceKey {key} of quota {name} is included in used, which is not included in max "
                    "but should check max >= used"
                )
            if most[key] < amount(key, used[key]):
                raise QuotaRefusal(
                    f"resourceKey {key} of quota {name} max {_shown(quota, 'max', key)} < used {canonical(used[key])}"
                )

    def _check_topology(self, quota: ElasticQuota, old: ElasticQuota | None) -> None:
        """Rules about parent, siblings and children (V10 to V16)."""
        name = quota.name
        if name == ROOT_QUOTA:
            return
        children = self.children(name)
        if old is not None and old.is_parent and not quota.is_parent and children:
            raise QuotaRefusal(f"quota has children, isParent is forbidden to modify as false, quotaName:{name}")
        if old is not None and not old.is_parent and quota.is_parent and self._has_pods(old):
            raise QuotaRefusal(f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {name}")
        parent = self.quotas.get(quota.parent)
        if old is not None and old.tree != quota.tree:
            raise QuotaRefusal(f"{name} tree id changed [{old.tree}] vs [{quota.tree}]")
        if quota.parent != ROOT_QUOTA and parent is not None and parent.tree != quota.tree:
            raise QuotaRefusal(
                f"{name} tree id is different from parent {parent.name}, [{quota.tree}] vs [{parent.tree}]"
            )
        for child in children:
            if child.tree != quota.tree:
                raise QuotaRefusal(
                    f"{name} tree id is different from child {child.name}, [{quota.tree}] vs [{child.tree}]"
                )
        if quota.parent == ROOT_QUOTA and not quota.is_parent:
            return
        if quota.parent != ROOT_QUOTA:
            self._check_parent(quota, parent)
        self._check_keys(quota, parent, children)
        if quota.metadata.labels.get(keys.ALLOW_FORCE_UPDATE) != "true" and not quota.is_tree_root:
            self._check_min_sums(quota, parent, children)
            if self.gates.guarantee_usage and quota.tree:
                self._check_guarantee(quota)

    def _check_guarantee(self, quota: ElasticQuota) -> None:
        """The min is covered by what the quotas above are guaranteed (V17)."""
        own = _guaranteed(quota)
        least = _listed(quota, "min")
        if all(value <= own.get(key, 0) for key, value in least.items()):
            return
        needed = {key: max(least.get(key, 0), own.get(key, 0)) for key in {*least, *own}}
        current = quota
        while current.parent != ROOT_QUOTA and (parent := self.quotas.get(current.parent)) is not None:
            total = Counter(needed)
            for sibling in self.children(parent.name):
                if sibling.name != current.name:
                    total.update(_guaranteed(sibling))
            floor, covered = _listed(parent, "min"), _guaranteed(parent)
            needed = {key: max(floor.get(key, 0), total[key]) for key in {*floor, *total}}
            if all(value <= covered.get(key, 0) for key, value in needed.items()):
                return
            current = parent
        raise QuotaRefusal(f"tree root quota {current.name} can't guarantee for min {quota.name}")

    def _check_parent(self, quota: ElasticQuota, parent: ElasticQuota | None) -> None:
        name = quota.name
        if parent is None:
            raise QuotaRefusal(f"{name} has parentName {quota.parent} but not find parentInfo in quotaInfoMap")
        above: ElasticQuota | None = parent
        seen: set[str] = set()
        while above is not None and above.name not in seen:
            if above.name == name:
                raise QuotaRefusal(f"{name} has parentName {quota.parent} which is the quota itself or below it")
            seen.add(above.name)
            above = self.quotas.get(above.parent)
        if not parent.is_parent:
            raise QuotaRefusal(f"{name} has parentName {parent.name} but the parentQuotaInfo's IsParent is false")

    def _check_keys(self, quota: ElasticQuota, parent: ElasticQuota | None, children: Iterable[ElasticQuota]) -> None:
        prefix, least = KEYS_DIFFER, _listed(quota, "min")
        if quota.parent != ROOT_QUOTA and parent is not None:
            self._check_max_keys(quota, parent, parent, quota)
            if not least.keys() <= _listed(parent, "min").keys():
                raise QuotaRefusal(f"{prefix}{quota.name}'s min keys are not all included in {parent.name}'s")
        for child in children:
            self._check_max_keys(child, quota, child, quota)
            if not _listed(child, "min").keys() <= least.keys():
                raise QuotaRefusal(f"{prefix}{child.name}'s min keys are not all included in {quota.name}'s")

    def _check_max_keys(self, lower: ElasticQuota, upper: ElasticQuota, first: ElasticQuota, own: ElasticQuota) -> None:
        """`first`, `own`: the quotas in the order in which upstream names them."""
        below, above = _listed(lower, "max").keys(), _listed(upper, "max").keys()
        if self.gates.update_resource_key:
            if not below <= above:
                raise QuotaRefusal(f"{KEYS_DIFFER}{lower.name}'s max keys are not all included in {upper.name}'s")
        elif below != above:
            raise QuotaRefusal(f"{KEYS_DIFFER}{first.name}'s max keys are not the same with {own.name}'s")

    def _check_min_sums(
        self, quota: ElasticQuota, parent: ElasticQuota | None, children: Iterable[ElasticQuota]
    ) -> None:
        if quota.parent != ROOT_QUOTA and parent is not None:
            siblings = [other for other in self.children(parent.name) if other.name != quota.name]
            if not _within([*siblings, quota], parent):
                raise QuotaRefusal(f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {parent.name}")
        if not _within(children, quota):
            raise QuotaRefusal(f"checkMinQuotaSum all children's MinQuota > current MinQuota, current: {quota.name}")

    # -- pods ---------------------------------------------------------------------------------------------------------

    def quota_of(self, pod: Pod) -> str:
        """The name of a pod's quota (QUOTA-R30)."""
        name = pod.metadata.labels.get(keys.QUOTA_NAME, "")
        none = "" if self.gates.disable_default_quota else DEFAULT_QUOTA
        if name or not none:
            return name if name in self.quotas else none
        namespace = pod.metadata.namespace
        own = self.quotas.get(namespace)
        if own is not None and own.metadata.namespace == namespace:
            return namespace
        return self._bound_namespaces().get(namespace, DEFAULT_QUOTA)

    def check_pod(self, pod: Pod, old: Pod | None = None, *, trial: bool = False) -> None:
        """`trial`: nothing will be stored.

        Raises:
            QuotaRefusal: the pod's quota is a parent, or its label `preemptible` changed.
        """
        self._refresh()
        if old is not None:
            if old.metadata.labels.get(keys.PREEMPTIBLE) != pod.metadata.labels.get(keys.PREEMPTIBLE):
                raise QuotaRefusal("Preemptible label is forbidden modify now.")
            if self.quota_of(old) == self.quota_of(pod):
                return
            if self.gates.quota_admission_on_update:
                self._admit(pod, old.metadata.resource_version, trial=trial)
        name = self.quota_of(pod)
        quota = self.quotas.get(name)
        if quota is not None and quota.is_parent and not self.gates.parent_quota_pods:
            raise QuotaRefusal(f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:{pod.metadata.name}")
        if old is None:
            self._admit(pod, "", trial=trial)

    def _admit(self, pod: Pod, before: str, *, trial: bool) -> None:
        if self.admission is None:
            return
        name = pod.metadata.labels.get(keys.QUOTA_NAME, "") or self.quota_of(pod)
        quota = self.quotas.get(name)
        if quota is not None:
            message = self.admission.exceeded(pod, quota, before=before, trial=trial)
            if message:
                raise QuotaExceeded(message)
        elif name not in SPECIAL:
            raise QuotaRefusal(f"elastic quota {name} not found")

    def affinity(self, pod: Pod, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The patch that keeps a pod of a quota tree on the nodes of the tree (QUOTA-R65)."""
        self._refresh()
        quota = self.quotas.get(self.quota_of(pod)) if self.gates.multi_quota_tree else None
        return tree_affinity(manifest, quota.tree, self.profiles.values()) if quota is not None and quota.tree else []

    def _has_pods(self, quota: ElasticQuota) -> bool:
        listed = {quota.name, *_namespaces(quota)}
        return any(
            pod.metadata.labels.get(keys.QUOTA_NAME) == quota.name
            or (keys.QUOTA_NAME not in pod.metadata.labels and pod.metadata.namespace in listed)
            for pod in self.pods.values()
        )


def _within(lower: Iterable[ElasticQuota], upper: ElasticQuota) -> bool:
    total: dict[str, int] = {}
    for quota in lower:
        for key, value in _listed(quota, "min").items():
            total[key] = total.get(key, 0) + value
    least = _listed(upper, "min")
    return all(value <= least.get(key, 0) for key, value in total.items())


def _relevant(quota: ElasticQuota) -> tuple[Any, ...]:
    annotations = quota.metadata.annotations
    return (
        quota.parent,
        quota.is_parent,
        quota.tree,
        quota.lends,
        quota.spec,
        annotations.get(keys.NAMESPACES),
        annotations.get(keys.SHARED_WEIGHT),
    )


def _listed(quota: ElasticQuota, field: str) -> dict[str, int]:
    """The amounts of min or max.

    Raises:
        QuotaRefusal: one is not a quantity.
    """
    listed = (getattr(quota.spec, field) if quota.spec else None) or {}
    try:
        return amounts(listed)
    except QuantityError as error:
        raise QuotaRefusal(f"{quota.name} quota.Spec.{field.capitalize()}: {error}") from error


def _shown(quota: ElasticQuota, field: str, key: str) -> str:
    return canonical(getattr(quota.spec, field)[key])


def _guaranteed(quota: ElasticQuota) -> dict[str, int]:
    try:
        return resource_list(quota, keys.GUARANTEED) or {}
    except AnnotationError:
        return {}


def _namespaces(quota: ElasticQuota) -> list[str]:
    try:
        return string_list(quota.metadata.annotations, keys.NAMESPACES) or []
    except AnnotationError:
        return []


def _places(quota: ElasticQuota) -> tuple[str, str | None]:
    """What says which namespaces' pods belong to the quota."""
    return quota.metadata.namespace, quota.metadata.annotations.get(keys.NAMESPACES)
