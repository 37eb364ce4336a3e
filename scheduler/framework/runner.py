"""Runs one profile through kept results: a `ClassScores` for each equivalence class."""

from collections import OrderedDict

from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.plugin_runner import PluginRunner, Profile
from seatrial.scheduler.framework.rules import rules_for
from seatrial.scheduler.framework.score_matrix import ScoreMatrix

MAX_KEPT_RESULTS = 20_000_000  # classes times nodes, at 33 bytes each; beyond, the least recently used are dropped
MIN_CLASSES, MAX_CLASSES = 64, 4096  # that many classes are kept at least, and at most, however many nodes there are
# Results that are not asked for are dropped after one to two times this many changes for each node. Then the writes to
# the class's row, one for each change, have taken about as long as judging all nodes takes when it is asked for again.
IDLE_CHANGES = 2


class Runner(PluginRunner):
    """A profile with the kept results of its classes."""

    def __init__(self, profile: Profile, handle: Handle) -> None:
        super().__init__(profile, handle)
        self._recent: OrderedDict[int, ClassScores] = OrderedDict()  # asked for since the last review
        self._earlier: OrderedDict[int, ClassScores] = OrderedDict()  # asked for between the two reviews before
        self._review_at = IDLE_CHANGES * MIN_CLASSES
        self._matrix = ScoreMatrix(handle.columns)
        handle.columns.watch(self._matrix)
        handle.register(self)

    @staticmethod
    def of(handle: Handle, info: PodInfo) -> "Runner":
        """The runner of the profile that a pod names."""
        return Runner.named(handle, info.pod.spec.scheduler_name)

    @staticmethod
    def named(handle: Handle, scheduler_name: str) -> "Runner":
        runner = handle.runners[scheduler_name]
        assert isinstance(runner, Runner)  # noqa: S101
        return runner

    def class_scores(self, shape: EquivalenceClass) -> ClassScores:
        """The kept results of this class."""
        found = self._recent.get(shape.id)
        if found is not None:
            self._recent.move_to_end(shape.id)
            return found
        found = self._earlier.pop(shape.id, None)
        if found is None:
            rules = rules_for(shape, self.pre_filters, self.filters, self.scores)
            matrix = self._matrix if rules.rejected is None else None
            found = ClassScores(self, shape, rules, matrix)
            count = len(self._recent) + len(self._earlier) + 1
            most = max(MIN_CLASSES, min(MAX_KEPT_RESULTS // self.handle.columns.capacity, MAX_CLASSES))
            if count > most:
                _, idle = (self._earlier or self._recent).popitem(last=False)
                idle.leave()
        self._recent[shape.id] = found
        return found

    def review(self) -> None:
        """Drop the results of classes that were not asked for while the nodes changed often: each change of a node is
        written to the rows of all classes. Call it between cycles, because views of the arrays get out of date."""
        columns = self.handle.columns
        if columns.changes < self._review_at:
            return
        self._review_at = columns.changes + IDLE_CHANGES * max(columns.count, MIN_CLASSES)
        for idle in self._earlier.values():
            idle.leave()
        self._earlier, self._recent = self._recent, OrderedDict()
        self._matrix.shrink()

    def invalidate_class_scores(self) -> None:
        """Drop all kept results: something changed that plugins read besides pods, nodes and devices."""
        for scores in (*self._earlier.values(), *self._recent.values()):
            scores.leave()
        self._earlier.clear()
        self._recent.clear()
