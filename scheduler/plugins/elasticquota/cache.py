"""Quotas with their pods: ElasticQuota objects, pending and placed pods, and the totals of nodes.

Pending pods count as requests, pods on nodes (assumed ones included) also as use. As long as there is no ElasticQuota
nothing is counted. The cache wakes pods that wait for a quota after changes that may have
made room: `Handle.open_gate("quota/NAME")`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.quantity import QuantityError, amounts
from seatrial.scheduler.api.quota import (
    DEFAULT_QUOTA,
    IGNORE_DEFAULT_TREE,
    NAMESPACES,
    PREEMPTIBLE,
    QUOTA_NAME,
    ROOT_QUOTA,
    SHARED_WEIGHT,
    SPECIAL,
    SYSTEM_QUOTA,
    TOTAL_RESOURCE,
    AnnotationError,
    ElasticQuota,
    ElasticQuotaProfile,
    age_of,
    resource_list,
    string_list,
)
from seatrial.scheduler.cache.classes import EquivalenceClass, renamed
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.elasticquota.args import ElasticQuotaArgs
from seatrial.scheduler.plugins.elasticquota.hook_latency import MeasuredHook
from seatrial.scheduler.plugins.elasticquota.hooks import build_hooks
from seatrial.scheduler.plugins.elasticquota.specs import read_amounts, spec_of
from seatrial.scheduler.quota.tree import Charge, Quota, QuotaSpec, QuotaTree

MAX_CHARGES = 65536  # remembered at a time


@dataclass(slots=True)
class Account:
    """One pod as it is counted."""

    pod: Pod
    quota: str
    tree: str
    amounts: Mapping[str, int]
    non_preemptible: bool
    home: Quota  # the quota with its sums, in the tree `tree`
    charge: Charge  # `amounts` without zeros; one object for pods that use the same
    assigned: bool = False  # on a node, or assumed to be
    info: PodInfo | None = None  # once it was on a node


def is_non_preemptible(pod: Pod) -> bool:
    """Whether the pod's label forbids its preemption for quota."""
    return pod.metadata.labels.get(PREEMPTIBLE) == "false"


class QuotaCache(Listener):
    """All trees of quotas, and the pods counted in them. Without an ElasticQuota it follows no pod."""

    def __init__(self, handle: Handle, args: ElasticQuotaArgs) -> None:
        self.handle, self.args = handle, args
        self.objects: dict[str, ElasticQuota] = {}
        self.accounts: dict[str, Account] = {}  # by pod uid; empty unless `active`
        self.active = False  # whether there was an ElasticQuota
        self.profiles: dict[str, ElasticQuotaProfile] = {}  # by namespace/name
        self.node_objects: dict[str, Node] = {}  # only with `multi_quota_tree`
        self.on_profile: Callable[[], None] = lambda: None  # called when a profile was added or changed
        self.on_active: Callable[[], None] = lambda: None  # called with the first quota
        self.is_used = False  # whether a profile has the plugin
        self.checks_parents = False  # whether a profile checks the quotas above a pod's own
        self.refused: dict[str, set[str]] = {}  # wake keys of pods that may have to be woken, by the refusing quota
        self.members: dict[str, dict[str, Account]] = {}  # pods by quota
        self._tree_of: dict[str, str] = {}
        self._totals: dict[str, dict[str, int]] = {}  # of trees other than the default one
        self._shared_totals: set[str] = set()  # trees whose total is not deducted from the default tree
        self._nodes: dict[str, dict[str, int]] = {}
        self._cluster: Counter[str] = Counter()
        self._named: dict[str, dict[str, ElasticQuota]] = {}  # by name and namespace/name; `objects` has the oldest
        self._bound_namespaces: dict[str, list[str]] = {}  # namespace → quotas that list it, oldest first
        self._labelled: dict[str, set[str]] = {}  # uids by the quota that their label names
        self._unlabelled: dict[str, set[str]] = {}  # uids by namespace
        self._ends: dict[str, float] = {}  # by uid: when the grace period of a terminating pod ends, seconds since 1970
        self.hooks = [MeasuredHook(hook, handle.clock.monotonic) for hook in build_hooks(self.args.hook_plugins)]
        self._charges: dict[Charge, Charge] = {}
        self.trees: dict[str, QuotaTree] = {"": self._new_tree()}
        handle.on_node_changed(self.node_changed)

    @staticmethod
    def of(handle: Handle, args: ElasticQuotaArgs | None = None) -> "QuotaCache":
        """The cache that all profiles share. The arguments of the first profile count."""
        return handle.shared(QuotaCache, lambda: QuotaCache(handle, args or ElasticQuotaArgs()))

    def _new_tree(self) -> QuotaTree:
        args = self.args
        return QuotaTree(
            scale_min=args.enable_min_quota_scale,
            guarantee=args.guarantee_usage,
            system_max=read_amounts(SYSTEM_QUOTA, "max", args.system_quota_group_max, []),
            default_max=read_amounts(DEFAULT_QUOTA, "max", args.default_quota_group_max, []),
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> tuple[QuotaTree, Quota] | None:
        """A quota with its tree."""
        tree = self.trees.get(self._tree_of.get(name, ""))
        quota = tree.find(name) if tree is not None else None
        return None if tree is None or quota is None else (tree, quota)

    def quota_of(self, pod: Pod) -> str:
        """The name of the pod's quota (QUOTA-R30); "" if none counts it."""
        metadata = pod.metadata
        name = metadata.labels.get(QUOTA_NAME, "")
        if name:
            if name in self.objects or name in SPECIAL:
                return name
            return "" if self.args.disable_default_quota else DEFAULT_QUOTA
        if self.args.disable_default_quota:
            return ""
        namespace = metadata.namespace
        own = self.objects.get(namespace)
        if own is not None and own.metadata.namespace == namespace:
            return namespace
        return next(iter(self._bound_namespaces.get(namespace, ())), DEFAULT_QUOTA)

    def tree_id(self, name: str) -> str:
        return self._tree_of.get(name, "")

    def limit(self, tree: QuotaTree, quota: Quota) -> dict[str, int]:
        """What the use of a quota is compared with. Empty: no limit (QUOTA-R40, QUOTA-R41)."""
        if not self.args.enable_runtime_quota:
            return dict(quota.spec.max)
        if quota is tree.default or quota is tree.system or quota is tree.root:
            return {}
        return tree.runtime(quota)

    # -- quotas -------------------------------------------------------------------------------------------------------

    def set_quota(self, quota: ElasticQuota) -> None:
        """An ElasticQuota was added or changed. Of several with one name the oldest counts."""
        before = self.objects.get(quota.name)
        self._named.setdefault(quota.name, {})[quota.metadata.key] = quota
        first = self._take_oldest(quota.name)
        ignored = quota if first is not quota else before
        if first is not None and ignored is not None and ignored.metadata.key != first.metadata.key:
            self.handle.complain(
                f"quota {ignored.metadata.key}: quota {first.metadata.key} has the same name; it is ignored"
            )

    def remove_quota(self, quota: ElasticQuota) -> None:
        """An ElasticQuota is gone. Its pods go to the quota that is theirs now, else to the default one (QUOTA-R36)."""
        if self._named.get(quota.name, {}).pop(quota.metadata.key, None) is not None:
            self._take_oldest(quota.name)

    def _take_oldest(self, name: str) -> ElasticQuota | None:
        named, before = self._named[name], self.objects.get(name)
        first = min(named.values(), key=age_of, default=None)
        if before is not None and (first is None or first.metadata.key != before.metadata.key):
            self._remove(before)
        if first is None:
            del self._named[name]
        else:
            self._set(first)
        return first

    def _set(self, quota: ElasticQuota) -> None:
        complaints: list[str] = []
        name, before = quota.name, self.objects.get(quota.name)
        same = (
            before is not None
            and before.spec == quota.spec
            and before.metadata.labels == quota.metadata.labels
            and _decisive(before) == _decisive(quota)
            and not (self.hooks and self._concerns_hooks(quota))
        )
        if not self.active:
            self._activate()  # without this quota; its pods move into it below, as it gets its place
        self.objects[name] = quota
        if same or name in {ROOT_QUOTA, SYSTEM_QUOTA}:
            return
        tree = self._tree_for(quota)
        spec = spec_of(quota, complaints)
        self.handle.complain(*complaints)
        if name == DEFAULT_QUOTA and not spec.max:
            return
        known = tree.find(name)
        with self._hooked(known.spec if known is not None else None, spec, quota):
            problem = tree.set_quota(spec)
        if problem:
            self.handle.complain(problem)
        if name != DEFAULT_QUOTA:
            self._bind_namespaces(name, before, quota)
            if quota.is_tree_root:
                self._set_total(self.tree_id(name))
            if before is None:
                self._resolve_again([name], [quota.metadata.namespace])
        self._made_room()

    def _concerns_hooks(self, quota: ElasticQuota) -> bool:
        results = self.find(quota.name)
        if results is None:
            return False
        spec = results[1].spec
        return any(hook.is_quota_updated(spec, spec, quota) for hook in self.hooks)

    @contextmanager
    def _hooked(self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota) -> Iterator[None]:
        """Call the hooks before and after a change of a quota."""
        states: list[dict[str, Any]] = [{} for _ in self.hooks]
        for hook, state in zip(self.hooks, states, strict=True):
            hook.pre_quota_update(old, new, quota, state)
        yield
        for hook, state in zip(self.hooks, states, strict=True):
            hook.post_quota_update(old, new, quota, state)

    def _remove(self, known: ElasticQuota) -> None:
        name = known.name
        del self.objects[name]
        if name in SPECIAL:
            return
        self._bind_namespaces(name, known, None)
        self._resolve_again([name], [known.metadata.namespace])
        tree_id = self._tree_of.pop(name, "")
        tree = self.trees[tree_id].find(name)
        with self._hooked(tree.spec if tree is not None else None, None, known):
            self.trees[tree_id].remove_quota(name)
        if known.is_tree_root and self._totals.pop(tree_id, None) is not None:
            self._shared_totals.discard(tree_id)
            self._spread_totals()
            self._set_total(tree_id)
        self.refused.pop(name, None)
        self._made_room()

    def set_profile(self, profile: ElasticQuotaProfile) -> None:
        self.profiles[profile.metadata.key] = profile
        self.on_profile()

    def remove_profile(self, profile: ElasticQuotaProfile) -> None:
        """A profile is gone. Its quota stays (QUOTA-R64)."""
        self.profiles.pop(profile.metadata.key, None)

    def _tree_for(self, quota: ElasticQuota) -> QuotaTree:
        tree_id = self._tree_of.get(quota.name)
        if tree_id is None:  # the first event decides (QUOTA-R57)
            tree_id = quota.tree if self.args.multi_quota_tree and quota.name not in SPECIAL else ""
            self._tree_of[quota.name] = tree_id
        tree = self.trees.get(tree_id)
        if tree is None:
            tree = self.trees[tree_id] = self._new_tree()
        return tree

    def _set_total(self, tree_id: str) -> None:
        """Take the total of a tree from its oldest root."""
        values = self.objects.values()
        roots = [quota for quota in values if quota.is_tree_root and self._tree_of.get(quota.name) == tree_id]
        if not tree_id or not roots:
            return
        quota = min(roots, key=age_of)
        try:
            total = resource_list(quota, TOTAL_RESOURCE)
        except AnnotationError as error:
            self.handle.complain(f"quota {quota.name}: annotation {TOTAL_RESOURCE}: {error}")
            return
        if total is None:
            return
        self._totals[tree_id] = total
        if quota.metadata.labels.get(IGNORE_DEFAULT_TREE) == "true":
            self._shared_totals.add(tree_id)
        else:
            self._shared_totals.discard(tree_id)
        self._spread_totals()

    def _spread_totals(self) -> None:
        rest = dict(self._cluster)
        for tree_id, tree in self.trees.items():
            if not tree_id:
                continue
            total = self._totals.get(tree_id, {})
            tree.set_cluster(total)
            if tree_id not in self._shared_totals:
                for key, value in total.items():
                    rest[key] = rest.get(key, 0) - value
        self.trees[""].set_cluster(rest)

    def _bind_namespaces(self, name: str, before: ElasticQuota | None, after: ElasticQuota | None) -> None:
        old = set(self._listed(before) if before is not None else ())
        new = set(self._listed(after) if after is not None else ())
        changed = old ^ new
        if not changed:
            return
        for namespace in changed:
            bound = set(self._bound_namespaces.pop(namespace, ())) - {name}
            if namespace in new:
                bound.add(name)
            if bound:
                self._bound_namespaces[namespace] = sorted(bound, key=lambda name: age_of(self.objects[name]))
        self._resolve_again((), changed)

    def _listed(self, quota: ElasticQuota) -> list[str]:
        try:
            return string_list(quota.metadata.annotations, NAMESPACES) or []
        except AnnotationError as error:
            self.handle.complain(f"quota {quota.name}: annotation {NAMESPACES}: {error}; it is ignored")
            return []

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pod_pending(self, pod: Pod) -> None:
        """A pod without a node was added or changed, of any scheduler."""
        self._count(pod)

    def pod_left(self, uid: str) -> None:
        """A pod is gone or has ended."""
        self._ends.pop(uid, None)
        if self.hooks:
            for name, keys in self.refused.items():
                keys.discard(self.wake_key_of(uid, name))
        self._forget(uid)

    def pod_placed(self, info: PodInfo) -> None:
        account = self.accounts.get(info.uid)
        if account is None or account.pod is not info.pod:
            account = self._count(info.pod, info)
        else:
            account.info = info
        if account is not None and not account.assigned:
            account.assigned = True
            self.trees[account.tree].change_used(account.home, account.charge, non_preemptible=account.non_preemptible)
            if self.hooks:
                self._tell(account.quota, None, account.pod)

    def pod_gone(self, info: PodInfo) -> None:
        account = self.accounts.get(info.uid)
        if account is not None and account.assigned:
            account.assigned = False
            self._use(account, -1)
            self._made_room(account.quota)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        self._count(info.pod, info)

    def _activate(self) -> None:
        self.active = True
        cache = self.handle.cache
        cache.listen(self)
        self.handle.on_pod_pending(self.pod_pending)
        self.handle.on_pod_left(self.pod_left)
        for node in cache.nodes.values():
            for info in node.pods.values():
                self.pod_placed(info)
        for uid, pod in cache.pending.items():
            if uid not in self.accounts:
                self._count(pod)
        self.handle.request_regate()
        self.on_active()

    def _count(self, pod: Pod, info: PodInfo | None = None) -> Account | None:
        """Count a pod in its quota; the state of its assignment stays."""
        uid = pod.metadata.uid
        if pod.deleting and self._ignores(pod):
            self._forget(uid)
            return None
        pod_class = info.pod_class if info is not None else self.handle.cache.classes.of(pod)
        name = self.quota_of(pod)
        pod_amounts = self._amounts(pod, pod_class)
        known = self.accounts.get(uid)
        strict = is_non_preemptible(pod)
        if known is not None:
            known.info = info or known.info
            before, known.pod = known.pod, pod
            alike = (known.quota, known.non_preemptible, known.amounts) == (name, strict, pod_amounts)
            if alike and before.metadata.labels.get(QUOTA_NAME) == pod.metadata.labels.get(QUOTA_NAME):
                if self.hooks and known.assigned and before is not pod:
                    self._tell(name, before, pod)
                return known
            known.pod = before  # it is indexed by its labels
            self._forget(uid)
        if not name:
            return None
        tree_id = self.tree_id(name)
        tree = self.trees[tree_id]
        home = tree.find(name)
        if home is None:
            return None
        account = Account(pod, name, tree_id, pod_amounts, strict, home, self._charge(pod_amounts), info=info)
        if known is not None:
            account.assigned, account.info = known.assigned, known.info
        self.accounts[uid] = account
        self.members.setdefault(name, {})[uid] = account
        label = pod.metadata.labels.get(QUOTA_NAME, "")
        index, key = (self._labelled, label) if label else (self._unlabelled, pod.metadata.namespace)
        index.setdefault(key, set()).add(uid)
        tree.add_request(name, pod_amounts, non_preemptible=strict)
        if account.assigned:
            self._use(account, 1)
        return account

    def _ignores(self, pod: Pod) -> bool:
        """Whether a pod that is being deleted does not count any more (QUOTA-R34)."""
        if self.args.ignore_terminating_pod:
            return True
        if not self.args.ignore_terminating_pod_after_grace_period:
            return False
        metadata, clock, uid = pod.metadata, self.handle.clock, pod.metadata.uid
        deleted = read_time(metadata.deletion_timestamp)
        if deleted is None:
            return False
        moment = deleted + (metadata.deletion_grace_period_seconds or 0)
        left = moment - clock.now()
        if left < 0:
            return True
        if self._ends.get(uid) != moment:
            self._ends[uid] = moment
            clock.call_later(left + 0.001, lambda: self._grace_ended(uid, moment))
        return False

    def _grace_ended(self, uid: str, moment: float) -> None:
        if self._ends.get(uid) == moment:
            del self._ends[uid]
            account = self.accounts.get(uid)
            if account is not None:
                self._count(account.pod, account.info)

    def _forget(self, uid: str) -> None:
        account = self.accounts.pop(uid, None)
        if account is None:
            return
        members = self.members[account.quota]
        del members[uid]
        if not members:
            del self.members[account.quota]
        for index in (self._labelled, self._unlabelled):
            for key in (account.pod.metadata.labels.get(QUOTA_NAME, ""), account.pod.metadata.namespace):
                entry = index.get(key)
                if entry is not None:
                    entry.discard(uid)
                    if not entry:
                        del index[key]
        tree = self.trees[account.tree]
        tree.add_request(account.quota, account.amounts, non_preemptible=account.non_preemptible, sign=-1)
        if account.assigned:
            self._use(account, -1)
        self._made_room()

    def _use(self, account: Account, sign: int) -> None:
        tree = self.trees[account.tree]
        tree.change_used(account.home, account.charge, non_preemptible=account.non_preemptible, sign=sign)
        if self.hooks:
            self._tell(account.quota, *((None, account.pod) if sign > 0 else (account.pod, None)))

    def _tell(self, quota: str, old: Pod | None, new: Pod | None) -> None:
        for hook in self.hooks:
            hook.on_pod_updated(quota, old, new)

    def _charge(self, targets: Mapping[str, int]) -> Charge:
        charge = tuple((key, value) for key, value in targets.items() if value)
        if len(self._charges) >= MAX_CHARGES:
            self._charges.clear()
        return self._charges.setdefault(charge, charge)

    def _amounts(self, pod: Pod, pod_class: EquivalenceClass) -> Mapping[str, int]:
        if not (self.args.ignore_pod_overhead and pod.spec.overhead):
            return pod_class.requests
        try:
            overhead = renamed(amounts(pod.spec.overhead))
        except QuantityError:
            return pod_class.requests
        return {key: value - overhead.get(key, 0) for key, value in pod_class.requests.items()}

    def amounts_of(self, info: PodInfo) -> Mapping[str, int]:
        """What a pod counts with."""
        return self._amounts(info.pod, info.pod_class)

    def _resolve_again(self, names: Iterable[str], namespaces: Iterable[str]) -> None:
        """Find the quota of pods again whose label names one of `names`, or that have no label in `namespaces`."""
        uids = {uid for name in names for uid in self._labelled.get(name, ())}
        uids |= {uid for namespace in namespaces for uid in self._unlabelled.get(namespace, ())}
        for uid in sorted(uids):
            self._count(self.accounts[uid].pod, self.accounts[uid].info)
        self.handle.request_regate()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def node_changed(self, name: str, node: Node | None) -> None:
        """A node was added or changed, or (None) is gone."""
        if self.args.multi_quota_tree:
            self.node_objects.pop(name, None)
            if node is not None:
                self.node_objects[name] = node
        before = self._nodes.pop(name, {})
        counts: dict[str, int] = {}
        if node is not None:
            counts = dict(renamed(read_amounts(name, "allocatable", node.status.allocatable, [])))
            self._nodes[name] = counts
        if counts == before:
            return
        self._cluster.update(counts)
        self._cluster.subtract(before)
        self._spread_totals()
        if self.active:
            self._made_room()

    # -- waking -------------------------------------------------------------------------------------------------------

    def share_changed(self, name: str) -> None:
        """Have the pods of a quota asked again that were refused."""
        self._made_room(name)

    def _made_room(self, name: str = "") -> None:
        """Have pods asked again that were refused: those of one quota, or all, because shares may have grown."""
        if not self.refused:
            return
        if name and not self.checks_parents and name not in {DEFAULT_QUOTA, SYSTEM_QUOTA}:
            for key in self.refused.get(name, ()):
                self.handle.open_gate(key)
            return
        for keys in self.refused.values():
            for key in keys:
                self.handle.open_gate(key)

    def wake_key_of(self, uid: str, quota: str) -> str:
        """The key under which a pod waits for its quota. A hook may judge pods of one class differently."""
        return f"quota/{quota}/{uid}" if self.hooks else f"quota/{quota}"


def _decisive(quota: ElasticQuota) -> dict[str, str]:
    """The annotations that an author writes; the scheduler itself writes the others."""
    keys = (SHARED_WEIGHT, NAMESPACES, TOTAL_RESOURCE)
    return {key: value for key, value in quota.metadata.annotations.items() if key in keys}
