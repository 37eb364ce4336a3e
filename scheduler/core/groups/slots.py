"""Slots: how many pods of one class fit on each node, one after another (GANG-R54).

Requests are counted over the columns. Where devices, NUMA nodes or reservations count too, the pods are reserved and
assumed on one node of each kind, and taken back: nodes with equal signatures (`Filter.slots_signature`) and equal room
have equal slots. Rules on the places of other pods (scope CLUSTER) are not counted: slots are an upper bound for them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.cache.columns import TIE_BITS, Ints
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import PODS_COLUMN
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.runner import Runner, Runners
from seatrial.scheduler.framework.extension_points import PreFilter, Transformer
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status

FIT, COSCHEDULING = "NodeResourcesFit", "Coscheduling"
MAX_TRIALS = 256  # nodes with reservations or nominated pods that are tried one by one
MAX_KNOWN = 65536


@dataclass(frozen=True, slots=True)
class Slots:
    """`count`, `scores`: [node]; `stopped`: by row, why the next pod does not fit there, where it was tried."""

    count: Ints
    scores: Ints
    stopped: dict[int, Status]


class SlotCounter:
    """Counts slots, and keeps the results of trials by signature."""

    def __init__(self, handle: Handle, runners: Runners) -> None:
        self._handle, self._cache, self._runners = handle, handle.cache, runners
        self._known: dict[Hashable, tuple[int, Status | None]] = {}

    def count(self, infos: Sequence[PodInfo]) -> Slots:
        """The slots for these pods, which are of one class; at most their number on a node."""
        info, limit = infos[0], len(infos)
        runner, columns = self._runners.of(info), self._cache.columns
        class_scores = runner.class_scores(info.pod_class)
        count, scores = np.zeros(columns.count, np.int64), np.zeros(columns.count, np.int64)
        stopped: dict[int, Status] = {}
        if class_scores.matrix is None or not columns.count:
            return Slots(count, scores, stopped)
        key = class_scores.exact_key()
        rows = np.flatnonzero(key >= 0)
        scores[rows] = key[rows] >> TIE_BITS
        count[rows] = self._by_requests(class_scores, rows, info, limit)
        self._try_by_signature(infos, class_scores, rows[count[rows] > 1], count, stopped)
        self._try_in_full(infos, runner, class_scores, count, stopped)
        return Slots(count, scores, stopped)

    def failure(self, info: PodInfo, slots: Slots, limit: int) -> FitError:
        """Why one more pod fits on none of the nodes, after as many as fit."""
        class_scores = self._runners.of(info).class_scores(info.pod_class)
        overrides = dict(slots.stopped)
        columns = self._cache.columns
        rows = np.flatnonzero((slots.count > 0) & (slots.count < limit))
        requests = info.pod_class.named
        codes = np.zeros(len(rows), np.int64)
        for bit, (_, column, amount) in enumerate(requests):
            codes |= (columns.free[column, rows] < (slots.count[rows] + 1) * amount).astype(np.int64) << bit
        statuses = {code: self._short(code, requests) for code in set(codes.tolist())}
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            if row not in overrides and code:
                overrides[row] = statuses[code]
        return class_scores.rejection(overrides)

    def _short(self, code: int, node: Sequence[tuple[str, int, int]]) -> Status:
        return Status.unschedulable(
            *(
                "Too many pods" if column == PODS_COLUMN else f"Insufficient {name}"
                for bit, (name, column, _) in enumerate(node)
                if code >> bit & 1
            )
        ).by(FIT)

    def _by_requests(self, class_scores: ClassScores, rows: Ints, info: PodInfo, limit: int) -> Ints:
        fit = np.full(len(rows), limit, np.int64)
        if any(plugin.name == FIT for plugin in class_scores.rules.node_pods_filters):
            free = self._cache.columns.free
            for column, amount in info.pod_class.vector:
                if amount:
                    np.minimum(fit, free[column, rows] // amount, out=fit)
        return np.maximum(fit, 1)  # the rows are feasible

    # -- trials -------------------------------------------------------------------------------------------------------

    def _try_by_signature(
        self, infos: Sequence[PodInfo], class_scores: ClassScores, rows: Ints, count: Ints, stopped: dict[int, Status]
    ) -> None:
        plugins = [plugin for plugin in class_scores.rules.node_pods_filters if plugin.name != FIT]
        if not plugins:
            return
        state, kind = class_scores.state, (infos[0].pod.spec.scheduler_name, infos[0].pod_class.id)
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        for row in rows.tolist():
            node = class_scores.node(row)
            signature = tuple([plugin.slots_signature(state, node) for plugin in plugins])
            if not any(signature):
                continue
            limit = int(count[row])
            kept = (kind, signature, limit)
            entry = self._known.get(kept)
            if entry is None:
                entry = self._try(infos[:limit], node.name, class_scores.state)
                if not any(one == node.name for one in signature):
                    self._known[kept] = entry
            count[row], status = entry
            if status is not None:
                stopped[row] = status

    def _try(self, infos: Sequence[PodInfo], name: str, start: CycleState) -> tuple[int, Status | None]:
        """Place the pods on one node while they fit, and take them back."""
        runner = self._runners.of(infos[0])
        node = self._cache.nodes[name]
        placed: list[tuple[PodInfo, CycleState]] = []
        status: Status | None = None
        for info in infos:
            state = start.fork()
            fits = runner.check(state, info.pod, node)
            if fits.ok:
                fits = runner.reserve(state, info.pod, name)
            if not fits.ok:
                status = fits
                break
            self._cache.assume(info, name)
            placed.append((info, state))
        self._take_back(runner, [(info, state, name) for info, state in placed])
        return len(placed), status

    def _try_in_full(
        self,
        infos: Sequence[PodInfo],
        runner: Runner,
        class_scores: ClassScores,
        count: Ints,
        stopped: dict[int, Status],
    ) -> None:
        """Try the nodes where the pods may use reservations, and those to which other pods are nominated."""
        info, handle = infos[0], self._handle
        rows = self._cache.columns.rows
        names = {name for name in handle.nominator.nodes() if name in rows and count[rows[name]]}
        for plugin in runner.profile.all:
            if isinstance(plugin, Transformer) and plugin.concerns(info.pod):
                state = class_scores.state.fork()
                if isinstance(plugin, PreFilter):
                    plugin.pre_filter(state, info.pod)
                names |= {name for name in plugin.overlooked(state, info.pod) if name in rows}
        for name in sorted(names)[:MAX_TRIALS]:
            row = rows[name]
            placed: list[tuple[PodInfo, CycleState, str]] = []
            for info in infos:
                result = class_scores.select_within(info, [row], COSCHEDULING)
                if isinstance(result, FitError):
                    stopped[row] = result.status(row)
                    break
                status = runner.reserve(result[1], info.pod, name)
                if not status.ok:
                    stopped[row] = status
                    break
                self._cache.assume(info, name)
                placed.append((info, result[1], name))
            count[row] = len(placed)
            self._take_back(runner, placed)

    def _take_back(self, runner: Runner, placed: Sequence[tuple[PodInfo, CycleState, str]]) -> None:
        for info, state, name in reversed(placed):
            runner.unreserve(state, info.pod, name)
            self._cache.forget(info.uid)
