"""Fragmentation: the idle GPU of a cluster that typical pods cannot use, and its change by a placement.

Definition of "Beware of Fragmentation" (USENIX ATC '23, section 3), as its authors' simulator computes it: for one
typical pod, all that is idle on a node is a fragment if the pod cannot run there, and else what is idle on cards too
small for it. A typical pod without GPU can use no idle GPU, so all of it is a fragment to that pod. A node's figure is
the mean over the typical pods, weighted by their frequency; a cluster's is the sum over its nodes. Unit:
thousandths of a GPU.

Memory plays no part. Because only one card can be shared, the figure is a sum over cards and one term for pods with
several cards; both come from tables by model, CPU left and what is left on the card, so one node costs a few look-ups.
"""

from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.packing.shapes import CARD, Floats, Ints, NodeStates, Shapes, Typical

INFEASIBLE = -np.inf


class Fragments:
    """The fragments of many nodes at once.

    The worth of a node is its idle GPU less its fragments. `by_card[row, left]` is the worth of one card with `left`
    idle to pods with one card, `by_free[row, free]` that of `free` whole cards to pods with several. A row stands for a
    model and a range of CPU left in which the same typical pods have CPU enough.
    """

    def __init__(self, pods: Sequence[Typical], models: Sequence[str], width: int) -> None:
        """`width`: the number of cards of the widest node."""
        self.steps: Ints = np.unique(np.array([pod.shape.cpu_milli for pod in pods], dtype=np.int64))
        """Each CPU request of a typical pod, ascending: the upper ends of the ranges."""
        rows = len(self.steps) + 1
        self._rows = rows
        self.by_card: Floats = np.zeros((len(models) * rows, CARD + 1))
        self.by_free: Floats = np.zeros((len(models) * rows, width + 1))
        left, free = np.arange(CARD + 1), np.arange(width + 1)
        same: dict[tuple[bool, ...], slice] = {}  # the rows of a model on which these pods run
        for number, model in enumerate(models):
            runs = tuple([bool(pod.shape.gpus) and pod.shape.runs_on(model) for pod in pods])
            own = slice(number * rows, (number + 1) * rows)
            known = same.setdefault(runs, own)
            if known is not own:
                self.by_card[own], self.by_free[own] = self.by_card[known], self.by_free[known]
                continue
            for pod, fits in zip(pods, runs, strict=True):
                if not fits:
                    continue
                shape = pod.shape
                first = number * rows + int(np.searchsorted(self.steps, shape.cpu_milli, side="right"))
                enough = slice(first, own.stop)
                if shape.gpus == 1:
                    self.by_card[enough] += pod.weight * np.where(left >= shape.gpu_milli, left, 0)
                else:
                    self.by_free[enough] += pod.weight * np.where(free >= shape.gpus, free * CARD, 0)
        cpu = sum(pod.weight * pod.shape.cpu_milli for pod in pods)
        gpu = sum(pod.weight * pod.shape.gpu_request for pod in pods)
        self.gpu_per_cpu = gpu / cpu if cpu else float(CARD)
        """Thousandths of a GPU that typical pods request with a thousandth of a core, pods without GPU included."""
        self._flat = self.by_card.reshape(-1)
        self._flat_free = self.by_free.reshape(-1)
        self.width = width + 1
        """Length of a row of `by_free`."""
        self.several = bool(self.by_free.any())
        """Some typical pod requests several cards; if not, `by_free` is nothing but zeros."""

    def row(self, model: Ints, cpu: Ints) -> Ints:
        """The tables' row for each model and CPU left (below 0 counts as nothing left)."""
        rows: Ints = model * self._rows + self.steps.searchsorted(cpu, side="right")
        return rows

    def worth(self, states: NodeStates) -> Floats:
        """Idle GPU less fragments, [node]."""
        row = self.row(states.model, states.cpu)
        worth: Floats = self.cards(row, states.cards).sum(axis=1)
        if self.several:
            worth += self.by_free[row, states.free]
        return worth

    def cards(self, row: Ints, left: Ints) -> Floats:
        """[..., card]: the worth of each card to pods with one card; `left` has one axis more than `row`."""
        return self._flat.take(row[..., None] * (CARD + 1) + left)

    def of(self, states: NodeStates) -> Floats:
        """Fragments of each node [node], in thousandths of a GPU."""
        fragments: Floats = states.cards.sum(axis=1) - self.worth(states)
        return fragments

    # -- changes by a placement ---------------------------------------------------------------------------------------

    def gains(self, states: NodeStates, shapes: Shapes) -> Floats:
        """The decrease of fragments by a placement [node, shape], a part of a card taken from the best card."""
        cards, cpu = states.cards, states.cpu
        row = self.row(states.model[:, None], cpu[:, None] - shapes.cpu)
        each = self.cards(row, cards[:, None, :])
        after: Floats = each.sum(axis=2)
        shared = shapes.shared
        if shared < len(shapes):
            row_of_whole, whole = row[:, shared:], shapes.whole[shared:]
            after[:, shared:] -= whole * self._flat.take(row_of_whole * (CARD + 1) + CARD)
            if self.several:
                free = np.maximum(states.free[:, None] - whole, 0)
                after[:, shared:] += self._flat_free.take(row_of_whole * self.width + free)
        if shared:
            options = self._shares(row[:, :shared], cards[:, None, :], shapes.part[:shared, None], each[:, :shared])
            after[:, :shared] += options.max(axis=2)
        after += shapes.request
        after -= self.worth(states)[:, None]
        return after

    def card_gains(self, state: NodeStates, cpu: int, part: int) -> Floats:
        """The decrease of fragments [card] of one node if `part` is taken from a card; -inf if the card is too small.

        `cpu`: what the pod takes too.
        """
        row = self.row(state.model, state.cpu - cpu)
        before = self.cards(row, state.cards)
        change = self._shares(row, state.cards, np.int64(part), before) + before.sum()
        gained: Floats = change - self.worth(state) + part
        return gained[0]

    def _shares(self, row: Ints, cards: Ints, part: Ints | np.int64, before: Floats) -> Floats:
        """The change of a node's worth [..., card] if a part is taken from it; -inf if the card is too small."""
        left = cards - part
        change = self.cards(row, np.maximum(left, 0))
        change -= before
        if self.several:
            free = cards == CARD
            whole = free.sum(axis=-1)
            start = row * self.width
            opened = self._flat_free.take(start + np.maximum(whole - 1, 0))
            kept = self._flat_free.take(start + whole)
            change += np.where(free, opened[..., None], kept[..., None])
        np.putmask(change, left < 0, INFEASIBLE)
        return change

    def stranded(self, states: NodeStates, shapes: Shapes) -> Floats:
        """The growth by a placement [node, shape] of GPU that is idle without CPU for it.

        The CPU that a GPU needs is the ratio of the typical pods' sums.
        """
        rate, idle = self.gpu_per_cpu, states.cards.sum(axis=1)
        cpu_left, gpu_left = states.cpu[:, None] - shapes.cpu, idle[:, None] - shapes.request
        after = np.maximum(gpu_left - np.maximum(cpu_left, 0) * rate, 0)
        growth: Floats = after - np.maximum(idle - np.maximum(states.cpu, 0) * rate, 0)[:, None]
        return growth
