"""One class of pods against all nodes: which is best, and if none will do, why.

What can be kept is kept on a `Board` and brought up to date row by row. Plugins whose verdict depends on the whole
cluster are asked again in each cycle, for the nodes that passed the others.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.classes import PodClass
from scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints, Rows
from scheduler.cache.pins import pin_of
from scheduler.framework.board import NOT_FEASIBLE, Board, signature
from scheduler.framework.clusterwide import Cycle, outside
from scheduler.framework.facets import faceted
from scheduler.framework.failure import FitError, Reasons
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.nodescores import NodeScore
from scheduler.framework.points import Filter, FilterColumns, Plugin, Score, ScoreColumns, Transformer, VictimAware
from scheduler.framework.restored import RESTORED, enter, restore
from scheduler.framework.rules import ClassRules, Weighted
from scheduler.framework.state import CycleState
from scheduler.framework.status import Status

if TYPE_CHECKING:
    from scheduler.framework.runner import Runner

FEW = 4  # up to so many changed nodes are judged one by one
_NOTHING: dict[int, Status] = {}


class ClassVerdicts:
    """Verdicts of one profile on one class of pods."""

    def __init__(self, runner: "Runner", shape: PodClass, rules: ClassRules, board: Board | None) -> None:
        """`board` is None if the rules reject the class as such."""
        self.shape = shape
        self.state = rules.state
        self.position = -1  # how much of the board's log has been taken in; -1: nothing
        self.synced = -1  # up to which of the board's joint judgements its line is in step with the others
        self.visited = 0
        self.highest = [0] * len(rules.moving_normalized)  # the largest raw scores that its keys are normalised by
        self.tops = [-1] * len(self.highest)  # a row that has it; -1: to be looked for, -2: there is none
        self.raised = 0
        self.faceted = faceted(rules)
        self.salt = runner.handle.columns.ties.salt(shape.digest)
        self.rules = rules
        self.signature = signature(rules) if board is not None else ()
        self._runner = runner
        self._handle = runner.handle
        self._columns = runner.handle.columns
        self._static_position = 0
        self._plain_node_scores: list[Weighted] = [item for item in rules.node_scores if item[0].normalizer is None]
        self._node_scores = [NodeScore(*item) for item in rules.node_scores if item[0].normalizer is not None]
        self._versioned = rules.versioned
        self._versions = [-1] * len(self._versioned)
        self._versions_at = -1  # how long the log of node objects was when they were asked
        self._kept_filters = {*rules.node_filters, *rules.moving_filters}
        self._stacks: dict[Filter, object] = {}  # for `_explain_by`
        self._asked_always = [plugin.concerns for plugin in rules.cluster_wide if not plugin.only_volumes]
        self._asked_of_volumes = [plugin.concerns for plugin in rules.cluster_wide if plugin.only_volumes]
        self._seeing = [one for one in runner.profile.all if isinstance(one, (Transformer, VictimAware))]
        self._pinned_by = [plugin.name for plugin in runner.pre_filters if plugin.honours_pins]
        self._reasons: Reasons | None = None
        self._reasons_position = -1
        self.board = board
        self.line = board.join(self) if board is not None else -1
        self.raw_numbers = board.numbers(rules) if board is not None else []

    @property
    def rejected(self) -> Status | None:
        return self.rules.rejected

    @property
    def key(self) -> Ints:
        """The class's line on the board, rows in use only."""
        assert self.board is not None  # noqa: S101
        return self.board.key[self.line, : self._columns.count]

    def node(self, row: int) -> NodeInfo:
        return self._handle.cache.nodes[self._columns.names[row]]

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what changed since the last time; keys of nodes that pods came to may stay bounds."""
        board, columns = self.board, self._columns
        if board is None or not columns.count:
            return
        if not self.faceted or board.pending or board.capacity != columns.capacity:
            board.visit(self)
        if self._versions_at != len(columns.static_log):
            self._versions_at = len(columns.static_log)
            for number, plugin in enumerate(self._versioned):
                version = plugin.version
                if version != self._versions[number]:
                    self._versions[number], self.position = version, -1
        position, self.position = self.position, board.end
        if position != self.position:
            changed = board.opened_since(position) if position >= 0 else None
            if changed is None:
                self.judge_nodes(everything=True)
                board.judge(self, None)
            else:
                self.judge_nodes()
                if len(changed) <= FEW:
                    for row in changed:
                        if columns.known[row]:
                            board.patch(self, row, self.node(row))
                        else:
                            board.judge(self, np.array([row], np.intp))
                else:
                    board.judge(self, np.array(changed, np.intp))
        stale = bool(self.highest) and board.normalize(self)
        for kept in self._node_scores:
            if kept.raw is not None and self._normalize_by_node(kept, kept.raw[: columns.count], board):
                stale = True
        if stale:  # what normalising depends on has changed
            board.rekey(self)

    def judge_nodes(self, *, everything: bool = False) -> None:
        """Take in which node objects changed."""
        log = self._columns.static_log
        position, self._static_position = self._static_position, len(log)
        if everything:
            self._judge_nodes(None)
        elif position < len(log):
            self._judge_nodes(np.array(sorted(set(log[position:])), np.intp))

    def _judge_nodes(self, rows: Rows | None) -> None:
        board, columns, rules = self.board, self._columns, self.rules
        assert board is not None  # noqa: S101
        batch = Batch(columns, rows)
        states = [self.state]
        ok = batch.pick(columns.known)[None].copy()
        if rules.allowed is not None:
            names, allowed = columns.names, rules.allowed
            ok &= np.fromiter((names[row] in allowed for row in batch.rows), np.bool_, batch.size)
        for plugin in rules.node_filters:
            self.narrow(plugin, self.stack(plugin, states), batch, ok)
        total = np.zeros((1, batch.size), np.int64)
        for score, weight in self._plain_node_scores:
            values = self.values(score, self.stack_scores(score, states), batch, ok)
            if values is not None:
                total += values * weight
        for kept in self._node_scores:
            values = self.values(kept.score, self.stack_scores(kept.score, states), batch, ok)
            kept.keep(values, batch, everything=rows is None)
            if kept.raw is not None:
                if rows is None:
                    kept.highest = int(kept.raw.max())
                total += kept.normal(batch.pick(kept.raw)) * kept.weight
        board.node_ok[self.line, batch.rows] = ok[0]
        board.node_total[self.line, batch.rows] = total[0]

    def stack(self, plugin: Filter, states: list[CycleState]) -> object:
        """What `narrow` needs to know of these classes to ask them of `plugin` together."""
        return plugin.stack(states) if isinstance(plugin, FilterColumns) and plugin.columnar(self.state) else None

    def stack_scores(self, score: Score, states: list[CycleState]) -> object:
        return (
            score.stack_scores(states)
            if isinstance(score, ScoreColumns) and score.columnar_scores(self.state)
            else None
        )

    def narrow(self, plugin: Filter, stacked: object, batch: Batch, ok: Bools) -> None:
        """Take away from `ok` [class, row] what the plugin rejects; without `stacked`, node by node for this class."""
        if stacked is not None:
            assert isinstance(plugin, FilterColumns)  # noqa: S101
            passing = plugin.passing(stacked, batch)
            if passing is not None:
                ok &= passing
            return
        for index in np.flatnonzero(ok[0]):
            if not plugin.filter(self.state, self.shape.example, self.node(int(batch.rows[index]))).ok:
                ok[0, index] = False

    def values(self, score: Score, stacked: object, batch: Batch, ok: Bools) -> Ints | None:
        """A score for the rows that are `ok`, [class, row]; None if it is 0 for all of them."""
        if stacked is not None:
            assert isinstance(score, ScoreColumns)  # noqa: S101
            return score.scores(stacked, batch)
        values = np.zeros((1, batch.size), np.int64)
        for index in np.flatnonzero(ok[0]):
            values[0, index] = score.score(self.state, self.shape.example, self.node(int(batch.rows[index])))
        return values

    def _normalize_by_node(self, kept: NodeScore, raw: Ints, board: Board) -> bool:
        """`Board.normalize` for a score by the node object."""
        board.settle(self)  # which nodes are feasible matters here, not only which is best
        highest = int(np.where(self.key >= 0, raw, 0).max())
        if highest == kept.highest:
            return False
        before = kept.normal(raw)
        kept.highest = highest
        board.node_total[self.line, : self._columns.count] += (kept.normal(raw) - before)[0] * kept.weight
        return True

    # -- deciding -----------------------------------------------------------------------------------------------------

    @property
    def feasible(self) -> bool:
        """Whether some node passes all that is kept here; call `refresh` first."""
        return self.board is not None and self._columns.count > 0 and self.board.best(self) >= 0

    def feasible_for(self, info: PodInfo) -> bool:
        """Whether some node would take this very pod, nominated ones aside; call `refresh` first."""
        concerned, pin = self._concerned(info), self._pin(info)
        if not self.feasible and not any(isinstance(plugin, Transformer) for plugin in concerned):
            return False
        if not concerned and pin is None:
            return True
        board = self.board
        assert board is not None  # noqa: S101
        key = self.key
        if pin is not None:
            board.settle(self)
            key = pinned_key(key, pin)
            if key.max() < 0:
                return False
        if not concerned:
            return True
        state = self.state.fork()
        cycle = self._cycle(info, state, concerned)
        if cycle.rejected is not None:
            return False
        key = cycle.narrowed(self.key)
        self._see(info, state, cycle, key)
        return bool((key if pin is None else pinned_key(key, pin)).max() >= 0)

    def select(self, info: PodInfo) -> "tuple[int, CycleState] | FitError":
        """The best row for this pod with the state of its cycle, or why there is none."""
        board = self.board
        if board is None:
            return FitError(self._handle.cache.known_count, pre_filter=self.rejected)
        self.refresh()
        if not self._columns.count:
            return FitError(0)
        state = self.state.fork()
        pod = info.pod
        for concerns in self._asked_always:
            if concerns(pod):  # about most pods none has anything to say
                return self._select_cluster_wide(info, state, self._concerned(info))
        if pod.spec.volumes:
            for concerns in self._asked_of_volumes:
                if concerns(pod):
                    return self._select_cluster_wide(info, state, self._concerned(info))
        if pod.spec.affinity is not None:
            pin = self._pin(info)
            if pin is not None:
                return self._select_pinned(info, state, pin)
        if self._handle.nominator.nominated:
            board.settle(self)
            return self._select_past_nominated(info, state, self.key)
        row = board.best(self)
        return (row, state) if row >= 0 else self._failure(_NOTHING)

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
                crowded = {
                    row: self._check_row(state, info, row) for row in taken - overrides.keys() if self._allowed(row)
                }
                return self._failure(crowded | overrides)
            if row not in taken:
                return row, state
            status = self._check_row(state, info, row)
            if status.ok:
                return row, state
            if not overrides:
                key = key.copy()
            overrides[row] = status
            key[row] = NOT_FEASIBLE

    def _pin(self, info: PodInfo) -> list[int] | None:
        """The rows of the nodes that the pod names, ascending; None if it may go to any."""
        pin = pin_of(info.pod) if self._pinned_by else None
        if pin is None:
            return None
        rows = self._columns.rows
        return sorted(rows[name] for name in pin if name in rows)

    def _select_pinned(self, info: PodInfo, state: CycleState, pin: list[int]) -> "tuple[int, CycleState] | FitError":
        """The best of the nodes that the pod names: looked up, not looked for."""
        assert self.board is not None  # noqa: S101
        self.board.settle(self)
        key = pinned_key(self.key, pin)
        if key.max() >= 0:
            self._normalize_anew(key, info, state)
        found = self._select_past_nominated(info, state, key)
        return self._failure(self._outside(pin, found.overrides)) if isinstance(found, FitError) else found

    def _outside(self, pin: list[int], overrides: Mapping[int, Status]) -> dict[int, Status]:
        """Statuses by row: the nodes that a pod does not name were never an option, the others are as they are."""
        elsewhere = self._columns.known.copy()
        elsewhere[pin] = False
        rows = np.flatnonzero(elsewhere).tolist()
        return {**overrides, **dict.fromkeys(rows, outside({*self.rules.allowed_by, *self._pinned_by}))}

    def _concerned(self, info: PodInfo) -> list[Plugin]:
        """The plugins of scope CLUSTER that have something to say about this pod."""
        return [plugin for plugin in self.rules.cluster_wide if plugin.concerns(info.pod)]

    def _cycle(self, info: PodInfo, state: CycleState, concerned: list[Plugin]) -> Cycle:
        """Ask these plugins about all nodes; every key of the line is exact afterwards."""
        assert self.board is not None  # noqa: S101
        self.board.settle(self)
        return Cycle(self._columns, self.rules, info.pod, state, concerned=concerned, node=self.node)

    def _select_cluster_wide(
        self, info: PodInfo, state: CycleState, concerned: list[Plugin]
    ) -> "tuple[int, CycleState] | FitError":
        cycle = self._cycle(info, state, concerned)
        if cycle.rejected is not None:
            return FitError(self._handle.cache.known_count, pre_filter=cycle.rejected, state=state)
        key, pin = cycle.narrowed(self.key), self._pin(info)
        rejected = self._see(info, state, cycle, key)
        if pin is not None:
            key = pinned_key(key, pin)
        rejected |= self._crowded(info, state, key)
        if key.max() >= 0:
            self._normalize_anew(key, info, state)
            cycle.add_scores(key)
        found = self._select_past_nominated(info, state, key)
        if not isinstance(found, FitError):
            return found[0], enter(self._runner.profile.all, state, info.pod, self._columns.names[found[0]])
        order = {plugin.name: number for number, plugin in enumerate(self._runner.filters)}
        names = self._columns.names
        crowded = {row: status for row, status in found.overrides.items() if cycle.allows(names[row])}
        overrides = {**cycle.overrides(order, found.kept, self._columns.known), **rejected, **crowded}
        return self._failure(overrides if pin is None else self._outside(pin, overrides), state)

    def _see(self, info: PodInfo, state: CycleState, cycle: Cycle, key: Ints) -> dict[int, Status]:
        """Judge the nodes that this pod sees otherwise; their keys, without what is normalised, go into `key`.

        Returns why the others of them are no option, by row.
        """
        restore(self._handle, state, info, self._seeing)
        restored = state.get(RESTORED)
        rejected: dict[int, Status] = {}
        if restored is None:
            return rejected
        board, columns = self.board, self._columns
        assert board is not None  # noqa: S101
        for name, seen in restored.nodes.items():
            row = columns.rows[name]
            if not (self._allowed(row) and cycle.allows(name)):
                continue
            status = self._runner.check(restored.state, info.pod, seen)
            if status.ok:
                total = int(board.node_total[self.line, row])
                for score, weight in self.rules.moving_scores:
                    total += score.score(restored.state, info.pod, seen) * weight
                key[row] = (max(total, 0) << TIE_BITS) + (int(columns.tie[row]) ^ self.salt)
            else:
                key[row] = NOT_FEASIBLE
                rejected[row] = status
        return rejected

    def _crowded(self, info: PodInfo, state: CycleState, key: Ints) -> dict[int, Status]:
        """Take from `key` the nodes that nominated pods fill: what is scored is scored among those that are left."""
        rows, rejected = self._columns.rows, dict[int, Status]()
        for row in {rows[node] for node in self._handle.nominator.nodes() if node in rows}:
            if key[row] >= 0:
                status = self._check_row(state, info, row)
                if not status.ok:
                    key[row] = NOT_FEASIBLE
                    rejected[row] = status
        return rejected

    def _normalize_anew(self, key: Ints, info: PodInfo, state: CycleState) -> None:
        """Scores were normalised over nodes some of which are out now: do it again over those that are left."""
        board = self.board
        assert board is not None  # noqa: S101
        rows: Rows | None = None
        restored = state.get(RESTORED)
        moving = len(self._node_scores)
        scored = [(kept.score, kept.weight, kept.raw, kept.highest) for kept in self._node_scores]
        scored += [
            (score, weight, board.raw[number][self.line], self.highest[order])
            for order, (number, (score, weight)) in enumerate(
                zip(self.raw_numbers, self.rules.moving_normalized, strict=True)
            )
        ]
        for number, (score, weight, all_raw, before) in enumerate(scored):
            if all_raw is None or (restored is None and number >= moving and self._keeps_top(number - moving, key)):
                continue
            rows = np.flatnonzero(key >= 0) if rows is None else rows
            raw = all_raw[rows]
            anew = list[int]()
            if restored is not None and number >= moving:
                names = [self._columns.names[row] for row in rows]
                anew = [place for place, name in enumerate(names) if name in restored.nodes]
                raw[anew] = [score.score(restored.state, info.pod, restored.nodes[names[place]]) for place in anew]
            highest = int(raw.max())
            if anew or highest != before:
                assert score.normalizer is not None  # noqa: S101
                now, then = (score.normalizer.apply(raw[None], np.full((1, 1), top))[0] for top in (highest, before))
                then[anew] = 0
                key[rows] += (now - then) * weight << TIE_BITS

    def _keeps_top(self, order: int, key: Ints) -> bool:
        """Whether the node with the largest of some raw scores is still an option."""
        top = self.tops[order] if self.faceted else -1
        return top >= 0 and bool(key[top] >= 0)

    def _allowed(self, row: int) -> bool:
        allowed = self.rules.allowed
        return bool(self._columns.known[row]) and (allowed is None or self._columns.names[row] in allowed)

    def _check_row(self, state: CycleState, info: PodInfo, row: int) -> Status:
        return self._runner.check_with_nominated(state, info, self.node(row))

    # -- explaining ---------------------------------------------------------------------------------------------------

    def _failure(self, overrides: dict[int, Status], state: CycleState | None = None) -> FitError:
        return FitError(self._handle.cache.known_count, reasons=self._reasons_now(), overrides=overrides, state=state)

    def _reasons_now(self) -> Reasons:
        """Each row's status, worked out for rows that changed since this class last failed."""
        columns = self._columns
        assert self.board is not None  # noqa: S101
        self.board.settle(self)
        if self._reasons is None:
            self._reasons = Reasons()
        self._reasons.fit(columns.capacity)
        changed = columns.changed_since(self._reasons_position) if self._reasons_position >= 0 else None
        self._reasons_position = columns.changes
        if changed is None:
            self._explain(np.arange(columns.count), self._reasons)
        elif changed:
            self._explain(np.array(changed, np.intp), self._reasons)
        return self._reasons

    def _explain(self, rows: Rows, reasons: Reasons) -> None:
        """The first filter that rejects a node gives its status (FWK-R17)."""
        columns, allowed = self._columns, self.rules.allowed
        numbers = np.zeros(len(rows), np.int32)
        open_ = columns.known[rows] & (self.key[rows] < 0)
        if allowed is not None:
            left_out = open_ & ~np.fromiter((columns.names[row] in allowed for row in rows), np.bool_, len(rows))
            numbers[left_out] = reasons.number(outside(self.rules.allowed_by))
            open_ &= ~left_out
        batch = Batch(columns, rows)
        assert self.board is not None  # noqa: S101
        passed = self.rules.node_filters if self.board.node_ok[self.line, rows][open_].all() else ()
        for plugin in self._runner.filters:
            if plugin in self._kept_filters and plugin not in passed and open_.any():
                self._explain_by(plugin, batch, open_, numbers, reasons)
        reasons.update(rows, numbers)

    def _explain_by(
        self, plugin: Filter, batch: Batch, open_: Bools, numbers: NDArray[np.int32], reasons: Reasons
    ) -> None:
        """Number the nodes that `plugin` rejects among those still `open_`, and close them."""
        if plugin not in self._stacks:
            self._stacks[plugin] = self.stack(plugin, [self.state])
        stacked = self._stacks[plugin]
        found = plugin.rejections(stacked, batch) if stacked is not None and isinstance(plugin, FilterColumns) else None
        if found is not None:
            codes, statuses = found
            codes = np.where(open_, codes, 0)
            for code in np.flatnonzero(np.bincount(codes)).tolist():
                if code:
                    numbers[codes == code] = reasons.number(statuses(code).by(plugin.name))
            open_ &= codes == 0
            return
        for index in np.flatnonzero(open_).tolist():
            status = plugin.filter(self.state, self.shape.example, self.node(int(batch.rows[index])))
            if not status.ok:
                numbers[index] = reasons.number(status.by(plugin.name))
                open_[index] = False


def pinned_key(key: Ints, rows: list[int]) -> Ints:
    """A copy of `key` [row] in which no other row is an option."""
    pinned = np.full_like(key, NOT_FEASIBLE)
    pinned[rows] = key[rows]
    return pinned
