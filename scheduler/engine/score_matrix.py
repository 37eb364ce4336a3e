"""The scores of all equivalence classes on all nodes, [class, node], kept so that a decision is an argmax.

Axes: `class` is `ClassEntry.index`; `node` is the row of a node in `NodeColumns`.

`key` combines the total score (high bits) with the tie-break (low `TIE_BITS` bits). It is far below 0 where a node is
infeasible. The other arrays are its parts, as far as updates need them:
- `node_ok`, `node_total`: results that depend on the node object alone;
- `exact`: scores that have no bound;
- `base`, [node, class]: the part of the key that placements do not change;
- `raw`: raw values of scores that are normalised over all feasible nodes, one array for each plugin;
- `revised`: scores that can change on all nodes at once, one array for each plugin, as they are counted in the key.

A placement does not run filters and scores again for each class. If all plugins have node signatures (`signatures.py`),
the new keys are sums of results kept by signature, and are exact.

Other classes use bounds: most plugins state an upper bound of the score change (`ScoreBatch.max_score_delta`), the
others score the node for all classes at once. Afterwards the keys of that node are upper bounds. A decision needs only
the best node, so bounds below the best key stay. A bound that is the largest key is replaced by the exact key. After
some replacements all classes with bounds that are in use are judged together: NumPy's cost is per call, and thirty
classes on fifty nodes cost little more than one on one. Any other change judges the node again, class by class.
"""

from collections.abc import Hashable

import numpy as np

from seatrial.scheduler.cache.columns import TIE_BITS, Batch, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.compiled_keys import RAISED, CompiledKeys
from seatrial.scheduler.engine.matrix_arrays import NO_RAW, NOT_FEASIBLE, MatrixArrays, Together
from seatrial.scheduler.engine.signatures import REFUSED
from seatrial.scheduler.engine.update_plan import Plan, make_plan
from seatrial.scheduler.framework.accelerations import ScoreBatch, has_delta_bound
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, ByMaximum, Score

NOBODY = -2  # no node is feasible, and none becomes feasible without being judged again
PATCH_THRESHOLD = 8  # bounds replaced one by one before all are judged together, which costs about as much
SINGLE_BOUNDS_THRESHOLD = 4  # up to this many bounds are made exact one by one
MAX_FILLED = 256  # bounds get looser with each pod; after this many placements they are made exact
IDLE_VISITS = 8  # a class that is not used for this many visits per class is left out of joint passes


class ScoreMatrix(MatrixArrays):
    """The scores of all classes of one profile on all nodes."""

    # -- changes ------------------------------------------------------------------------------------------------------

    def filled(self, row: int, node: NodeInfo, placed: PodInfo) -> None:
        """A pod was placed on a node: update its keys, [class], from node signatures, or by bounds."""
        plan = self._plan or self._make_plan()
        if plan.unknown or row >= self.capacity or node.node is None:
            self.opened(row)
            return
        if plan.compiled is not None:
            flags = plan.compiled.update(row, node, falling=True)
            if flags >= 0:
                self._raised += flags & RAISED
                return
        total = self._exact(plan, row, node, falling=True)
        if not plan.bounds:
            self.key[:, row] = total
            return
        self._bound(plan, row, node, placed)  # changes all classes; those with exact keys are set below
        classes = plan.exact_classes
        self.key[classes, row] = total[classes]

    def vacated(self, row: int, node: NodeInfo) -> None:
        """A pod left a node: update its keys, [class], from node signatures; classes without them judge it again."""
        plan = self._plan or self._make_plan()
        if plan.unknown or plan.bounds or row >= self.capacity or node.node is None:
            self.opened(row)
            return
        if plan.compiled is not None:
            flags = plan.compiled.update(row, node, falling=False)
            if flags >= 0:
                self._raised += flags != 0  # or a class may have had no feasible node to search for the largest one
                return
        total = self._exact(plan, row, node, falling=False)
        if ((self.key[:, row] < 0) & (total >= 0)).any():
            self._raised += 1  # a class may have had no feasible node to search for the largest raw score
        self.key[:, row] = total

    def _exact(self, plan: Plan, row: int, node: NodeInfo, *, falling: bool) -> Ints:
        """The node's keys from node signatures, [class]; raw scores are written.

        `falling`: raw scores of plugins that are `monotone` did not rise.
        """
        total = self.base[row]  # a view: must not be written to
        for signature_of, stacked, known, add in plan.signatures.sums:
            signature = signature_of(stacked, node)
            result = known(signature)
            total = total + (add(signature, node) if result is None else result)
        for number, signature_of, stacked, known, add in plan.signatures.revised:
            signature = signature_of(stacked, node)
            result = known(signature)
            if result is None:
                result = add(signature, node)
            self.revised[number][:, row] = result
            total = total + result
        for plugin in plan.signatures.normalized:
            signature = plugin.signature(plugin.stacked, node)
            raw, scaled = plugin.both.get(signature) or plugin.add_both(signature, node)
            if not (falling and plugin.monotone) and (raw > self.highest[plugin.number][:, 0]).any():
                self._raised += 1
            if plan.bounds:
                self.raw[plugin.number][plugin.classes, row] = raw[plugin.classes]
            else:
                self.raw[plugin.number][:, row] = raw
            normal = scaled // self._divisor[plugin.number]
            normal *= plugin.weight
            total = total + normal
        return total

    def _bound(self, plan: Plan, row: int, node: NodeInfo, placed: PodInfo) -> None:
        """Add bounds of score changes to the keys of classes without node signatures."""
        rises = [part.max_score_delta(node, placed) for part in plan.normalized]
        if rises and max(rises) > 0:  # the largest raw score may rise too, which changes the scores of all nodes
            self.opened(row)
            return
        self.pending.append(row)
        self._exact_for[row] = plan.exact_bits
        change = self._rescored(plan, row, node)
        for part in plan.bounded:
            change[part.index] += part.max_score_delta(node, placed) * part.weight
        for part, delta in zip(plan.normalized, rises, strict=True):
            if delta:
                bound = (1 - (-delta * MAX_NODE_SCORE // self._highest_ever)) * part.weight
                self.raw[part.number][part.index, row] += delta
                change[part.index] += bound
        change <<= TIE_BITS
        self.key[:, row] += change

    def _rescored(self, plan: Plan, row: int, node: NodeInfo) -> Ints:
        """Score a node with the plugins that have no bound. Returns the change of the total score, [class]."""
        change = np.zeros(self._room, np.int64)
        exact = self.exact[:, row]
        for part in plan.exact:
            assert isinstance(part.score, ScoreBatch)
            values = part.score.score_classes_batch(part.stacked, node)
            if part.weight != 1:
                values *= part.weight
            change[part.index] += values
        if plan.exact:
            new = change.copy()
            change -= exact
            exact[:] = new
            change[plan.exact_classes] = 0  # their keys are exact already; `exact` is out of date for them
        return change

    def _make_plan(self) -> Plan:
        self._plan = make_plan(
            [entry for entry in self._entries if entry is not None], self._numbers, self._revised_numbers, self._room
        )
        if not self._plan.bounds:
            self._plan.compiled = CompiledKeys.of(
                self._plan.signatures,
                base=self.base,
                key=self.key,
                revised=self.revised,
                normalized=list(zip(self.highest, self._divisor, self.raw, strict=True)),
            )
        return self._plan

    # -- judging ------------------------------------------------------------------------------------------------------

    def judge(self, entry: ClassEntry, rows: Rows | None) -> None:
        """Run filters and scores of one class for some rows, or (None) all."""
        self._judge(self._stack([entry]), rows)

    def _stack(self, entries: list[ClassEntry]) -> Together:
        states = [entry.state for entry in entries]
        alone, index = entries[0], np.array([entry.index for entry in entries], np.intp)
        rules = alone.rules
        return Together(
            entries,
            index,
            index[:, None] * self._width,
            [alone.stack(plugin, states) for plugin in rules.node_pods_filters],
            [alone.stack_scores(score, states) for score, _ in rules.node_pods_scores],
            [alone.stack_scores(score, states) for score, _ in rules.node_pods_normalized],
        )

    def _judge(self, together: Together, rows: Rows | None) -> None:
        batch = Batch(self._columns, rows)
        alone = together.entries[0]
        rules = alone.rules
        where = together.start + batch.rows  # [class, node] in the flattened arrays: NumPy is faster with one index
        # A class that is judged together with others may not have seen yet that a node is gone.
        ok = self.node_ok.reshape(-1)[where] & batch.pick(self._columns.known)
        for plugin, stacked in zip(rules.node_pods_filters, together.filters, strict=True):
            alone.narrow(plugin, stacked, batch, ok)
        total = np.zeros(ok.shape, np.int64)
        exact: Ints | None = None
        for (score, weight), stacked in zip(rules.node_pods_scores, together.scores, strict=True):
            values = alone.values(score, stacked, batch, ok)
            if values is not None:
                if weight != 1:
                    values *= weight
                total += values
                if score.name in self._revised_numbers:
                    self.revised[self._revised_numbers[score.name]].reshape(-1)[where] = values << TIE_BITS
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
            self.numbers(rules), rules.node_pods_normalized, together.normalized, strict=True
        ):
            values = alone.values(score, stacked, batch, ok)
            raw = np.where(ok, 0 if values is None else values, NO_RAW)
            self.raw[number].reshape(-1)[where] = raw
            normal = _normalizer(score).apply(np.maximum(raw, 0), self.highest[number][together.index])
            if weight != 1:
                normal *= weight
            total += normal
            for entry in together.entries:
                entry.tops = [-1] * len(entry.tops)
        np.maximum(total, 0, out=total)  # it can be negative while the largest raw score is out of date
        total <<= TIE_BITS
        total += tie
        self.key.reshape(-1)[where] = np.where(ok, total, NOT_FEASIBLE)

    def patch(self, entry: ClassEntry, row: int, node: NodeInfo) -> None:
        """Run plain filters and scores of one class for one row: faster than arrays for a few rows."""
        index, state, pod, rules = entry.index, entry.state, entry.pod_class.example, entry.rules
        judged = self._exact_for.get(row)
        if judged is not None:
            self._exact_for[row] = judged | 1 << index
        fits = bool(self.node_ok[index, row])
        tie = int(self._columns.tie[row]) ^ entry.salt
        node_total = int(self.node_total[index, row])
        self.base[row, index] = (node_total << TIE_BITS) + tie if fits else REFUSED
        entry.tops = [-1] * len(entry.tops)
        for plugin in rules.node_pods_filters if fits else ():
            if not plugin.filter(state, pod, node).ok:
                fits = False
                break
        if not fits:
            self.key[index, row] = NOT_FEASIBLE
            for raw in self.raw:
                raw[index, row] = NO_RAW
            return
        total, exact = node_total, 0
        for score, weight in rules.node_pods_scores:
            value = score.score(state, pod, node) * weight
            total += value
            if score.name in self._revised_numbers:
                self.revised[self._revised_numbers[score.name]][index, row] = value << TIE_BITS
            if not has_delta_bound(score):
                exact += value
        self.exact[index, row] = exact
        for order, (number, (score, weight)) in enumerate(
            zip(self.numbers(rules), rules.node_pods_normalized, strict=True)
        ):
            value = score.score(state, pod, node)
            self.raw[number][index, row] = value
            total += _normalizer(score).one(value, entry.highest[order]) * weight
        self.key[index, row] = (max(total, 0) << TIE_BITS) + tie

    def rescore(self, entry: ClassEntry, score: ScoreBatch, weight: int, revised: Rows | None) -> None:
        """Score a class with exact keys again with one plugin, whose scores changed on the nodes `revised`; None: all.

        Infeasible nodes are left out: they are scored when they change, which they must before they are feasible.
        """
        key = self.key[entry.index, : self._columns.count]
        rows = np.flatnonzero(key >= 0) if revised is None else revised[key[revised] >= 0]
        if len(rows):
            stacked = entry.stack_scores(score, [entry.state])
            values = entry.values(score, stacked, Batch(self._columns, rows), np.ones((1, len(rows)), np.bool_))
            new = np.zeros(len(rows), np.int64) if values is None else values[0] * (weight << TIE_BITS)
            counted = self.revised[self._revised_numbers[score.name]][entry.index]
            key[rows] += new - counted[rows]
            counted[rows] = new

    # -- normalising --------------------------------------------------------------------------------------------------

    def normalize(self, entry: ClassEntry) -> bool:
        """Update the largest raw scores of a class. Returns whether its keys have to be computed again."""
        if entry.uses_signatures:
            top, same = entry.tops[0], entry.raised == self._raised and len(entry.tops) == 1
            if not same or (
                top != NOBODY
                and (
                    top < 0
                    or self.raw[entry.raw_numbers[0]].item(entry.index, top) != entry.highest[0]
                    or self.key.item(entry.index, top) < 0
                )
            ):
                self._normalize_exact(entry)
            return False
        index, count, changed = entry.index, self._columns.count, False
        for order, number in enumerate(entry.raw_numbers):
            raw = self.raw[number][index, :count]
            while True:
                top = int(raw.argmax())
                highest = int(raw[top])
                if highest < 0 or self._is_exact(index, top):
                    break
                self._resolve(entry, top)
            highest = max(highest, 0)
            if highest != entry.highest[order]:
                changed = True
                entry.highest[order] = highest
                self.highest[number][index] = highest
                self._highest_ever = max(self._highest_ever, highest)
        return changed

    def _normalize_exact(self, entry: ClassEntry) -> None:
        """`normalize` for exact raw scores: they are searched only if the node with the largest one changed."""
        if entry.raised != self._raised:
            entry.raised = self._raised
            entry.tops = [-1] * len(entry.tops)
        index, tops = entry.index, entry.tops
        for order, number in enumerate(entry.raw_numbers):
            top, before = tops[order], entry.highest[order]
            has = top >= 0 and self.raw[number].item(index, top) == before and self.key.item(index, top) >= 0
            if has or top == NOBODY:
                continue
            # `filled` also writes raw scores of infeasible nodes.
            key = self.key[index, : self._columns.count]
            raw = np.where(key < 0, NO_RAW, self.raw[number][index, : self._columns.count])
            top = int(raw.argmax())
            highest = max(int(raw[top]), 0)
            tops[order] = top if raw[top] > NO_RAW else NOBODY
            if highest == before:
                continue
            entry.highest[order] = highest
            self.highest[number][index] = highest
            self._divisor[number][index] = max(highest, 1)
            self._highest_ever = max(self._highest_ever, highest)
            score, weight = entry.rules.node_pods_normalized[order]
            apply = _normalizer(score).apply
            values = np.arange(max(highest, before) + 1)
            change = (apply(values, np.array(highest)) - apply(values, np.array(before))) * (weight << TIE_BITS)
            self.key[index, : self._columns.count] += change.take(raw, mode="clip")  # 0 for no raw score, as for 0

    def rekey(self, entry: ClassEntry) -> None:
        """Judge a class again on all nodes, because a largest raw score changed."""
        self.judge(entry, None)

    # -- finding the best ---------------------------------------------------------------------------------------------

    def visit(self, entry: ClassEntry) -> None:
        """Prepare a class for use: bring it in step with the others."""
        if self.capacity != self._columns.capacity:
            self._allocate(self._room, self._columns.capacity)
        self._visits += 1
        entry.visited = self._visits
        if entry.synced != self._syncs and not entry.uses_signatures:
            entry.synced = self._syncs
            entry.position = -1  # it missed a joint pass: judge all nodes
        if len(self.pending) >= MAX_FILLED:
            self._sync()

    def best(self, entry: ClassEntry) -> int:
        """The row with the largest exact key; -1 if no node is feasible."""
        index = entry.index
        key = self.key[index, : self._columns.count]
        if entry.uses_signatures:
            row = int(key.argmax())
            return row if key.item(row) >= 0 else -1
        while True:
            row = int(key.argmax())
            if self._is_exact(index, row):
                return row if key[row] >= 0 else -1
            if key[row] < 0:
                return -1
            self._resolve(entry, row)

    def settle(self, entry: ClassEntry) -> None:
        """Make all keys of a class exact."""
        if entry.uses_signatures:
            return
        bit = 1 << entry.index
        bounds = [row for row, judged in self._exact_for.items() if not judged & bit]
        if len(bounds) <= SINGLE_BOUNDS_THRESHOLD and self._columns.known[bounds].all():
            for row in bounds:
                self.patch(entry, row, entry.node(row))
            return
        self.judge(entry, np.array(bounds, np.intp))
        for row in bounds:
            self._exact_for[row] |= bit

    def is_exact(self, entry: ClassEntry, row: int) -> bool:
        """Whether the key of a class on a row is exact, and not an upper bound."""
        return self._is_exact(entry.index, row)

    def _is_exact(self, index: int, row: int) -> bool:
        judged = self._exact_for.get(row)
        return judged is None or bool(judged >> index & 1)

    def _resolve(self, entry: ClassEntry, row: int) -> None:
        """Replace the largest bound by its exact key; after PATCH_THRESHOLD of them, judge all classes together."""
        self._patches += 1
        if self._patches <= PATCH_THRESHOLD:
            self.patch(entry, row, entry.node(row))
        else:
            self._sync()

    def _sync(self) -> None:
        """Judge the classes in use on all rows whose keys are bounds."""
        rows = np.array(list(self._exact_for), np.intp)
        self.pending.clear()
        self._exact_for.clear()
        self._patches = 0
        oldest = self._visits - IDLE_VISITS * len(self._entries)
        entries = [
            entry
            for entry in self._entries
            if entry is not None
            and not entry.uses_signatures
            and entry.synced == self._syncs
            and entry.visited >= oldest
        ]
        self._syncs += 1
        for entry in entries:
            entry.synced = self._syncs
        if self._in_step != entries:
            self._in_step = entries
            self._together = self._grouped(entries)
        for together in self._together:
            self._judge(together, rows)

    def _grouped(self, entries: list[ClassEntry]) -> list[Together]:
        groups: dict[tuple[Hashable, ...], list[ClassEntry]] = {}
        for entry in entries:
            key = entry.batch_key if entry.rules.can_batch else (*entry.batch_key, entry.index)
            groups.setdefault(key, []).append(entry)
        return [self._stack(group) for group in groups.values()]


def _normalizer(score: Score) -> ByMaximum:
    assert score.normalizer is not None
    return score.normalizer
