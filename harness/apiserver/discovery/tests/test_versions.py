"""The order of versions, and the warnings for deprecated versions of custom resources."""

from typing import Any

import pytest

from seatrial.harness.apiserver.discovery.versions import preferred
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.transport import Request, Response


def test_versions_in_order_of_preference() -> None:
    names = ["v1alpha2", "v10", "v1beta1", "v2", "v1betax", "v1beta12", "other"]
    assert preferred(names) == ["v10", "v2", "v1beta12", "v1beta1", "v1alpha2", "v1betax", "other"]


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        pytest.param("v1", None, id="current"),
        pytest.param("v1beta1", "x.io/v1beta1 Boat is deprecated; use x.io/v2 Boat", id="with-a-newer-one"),
        pytest.param("v1alpha1", "sails only", id="with-words-of-its-own"),
    ],
)
def test_clients_of_a_deprecated_version_are_warned(version: str, warning: str | None) -> None:
    deprecated: dict[str, Any] = {
        "v1beta1": {"deprecated": True},
        "v1alpha1": {"deprecated": True, "deprecationWarning": "sails only"},
    }
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            **deprecated.get(name, {}),
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }
        for name in ("v1alpha1", "v1beta1", "v1", "v2")
    ]
    names = {"plural": "boats", "kind": "Boat"}
    spec = {"group": "x.io", "scope": "Cluster", "names": names, "versions": versions}
    api = Api(bare=True)
    definition = {"metadata": {"name": "boats.x.io"}, "spec": spec}
    code, body = api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert code == 201, body
    answer = api.server.handle(Request("GET", f"/apis/x.io/{version}/boats"))
    assert isinstance(answer, Response)
    assert answer.headers.get("warning") == (f'299 - "{warning}"' if warning else None)
