"""Spread constraints of a pod, and the nodes that count as domains."""

from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.api.core import Node, Pod, TopologySpreadConstraint
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Batch, Bools
from seatrial.scheduler.cache.matching import PodMatcher, Readings, with_label_keys
from seatrial.scheduler.plugins.node_selection import LabelFacts, Selection, TaintFact, admits
from seatrial.scheduler.pods.selectors import selector_matches

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of one pod, prepared for counting."""

    key: str
    max_skew: int
    matcher: PodMatcher | None  # None: no pod counts
    itself: int  # 1 if the pod itself counts once placed
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    @staticmethod
    def read(constraint: TopologySpreadConstraint, pod: Pod, selector: LabelSelector | None) -> "Constraint":
        """Prepare a constraint; `selector` replaces its own, which default constraints lack."""
        metadata = pod.metadata
        selector = with_label_keys(selector, metadata.labels, constraint.match_label_keys)
        empty = selector is None or not (selector.match_labels or selector.match_expressions)
        return Constraint(
            constraint.topology_key,
            constraint.max_skew,
            None if empty else PodMatcher([metadata.namespace], selector),
            int(selector is not None and selector_matches(selector, metadata.labels)),
            constraint.min_domains or 1,
            constraint.node_affinity_policy == "Honor",
            constraint.node_taints_policy == "Honor",
        )


def own(pod: Pod, when: str) -> tuple[Constraint, ...]:
    """The pod's own constraints of one kind, `HARD` or `SOFT`."""
    return _READ.of(pod.spec.topology_spread_constraints, pod).get(when, ())


def _read(pod: Pod) -> dict[str, tuple[Constraint, ...]]:
    constraints: dict[str, tuple[Constraint, ...]] = {}
    for constraint in pod.spec.topology_spread_constraints:
        when = constraint.when_unsatisfiable
        constraints[when] = (*constraints.get(when, ()), Constraint.read(constraint, pod, constraint.label_selector))
    return constraints


_READ: Readings[dict[str, tuple[Constraint, ...]]] = Readings(_read)


def counts_node(constraint: Constraint, selection: Selection, pod: Pod, node: Node) -> bool:
    """Whether pods on this node count, by the policies of the constraint."""
    if constraint.honors_affinity and not selection.admits(node.name, node.metadata.labels):
        return False
    return not constraint.honors_taints or admits(node.spec.taints, pod.spec.tolerations)


MAX_KEPT_ROWS = 20_000_000  # classes times nodes, a byte each; then all are dropped, and computed again


class Eligibility:
    """`counts_node` for all nodes, kept for an equivalence class until a node object changes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._labels = LabelFacts(cache)
        self._taints = TaintFact(cache)
        self._kept: dict[tuple[int, bool], tuple[int, Bools]] = {}

    def rows(self, constraint: Constraint, pod: Pod) -> Bools:
        """For each row in use; rows without a node are undefined. The caller must not change the array."""
        selection = self._selected(pod) if constraint.honors_affinity else None
        taints = self._untainted(pod) if constraint.honors_taints else None
        if selection is None or taints is None:
            result = selection if taints is None else taints
            return np.ones(self._cache.columns.count, np.bool_) if result is None else result
        return selection & taints

    def _selected(self, pod: Pod) -> Bools | None:
        if not pod.spec.node_selector and not (pod.spec.affinity and pod.spec.affinity.node_affinity):
            return None
        position, kept = self._find(pod, taints=False)
        if position is None:
            return kept
        selection = Selection(pod)
        batch = Batch(self._cache.columns, None)
        return self._keep(
            pod, position, self._labels.of(selection).judge(batch, [selection.admits_value]), taints=False
        )

    def _untainted(self, pod: Pod) -> Bools:
        position, kept = self._find(pod, taints=True)
        if position is None:
            return kept
        batch = Batch(self._cache.columns, None)
        tolerations = pod.spec.tolerations
        judged = self._taints.judge(batch, [lambda taints: admits(taints, tolerations)])
        return self._keep(pod, position, judged, taints=True)

    def _find(self, pod: Pod, *, taints: bool) -> tuple[int | None, Bools]:
        """The kept array, with None; or the key to keep it under."""
        shape = self._cache.classes.of(pod)
        now = self._cache.columns.static_changes
        position, kept = self._kept.get((shape.id, taints), (-1, np.zeros(0, np.bool_)))
        return (None, kept) if position == now and len(kept) == self._cache.columns.count else (now, kept)

    def _keep(self, pod: Pod, position: int, judged: Bools | None, *, taints: bool) -> Bools:
        rows = np.ones(self._cache.columns.count, np.bool_) if judged is None else judged[0]
        if len(self._kept) * len(rows) >= MAX_KEPT_ROWS:
            self._kept.clear()  # most are of classes that no longer exist
        self._kept[self._cache.classes.of(pod).id, taints] = (position, rows)
        return rows
