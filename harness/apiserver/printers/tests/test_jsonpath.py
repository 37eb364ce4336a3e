"""Paths of printer columns."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.jsonpath import PathError, compiled

OBJ: dict[str, Any] = {
    "metadata": {"annotations": {"foo.bar/x": "noted"}},
    "spec": {"a": {"b": 7}, "gpu-type": "a100", "list": [1, 2, 3], "null": None},
    "status": {
        "conditions": [
            {"type": "Scheduled", "status": "False", "weight": 2},
            {"type": "Ready", "status": "True", "weight": 5, "message": "fine"},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param(".spec.a.b", [7], id="fields"),
        pytest.param("{.spec.a.b}", [7], id="braces-are-allowed"),
        pytest.param(".spec.gpu-type", ["a100"], id="a-dash-in-a-name"),
        pytest.param(r".metadata.annotations.foo\.bar/x", ["noted"], id="an-escaped-dot"),
        pytest.param(".metadata.annotations['foo.bar/x']", ["noted"], id="a-quoted-name"),
        pytest.param(".spec.list[0]", [1], id="an-index"),
        pytest.param(".spec.list[-1]", [3], id="an-index-from-the-end"),
        pytest.param(".spec.list[3]", [], id="an-index-too-far"),
        pytest.param(".spec.list[*]", [1, 2, 3], id="all-of-a-list"),
        pytest.param(".spec.a.*", [7], id="all-of-an-object"),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', ["True"], id="a-filter"),
        pytest.param(".status.conditions[?(@.type == 'Ready')].status", ["True"], id="single-quotes-and-spaces"),
        pytest.param('.status.conditions[?(@.type!="Ready")].status', ["False"], id="all-but-one"),
        pytest.param(".status.conditions[?(@.weight>2)].type", ["Ready"], id="a-comparison-of-numbers"),
        pytest.param('.status.conditions[?(@.weight>"2")].type', [], id="a-text-and-a-number-have-no-order"),
        pytest.param(".status.conditions[?(@.message)].type", ["Ready"], id="a-field-that-is-there"),
        pytest.param('.status.conditions[?(@.none=="x")].type', [], id="a-filter-on-a-missing-field"),
        pytest.param(".status.missing.deeper", [], id="a-missing-field"),
        pytest.param(".spec.list.b", [], id="a-field-of-a-list"),
        pytest.param(".spec.null", [None], id="a-null"),
    ],
)
def test_a_path_finds(path: str, want: list[Any]) -> None:
    assert compiled(path)(OBJ) == want


@pytest.mark.parametrize("path", ["spec.a", ".spec[", ".spec[?(@.a=)]", ".spec..a", ".spec[?a]"])
def test_an_invalid_path_is_rejected_with_its_text(path: str) -> None:
    with pytest.raises(PathError, match="cannot be understood from character") as refused:
        compiled(path)
    assert repr(path) in str(refused.value)
