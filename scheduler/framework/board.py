"""Verdicts on all nodes for classes of pods that the same plugins judge, one class a line.

`key` is what a decision takes the largest of: total score above, tie-break below, negative where a node is no option.
Beside it stands what it is made of: what the node object alone says (`node_ok`, `node_total`), what the pods on it say
(`loose`, `exact`), and the raw values of scores that are normalised over all feasible nodes (`raw`).

When a pod comes to a node, no class is judged anew there. Most plugins say by how much at most any score on that node
can have risen (mostly: by how much at least it has fallen), the few others score it for all classes at once; the node's
keys are moved by that, and its `version` goes up. A key is exact if its line has seen the node's version (`seen`); else
it is a bound that the true key does not exceed. A decision needs the best node, not the truth about all others, so
bounds below the best stay bounds.
When one comes out on top, all lines in use are judged together on all nodes filled meanwhile: NumPy's cost is by the
call, and thirty classes on fifty nodes cost little more than one on one. Any other change is a reason to judge the node
anew, line by line.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints, NodeColumns, Rows
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import MAX_NODE_SCORE, ByMaximum, ScoreColumns
from scheduler.framework.rules import ClassRules, Weighted
from scheduler.framework.state import CycleState

if TYPE_CHECKING:
    from scheduler.framework.verdicts import ClassVerdicts

NOT_FEASIBLE = -1
_FIRST_LINES = 4
_LOG_LIMIT = 1 << 18
PADDING = 40  # lines whose distance is a power of two would share the processor's cache sets: one column, all misses
ENOUGH_PATCHES = 8  # bounds judged one by one, before all are judged together: about what that costs
MOST_FILLED = 256  # bounds get looser with every pod; after so many they are made exact in any case
IDLE_VISITS = 8  # a line that is not asked for in so many visits for each line falls out of step

Signature = tuple[Hashable, ...]


@dataclass(slots=True)
class _Stacked:
    """Some lines, with what their plugins need to know of them put together."""

    lines: list["ClassVerdicts"]
    index: NDArray[np.intp]  # [line]
    start: NDArray[np.intp]  # [line, 1], where each line starts in the flattened arrays
    filters: list[Any]
    bounded: list[Any]
    exact: list[Any]
    normalized: list[Any]


def signature(rules: ClassRules) -> Signature:
    """What classes on one board have in common: the plugins at work, and that their bounds hold for all alike."""
    scores = (*rules.moving_scores, *rules.moving_normalized)
    return (
        rules.columnar,
        *(plugin.name for plugin in rules.moving_filters),
        *((score.name, score.kind(rules.state)) for score, _ in scores),
    )


class Board:
    """Lines of classes with one signature."""

    def __init__(self, columns: NodeColumns, rules: ClassRules) -> None:
        self._columns = columns
        self._filters = rules.moving_filters
        self._bounded = [item for item in rules.moving_scores if item[0].bounded]
        self._exact = [item for item in rules.moving_scores if not item[0].bounded]
        self._normalized = rules.moving_normalized
        self._normalizers = [score.normalizer or ByMaximum() for score, _ in rules.moving_normalized]
        self._bounded_kinds = [score.kind(rules.state) for score, _ in self._bounded]
        self._normalized_kinds = [score.kind(rules.state) for score, _ in self._normalized]
        self._lines: list[ClassVerdicts | None] = []
        self._spare: list[int] = []
        self._log: list[int] = []  # rows to judge anew for every line
        self._log_start = 0
        self._filled: list[int] = []  # rows whose keys were moved by bounds since the last `_sync`
        self._syncs = 0
        self._patches = 0
        self._visits = 0
        self._together: _Stacked | None = None
        self._all: _Stacked | None = None
        self._joint = rules.columnar
        self._ever = MAX_NODE_SCORE  # the largest raw score that any line has been normalised by
        self.capacity = 0
        self._allocate(_FIRST_LINES, columns.capacity)

    def _allocate(self, lines: int, capacity: int) -> None:
        """Arrays of a new size; what was there is judged anew when it is asked for."""
        self._room = lines
        self.capacity = capacity
        width = self._width = capacity + PADDING
        self.key: Ints = np.full((lines, width), NOT_FEASIBLE, np.int64)
        self.node_ok: Bools = np.zeros((lines, width), np.bool_)
        self.node_total: Ints = np.zeros((lines, width), np.int64)
        self.loose: Ints = np.zeros((lines, width), np.int64)
        self.exact: Ints = np.zeros((lines, width), np.int64)
        self.raw: list[Ints] = [np.full((lines, width), NOT_FEASIBLE, np.int64) for _ in self._normalizers]
        self.highest: list[Ints] = [np.zeros((lines, 1), np.int64) for _ in self._normalizers]
        self.salt: Ints = np.zeros((lines, 1), np.int64)
        self.has_node_totals = False
        self.version: Ints = np.zeros(width, np.int64)
        self.seen: Ints = np.zeros((lines, width), np.int64)
        self._together = self._all = None
        for number, line in enumerate(self._lines):
            if line is not None:
                line.position = -1
                self.salt[number] = line.salt
                for which, highest in enumerate(line.highest):
                    self._set_highest(which, number, highest)

    # -- lines --------------------------------------------------------------------------------------------------------

    def join(self, verdicts: "ClassVerdicts") -> int:
        """Give a class its line."""
        self._all = None
        if self._spare:
            line = self._spare.pop()
            self._lines[line] = verdicts
            self.salt[line] = verdicts.salt
            return line
        self._lines.append(verdicts)
        if len(self._lines) > self._room:
            self._allocate(self._room * 2, self._columns.capacity)
        self.salt[len(self._lines) - 1] = verdicts.salt
        return len(self._lines) - 1

    def leave(self, line: int) -> None:
        self._lines[line] = None
        self._all = None
        self._spare.append(line)
        self.key[line] = NOT_FEASIBLE

    # -- changes ------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """How much has been logged since the beginning."""
        return self._log_start + len(self._log)

    def opened(self, row: int) -> None:
        """Something about a node changed that no bound is known for."""
        self._log.append(row)
        if len(self._log) > _LOG_LIMIT:
            del self._log[: _LOG_LIMIT // 2]
            self._log_start += _LOG_LIMIT // 2

    def opened_since(self, position: int) -> list[int] | None:
        """Rows to judge anew since `position`, each once; None: all of them."""
        if position < self._log_start or self.end - position > self._columns.count:
            return None
        recent = self._log[position - self._log_start :]
        return recent if len(recent) < 2 else list(dict.fromkeys(recent))

    def filled(self, row: int, node: NodeInfo, placed: PodInfo) -> None:
        """A pod came to a node: move its keys by the bounds that the plugins know."""
        if row >= self.capacity:
            self.opened(row)
            return
        if self._exact and not self._joint:
            self.opened(row)
            return
        rise = 0
        for (score, weight), kind in zip(self._bounded, self._bounded_kinds, strict=True):
            rise += score.rise(node, placed, kind) * weight
        change = rise
        raw_rises = []
        for (score, weight), kind in zip(self._normalized, self._normalized_kinds, strict=True):
            one = score.rise(node, placed, kind) if score.bounded else 1
            if one > 0:  # where a raw score rises the largest may, and with it every other node's
                self.opened(row)
                return
            raw_rises.append(one)
            change += (1 - (-one * MAX_NODE_SCORE // self._ever)) * weight if one else 0
        self.version[row] += 1
        self._filled.append(row)
        for raw, one in zip(self.raw, raw_rises, strict=True):
            if one:
                raw[:, row] += one
        if rise:
            self.loose[:, row] += rise
        key = self.key[:, row]
        if self._exact:
            changes = self._rescored(row, node)
            changes += change
            changes <<= TIE_BITS
            changes[key < 0] = 0
            key += changes
        elif change < 0:
            key += change << TIE_BITS
        elif change > 0:
            key[key >= 0] += change << TIE_BITS

    def _rescored(self, row: int, node: NodeInfo) -> Ints:
        """Score a node exactly, for all lines, where there is no bound; by how much each line's score has changed."""
        together = self._everybody()
        batch = Batch(self._columns, np.array([row], np.intp))
        total: Ints | None = None
        for (score, weight), stacked in zip(self._exact, together.exact, strict=True):
            assert isinstance(score, ScoreColumns)  # noqa: S101
            values = score.scores_on(stacked, node, batch)
            if values is not None:
                if weight != 1:
                    values *= weight
                total = values if total is None else total + values
        change = np.zeros(self._room, np.int64)
        if total is not None:
            exact = self.exact[:, row]
            if len(total) == len(exact):
                np.subtract(total, exact, out=change)
                exact[:] = total
            else:
                change[together.index] = total - exact[together.index]
                exact[together.index] = total
        return change

    def _everybody(self) -> _Stacked:
        if self._all is None:
            self._all = self._stack([line for line in self._lines if line is not None])
        return self._all

    # -- judging ------------------------------------------------------------------------------------------------------

    def judge(self, verdicts: "ClassVerdicts", rows: Rows | None) -> None:
        """Judge one line on some rows, or (None) on all."""
        self._judge(self._stack([verdicts]), rows)

    def _stack(self, lines: list["ClassVerdicts"]) -> _Stacked:
        states = [line.state for line in lines]
        alone = lines[0]
        index = np.array([line.line for line in lines], np.intp)
        return _Stacked(
            lines,
            index,
            index[:, None] * self._width,
            [alone.stack(plugin, states) for plugin in self._filters],
            [alone.stack_scores(score, states) for score, _ in self._bounded],
            [alone.stack_scores(score, states) for score, _ in self._exact],
            [alone.stack_scores(score, states) for score, _ in self._normalized],
        )

    def _judge(self, together: _Stacked, rows: Rows | None) -> None:
        batch = Batch(self._columns, rows)
        alone = together.lines[0]
        where = together.start + batch.rows  # [line, row] in the flattened arrays: NumPy is quicker with one index
        ok = self.node_ok.reshape(-1)[where]
        for plugin, stacked in zip(self._filters, together.filters, strict=True):
            alone.narrow(plugin, stacked, batch, ok)
        total = self._sum(self._bounded, together.bounded, alone, batch, ok)
        self.loose.reshape(-1)[where] = total
        if self._exact:
            exact = self._sum(self._exact, together.exact, alone, batch, ok)
            self.exact.reshape(-1)[where] = exact
            total += exact
        if self.has_node_totals:
            total += self.node_total.reshape(-1)[where]
        for number, ((score, weight), stacked) in enumerate(zip(self._normalized, together.normalized, strict=True)):
            values = alone.values(score, stacked, batch, ok)
            raw = np.where(ok, 0 if values is None else values, NOT_FEASIBLE)
            self.raw[number].reshape(-1)[where] = raw
            normal = self._normalizers[number].apply(raw, self.highest[number][together.index])
            if weight != 1:
                normal *= weight
            total += normal
        np.maximum(total, 0, out=total)  # it can fall below while what it was normalised by is out of date
        total <<= TIE_BITS
        total += batch.pick(self._columns.tie) ^ self.salt[together.index]
        self.key.reshape(-1)[where] = np.where(ok, total, NOT_FEASIBLE)
        self.seen.reshape(-1)[where] = self.version[batch.rows]

    def _sum(
        self, scores: Sequence[Weighted], stacked: list[Any], alone: "ClassVerdicts", batch: Batch, ok: Bools
    ) -> Ints:
        total: Ints | None = None
        for (score, weight), one in zip(scores, stacked, strict=True):
            values = alone.values(score, one, batch, ok)
            if values is not None:
                if weight != 1:
                    values *= weight
                total = values if total is None else np.add(total, values, out=total)
        return np.zeros(ok.shape, np.int64) if total is None else total

    def patch(self, verdicts: "ClassVerdicts", row: int, node: NodeInfo) -> None:
        """Judge one line on one row the plain way: for few rows that is quicker than arrays."""
        line, state, pod = verdicts.line, verdicts.state, verdicts.shape.example
        self.seen[line, row] = self.version[row]
        fits = bool(self.node_ok[line, row])
        for plugin in self._filters if fits else ():
            if not plugin.filter(state, pod, node).ok:
                fits = False
                break
        if not fits:
            self.key[line, row] = NOT_FEASIBLE
            for raw in self.raw:
                raw[line, row] = NOT_FEASIBLE
            return
        self._patch_scores(state, verdicts, row, node)

    def _patch_scores(self, state: CycleState, verdicts: "ClassVerdicts", row: int, node: NodeInfo) -> None:
        line, pod = verdicts.line, verdicts.shape.example
        loose = exact = 0
        for score, weight in self._bounded:
            loose += score.score(state, pod, node) * weight
        self.loose[line, row] = loose
        for score, weight in self._exact:
            exact += score.score(state, pod, node) * weight
        self.exact[line, row] = exact
        total = loose + exact + int(self.node_total[line, row])
        for number, (score, weight) in enumerate(self._normalized):
            value = score.score(state, pod, node)
            self.raw[number][line, row] = value
            total += self._normalizers[number].one(value, verdicts.highest[number]) * weight
        self.key[line, row] = (max(total, 0) << TIE_BITS) + (int(self._columns.tie[row]) ^ verdicts.salt)

    # -- normalising --------------------------------------------------------------------------------------------------

    def normalize(self, verdicts: "ClassVerdicts") -> bool:
        """Take in the largest raw scores of a line as they are now; whether one has changed."""
        line, count, changed = verdicts.line, self._columns.count, False
        for number, raws in enumerate(self.raw):
            raw = raws[line, :count]
            while True:
                top = raw.argmax()
                highest = int(raw[top])
                if highest < 0 or self.seen[line, top] == self.version[top]:
                    break
                self._resolve(verdicts, int(top))
            highest = max(highest, 0)
            if highest != verdicts.highest[number]:
                changed = True
                verdicts.highest[number] = highest
                self._set_highest(number, line, highest)
        return changed

    def _set_highest(self, number: int, line: int, highest: int) -> None:
        self.highest[number][line] = highest
        self._ever = max(self._ever, highest)

    def rekey(self, verdicts: "ClassVerdicts") -> None:
        """Put a line's keys together anew from what they are made of; bounds stay bounds."""
        here = (verdicts.line, slice(0, self._columns.count))
        ok = self.key[here] >= 0
        total = (self.node_total[here] + self.loose[here] + self.exact[here])[None]
        for (_, weight), normalizer, raws, highest in zip(
            self._normalized, self._normalizers, self.raw, self.highest, strict=True
        ):
            total += normalizer.apply(np.maximum(raws[here], 0)[None], highest[verdicts.line][None]) * weight
        np.maximum(total, 0, out=total)
        total <<= TIE_BITS
        total += self._columns.tie[: self._columns.count] ^ verdicts.salt
        self.key[here] = np.where(ok, total[0], NOT_FEASIBLE)

    def settle(self, verdicts: "ClassVerdicts") -> None:
        """Make every key of a line exact."""
        line, count = verdicts.line, self._columns.count
        rows = np.flatnonzero(self.seen[line, :count] != self.version[:count])
        if len(rows):
            self.judge(verdicts, rows)

    def best(self, verdicts: "ClassVerdicts") -> int:
        """The row with the largest true key, or -1 if no node is feasible."""
        key = self.key[verdicts.line, : self._columns.count]
        while True:
            row = int(key.argmax())
            if key[row] < 0:
                return -1
            if self.seen[verdicts.line, row] == self.version[row]:
                return row
            self._resolve(verdicts, row)

    def _resolve(self, verdicts: "ClassVerdicts", row: int) -> None:
        """A bound came out on top: find the truth, and after some such findings for all lines and nodes at once."""
        self._patches += 1
        if self._patches <= ENOUGH_PATCHES:
            self.patch(verdicts, row, verdicts.node(row))
        else:
            self._sync()

    def _sync(self) -> None:
        """Judge the lines in use on all nodes that were filled since the last time."""
        rows = np.array(list(dict.fromkeys(self._filled)), np.intp)
        self._filled.clear()
        self._patches = 0
        oldest = self._visits - IDLE_VISITS * len(self._lines)
        lines = [
            line for line in self._lines if line is not None and line.synced == self._syncs and line.visited >= oldest
        ]
        if not self._joint:
            lines = [line for line in lines if line.visited == self._visits]
        self._syncs += 1
        for line in lines:
            line.synced = self._syncs
        if self._together is None or self._together.lines != lines:
            self._together = self._stack(lines)
        self._judge(self._together, rows)

    def visit(self, verdicts: "ClassVerdicts") -> None:
        """A class is about to be asked for: see that it is in step with the others."""
        if self.capacity != self._columns.capacity:
            self._allocate(self._room, self._columns.capacity)
        self._visits += 1
        verdicts.visited = self._visits
        if verdicts.synced != self._syncs:
            verdicts.synced = self._syncs
            if verdicts.position >= 0:
                self.settle(verdicts)
        if len(self._filled) >= MOST_FILLED:
            self._sync()
