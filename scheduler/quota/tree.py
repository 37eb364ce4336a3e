"""A tree of elastic quotas: requests and use from leaf to root, runtime shares from root to leaf.

A change of a request touches the quotas on the path to the root, and stops where the limited request stays the same.
Runtime shares are computed when they are read. Where the total of a level covers all limited requests, the share is the
limited request itself; otherwise the level is divided once and kept until something changed that matters.

Follows Koordinator `pkg/scheduler/plugins/elasticquota/core/{group_quota_manager,quota_info}.go`, rules
QUOTA-R2 to QUOTA-R29. All amounts are integers by resource name; CPU is in thousandths.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from seatrial.scheduler.quota.sharing import Share, runtime_shares, scaled_min

ROOT, SYSTEM, DEFAULT = "koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"
Amounts = Mapping[str, int]
Charge = tuple[tuple[str, int], ...]  # what one pod uses, without zeros
_MANY = 1 << 40  # pods


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """What the author of a quota decides. `weight` None: the same as `max`."""

    name: str
    parent: str = ROOT
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: Amounts | None = None
    lends: bool = True
    is_parent: bool = False

    def weight_of(self, key: str) -> int:
        """The shared weight for a resource."""
        return (self.max if self.weight is None else self.weight).get(key, 0)


class Quota:
    """One quota in a tree, with its sums. Only `QuotaTree` changes it."""

    __slots__ = (
        "_used",
        "allocated",
        "batch",
        "batched",
        "child_request",
        "children",
        "credit",
        "credit_at",
        "credit_for",
        "guaranteed",
        "kept",
        "limited",
        "limited_sum",
        "line",
        "line_at",
        "min_sum",
        "non_preemptible_request",
        "non_preemptible_used",
        "parent",
        "self_non_preemptible_request",
        "self_request",
        "share",
        "share_at",
        "spec",
        "special",
        "versions",
    )

    def __init__(self, spec: QuotaSpec) -> None:
        self.spec = spec
        self.parent: Quota | None = None
        self.line: tuple[Quota, ...] = ()  # kept by `QuotaTree.line` as long as no quota moves
        self.line_at = -1
        self.share: dict[str, int] | None = None  # kept by `QuotaTree` as long as no share changes
        self.share_at = -1
        self.self_request: Counter[str] = Counter()  # of its own pods, resources outside its max included
        self.self_non_preemptible_request: Counter[str] = Counter()
        self.child_request: Counter[str] = Counter()
        self.limited: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self.batch: Charge = ()  # what `batched` pods use each, not yet in `_used`: most pods of a quota are alike
        self.batched = 0
        self.credit = 0  # pods that use `credit_for` each and surely fit, as long as no share changes
        self.credit_for: Charge = ()
        self.credit_at = -1
        self.non_preemptible_request: Counter[str] = Counter()
        self.non_preemptible_used: Counter[str] = Counter()
        self.allocated: Counter[str] = Counter()
        self.guaranteed: Counter[str] = Counter()
        # The level below it.
        self.children: dict[str, Quota] = {}
        self.limited_sum: Counter[str] = Counter()
        self.min_sum: Counter[str] = Counter()
        self.special: Counter[str] = Counter()  # by resource: children for which the short way does not hold
        self.versions: Counter[str] = Counter()  # by resource: grows when the shares may have changed
        self.kept: dict[str, tuple[int, int | None, dict[str, int]]] = {}  # version, total, shares

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def used(self) -> Counter[str]:
        """The use of its pods and those of its children that are on nodes, or reserved there (QUOTA-R6)."""
        if self.batched:
            self.settle()
        return self._used

    def settle(self) -> None:
        """Add what is batched."""
        for key, value in self.batch:
            self._used[key] += value * self.batched
        self.batched = 0

    @property
    def self_used(self) -> Counter[str]:
        """The use of its own pods (QUOTA-R7): all but that of its children."""
        results = Counter(self.used)
        for child in self.children.values():
            results.subtract(child.used)
        return results

    @property
    def self_non_preemptible_used(self) -> Counter[str]:
        results = Counter(self.non_preemptible_used)
        for child in self.children.values():
            results.subtract(child.non_preemptible_used)
        return results

    def request(self, *, lends: bool) -> dict[str, int]:
        """The requests of its children or pods; at least its min for a quota that does not lend."""
        maxes = dict(self.child_request)
        if not lends:
            for key, value in self.spec.min.items():
                maxes[key] = max(maxes.get(key, 0), value)
        return maxes

    def path(self) -> list["Quota"]:
        """From the quota to the top of its tree."""
        parents = [self]
        while parents[-1].parent is not None:
            parents.append(parents[-1].parent)
        return parents


class QuotaTree:
    """Quotas below one root. The quotas `system` and `default` are beside the levels: their use is deducted."""

    def __init__(
        self,
        *,
        scale_min: bool = True,
        guarantee: bool = False,
        system_max: Amounts | None = None,
        default_max: Amounts | None = None,
    ) -> None:
        self.scale_min = scale_min
        self.guarantee = guarantee
        self.root = Quota(QuotaSpec(ROOT, "", lends=False, is_parent=True))
        self.system = Quota(QuotaSpec(SYSTEM, "", max=system_max or {}))
        self.default = Quota(QuotaSpec(DEFAULT, "", max=default_max or {}))
        self.cluster: dict[str, int] = {}
        self._moves = 0  # grows when a quota gets another place
        self._changes = 0  # grows when a share may have changed
        self.touched: set[Quota] = set()  # quotas whose sums changed; for `take_touched`
        self._quotas = {ROOT: self.root, SYSTEM: self.system, DEFAULT: self.default}
        self._orphans: dict[str, dict[str, None]] = {}  # by the name of the missing parent
        self._looping: dict[str, None] = {}  # quotas whose parent is below them

    def __iter__(self) -> Iterator[Quota]:
        return iter(self._quotas.values())

    def __len__(self) -> int:
        return len(self._quotas)

    def find(self, name: str) -> Quota | None:
        return self._quotas.get(name)

    def lends(self, quota: Quota) -> bool:
        return quota.spec.lends and not self.guarantee

    def attached(self, quota: Quota) -> bool:
        """Whether the quota's path ends at the root."""
        return quota.path()[-1] in {self.root, self.system, self.default}

    # -- totals -------------------------------------------------------------------------------------------------------

    def set_cluster(self, total: Amounts) -> None:
        """Set what the tree divides: allocatable resources of the nodes, or the total of a tree."""
        self.cluster = dict(total)
        self._changes += 1

    def total(self) -> dict[str, int]:
        """What the quotas below the root divide (QUOTA-R13). It may be negative."""
        system, default = self.system.used, self.default.used
        return {key: value - system.get(key, 0) - default.get(key, 0) for key, value in self.cluster.items()}

    # -- quotas -------------------------------------------------------------------------------------------------------

    def set_quota(self, spec: QuotaSpec) -> str:
        """Add a quota or change one in place. Returns why it is not below the root; "" if it is.

        A quota with a missing parent, or with a parent below itself, stays apart and gets no share.
        """
        quota = self._quotas.get(spec.name)
        if quota is None:
            quota = self._quotas[spec.name] = Quota(spec)
            self.touched.add(quota)
            reasons = [self._attach(quota)]
            reasons += [self._attach(self._quotas[name]) for name in list(self._orphans.get(spec.name, ()))]
            return next(filter(None, reasons), "")
        if quota in {self.root, self.system, self.default}:
            quota.spec = QuotaSpec(
                spec.name, "", spec.min, spec.max, spec.weight, quota.spec.lends, quota.spec.is_parent
            )
            return ""
        if quota.spec == spec:
            return "" if quota.parent is not None or spec.parent not in self._quotas else self._loop(quota)
        self.touched.add(quota)
        if quota.spec.parent != spec.parent or quota.parent is None:
            self._detach(quota)
            self._respec(quota, spec)
            reason = self._attach(quota)
            for name in list(self._looping):
                self._attach(self._quotas[name])
            return reason
        parent = quota.parent
        self._leave_level(quota, parent)
        strict = self._respec(quota, spec)
        self._join_level(quota, parent)
        for above in parent.path():
            above.non_preemptible_request.update(strict)
        return ""

    def remove_quota(self, name: str) -> None:
        """Remove a quota. Its children stay apart until a quota of that name comes back or they get another parent."""
        quota = self._quotas[name]
        if quota in {self.root, self.system, self.default}:
            return
        children = list(quota.children.values())
        for child in children:
            self._detach(child)
        self._detach(quota)
        self._looping.pop(name, None)
        del self._quotas[name]
        self.touched.discard(quota)
        for child in children:
            self._orphans.setdefault(name, {})[child.name] = None

    def _loop(self, quota: Quota) -> str:
        return f"quota {quota.name}: its parent {quota.spec.parent} is the quota itself or below it"

    def _attach(self, quota: Quota) -> str:
        parent = self._quotas.get(quota.spec.parent)
        if parent is None or parent in {self.system, self.default}:
            self._orphans.setdefault(quota.spec.parent, {})[quota.name] = None
            return f"quota {quota.name}: its parent {quota.spec.parent} does not exist"
        if quota in parent.path():
            self._looping[quota.name] = None
            return self._loop(quota)
        self._looping.pop(quota.name, None)
        self._orphans.get(parent.name, {}).pop(quota.name, None)
        self._join_level(quota, parent)
        for above in parent.path():
            above.used.update(quota.used)
            above.non_preemptible_used.update(quota.non_preemptible_used)
            above.non_preemptible_request.update(quota.non_preemptible_request)
        return ""

    def _detach(self, quota: Quota) -> None:
        parent = quota.parent
        self._orphans.get(quota.spec.parent, {}).pop(quota.name, None)
        if parent is None:
            return
        self._leave_level(quota, parent)
        for above in parent.path():
            above.used.subtract(quota.used)
            above.non_preemptible_used.subtract(quota.non_preemptible_used)
            above.non_preemptible_request.subtract(quota.non_preemptible_request)

    def _respec(self, quota: Quota, spec: QuotaSpec) -> dict[str, int]:
        """Change the spec of a quota that is in no level. Returns the change of its non-preemptible request."""
        before, quota.spec = quota.spec, spec
        # The request of its own pods counts for resources of its max only (QUOTA-R2).
        own, strict = quota.self_request, dict[str, int]()
        for key in before.max.keys() ^ spec.max.keys():
            quota.child_request[key] = quota.limited_sum.get(key, 0) + (own.get(key, 0) if key in spec.max else 0)
            strict[key] = quota.self_non_preemptible_request.get(key, 0) * (1 if key in spec.max else -1)
        quota.non_preemptible_request.update(strict)
        for key in {*before.max, *before.min, *spec.max, *spec.min, *quota.child_request}:
            quota.limited[key] = self._limited(quota, key)
        if self.guarantee:
            for key in {*before.min, *spec.min}:
                quota.guaranteed[key] = max(quota.allocated.get(key, 0), spec.min.get(key, 0))
        return strict

    def _join_level(self, quota: Quota, parent: Quota) -> None:
        self._moves += 1
        self._changes += 1
        quota.parent = parent
        parent.children[quota.name] = quota
        spec = quota.spec
        for key in {*spec.max, *spec.min, *quota.child_request}:
            quota.limited[key] = self._limited(quota, key)
        for key in self._level_keys(quota):
            parent.min_sum[key] += spec.min.get(key, 0)
            parent.special[key] += self._is_special(quota, key)
            parent.versions[key] += 1
            limited = quota.limited.get(key, 0)
            parent.limited_sum[key] += limited
            self._request_changed(parent, key, limited)
            if self.guarantee:
                quota.guaranteed[key] = max(quota.allocated.get(key, 0), spec.min.get(key, 0))
                self._allocated_changed(parent, key, quota.guaranteed[key])

    def _leave_level(self, quota: Quota, parent: Quota) -> None:
        for key in self._level_keys(quota):
            parent.min_sum[key] -= quota.spec.min.get(key, 0)
            parent.special[key] -= self._is_special(quota, key)
            parent.versions[key] += 1
            limited = quota.limited.get(key, 0)
            parent.limited_sum[key] -= limited
            self._request_changed(parent, key, -limited)
            if self.guarantee:
                self._allocated_changed(parent, key, -quota.guaranteed.get(key, 0))
        self._moves += 1
        self._changes += 1
        del parent.children[quota.name]
        quota.parent = None

    def _level_keys(self, quota: Quota) -> set[str]:
        return {*quota.spec.max, *quota.spec.min, *quota.limited, *quota.guaranteed}

    def _is_special(self, quota: Quota, key: str) -> bool:
        """Whether a limited request that the total covers may still not be the share."""
        spec = quota.spec
        return (
            self.guarantee
            or spec.weight_of(key) <= 0
            or (not spec.lends and spec.min.get(key, 0) > spec.max.get(key, 0))
            or key not in spec.max
        )

    # -- requests and use ---------------------------------------------------------------------------------------------

    def add_request(self, name: str, amounts: Amounts, *, non_preemptible: bool = False, sign: int = 1) -> None:
        """Add (`sign` 1) or take back (-1) the request of a pod, pending pods included."""
        quota = self._quotas[name]
        spec = quota.spec
        above = quota.path()
        if quota is self.system or quota is self.default:
            above = [quota]
        for key, value in amounts.items():
            if not value:
                continue
            quota.self_request[key] += sign * value
            if key in spec.max:
                self._request_changed(quota, key, sign * value)
            if non_preemptible:
                quota.self_non_preemptible_request[key] += sign * value
                if key in spec.max:
                    for ancestor in above:
                        ancestor.non_preemptible_request[key] += sign * value

    def add_used(self, name: str, amounts: Amounts, *, non_preemptible: bool = False, sign: int = 1) -> None:
        """Add or take back the use of a pod that is on a node, or reserved there."""
        charge = tuple((key, value) for key, value in amounts.items() if value)
        self.change_used(self._quotas[name], charge, non_preemptible=non_preemptible, sign=sign)

    def change_used(self, quota: Quota, charge: Charge, *, non_preemptible: bool = False, sign: int = 1) -> None:
        """Add to the use of a quota and of those above it, or take it back.

        It is fastest if pods that use the same pass the same object as `charge`.
        """
        self.touched.add(quota)
        ancestor: Quota | None = quota
        while ancestor is not None:
            if sign > 0 and ancestor.credit_for is charge:
                ancestor.credit -= 1
            else:
                ancestor.credit = 0  # it may lack more than what is taken back
            if ancestor.batch is not charge:
                ancestor.settle()
                ancestor.batch = charge
            ancestor.batched += sign
            ancestor = ancestor.parent
        if quota.parent is None:
            self._changes += 1  # the total of the first level is without the use of special quotas
        if non_preemptible:
            for ancestor in self.line(quota):
                used = ancestor.non_preemptible_used
                for key, value in charge:
                    used[key] += sign * value
        if self.guarantee:
            for key, value in charge:
                self._allocated_changed(quota, key, sign * value)

    def take_touched(self) -> set[Quota]:
        """The quotas whose sums changed since the last call, with those above them."""
        touched, self.touched = self.touched, set()
        return touched.union(*(self.line(quota) for quota in touched))

    def _limited(self, quota: Quota, key: str) -> int:
        spec = quota.spec
        request = quota.child_request.get(key, 0)
        if not (spec.lends and not self.guarantee):
            request = max(request, spec.min.get(key, 0))
        most = spec.max.get(key)
        return request if most is None else min(request, most)

    def _request_changed(self, quota: Quota | None, key: str, change: int) -> None:
        """Add `change` to the request of a quota, and what is left of it within its max to those above."""
        while quota is not None and change:
            self.touched.add(quota)
            quota.child_request[key] += change
            before = quota.limited.get(key, 0)
            after = self._limited(quota, key)
            change = after - before
            if not change:
                return
            quota.limited[key] = after
            quota = quota.parent
            if quota is not None:
                quota.limited_sum[key] += change
                quota.versions[key] += 1
                self._changes += 1

    def _allocated_changed(self, quota: Quota | None, key: str, change: int) -> None:
        while quota is not None and change:
            quota.allocated[key] += change
            before = quota.guaranteed.get(key, 0)
            after = max(quota.allocated[key], quota.spec.min.get(key, 0))
            change = after - before
            quota.guaranteed[key] = after
            quota = quota.parent
            if change and quota is not None:
                quota.versions[key] += 1
                self._changes += 1

    # -- runtime ------------------------------------------------------------------------------------------------------

    def runtime(self, quota: Quota) -> dict[str, int]:
        """The runtime share by resource of its max (QUOTA-R14, QUOTA-R14a); zeros for a quota apart from the root."""
        if quota is self.root:
            return self.total()
        if quota is self.system or quota is self.default:
            return dict(quota.spec.max)
        return dict(self._share(quota) or dict.fromkeys(quota.spec.max, 0))

    def line(self, quota: Quota) -> tuple[Quota, ...]:
        """The path of a quota from the top, kept until a quota moves."""
        if quota.line_at != self._moves:
            quota.line_at = self._moves
            quota.line = tuple(reversed(quota.path()))
        return quota.line

    def has_room(self, quota: Quota, charge: Charge) -> bool:
        """Whether use and `charge` are within the share of a quota below the root, in all resources of its max."""
        if quota.credit > 0 and quota.credit_for is charge and quota.credit_at == self._changes:
            return True
        quota.credit_for, quota.credit = charge, self._credit(quota, dict(charge))
        quota.credit_at = self._changes
        return quota.credit > 0

    def _credit(self, quota: Quota, amounts: Amounts) -> int:
        """The number of pods of this size that fit in a quota."""
        share = self._share(quota)
        if share is None or quota is self.root:
            return 0
        used, credit = quota.used, _MANY
        for key, most in share.items():
            rest, amount = most - used[key], amounts.get(key, 0)
            if rest < 0:
                return 0
            if amount:
                credit = min(credit, rest // amount)
        return credit

    def _share(self, quota: Quota) -> dict[str, int] | None:
        """The share of a quota by resource of its max, of the root its total; None for one apart from the root.

        It is kept until some share of the tree may have changed; the use of quotas below the root changes none.
        """
        if quota.share_at == self._changes:
            return quota.share
        share: dict[str, int] | None = None
        if quota is self.root:
            share = self.total()
        elif (parent := quota.parent) is not None and (above := self._share(parent)) is not None:
            special, demand, limited = parent.special, parent.limited_sum, quota.limited
            share = {}
            for key in quota.spec.max:
                total = above.get(key)
                if not special[key] and (total or 0) >= demand[key]:
                    share[key] = limited[key]
                else:
                    share[key] = self._shares(parent, key, total)[quota.name]
        quota.share, quota.share_at = share, self._changes
        return share

    def _shares(self, parent: Quota, key: str, total: int | None) -> dict[str, int]:
        """The shares of one level, computed again only after a change."""
        version = parent.versions[key]
        kept = parent.kept.get(key)
        if kept is not None and kept[0] == version and kept[1] == total:
            return kept[2]
        shares = [
            Share(
                child.name,
                max(self._auto_min(parent, child, key, total), child.guaranteed.get(key, 0) if self.guarantee else 0),
                child.limited.get(key, 0),
                child.spec.weight_of(key),
                self.lends(child),
            )
            for child in parent.children.values()
            if key in child.spec.max
        ]
        amounts = runtime_shares(total or 0, shares)
        parent.kept[key] = version, total, amounts
        return amounts

    def _auto_min(self, parent: Quota, child: Quota, key: str, total: int | None) -> int:
        minimum = child.spec.min.get(key, 0)
        whole = parent.min_sum.get(key, 0)
        if not self.scale_min or total is None or total >= whole:
            return minimum
        return scaled_min(total, minimum, whole)

    def auto_scale_min(self, quota: Quota) -> dict[str, int]:
        """The min as scaled to the runtime share of the parent (QUOTA-R20)."""
        parent = quota.parent
        if parent is None or not self.attached(quota):
            return dict(quota.spec.min)
        above = self._share(parent) or {}
        return {key: self._auto_min(parent, quota, key, above.get(key)) for key in quota.spec.min}
