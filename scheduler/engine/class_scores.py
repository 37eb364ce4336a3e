"""The results of one profile for one equivalence class on all nodes, kept up to date.

`ClassScores` updates the class's part of a `ScoreMatrix`. `selection`, `normalization` and `reasons` hold what is done
with it. Plugins of scope CLUSTER run again in each cycle, for the nodes that passed the other plugins.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Batch, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.normalization import ClassNormalizer
from seatrial.scheduler.engine.plugin_runner import PluginRunner
from seatrial.scheduler.engine.reasons import ReasonCollector
from seatrial.scheduler.engine.rules import ClassRules
from seatrial.scheduler.engine.score_matrix import ScoreMatrix
from seatrial.scheduler.engine.selection import Selector
from seatrial.scheduler.framework.extension_points import Filter, Plugin
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status

SINGLE_NODES_THRESHOLD = 4  # up to this many changed nodes are judged one by one


class ClassScores:
    """Results of one profile for one class."""

    def __init__(
        self, runner: PluginRunner, pod_class: EquivalenceClass, rules: ClassRules, matrix: ScoreMatrix | None
    ) -> None:
        """`matrix` is None if a PreFilter rejects the class on all nodes."""
        handle = runner.handle
        self.rules = rules
        self._cache = handle.cache
        self._columns = handle.columns
        self._entry = ClassEntry(handle.cache, pod_class, rules)
        self._matrix = matrix
        self._static_position = 0
        self._versioned = rules.versioned
        self._versions = [-1] * len(self._versioned)
        self._versions_at = -1  # length of the log of node objects when versions were last read
        if matrix is not None:
            matrix.join(self._entry)
            self._normalizer = ClassNormalizer(self._entry, matrix, self._columns)
            reasons = ReasonCollector(self._entry, matrix, handle.cache, runner.filters)
            self._selector = Selector(runner, self._entry, matrix, self._normalizer, reasons)

    @property
    def state(self) -> CycleState:
        """What PreFilters of the class wrote. Cycles use a fork."""
        return self.rules.state

    @property
    def entry(self) -> ClassEntry:
        return self._entry

    @property
    def matrix(self) -> ScoreMatrix | None:
        """None if a PreFilter rejects the class on all nodes."""
        return self._matrix

    @property
    def key(self) -> Ints:
        """Keys of this class, [node], as a view: total score and tie; negative where the class does not fit."""
        assert self._matrix is not None
        return self._matrix.key[self._entry.index, : self._columns.count]

    @property
    def node_pods_filters(self) -> Sequence[Filter]:
        """The filters of scope NODE_PODS that matter to the class."""
        return self.rules.node_pods_filters

    @property
    def cluster_filters(self) -> Sequence[Filter]:
        """The filters of scope CLUSTER that may matter to pods of the class."""
        return self.rules.cluster_filters

    @property
    def versioned(self) -> Sequence[Plugin]:
        """Plugins of scope NODE whose results for all nodes can become stale at once (`Plugin.version`)."""
        return self._versioned

    def node(self, row: int) -> NodeInfo:
        return self._entry.node(row)

    def admits(self, row: int) -> bool:
        """Whether the filters of scope NODE pass the node, so that the pods on it decide."""
        return self._matrix is not None and bool(self._matrix.node_ok[self._entry.index, row])

    def leave(self) -> None:
        """Give the class's index in the matrix back. From then on the object has no feasible node."""
        if self._matrix is not None:
            self._matrix.leave(self._entry.index)
            self._matrix = None

    @property
    def feasible(self) -> bool:
        """Whether some node passes all filters whose results are kept. Call `refresh` first."""
        return self._matrix is not None and self._selector.feasible

    def feasible_for(self, info: PodInfo) -> bool:
        """Whether some node is feasible for this pod, without nominated pods. Call `refresh` first."""
        return self._matrix is not None and self._selector.feasible_for(info)

    def select(self, info: PodInfo) -> tuple[int, CycleState] | FitError:
        """The best row for this pod with the state of its cycle, or why there is none."""
        if self._matrix is None:
            return FitError(self._cache.known_count, pre_filter=self.rules.rejected)
        self.refresh()
        if not self._columns.count:
            return FitError(0)
        return self._selector.select(info)

    def select_within(self, info: PodInfo, rows: Sequence[int], by: str) -> tuple[int, CycleState] | FitError:
        """The best of these rows, ascending, for this pod, or why there is none; `by`: the plugin that left them."""
        if self._matrix is None:
            return FitError(self._cache.known_count, pre_filter=self.rules.rejected)
        self.refresh()
        if not self._columns.count:
            return FitError(0)
        return self._selector.select_within(info, rows, by)

    def exact_key(self) -> Ints:
        """The keys of this class, [node], all of them exact. A view."""
        assert self._matrix is not None
        self.refresh()
        self._matrix.settle(self._entry)
        return self.key

    def rejection(self, overrides: Mapping[int, Status]) -> FitError:
        """The statuses of all infeasible nodes; those of `overrides` replace them."""
        if self._matrix is None or not self._columns.count:
            return FitError(self._cache.known_count, pre_filter=self.rules.rejected)
        return self._selector.rejection(overrides)

    # -- updating -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the changes since the last call. Keys of nodes with new pods may stay bounds."""
        matrix, columns = self._matrix, self._columns
        if matrix is None or not columns.count:
            return
        if not self._entry.uses_signatures or matrix.pending or matrix.capacity != columns.capacity:
            matrix.visit(self._entry)
        if self._versions_at != columns.static_changes:
            self._versions_at = columns.static_changes
            for number, plugin in enumerate(self._versioned):
                version = plugin.version
                if version != self._versions[number]:
                    self._versions[number], self._entry.position = version, -1
        position, self._entry.position = self._entry.position, matrix.log.end
        if position != self._entry.position:
            changed = matrix.opened_since(position) if position >= 0 else None
            if changed is None:
                self.judge_nodes(everything=True)
                self._entry.revisions = [score.revision for score, _ in self._entry.revised]
                matrix.judge(self._entry, None)
            else:
                self.judge_nodes()
                if len(changed) <= SINGLE_NODES_THRESHOLD:
                    for row in changed:
                        if columns.known[row]:
                            matrix.patch(self._entry, row, self._entry.node(row))
                        else:
                            matrix.judge(self._entry, np.array([row], np.intp))
                else:
                    matrix.judge(self._entry, np.array(changed, np.intp))
        if self._entry.revised:
            self._revise(matrix)
        if self._normalizer.update():
            matrix.rekey(self._entry)

    def _revise(self, matrix: ScoreMatrix) -> None:
        """Score the nodes again with plugins whose scores changed on all of them."""
        entry = self._entry
        for number, (score, weight) in enumerate(entry.revised):
            before, entry.revisions[number] = entry.revisions[number], score.revision
            if before == entry.revisions[number]:
                continue
            if entry.uses_signatures:
                matrix.rescore(entry, score, weight, score.revised_rows(before) if before >= 0 else None)
            else:
                matrix.rekey(entry)

    def judge_nodes(self, *, everything: bool = False) -> None:
        """Run the plugins of scope NODE for node objects that changed."""
        columns = self._columns
        position, self._static_position = self._static_position, columns.static_changes
        if everything:
            self._judge_nodes(None)
        elif position < columns.static_changes:
            self._judge_nodes(np.array(sorted(columns.static_changed_since(position)), np.intp))

    def _judge_nodes(self, rows: Rows | None) -> None:
        matrix, columns, rules = self._matrix, self._columns, self.rules
        assert matrix is not None
        batch = Batch(columns, rows)
        states = [self._entry.state]
        ok = batch.pick(columns.known)[None].copy()
        if rules.allowed is not None:
            names, allowed = columns.names, rules.allowed
            ok &= np.fromiter((names[row] in allowed for row in batch.rows), np.bool_, batch.size)
        for plugin in rules.node_filters:
            self._entry.narrow(plugin, self._entry.stack(plugin, states), batch, ok)
        total = np.zeros((1, batch.size), np.int64)
        for score, weight in self._normalizer.plain:
            values = self._entry.values(score, self._entry.stack_scores(score, states), batch, ok)
            if values is not None:
                total += values * weight
        for kept in self._normalizer.node_scores:
            values = self._entry.values(kept.score, self._entry.stack_scores(kept.score, states), batch, ok)
            uniform = kept.raw is None
            kept.keep(values, batch, everything=rows is None)
            if kept.raw is not None:
                if rows is None:
                    kept.highest = int(kept.raw.max())
                elif uniform:
                    self._normalizer.include(kept)
                total += kept.normal(batch.pick(kept.raw)) * kept.weight
        matrix.node_ok[self._entry.index, batch.rows] = ok[0]
        matrix.node_total[self._entry.index, batch.rows] = total[0]
