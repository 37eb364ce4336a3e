"""What plugins that hand out parts of a node tell whoever aligns them: which NUMA nodes would do.

Upstream: frameworkext/topologymanager, `NUMATopologyHintProvider`. One plugin merges the hints (`nodenuma`), the others
provide them through the cycle's state, so that neither needs to know the other.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import Status

Mask = frozenset[int]  # of NUMA node ids


@dataclass(frozen=True, slots=True)
class Hint:
    """These NUMA nodes would do; preferred are the smallest sets."""

    mask: Mask
    preferred: bool
    score: int


Hints = Mapping[str, Sequence[Hint]]  # by resource; an empty list: nothing will do


class HintProvider(Protocol):
    """A plugin that has something to say of a node."""

    def numa_token(self, state: CycleState, node: str) -> Hashable:
        """What the answers below depend on beside the pod's class: equal tokens, equal answers."""

    def numa_hints(self, state: CycleState, node: str) -> Hints | Status:
        """Which NUMA nodes would do, by resource; none at all: it does not matter. Or why none will."""

    def numa_fits(self, state: CycleState, node: str, mask: Mask) -> Status:
        """Whether the pod gets what it asks for on these NUMA nodes."""


class Aligner(Protocol):
    """The plugin that merges hints."""

    def affinity(self, state: CycleState, node: str) -> Mask | None:
        """The NUMA nodes that a pod will be held to on a node, all providers having agreed; None: to none."""


PROVIDER: StateKey[HintProvider] = StateKey("NUMA/provider")  # of the devices; there is no other as yet
ALIGNER: StateKey[Aligner] = StateKey("NUMA/aligner")  # there if pods of the class may have to be aligned
AFFINITY: StateKey[Mask] = StateKey("NUMA/affinity")  # settled for this pod: the NUMA nodes to take things from
