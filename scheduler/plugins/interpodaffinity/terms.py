"""Affinity terms of a pod, and those of placed pods, counted by node."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from seatrial.scheduler.api.core import Pod, PodAffinity, PodAffinityTerm
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.matching import LabelIndex, LabelPair, Namespaces, PodMatcher, Readings, with_label_keys
from seatrial.scheduler.cache.nodeinfo import PodInfo


class TermKind(Enum):
    """The four kinds of terms."""

    NEAR = "must be near"
    FAR = "must not be near"
    LIKES = "would be near"
    DISLIKES = "would not be near"


@dataclass(frozen=True, slots=True)
class Term:
    """A term of `kind` for the pods that `matcher` matches, within one value of the node label `key`."""

    kind: TermKind
    key: str
    matcher: PodMatcher
    weight: int = 0

    def matches(self, pod: Pod, known: Namespaces) -> bool:
        return self.matcher.matches(pod, known)

    def needs(self) -> list[LabelPair] | None:
        return self.matcher.needs()


def terms_of(pod: Pod) -> tuple[Term, ...]:
    """All terms of a pod."""
    affinity = pod.spec.affinity
    return () if affinity is None else _READ.of(affinity, pod)


def _read(pod: Pod) -> tuple[Term, ...]:
    affinity = pod.spec.affinity
    assert affinity is not None
    parts = (
        (affinity.pod_affinity, TermKind.NEAR, TermKind.LIKES),
        (affinity.pod_anti_affinity, TermKind.FAR, TermKind.DISLIKES),
    )
    return tuple(
        term for part, must, would in parts if part is not None for term in _terms_of_part(part, pod, must, would)
    )


_READ: Readings[tuple[Term, ...]] = Readings(_read)


def _terms_of_part(part: PodAffinity, pod: Pod, must: TermKind, would: TermKind) -> Iterator[Term]:
    for required in part.required:
        yield _term(required, pod, must, 0)
    for preferred in part.preferred:
        yield _term(preferred.pod_affinity_term, pod, would, preferred.weight)


def _term(term: PodAffinityTerm, pod: Pod, kind: TermKind, weight: int) -> Term:
    """A term without namespaces and namespace selector matches pods of its own namespace."""
    metadata = pod.metadata
    selector = with_label_keys(term.label_selector, metadata.labels, term.match_label_keys, term.mismatch_label_keys)
    own = not term.namespaces and term.namespace_selector is None
    matcher = PodMatcher([metadata.namespace] if own else term.namespaces, selector, term.namespace_selector)
    return Term(kind, term.topology_key, matcher, weight)


class HeldTerms(Listener):
    """The terms of placed pods; for each, the number of pods on each row that have it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._rows: dict[Term, Ints] = {}
        self.holders: dict[Term, int] = {}  # term → number of pods; read only
        self._held: dict[str, tuple[Term, ...]] = {}  # by pod uid
        self._index: LabelIndex[Term] = LabelIndex()
        cache.listen(self)
        for node in cache.nodes.values():
            for info in node.pods.values():
                self.pod_placed(info)

    def about(self, pod: Pod) -> Iterator[Term]:
        """The terms that match this pod, without duplicates."""
        return self._index.find(pod, self._cache.namespaces)

    def rows(self, term: Term) -> Ints:
        """The number of pods with the term, for each row in use."""
        row = self._rows[term]
        if len(row) < self._cache.columns.capacity:
            row = self._rows[term] = np.pad(row, (0, self._cache.columns.capacity - len(row)))
        return row[: self._cache.columns.count]

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return pod_class.example.spec.affinity is not None

    def pod_placed(self, info: PodInfo) -> None:
        if info.pod.spec.affinity is None:
            return
        terms = terms_of(info.pod)
        if terms:
            self._held[info.uid] = terms
            self._change(info, terms, 1)

    def pod_gone(self, info: PodInfo) -> None:
        terms = self._held.pop(info.uid, ())
        if terms:
            self._change(info, terms, -1)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        self.pod_gone(info)
        self.pod_placed(info)

    def _change(self, info: PodInfo, terms: tuple[Term, ...], change: int) -> None:
        columns = self._cache.columns
        row = columns.rows[info.node_name]
        for term in terms:
            holders = self.holders.get(term, 0)
            if not holders:
                self._rows[term] = np.zeros(columns.capacity, np.int64)
                self._index.add(term)
                self._cache.label_keys |= term.matcher.label_keys()
            self.rows(term)[row] += change
            self.holders[term] = holders + change
            if not self.holders[term]:
                self._index.discard(term)
                del self._rows[term], self.holders[term]
