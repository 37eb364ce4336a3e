"""Label selectors, node selector terms and tolerations as the API server's own controllers evaluate them.

The harness judges schedulers, so it does not use the scheduler's code for this. Follows k8s.io/apimachinery
`labels.Requirement.Matches`, `metav1.LabelSelectorAsSelector` and k8s.io/component-helpers `scheduling/corev1`.
"""

from collections.abc import Mapping

from seatrial.scheduler.api.core import NodeSelectorTerm, Taint, Toleration
from seatrial.scheduler.api.wire import Requirement, Wire

_NAME_FIELD = "metadata.name"


class LabelSelector(Wire, frozen=True):
    """A metav1.LabelSelector that can be evaluated."""

    match_labels: dict[str, str] = {}  # noqa: RUF012 msgspec copies a mutable default for each instance
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all labels and expressions hold; an empty selector matches every object."""
        for key, name in self.match_labels.items():
            if labels.get(key) != name:
                return False
        return all(holds(expression, labels) for expression in self.match_expressions)


def holds(expression: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one expression of a label or node selector holds; False for an operator that does not exist."""
    present = expression.key in labels
    operator = expression.operator
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    if operator == "NotIn":
        return not present or labels[expression.key] not in expression.values
    if not present:
        return False
    value = labels[expression.key]
    if operator == "In":
        return value in expression.values
    if operator in {"Gt", "Lt"} and len(expression.values) == 1:
        try:
            difference = int(value) - int(expression.values[0])
        except ValueError:
            return False
        return difference > 0 if operator == "Gt" else difference < 0
    return False


def term_matches(term: NodeSelectorTerm, node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node selector term selects the node; a term without expressions and fields selects no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {_NAME_FIELD: node_name}
    return all(holds(expression, labels) for expression in term.match_expressions) and all(
        holds(field, fields) for field in term.match_fields
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration matches the taint (k8s.io/api core/v1 `Toleration.ToleratesTaint`)."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    equal = toleration.operator in {"", "Equal"}
    return equal and toleration.key != "" and toleration.value == taint.value
