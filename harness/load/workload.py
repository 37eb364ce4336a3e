"""The pods of a load: a mix of shapes, by name or from a file, from which the shape of each pod is drawn.

shapes:                                  # a mix file
  - name: half-a-card
    weight: 3                            # three times as likely as a shape of weight 1, which is the default
    requests: {cpu: 1, memory: 2Gi, koordinator.sh/gpu-core: 50, koordinator.sh/gpu-memory-ratio: 50}
    labels: {koordinator.sh/gpu-isolation-provider: HAMi-core}      # optional
    priorityClass: batch                                            # optional
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from seatrial.harness.apiserver.quantities import PODS, QuantityError, amount, units
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api import device
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.api.yaml_files import load_yaml

CARDS = "cards"  # name of all kinds of cards in `crowding`
_WHOLE_CARDS = (device.NVIDIA_GPU, device.AMD_GPU, device.HYGON_DCU)
_PERCENT_OF_CARDS = (device.GPU, device.GPU_CORE, device.GPU_MEMORY_RATIO)


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Labels, requests and priority class of pods of one kind."""

    name: str
    requests: dict[str, str | int] = {}
    weight: float = 1
    labels: dict[str, str] = {}
    priority_class: str = ""

    def pod(self, name: str) -> PodBuilder:
        """A pod of this shape; requests and limits are the same."""
        built = pod(name).resources(dict(self.requests))
        for key, value in self.labels.items():
            built.label(key, value)
        return built.priority_class(self.priority_class) if self.priority_class else built


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """Shapes with their weights."""

    name: str
    shapes: tuple[Shape, ...]

    def draw(self, seed: int) -> Iterator[Shape]:
        """An endless series of shapes, drawn by weight; equal for equal seeds."""
        rng = random.Random(seed)  # noqa: S311 not a secret
        weights = [shape.weight for shape in self.shapes]
        while True:
            yield from rng.choices(self.shapes, weights, k=256)


def _shape(name: str, weight: float, **more: Any) -> Shape:
    return Shape(name, {"cpu": "500m", "memory": "1Gi", **more.get("devices", {})}, weight)


def _share(percent: int) -> dict[str, int]:
    return {device.GPU_CORE: percent, device.GPU_MEMORY_RATIO: percent}


_WHOLE = (
    _shape("whole", 3, devices={device.GPU: 100}),
    _shape("whole-2", 1, devices={device.GPU: 200}),
    _shape("nvidia", 2, devices={device.NVIDIA_GPU: 1}),
)
_SHARED = tuple(_shape(f"share-{percent}", 2, devices=_share(percent)) for percent in (10, 25, 50))
_BYTES = tuple(
    _shape(f"bytes-{gib}g", 2, devices={device.GPU_CORE: 10, device.GPU_MEMORY: f"{gib}Gi"}) for gib in (2, 4, 8)
)
_CPU = (_shape("cpu-half", 2), Shape("cpu-2", {"cpu": 2, "memory": "4Gi"}, 1))

MIXES: dict[str, tuple[Shape, ...]] = {
    "mixed": (*_WHOLE, *_SHARED, *_BYTES, *_CPU),
    "whole": _WHOLE,
    "shared": _SHARED,
    "bytes": _BYTES,
    "cpu": _CPU,
}


def mix(name: str) -> Mix:
    """A mix by its name, or from the YAML file at that path.

    Raises:
        UsageError: neither exists, or the file has a mistake.
    """
    if name in MIXES:
        return Mix(name, MIXES[name])
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"no mix {name!r}: expected {', '.join(MIXES)}, or the path of a YAML file")
    try:
        content = msgspec.convert(load_yaml(path.read_bytes()), _File)
    except OSError as error:
        raise UsageError(f"mix {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"mix {path}: {error}") from error
    _check(path, content.shapes)
    return Mix(path.stem, content.shapes)


def _check(path: Path, shapes: tuple[Shape, ...]) -> None:
    if not shapes:
        raise UsageError(f"mix {path}: shapes: expected at least one, found none")
    for shape in shapes:
        if not shape.weight > 0:
            raise UsageError(f"mix {path}: shape {shape.name!r}: weight: expected above 0, found {shape.weight:g}")
        for name, quantity in shape.requests.items():
            try:
                amount(name, quantity)
            except QuantityError as error:
                raise UsageError(f"mix {path}: shape {shape.name!r}: requests: {name}: {error}") from error


def crowding(demand: Mix, alive: float, allocatable: Iterable[ResourceList]) -> dict[str, float]:
    """The requested part of the nodes' resources, by resource, for a mean of `alive` pods at a time.

    `allocatable` is `status.allocatable` of each node. Above 1 the cluster fills, and pods wait for room. A resource
    that no node offers gives infinity. Cards of all resource names are also counted together, as resource "cards".
    """
    offered: dict[str, float] = {}
    for node in allocatable:
        _add(offered, _counted(node), 1.0)
    amounts: dict[str, float] = {}
    total = sum(shape.weight for shape in demand.shapes)
    for shape in demand.shapes:
        _add(amounts, {**_counted(shape.requests), PODS: 1}, alive * shape.weight / total)
    return {
        name: amount / offered[name] if offered.get(name) else float("inf")
        for name, amount in amounts.items()
        if amount
    }


def _counted(resources: Mapping[str, str | int | float]) -> dict[str, float]:
    counted: dict[str, float] = {name: amount(name, quantity) for name, quantity in resources.items()}
    cards = [units(resources[name]) for name in _WHOLE_CARDS if name in resources]
    percent = [units(resources[name]) for name in _PERCENT_OF_CARDS if name in resources]
    return {**counted, CARDS: max([*cards, *(value / 100 for value in percent)], default=0)}


def _add(sums: dict[str, float], more: dict[str, float], times: float) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0.0) + value * times
