"""Koordinator's pod webhook before the scheduler: a GPU request is stored with the resources that it stands for."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.fixtures.allocated_devices import devices_of, parts
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import CONFIGURATIONS, registered, webhook_process
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE, NVIDIA_GPU

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.fixture(scope="module")
def process() -> Iterator[list[dict[str, Any]]]:
    """The webhook as a process, for all cases here: it knows nothing of the cluster."""
    with webhook_process() as configurations:
        yield configurations


@pytest.fixture(autouse=True)
def webhook(trial: Trial, process: list[dict[str, Any]]) -> Iterator[None]:
    """The webhook is called for the pods of this test only."""
    with registered(trial, process):
        yield


def device_requests(pod: Pod) -> dict[str, int]:
    """The requests of the stored pod without CPU and memory."""
    requests: dict[str, Any] = dict(pod.spec.containers[0].resources.requests)
    return {name: units(amount) for name, amount in requests.items() if "/" in name}


@pytest.mark.feature("DEV-1.combined-names")
@pytest.mark.case("DS-090", severity="critical")
def test_gpus_become_cores_and_memory(trial: Trial, expect: Expect) -> None:
    """`koordinator.sh/gpu: 200` is stored as 200 percent of cores and of memory, and two cards are allocated."""
    trial.add(node("n1").gpus("a10", 4))
    trial.submit(pod("a").gpus(2))

    a = expect.running("a")

    assert device_requests(a) == {GPU_CORE: 200, GPU_MEMORY_RATIO: 200, GPU_SHARED: 2}
    assert len({part.minor for part in devices_of(a)}) == 2


@pytest.mark.feature("DEV-1.combined-names")
@pytest.mark.case("DS-091", severity="normal")
def test_a_share_says_that_it_is_one(trial: Trial, expect: Expect) -> None:
    """A share of a card is stored with `gpu.shared: 1`, and that share of one card is allocated."""
    trial.add(node("n1").gpus("a10", 1))
    trial.submit(pod("a").gpu_share(50))

    a = expect.running("a")

    assert device_requests(a) == {GPU_CORE: 50, GPU_MEMORY_RATIO: 50, GPU_SHARED: 1}
    assert [units(part.resources[GPU_CORE]) for part in devices_of(a)] == [50]


@pytest.mark.feature("DEV-1.nvidia-com-gpu")
@pytest.mark.case("DS-092", severity="normal")
def test_the_spelling_of_nvidia_stays(trial: Trial, expect: Expect) -> None:
    """`nvidia.com/gpu` is not changed, and whole cards are allocated."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(pod("a").nvidia(1))

    a = expect.running("a")
    assert device_requests(a) == {NVIDIA_GPU: 1}
    assert len(parts(a)) == 1


@pytest.mark.feature("DEV-11.whole")
@pytest.mark.case(
    "DS-260", severity="critical", source="koordinator v1.7 release post: Ascend NPUs; spec DEV-R5, chapter 16"
)
def test_whole_npus_are_no_shares(trial: Trial, expect: Expect) -> None:
    """A request of two whole NPUs, by AI cores and memory ratio, is stored as it is, and two cards are allocated."""
    trial.add(node("n1").gpus("ascend-910b3", 2))
    request = {NPU_CORE: 40, GPU_MEMORY_RATIO: 200}
    trial.submit(pod("a").resources(dict(request)))
    a = expect.running("a")
    assert device_requests(a) == request
    assert len(devices_of(a)) == 2


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case("DS-093", severity="normal")
@pytest.mark.parametrize(
    ("request_", "why"),
    [
        pytest.param(
            {GPU_CORE: 50, GPU_SHARED: 1},
            "Forbidden: GPU memory and GPU memory ratio all is zero",
            id="cores-without-memory",
        ),
        pytest.param(
            {GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: 50},
            "Forbidden: declare GPU memory and GPU memory ratio at same time",
            id="memory-twice",
        ),
        pytest.param(
            {GPU_CORE: 75, GPU_MEMORY_RATIO: 100, GPU_SHARED: 2},
            'Invalid value: "75": the requested gpuCore must multiple of shared',
            id="cores-that-do-not-divide",
        ),
        pytest.param(
            {GPU_CORE: 100, GPU_MEMORY_RATIO: 75, GPU_SHARED: 2},
            'Invalid value: "75": the requested gpuMemoryRatio must multiple of shared',
            id="memory-that-does-not-divide",
        ),
        pytest.param(
            {NVIDIA_GPU: 1, GPU: 100},
            "Forbidden: Forbidden declare GPU and GPU share at same time",
            id="whole-and-shared",
        ),
    ],
)
def test_requests_that_make_no_sense(trial: Trial, request_: dict[str, Any], why: str) -> None:
    """The API server refuses the pod with the webhook's message."""
    with pytest.raises(ApiRefused) as refused:
        trial.submit(pod("a").resources(request_))

    denied = 'admission webhook "vpod.koordinator.sh" denied the request: pod.spec.containers[*].resources.requests'
    assert f"{denied}: {why}" in str(refused.value)


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case(
    "DS-171", severity="normal", source="spec DEV-R66; koordinator: pkg/webhook/pod/validating/verify_pod.go@v1.7.0"
)
def test_all_wrong_requests_are_named(trial: Trial) -> None:
    """Two containers have each a request that makes no sense, and a third one a right one: both reasons are named."""
    built = pod("a").resources({GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: 50})
    for name, amounts in (("b", {GPU_CORE: "50", GPU_SHARED: "1"}), ("c", {GPU: "50"})):
        resources = {"requests": amounts, "limits": amounts}
        built.manifest["spec"]["containers"].append({"name": name, "image": "x", "resources": resources})
    with pytest.raises(ApiRefused) as refused:
        trial.submit(built)

    why = ("declare GPU memory and GPU memory ratio at same time", "GPU memory and GPU memory ratio all is zero")
    assert [text for text in why if text not in str(refused.value)] == []


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case(
    "DS-172",
    severity="normal",
    source="spec DEV-R64; koordinator: pkg/webhook/pod/mutating/device_resource_spec.go@v1.7.0",
)
@pytest.mark.parametrize(("amount", "shared"), [(50, 1), (100, 1), (250, 1), (200, 2)])
def test_the_number_of_cards_of_a_request(trial: Trial, amount: int, shared: int) -> None:
    """A part of a card, a card, two cards and what is no number of cards are stored with the number of cards over which
    they are split: in the first container and in the second, not in an init container."""
    built = pod("a").resources({GPU: amount})
    spec = built.manifest["spec"]
    resources = {part: {GPU: str(amount)} for part in ("requests", "limits")}
    spec["containers"].append({"name": "second", "image": "x", "resources": resources})
    spec["initContainers"] = [{"name": "first", "image": "x", "resources": resources}]
    trial.submit(built)

    stored = orjson.loads(trial.call("GET", trial.path("Pod", "a")).body)["spec"]
    expected = {GPU_CORE: amount, GPU_MEMORY_RATIO: amount, GPU_SHARED: shared}
    containers = {each["name"]: each["resources"] for each in (*stored["containers"], *stored["initContainers"])}
    for name, amounts in containers.items():
        for part in ("requests", "limits"):
            own = {key: units(value) for key, value in amounts[part].items() if "/" in key}
            assert own == ({GPU: amount} if name == "first" else expected), f"{part} of the container {name}"


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case(
    "DS-190", severity="normal", source="spec DEV-R66; koordinator: pkg/webhook/pod/validating/verify_pod.go@v1.7.0"
)
def test_requests_that_are_checked_as_they_are_written(trial: Trial) -> None:
    """Only the checks are registered: a part of a card and two cards are stored as they are, nothing and a card and a
    half are refused."""
    assert trial.call("DELETE", f"{CONFIGURATIONS}/mutatingwebhookconfigurations/{trial.name}").ok
    why = {0: "must be greater than zero", 50: "", 100: "", 150: "must be percentage of 100", 200: ""}
    for amount, text in why.items():
        manifest = pod(f"of-{amount}").resources({GPU: amount}).manifest
        answer = trial.call("POST", f"/api/v1/namespaces/{trial.name}/pods", manifest)
        if text:
            message = orjson.loads(answer.body).get("message", "")
            assert f'Invalid value: "{amount}": the requested GPU {text}' in message
        else:
            assert answer.ok, f"expected {GPU}: {amount} to be stored, found {answer.body.decode()}"
            assert device_requests(trial.pod(f"of-{amount}")) == {GPU: amount}


@pytest.mark.feature("DEV-1.combined-names")
@pytest.mark.case(
    "DS-261",
    severity="normal",
    source="spec DEV-R64, DEV-R66, E18; koordinator: pkg/webhook/pod/mutating/device_resource_spec.go@v1.7.0",
)
@pytest.mark.parametrize(
    ("request_", "shared"),
    [
        pytest.param({GPU_CORE: 200, GPU_MEMORY: "8Gi"}, 2, id="cores-of-two-cards-and-bytes"),
        pytest.param({GPU_CORE: 200, GPU_MEMORY_RATIO: 50}, 1, id="the-ratio-decides"),
        pytest.param({GPU_CORE: 100, GPU_MEMORY_RATIO: 200}, 2, id="the-ratio-of-two-cards"),
        pytest.param({GPU_MEMORY: "8Gi"}, 1, id="bytes-alone"),
        pytest.param({GPU_SHARED: 4, GPU_MEMORY_RATIO: 200}, 4, id="the-pod-says-how-many"),
        pytest.param({GPU_SHARED: 1, NPU_CORE: 10}, 1, id="npus-need-no-memory"),
    ],
)
def test_how_many_cards_a_stored_request_names(trial: Trial, request_: dict[str, Any], shared: int) -> None:
    """The number of cards is that of the memory ratio, else that of the cores; one that the pod gives is kept."""
    trial.submit(pod("a").resources(dict(request_)))
    expected = {name: units(amount) for name, amount in request_.items()} | {GPU_SHARED: shared}
    assert device_requests(trial.pod("a")) == expected
