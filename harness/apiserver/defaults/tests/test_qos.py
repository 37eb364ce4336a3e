from typing import Any

import pytest

from seatrial.harness.apiserver.defaults.qos import qos_class

Object = dict[str, Any]


def resources(requests: Object | None = None, limits: Object | None = None) -> Object:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        pytest.param([resources()], "BestEffort", id="nothing-asked"),
        pytest.param([resources({"nvidia.com/gpu": "1"})], "BestEffort", id="cards-do-not-count"),
        pytest.param([resources(FULL, FULL)], "Guaranteed", id="both-limits-equal-requests"),
        pytest.param([resources({"cpu": "1000m", "memory": "1024Mi"}, FULL)], "Guaranteed", id="equal-in-other-words"),
        pytest.param([resources(None, FULL)], "Guaranteed", id="limits-alone"),
        pytest.param([resources({"cpu": "1"}, {"cpu": "1"})], "Burstable", id="no-memory"),
        pytest.param([resources({"cpu": "500m", "memory": "1Gi"}, FULL)], "Burstable", id="request-below-limit"),
        pytest.param([resources(FULL, FULL), resources()], "Burstable", id="one-container-asks-for-nothing"),
        pytest.param([resources({"cpu": "0"})], "BestEffort", id="zero-is-nothing"),
    ],
)
def test_qos_class(containers: list[Object], want: str) -> None:
    assert qos_class({"containers": containers}) == want


def test_qos_class_of_pod_level_resources() -> None:
    assert qos_class({**resources(FULL, FULL), "containers": [resources()]}) == "Guaranteed"
