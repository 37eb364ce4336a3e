"""Matching of label selectors, node selector requirements, tolerations and disruption budgets.

Follows k8s.io/apimachinery `labels.Selector` and k8s.io/component-helpers `scheduling/corev1`.
"""

from seatrial.scheduler.api.core import PodDisruptionBudget, Taint, Toleration
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.wire import LabelSelector, Requirement

_SET_OPERATORS, _BARE_OPERATORS = frozenset({"In", "NotIn"}), frozenset({"Exists", "DoesNotExist"})


def selector_matches(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Whether every label and every expression of the selector holds; an empty selector matches everything."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        requirement_holds(expression, labels) for expression in selector.match_expressions
    )


def selector_error(selector: LabelSelector) -> str:
    """The API machinery's objection to a selector; "" if it is valid."""
    for expression in selector.match_expressions:
        if expression.operator not in _SET_OPERATORS | _BARE_OPERATORS:
            return f'"{expression.operator}" is not a valid label selector operator'
        if expression.operator in _SET_OPERATORS and not expression.values:
            return f"key {expression.key}: for 'in', 'notin' operators, values set can't be empty"
        if expression.operator in _BARE_OPERATORS and expression.values:
            return f"key {expression.key}: values set must be empty for exists and does not exist"
    return ""


def requirement_holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    """Whether `labels` satisfy one expression. An unknown operator never holds; admission refuses it."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            have, bound = integer(value or ""), integer("".join(requirement.values[:1]))
            if have is None or bound is None:
                return False
            return have > bound if operator == "Gt" else have < bound
        case _:
            return False


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """k8s.io/api `Toleration.ToleratesTaint`: an empty effect, and an empty key with Exists, match every taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and toleration.value == taint.value


def budget_covers(budget: PodDisruptionBudget, namespace: str, labels: dict[str, str]) -> bool:
    """Whether the budget protects such a pod.

    In preemption an absent or empty selector protects nothing, and no budget a pod without labels (FWK-R81, GANG-R93).
    """
    selector = budget.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions) or not labels:
        return False
    return budget.metadata.namespace == namespace and selector_matches(selector, labels)
