"""The oracle of elastic quotas: requests from the leaves up, shares from the root down, and who is admitted.

Rules QUOTA-R2 to QUOTA-R6, QUOTA-R13 to QUOTA-R20 and QUOTA-R41 to QUOTA-R43, by their sentences: everything is
computed anew from the objects of one moment, without the gates that are off by default.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.scheduler.api.quota import (
    ALLOCATED,
    ALLOW_LENT,
    CHILD_REQUEST,
    DEFAULT_QUOTA,
    GUARANTEED,
    IGNORE_DEFAULT_TREE,
    IS_ROOT,
    NAMESPACES,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    PARENT,
    PREEMPTIBLE,
    QUOTA_NAME,
    REQUEST,
    ROOT_QUOTA,
    RUNTIME,
    SHARED_WEIGHT,
    SPECIAL,
    SYSTEM_QUOTA,
    TOTAL_RESOURCE,
    TREE_ID,
)
from seatrial.suites.properties.node_fit import objections
from seatrial.suites.properties.state import (
    Change,
    Json,
    State,
    added,
    allocatable,
    is_over,
    labels,
    name_of,
    node_of,
    noted,
    requests,
    total,
)

_APART = (DEFAULT_QUOTA, SYSTEM_QUOTA)  # without a share: what their pods use is not divided


@dataclass
class _Tree:
    state: State

    @cached_property
    def quotas(self) -> dict[str, Json]:
        """Those of users."""
        return {name: quota for name, quota in self.state.quotas.items() if name not in SPECIAL}

    @cached_property
    def pods(self) -> dict[str, list[Json]]:
        """The pods of each quota; the default quota has those that name none that there is."""
        pods: dict[str, list[Json]] = {name: [] for name in (*self.quotas, *_APART)}
        for pod in self.state.pods.values():
            if not is_over(pod):
                pods[_quota(self, pod)].append(pod)
        return pods

    def tree_of(self, name: str) -> str:
        return labels(self.quotas[name]).get(TREE_ID, "")

    def children(self, name: str, tree: str | None = None) -> list[str]:
        """Those of its tree; of the root quota those of `tree`."""
        tree = self.tree_of(name) if tree is None else tree
        return sorted(
            child
            for child, quota in self.quotas.items()
            if labels(quota).get(PARENT, ROOT_QUOTA) == name and self.tree_of(child) == tree
        )

    def wholes(self) -> dict[str, Amounts]:
        """What each tree divides: the total of its oldest root; the default tree the rest of the nodes (QUOTA-R13)."""
        rest = added(*map(allocatable, self.state.nodes.values()))
        apart = total([pod for name in _APART for pod in self.pods[name] if node_of(pod)])
        wholes: dict[str, Amounts] = {}
        for tree in {self.tree_of(name) for name in self.quotas} - {""}:
            roots = [
                (quota["metadata"]["creationTimestamp"], name)
                for name, quota in self.quotas.items()
                if self.tree_of(name) == tree and labels(quota).get(IS_ROOT) == "true"
            ]
            if not roots:
                continue
            root = self.quotas[min(roots)[1]]
            wholes[tree] = amounts(noted(root, TOTAL_RESOURCE) or {})
            if labels(root).get(IGNORE_DEFAULT_TREE) != "true":
                rest = added(rest, {key: -value for key, value in wholes[tree].items()})
        return wholes | {"": {key: value - apart.get(key, 0) for key, value in rest.items()}}

    def least(self, name: str) -> Amounts:
        return amounts(self.quotas[name]["spec"].get("min") or {})

    def most(self, name: str) -> Amounts:
        return amounts(self.quotas[name]["spec"].get("max") or {})

    def weight(self, name: str, key: str) -> int:
        weights = amounts(noted(self.quotas[name], SHARED_WEIGHT) or {})
        return weights.get(key, 0) if any(weights.values()) else self.most(name).get(key, 0)

    def lends(self, name: str) -> bool:
        return labels(self.quotas[name]).get(ALLOW_LENT) != "false"

    def child_request(self, name: str) -> Amounts:
        """What its pods and children ask for (QUOTA-R2, QUOTA-R3)."""
        own = {key: value for key, value in total(self.pods[name]).items() if key in self.most(name)}
        return added(own, *map(self.limited, self.children(name)))

    def request(self, name: str) -> Amounts:
        """The same; at least its min if it does not lend (QUOTA-R5)."""
        amounts = self.child_request(name)
        if self.lends(name):
            return amounts
        return amounts | {key: max(amounts.get(key, 0), value) for key, value in self.least(name).items()}

    def strict_request(self, name: str) -> Amounts:
        """What its non-preemptible pods and those of its children ask for."""
        own = {
            key: value
            for key, value in total([pod for pod in self.pods[name] if _is_strict(pod)]).items()
            if key in self.most(name)
        }
        return added(own, *map(self.strict_request, self.children(name)))

    def limited(self, name: str) -> Amounts:
        """What counts of it above (QUOTA-R4)."""
        most = self.most(name)
        return {key: min(value, most.get(key, value)) for key, value in self.request(name).items()}

    def used(self, name: str, *, non_preemptible: bool = False) -> Amounts:
        """What its pods and those of its children have (QUOTA-R6)."""
        own = [pod for pod in self.pods[name] if node_of(pod) and (not non_preemptible or _is_strict(pod))]
        return added(total(own), *(self.used(child, non_preemptible=non_preemptible) for child in self.children(name)))

    @cached_property
    def shares(self) -> dict[str, Amounts]:
        """The runtime share of each quota below the root (QUOTA-R13, QUOTA-R14)."""
        totals: dict[str, Amounts] = {}

        def divide(parent: str, whole: Amounts, tree: str | None = None) -> None:
            children = self.children(parent, tree)
            for child in children:
                totals[child] = {}
            for key in {key for child in children for key in self.most(child)}:
                rivals = [child for child in children if key in self.most(child)]
                for child, share in self._divided(rivals, children, key, whole).items():
                    totals[child][key] = share
            for child in children:
                divide(child, totals[child])

        wholes = self.wholes()
        for tree in {"", *map(self.tree_of, self.quotas)}:
            divide(ROOT_QUOTA, wholes.get(tree, {}), tree)
        return totals

    def _divided(self, rivals: list[str], siblings: list[str], key: str, whole: Amounts) -> dict[str, int]:
        """The shares of one resource on one level (QUOTA-R15 to QUOTA-R20)."""
        total_, mins = whole.get(key, 0), {name: self.least(name).get(key, 0) for name in siblings}
        if key in whole and total_ < sum(mins.values()):
            mins = {name: max(0, total_ * least // (sum(mins.values()) or 1)) for name, least in mins.items()}
        wants = {name: self.limited(name).get(key, 0) for name in rivals}
        shares = {name: min(wants[name], mins[name]) if self.lends(name) else mins[name] for name in rivals}
        hungry = {name for name in rivals if wants[name] > mins[name] and self.weight(name, key) > 0}
        rest = total_ - sum(shares.values())
        while rest > 0 and hungry:
            parts = _parts(rest, {name: self.weight(name, key) for name in sorted(hungry)})
            for name, part in parts.items():
                more = min(part, wants[name] - shares[name])
                shares[name] += more
                rest -= more
            hungry = {name for name in hungry if shares[name] < wants[name]}
        return shares


def _parts(rest: int, weights: dict[str, int]) -> dict[str, int]:
    """By weight in whole units: what is left over goes to the largest remainders, equal ones by name (QUOTA-R18)."""
    whole = sum(weights.values())
    parts = {name: weight * rest // whole for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(weights[name] * rest % whole), name))
    for name in by_remainder[: rest - sum(parts.values())]:
        parts[name] += 1
    return parts


def quota_rules(before: State, after: State, change: Change) -> Iterator[str]:
    """Shares, use and requests are published as they are; a pod is bound if and only if its quota admits it."""
    tree = _Tree(after)
    for name, quota in sorted(tree.quotas.items()):
        for what, stated, expected in (
            ("runtime share", noted(quota, RUNTIME), tree.shares.get(name, {})),
            ("request", noted(quota, REQUEST), tree.request(name)),
            ("child request", noted(quota, CHILD_REQUEST), tree.child_request(name)),
            ("guarantee", noted(quota, GUARANTEED), tree.least(name)),
            ("allocation", noted(quota, ALLOCATED), tree.used(name)),
            ("non-preemptible request", noted(quota, NON_PREEMPTIBLE_REQUEST), tree.strict_request(name)),
            ("non-preemptible use", noted(quota, NON_PREEMPTIBLE_USED), tree.used(name, non_preemptible=True)),
            ("use", (quota.get("status") or {}).get("used"), tree.used(name)),
        ):
            amount = _some(amounts(stated or {}))
            if amount != _some(expected):
                yield f"quota {name}: expected {what} {_some(expected)}, found {amount}"
    for pod in after.waiting():
        targets = _limited_requests(tree, pod)
        against = [*_shortages(tree, pod, targets), *_strict_shortages(tree, pod, targets)]
        homes = [name for name, node in after.nodes.items() if not list(objections(after, pod, node))]
        if not against and homes:
            yield f"pod {name_of(pod)} waits although its quota has room, and nodes {homes} too"
    bound = after.bound_since(before) if change is not Change.UNSEEN else []
    apart = [pod for pod in bound if any(pod in tree.pods[name] for name in _APART)]
    earlier = _Tree(replace(after, pods={name: one for name, one in after.pods.items() if one not in apart}))
    for pod in bound:
        shortages = [*_shortages(earlier, pod, {})] if change is Change.ONE else []
        for why in (*shortages, *_strict_shortages(tree, pod, {})):
            yield f"pod {name_of(pod)} was bound, but {why}"


def _limited_requests(tree: _Tree, pod: Json) -> Amounts:
    """What counts of the pod's requests (QUOTA-R42)."""
    name = _quota(tree, pod)
    return {key: value for key, value in requests(pod).items() if name in tree.quotas and key in tree.most(name)}


def _is_strict(pod: Json) -> bool:
    return labels(pod).get(PREEMPTIBLE) == "false"


def _quota(tree: _Tree, pod: Json) -> str:
    """The quota of its label, of its namespace's name, or the oldest that lists the namespace (QUOTA-R30)."""
    name, home = labels(pod).get(QUOTA_NAME, ""), pod["metadata"]["namespace"]
    if name:
        return name if name in tree.quotas or name == SYSTEM_QUOTA else DEFAULT_QUOTA
    listing = [
        (quota["metadata"]["creationTimestamp"], name)
        for name, quota in tree.quotas.items()
        if home in (noted(quota, NAMESPACES) or ())
    ]
    own = tree.quotas.get(home)
    if own is not None and own["metadata"]["namespace"] == home:
        return home
    return min(listing, default=("", DEFAULT_QUOTA))[1]


def _shortages(tree: _Tree, pod: Json, more: Amounts) -> Iterator[str]:
    """Of which resource the quota has too little for its use and `more` (QUOTA-R42)."""
    name = _quota(tree, pod)
    if name in _APART:
        return
    used = tree.used(name)
    for key, most in (tree.shares.get(name) or dict.fromkeys(tree.most(name), 0)).items():
        need = used.get(key, 0) + more.get(key, 0)
        if need > most:
            yield f"quota {name} would use {need} of {key}, its share is {most}"


def _strict_shortages(tree: _Tree, pod: Json, more: Amounts) -> Iterator[str]:
    """Of which resource the min is too small for the non-preemptible pods and `more` (QUOTA-R43)."""
    name = _quota(tree, pod)
    if name in _APART or not _is_strict(pod):
        return
    used, least = tree.used(name, non_preemptible=True), tree.least(name)
    for key in _limited_requests(tree, pod):
        need = used.get(key, 0) + more.get(key, 0)
        if need > least.get(key, 0):
            yield f"non-preemptible pods of quota {name} would use {need} of {key}, its min is {least.get(key, 0)}"


def _some(amounts: Amounts) -> Amounts:
    return {key: value for key, value in sorted(amounts.items()) if value}
