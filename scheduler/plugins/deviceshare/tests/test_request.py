"""Device requests and their errors: DEV-E1 to DEV-E3."""

import pytest

from seatrial.scheduler.api.device import (
    AMD_GPU,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RDMA,
)
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.plugins.deviceshare.request import (
    DeviceRequest,
    InvalidRequestError,
    split_gpu,
    unified,
    validate,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({NVIDIA_GPU: 2}, id="nvidia-cards"),
        pytest.param({GPU: 200}, id="koordinator-cards"),
        pytest.param({GPU: 50}, id="half-a-card"),
        pytest.param({GPU_CORE: 200, GPU_MEMORY: 64 * GIB}, id="core-200-with-bytes-though-it-never-fits"),
        pytest.param({GPU_MEMORY_RATIO: 200}, id="two-cards-by-memory"),
        pytest.param({GPU_SHARED: 2, GPU_MEMORY_RATIO: 200}, id="two-whole-cards-as-shares"),
        pytest.param({GPU_SHARED: 2, GPU_MEMORY_RATIO: 100}, id="half-of-each-of-two"),
        pytest.param({GPU_SHARED: 2, GPU_CORE: 100, GPU_MEMORY: 64 * GIB}, id="shares-by-bytes"),
        pytest.param({NPU_CORE: 40, GPU_MEMORY_RATIO: 200}, id="two-npus"),
        pytest.param({GPU_SHARED: 1, NPU_CORE: 10, NPU_CPU: 3, GPU_MEMORY: 16 * GIB}, id="a-virtual-npu"),
        pytest.param({RDMA: 50}, id="half-a-nic"),
        pytest.param({FPGA: 50}, id="half-an-fpga"),
        pytest.param({HYGON_DCU: 2}, id="dcus"),
        pytest.param({AMD_GPU: 2}, id="amd-gpus"),
    ],
)
def test_valid(request_: Amounts) -> None:
    validate(request_)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        pytest.param({GPU: 101}, "invalid resource unit koordinator.sh/gpu: 101", id="gpu-101"),
        pytest.param({RDMA: 201}, "invalid resource unit koordinator.sh/rdma: 201", id="rdma-201"),
        pytest.param({FPGA: 201}, "invalid resource unit koordinator.sh/fpga: 201", id="fpga-201"),
        pytest.param(
            {GPU_CORE: 100, GPU_MEMORY_RATIO: 101},
            "invalid resource device requests: [koordinator.sh/gpu-core koordinator.sh/gpu-memory-ratio]",
            id="ratio-101",
        ),
        pytest.param(
            {GPU_SHARED: 1, GPU_MEMORY_RATIO: 101},
            "invalid resource device requests: [koordinator.sh/gpu-memory-ratio koordinator.sh/gpu.shared]",
            id="more-than-one-card-in-one-share",
        ),
        pytest.param({GPU_SHARED: 2, GPU_MEMORY_RATIO: 101}, "invalid resource device requests", id="uneven-shares"),
        pytest.param(
            {GPU_SHARED: 1, GPU_CORE: 101, GPU_MEMORY: GIB}, "invalid resource device requests", id="core-101"
        ),
        pytest.param({NPU_CORE: 40, GPU_MEMORY: 128 * GIB}, "invalid resource device requests", id="npu-by-bytes"),
        pytest.param(
            {GPU_SHARED: 1, NPU_CORE: 10, GPU_MEMORY: 16 * GIB},
            "invalid resource device requests",
            id="vnpu-without-cpu",
        ),
        pytest.param(
            {GPU_SHARED: 2, NPU_CORE: 20, NPU_CPU: 6, NPU_DVPP: 200, GPU_MEMORY: 32 * GIB},
            "invalid resource device requests",
            id="two-vnpus",
        ),
        pytest.param(
            {NVIDIA_GPU: 1, GPU: 100},
            "invalid resource device requests: [koordinator.sh/gpu nvidia.com/gpu]",
            id="two-spellings-at-once",
        ),
        pytest.param({GPU_CORE: 50}, "invalid resource device requests: [koordinator.sh/gpu-core]", id="core-alone"),
        pytest.param({GPU_MEMORY: GIB, GPU_MEMORY_RATIO: 50}, "invalid resource device requests", id="memory-twice"),
        pytest.param({}, "pod request should not be empty", id="nothing"),
    ],
)
def test_invalid(request_: Amounts, why: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        validate(request_)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        ({NVIDIA_GPU: 2}, {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}),
        ({HYGON_DCU: 2}, {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}),
        ({GPU: 50}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}),
        ({GPU_CORE: 5, GPU_MEMORY: GIB}, {GPU_CORE: 5, GPU_MEMORY: GIB}),
    ],
)
def test_all_spellings_give_the_same_request(request_: Amounts, want: Amounts) -> None:
    assert unified(request_) == want


@pytest.mark.parametrize(
    ("request_", "cards", "each", "shared"),
    [
        ({GPU_SHARED: 2, GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, 2, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, True),
        ({GPU_SHARED: 1, GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, 1, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, True),
        ({GPU_CORE: 200, GPU_MEMORY_RATIO: 200}, 2, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, False),
        ({GPU_CORE: 100, GPU_MEMORY: 1024}, 1, {GPU_CORE: 100, GPU_MEMORY: 1024}, True),
        ({NPU_CORE: 16, GPU_MEMORY_RATIO: 200}, 2, {NPU_CORE: 8, GPU_MEMORY_RATIO: 100}, False),
        (
            {GPU_SHARED: 1, GPU_MEMORY: 3 * GIB, NPU_CORE: 1, NPU_CPU: 1, NPU_DVPP: 12},
            1,
            {GPU_MEMORY: 3 * GIB, NPU_CORE: 1, NPU_CPU: 1, NPU_DVPP: 12},
            True,
        ),
        ({GPU_CORE: 50, GPU_MEMORY_RATIO: 100}, 1, {GPU_CORE: 50, GPU_MEMORY_RATIO: 100}, False),
    ],
)
def test_split_over_cards(request_: Amounts, cards: int, each: Amounts, shared: bool) -> None:
    split = split_gpu(request_)
    assert (split.count, split.amounts, split.shared) == (cards, each, shared)


def test_several_types_in_one_request() -> None:
    request = DeviceRequest.of({GPU: 100, RDMA: 200, "cpu": 4000})
    assert request is not None
    assert [(part.type, part.count, part.amounts) for part in request.types] == [
        ("gpu", 1, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}),
        ("rdma", 2, {RDMA: 100}),
    ]


def test_a_request_without_amounts_is_none() -> None:
    assert DeviceRequest.of({"cpu": 1000, GPU: 0}) is None
