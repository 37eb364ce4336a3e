"""Verdicts on all nodes for classes of pods that the same plugins judge, one class a line.

`key` is what a decision takes the largest of: total score above, tie-break below, -1 where a node is not feasible.
Beside it is kept what it is made of, so that each part is worked out again only when it has changed: what the node
object alone says (`node_ok`, `node_total`), what the pods on it say (`moving`), and the raw values of scores that are
normalised over all feasible nodes (`raw`, with the `limits` that normalising depends on).

Lines in step are judged together: NumPy's cost is by the call, and thirty classes cost little more than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints, NodeColumns, Rows
from scheduler.framework.nodeinfo import NodeInfo
from scheduler.framework.points import Filter, FilterColumns, Normalizer, Score, ScoreColumns
from scheduler.framework.rules import ClassRules
from scheduler.framework.state import CycleState

if TYPE_CHECKING:
    from scheduler.framework.verdicts import ClassVerdicts

NOT_FEASIBLE = -1
_FIRST_LINES = 4
_IDLE_VISITS = 8  # a line that was not asked for in so many visits for each line is judged on its own when it is


@dataclass(slots=True)
class _Stacked:
    """Some lines with their plugins' parameters put together."""

    lines: list["ClassVerdicts"]
    index: NDArray[np.intp]  # [line, 1]
    filters: list[Any]
    scores: list[Any]


class Board:
    """Lines of classes with one signature."""

    def __init__(self, columns: NodeColumns, rules: ClassRules) -> None:
        self._columns = columns
        self._filters: Sequence[Filter] = rules.moving_filters
        self._scores = [*rules.moving_scores, *rules.moving_normalized]
        self._plain_count = len(rules.moving_scores)
        self._normalizers: list[Normalizer] = [_normalizer(score) for score, _ in rules.moving_normalized]
        self.joint = rules.columnar
        self._lines: list[ClassVerdicts | None] = []
        self._spare: list[int] = []
        self._visits = 0
        self._position = 0  # how much of the log the lines in step have seen
        self._together: _Stacked | None = None
        self._capacity = 0
        self._allocate(_FIRST_LINES, columns.capacity)

    def _allocate(self, lines: int, capacity: int) -> None:
        """Arrays of a new size; what was there is judged anew when it is asked for."""
        self._room = lines
        self._capacity = capacity
        self.key: Ints = np.full((lines, capacity), NOT_FEASIBLE, np.int64)
        self.node_ok: Bools = np.zeros((lines, capacity), np.bool_)
        self.node_total: Ints = np.zeros((lines, capacity), np.int64)
        self.moving: Ints = np.zeros((lines, capacity), np.int64)
        self.raw: list[Ints] = [np.full((lines, capacity), NOT_FEASIBLE, np.int64) for _ in self._normalizers]
        self.limits: list[Ints] = [np.zeros((norm.width, lines, 1), np.int64) for norm in self._normalizers]
        for line in self._lines:
            if line is not None:
                line.position = -1
        self._together = None

    # -- lines --------------------------------------------------------------------------------------------------------

    def join(self, verdicts: "ClassVerdicts") -> int:
        """Give a class its line."""
        self._together = None
        if self._spare:
            line = self._spare.pop()
            self._lines[line] = verdicts
            return line
        if len(self._lines) == self._room:
            self._allocate(self._room * 2, self._columns.capacity)
        self._lines.append(verdicts)
        return len(self._lines) - 1

    def leave(self, line: int) -> None:
        self._lines[line] = None
        self._spare.append(line)
        self._together = None

    def visit(self, verdicts: "ClassVerdicts") -> None:
        """Note that a class is in use."""
        self._visits += 1
        verdicts.visited = self._visits
        if self._capacity != self._columns.capacity:
            self._allocate(self._room, self._columns.capacity)

    def catch_up(self) -> None:
        """Bring every line in step, and in use, up to date together."""
        columns = self._columns
        rows = columns.changed_since(self._position)
        here = columns.changes
        if rows is not None and len(rows) < columns.count:
            oldest = self._visits - _IDLE_VISITS * len(self._lines)
            in_step = [
                line
                for line in self._lines
                if line is not None and line.position >= self._position and line.visited > oldest
            ]
            if in_step:
                for line in in_step:
                    line.judge_nodes()
                    line.position = here
                if self._together is None or self._together.lines != in_step:
                    self._together = self._stack(in_step)
                self._judge(self._together, np.array(rows, np.intp))
        self._position = here

    def judge(self, verdicts: "ClassVerdicts", rows: list[int] | None) -> None:
        """Judge one line, on some rows or (None) on all."""
        self._judge(self._stack([verdicts]), None if rows is None else np.array(rows, np.intp))

    def _stack(self, lines: list["ClassVerdicts"]) -> _Stacked:
        states = [line.state for line in lines]
        return _Stacked(
            lines,
            np.array([[line.line] for line in lines], np.intp),
            [plugin.stack(states) if isinstance(plugin, FilterColumns) else None for plugin in self._filters],
            [score.stack_scores(states) if isinstance(score, ScoreColumns) else None for score, _ in self._scores],
        )

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, together: _Stacked, rows: Rows | None) -> None:
        batch = Batch(self._columns, rows)
        where: Any = (together.index, batch.rows)
        ok = self.node_ok[where]
        for plugin, parameters in zip(self._filters, together.filters, strict=True):
            if self.joint:
                assert isinstance(plugin, FilterColumns)  # noqa: S101
                passing = plugin.passing(parameters, batch)
                if passing is not None:
                    ok &= passing
            else:
                self._narrow(plugin, parameters, together.lines[0], batch, ok[0])
        moving: Ints | None = None
        for (score, weight), parameters in zip(
            self._scores[: self._plain_count], together.scores[: self._plain_count], strict=True
        ):
            values = self._values(score, parameters, together.lines[0], batch, ok)
            if values is not None:
                if weight != 1:
                    values *= weight
                moving = values if moving is None else moving + values
        if moving is None:
            moving = np.zeros(ok.shape, np.int64)
        self.moving[where] = moving
        total = moving + self.node_total[where]
        for number, normalizer in enumerate(self._normalizers):
            score, weight = self._scores[self._plain_count + number]
            values = self._values(score, together.scores[self._plain_count + number], together.lines[0], batch, ok)
            raw = np.where(ok, 0 if values is None else values, NOT_FEASIBLE)
            self.raw[number][where] = raw
            limits = self.limits[number][:, together.index[:, 0]]
            total += normalizer.apply(raw, limits) * weight if weight != 1 else normalizer.apply(raw, limits)
        total <<= TIE_BITS
        total += batch.pick(self._columns.tie)
        self.key[where] = np.where(ok, total, NOT_FEASIBLE)

    def _narrow(self, plugin: Filter, parameters: Any, line: "ClassVerdicts", batch: Batch, ok: Bools) -> None:
        """Take away from `ok` what the plugin rejects, by columns if it can."""
        if isinstance(plugin, FilterColumns) and plugin.columnar(line.state):
            passing = plugin.passing(parameters, batch)
            if passing is not None:
                ok &= passing[0]
            return
        for index in np.flatnonzero(ok):
            if not plugin.filter(line.state, line.shape.example, line.node(int(batch.rows[index]))).ok:
                ok[index] = False

    def _values(self, score: Score, parameters: Any, line: "ClassVerdicts", batch: Batch, ok: Bools) -> Ints | None:
        if self.joint or (isinstance(score, ScoreColumns) and score.columnar_scores(line.state)):
            assert isinstance(score, ScoreColumns)  # noqa: S101
            return score.scores(parameters, batch)
        values = np.zeros(ok.shape, np.int64)
        for index in np.flatnonzero(ok[0]):
            values[0, index] = score.score(line.state, line.shape.example, line.node(int(batch.rows[index])))
        return values

    def patch(self, verdicts: "ClassVerdicts", row: int, node: NodeInfo) -> None:
        """Judge one line on one row the plain way; for few rows that is quicker than an array."""
        line = verdicts.line
        if not self.node_ok[line, row]:
            return
        state, pod = verdicts.state, verdicts.shape.example
        for plugin in self._filters:
            if not plugin.filter(state, pod, node).ok:
                self.key[line, row] = NOT_FEASIBLE
                for raw in self.raw:
                    raw[line, row] = NOT_FEASIBLE
                return
        self._patch_scores(state, verdicts, row, node)

    def _patch_scores(self, state: CycleState, verdicts: "ClassVerdicts", row: int, node: NodeInfo) -> None:
        line, pod = verdicts.line, verdicts.shape.example
        moving = bonus = 0
        for number, (score, weight) in enumerate(self._scores):
            value = score.score(state, pod, node)
            if number < self._plain_count:
                moving += value * weight
            else:
                number -= self._plain_count  # noqa: PLW2901
                self.raw[number][line, row] = value
                bonus += self._normalizers[number].one(value, verdicts.limits[number]) * weight
        self.moving[line, row] = moving
        total = int(self.node_total[line, row]) + moving + bonus
        self.key[line, row] = (total << TIE_BITS) + int(self._columns.tie[row])

    # -- normalising --------------------------------------------------------------------------------------------------

    def limits_now(self, line: int) -> list[tuple[int, ...]]:
        """What normalising a line depends on, as things stand."""
        count = self._columns.count
        return [norm.limits(raw[line, :count]) for norm, raw in zip(self._normalizers, self.raw, strict=True)]

    def set_limits(self, line: int, limits: list[tuple[int, ...]]) -> None:
        for kept, found in zip(self.limits, limits, strict=True):
            kept[:, line, 0] = found

    def rekey(self, line: int) -> None:
        """Put a line's keys together anew from what they are made of."""
        here = (line, slice(0, self._columns.count))
        ok = self.key[here] >= 0
        total = self.node_total[here] + self.moving[here]
        for number, normalizer in enumerate(self._normalizers):
            _, weight = self._scores[self._plain_count + number]
            total += normalizer.apply(self.raw[number][here], self.limits[number][:, line]) * weight
        total <<= TIE_BITS
        total += self._columns.tie[: self._columns.count]
        self.key[here] = np.where(ok, total, NOT_FEASIBLE)


def _normalizer(score: Score) -> Normalizer:
    assert score.normalizer is not None  # noqa: S101
    return score.normalizer
