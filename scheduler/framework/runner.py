"""One profile at work: its plugins at each extension point, run the plain way or through kept verdicts."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.api.core import Pod
from scheduler.cache.classes import PodClass
from scheduler.framework.board import Board
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import (
    Filter,
    Plugin,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    QueueSort,
    Reserve,
    Score,
    VictimAware,
)
from scheduler.framework.restored import as_seen
from scheduler.framework.rules import rules_for
from scheduler.framework.state import SKIPPED, CycleState
from scheduler.framework.status import SUCCESS, Status
from scheduler.framework.timing import RESERVE
from scheduler.framework.verdicts import ClassVerdicts

KEPT_VERDICTS = 20_000_000  # classes times nodes, at 33 bytes each; beyond, the least recently used are judged anew
FEWEST_CLASSES = 64  # but so many classes are kept, however many nodes there are


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile with its plugins built, in the order in which each point runs them."""

    scheduler_name: str
    pre_enqueue: Sequence[PreEnqueue]
    queue_sort: QueueSort
    pre_filter: Sequence[PreFilter]
    filter: Sequence[Filter]
    post_filter: Sequence[PostFilter]
    score: Sequence[tuple[Score, int]]
    reserve: Sequence[Reserve]
    pre_bind: Sequence[PreBind]
    all: Sequence[Plugin]


class Runner:
    """Runs a profile's plugins."""

    def __init__(self, profile: Profile, handle: Handle) -> None:
        self.profile = profile
        self.handle = handle
        self.scheduler_name = profile.scheduler_name
        self.pre_filters = profile.pre_filter
        self.filters = profile.filter
        self.scores = profile.score
        self._victim_aware = [plugin for plugin in profile.all if isinstance(plugin, VictimAware)]
        self._verdicts: OrderedDict[int, ClassVerdicts] = OrderedDict()
        self._board = Board(handle.columns)
        handle.columns.watch(self._board)
        handle.register(self)

    def verdicts(self, shape: PodClass) -> ClassVerdicts:
        """What is kept about this class."""
        found = self._verdicts.get(shape.id)
        if found is None:
            rules = rules_for(shape, self.pre_filters, self.filters, self.scores)
            found = self._verdicts[shape.id] = ClassVerdicts(
                self, shape, rules, self._board if rules.rejected is None else None
            )
            if (
                len(self._verdicts) * self.handle.columns.capacity > KEPT_VERDICTS
                and len(self._verdicts) > FEWEST_CLASSES
            ):
                _, idle = self._verdicts.popitem(last=False)
                if idle.board is not None:
                    idle.board.leave(idle.line)
        else:
            self._verdicts.move_to_end(shape.id)
        return found

    def forget_verdicts(self) -> None:
        """Something that plugins read besides pods, nodes and devices changed: judge every class anew."""
        for verdicts in self._verdicts.values():
            if verdicts.board is not None:
                verdicts.board.leave(verdicts.line)
        self._verdicts.clear()

    def pre_enqueue(self, pod: Pod) -> Status:
        for plugin in self.profile.pre_enqueue:
            status = plugin.pre_enqueue(pod)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def check(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """The filters in order on one node; the first rejection is the node's (FWK-R17)."""
        skipped = state[SKIPPED]
        for plugin in self.filters:
            if plugin.name in skipped:
                continue
            status = plugin.filter(state, pod, node)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def check_with_nominated(self, state: CycleState, info: PodInfo, node: NodeInfo) -> Status:
        """The same, once with the pods nominated to the node that are at least as important, once without (FWK-R16)."""
        state, node = as_seen(state, node)
        others = [
            other
            for other in self.handle.nominator.on(node.name)
            if other.uid != info.uid and other.priority >= info.priority and other.uid not in node.pods
        ]
        if others:
            crowded, trial = node.copy(), state.fork()
            for other in others:
                crowded.add(other)
                self.returned(trial, other, crowded)
            status = self.check(trial, info.pod, crowded)
            if not status.ok:
                return status
        return self.check(state, info.pod, node)

    def removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Tell the filters that keep their own sums to imagine `victim` gone from `node`."""
        for plugin in self._victim_aware:
            plugin.victim_removed(state, victim, node)

    def returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        for plugin in self._victim_aware:
            plugin.victim_returned(state, victim, node)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """All of them, or none: a rejection takes back what the others reserved."""
        timing = self.handle.timing
        for plugin in self.profile.reserve:
            if timing.paused:
                status = plugin.reserve(state, pod, node_name)
            else:
                status = timing.ask(RESERVE, plugin, plugin.reserve, state, pod, node_name)
            if status is not SUCCESS and not status.ok:
                self.unreserve(state, pod, node_name)
                return status.by(plugin.name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        for plugin in reversed(self.profile.reserve):
            plugin.unreserve(state, pod, node_name)
