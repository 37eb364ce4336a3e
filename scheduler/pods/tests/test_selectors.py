"""Selectors, tolerations and disruption budgets as the scheduler matches them."""

import pytest

from seatrial.scheduler.api.core import PodDisruptionBudget, PodDisruptionBudgetSpec, Taint, Toleration
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, Requirement
from seatrial.scheduler.pods.selectors import budget_covers, requirement_holds, selector_matches, tolerates

LABELS = {"app": "a", "size": "7"}


@pytest.mark.parametrize(
    ("requirement", "want"),
    [
        pytest.param(Requirement("app", "In", ("a", "b")), True, id="in"),
        pytest.param(Requirement("none", "In", ("a",)), False, id="in-without-label"),
        pytest.param(Requirement("app", "NotIn", ("a",)), False, id="not-in"),
        pytest.param(Requirement("none", "NotIn", ("a",)), True, id="not-in-without-label"),
        pytest.param(Requirement("app", "Exists"), True, id="exists"),
        pytest.param(Requirement("app", "DoesNotExist"), False, id="does-not-exist"),
        pytest.param(Requirement("size", "Gt", ("6",)), True, id="greater"),
        pytest.param(Requirement("size", "Lt", ("7",)), False, id="not-less"),
        pytest.param(Requirement("app", "Gt", ("6",)), False, id="not-a-number"),
        pytest.param(Requirement("app", "Unknown", ("a",)), False, id="unknown-operator"),
    ],
)
def test_requirements(requirement: Requirement, want: bool) -> None:
    assert requirement_holds(requirement, LABELS) is want


def test_a_selector_needs_all_labels_and_expressions() -> None:
    selector = LabelSelector({"app": "a"}, (Requirement("size", "Exists"),))
    assert [selector_matches(selector, labels) for labels in (LABELS, {"app": "a"}, {"size": "7"})] == [
        True,
        False,
        False,
    ]
    assert selector_matches(LabelSelector(), {})


def test_tolerations_compare_key_value_and_effect() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    assert tolerates(Toleration("gpu", "Equal", "yes", "NoSchedule"), taint)
    assert tolerates(Toleration(operator="Exists"), taint)
    assert not tolerates(Toleration("gpu", "Equal", "no"), taint)
    assert not tolerates(Toleration("gpu", "Exists", effect="NoExecute"), taint)
    assert not tolerates(Toleration(value="yes"), taint), "Equal needs a key"


def test_a_budget_covers_pods_of_its_namespace_by_a_selector_that_is_not_empty() -> None:
    def budget(selector: LabelSelector | None) -> PodDisruptionBudget:
        return PodDisruptionBudget(ObjectMeta(namespace="n"), PodDisruptionBudgetSpec(selector))

    chosen = budget(LabelSelector({"app": "a"}))
    assert budget_covers(chosen, "n", LABELS)
    assert not budget_covers(chosen, "other", LABELS)
    assert not budget_covers(chosen, "n", {})
    assert not budget_covers(budget(LabelSelector()), "n", LABELS)
    assert not budget_covers(budget(None), "n", LABELS)
