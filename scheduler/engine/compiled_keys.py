"""The keys of a node for all classes in one call of the compiled kernel; the numbers are those of `ScoreMatrix._exact`.

Plugins state their arithmetic as a `KernelPart`. Results of plugins that do not are kept by node signature, as without
the kernel, and handed over. Nothing is kept by signature for the others: computing is cheaper than looking up.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from seatrial.scheduler.cache.columns import TIE_BITS, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import CPU_COLUMN, MEMORY_COLUMN
from seatrial.scheduler.engine.signatures import Remembered, SignatureCache
from seatrial.scheduler.framework.kernel_parts import IN_PYTHON, ClassAxis, KernelPart, PartKind
from seatrial.scheduler.packing.kernel import kernel

RAISED, OPENED = 1, 2  # what `update` returns: a raw score rose above the largest; a class finds the node feasible now
_SUMMED = (PartKind.ARRAY, PartKind.AMOUNTS, PartKind.CARDS)  # their numbers are added without a weight


class CompiledKeys:
    """The parts of all plugins for the classes of one plan."""

    def __init__(self, keys: Any, arguments: list[Callable[[NodeInfo], object] | None]) -> None:
        self._update = keys.update
        self._none: list[object] = [None] * len(arguments)
        self._arguments = [(place, argument) for place, argument in enumerate(arguments) if argument is not None]

    @staticmethod
    def of(
        signatures: SignatureCache,
        *,
        base: Ints,
        key: Ints,
        revised: list[Ints],
        normalized: list[tuple[Ints, Ints, Ints]],
    ) -> "CompiledKeys | None":
        """For the arrays of a score matrix; None without a kernel, or where it lacks a plugin's normalised score.

        `normalized`: the arrays `highest`, divisor and `raw` of each normalised score.
        """
        module = kernel()
        if module is None:
            return None
        room = len(key)
        parts: list[KernelPart] = []
        made: list[Any] = []

        def add(part: KernelPart, weight: int, classes: Ints, targets: tuple[Ints, ...]) -> None:
            factor = np.zeros(room, np.int64)
            factor[classes] = weight << TIE_BITS
            arrays = part.arrays if part.kind in _SUMMED else (*part.arrays, factor)
            parts.append(part)
            made.append(module.Part(int(part.kind), (*arrays, *targets), part.numbers, part.names))

        for plugin, kept in signatures.filters:
            add(
                plugin.kernel_filter(kept.stacked, ClassAxis(kept.classes, room)) or _looked_up(kept),
                0,
                kept.classes,
                (),
            )
        for score, weight, kept, number in signatures.scores:
            part = score.kernel_score(kept.stacked, ClassAxis(kept.classes, room)) or _looked_up(kept)
            add(part, weight, kept.classes, () if number is None else (revised[number],))
        for score, weight, raw in signatures.normalized_scores:
            own = score.kernel_score(raw.stacked, ClassAxis(raw.classes, room))
            if own is None:
                return None
            add(own, weight, raw.classes, normalized[raw.number])
        sizes = (room, key.shape[1], CPU_COLUMN, MEMORY_COLUMN)
        return CompiledKeys(module.Keys(base, key, tuple(made), sizes), [part.argument for part in parts])

    def update(self, row: int, node: NodeInfo, *, falling: bool) -> int:
        """Write the node's keys. Returns RAISED and OPENED, or -1 where Python has to compute them.

        `falling`: raw scores of plugins that are `monotone` did not rise.
        """
        arguments = self._none.copy()
        for place, argument in self._arguments:
            node_argument = arguments[place] = argument(node)
            if node_argument is IN_PYTHON:
                return -1
        flags: int = self._update(row, node, falling, arguments)
        return flags


def _looked_up(kept: Remembered) -> KernelPart:
    """The part of a plugin that has none of its own: its results, kept by node signature."""

    def values(node: NodeInfo) -> Ints:
        signature = kept.signature(kept.stacked, node)
        entry = kept.memo.get(signature)
        return kept.add(signature, node) if entry is None else entry

    return KernelPart(PartKind.ARRAY, argument=values)
