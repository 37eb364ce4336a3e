"""What a plugin tells the compiled kernel, so that one call computes a node's keys for all classes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo


class PartKind(IntEnum):
    """The arithmetic of a part, as `keys.c` numbers it."""

    ARRAY = 0  # numbers that Python computed
    AMOUNTS = 1  # a filter: enough of each resource
    CARDS = 2  # a filter: enough cards with enough free amounts
    UTILIZATION = 3  # a score by the utilisation of CPU and memory
    BALANCE = 4  # a score by the difference of these utilisations
    DEVICES = 5  # a score by the free amounts of all cards, normalised
    FRAGMENTS = 6  # a score by a `Scorer`


class InPython:
    """The type of `IN_PYTHON`."""


IN_PYTHON: Final = InPython()
"""The argument of a node that the kernel does not know: its keys are computed in Python."""


@dataclass(frozen=True, slots=True)
class ClassAxis:
    """Some classes on the class axis of the score matrix, which has `room` places."""

    classes: NDArray[np.intp]
    room: int

    def spread(self, values: NDArray[Any], fill: int = 0) -> Ints:
        """`values` [..., class] of these classes as an array [..., room], with `fill` for the other places."""
        spread = np.full((*values.shape[:-1], self.room), fill, np.int64)
        spread[..., self.classes] = values
        return spread


@dataclass(frozen=True, slots=True)
class KernelPart:
    """A filter or a score of one plugin for some classes.

    `arrays` [..., room], `numbers` and `names` by kind, see `keys.c`; weights and the arrays of the score matrix are
    added by `CompiledKeys`. `argument`: what the kernel reads of a node besides its sums; None: nothing.
    """

    kind: PartKind
    arrays: tuple[Ints, ...] = ()
    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    argument: Callable[[NodeInfo], object] | None = None
