"""Printers of custom resources."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.custom import custom_printer
from seatrial.harness.apiserver.printers.tests.printed import NOW, made

OBJ = made(
    spec={"n": 3, "f": 2.7, "b": True, "s": "text", "list": [1, 2], "map": {"z": 1, "a": "x"}, "null": None},
    status={"seen": "2026-01-01T00:01:40Z", "bad": "yesterday", "conditions": [{"type": "Ready", "status": "True"}]},
)


@pytest.mark.parametrize(
    ("kind", "path", "want"),
    [
        pytest.param("string", ".spec.s", "text", id="a-text"),
        pytest.param("string", ".spec.n", "3", id="a-number-as-text"),
        pytest.param("string", ".spec.b", "true", id="a-truth-as-text"),
        pytest.param("string", ".spec.map", '{"a":"x","z":1}', id="an-object-as-json"),
        pytest.param("string", ".spec.list", "[1,2]", id="a-list-as-json"),
        pytest.param("string", ".spec.list[*]", "1", id="the-first-of-several"),
        pytest.param("string", '.status.conditions[?(@.type=="Ready")].status', "True", id="a-condition"),
        pytest.param("string", ".spec.missing", None, id="a-missing-field"),
        pytest.param("integer", ".spec.n", 3, id="an-integer"),
        pytest.param("integer", ".spec.f", 2, id="a-fraction-as-integer"),
        pytest.param("integer", ".spec.s", None, id="a-text-is-no-integer"),
        pytest.param("integer", ".spec.b", None, id="a-truth-is-no-integer"),
        pytest.param("number", ".spec.f", 2.7, id="a-fraction"),
        pytest.param("boolean", ".spec.b", True, id="a-truth"),
        pytest.param("boolean", ".spec.n", None, id="a-number-is-no-truth"),
        pytest.param("date", ".status.seen", "5m", id="a-date-is-an-age"),
        pytest.param("date", ".status.bad", "<invalid>", id="not-a-date"),
        pytest.param("date", ".spec.n", None, id="a-number-is-no-date"),
    ],
)
def test_a_cell_is_of_its_columns_type(kind: str, path: str, want: Any) -> None:
    how = custom_printer([{"name": "Col", "type": kind, "jsonPath": path}])
    assert how.cells(OBJ, NOW) == ["x", want]
    assert type(how.cells(OBJ, NOW)[1]) is type(want)


def test_columns_keep_their_priority_format_and_description() -> None:
    how = custom_printer(
        [
            {"name": "A", "type": "integer", "jsonPath": ".spec.n", "priority": 1, "format": "int32"},
            {"name": "B", "type": "string", "jsonPath": ".spec.s", "description": "A text."},
        ]
    )
    assert [column.definition() for column in how.columns[1:]] == [
        {
            "name": "A",
            "type": "integer",
            "format": "int32",
            "description": "Custom resource definition column (in JSONPath format): .spec.n",
            "priority": 1,
        },
        {"name": "B", "type": "string", "format": "", "description": "A text.", "priority": 0},
    ]


@pytest.mark.parametrize("values", [None, []])
def test_without_columns_there_is_the_age(values: list[dict[str, Any]] | None) -> None:
    how = custom_printer(values)
    assert [column.name for column in how.columns] == ["Name", "Age"]
    assert how.cells(OBJ, NOW) == ["x", "60s"]


def test_an_invalid_column_ends_the_list() -> None:
    good, bad = ({"name": name, "type": "string", "jsonPath": path} for name, path in (("A", ".spec.s"), ("B", "][")))
    how = custom_printer([good, bad, good])
    assert how.cells(OBJ, NOW) == ["x", "text"]
    assert len(how.columns) == 2
