"""Mutation and validation of device requests in pods.

Follows Koordinator's `pkg/webhook/pod/mutating/device_resource_spec.go` and `pkg/webhook/pod/validating` (DEV-R64 to
DEV-R66). Pods are manifests, as in a review; arguments are not changed.
"""

from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE, NVIDIA_GPU
from seatrial.scheduler.api.quantity import Quantity, QuantityError, canonical, units

Manifest = Mapping[str, Any]
Resources = dict[str, Quantity]
Operation = dict[str, Any]  # of a JSON patch

_SHARE = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)
_NAMING = frozenset({GPU, *_SHARE, GPU_SHARED})
_FIELD = "pod.spec.containers[*].resources.requests"
_CARD = 100  # percent


def spelled_out(resources: Mapping[str, Quantity]) -> Resources:
    """`koordinator.sh/gpu` as cores and memory, and `gpu.shared` wherever a GPU is requested (DEV-R64).

    Not with NPU cores and a memory ratio, which are whole NPUs: with `gpu.shared` the scheduler refuses them (DEV-R5).

    Raises:
        QuantityError: an amount is not a quantity.
    """
    result = dict(resources)
    if not _NAMING & result.keys():
        return result
    whole = result.pop(GPU, None)
    if whole is not None:
        result[GPU_CORE] = result[GPU_MEMORY_RATIO] = whole
    if GPU_SHARED not in result and not {NPU_CORE, GPU_MEMORY_RATIO} <= result.keys():
        result[GPU_SHARED] = str(_cards(result))
    return result


def _cards(resources: Mapping[str, Quantity]) -> int:
    """The number of cards over which the request is split, if the pod does not give it."""
    ratio, core = units(resources.get(GPU_MEMORY_RATIO, 0)), units(resources.get(GPU_CORE, 0))
    percent = ratio or core
    return percent // _CARD if percent > _CARD and percent % _CARD == 0 else 1


def patch_of(pod: Manifest) -> list[Operation]:
    """The JSON patch that expands the containers' device requests; init containers are unchanged.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    patch: list[Operation] = []
    for index, container in enumerate((pod.get("spec") or {}).get("containers") or ()):
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            before = resources.get(part) or {}
            after = spelled_out(before)
            if after != before:
                path = f"/spec/containers/{index}/resources/{part}"
                patch.append({"op": "replace", "path": path, "value": after})
    return patch


def problems(pod: Manifest) -> list[str]:
    """Why the pod's device requests are refused, with Koordinator's text; empty if they are valid (DEV-R66)."""
    names: list[str] = []
    for container in (pod.get("spec") or {}).get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        try:
            names += _problems(requests)
        except QuantityError as error:
            names.append(_invalid(error.text, str(error)))
    return list(dict.fromkeys(names))


def _problems(requests: Mapping[str, Quantity]) -> list[str]:
    share = [name for name in (*_SHARE, GPU_SHARED) if name in requests]
    whole = [name for name in (GPU, NVIDIA_GPU) if name in requests]
    if whole and share:
        return [_forbidden("Forbidden declare GPU and GPU share at same time")]
    results = []
    if GPU in requests:
        results += _whole_problems(requests[GPU])
    if share and units(requests.get(NPU_CORE, 0)) <= 0:
        results += _share_problems(requests)
    return results


def _whole_problems(quantity: Quantity) -> list[str]:
    amount = units(quantity)
    if amount <= 0:
        return [_invalid(canonical(quantity), "the requested GPU must be greater than zero")]
    if amount > _CARD and amount % _CARD:
        return [_invalid(canonical(quantity), "the requested GPU must be percentage of 100")]
    return []


def _share_problems(requests: Mapping[str, Quantity]) -> list[str]:
    core, memory, ratio = (units(requests.get(name, 0)) for name in _SHARE)
    if not memory and not ratio:
        return [_forbidden("GPU memory and GPU memory ratio all is zero")]
    if memory and ratio:
        return [_forbidden("declare GPU memory and GPU memory ratio at same time")]
    shared = units(requests.get(GPU_SHARED, 0))
    if shared <= 0:
        return []
    share_problems = []
    if core % shared:
        share_problems.append(_invalid(canonical(requests[GPU_CORE]), "the requested gpuCore must multiple of shared"))
    if ratio % shared:
        quantity = canonical(requests[GPU_MEMORY_RATIO])
        share_problems.append(_invalid(quantity, "the requested gpuMemoryRatio must multiple of shared"))
    return share_problems


def _forbidden(why: str) -> str:
    return f"{_FIELD}: Forbidden: {why}"


def _invalid(quantity: str, why: str) -> str:
    return f'{_FIELD}: Invalid value: "{quantity}": {why}'
