import msgspec
import pytest

from seatrial.scheduler.api.core import PodSpec
from seatrial.scheduler.pods.requests import nonzero_requests, pod_limits, pod_requests


def spec(document: str) -> PodSpec:
    return msgspec.yaml.decode(document.encode(), type=PodSpec)


@pytest.mark.parametrize(
    ("document", "cpu"),
    [
        pytest.param(
            "containers: [{resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 3}}}]", 5000, id="summed"
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}], initContainers: [{resources: {requests: {cpu: 10}}}]}",
            10_000,
            id="init-by-maximum",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}],"
            " initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}]}",
            3000,
            id="sidecar-stays",
        ),
        pytest.param(
            "{containers: [{resources: {requests: {cpu: 2}}}], initContainers:"
            " [{restartPolicy: Always, resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 5}}}]}",
            6000,
            id="init-beside-a-sidecar",
        ),
        pytest.param("{containers: [{resources: {limits: {cpu: 2}}}]}", 2000, id="request-from-limit"),
        pytest.param("{containers: [{resources: {requests: {cpu: 2}}}], overhead: {cpu: 250m}}", 2250, id="overhead"),
        pytest.param("{containers: [{}], resources: {requests: {cpu: 7}}}", 7000, id="pod-level"),
    ],
)
def test_pod_requests(document: str, cpu: int) -> None:
    assert pod_requests(spec(document)) == {"cpu": cpu}


def test_zero_amounts_are_no_request() -> None:
    assert pod_requests(spec("containers: [{resources: {requests: {cpu: 0, koordinator.sh/gpu: 0}}}]")) == {}


def test_scores_take_a_container_without_requests_for_a_small_one() -> None:
    both = spec("containers: [{}, {resources: {requests: {cpu: 1}}}]")
    assert nonzero_requests(both) == (1100, 400 << 20)


@pytest.mark.parametrize(
    ("document", "cpu"),
    [
        pytest.param("containers: [{resources: {limits: {cpu: 2}}}, {}]", 2000, id="of-the-containers-that-have-one"),
        pytest.param("containers: [{resources: {requests: {cpu: 2}}}]", 0, id="a-request-is-no-limit"),
        pytest.param("{containers: [{resources: {limits: {cpu: 2}}}], overhead: {cpu: 250m}}", 2250, id="overhead"),
        pytest.param("{containers: [{}], overhead: {cpu: 250m}}", 0, id="overhead-makes-no-limit"),
        pytest.param("{containers: [{}], resources: {limits: {cpu: 7}}}", 7000, id="pod-level"),
        pytest.param(
            "{containers: [{resources: {limits: {cpu: 2}}}], initContainers: [{resources: {limits: {cpu: 10}}}]}",
            10_000,
            id="init-by-maximum",
        ),
    ],
)
def test_pod_limits(document: str, cpu: int) -> None:
    assert pod_limits(spec(document)).get("cpu", 0) == cpu
