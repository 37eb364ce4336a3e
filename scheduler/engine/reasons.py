"""Explanation of failures: the status of each node for one class, kept and updated for nodes that changed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Batch, Bools, Rows
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.cluster_scope import outside
from seatrial.scheduler.engine.score_matrix import ScoreMatrix
from seatrial.scheduler.framework.accelerations import FilterBatch
from seatrial.scheduler.framework.extension_points import Filter
from seatrial.scheduler.framework.fit_error import FitError, Reasons
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status

SINGLE_ROWS = 12  # up to this many rows are explained one by one: array calls cost as much as these
ALL_ROWS_FACTOR = 2  # if at least half of the nodes changed, all are judged: that needs no copy of columns


class ReasonCollector:
    """Finds the first filter that rejects each node for one class."""

    def __init__(self, entry: ClassEntry, matrix: ScoreMatrix, cache: Cache, filters: Sequence[Filter]) -> None:
        """`filters`: all filters of the profile, in order."""
        self._entry, self._matrix, self._cache = entry, matrix, cache
        self._columns = cache.columns
        self._moving = [plugin for plugin in filters if plugin in entry.rules.node_pods_filters]
        self._kept = [plugin for plugin in filters if plugin in self._moving or plugin in entry.rules.node_filters]
        self._stacks: dict[Filter, object] = {}
        self._reasons: Reasons | None = None
        self._reasons_position = -1

    def failure(self, overrides: dict[int, Status], state: CycleState | None = None) -> FitError:
        return FitError(self._cache.known_count, reasons=self._reasons_now(), overrides=overrides, state=state)

    def _reasons_now(self) -> Reasons:
        """The status of each row; rows that changed since the last failure of this class are judged again."""
        columns = self._columns
        self._matrix.settle(self._entry)
        if self._reasons is None:
            self._reasons = Reasons()
        self._reasons.fit(columns.capacity)
        position, self._reasons_position = self._reasons_position, columns.changes
        if position >= 0 and (columns.changes - position) * ALL_ROWS_FACTOR < columns.count:
            changed = columns.changed_since(position)
        else:
            changed = None
        if changed is None:
            self._explain(None, self._reasons)
        elif len(changed) <= SINGLE_ROWS:
            for row in changed:
                self._explain_row(row, self._reasons)
        else:
            self._explain(np.array(changed, np.intp), self._reasons)
        return self._reasons

    def _explain_row(self, row: int, reasons: Reasons) -> None:
        """`_explain` for one row."""
        entry, matrix = self._entry, self._matrix
        number = 0
        if self._columns.known.item(row) and matrix.key.item(entry.index, row) < 0:
            if not entry.allows(row):
                number = reasons.number(outside(entry.rules.allowed_by))
            else:
                state, pod, node = entry.state, entry.pod_class.example, entry.node(row)
                for plugin in self._moving if matrix.node_ok.item(entry.index, row) else self._kept:
                    status = plugin.filter(state, pod, node)
                    if not status.ok:
                        number = reasons.number_by(status, plugin.name)
                        break
        reasons.update_one(row, number)

    def _explain(self, rows: Rows | None, reasons: Reasons) -> None:
        """The first filter that rejects a node gives its status (FWK-R17). `rows`: None for all in use."""
        columns, allowed = self._columns, self._entry.rules.allowed
        batch, index = Batch(columns, rows), self._entry.index
        numbers = np.zeros(batch.size, np.int32)
        open_ = batch.pick(columns.known) & (batch.pick(self._matrix.key[index]) < 0)
        if allowed is not None:
            left_out = open_ & ~np.fromiter((columns.names[row] in allowed for row in batch.rows), np.bool_, batch.size)
            numbers[left_out] = reasons.number(outside(self._entry.rules.allowed_by))
            open_ &= ~left_out
        passed = self._entry.rules.node_filters if (batch.pick(self._matrix.node_ok[index]) | ~open_).all() else ()
        for plugin in self._kept:
            if plugin not in passed and open_.any():
                self._explain_by(plugin, batch, open_, numbers, reasons)
        reasons.update(slice(batch.size) if rows is None else rows, numbers)

    def _explain_by(
        self, plugin: Filter, batch: Batch, open_: Bools, numbers: NDArray[np.int32], reasons: Reasons
    ) -> None:
        """Write the codes of nodes that `plugin` rejects to `numbers`, [node], and clear them in `open_`."""
        if plugin not in self._stacks:
            self._stacks[plugin] = self._entry.stack(plugin, [self._entry.state])
        stacked = self._stacks[plugin]
        reasons_batch = (
            plugin.reasons_batch(stacked, batch) if stacked is not None and isinstance(plugin, FilterBatch) else None
        )
        if reasons_batch is not None:
            codes, statuses = reasons_batch
            codes = np.where(open_, codes, 0)
            for code in np.flatnonzero(np.bincount(codes)).tolist():
                if code:
                    numbers[codes == code] = reasons.number_by(statuses(code), plugin.name)
            open_ &= codes == 0
            return
        for index in np.flatnonzero(open_).tolist():
            status = plugin.filter(
                self._entry.state, self._entry.pod_class.example, self._entry.node(int(batch.rows[index]))
            )
            if not status.ok:
                numbers[index] = reasons.number_by(status, plugin.name)
                open_[index] = False
