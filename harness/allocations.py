"""Devices that a scheduler promised a pod, from Koordinator's annotation: the harness' own reading.

The types are those of the API vocabulary; what the annotation must look like is checked here.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, DeviceAllocation
from seatrial.scheduler.api.wire import from_plain

Allocations = dict[str, list[DeviceAllocation]]  # by device type


def device_allocations(pod: Pod) -> Allocations:
    """A pod's devices, by type; empty without the annotation.

    Raises:
        msgspec.DecodeError: the annotation does not have Koordinator's format.
    """
    return parse_allocations(pod.metadata.annotations)


def parse_allocations(annotations: Mapping[str, str]) -> Allocations:
    """The same, from the pod's annotations.

    Raises:
        msgspec.DecodeError: the annotation does not have Koordinator's format.
    """
    content = annotations.get(DEVICE_ALLOCATED)
    if not content:
        return {}
    document = msgspec.json.decode(content)
    if not isinstance(document, dict):
        raise msgspec.ValidationError(f"annotation {DEVICE_ALLOCATED}: expected an object, found {content!r}")
    return {kind: [_allocation(item) for item in items or ()] for kind, items in document.items()}


def _allocation(item: Any) -> DeviceAllocation:
    if not isinstance(item, dict):
        raise msgspec.ValidationError(f"annotation {DEVICE_ALLOCATED}: expected objects, found {item!r}")
    return from_plain(item, DeviceAllocation)
