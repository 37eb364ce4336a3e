"""Tables: headers, metadata and formats. Cells are tested with the printers."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tables import _PRINTERS, IncludeObject, columns, frame, printer, row, table

NOW = 1_767_226_000.0  # 2026-01-01T00:06:40Z


def lease(name: str = "l", version: str = "7") -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:05:40Z", "resourceVersion": version}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {"holderIdentity": "h"}}


def leases(objects: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return table("coordination.k8s.io", "leases", objects, now=NOW, **more)


def test_a_list_is_one_table() -> None:
    answer = leases([lease("a"), lease("b")], list_meta={"resourceVersion": "9", "continue": "", "x": 1})
    heads = [(c["name"], c["type"], c["format"], c["priority"]) for c in answer.pop("columnDefinitions")]
    assert heads == [("Name", "string", "name", 0), ("Holder", "string", "", 0), ("Age", "string", "", 0)]
    assert answer == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "rows": [
            {
                "cells": [name, "h", "60s"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": lease(name)["metadata"],
                },
            }
            for name in "ab"
        ],
    }


def test_a_page_of_a_list_says_how_to_go_on() -> None:
    meta = {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 5}
    assert leases([lease()], list_meta=meta)["metadata"] == meta


def test_an_empty_list_still_has_its_headers() -> None:
    answer = leases([], list_meta={"resourceVersion": "9"})
    assert answer["rows"] == []
    assert len(answer["columnDefinitions"]) == 3


def test_one_object_gives_its_own_version() -> None:
    assert leases([lease(version="12")], list_meta=None)["metadata"] == {"resourceVersion": "12"}


@pytest.mark.parametrize(
    ("include", "want"),
    [
        pytest.param("None", None, id="nothing"),
        pytest.param("Object", lease(), id="all-of-it"),
        pytest.param(
            "Metadata",
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": lease()["metadata"]},
            id="its-metadata",
        ),
    ],
)
def test_a_row_carries_what_was_asked_for(include: IncludeObject, want: Any) -> None:
    assert leases([lease()], list_meta={}, include_object=include)["rows"][0]["object"] == want


def test_a_watch_sends_its_headers_once() -> None:
    how = printer("coordination.k8s.io", "leases")
    first, second = (frame(how, lease(version=v), now=NOW, headers=v == "1") for v in ("1", "2"))
    assert first["columnDefinitions"] == columns(how)
    assert second["columnDefinitions"] is None
    assert second["rows"] == [row(how, lease(version="2"), now=NOW)]
    assert second["metadata"] == {"resourceVersion": "2"}


@pytest.mark.parametrize(
    ("phase", "want"),
    [
        pytest.param("Running", None, id="a-running-pod-has-none"),
        pytest.param("Succeeded", "The pod has completed successfully.", id="a-pod-that-succeeded"),
        pytest.param("Failed", "The pod failed.", id="a-pod-that-failed"),
    ],
)
def test_a_row_of_an_ended_pod_has_a_condition(phase: str, want: str | None) -> None:
    made = row(printer("", "pods"), {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": phase}}, now=NOW)
    conditions = made.get("conditions")
    if want is None:
        assert conditions is None
    else:
        assert conditions == [{"type": "Completed", "status": "True", "reason": phase, "message": want}]


def test_a_custom_resource_uses_its_own_columns() -> None:
    values = [{"name": "Holder", "type": "string", "jsonPath": ".spec.holderIdentity", "priority": 1}]
    answer = table("example.com", "things", [lease()], now=NOW, list_meta={}, printer_columns=values)
    assert [c["name"] for c in answer["columnDefinitions"]] == ["Name", "Holder"]
    assert answer["rows"][0]["cells"] == ["l", "h"]


def test_a_kind_that_nobody_knows_has_name_and_age() -> None:
    answer = table("example.com", "things", [lease()], now=NOW, list_meta={})
    assert [c["name"] for c in answer["columnDefinitions"]] == ["Name", "Age"]
    assert answer["rows"][0]["cells"] == ["l", "60s"]


def test_nothing_but_the_metadata_is_needed() -> None:
    """Every printer copes with an object that has no spec, no status, and not even a creation time."""
    for (group, plural), how in _PRINTERS.items():
        made = row(how, {"metadata": {"name": "x"}}, now=NOW)
        assert len(made["cells"]) == len(how.columns), (group, plural)


def test_ten_thousand_pods_have_a_row_each() -> None:
    status = {
        "phase": "Running",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")],
        "containerStatuses": [{"name": "a", "ready": True, "restartCount": 0, "state": {"running": {}}}],
    }
    spec = {"nodeName": "n1", "containers": [{"name": "a"}]}
    pods = [
        {
            "metadata": {"name": f"p{i}", "creationTimestamp": f"2026-01-01T00:{i // 60 % 60:02}:{i % 60:02}Z"},
            "spec": spec,
            "status": status,
        }
        for i in range(10_000)
    ]
    answer = table("", "pods", pods, now=NOW, list_meta={})
    assert len(answer["rows"]) == 10_000
