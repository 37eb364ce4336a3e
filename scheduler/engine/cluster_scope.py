"""One cycle of a pod that plugins of scope CLUSTER concern.

Their results depend on the whole cluster, so nothing of them is kept: each plugin runs once for all nodes. The plugins
keep their own counts over nodes, so that a run costs a few passes over arrays.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints, NodeColumns, Rows
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.engine.rules import ClassRules
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import Filter, Plugin, Score
from seatrial.scheduler.framework.state import CLUSTER_SCOPED, CONCERNED_PLUGINS, SKIPPED, CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code, Status

_INFEASIBLE = -(1 << 62)


class _FilterResult:
    """The results of one filter for all rows: codes, [node], 0 where it passes, and the status for each code."""

    def __init__(self, name: str, codes: Ints, status: Callable[[int], Status]) -> None:
        self.name = name
        self.codes = codes
        self.status = status
        self.highest: int = codes.item(codes.argmax()) if len(codes) else 0  # faster than `max`


class Cycle:
    """Runs PreFilters and Filters of the concerned plugins at construction, and Scores in `add_scores`.

    `rejected`: the status of a PreFilter that rejects all nodes.
    """

    def __init__(
        self,
        columns: NodeColumns,
        rules: ClassRules,
        pod: Pod,
        state: CycleState,
        *,
        concerned: list[Plugin],
        node: Callable[[int], NodeInfo],
    ) -> None:
        self._columns = columns
        self._rules = rules
        self._pod = pod
        self._state = state
        self._node = node
        self._plugin_names = {plugin.name for plugin in concerned}
        self._results: list[_FilterResult] = []  # of filters that reject some nodes
        self.rejected: Status | None = None
        self._allowed: frozenset[str] | None = None
        state[CLUSTER_SCOPED] = True
        state[CONCERNED_PLUGINS] = tuple(concerned)
        state[SKIPPED] = state[SKIPPED] - self._plugin_names
        self._pre_filter()
        if self.rejected is None:
            everything = Batch(columns, None)
            for plugin in rules.cluster_filters:
                if plugin.name not in state[SKIPPED]:
                    self._add(self._judged(plugin, everything))

    def _pre_filter(self) -> None:
        skipped: set[str] = set()
        allowed: frozenset[str] | None = None
        allowed_by: list[str] = []
        for plugin in self._rules.cluster_pre_filters:
            if plugin.name not in self._plugin_names:
                continue
            status = plugin.pre_filter(self._state, self._pod)
            if status.skipped:
                skipped.add(plugin.name)
            elif not status.ok:
                self.rejected = status.by(plugin.name)
                return
            elif status.nodes is not None:
                allowed = status.nodes if allowed is None else allowed & status.nodes
                allowed_by.append(plugin.name)
        self._state[SKIPPED] = self._state[SKIPPED] | skipped
        self._allowed = allowed
        if allowed is not None:
            names, left_over = self._columns.names, allowed
            codes = np.fromiter((name not in left_over for name in names), np.int64, self._columns.count)
            status = outside(allowed_by)
            self._add(_FilterResult("", codes, lambda _: status))

    def _add(self, result: _FilterResult) -> None:
        if result.highest:
            self._results.append(result)

    def _judged(self, plugin: Filter, batch: Batch) -> _FilterResult:
        if isinstance(plugin, FilterBatch) and plugin.can_batch(self._state):
            reasons_batch = plugin.reasons_batch(plugin.stack([self._state]), batch)
            if reasons_batch is not None:
                return _FilterResult(plugin.name, *reasons_batch)
        statuses = [SUCCESS]
        codes = np.zeros(batch.size, np.int64)
        for row in np.flatnonzero(batch.pick(self._columns.known)).tolist():
            status = plugin.filter(self._state, self._pod, self._node(row))
            if not status.ok:
                codes[row] = len(statuses)
                statuses.append(status)
        return _FilterResult(plugin.name, codes, statuses.__getitem__)

    def allows(self, name: str) -> bool:
        """Whether the PreFilters left that node."""
        return self._allowed is None or name in self._allowed

    def error(self, key: Ints) -> Status | None:
        """The first error of a filter for a node that is feasible otherwise: it ends the pod's attempt, as upstream."""
        for result in self._results:
            for code in range(1, result.highest + 1):
                status = result.status(code)
                if status.code is Code.ERROR and ((result.codes == code) & (key >= 0)).any():
                    return status.by(result.name)
        return None

    def narrowed(self, key: Ints) -> Ints:
        """A copy of `key` [node] in which the nodes that these plugins reject are infeasible."""
        key = key.copy()
        for result in self._results:
            np.putmask(key, result.codes != 0, _INFEASIBLE)
        return key

    def add_scores(self, key: Ints) -> tuple[Rows | None, list[tuple[str, int, Ints, Ints]]]:
        """Add weighted scores to the feasible nodes of `key`, [node].

        Returns their rows, None where no plugin scores, and by plugin weight, raw and normalized scores.
        """
        rows, added = None, list[tuple[str, int, Ints, Ints]]()
        for plugin, weight in self._rules.cluster_scores:
            if plugin.name not in self._plugin_names or not plugin.pre_score(self._state, self._pod):
                continue
            if rows is None:
                rows = np.flatnonzero(key >= 0)
            raw = self._raw(plugin, Batch(self._columns, rows))
            if raw is None:
                continue
            normal = plugin.normalize(self._state, raw)
            added.append((plugin.name, weight, raw, normal))
            if len(rows) == len(key):
                key += normal * weight << TIE_BITS
            else:
                key[rows] += normal * weight << TIE_BITS
        return rows, added

    def _raw(self, plugin: Score, batch: Batch) -> Ints | None:
        if isinstance(plugin, ScoreBatch) and plugin.can_batch_scores(self._state):
            scores = plugin.score_batch(plugin.stack_scores([self._state]), batch)
            return None if scores is None else scores[0]
        nodes = [self._node(int(row)) for row in batch.rows]
        plugin.survey(self._state, self._pod, nodes)
        return np.fromiter((plugin.score(self._state, self._pod, node) for node in nodes), np.int64, batch.size)

    def overrides(self, order: Mapping[str, int], kept: Callable[[int], Status], known: Bools) -> dict[int, Status]:
        """Statuses of rows where one of these plugins is the first to reject, by position in `order` (FWK-R17).

        `kept`: the status of the other plugins for a row.
        """
        statuses: dict[int, Status] = {}
        for result in self._results:
            place = order.get(result.name, -1)
            signed: dict[int, Status] = {}
            for row in np.flatnonzero(result.codes).tolist():
                if row in statuses or not known[row]:
                    continue
                other = kept(row)
                if not other.ok and order.get(other.plugin, -1) < place:
                    continue
                code = int(result.codes[row])
                if code not in signed:
                    signed[code] = result.status(code).by(result.name)
                statuses[row] = signed[code]
        return statuses


def outside(plugins: Iterable[str]) -> Status:
    """The status of nodes that a PreFilter excluded (FWK-R13)."""
    return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]")
