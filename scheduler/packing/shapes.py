"""Shapes of pods, nodes as columns, and the demand that is expected."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CARD = 1000
"""A whole card, in thousandths."""

COVERED = 0.95
"""The most frequent shapes that make up this share of all pods are the typical ones."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What a pod requests; `models` are the GPU models that it accepts, sorted, none meaning any."""

    cpu_milli: int
    memory: int
    gpus: int
    gpu_milli: int  # of each card
    models: tuple[str, ...] = ()

    @property
    def gpu_request(self) -> int:
        """Thousandths of a GPU over all cards."""
        return self.gpus * self.gpu_milli

    @property
    def shares(self) -> bool:
        """It requests a part of one card."""
        return self.gpus == 1 and self.gpu_milli < CARD

    def runs_on(self, model: str) -> bool:
        """It accepts GPUs of that model."""
        return not self.models or model in self.models

    def needs_as_much_as(self, other: "Shape") -> bool:
        """Every node that can run this shape can run `other`."""
        return (
            self.gpus >= other.gpus
            and self.gpu_milli >= other.gpu_milli
            and self.cpu_milli >= other.cpu_milli
            and self.memory >= other.memory
            and (not other.models or (bool(self.models) and set(self.models) <= set(other.models)))
        )


class Shapes:
    """The requests of some shapes as columns [shape]. Shapes that share a card come first."""

    def __init__(self, shapes: Sequence[Shape], models: Sequence[str]) -> None:
        """`shapes` must have those that share a card first (`ordered`); `models`: all GPU models of the nodes."""
        self.every = shapes
        self._models = models
        self.shared = sum(shape.shares for shape in shapes)
        """Number of shapes that request a part of one card."""
        self.cpu: Ints = np.array([shape.cpu_milli for shape in shapes], np.int64)
        self.memory: Ints = np.array([shape.memory for shape in shapes], np.int64)
        self.request: Ints = np.array([shape.gpu_request for shape in shapes], np.int64)
        self.gpus: Ints = np.array([shape.gpus for shape in shapes], np.int64)
        self.whole: Ints = np.array([0 if shape.shares else shape.gpus for shape in shapes], np.int64)
        """Number of free cards that a shape takes; 0 for one without GPU or with a part of one."""
        self.part: Ints = np.array([shape.gpu_milli if shape.shares else 0 for shape in shapes], np.int64)
        """The part of one card that a shape takes; 0 for one without GPU or with whole cards."""

    @cached_property
    def accepts(self) -> Flags:
        """[model, shape]: the shape may run on the model."""
        accepts = np.array([[shape.runs_on(model) for shape in self.every] for model in self._models], np.bool_)
        return accepts.reshape(len(self._models), len(self.every))

    def __len__(self) -> int:
        return len(self.every)


def ordered(shapes: Iterable[Shape]) -> list[Shape]:
    """Distinct shapes in the order that `Shapes` needs."""
    return sorted(set(shapes), key=lambda shape: (not shape.shares, shape))


@dataclass(frozen=True, slots=True)
class NodeStates:
    """What is left on some nodes; an array each.

    `model` [node]: index of the GPU model. `cpu`, `memory` [node]: may be negative. `cards` [node, card]: what is left
    on each card; a node with fewer cards than the widest is filled up with cards that have nothing left.
    """

    model: Ints
    cpu: Ints
    memory: Ints
    cards: Ints

    @property
    def free(self) -> Ints:
        """The number of wholly free cards, [node]."""
        free: Ints = (self.cards == CARD).sum(axis=1)
        return free


@dataclass(frozen=True, slots=True)
class Typical:
    """A typical shape (its memory is 0: it does not count) and its share of all typical pods."""

    shape: Shape
    weight: float


def typical_pods(demand: Mapping[Shape, int], covered: float = COVERED) -> list[Typical]:
    """The most frequent shapes, pods without GPU included, until they make up `covered` of all; weights sum to 1.

    `demand`: number of pods by shape. Of equally frequent shapes the larger comes first: CPU, then the part of a card,
    then the number of cards. Definition: "Beware of Fragmentation" (USENIX ATC '23), section 3.
    """
    counts: Counter[Shape] = Counter()
    for shape, count in demand.items():
        counts[Shape(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli, shape.models)] += count
    ranked = sorted(
        counts.items(),
        key=lambda item: (item[1], item[0].cpu_milli, item[0].gpu_milli, item[0].gpus, item[0].models),
        reverse=True,
    )
    amount = covered * counts.total()
    chosen: list[tuple[Shape, int]] = []
    seen = 0
    for shape, count in ranked:
        if seen >= amount:
            break
        chosen.append((shape, count))
        seen += count
    return [Typical(shape, count / seen) for shape, count in chosen]
