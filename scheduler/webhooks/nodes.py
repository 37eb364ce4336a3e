"""Mutation of nodes: allocatable amounts multiplied by the node's amplification ratios (NUMA-R54, QOS-N-1, N-2).

Follows Koordinator `pkg/webhook/node/plugins/resourceamplification`. The amounts before amplification are learned from
any client that changes allocatable CPU or memory, as the kubelet does.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.scheduler.api.integers import MAX_INT64
from seatrial.scheduler.api.numa import AMPLIFICATION_RATIO
from seatrial.scheduler.api.quantity import CPU, MEMORY, Quantity, QuantityError, exact
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE
from seatrial.scheduler.api.wire import decode_as

Manifest = Mapping[str, Any]
Operation = dict[str, Any]  # of a JSON patch
_AMPLIFIED = (CPU, MEMORY)


class NodeRefusal(Exception):
    """The update is refused; the text has the reason."""


def patch_of_node(new: Manifest, old: Manifest) -> list[Operation]:
    """The JSON patch of an update of a node or its status.

    Raises:
        NodeRefusal: an annotation or a quantity cannot be parsed.
    """
    metadata = new.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(AMPLIFICATION_RATIO):
        if RAW_ALLOCATABLE not in annotations:
            return []
        return [{"op": "remove", "path": _pointer("/metadata/annotations", RAW_ALLOCATABLE)}]
    ratios = _decode(annotations, AMPLIFICATION_RATIO, dict[str, float])
    allocatable = dict((new.get("status") or {}).get("allocatable") or {})
    before = (old.get("status") or {}).get("allocatable") or {}
    patch: list[Operation] = []
    raw = (
        _decode(annotations, RAW_ALLOCATABLE, dict[str, str | int | float]) if RAW_ALLOCATABLE in annotations else None
    )
    if raw is None or any(_differ(allocatable.get(name), before.get(name)) for name in _AMPLIFIED):
        raw = {name: allocatable[name] for name in _AMPLIFIED if name in allocatable}
        text = json.dumps(raw, separators=(",", ":"))
        if text != annotations.get(RAW_ALLOCATABLE):
            patch.append({"op": "add", "path": _pointer("/metadata/annotations", RAW_ALLOCATABLE), "value": text})
    for name in _AMPLIFIED:
        ratio = ratios.get(name, 1.0)
        if ratio <= 1 or name not in raw:
            continue
        value = _milli_text(int(min(float(_exact(name, raw[name]) * 1000) * ratio, MAX_INT64)))
        if _differ(allocatable.get(name), value):
            patch.append({"op": "add", "path": f"/status/allocatable/{name}", "value": value})
    return patch


def _milli_text(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _differ(before: Quantity | None, other: Quantity | None) -> bool:
    if before is None or other is None:
        return before is not other
    return _exact("", before) != _exact("", other)


def _exact(name: str, quantity: Quantity) -> Any:
    try:
        return exact(quantity)
    except QuantityError as error:
        raise NodeRefusal(f"allocatable {name}: {error}") from error


def _decode(annotations: Mapping[str, str], key: str, kind: Any) -> Any:
    try:
        return decode_as(annotations[key], kind)
    except msgspec.DecodeError as error:
        raise NodeRefusal(f"annotation {key}: expected amounts by resource as JSON: {error}") from error


def _pointer(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
