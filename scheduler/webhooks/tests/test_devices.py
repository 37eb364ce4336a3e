"""Device requests as the pod webhook changes and refuses them."""

from typing import Any

import pytest

from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE, NVIDIA_GPU
from seatrial.scheduler.webhooks.devices import patch_of, problems, spelled_out

FIELD = "pod.spec.containers[*].resources.requests"


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        pytest.param(
            {GPU_CORE: "100", GPU_MEMORY_RATIO: "50"},
            {GPU_CORE: "100", GPU_MEMORY_RATIO: "50", GPU_SHARED: "1"},
            id="e18-part-of-a-card",
        ),
        pytest.param(
            {GPU_CORE: "100", GPU_MEMORY_RATIO: "200"},
            {GPU_CORE: "100", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"},
            id="e18-the-memory-of-two-cards",
        ),
        pytest.param(
            {GPU: "200"}, {GPU_CORE: "200", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"}, id="e18-two-whole-cards"
        ),
        pytest.param({GPU: "100"}, {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_SHARED: "1"}, id="one-whole-card"),
        pytest.param(
            {GPU_CORE: "200", GPU_MEMORY: "8Gi"},
            {GPU_CORE: "200", GPU_MEMORY: "8Gi", GPU_SHARED: "2"},
            id="the-cores-of-two-cards-without-a-ratio",
        ),
        pytest.param(
            {GPU_CORE: "200", GPU_MEMORY_RATIO: "50"},
            {GPU_CORE: "200", GPU_MEMORY_RATIO: "50", GPU_SHARED: "1"},
            id="the-ratio-decides-where-there-is-one",
        ),
        pytest.param({GPU_MEMORY_RATIO: "150"}, {GPU_MEMORY_RATIO: "150", GPU_SHARED: "1"}, id="no-multiple-of-a-card"),
        pytest.param({GPU_MEMORY: "8Gi"}, {GPU_MEMORY: "8Gi", GPU_SHARED: "1"}, id="memory-alone"),
        pytest.param(
            {GPU_MEMORY_RATIO: "200", GPU_SHARED: "4"},
            {GPU_MEMORY_RATIO: "200", GPU_SHARED: "4"},
            id="who-says-how-many-is-believed",
        ),
        pytest.param(
            {NPU_CORE: "40", GPU_MEMORY_RATIO: "200"}, {NPU_CORE: "40", GPU_MEMORY_RATIO: "200"}, id="whole-npus-stay"
        ),
        pytest.param({NVIDIA_GPU: "2"}, {NVIDIA_GPU: "2"}, id="the-spelling-of-nvidia-stays"),
        pytest.param({"cpu": "2"}, {"cpu": "2"}, id="no-device-at-all"),
    ],
)
def test_spelling(amounts: dict[str, Any], expected: dict[str, Any]) -> None:
    assert spelled_out(amounts) == expected


def test_only_containers_with_gpus_are_patched() -> None:
    resources = {"requests": {GPU: "100"}, "limits": {GPU: "100"}}
    after = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_SHARED: "1"}
    spec = {
        "initContainers": [{"name": "i", "resources": resources}],
        "containers": [{"name": "a"}, {"name": "b", "resources": resources}],
    }

    assert patch_of({"spec": spec}) == [
        {"op": "replace", "path": "/spec/containers/1/resources/limits", "value": after},
        {"op": "replace", "path": "/spec/containers/1/resources/requests", "value": after},
    ]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({GPU: "100"}, [], id="a-whole-card"),
        pytest.param({GPU: "50"}, [], id="half-a-card"),
        pytest.param({GPU_CORE: "50", GPU_MEMORY_RATIO: "50", GPU_SHARED: "1"}, [], id="a-share"),
        pytest.param({NVIDIA_GPU: "2"}, [], id="the-spelling-of-nvidia"),
        pytest.param(
            {GPU: "100", GPU_CORE: "100"},
            ["Forbidden: Forbidden declare GPU and GPU share at same time"],
            id="whole-and-shared",
        ),
        pytest.param(
            {NVIDIA_GPU: "1", GPU_MEMORY_RATIO: "50"},
            ["Forbidden: Forbidden declare GPU and GPU share at same time"],
            id="nvidias-and-shared",
        ),
        pytest.param(
            {GPU_CORE: "50", GPU_SHARED: "1"},
            ["Forbidden: GPU memory and GPU memory ratio all is zero"],
            id="cores-without-memory",
        ),
        pytest.param(
            {GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: "50"},
            ["Forbidden: declare GPU memory and GPU memory ratio at same time"],
            id="memory-twice",
        ),
        pytest.param({GPU: "0"}, ['Invalid value: "0": the requested GPU must be greater than zero'], id="no-card"),
        pytest.param(
            {GPU: "150"}, ['Invalid value: "150": the requested GPU must be percentage of 100'], id="a-card-and-a-half"
        ),
        pytest.param(
            {GPU_CORE: "101", GPU_MEMORY_RATIO: "100", GPU_SHARED: "2"},
            ['Invalid value: "101": the requested gpuCore must multiple of shared'],
            id="cores-that-do-not-divide",
        ),
        pytest.param(
            {GPU_MEMORY_RATIO: "101", GPU_SHARED: "2"},
            ['Invalid value: "101": the requested gpuMemoryRatio must multiple of shared'],
            id="memory-that-does-not-divide",
        ),
        pytest.param({NPU_CORE: "4", GPU_SHARED: "1"}, [], id="npus-need-no-memory"),
    ],
)
def test_refusals(requests: dict[str, Any], expected: list[str]) -> None:
    pod = {"spec": {"containers": [{"name": "a", "resources": {"requests": requests}}]}}

    assert problems(pod) == [f"{FIELD}: {item}" for item in expected]


def test_each_container_is_checked() -> None:
    containers = [{"resources": {"requests": {GPU: "100"}}}, {"resources": {"requests": {GPU: "many"}}}, {}]

    assert [text.partition(": expected")[0] for text in problems({"spec": {"containers": containers}})] == [
        text.partition(": expected")[0] for text in problems({"spec": {"containers": containers[1:2]}})
    ]
    assert len(problems({"spec": {"containers": containers}})) == 1


def test_an_invalid_quantity_is_named() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {GPU: "many"}}}]}}

    assert problems(pod)[0].startswith(f'{FIELD}: Invalid value: "many": ')
