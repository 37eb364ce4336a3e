"""Which pods a selector means, in a form that can be looked up: by namespace, labels and their like, not one by one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from scheduler.api.core import Pod
from scheduler.api.wire import LabelSelector, Requirement
from scheduler.pods.selectors import selector_matches

EVERYTHING = LabelSelector()

Namespaces = Mapping[str, dict[str, str]]  # labels by name
LabelPair = tuple[str, str]
V = TypeVar("V")
MOST_READINGS = 4096


class Readings(Generic[V]):
    """What was read of one part of pods' specs, kept for pods that share it, their namespace and their labels.

    Replicas share the parts of their template; of others, what is read is read once for all who ask in one cycle.
    """

    def __init__(self, read: Callable[[Pod], V]) -> None:
        self._read = read
        self._kept: dict[tuple[int, str], tuple[object, dict[str, str], V]] = {}

    def of(self, part: object, pod: Pod) -> V:
        """`part` is the pod's; with it, namespace and labels decide what is read."""
        metadata = pod.metadata
        found = self._kept.get((id(part), metadata.namespace))
        if found is not None and found[1] == metadata.labels:
            return found[2]
        if len(self._kept) >= MOST_READINGS:
            self._kept.clear()
        value = self._read(pod)
        # The part is kept so that its id stays its own.
        self._kept[id(part), metadata.namespace] = (part, metadata.labels.copy(), value)
        return value


class PodMatcher:
    """Pods of certain namespaces with certain labels; equal if they mean the same pods by the same words."""

    __slots__ = ("_hash", "namespace_selector", "namespaces", "selector", "words")

    def __init__(
        self,
        namespaces: Iterable[str],
        selector: LabelSelector | None,
        namespace_selector: LabelSelector | None = None,
    ) -> None:
        """No `selector` means no pod at all; a `namespace_selector` adds namespaces to those named."""
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
        """Whether it means this pod; a namespace that is not `known` counts as one without labels."""
        return self.matches_labels(pod.metadata.namespace, pod.metadata.labels, known)

    def matches_labels(self, namespace: str, labels: dict[str, str], known: Namespaces) -> bool:
        if self.selector is None or not selector_matches(self.selector, labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and selector_matches(
            self.namespace_selector, known.get(namespace, {})
        )

    def needs(self) -> list[LabelPair] | None:
        """Pairs of which every pod that it means has one; None if there are no such."""
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
    """The selector of a pod that wants its own value of the keys in `same`, and none of its own of those in `other`.

    Keys that the pod does not have say nothing (API: matchLabelKeys, mismatchLabelKeys).
    """
    if selector is None:
        return None
    more = [Requirement(key, "In", (labels[key],)) for key in same if key in labels]
    more += [Requirement(key, "NotIn", (labels[key],)) for key in other if key in labels]
    if not more:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *more))


class Matching(Protocol):
    """Something that means certain pods."""

    def matches(self, pod: Pod, known: Namespaces) -> bool: ...

    def needs(self) -> list[LabelPair] | None: ...


M = TypeVar("M", bound=Matching)


class LabelIndex(Generic[M]):
    """Finds, among many matchers, those that mean a pod, by looking at those alone that share a label with it."""

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
        """The matchers that mean this pod, each once."""
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
    expressions = [(one.key, one.operator, sorted(one.values)) for one in selector.match_expressions]
    return sorted(selector.match_labels.items()), sorted(expressions)


_encode = msgspec.json.Encoder().encode
