"""Groups that could not be placed, and when they are asked again.

A parked group is asked when each class of its members has at least as many places as the group needs (an upper bound,
`fit_bounds`), after its backoff, or when the gate that held a member back opens. Groups of one shape have the same
needs, which are evaluated once.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.fit_bounds import FitBounds, Kind, bound
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.framework.groups import Domains

if TYPE_CHECKING:
    from seatrial.scheduler.cycle import Core


MAX_CLASSES = 512  # beyond, classes that no parked group needs any more are forgotten


@dataclass(slots=True, eq=False)
class _Shape:
    """The parked groups with the same needs."""

    needs: Counter[Kind]  # number of places
    examples: dict[Kind, PodInfo]
    domains: Domains | None
    keys: dict[str, None] = field(default_factory=dict)


class ParkedGroups:
    """All groups that wait for room or for a gate, by wake key."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._gates: dict[str, str] = {}  # by key of the group: the gate that it waits for, or ""
        self._shapes: dict[Hashable, _Shape] = {}
        self._shape_of: dict[str, Hashable] = {}  # of the groups that wait for room
        self._places: dict[Kind, tuple[int, int]] = {}  # by class: columns.changes, places
        self._bounds = FitBounds(core)

    def __len__(self) -> int:
        return len(self._gates)

    def add(self, key: str, members: Iterable[PodInfo], gate: str, domains: Domains | None) -> None:
        """Park a group that needs places for these members. `gate`: wake key of the gate that held one back, or ""."""
        self.remove(key)
        self._gates[key] = gate
        if gate:
            return  # its gate opens by its own key
        needs: Counter[Kind] = Counter()
        examples: dict[Kind, PodInfo] = {}
        for info in members:
            kind = info.pod.spec.scheduler_name, info.shape.id
            needs[kind] += 1
            examples[kind] = info
        shape = frozenset(needs.items()), None if domains is None else domains.shape()
        self._shape_of[key] = shape
        self._shapes.setdefault(shape, _Shape(needs, examples, domains)).keys[key] = None

    def remove(self, key: str) -> None:
        self._gates.pop(key, None)
        shape = self._shape_of.pop(key, None)
        if shape is not None:
            keys = self._shapes[shape].keys
            del keys[key]
            if not keys:
                del self._shapes[shape]

    def behind(self, gates: set[str]) -> set[str]:
        """Keys of parked groups of which a member was held back by one of these gates."""
        return {key for key, gate in self._gates.items() if gate in gates}

    def wake(self) -> None:
        """Open the gates of parked groups that may fit now."""
        held, bounds = self._core.queue.held, self._bounds
        for key in [key for key in self._gates if key not in held]:
            self.remove(key)
        if len(bounds) > MAX_CLASSES:
            bounds.trim({kind for shape in self._shapes.values() for kind in shape.needs})
        for shape in self._shapes.values():
            for kind, info in shape.examples.items():
                bounds.add(kind, info)
        bounds.update()
        for shape in self._shapes.values():
            if all(self._may_fit(shape, kind, count) for kind, count in shape.needs.items()):
                for key in shape.keys:
                    self._core.handle.open_gate(key)

    def _may_fit(self, shape: _Shape, kind: Kind, count: int) -> bool:
        """Whether there may be as many places for one class as a group needs."""
        info, bounds, domains = shape.examples[kind], self._bounds, shape.domains
        runner = self._core.runner_of(info)
        if any(plugin.concerns(info.pod) for plugin in runner.transformers):
            return True  # room in reservations is not in the columns
        if runner.requests_bound and not bounds.may_fit(kind, domains, count):
            return False
        class_scores = runner.class_scores(info.shape)
        class_scores.refresh()
        if not class_scores.feasible and class_scores.feasible_for(info):
            return True  # places in reservations are not counted
        bounds.count_feasible(kind, class_scores)
        return bounds.may_fit(kind, domains, count)

    def places(self, kind: Kind, info: PodInfo, class_scores: ClassScores) -> int:
        """An upper bound for the number of pods of this class that fit now."""
        columns = self._core.cache.columns
        known = self._places.get(kind)
        if known is not None and known[0] == columns.changes:
            return known[1]
        if not class_scores.feasible:
            count = 1 << 30 if class_scores.feasible_for(info) else 0  # places in reservations are not counted
        else:
            rows = np.flatnonzero(class_scores.key >= 0)
            count = int(bound(columns.free, info.shape.vector, rows).sum())
        if len(self._places) > 4096:
            self._places.clear()
        self._places[kind] = columns.changes, count
        return count
