"""Upper bounds of the number of places that nodes and domains have for classes of pods, kept as nodes change.

A changed node changes one column of an array: its bound for each class from requests alone, as if the other filters
passed. A class whose sums are too small is not evaluated further. Otherwise `count_feasible` counts the nodes that
pass all filters, and its result stays for all nodes that do not change. Nodes that filters of scope NODE rejected then
(node selectors, taints) stay without places until their objects change.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Ints, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.runner import Runners
from seatrial.scheduler.framework.domains import Domains
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.framework.handle import Handle

Kind = tuple[str, int]  # scheduler name, class

MANY = 1 << 20  # more places than any group needs
EMPTY, HOLDS = 1, 2  # the use of a node: no class has a place there now, some class has one; 0: closed to all classes
NO_KINDS: frozenset[Kind] = frozenset()
_ALL = slice(None)


@dataclass(slots=True, eq=False)
class _Layout:
    """The domains of one shape of requests."""

    source: Domains
    version: int
    domains: Ints | None  # the domain of each row, -1 outside; None: there are no domains
    sums: Ints  # [class, domain]
    best: Ints | None = None  # [class], the largest sum; None: not computed since a change


class FitBounds:
    """Bounds for the classes that were added."""

    def __init__(self, handle: Handle, runners: Runners) -> None:
        self._handle, self._columns = handle, handle.columns
        self._kinds: dict[Kind, int] = {}
        self._classes: list[EquivalenceClass] = []
        self._layouts: dict[Hashable, _Layout] = {}
        self._position = -1  # number of column changes that are counted
        self._invalidations = -1
        self._amounts: Ints = np.zeros((0, 0), np.int64)  # [class, resource]
        self._slots: Ints = np.zeros((0, 0), np.int64)  # [class, node]
        self._totals: Ints = np.zeros(0, np.int64)
        self._allowed = np.ones((0, 0), np.bool_)  # [class, node]: not known to be rejected by filters of scope NODE
        self._uses: bytearray | None = None  # [node]: CLOSED, EMPTY or HOLDS; None: not computed since a change
        self._least: list[tuple[int, int]] = []  # columns that all classes ask for, with the smallest amount
        self._recounted = True  # since the last `update`, in another way than by changes of nodes
        self._kept_divisors: tuple[Ints, Ints, Ints] | None = None
        self._static_position = 0  # length of the log of node objects when `_allowed` was written
        self._counted: set[Kind] = set()  # classes whose row of `_allowed` was read from their filters
        self._one_by_one = not any(  # the change of a node object changes verdicts for that node alone
            type(plugin).version is not Plugin.version for runner in runners.values() for plugin in runner.filters
        )

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, kind: Kind, info: PodInfo) -> None:
        """Keep bounds for the class of this pod from now on."""
        if kind in self._kinds:
            return
        columns, number = self._columns, len(self._kinds)
        if number == len(self._amounts) or self._amounts.shape[1] != columns.width:
            amounts = np.zeros((max(number * 2, 8), columns.width), np.int64)
            amounts[: len(self._amounts), : self._amounts.shape[1]] = self._amounts
            self._amounts, self._position = amounts, -1
        self._kinds[kind] = number
        self._forget_layouts()
        self._kept_divisors = None
        self._classes.append(info.pod_class)
        self._write_amounts(number)
        if self._position >= 0:
            own = slice(number, number + 1)
            self._allowed[own] = True
            self._slots[own] = self._bounds(np.arange(self._slots.shape[1]), own)
            self._totals[own] = self._slots[own].sum(axis=1)

    def _write_amounts(self, number: int) -> None:
        self._amounts[number] = 0
        for column, amount in self._classes[number].vector:
            self._amounts[number, column] = amount

    def trim(self, used: set[Kind]) -> None:
        """Forget classes that are not `used`."""
        kept = [kind for kind in self._kinds if kind in used]
        self._amounts = self._amounts[[self._kinds[kind] for kind in kept]]
        self._classes = [self._classes[self._kinds[kind]] for kind in kept]
        self._kept_divisors = None
        self._kinds = {kind: number for number, kind in enumerate(kept)}
        self._forget_layouts()
        self._forget_verdicts()
        self._position = -1

    def unchanged(self) -> bool:
        """Whether all nodes that changed since the last call of `update` are closed to all classes, and nothing else
        changed. The usual case, answered without a NumPy call. These nodes are counted then."""
        columns, uses = self._columns, self._uses
        if (
            uses is None  # as whenever layouts or classes changed
            or self._static_position != columns.static_changes
            or self._invalidations != self._handle.invalidations
        ):
            return False
        if columns.changed_among(uses, self._position):
            return False
        for layout in self._layouts.values():
            if layout.version != layout.source.version:
                return False
        self._position = columns.changes
        return True

    def update(self) -> frozenset[Kind] | None:
        """Count the nodes that changed since the last call. Returns the classes that may have more places; None: any.

        Called after each departure of a pod, so most changes are sorted out cheaply: nodes that are closed to all
        classes, and those that are too full for the smallest pod, before and now.
        """
        columns, invalidations = self._columns, self._handle.invalidations
        for layout in self._layouts.values():
            if layout.version != layout.source.version:
                self._recounted = True
        recounted, self._recounted = self._recounted, False
        if self._position < 0 or invalidations != self._invalidations or self._slots.shape[1] != columns.count:
            changed = None
        else:
            changed = columns.changed_since(self._position)
        if invalidations != self._invalidations:
            self._forget_verdicts()
            self._kept_divisors = None
            if self._amounts.shape[1] != columns.width:  # nodes may offer what no node had before
                self._amounts = np.zeros((len(self._amounts), columns.width), np.int64)
            for number in range(len(self._classes)):
                self._write_amounts(number)
        self._position, self._invalidations = columns.changes, invalidations
        if self._static_position != columns.static_changes or changed is None:
            self._reopen()
        if changed is None:
            self._forget_layouts()
            self._recounted = False
            self._slots = np.zeros((len(self._amounts), columns.count), np.int64)
            self._slots[: len(self._kinds)] = self._bounds(np.arange(columns.count))
            self._totals = self._slots.sum(axis=1)
            return None
        if not self._kinds:
            return NO_KINDS
        uses = self._uses or self._nodes_in_use()
        rows = [row for row in changed if uses[row] and (uses[row] == HOLDS or self._has_room(row))]
        grown: list[int] = []
        if rows:
            where = np.array(rows, np.intp)
            slots = self._bounds(where)
            grown = self._set(slice(len(self._kinds)), where, slots)
            holding = set(where[slots.any(axis=0)].tolist())
            for row in rows:
                uses[row] = HOLDS if row in holding else EMPTY
        if recounted:
            return None
        return frozenset(kind for kind, number in self._kinds.items() if number in grown) if grown else NO_KINDS

    def _reopen(self) -> None:
        """Count nodes whose objects changed as open to all classes."""
        columns = self._columns
        before, position = self._allowed, self._static_position
        self._allowed = np.ones((len(self._amounts), columns.count), np.bool_)
        self._static_position = columns.static_changes
        self._uses = None
        if self._one_by_one and before.size:
            classes, nodes = min(len(before), len(self._kinds)), before.shape[1]
            self._allowed[:classes, :nodes] = before[:classes]
            self._allowed[:, columns.static_changed_since(position)] = True
        else:
            self._counted.clear()

    def _forget_verdicts(self) -> None:
        self._allowed = np.ones((0, 0), np.bool_)
        self._counted.clear()

    def _nodes_in_use(self) -> bytearray:
        """Which nodes the classes may use, and which of them have places; also what each class needs at least."""
        number = len(self._kinds)
        uses = self._allowed[:number].any(axis=0).astype(np.uint8) + (self._slots[:number] > 0).any(axis=0)
        least = self._amounts[:number].min(axis=0).tolist()
        self._least = [(column, amount) for column, amount in enumerate(least) if amount]
        self._uses = bytearray(uses.tobytes())
        return self._uses

    def _has_room(self, row: int) -> bool:
        """Whether the smallest requests of all classes fit on the node."""
        free = self._columns.free
        return all(free[column, row] >= amount for column, amount in self._least)

    def _forget_layouts(self) -> None:
        self._layouts.clear()
        self._recounted = True
        self._uses = None

    def may_fit(self, kind: Kind, domains: Domains | None, count: int) -> bool:
        """Whether some domain, or all nodes together, have this many places. Call `update` first."""
        number = self._kinds[kind]
        if domains is None or self._totals[number] < count:
            return bool(self._totals[number] >= count)
        layout = self._layout(domains)
        if layout.domains is None:
            return False
        if layout.best is None:
            layout.best = layout.sums.max(axis=1, initial=0)
        return bool(layout.best[number] >= count)

    def counted(self, kind: Kind) -> bool:
        """Whether `count_feasible` was called for this class, and its result is still of use."""
        return kind in self._counted

    def count_feasible(self, kind: Kind, class_scores: ClassScores) -> None:
        """Count the places for one class on the nodes that pass all filters. The class must be refreshed."""
        slots = np.zeros((1, self._columns.count), np.int64)
        if class_scores.matrix is not None:
            matrix = class_scores.matrix
            self._allowed[self._kinds[kind]] = matrix.node_ok[class_scores.entry.index, : self._columns.count]
            self._uses = None
        self._counted.add(kind)
        if class_scores.feasible:
            rows = np.flatnonzero(class_scores.key >= 0)
            slots[0, rows] = bound(self._columns.free, class_scores.entry.pod_class.vector, rows)
        self._set(self._kinds[kind], np.arange(self._columns.count), slots)

    def _bounds(self, rows: Rows, classes: slice = _ALL) -> Ints:
        """Places by requests alone, [class, row]."""
        request, divisors, unasked = self._divisors(classes)
        free = self._columns.free[request[:, None], rows]
        bounds: Ints = (free[:, None] // divisors + unasked).min(axis=0, initial=MANY)
        np.maximum(bounds, 0, out=bounds)
        bounds *= self._columns.known[rows]
        bounds *= self._allowed[classes][: len(bounds), rows]
        return bounds

    def _divisors(self, classes: slice) -> tuple[Ints, Ints, Ints]:
        """The columns that some class asks for, the amounts, and MANY where a class asks for none; [column, class, 1].

        Kept for all classes together, since that is what each wake needs.
        """
        whole = classes is _ALL
        if whole and self._kept_divisors is not None:
            return self._kept_divisors
        amounts = self._amounts[: len(self._kinds)] if whole else self._amounts[classes]
        rows = np.flatnonzero(amounts.any(axis=0))
        own = amounts.T[rows][:, :, None]
        divisors = rows, np.maximum(own, 1), np.where(own > 0, 0, MANY)
        if whole:
            self._kept_divisors = divisors
        return divisors

    def _set(self, classes: slice | int, rows: Rows, slots: Ints) -> list[int]:
        """Replace the places of these classes on these nodes. Returns the classes that have more on some node."""
        change = slots - self._slots[classes, rows]
        if not change.any():
            return []
        self._slots[classes, rows] = slots
        self._totals[classes] += change.sum(axis=1) if isinstance(classes, slice) else change.sum()
        for layout in self._layouts.values():
            if layout.domains is None:
                continue
            layout.best = None
            domains = layout.domains[rows]
            if isinstance(classes, slice):
                for place in np.flatnonzero((domains >= 0) & change.any(axis=0)).tolist():
                    layout.sums[:, domains[place]] += change[:, place]
            else:
                layout.sums[classes] += _by_domain(domains, change[0], layout.sums.shape[1])
        return np.flatnonzero((change > 0).any(axis=1)).tolist()

    def _layout(self, domains: Domains) -> _Layout:
        shape, version = domains.shape(), domains.version
        layout = self._layouts.get(shape)
        if layout is None or layout.version != version:
            rows = domains.rows()
            sums = np.zeros((len(self._slots), 0), np.int64)
            if rows is not None:
                size = int(rows.max(initial=-1)) + 1
                sums = np.array([_by_domain(rows, slots, size) for slots in self._slots[: len(self._kinds)]], np.int64)
            layout = self._layouts[shape] = _Layout(domains, version, rows, sums)
        return layout


def _by_domain(domains: Ints, values: Ints, size: int) -> Ints:
    """The sum of values of each domain, [domain]; nodes outside have the domain -1."""
    inside = domains >= 0
    return np.bincount(domains[inside], weights=values[inside], minlength=size).astype(np.int64)


def bound(free: Ints, vector: Sequence[tuple[int, int]], rows: Rows) -> Ints:
    """For feasible rows, how many pods with these requests fit at most, [row]."""
    slots = np.full(len(rows), MANY, np.int64)
    for column, amount in vector:
        if amount:
            np.minimum(slots, free[column, rows] // amount, out=slots)
    return np.maximum(slots, 1)
