"""Groups that could not be placed, and when they are tried again.

A parked group is tried when each class of its members has at least as many places as the group needs (an upper bound,
`fit_bounds`), after its backoff, or when the gate that held a member back opens. Groups of one shape have the same
needs, which are evaluated once.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.groups.fit_bounds import FitBounds, Kind, bound
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.runner import Runners
from seatrial.scheduler.framework.domains import Domains
from seatrial.scheduler.framework.handle import Handle

_concern_version = attrgetter("concern_version")
MAX_CLASSES = 512  # beyond, classes that no parked group needs any more are forgotten
FIRST_SWEEP = 64  # parked groups beyond which those that hold no pod any more are looked for


@dataclass(slots=True, eq=False)
class _Shape:
    """The parked groups with the same needs."""

    needs: Counter[Kind]  # number of places
    examples: dict[Kind, PodInfo]
    domains: Domains | None
    enough: int = 0  # any members that are so many are enough; 0: all are needed
    keys: dict[str, None] = field(default_factory=dict)
    lacks: Kind | None = None  # none of the groups fits before the bound of this class grows; None: not known


class ParkedGroups:
    """All groups that wait for room or for a gate, by wake key.

    A shape that does not fit waits for the class with too few places (`_Shape.lacks`): no shape is looked at for a
    change of a node that gives no place to such a class.
    """

    def __init__(self, handle: Handle, runners: Runners, queue: SchedulingQueue) -> None:
        self._handle, self._runners, self._queue = handle, runners, queue
        self._gates: dict[str, str] = {}  # by key of the group: the gate that it waits for, or ""
        self._behind: dict[str, dict[str, None]] = {}  # by gate: keys of the groups that wait for it
        self._shapes: dict[Hashable, _Shape] = {}
        self._shape_of: dict[str, Hashable] = {}  # of the groups that wait for room
        self._unsettled: dict[Hashable, _Shape] = {}  # those that are asked at each wake: they may fit, or are new
        self._lacking: dict[Kind, dict[Hashable, _Shape]] = {}  # all others, by the class that they lack
        self._places: dict[Kind, tuple[int, int]] = {}  # by class: columns.changes, places
        self._bounds = FitBounds(handle, runners)
        self._transformers = [plugin for runner in runners.values() for plugin in runner.transformers]
        self._versions: list[int | None] = [None] * len(self._transformers)  # of the transformers, at the last wake
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._gates)

    def add(self, key: str, members: Iterable[PodInfo], gate: str, domains: Domains | None, *, enough: int = 0) -> None:
        """Park a group that needs places for these members, or for any `enough` of them.

        `gate`: wake key of the gate that held one back, or "".
        """
        self.remove(key)
        if len(self._gates) >= self._sweep_at:
            self._sweep()
        self._gates[key] = gate
        if gate:
            self._behind.setdefault(gate, {})[key] = None
            return  # its gate opens by its own key
        needs: Counter[Kind] = Counter()
        examples: dict[Kind, PodInfo] = {}
        for info in members:
            kind = info.pod.spec.scheduler_name, info.pod_class.id
            needs[kind] += 1
            examples[kind] = info
        name = frozenset(needs.items()), None if domains is None else domains.shape(), enough
        self._shape_of[key] = name
        shape = self._shapes.setdefault(name, _Shape(needs, examples, domains, enough))
        shape.keys[key] = None
        self._unsettle(name, shape)
        if len(self._bounds) > MAX_CLASSES:
            used = {kind for shape in self._shapes.values() for kind in shape.needs}
            if 2 * len(used) < len(self._bounds):
                self._bounds.trim(used)

    def remove(self, key: str) -> None:
        gate = self._gates.pop(key, "")
        if gate:
            del self._behind[gate][key]
            if not self._behind[gate]:
                del self._behind[gate]
        name = self._shape_of.pop(key, None)
        if name is None:
            return
        shape = self._shapes[name]
        del shape.keys[key]
        if not shape.keys:
            self._unsettle(name, shape)
            del self._shapes[name], self._unsettled[name]

    def behind(self, gates: set[str]) -> set[str]:
        """Keys of parked groups of which a member was held back by one of these gates."""
        return {key for gate in gates for key in self._behind.get(gate, ())}

    def wake(self) -> None:
        """Open the gates of parked groups that may fit now."""
        unsettled, bounds = self._unsettled, self._bounds
        concerns_changed = self._transformers_changed()
        if not (unsettled or concerns_changed) and bounds.unchanged():
            return
        for shape in unsettled.values():
            for kind, info in shape.examples.items():
                bounds.add(kind, info)
        grown = bounds.update()
        if grown is None or concerns_changed:
            for name, shape in self._shapes.items():
                self._unsettle(name, shape)
        elif grown:
            for kind in grown:
                for name, shape in list(self._lacking.get(kind, {}).items()):
                    self._unsettle(name, shape)
        if not unsettled:
            return
        held = self._queue.held
        for shape in unsettled.values():
            for kind, info in shape.examples.items():
                if not bounds.counted(kind):
                    try:
                        self._count(kind, info)
                    except Exception as error:  # noqa: BLE001 it is counted again at the next change
                        self._handle.evaluation_failed(error, f"pod={info.key}")
        for name, shape in list(unsettled.items()):
            try:
                may_fit = self._may_fit(shape)
            except Exception as error:  # noqa: BLE001 the group's own attempt reports it
                self._handle.evaluation_failed(error, f"group={next(iter(shape.keys))}")
                may_fit = True
            if may_fit:
                del unsettled[name]  # asked; a group that fails again is added again
                for key in list(shape.keys):
                    if key in held:
                        self._handle.open_gate(key)
                    else:
                        self.remove(key)
            elif shape.lacks is not None:
                del unsettled[name]
                self._lacking.setdefault(shape.lacks, {})[name] = shape

    def _unsettle(self, name: Hashable, shape: _Shape) -> None:
        """Have the next wake look at the shape."""
        if shape.lacks is not None:
            alike = self._lacking[shape.lacks]
            del alike[name]
            if not alike:
                del self._lacking[shape.lacks]
            shape.lacks = None
        self._unsettled[name] = shape

    def _sweep(self) -> None:
        """Remove groups that hold no pods."""
        held = self._queue.held
        for key in [key for key in self._gates if key not in held]:
            self.remove(key)
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._gates))

    def _transformers_changed(self) -> bool:
        """Whether pods that no transformer concerned may be concerned by one now."""
        versions = [*map(_concern_version, self._transformers)]
        if versions == self._versions and None not in versions:
            return False
        self._versions = versions
        return True

    def _may_fit(self, shape: _Shape) -> bool:
        """Whether there may be as many places for each class as a group needs. If not, `lacks` is set where it is known
        that this class needs more places first."""
        if shape.enough:
            placeable = [count for kind, count in shape.needs.items() if self._may_place(shape, kind, 1)]
            return sum(placeable) >= shape.enough
        for kind, count in shape.needs.items():
            if not self._may_place(shape, kind, count):
                if self._runners[kind[0]].requests_bound:
                    shape.lacks = kind
                return False
        return True

    def _count(self, kind: Kind, info: PodInfo) -> None:
        """Count the nodes that pass all filters, so that changes of the others are ignored from now on."""
        runner = self._runners[kind[0]]
        if runner.requests_bound and not any(plugin.concerns(info.pod) for plugin in runner.transformers):
            class_scores = runner.class_scores(info.pod_class)
            class_scores.refresh()
            self._bounds.count_feasible(kind, class_scores)

    def _may_place(self, shape: _Shape, kind: Kind, count: int) -> bool:
        """Whether there may be that many places for one class."""
        info, bounds, domains = shape.examples[kind], self._bounds, shape.domains
        runner = self._runners.of(info)
        if any(plugin.concerns(info.pod) for plugin in runner.transformers):
            return True  # room in reservations is not in the columns
        if runner.requests_bound and not bounds.may_fit(kind, domains, count):
            return False
        class_scores = runner.class_scores(info.pod_class)
        class_scores.refresh()
        if not class_scores.feasible and class_scores.feasible_for(info):
            return True  # places in reservations are not counted
        bounds.count_feasible(kind, class_scores)
        return bounds.may_fit(kind, domains, count)

    def places(self, kind: Kind, info: PodInfo, class_scores: ClassScores) -> int:
        """An upper bound for the number of pods of this class that fit now."""
        columns = self._handle.columns
        known = self._places.get(kind)
        if known is not None and known[0] == columns.changes:
            return known[1]
        if not class_scores.feasible:
            count = 1 << 30 if class_scores.feasible_for(info) else 0  # places in reservations are not counted
        else:
            rows = np.flatnonzero(class_scores.key >= 0)
            count = int(bound(columns.free, info.pod_class.vector, rows).sum())
        if len(self._places) > 4096:
            self._places.clear()
        self._places[kind] = columns.changes, count
        return count
