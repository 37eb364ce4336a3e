"""Label and field selectors: all forms, and errors."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.selectors import MAX_REQUIREMENTS, field_test, label_test

# Examples do not depend on chance or on the speed of the machine.

PODS = ("", "pods")
LABELS = {"app": "web", "tier": "front", "n": "5", "empty": "", "x.io/long": "v"}


def labelled(labels: dict[str, str] | None) -> dict[str, Any]:
    return {"metadata": {} if labels is None else {"labels": labels}}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("app=web", True, id="equals"),
        pytest.param("app==web", True, id="equals-twice"),
        pytest.param("app=other", False, id="equals-another"),
        pytest.param("app!=web", False, id="not-equal"),
        pytest.param("absent!=web", True, id="not-equal-holds-where-there-is-none"),
        pytest.param("app", True, id="exists"),
        pytest.param("!app", False, id="exists-not"),
        pytest.param("!absent", True, id="absent"),
        pytest.param("app in (web, db)", True, id="in"),
        pytest.param("app in (db)", False, id="not-in-the-set"),
        pytest.param("app notin (db,cache)", True, id="notin"),
        pytest.param("absent notin (db)", True, id="notin-holds-where-there-is-none"),
        pytest.param("absent in (db)", False, id="in-fails-where-there-is-none"),
        pytest.param("app=web,tier=front", True, id="all-hold"),
        pytest.param("app=web,tier=back", False, id="one-fails"),
        pytest.param("app in (web,db),tier,!absent", True, id="forms-mixed"),
        pytest.param("n>4", True, id="greater"),
        pytest.param("n<5", False, id="not-less"),
        pytest.param("app>4", False, id="no-number-is-not-greater"),
        pytest.param("empty=", True, id="equals-nothing"),
        pytest.param("empty", True, id="there-but-empty"),
        pytest.param("absent=", False, id="absent-is-not-empty"),
        pytest.param("x.io/long=v", True, id="a-key-with-a-prefix"),
        pytest.param(" app = web ", True, id="with-spaces"),
        pytest.param("app in (web),app in (db)", False, id="in-two-sets"),
        pytest.param("app=web,app!=web", False, id="a-value-and-not-that-value"),
        pytest.param("app,!app", False, id="there-and-not-there"),
        pytest.param("n>4,n>1,n<9", True, id="between"),
        pytest.param("empty in (,a)", True, id="an-empty-value-in-a-set"),
        pytest.param("in=,in notin (in)", False, id="words-as-names"),
    ],
)
def test_labels(selector: str, matches: bool) -> None:
    test = label_test(selector)
    assert test is not None
    assert test(labelled(LABELS)) is matches


@pytest.mark.parametrize("selector", [",", "a,", "a,,b"])
def test_a_selector_has_no_empty_requirement(selector: str) -> None:
    with pytest.raises(ApiStatusError, match="found '"):
        label_test(selector)


@pytest.mark.parametrize("selector", ["", " "])
def test_an_empty_selector_is_none(selector: str) -> None:
    assert label_test(selector) is None


@pytest.mark.parametrize(
    "selector", ["=x", "a=b=c", "a in b", "a in (b", "a ~ b", "-a=b", "a>x", "a&b", "a in ()(", "!a=b", "a//b", "a=-"]
)
def test_invalid_label_selectors(selector: str) -> None:
    with pytest.raises(ApiStatusError, match="unable to parse requirement") as refused:
        label_test(selector)
    assert refused.value.code == 400


class Counted(dict[str, Any]):
    """Labels, or an object, whose look-ups are counted."""

    looked_up = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looked_up += 1
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.looked_up += 1
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.looked_up += 1
        return super().__contains__(key)


@pytest.mark.parametrize("form", ["a{}", "!a{}", "a{}=b", "a{}!=b", "a{} notin (b)", "app!=b{}", "n>{}", "a,a"])
def test_an_object_is_tested_in_time_for_its_labels(form: str) -> None:
    """A selector as long as a URL may be, with thousands of requirements."""
    selector = ",".join(form.format(number) for number in range(MAX_REQUIREMENTS // 2))
    labels = Counted(LABELS)
    test = label_test(selector)
    assert test is not None
    test({"metadata": {"labels": labels}})
    assert labels.looked_up <= 2 * len(LABELS)


def test_the_requirements_of_a_selector_are_limited() -> None:
    assert label_test(",".join(["a"] * MAX_REQUIREMENTS)) is not None
    with pytest.raises(ApiStatusError, match="more than 1000 requirements"):
        label_test(",".join(["a"] * (MAX_REQUIREMENTS + 1)))


def test_an_object_is_tested_in_time_for_the_fields_that_can_be_selected() -> None:
    test = field_test(",".join(f"metadata.name!=a{number}" for number in range(2_000)), PODS)
    pod = Counted(POD)
    assert test is not None
    assert test(pod)
    assert pod.looked_up == 1


POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "n1", "schedulerName": "s", "restartPolicy": "Always", "hostNetwork": True},
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("spec.nodeName=n1", True, id="node"),
        pytest.param("spec.nodeName!=n1", False, id="another-node"),
        pytest.param("metadata.name=p,metadata.namespace=default", True, id="name-and-namespace"),
        pytest.param("status.phase!=Succeeded,status.phase!=Failed", True, id="one-field-twice"),
        pytest.param("spec.hostNetwork=true", True, id="a-boolean"),
        pytest.param("status.nominatedNodeName=", True, id="a-field-not-set-is-empty"),
        pytest.param("spec.serviceAccountName==", True, id="equals-twice"),
        pytest.param("metadata.name=p,metadata.name=q", False, id="two-values-at-once"),
        pytest.param("metadata.name=p,metadata.name!=p", False, id="a-value-and-not-that-value"),
        pytest.param("metadata.name!=a\\,b,spec.nodeName=n1,", True, id="an-escaped-comma"),
    ],
)
def test_fields_of_pods(selector: str, matches: bool) -> None:
    test = field_test(selector, PODS)
    assert test is not None
    assert test(POD) is matches


@pytest.mark.parametrize(
    ("collection", "selector", "obj"),
    [
        pytest.param(("", "nodes"), "spec.unschedulable=false", {"spec": {}}, id="a-node-not-cordoned"),
        pytest.param(("", "secrets"), "type=Opaque", {"type": "Opaque"}, id="secret-type"),
        pytest.param(
            ("", "events"),
            "involvedObject.name=p,reason=Failed,type=Warning",
            {"involvedObject": {"name": "p"}, "reason": "Failed", "type": "Warning"},
            id="event",
        ),
        pytest.param(("", "events"), "source=kubelet", {"source": {"component": "kubelet"}}, id="event-source"),
        pytest.param(
            ("", "events"), "reportingController=x", {"reportingComponent": "x", "source": {}}, id="event-controller"
        ),
    ],
)
def test_fields_of_others(collection: tuple[str, str], selector: str, obj: dict[str, Any]) -> None:
    test = field_test(selector, collection)
    assert test is not None
    assert test(obj)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("spec.unschedulable=true", "field label not supported: spec.unschedulable", id="not-of-pods"),
        pytest.param("spec.nodeName", "invalid field selector", id="no-operator"),
        pytest.param(" " * 20_000, "invalid field selector", id="blanks"),
        pytest.param("spec.nodeName=a" + " " * 20_000 + "x,b", "invalid field selector", id="blanks-in-a-value"),
        pytest.param("spec.nodeName=a=b", "unescaped character in value: =", id="not-escaped"),
        pytest.param("spec.nodeName=a\\b", r"invalid escape sequence: \\b", id="needs-no-escape"),
        pytest.param("spec.nodeName=a\\", r"invalid escape sequence", id="nothing-escaped"),
        pytest.param("=x", "field label not supported: ", id="no-field"),
    ],
)
def test_invalid_field_selectors(selector: str, message: str) -> None:
    with pytest.raises(ApiStatusError, match=message):
        field_test(selector, PODS)


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "1", "2", "x"])


@given(st.dictionaries(KEYS, VALUES), KEYS, st.lists(VALUES.filter(bool), min_size=1, max_size=3))
def test_set_forms_agree_with_equality(labels: dict[str, str], key: str, values: list[str]) -> None:
    inside = label_test(f"{key} in ({','.join(values)})")
    outside = label_test(f"{key} notin ({','.join(values)})")
    assert inside is not None
    assert outside is not None
    assert inside(labelled(labels)) is any(labels.get(key) == value for value in values)
    assert outside(labelled(labels)) is not inside(labelled(labels))


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (label_test, lambda item: field_test(item, PODS)):
        with contextlib.suppress(ApiStatusError):  # any other exception is a fault
            test = parse(text)
            assert test is None or test(POD) in {True, False}
