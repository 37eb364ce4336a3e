"""Which nodes a pod may go to by what the two objects say of each other: name, cordon, taints, labels.

Four small upstream plugins, alike in that their verdict depends on the node object alone:
NodeName, NodeUnschedulable, TaintToleration and NodeAffinity (kubernetes pkg/scheduler/framework/plugins/<name>).
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from scheduler.api.core import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    UNSCHEDULABLE_TAINT,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)
from scheduler.api.wire import requirement_holds
from scheduler.cache.columns import Batch, Bools, Ints
from scheduler.cache.facts import NodeFact
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo
from scheduler.framework.points import ByMaximum, FilterColumns, PreFilter, Scope, ScoreColumns
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import SUCCESS, Status

UNSCHEDULABLE = Status.unresolvable("node(s) were unschedulable")
WRONG_NAME = Status.unresolvable("node(s) didn't match the requested node name")
UNTOLERATED = Status.unresolvable("node(s) had untolerated taint(s)")
NO_MATCH = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
CONFLICT = Status.unresolvable("pod affinity terms conflict")

Rejections = tuple[Ints, Callable[[int], Status]]

_CORDON = Taint(key=UNSCHEDULABLE_TAINT, effect=NO_SCHEDULE)


def _all_alike(passing: Bools | None, batch: Batch, status: Status) -> Rejections:
    """One status for every node that does not pass."""
    codes = np.zeros(batch.size, np.int64) if passing is None else (~passing[0]).astype(np.int64)
    return codes, lambda _: status


class NodeName(PreFilter, FilterColumns):
    name = "NodeName"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        self._names: NodeFact[str] = NodeFact(handle.cache, lambda node: node.name)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        return SUCCESS if pod.spec.node_name else Status.skip()

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if pod.spec.node_name in {"", node.name} else WRONG_NAME

    def passing(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return None  # only a pod that has a node names one, and such a pod is in no queue

    def rejections(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.passing(stacked, batch), batch, WRONG_NAME)


class NodeUnschedulable(PreFilter, FilterColumns):
    name = "NodeUnschedulable"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        self._cordoned: NodeFact[bool] = NodeFact(handle.cache, lambda node: node.spec.unschedulable)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        return Status.skip() if _tolerated(_CORDON, pod.spec.tolerations) else SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if not node.known.spec.unschedulable or _tolerated(_CORDON, pod.spec.tolerations):
            return SUCCESS
        return UNSCHEDULABLE

    def passing(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return self._cordoned.judge(batch, [operator.not_] * len(stacked))

    def rejections(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.passing(stacked, batch), batch, UNSCHEDULABLE)


TOLERATIONS: StateKey[tuple[Toleration, ...]] = StateKey("TaintToleration/tolerations")


class TaintToleration(PreFilter, FilterColumns, ScoreColumns):
    name = "TaintToleration"
    scope = Scope.NODE
    normalizer = ByMaximum(reverse=True)

    def __init__(self, handle: Handle) -> None:
        self._taints: NodeFact[tuple[Taint, ...]] = NodeFact(handle.cache, lambda node: node.spec.taints)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        state[TOLERATIONS] = pod.spec.tolerations
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if _admits(node.known.spec.taints, pod.spec.tolerations) else UNTOLERATED

    def passing(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return self._taints.judge(batch, [partial(_admits, tolerations=state[TOLERATIONS]) for state in stacked])

    def rejections(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.passing(stacked, batch), batch, UNTOLERATED)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """How many PreferNoSchedule taints the pod does not tolerate; fewer is better."""
        return _disliked(node.known.spec.taints, pod.spec.tolerations)

    def scores(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        return self._taints.measure(batch, [partial(_disliked, tolerations=state[TOLERATIONS]) for state in stacked])


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)


def _admits(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    return all(taint.effect not in {NO_SCHEDULE, NO_EXECUTE} or _tolerated(taint, tolerations) for taint in taints)


def _disliked(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> int:
    counted = [toleration for toleration in tolerations if toleration.effect in {"", PREFER_NO_SCHEDULE}]
    return sum(taint.effect == PREFER_NO_SCHEDULE and not _tolerated(taint, counted) for taint in taints)


_Labels = tuple[str, tuple[str | None, ...]]  # a node's name and its values of the labels that matter


class _Selection:
    """What one pod asks of node labels and names; terms are ORed, what is in a term is ANDed."""

    def __init__(self, pod: Pod) -> None:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        self.exact = tuple(sorted(pod.spec.node_selector.items()))
        required = affinity.required if affinity else None
        self.terms = required.node_selector_terms if required else None
        self.preferred = affinity.preferred if affinity else ()
        keys = {key for key, _ in self.exact}
        for term in (*(self.terms or ()), *(item.preference for item in self.preferred)):
            keys |= {expression.key for expression in term.match_expressions}
        self.keys = tuple(sorted(keys))

    def admits(self, name: str, labels: dict[str, str]) -> bool:
        if any(labels.get(key) != value for key, value in self.exact):
            return False
        return self.terms is None or any(_term_holds(term, name, labels) for term in self.terms)

    def liking(self, name: str, labels: dict[str, str]) -> int:
        return sum(item.weight for item in self.preferred if item.weight and _liked(item.preference, name, labels))

    def admits_value(self, value: "_Labels") -> bool:
        return self.admits(*self._present(value))

    def liking_of_value(self, value: "_Labels") -> int:
        return self.liking(*self._present(value))

    def _present(self, value: "_Labels") -> tuple[str, dict[str, str]]:
        name, labels = value
        return name, {key: label for key, label in zip(self.keys, labels, strict=True) if label is not None}

    def only_names(self) -> frozenset[str] | None:
        """The nodes named, if every term names some; None if labels alone decide."""
        if not self.terms:
            return None
        names: set[str] = set()
        for term in self.terms:
            named = [set(field.values) for field in term.match_fields if _names(field.key, field.operator)]
            if not named:
                return None
            names |= set.intersection(*named)
        return frozenset(names)


SELECTION: StateKey[_Selection] = StateKey("NodeAffinity/selection")


class NodeAffinity(PreFilter, FilterColumns, ScoreColumns):
    name = "NodeAffinity"
    scope = Scope.NODE
    normalizer = ByMaximum()

    def __init__(self, handle: Handle) -> None:
        self._cache = handle.cache
        self._labels: dict[tuple[str, ...], NodeFact[_Labels]] = {}

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        selection = state[SELECTION] = _Selection(pod)
        if not selection.exact and selection.terms is None:
            return Status.skip()
        names = selection.only_names()
        if names is None:
            return SUCCESS
        return Status.only(names) if names else CONFLICT

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if state[SELECTION].admits(node.name, node.known.metadata.labels) else NO_MATCH

    def passing(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        lines = []
        for state in stacked:  # each class may look at other labels
            line = self._fact(state[SELECTION]).judge(batch, [state[SELECTION].admits_value])
            lines.append(np.ones((1, batch.size), np.bool_) if line is None else line)
        return np.concatenate(lines)

    def rejections(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.passing(stacked, batch), batch, NO_MATCH)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        selection = state.get(SELECTION)
        if selection is None:
            selection = state[SELECTION] = _Selection(pod)
        return bool(selection.preferred)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return state[SELECTION].liking(node.name, node.known.metadata.labels)

    def scores(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        lines = []
        for state in stacked:
            line = self._fact(state[SELECTION]).measure(batch, [state[SELECTION].liking_of_value])
            lines.append(np.zeros((1, batch.size), np.int64) if line is None else line)
        return np.concatenate(lines)

    def _fact(self, selection: _Selection) -> "NodeFact[_Labels]":
        """Nodes by the labels that matter here; by name as well where a term speaks of names."""
        terms = (*(selection.terms or ()), *(item.preference for item in selection.preferred))
        named = any(term.match_fields for term in terms)
        keys = (*selection.keys, "\0name") if named else selection.keys
        fact = self._labels.get(keys)
        if fact is None:
            wanted = selection.keys
            fact = self._labels[keys] = NodeFact(
                self._cache,
                lambda node: (node.name if named else "", tuple(node.metadata.labels.get(key) for key in wanted)),
            )
        return fact


def _names(key: str, operator: str) -> bool:
    return key == "metadata.name" and operator == "In"


def _term_holds(term: NodeSelectorTerm, name: str, labels: dict[str, str]) -> bool:
    """An empty term holds nowhere."""
    if not term.match_expressions and not term.match_fields:
        return False
    return _liked(term, name, labels)


def _liked(term: NodeSelectorTerm, name: str, labels: dict[str, str]) -> bool:
    """The same, but an empty preference is liked everywhere."""
    return all(requirement_holds(expression, labels) for expression in term.match_expressions) and all(
        requirement_holds(field, {"metadata.name": name}) for field in term.match_fields
    )
