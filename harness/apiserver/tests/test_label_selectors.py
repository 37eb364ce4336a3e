"""Label selectors, node selector terms and tolerations of the API server's controllers."""

import pytest

from seatrial.harness.apiserver.label_selectors import LabelSelector, holds, term_matches, tolerates
from seatrial.scheduler.api.core import NodeSelectorTerm, Taint, Toleration
from seatrial.scheduler.api.wire import Requirement

LABELS = {"app": "web", "rank": "5"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "want"),
    [
        pytest.param("app", "In", ("web", "db"), True, id="in"),
        pytest.param("app", "In", ("db",), False, id="not-in-the-list"),
        pytest.param("tier", "In", ("web",), False, id="absent-label-is-in-no-list"),
        pytest.param("app", "NotIn", ("web",), False, id="excluded-value"),
        pytest.param("tier", "NotIn", ("web",), True, id="absent-label-is-not-excluded"),
        pytest.param("app", "Exists", (), True, id="exists"),
        pytest.param("tier", "Exists", (), False, id="does-not-exist"),
        pytest.param("app", "DoesNotExist", (), False, id="must-not-exist"),
        pytest.param("rank", "Gt", ("4",), True, id="greater"),
        pytest.param("rank", "Gt", ("5",), False, id="equal-is-not-greater"),
        pytest.param("rank", "Lt", ("10",), True, id="compared-as-numbers"),
        pytest.param("app", "Gt", ("4",), False, id="no-number"),
        pytest.param("rank", "Gt", (), False, id="no-bound"),
        pytest.param("app", "Like", ("web",), False, id="unknown-operator"),
    ],
)
def test_an_expression(key: str, operator: str, values: tuple[str, ...], want: bool) -> None:
    assert holds(Requirement(key, operator, values), LABELS) is want


def test_a_selector_needs_all_its_labels_and_expressions() -> None:
    assert LabelSelector().matches({})
    assert LabelSelector({"app": "web"}, (Requirement("rank", "Exists"),)).matches(LABELS)
    assert not LabelSelector({"app": "web", "tier": "x"}).matches(LABELS)
    assert not LabelSelector({"app": "web"}, (Requirement("tier", "Exists"),)).matches(LABELS)


def test_a_term_selects_by_labels_and_by_name() -> None:
    by_name = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert [term_matches(by_name, name, {}) for name in ("n1", "n2")] == [True, False]
    both = NodeSelectorTerm((Requirement("app", "Exists"),), by_name.match_fields)
    assert [term_matches(both, "n1", labels) for labels in (LABELS, {})] == [True, False]
    assert not term_matches(NodeSelectorTerm(), "n1", LABELS), "an empty term selects no node"


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(Toleration("gpu", "Equal", "yes", "NoSchedule"), True, id="same"),
        pytest.param(Toleration("gpu", "", "yes"), True, id="any-effect"),
        pytest.param(Toleration("gpu", "Equal", "no"), False, id="other-value"),
        pytest.param(Toleration("gpu", "Exists", effect="NoExecute"), False, id="other-effect"),
        pytest.param(Toleration("gpu", "Exists"), True, id="any-value"),
        pytest.param(Toleration("", "Exists"), True, id="any-taint"),
        pytest.param(Toleration("", "Equal", "yes"), False, id="equal-needs-a-key"),
    ],
)
def test_a_toleration(toleration: Toleration, want: bool) -> None:
    assert tolerates(toleration, Taint("gpu", "yes", "NoSchedule")) is want
