"""Node selection of a pod by labels, names and taints, and nodes grouped by what such selections read."""

from collections.abc import Iterable

from seatrial.scheduler.api.core import NO_EXECUTE, NO_SCHEDULE, NodeSelectorTerm, Pod, Taint, Toleration
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.node_facts import MAX_KEYS, NodeFact
from seatrial.scheduler.pods.selectors import requirement_holds, tolerates

Labels = tuple[str, tuple[str | None, ...]]  # a node's name, and its values of the relevant labels


class Selection:
    """A pod's requirements on node labels and names; terms are ORed, expressions in a term are ANDed."""

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
        terms = (*(self.terms or ()), *(item.preference for item in self.preferred))
        self.named = any(term.match_fields for term in terms)

    @property
    def asks(self) -> bool:
        """Whether the selection may exclude a node."""
        return bool(self.exact) or self.terms is not None

    def admits(self, name: str, labels: dict[str, str]) -> bool:
        if any(labels.get(key) != value for key, value in self.exact):
            return False
        return self.terms is None or any(term_holds(term, name, labels) for term in self.terms)

    def liking(self, name: str, labels: dict[str, str]) -> int:
        return sum(item.weight for item in self.preferred if item.weight and term_holds(item.preference, name, labels))

    def admits_value(self, value: Labels) -> bool:
        return self.admits(*self._present(value))

    def liking_of_value(self, value: Labels) -> int:
        return self.liking(*self._present(value))

    def _present(self, value: Labels) -> tuple[str, dict[str, str]]:
        name, labels = value
        return name, {key: label for key, label in zip(self.keys, labels, strict=True) if label is not None}

    def only_names(self) -> frozenset[str] | None:
        """The node names, if every term names some; None if labels are needed."""
        if not self.terms:
            return None
        names: set[str] = set()
        for term in self.terms:
            named = [set(field.values) for field in term.match_fields if _names(field.key, field.operator)]
            if not named:
                return None
            names |= set.intersection(*named)
        return frozenset(names)


class LabelFacts:
    """Nodes grouped by the labels that selections read."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._by_keys: dict[tuple[str, ...], NodeFact[Labels]] = {}

    def of(self, selection: Selection) -> NodeFact[Labels]:
        """Nodes grouped by the labels that `selection` reads, and by name where a term names nodes."""
        named = selection.named
        keys = (*selection.keys, "\0name") if named else selection.keys
        fact = self._by_keys.get(keys)
        if fact is None:
            if len(self._by_keys) >= MAX_KEYS:
                self._by_keys.clear()
            target = selection.keys
            fact = self._by_keys[keys] = NodeFact(
                self._cache,
                lambda node: (node.name if named else "", tuple(node.metadata.labels.get(key) for key in target)),
            )
        return fact


class TaintFact(NodeFact[tuple[Taint, ...]]):
    """Nodes grouped by their taints."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache, lambda node: node.spec.taints)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def admits(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether all taints that keep pods away (NoSchedule, NoExecute) are tolerated."""
    return all(taint.effect not in {NO_SCHEDULE, NO_EXECUTE} or tolerated(taint, tolerations) for taint in taints)


def _names(key: str, operator: str) -> bool:
    return key == "metadata.name" and operator == "In"


def term_holds(term: NodeSelectorTerm, name: str, labels: dict[str, str]) -> bool:
    """Whether the term selects the node; an empty term selects none, and as a preference it says nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement_holds(expression, labels) for expression in term.match_expressions) and all(
        requirement_holds(field, {"metadata.name": name}) for field in term.match_fields
    )
