"""Printers of scheduling kinds."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import CREATED, made, printed

RESOURCE = "resource.k8s.io"
GONE = {"deletionTimestamp": CREATED}


@pytest.mark.parametrize(
    ("group", "plural", "values", "want"),
    [
        pytest.param(
            "scheduling.k8s.io",
            "priorityclasses",
            made(value=1000, preemptionPolicy="Never"),
            [("Value", 1000), ("Global-Default", False), ("Age", "60s"), ("PreemptionPolicy", "Never")],
            id="a-priority",
        ),
        pytest.param(
            "coordination.k8s.io",
            "leases",
            made(spec={"holderIdentity": "n1"}),
            [("Holder", "n1"), ("Age", "60s")],
            id="a-lease",
        ),
        pytest.param(
            "node.k8s.io", "runtimeclasses", made(handler="kata"), [("Handler", "kata"), ("Age", "60s")], id="a-runtime"
        ),
        pytest.param(
            RESOURCE,
            "resourceslices",
            made(spec={"nodeName": "n1", "driver": "gpu.example", "pool": {"name": "p"}}),
            [("Node", "n1"), ("Driver", "gpu.example"), ("Pool", "p"), ("Age", "60s")],
            id="a-slice-of-devices",
        ),
        pytest.param(RESOURCE, "deviceclasses", made(), [("Age", "60s")], id="a-device-class"),
        pytest.param(RESOURCE, "resourceclaimtemplates", made(), [("Age", "60s")], id="a-claim-template"),
    ],
)
def test_a_row(group: str, plural: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed(group, plural, values) == [("Name", "x"), *want]


@pytest.mark.parametrize(
    ("metadata", "status", "want"),
    [
        pytest.param({}, {}, "pending", id="waits"),
        pytest.param({}, {"allocation": {}}, "allocated", id="allocated"),
        pytest.param({}, {"allocation": {}, "reservedFor": [{}]}, "allocated,reserved", id="in-use"),
        pytest.param(GONE, {}, "deleted", id="deleted-before-it-was-allocated"),
        pytest.param(GONE, {"allocation": {}, "reservedFor": [{}]}, "deleted,allocated,reserved", id="deleted-in-use"),
    ],
)
def test_a_claim_of_devices(metadata: dict[str, Any], status: dict[str, Any], want: str) -> None:
    shown = printed(RESOURCE, "resourceclaims", made(metadata=metadata, status=status))
    assert shown == [("Name", "x"), ("State", want), ("Age", "60s")]
