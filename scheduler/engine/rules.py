"""The plugins of a profile that matter to one equivalence class, grouped by scope.

PreFilters that depend on the class alone run here, once. Plugins that skip the class are not called for its pods.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch, score_kind
from seatrial.scheduler.framework.extension_points import Filter, Plugin, PreFilter, Scope, Score
from seatrial.scheduler.framework.state import SKIPPED, CycleState
from seatrial.scheduler.framework.status import Status

Weighted = tuple[Score, int]


@dataclass(slots=True)
class ClassRules:
    """The plugins that matter to one class, in running order."""

    state: CycleState
    rejected: Status | None = None  # a PreFilter rejected the class on all nodes
    allowed: frozenset[str] | None = None  # node names that PreFilters left
    allowed_by: list[str] = field(default_factory=list)
    cluster_plugins: list[Plugin] = field(default_factory=list)  # plugins of scope CLUSTER; by point in `cycle_…`
    cluster_pre_filters: list[PreFilter] = field(default_factory=list)
    node_filters: list[Filter] = field(default_factory=list)  # scope NODE
    node_pods_filters: list[Filter] = field(default_factory=list)  # scope NODE_PODS
    cluster_filters: list[Filter] = field(default_factory=list)  # scope CLUSTER
    node_scores: list[Weighted] = field(default_factory=list)
    node_pods_scores: list[Weighted] = field(default_factory=list)
    node_pods_normalized: list[Weighted] = field(default_factory=list)
    cluster_scores: list[Weighted] = field(default_factory=list)

    @property
    def versioned(self) -> list[Plugin]:
        """Plugins of scope NODE whose kept results for all nodes can become stale at once (`Plugin.version`)."""
        plugins: list[Plugin] = [*self.node_filters, *(score for score, _ in self.node_scores)]
        return [plugin for plugin in plugins if type(plugin).version is not Plugin.version]

    @property
    def revised(self) -> list[tuple[ScoreBatch, int]]:
        """Scores of scope NODE_PODS that can change on all nodes at once (`ScoreBatch.revision`)."""
        return [
            (score, weight)
            for score, weight in self.node_pods_scores
            if isinstance(score, ScoreBatch) and type(score).revision is not ScoreBatch.revision
        ]

    @property
    def common_ties(self) -> bool:
        """Whether equally good nodes have the same order for this class as for others (`Score.common_ties`)."""
        scores = (*self.node_scores, *self.node_pods_scores, *self.node_pods_normalized, *self.cluster_scores)
        return any(score.common_ties for score, _ in scores)

    @property
    def can_batch(self) -> bool:
        """Whether all plugins of scope NODE_PODS can judge many nodes and classes at once."""
        scores = (score for score, _ in (*self.node_pods_scores, *self.node_pods_normalized))
        return all(isinstance(f, FilterBatch) and f.can_batch(self.state) for f in self.node_pods_filters) and all(
            isinstance(score, ScoreBatch) and score.can_batch_scores(self.state) for score in scores
        )

    @property
    def uses_signatures(self) -> bool:
        """Whether everything that placements change has node signatures, so that keys are exact without bounds."""
        if any(score.normalizer is None or score.normalizer.reverse for score, _ in self.node_pods_normalized):
            return False  # a reversed score falls below 0 while the largest raw score is out of date
        scores = (*self.node_pods_scores, *self.node_pods_normalized)
        plugins = (*self.node_pods_filters, *(score for score, _ in scores))
        return self.can_batch and all(getattr(plugin, "has_signature", False) for plugin in plugins)

    @property
    def batch_key(self) -> tuple[Hashable, ...]:
        """Classes with equal keys can be judged in one batch."""
        scores = (*self.node_pods_scores, *self.node_pods_normalized)
        return (
            self.can_batch,
            *(plugin.name for plugin in self.node_pods_filters),
            *((score.name, score_kind(score, self.state)) for score, _ in scores),
        )


def rules_for(
    pod_class: EquivalenceClass, pre_filters: Sequence[PreFilter], filters: Sequence[Filter], scores: Sequence[Weighted]
) -> ClassRules:
    """Run the PreFilters of one class and group the plugins that apply to it."""
    rules = ClassRules(CycleState())
    if pod_class.invalid:
        rules.rejected = Status.unresolvable(pod_class.invalid)
        return rules
    skipped: set[str] = set()
    for plugin in pre_filters:
        if plugin.scope is Scope.CLUSTER:
            rules.cluster_pre_filters.append(plugin)
            continue
        status = plugin.pre_filter(rules.state, pod_class.example)
        if status.skipped:
            skipped.add(plugin.name)
        elif not status.ok:
            rules.rejected = status.by(plugin.name)
            return rules
        elif status.nodes is not None:
            rules.allowed = status.nodes if rules.allowed is None else rules.allowed & status.nodes
            rules.allowed_by.append(plugin.name)
    everyone: list[Plugin] = [*pre_filters, *filters, *(score for score, _ in scores)]
    rules.cluster_plugins = list(dict.fromkeys(plugin for plugin in everyone if plugin.scope is Scope.CLUSTER))
    # A cycle of a pod that such a plugin concerns removes it from this set.
    rules.state[SKIPPED] = frozenset(skipped) | {plugin.name for plugin in rules.cluster_plugins}
    by_scope = {
        Scope.NODE: rules.node_filters,
        Scope.NODE_PODS: rules.node_pods_filters,
        Scope.CLUSTER: rules.cluster_filters,
    }
    for filter_ in filters:
        if filter_.name not in skipped:
            by_scope[filter_.scope].append(filter_)
    for score, weight in scores:
        if score.scope is Scope.CLUSTER:
            rules.cluster_scores.append((score, weight))
        elif score.pre_score(rules.state, pod_class.example):
            if score.scope is Scope.NODE:
                rules.node_scores.append((score, weight))
            else:
                (rules.node_pods_scores if score.normalizer is None else rules.node_pods_normalized).append(
                    (score, weight)
                )
    return rules
