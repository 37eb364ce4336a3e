"""Node names in the affinity of pods, as in those of a DaemonSet: they are not part of the equivalence class.

Each pod of a DaemonSet names another node. If the name were part of the class, each pod would be a class of its own,
judged on all nodes. So pods that differ only in the name are one class, and the name is looked up in the cycle.
"""

from msgspec.structs import replace

from seatrial.scheduler.api.core import Affinity, NodeSelector, NodeSelectorTerm, Pod

NAME_FIELD = "metadata.name"


def pin_of(pod: Pod) -> frozenset[str] | None:
    """The node names that a pod is limited to; None if it has none, or in another form than a DaemonSet's."""
    affinity = pod.spec.affinity
    term = None if affinity is None else _pinned_term(affinity)
    return None if term is None else frozenset(term.match_fields[0].values)


def unpinned(affinity: Affinity | None) -> Affinity | None:
    """A pod's affinity without the names of `pin_of`; the same object if there are none."""
    if affinity is None or affinity.node_affinity is None:
        return affinity
    term = _pinned_term(affinity)
    if term is None:
        return affinity
    rest = NodeSelector((NodeSelectorTerm(term.match_expressions),)) if term.match_expressions else None
    return replace(affinity, node_affinity=replace(affinity.node_affinity, required=rest))


def _pinned_term(affinity: Affinity) -> NodeSelectorTerm | None:
    """The only required term, if its only field requirement is `metadata.name In […]`."""
    node = affinity.node_affinity
    if node is None or node.required is None or len(node.required.node_selector_terms) != 1:
        return None
    (term,) = node.required.node_selector_terms
    if len(term.match_fields) != 1:
        return None
    (field,) = term.match_fields
    return term if field.key == NAME_FIELD and field.operator == "In" and field.values else None
