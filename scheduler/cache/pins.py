"""Pods that name the nodes they may go to, as those of a DaemonSet do: the names are taken out of what makes a class.

Every pod of a DaemonSet names another node. Were the name part of the pod's shape, each would be a class of its own,
judged on all nodes for the sake of one. So pods that differ in the name alone are one class, and the name is looked up
when the pod's turn comes.
"""

from msgspec.structs import replace

from scheduler.api.core import Affinity, NodeSelector, NodeSelectorTerm, Pod

NAME_FIELD = "metadata.name"


def pin_of(pod: Pod) -> frozenset[str] | None:
    """The nodes that a pod may go to by name; None if it names none, or in more words than a DaemonSet uses."""
    affinity = pod.spec.affinity
    term = None if affinity is None else _pinned_term(affinity)
    return None if term is None else frozenset(term.match_fields[0].values)


def unpinned(affinity: Affinity | None) -> Affinity | None:
    """What is left of a pod's affinity without the names that `pin_of` gives; the same object if it gives none."""
    if affinity is None or affinity.node_affinity is None:
        return affinity
    term = _pinned_term(affinity)
    if term is None:
        return affinity
    rest = NodeSelector((NodeSelectorTerm(term.match_expressions),)) if term.match_expressions else None
    return replace(affinity, node_affinity=replace(affinity.node_affinity, required=rest))


def _pinned_term(affinity: Affinity) -> NodeSelectorTerm | None:
    """The only required term, if what it says of fields is `metadata.name In […]` and no more."""
    node = affinity.node_affinity
    if node is None or node.required is None or len(node.required.node_selector_terms) != 1:
        return None
    (term,) = node.required.node_selector_terms
    if len(term.match_fields) != 1:
        return None
    (field,) = term.match_fields
    return term if field.key == NAME_FIELD and field.operator == "In" and field.values else None
