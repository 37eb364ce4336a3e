"""NUMA hints: the interface between plugins that allocate parts of a node and the plugin that aligns them.

Upstream: frameworkext/topologymanager, `NUMATopologyHintProvider`. One plugin merges the hints (`nodenuma`); the
others provide them through the cycle state, so that neither imports the other.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import Status

Mask = frozenset[int]  # of NUMA node ids


@dataclass(frozen=True, slots=True)
class Hint:
    """A set of NUMA nodes that can serve the pod; the smallest sets are preferred."""

    mask: Mask
    preferred: bool
    score: int


Hints = Mapping[str, Sequence[Hint]]  # by resource; an empty list: no set can serve it


class HintProvider(Protocol):
    """A plugin that gives hints for a node."""

    def numa_token(self, state: CycleState, node: str) -> Hashable:
        """The value that the answers below depend on besides the class: equal tokens give equal answers."""

    def numa_hints(self, state: CycleState, node: str) -> Hints | Status:
        """Hints by resource; empty: no preference; a status: no set can serve the pod."""

    def numa_fits(self, state: CycleState, node: str, mask: Mask) -> Status:
        """Whether these NUMA nodes serve the pod's request."""


class Aligner(Protocol):
    """The plugin that merges hints."""

    def affinity(self, state: CycleState, node: str) -> Mask | None:
        """The NUMA nodes that the pod is held to on a node, agreed by all providers; None: none."""


PROVIDER: StateKey[HintProvider] = StateKey("NUMA/provider")  # of the devices, the only provider
ALIGNER: StateKey[Aligner] = StateKey("NUMA/aligner")  # present if pods of the class may be aligned
AFFINITY: StateKey[Mask] = StateKey("NUMA/affinity")  # the NUMA nodes chosen for this pod
PLANNED: StateKey[dict[str, Mask]] = StateKey("NUMA/planned")  # those of pods that a dry run places, by uid
