"""One class of pods against all nodes: feasible or not, and how good, kept and brought up to date row by row.

`key` is what a decision takes the largest of: total score above, tie-break below, -1 where the node is not feasible.
Scores that are normalised over all feasible nodes are kept raw beside it; as long as what normalising depends on (the
largest raw score, mostly) stays the same, a changed node changes one entry.

Plugins whose verdict depends on the whole cluster are asked again in each cycle, for the nodes that passed the others.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.classes import PodClass
from scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints
from scheduler.framework.failure import FitError, Reasons
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import Filter, FilterColumns, PreFilter, Scope, Score, ScoreColumns
from scheduler.framework.state import SKIPPED, CycleState
from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from scheduler.framework.runner import Runner

NOT_FEASIBLE = -1
_NOTHING: dict[int, Status] = {}


class ClassVerdicts:
    """Verdicts of one profile on one class of pods."""

    def __init__(self, runner: "Runner", shape: PodClass) -> None:
        self.shape = shape
        self._runner = runner
        self._handle = runner.handle
        self._columns = runner.handle.columns
        self.state = CycleState()
        self.rejected: Status | None = None  # by a PreFilter that needs to see the pod's class alone
        self.key: Ints = np.zeros(0, np.int64)
        self._position = -1
        self._static_position = 0
        self._allowed: frozenset[str] | None = None
        self._allowed_by: list[str] = []
        self._cycle_pre_filters: list[PreFilter] = []
        self._static: list[Filter] = []
        self._moving: list[Filter] = []
        self._cycle_filters: list[Filter] = []
        self._plain_scores: list[tuple[Score, int]] = []
        self._normalized: list[tuple[Score, int]] = []
        self._cycle_scores: list[tuple[Score, int]] = []
        self._limits: list[tuple[int, ...]] = []
        self._reasons: Reasons | None = None
        self._reasons_position = -1
        self._reasons_static = 0
        self._prepare()

    def _prepare(self) -> None:
        pod, skipped = self.shape.example, set[str]()
        if self.shape.invalid:
            self.rejected = Status.unresolvable(self.shape.invalid)
        for plugin in self._runner.pre_filters:
            if plugin.scope is Scope.CLUSTER:
                self._cycle_pre_filters.append(plugin)
                continue
            status = plugin.pre_filter(self.state, pod)
            if status.skipped:
                skipped.add(plugin.name)
            elif not status.ok:
                self.rejected = status.by(plugin.name)
                return
            elif status.nodes is not None:
                self._allowed = status.nodes if self._allowed is None else self._allowed & status.nodes
                self._allowed_by.append(plugin.name)
        self.state[SKIPPED] = frozenset(skipped)
        for filter_ in self._runner.filters:
            if filter_.name not in skipped:
                where = {Scope.NODE: self._static, Scope.NODE_PODS: self._moving, Scope.CLUSTER: self._cycle_filters}
                where[filter_.scope].append(filter_)
        for score, weight in self._runner.scores:
            if score.scope is Scope.CLUSTER:
                self._cycle_scores.append((score, weight))
            elif score.pre_score(self.state, pod):
                (self._plain_scores if score.normalizer is None else self._normalized).append((score, weight))

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what changed since the last time."""
        columns = self._columns
        position = columns.changes
        if position == self._position:
            return
        statics = columns.static_log
        capacity = len(self.key)
        changed = (
            columns.changed_since(self._position) if self._position >= 0 and capacity == columns.capacity else None
        )
        if changed is None:
            if capacity != columns.capacity:
                self._resize(columns.capacity)
            self._judge_nodes(None)
            self._judge(None)
        else:
            if self._static_position < len(statics):
                self._judge_nodes(np.array(sorted(set(statics[self._static_position :])), np.intp))
            self._judge(np.array(changed, np.intp))
        self._position = position
        self._static_position = len(statics)

    def _resize(self, capacity: int) -> None:
        self.key = np.full(capacity, NOT_FEASIBLE, np.int64)
        self._node_ok: Bools = np.zeros(capacity, np.bool_)
        self._total: Ints = np.zeros(capacity, np.int64)
        self._raw: list[Ints] = [np.full(capacity, NOT_FEASIBLE, np.int64) for _ in self._normalized]
        self._limits = [()] * len(self._normalized)

    def _judge_nodes(self, rows: NDArray[np.intp] | None) -> None:
        """What depends on node objects alone."""
        columns = self._columns
        batch = Batch(columns, rows)
        ok = batch.pick(columns.known).copy()
        if self._allowed is not None:
            names = columns.names
            ok &= np.fromiter((names[row] in self._allowed for row in batch.rows), np.bool_, batch.size)
        for plugin in self._static:
            self._narrow(plugin, batch, ok)
        self._node_ok[batch.rows] = ok

    def _judge(self, rows: NDArray[np.intp] | None) -> None:
        columns = self._columns
        batch = Batch(columns, rows)
        where = slice(0, batch.size) if rows is None else batch.rows
        ok = self._node_ok[where]
        if rows is None:
            ok = ok.copy()
        for plugin in self._moving:
            self._narrow(plugin, batch, ok)
        total: Ints | int = 0
        for score, weight in self._plain_scores:
            values = self._score(score, batch, ok)
            if values is not None:
                total = total + values * weight if weight != 1 else total + values
        if not self._normalized:
            self.key[where] = np.where(ok, (total << TIE_BITS) + columns.tie[where], NOT_FEASIBLE)
            return
        self._total[where] = total
        limits = []
        for index, (score, _) in enumerate(self._normalized):
            raw = self._raw[index]
            values = self._score(score, batch, ok)
            raw[where] = np.where(ok, 0 if values is None else values, NOT_FEASIBLE)
            assert score.normalizer is not None  # noqa: S101
            limits.append(score.normalizer.limits(raw[: columns.count]))
        if limits != self._limits:
            self._limits = limits
            where = slice(0, columns.count)
            ok = self._raw[0][where] != NOT_FEASIBLE
        total = self._total[where]
        for (score, weight), raw, limit in zip(self._normalized, self._raw, limits, strict=True):
            assert score.normalizer is not None  # noqa: S101
            total = total + score.normalizer.apply(raw[where], limit) * weight
        self.key[where] = np.where(ok, (total << TIE_BITS) + columns.tie[where], NOT_FEASIBLE)

    def _narrow(self, plugin: Filter, batch: Batch, ok: Bools) -> None:
        """Take away from `ok` what the plugin rejects."""
        if isinstance(plugin, FilterColumns):
            passing = plugin.passing(self.state, batch)
            if passing is not None:
                np.logical_and(ok, passing, out=ok)
            plain = plugin.plain_rows(self.state, batch)
            if plain is None:
                return
            todo = np.flatnonzero(ok & plain)
        else:
            todo = np.flatnonzero(ok)
        for index in todo:
            node = self._node(int(batch.rows[index]))
            if not plugin.filter(self.state, self.shape.example, node).ok:
                ok[index] = False

    def _score(self, plugin: Score, batch: Batch, ok: Bools) -> Ints | None:
        if isinstance(plugin, ScoreColumns):
            return plugin.scores(self.state, batch)
        values = np.zeros(batch.size, np.int64)
        for index in np.flatnonzero(ok):
            node = self._node(int(batch.rows[index]))
            values[index] = plugin.score(self.state, self.shape.example, node)
        return values

    def _node(self, row: int) -> NodeInfo:
        return self._handle.cache.nodes[self._columns.names[row]]

    # -- deciding -----------------------------------------------------------------------------------------------------

    @property
    def feasible(self) -> bool:
        """Whether some node passes all that is kept here; call `refresh` first."""
        return self.rejected is None and bool(len(self.key)) and int(self.key.max()) >= 0

    def select(self, info: PodInfo) -> "tuple[int, CycleState] | FitError":
        """The best row for this pod with the state of its cycle, or why there is none."""
        if self.rejected is not None:
            return FitError(self._handle.cache.known_count, pre_filter=self.rejected)
        self.refresh()
        state = self.state.fork()
        if self._cycle_pre_filters or self._cycle_filters or self._cycle_scores:
            return self._select_asking_all(info, state)
        nominator = self._handle.nominator
        if not nominator:
            row = int(self.key.argmax())
            return (row, state) if self.key[row] >= 0 else self._failure(_NOTHING)
        return self._select_past_nominated(info, state, self.key)

    def _select_past_nominated(
        self, info: PodInfo, state: CycleState, key: Ints
    ) -> "tuple[int, CycleState] | FitError":
        """Take the best row on which the pod fits beside those nominated there; its own nominated node comes first."""
        columns, nominator = self._columns, self._handle.nominator
        own = columns.rows.get(nominator.node_of(info.uid), -1)
        if own >= 0 and key[own] >= 0 and self._check_row(state, info, own).ok:
            return own, state
        taken = {columns.rows[node] for node in nominator.nodes() if node in columns.rows}
        overrides: dict[int, Status] = {}
        while True:
            row = int(key.argmax())
            if key[row] < 0:
                return self._failure(overrides)
            if row not in taken:
                return row, state
            status = self._check_row(state, info, row)
            if status.ok:
                return row, state
            if not overrides:
                key = key.copy()
            overrides[row] = status
            key[row] = NOT_FEASIBLE

    def _select_asking_all(self, info: PodInfo, state: CycleState) -> "tuple[int, CycleState] | FitError":
        pod = info.pod
        skipped, allowed = set[str](), None
        for plugin in self._cycle_pre_filters:
            status = plugin.pre_filter(state, pod)
            if status.skipped:
                skipped.add(plugin.name)
            elif not status.ok:
                return FitError(self._handle.cache.known_count, pre_filter=status.by(plugin.name))
            elif status.nodes is not None:
                allowed = status.nodes if allowed is None else allowed & status.nodes
        if skipped:
            state[SKIPPED] = state[SKIPPED] | skipped
        key, overrides = self.key.copy(), dict[int, Status]()
        filters = [plugin for plugin in self._cycle_filters if plugin.name not in skipped]
        for row in np.flatnonzero(key >= 0).tolist():
            status = Status(Code.SUCCESS)
            if allowed is not None and self._columns.names[row] not in allowed:
                status = Status.unresolvable("node(s) didn't satisfy plugin(s) [" + " ".join(self._allowed_by) + "]")
            for filter_ in filters:
                status = filter_.filter(state, pod, self._node(row))
                if not status.ok:
                    status = status.by(filter_.name)
                    break
            if not status.ok:
                key[row] = NOT_FEASIBLE
                overrides[row] = status
        if overrides and int(key.max(initial=NOT_FEASIBLE)) < 0:
            return self._failure(overrides)
        self._add_cycle_scores(state, info, key)
        return self._select_past_nominated(info, state, key)

    def _add_cycle_scores(self, state: CycleState, info: PodInfo, key: Ints) -> None:
        rows = np.flatnonzero(key >= 0)
        for plugin, weight in self._cycle_scores:
            if not plugin.pre_score(state, info.pod):
                continue
            raw = np.fromiter(
                (plugin.score(state, info.pod, self._node(int(row))) for row in rows), np.int64, len(rows)
            )
            if plugin.normalizer is not None:
                raw = plugin.normalizer.apply(raw, plugin.normalizer.limits(raw))
            key[rows] += (raw * weight) << TIE_BITS

    def _check_row(self, state: CycleState, info: PodInfo, row: int) -> Status:
        return self._runner.check_with_nominated(state, info, self._node(row))

    # -- explaining ---------------------------------------------------------------------------------------------------

    def _failure(self, overrides: dict[int, Status]) -> FitError:
        return FitError(self._handle.cache.known_count, reasons=self._reasons_now(), overrides=overrides, absent=None)

    def _reasons_now(self) -> Reasons:
        """Each row's status, found the plain way for rows that changed since this class last failed."""
        columns = self._columns
        if self._reasons is None:
            self._reasons = Reasons()
        reasons = self._reasons
        reasons.fit(columns.capacity)
        changed = columns.changed_since(self._reasons_position) if self._reasons_position >= 0 else None
        rows: Iterable[int] = range(columns.count) if changed is None else changed
        outside = Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self._allowed_by))}]")
        for row in rows:
            if not columns.known[row] or self.key[row] >= 0:
                reasons.set(row, None)
            elif self._allowed is not None and columns.names[row] not in self._allowed:
                reasons.set(row, outside)
            else:
                reasons.set(row, self._runner.check(self.state, self.shape.example, self._node(row)))
        self._reasons_position = columns.changes
        return reasons
