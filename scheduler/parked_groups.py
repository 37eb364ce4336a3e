"""Groups that could not be placed, and when they are asked again.

A parked group is asked when each class of its members has at least as many places as the group needs (an upper bound,
computed over the columns), after its backoff, or when the gate that held a member back opens.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.scheduler.cache.columns import Ints, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.framework.extension_points import Transformer
from seatrial.scheduler.framework.groups import Domains

if TYPE_CHECKING:
    from seatrial.scheduler.cycle import Core

Kind = tuple[str, int]  # scheduler name, class


@dataclass(slots=True, eq=False)
class _Parked:
    """A group that could not be placed."""

    needs: Counter[Kind]  # number of places
    examples: dict[Kind, PodInfo]
    gate: str = ""
    domains: Domains | None = None


class ParkedGroups:
    """All groups that wait for room or for a gate, by wake key."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._parked: dict[str, _Parked] = {}
        self._slots: dict[Kind, tuple[int, int]] = {}  # by class: columns.changes, places
        self._fits: dict[Hashable, tuple[int, bool]] = {}  # by class, number and kind of domains: columns.changes

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, key: str, members: Iterable[PodInfo], gate: str, domains: Domains | None) -> None:
        """Park a group that needs places for these members. `gate`: wake key of the gate that held one back, or ""."""
        needs: Counter[Kind] = Counter()
        examples: dict[Kind, PodInfo] = {}
        for info in members:
            kind = info.pod.spec.scheduler_name, info.shape.id
            needs[kind] += 1
            examples[kind] = info
        self._parked[key] = _Parked(needs, examples, gate, domains)

    def remove(self, key: str) -> None:
        self._parked.pop(key, None)

    def behind(self, gates: set[str]) -> set[str]:
        """Keys of parked groups of which a member was held back by one of these gates."""
        return {key for key, parked in self._parked.items() if parked.gate in gates}

    def wake(self) -> None:
        """Open the gates of parked groups that may fit now."""
        held = self._core.queue.held
        for key in list(self._parked):
            if key not in held:
                del self._parked[key]
            elif self._may_fit(self._parked[key]):
                self._core.handle.open_gate(key)

    def _may_fit(self, parked: _Parked) -> bool:
        if parked.gate:
            return False  # its gate opens by its own key
        for kind, count in parked.needs.items():
            info = parked.examples[kind]
            runner = self._core.runner_of(info)
            if any(isinstance(plugin, Transformer) and plugin.concerns(info.pod) for plugin in runner.profile.all):
                continue  # room in reservations is not in the columns
            class_scores = runner.class_scores(info.shape)
            class_scores.refresh()
            if self.places(kind, info, class_scores) < count:
                return False
            if parked.domains is not None and not self._fits_domain(parked.domains, kind, count, class_scores):
                return False
        return True

    def _fits_domain(self, domains: Domains, kind: Kind, count: int, class_scores: ClassScores) -> bool:
        """Whether some domain may have room for this many pods of a class; the result is kept until a node changes."""
        key, changes = (kind, count, domains.kind()), self._core.cache.columns.changes
        known = self._fits.get(key)
        if known is not None and known[0] == changes:
            return known[1]
        info = class_scores.entry.shape
        fits = True
        if class_scores.feasible:
            columns = self._core.cache.columns
            rows = np.flatnonzero(class_scores.key >= 0)
            slots = np.zeros(columns.count, np.int64)
            slots[rows] = _bound(columns.free, info.vector, rows)
            fits = domains.may_fit(slots, count)
        if len(self._fits) > 4096:
            self._fits.clear()
        self._fits[key] = changes, fits
        return fits

    def places(self, kind: Kind, info: PodInfo, class_scores: ClassScores) -> int:
        """An upper bound for the number of pods of this class that fit now."""
        columns = self._core.cache.columns
        known = self._slots.get(kind)
        if known is not None and known[0] == columns.changes:
            return known[1]
        if not class_scores.feasible:
            count = 1 << 30 if class_scores.feasible_for(info) else 0  # places in reservations are not counted
        else:
            rows = np.flatnonzero(class_scores.key >= 0)
            count = int(_bound(columns.free, info.shape.vector, rows).sum())
        if len(self._slots) > 4096:
            self._slots.clear()
        self._slots[kind] = columns.changes, count
        return count


def _bound(free: Ints, vector: Sequence[tuple[int, int]], rows: Rows) -> Ints:
    """For feasible rows, how many pods with these requests fit at most, [row]."""
    slots = np.full(len(rows), 1 << 30, np.int64)
    for column, amount in vector:
        if amount:
            np.minimum(slots, free[column, rows] // amount, out=slots)
    return np.maximum(slots, 1)
