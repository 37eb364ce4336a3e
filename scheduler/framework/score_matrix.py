"""Verdicts on all nodes, one class of pods a line, kept so that a decision is the largest number of a line.

`key` is that number: total score above, tie-break below, far below 0 where a node is no option. Beside it stands what
it is made of, as far as it takes to bring it up to date: what the node object alone says (`node_ok`, `node_total`),
the scores that are always exact (`exact`), the part of the key that no pod moves (`base`), and raw values of scores
that are normalised over all feasible nodes (`raw`).

When a pod comes to a node, no class is judged anew there. Where plugins have node signatures (`signatures.py`), the
node's numbers are put together from results kept by signature, and are exact.

For other classes, most plugins say by how much at most any score on that node can have risen (mostly: by how much at
least it has fallen), the few others score it for all classes at once, and the node's keys are moved by that. From
then on they are bounds that the true keys do not exceed. A decision needs the best node, not the truth about all
others, so bounds below the best stay bounds. One that comes out on top is judged; after some of those, all lines with
bounds that are in use are judged together on all nodes filled meanwhile: NumPy's cost is by the call, and thirty
classes on fifty nodes cost little more than one on one. Any other change is a reason to judge the node anew, line by
line.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import TIE_BITS, Batch, Bools, Ints, NodeColumns, Rows
from scheduler.cache.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.accelerations import ScoreBatch, has_delta_bound, score_kind
from scheduler.framework.extension_points import MAX_NODE_SCORE, ByMaximum, Score
from scheduler.framework.rules import ClassRules
from scheduler.framework.signatures import REFUSED
from scheduler.framework.update_plan import Plan, make_plan

if TYPE_CHECKING:
    from scheduler.framework.class_scores import ClassScores

NOT_FEASIBLE = -(1 << 62)  # so low that no sum of bounds brings it up to 0; anything below 0 is no option
NO_RAW = -(1 << 40)
NOBODY = -2  # no node is feasible, and none becomes so unless it is judged anew
_FIRST_LINES = 32
_LOG_LIMIT = 1 << 18
ENOUGH_PATCHES = 8  # bounds judged one by one, before all are judged together: about what that costs
FEW_BOUNDS = 4  # up to so many are made exact one by one
MOST_FILLED = 256  # bounds get looser with every pod; after so many they are made exact in any case
IDLE_VISITS = 8  # a line that is not asked for in so many visits for each line falls out of step
PADDING = 40  # lines whose distance is a power of two would share the processor's cache sets: one column, all misses

Signature = tuple[Hashable, ...]


def signature(rules: ClassRules) -> Signature:
    """Classes with the same one can be judged together."""
    scores = (*rules.moving_scores, *rules.moving_normalized)
    return (
        rules.can_batch,
        *(plugin.name for plugin in rules.moving_filters),
        *((score.name, score_kind(score, rules.state)) for score, _ in scores),
    )


@dataclass(slots=True)
class _Together:
    """Some lines of one signature, with what their plugins need to know of them put together."""

    lines: list["ClassScores"]
    index: NDArray[np.intp]  # [class]
    start: NDArray[np.intp]  # [class, 1], where each line starts in the flattened arrays
    filters: list[Any]
    scores: list[Any]
    normalized: list[Any]


class ScoreMatrix:
    """Lines of all classes of one profile."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._lines: list[ClassScores | None] = []
        self._spare: list[int] = []
        self._log: list[int] = []  # rows to judge anew for every line
        self._log_start = 0
        self.end = 0  # how much has been logged since the beginning
        self.pending: list[int] = []  # rows whose keys were moved by bounds since the last `_sync`
        self._exact_for: dict[int, int] = {}  # of those, by row: the lines that have judged it since, as bits
        self._syncs = 0
        self._patches = 0
        self._visits = 0
        self._plan: Plan | None = None
        self._together: list[_Together] = []
        self._in_step: list[ClassScores] = []  # the lines that `_together` was made of
        self._raised = 0  # how often a raw score rose that another line's nodes are normalised by
        self._numbers: dict[str, int] = {}  # normalised scores by name → number of the array in `raw`
        self._highest_ever = MAX_NODE_SCORE
        self.raw: list[Ints] = []
        self.highest: list[Ints] = []
        self._divisor: list[Ints] = []  # the same for classes with exact keys, [line], at least 1
        self.capacity = 0
        self._allocate(_FIRST_LINES, columns.capacity)

    def _allocate(self, lines: int, capacity: int) -> None:
        """Arrays of a new size; what was there is judged anew when it is asked for."""
        self._room, self.capacity, width = lines, capacity, capacity + PADDING
        self._width = width
        self.key: Ints = np.full((lines, width), NOT_FEASIBLE, np.int64)
        self.exact: Ints = np.zeros((lines, width), np.int64)
        self.node_ok: Bools = np.zeros((lines, width), np.bool_)
        self.node_total: Ints = np.zeros((lines, width), np.int64)
        self.base: Ints = np.full((width, lines), REFUSED, np.int64)  # [row, line], the key's part that no pod moves
        self.salt: Ints = np.zeros((lines, 1), np.int64)
        self.raw = [np.full((lines, width), NO_RAW, np.int64) for _ in self.raw]
        self.highest = [np.zeros((lines, 1), np.int64) for _ in self.highest]
        self._divisor = [np.ones(lines, np.int64) for _ in self.highest]
        self.pending.clear()
        self._exact_for.clear()
        self._together, self._in_step = [], []
        for number, line in enumerate(self._lines):
            if line is not None:
                self._start_line(number, line)

    # -- lines --------------------------------------------------------------------------------------------------------

    def join(self, verdicts: "ClassScores") -> int:
        """Give a class its line."""
        self._plan = None
        for score, _ in verdicts.rules.moving_normalized:
            if score.name not in self._numbers:
                self._numbers[score.name] = len(self.raw)
                self.raw.append(np.full((self._room, self._width), NO_RAW, np.int64))
                self.highest.append(np.zeros((self._room, 1), np.int64))
                self._divisor.append(np.ones(self._room, np.int64))
        if self._spare:
            line = self._spare.pop()
            self._lines[line] = verdicts
        else:
            line = len(self._lines)
            self._lines.append(verdicts)
            if line == self._room:
                self._allocate(self._room * 2, self._columns.capacity)
        self._start_line(line, verdicts)
        return line

    def leave(self, line: int) -> None:
        self._plan = None
        self._lines[line] = None
        self._spare.append(line)

    def _start_line(self, line: int, verdicts: "ClassScores") -> None:
        verdicts.position = -1
        self.salt[line] = verdicts.salt
        self.key[line] = NOT_FEASIBLE
        self.exact[line] = 0
        self.base[:, line] = REFUSED
        for raw, highest, divisor in zip(self.raw, self.highest, self._divisor, strict=True):
            raw[line] = NO_RAW
            highest[line] = 0
            divisor[line] = 1
        verdicts.highest = [0] * len(verdicts.rules.moving_normalized)
        verdicts.tops = [-1] * len(verdicts.highest)

    def numbers(self, rules: ClassRules) -> list[int]:
        """Which arrays of `raw` belong to the normalised scores of a class."""
        return [self._numbers[score.name] for score, _ in rules.moving_normalized]

    # -- changes ------------------------------------------------------------------------------------------------------

    def opened(self, row: int) -> None:
        """Something about a node changed that no bound is known for."""
        self._log.append(row)
        self.end += 1
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
        """A pod came to a node: give it the keys it has now, or move them by what the plugins know."""
        plan = self._plan or self._make_plan()
        if plan.unknown or row >= self.capacity or node.node is None:
            self.opened(row)
            return
        total = self.base[row]  # not to be written to
        for signature_of, stacked, known, add in plan.signatures.sums:
            signature = signature_of(stacked, node)
            found = known(signature)
            total = total + (add(signature, node) if found is None else found)
        for one in plan.signatures.normalized:
            signature = one.signature(one.stacked, node)
            raw, scaled = one.both.get(signature) or one.add_both(signature, node)
            if not one.monotone and (raw > self.highest[one.number][:, 0]).any():
                self._raised += 1
            if plan.bounds:
                self.raw[one.number][one.lines, row] = raw[one.lines]
            else:
                self.raw[one.number][:, row] = raw
            normal = scaled // self._divisor[one.number]
            normal *= one.weight
            total = total + normal
        if not plan.bounds:
            self.key[:, row] = total
            return
        self._bound(plan, row, node, placed)  # moves all lines, and knows nothing of those whose keys are `total`
        lines = plan.exact_lines
        self.key[lines, row] = total[lines]

    def _bound(self, plan: Plan, row: int, node: NodeInfo, placed: PodInfo) -> None:
        """Move the keys of the lines whose scores cannot be looked up."""
        rises = [part.max_score_delta(node, placed) for part in plan.normalized]
        if rises and max(rises) > 0:  # where a raw score rises the largest may, and with it every other node's
            self.opened(row)
            return
        self.pending.append(row)
        self._exact_for[row] = plan.exact_bits
        change = self._rescored(plan, row, node)
        for part in plan.bounded:
            change[part.index] += part.max_score_delta(node, placed) * part.weight
        for part, one in zip(plan.normalized, rises, strict=True):
            if one:
                bound = (1 - (-one * MAX_NODE_SCORE // self._highest_ever)) * part.weight
                self.raw[part.number][part.index, row] += one
                change[part.index] += bound
        change <<= TIE_BITS
        self.key[:, row] += change

    def _rescored(self, plan: Plan, row: int, node: NodeInfo) -> Ints:
        """Score a node where there is no bound, for all lines; by how much each line's score has changed."""
        change = np.zeros(self._room, np.int64)
        exact = self.exact[:, row]
        for part in plan.exact:
            assert isinstance(part.score, ScoreBatch)  # noqa: S101
            values = part.score.score_classes_batch(part.stacked, node)
            if part.weight != 1:
                values *= part.weight
            change[part.index] += values
        if plan.exact:
            new = change.copy()
            change -= exact
            exact[:] = new
            change[plan.exact_lines] = 0  # their keys have been given already; what they were judged by is old
        return change

    def _make_plan(self) -> Plan:
        self._plan = make_plan([line for line in self._lines if line is not None], self._numbers, self._room)
        return self._plan

    # -- judging ------------------------------------------------------------------------------------------------------

    def judge(self, verdicts: "ClassScores", rows: Rows | None) -> None:
        """Judge one line on some rows, or (None) on all."""
        self._judge(self._stack([verdicts]), rows)

    def _stack(self, lines: list["ClassScores"]) -> _Together:
        states = [line.state for line in lines]
        alone, index = lines[0], np.array([line.line for line in lines], np.intp)
        rules = alone.rules
        return _Together(
            lines,
            index,
            index[:, None] * self._width,
            [alone.stack(plugin, states) for plugin in rules.moving_filters],
            [alone.stack_scores(score, states) for score, _ in rules.moving_scores],
            [alone.stack_scores(score, states) for score, _ in rules.moving_normalized],
        )

    def _judge(self, together: _Together, rows: Rows | None) -> None:
        batch = Batch(self._columns, rows)
        alone = together.lines[0]
        rules = alone.rules
        where = together.start + batch.rows  # [line, row] in the flattened arrays: NumPy is quicker with one index
        # A line that is judged along with others may not know yet that a node is gone.
        ok = self.node_ok.reshape(-1)[where] & batch.pick(self._columns.known)
        for plugin, stacked in zip(rules.moving_filters, together.filters, strict=True):
            alone.narrow(plugin, stacked, batch, ok)
        total = np.zeros(ok.shape, np.int64)
        exact: Ints | None = None
        for (score, weight), stacked in zip(rules.moving_scores, together.scores, strict=True):
            values = alone.values(score, stacked, batch, ok)
            if values is not None:
                if weight != 1:
                    values *= weight
                total += values
                if not has_delta_bound(score):
                    exact = values if exact is None else exact + values
        if exact is not None:
            self.exact.reshape(-1)[where] = exact
        total_by_node = self.node_total.reshape(-1)[where]
        total += total_by_node
        tie = batch.pick(self._columns.tie) ^ self.salt[together.index]
        base = np.where(self.node_ok.reshape(-1)[where], (total_by_node << TIE_BITS) + tie, REFUSED)
        self.base[batch.rows[:, None], together.index] = base.T
        for number, (score, weight), stacked in zip(
            self.numbers(rules), rules.moving_normalized, together.normalized, strict=True
        ):
            values = alone.values(score, stacked, batch, ok)
            raw = np.where(ok, 0 if values is None else values, NO_RAW)
            self.raw[number].reshape(-1)[where] = raw
            normal = _normalizer(score).apply(np.maximum(raw, 0), self.highest[number][together.index])
            if weight != 1:
                normal *= weight
            total += normal
            for line in together.lines:
                line.tops = [-1] * len(line.tops)
        np.maximum(total, 0, out=total)  # it can fall below while what it was normalised by is out of date
        total <<= TIE_BITS
        total += tie
        self.key.reshape(-1)[where] = np.where(ok, total, NOT_FEASIBLE)

    def patch(self, verdicts: "ClassScores", row: int, node: NodeInfo) -> None:
        """Judge one line on one row the plain way: for few rows that is quicker than arrays."""
        line, state, pod, rules = verdicts.line, verdicts.state, verdicts.shape.example, verdicts.rules
        judged = self._exact_for.get(row)
        if judged is not None:
            self._exact_for[row] = judged | 1 << line
        fits = bool(self.node_ok[line, row])
        tie = int(self._columns.tie[row]) ^ verdicts.salt
        node_total = int(self.node_total[line, row])
        self.base[row, line] = (node_total << TIE_BITS) + tie if fits else REFUSED
        verdicts.tops = [-1] * len(verdicts.tops)
        for plugin in rules.moving_filters if fits else ():
            if not plugin.filter(state, pod, node).ok:
                fits = False
                break
        if not fits:
            self.key[line, row] = NOT_FEASIBLE
            for raw in self.raw:
                raw[line, row] = NO_RAW
            return
        total, exact = node_total, 0
        for score, weight in rules.moving_scores:
            value = score.score(state, pod, node) * weight
            total += value
            if not has_delta_bound(score):
                exact += value
        self.exact[line, row] = exact
        for order, (number, (score, weight)) in enumerate(
            zip(self.numbers(rules), rules.moving_normalized, strict=True)
        ):
            value = score.score(state, pod, node)
            self.raw[number][line, row] = value
            total += _normalizer(score).one(value, verdicts.highest[order]) * weight
        self.key[line, row] = (max(total, 0) << TIE_BITS) + tie

    # -- normalising --------------------------------------------------------------------------------------------------

    def normalize(self, verdicts: "ClassScores") -> bool:
        """Take in the largest raw scores of a line as they are now; whether its keys have to be made anew for that."""
        if verdicts.uses_signatures:
            top, same = verdicts.tops[0], verdicts.raised == self._raised and len(verdicts.tops) == 1
            if not same or (
                top != NOBODY
                and (
                    top < 0
                    or self.raw[verdicts.raw_numbers[0]].item(verdicts.line, top) != verdicts.highest[0]
                    or self.key.item(verdicts.line, top) < 0
                )
            ):
                self._normalize_exact(verdicts)
            return False
        line, count, changed = verdicts.line, self._columns.count, False
        for order, number in enumerate(verdicts.raw_numbers):
            raw = self.raw[number][line, :count]
            while True:
                top = int(raw.argmax())
                highest = int(raw[top])
                if highest < 0 or self._is_exact(line, top):
                    break
                self._resolve(verdicts, top)
            highest = max(highest, 0)
            if highest != verdicts.highest[order]:
                changed = True
                verdicts.highest[order] = highest
                self.highest[number][line] = highest
                self._highest_ever = max(self._highest_ever, highest)
        return changed

    def _normalize_exact(self, verdicts: "ClassScores") -> None:
        """The same where all raw scores are exact: they need a look only if the node with the largest lost it."""
        if verdicts.raised != self._raised:
            verdicts.raised = self._raised
            verdicts.tops = [-1] * len(verdicts.tops)
        line, tops = verdicts.line, verdicts.tops
        for order, number in enumerate(verdicts.raw_numbers):
            top, before = tops[order], verdicts.highest[order]
            has = top >= 0 and self.raw[number].item(line, top) == before and self.key.item(line, top) >= 0
            if has or top == NOBODY:
                continue
            # `filled` writes raw scores of nodes that are no option, too.
            key = self.key[line, : self._columns.count]
            raw = np.where(key < 0, NO_RAW, self.raw[number][line, : self._columns.count])
            top = int(raw.argmax())
            highest = max(int(raw[top]), 0)
            tops[order] = top if raw[top] > NO_RAW else NOBODY
            if highest == before:
                continue
            verdicts.highest[order] = highest
            self.highest[number][line] = highest
            self._divisor[number][line] = max(highest, 1)
            self._highest_ever = max(self._highest_ever, highest)
            score, weight = verdicts.rules.moving_normalized[order]
            apply = _normalizer(score).apply
            values = np.arange(max(highest, before) + 1)
            change = (apply(values, np.array(highest)) - apply(values, np.array(before))) * (weight << TIE_BITS)
            self.key[line, : self._columns.count] += change.take(raw, mode="clip")  # 0 for no raw score, as for 0

    def rekey(self, verdicts: "ClassScores") -> None:
        """Judge a line anew on all nodes, because what it is normalised by has changed."""
        self.judge(verdicts, None)

    # -- finding the best ---------------------------------------------------------------------------------------------

    def visit(self, verdicts: "ClassScores") -> None:
        """A class is about to be asked for: see that it is in step with the others."""
        if self.capacity != self._columns.capacity:
            self._allocate(self._room, self._columns.capacity)
        self._visits += 1
        verdicts.visited = self._visits
        if verdicts.synced != self._syncs and not verdicts.uses_signatures:
            verdicts.synced = self._syncs
            verdicts.position = -1  # it missed what the others were judged on: all nodes, then
        if len(self.pending) >= MOST_FILLED:
            self._sync()

    def best(self, verdicts: "ClassScores") -> int:
        """The row with the largest true key, or -1 if no node is feasible."""
        line = verdicts.line
        key = self.key[line, : self._columns.count]
        if verdicts.uses_signatures:
            row = int(key.argmax())
            return row if key.item(row) >= 0 else -1
        while True:
            row = int(key.argmax())
            if self._is_exact(line, row):
                return row if key[row] >= 0 else -1
            if key[row] < 0:
                return -1
            self._resolve(verdicts, row)

    def settle(self, verdicts: "ClassScores") -> None:
        """Make every key of a line exact."""
        if verdicts.uses_signatures:
            return
        bit = 1 << verdicts.line
        bounds = [row for row, judged in self._exact_for.items() if not judged & bit]
        if len(bounds) <= FEW_BOUNDS and self._columns.known[bounds].all():
            for row in bounds:
                self.patch(verdicts, row, verdicts.node(row))
            return
        self.judge(verdicts, np.array(bounds, np.intp))
        for row in bounds:
            self._exact_for[row] |= bit

    def _is_exact(self, line: int, row: int) -> bool:
        judged = self._exact_for.get(row)
        return judged is None or bool(judged >> line & 1)

    def _resolve(self, verdicts: "ClassScores", row: int) -> None:
        """A bound came out on top: find the truth, and after some such findings for all lines and nodes at once."""
        self._patches += 1
        if self._patches <= ENOUGH_PATCHES:
            self.patch(verdicts, row, verdicts.node(row))
        else:
            self._sync()

    def _sync(self) -> None:
        """Judge the lines in use on all nodes that were filled since the last time."""
        rows = np.array(list(self._exact_for), np.intp)
        self.pending.clear()
        self._exact_for.clear()
        self._patches = 0
        oldest = self._visits - IDLE_VISITS * len(self._lines)
        lines = [
            line
            for line in self._lines
            if line is not None and not line.uses_signatures and line.synced == self._syncs and line.visited >= oldest
        ]
        self._syncs += 1
        for line in lines:
            line.synced = self._syncs
        if self._in_step != lines:
            self._in_step = lines
            self._together = self._grouped(lines)
        for together in self._together:
            self._judge(together, rows)

    def _grouped(self, lines: list["ClassScores"]) -> list[_Together]:
        groups: dict[Signature, list[ClassScores]] = {}
        for line in lines:
            marks = line.signature if line.rules.can_batch else (*line.signature, line.line)
            groups.setdefault(marks, []).append(line)
        return [self._stack(group) for group in groups.values()]


def _normalizer(score: Score) -> ByMaximum:
    assert score.normalizer is not None  # noqa: S101
    return score.normalizer
