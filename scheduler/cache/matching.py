"""Pod matchers by namespace and labels, with an index that finds the matchers of a pod."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import LabelSelector, Requirement
from seatrial.scheduler.pods.selectors import selector_matches

EVERYTHING = LabelSelector()

Namespaces = Mapping[str, dict[str, str]]  # labels by name
LabelPair = tuple[str, str]
V = TypeVar("V")
MAX_READINGS = 4096


class Readings(Generic[V]):
    """Keeps what `read` computes from one part of a pod's spec, for pods with equal part, namespace and labels.

    Replicas share the parts of their template; of others, what is read is read once for all who ask in one cycle.
    """

    def __init__(self, read: Callable[[Pod], V]) -> None:
        self._read = read
        self._kept: dict[tuple[int, str], tuple[object, dict[str, str], V]] = {}

    def of(self, part: object, pod: Pod) -> V:
        """The value for `pod`; `part` is the part of its spec that is read."""
        metadata = pod.metadata
        entry = self._kept.get((id(part), metadata.namespace))
        if entry is not None and entry[1] == metadata.labels:
            return entry[2]
        if len(self._kept) >= MAX_READINGS:
            self._kept.clear()
        value = self._read(pod)
        # Keeps the part alive, so that its id stays unique.
        self._kept[id(part), metadata.namespace] = (part, metadata.labels.copy(), value)
        return value


class PodMatcher:
    """Matches pods by namespace and labels. Matchers are equal if their selectors are equal."""

    __slots__ = ("_hash", "namespace_selector", "namespaces", "selector", "words")

    def __init__(
        self, namespaces: Iterable[str], selector: LabelSelector | None, namespace_selector: LabelSelector | None = None
    ) -> None:
        """`selector` None matches no pod. `namespace_selector` adds namespaces to `namespaces`."""
        self.namespaces = frozenset(namespaces)
        self.selector = selector
        self.namespace_selector = namespace_selector
        self.words: bytes = _encode((sorted(self.namespaces), _sorted(selector), _sorted(namespace_selector)))
        self._hash = hash(self.words)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodMatcher) and self.words == other.words

    def matches(self, pod: Pod, known: Namespaces) -> bool:
        """Whether it matches this pod. A namespace that is not in `known` has no labels."""
        return self.matches_labels(pod.metadata.namespace, pod.metadata.labels, known)

    def matches_labels(self, namespace: str, labels: dict[str, str], known: Namespaces) -> bool:
        if self.selector is None or not selector_matches(self.selector, labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and selector_matches(
            self.namespace_selector, known.get(namespace, {})
        )

    def label_keys(self) -> frozenset[str]:
        """The keys of pod labels that the selector reads."""
        if self.selector is None:
            return frozenset()
        return frozenset(
            (*self.selector.match_labels, *(expression.key for expression in self.selector.match_expressions))
        )

    def needs(self) -> list[LabelPair] | None:
        """Label pairs of which each matching pod has at least one; None if there is no such set."""
        if self.selector is None:
            return []
        for pair in sorted(self.selector.match_labels.items()):
            return [pair]
        for requirement in self.selector.match_expressions:
            if requirement.operator == "In":
                return [(requirement.key, value) for value in requirement.values]
        return None


def with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], same: Iterable[str], other: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector that requires the pod's own values of the keys in `same`, and other values of those in `other`.

    Keys that the pod does not have are ignored (API: matchLabelKeys, mismatchLabelKeys).
    """
    if selector is None:
        return None
    more = [Requirement(key, "In", (labels[key],)) for key in same if key in labels]
    more += [Requirement(key, "NotIn", (labels[key],)) for key in other if key in labels]
    if not more:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *more))


class Matching(Protocol):
    """Matches certain pods."""

    def matches(self, pod: Pod, known: Namespaces) -> bool: ...

    def needs(self) -> list[LabelPair] | None: ...


M = TypeVar("M", bound=Matching)


class LabelIndex(Generic[M]):
    """Finds the matchers of a pod among those that share a label pair with it."""

    def __init__(self) -> None:
        self._by_pair: dict[LabelPair, dict[M, None]] = {}
        self._others: dict[M, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, matcher: M) -> None:
        self._count += 1
        for place in self._places(matcher):
            place[matcher] = None

    def discard(self, matcher: M) -> None:
        self._count -= 1
        for place in self._places(matcher):
            del place[matcher]
        for pair in matcher.needs() or ():
            if not self._by_pair.get(pair, True):
                del self._by_pair[pair]

    def _places(self, matcher: M) -> list[dict[M, None]]:
        pairs = matcher.needs()
        if pairs is None:
            return [self._others]
        return [self._by_pair.setdefault(pair, {}) for pair in dict.fromkeys(pairs)]

    def find(self, pod: Pod, known: Namespaces) -> Iterator[M]:
        """The matchers of this pod, each once."""
        if not self._count:
            return
        for pair in pod.metadata.labels.items():
            for matcher in self._by_pair.get(pair, ()):
                if matcher.matches(pod, known):
                    yield matcher
        for matcher in self._others:
            if matcher.matches(pod, known):
                yield matcher


def _sorted(selector: LabelSelector | None) -> object:
    if selector is None:
        return None
    expressions = [(term.key, term.operator, sorted(term.values)) for term in selector.match_expressions]
    return sorted(selector.match_labels.items()), sorted(expressions)


_encode = msgspec.json.Encoder().encode
