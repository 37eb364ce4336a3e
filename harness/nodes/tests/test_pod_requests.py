"""Requests of whole pods as the node agent computes them; numbers of k8s.io/component-helpers' rules."""

import msgspec
import pytest

from seatrial.harness.apiserver.quantities import QuantityError
from seatrial.harness.nodes.pod_requests import pod_requests
from seatrial.scheduler.api.core import PodSpec


def spec(document: str) -> PodSpec:
    return msgspec.yaml.decode(document.encode(), type=PodSpec)


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(
            "containers: [{resources: {requests: {cpu: 250m, memory: 1Gi}}}, {resources: {requests: {cpu: 1}}}]",
            {"cpu": 1250, "memory": 1 << 30},
            id="containers-are-added",
        ),
        pytest.param(
            "containers: [{resources: {limits: {cpu: 3, memory: 1Ki}, requests: {cpu: 1}}}]",
            {"cpu": 1000, "memory": 1024},
            id="limit-stands-in-for-a-missing-request",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}],"
            " initContainers: [{resources: {requests: {cpu: 3}}}, {resources: {requests: {cpu: 4}}}]}",
            {"cpu": 4000},
            id="largest-init-container",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}], initContainers:"
            " [{resources: {requests: {cpu: 4}}}, {restartPolicy: Always, resources: {requests: {cpu: 1}}}]}",
            {"cpu": 4000},
            id="sidecar-started-after-the-init-container",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}], initContainers:"
            " [{restartPolicy: Always, resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 4}}}]}",
            {"cpu": 5000},
            id="sidecar-started-before-the-init-container",
        ),
        pytest.param(
            "{containers: [{}], initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}},"
            " {restartPolicy: Always, resources: {requests: {nvidia.com/gpu: 2}}}]}",
            {"cpu": 1000, "nvidia.com/gpu": 2},
            id="sidecars-are-added",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2, memory: 1Ki}}}], resources: {requests: {cpu: 7}},"
            " overhead: {cpu: 500m}}",
            {"cpu": 7500, "memory": 1024},
            id="pod-level-replaces-the-sum-and-overhead-is-added",
        ),
        pytest.param("containers: [{resources: {requests: {cpu: 0}}}]", {}, id="zero-is-no-request"),
    ],
)
def test_requests_of_a_pod(document: str, want: dict[str, int]) -> None:
    assert pod_requests(spec(document)) == want


def test_a_text_that_is_no_quantity_is_reported() -> None:
    with pytest.raises(QuantityError):
        pod_requests(spec("containers: [{resources: {requests: {cpu: many}}}]"))
