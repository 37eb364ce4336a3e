"""Runs one profile through kept results: a `ClassScores` for each equivalence class."""

from collections import OrderedDict

from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.plugin_runner import PluginRunner, Profile
from seatrial.scheduler.engine.rules import rules_for
from seatrial.scheduler.engine.score_matrix import ScoreMatrix
from seatrial.scheduler.framework.handle import Handle

MAX_KEPT_RESULTS = 20_000_000  # classes times nodes, at 33 bytes each; beyond, the least recently used are dropped
MIN_CLASSES, MAX_CLASSES = 64, 4096  # that many classes are kept at least, and at most, however many nodes there are


class Runner(PluginRunner):
    """A profile with the kept results of its classes."""

    def __init__(self, profile: Profile, handle: Handle) -> None:
        super().__init__(profile, handle)
        self._class_scores: OrderedDict[int, ClassScores] = OrderedDict()
        self._matrix = ScoreMatrix(handle.columns)
        handle.columns.watch(self._matrix)
        handle.register(self)

    def class_scores(self, pod_class: EquivalenceClass) -> ClassScores:
        """The kept results of this class."""
        class_scores = self._class_scores.get(pod_class.id)
        if class_scores is None:
            rules = rules_for(pod_class, self.pre_filters, self.filters, self.scores)
            matrix = self._matrix if rules.rejected is None else None
            class_scores = self._class_scores[pod_class.id] = ClassScores(self, pod_class, rules, matrix)
            count = len(self._class_scores)
            most = max(MIN_CLASSES, min(MAX_KEPT_RESULTS // self.handle.columns.capacity, MAX_CLASSES))
            if count > most:
                _, idle = self._class_scores.popitem(last=False)
                idle.leave()
        else:
            self._class_scores.move_to_end(pod_class.id)
        return class_scores

    def invalidate_class_scores(self) -> None:
        """Drop all kept results: something changed that plugins read besides pods, nodes and devices."""
        for scores in self._class_scores.values():
            scores.leave()
        self._class_scores.clear()


class Runners(dict[str, Runner]):
    """The runner of each profile, by scheduler name."""

    def of(self, info: PodInfo) -> Runner:
        """The runner of the profile that a pod names."""
        return self[info.pod.spec.scheduler_name]
