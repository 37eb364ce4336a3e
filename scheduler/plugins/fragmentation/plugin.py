"""DeviceFragmentation: prefer nodes where a pod leaves the idle GPU usable for the pods to come.

The score is that of a strategy of `seatrial.scheduler.packing`: 50 where a placement changes nothing, less where it
makes GPU unusable. For a part of a card it assumes the card where that costs least; DeviceShare selects the cards.

Expectations and prices change with the pods that arrive and are placed, and with them the scores of all nodes. That
happens between cycles and depends on the sequence of events alone.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.cache.columns import Batch, Ints, Rows
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.kernel_parts import IN_PYTHON, ClassAxis, KernelPart, PartKind
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.packing.opportunity import Market
from seatrial.scheduler.packing.shapes import Shape, Shapes
from seatrial.scheduler.packing.strategies import Outlook, Requests, scores, scores_of_one
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.fragmentation.args import DeviceFragmentationArgs, TypicalPod
from seatrial.scheduler.plugins.fragmentation.fleet import Fleet, Left, free_of, model_of
from seatrial.scheduler.plugins.fragmentation.forecast import Window
from seatrial.scheduler.plugins.fragmentation.requests import shape_of

UNTIL_LEARNT = tuple(TypicalPod(gpu, f"{gpu * 8 // 100}") for gpu in (50, 100, 200, 400, 800))
NEUTRAL = MAX_NODE_SCORE // 2

SHAPE: StateKey[Shape] = StateKey("DeviceFragmentation/shape")


@dataclass(slots=True)
class _Stacked:
    """Some classes, prepared for the expectations with number `learnt`; `back` restores their order in `states`."""

    states: Sequence[CycleState]
    learnt: int = -1
    requests: Requests | None = None
    back: Ints | None = None


ALONE: StateKey[_Stacked] = StateKey("DeviceFragmentation/alone")


class DeviceFragmentation(ScoreBatch):
    """Scores all nodes alike for a pod that requests neither CPU nor devices."""

    name = "DeviceFragmentation"
    scope = Scope.NODE_PODS
    has_signature = True

    def __init__(self, handle: Handle, args: DeviceFragmentationArgs | None = None) -> None:
        args = args or DeviceFragmentationArgs()
        self._handle = handle
        self._strategy = args.strategy
        self.common_ties = args.common_ties
        self._devices = DeviceCache.of(handle)
        self._fleet = Fleet(handle.cache, self._devices)
        self._typical = args.typical_pods
        self._window = None if args.typical_pods else Window(args.window)
        self._reads_memory = args.strategy == "OpportunityCost"
        self._version = 0  # of the outlook, prices included
        self._renewed = 0  # version since which only prices of places changed
        self._repriced: Ints = np.zeros(0, np.int64)  # version at which a price last changed that counts on a node
        self._learnt = 0  # of what it expects
        self._outlook: Outlook | None = None
        self._market: Market | None = None
        self._stale = True  # nodes are new or gone, or have other labels
        self._changes = 0  # placements since prices were last computed
        observer = _Observer(self)
        handle.cache.listen(observer)
        handle.on_pod_pending(observer.pod_pending)
        handle.on_node_changed(observer.node_changed)

    @property
    def revision(self) -> int:
        if self._stale and self._outlook is not None:
            self._ready()
        return self._version

    def revised_rows(self, since: int) -> Rows | None:
        """Prices of places count only on nodes that have such a place. Nodes that changed were scored then."""
        return None if since < self._renewed else np.flatnonzero(self._repriced > since)

    # -- extension points ---------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        self._ready()
        shape = shape_of(self._handle.cache.classes.of(pod), self._fleet.card_memory)
        state[SHAPE] = shape
        state[ALONE] = _Stacked([state])
        return bool(shape.cpu_milli or shape.gpus)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return int(self.score_classes_batch(state[ALONE], node)[0])

    def stack_scores(self, states: Sequence[CycleState]) -> _Stacked:
        return states[0][ALONE] if len(states) == 1 else _Stacked(states)

    def score_batch(self, stacked: _Stacked, batch: Batch) -> Ints:
        score_batch = np.full((len(stacked.states), batch.size), NEUTRAL, np.int64)
        self._fleet.catch_up()
        outlook = self._ready()
        has, states = self._fleet.some(batch.rows)
        if len(states.cpu):
            requests, back = self._prepared(outlook, stacked)
            score_batch[:, has] = scores(self._strategy, outlook, states, requests)[back]
        return score_batch

    def score_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Ints:
        outlook, left = self._one(node)
        if left is None:
            return np.full(len(stacked.states), NEUTRAL, np.int64)  # no GPU, so nothing to keep usable
        requests, back = self._prepared(outlook, stacked)
        strategy_scores = scores_of_one(self._strategy, outlook, left, requests)
        return strategy_scores if len(strategy_scores) == 1 else strategy_scores[back]

    def score_signature(self, stacked: object, node: NodeInfo) -> Hashable:
        self._ready()  # at every change of a node, known score or not, so that it is learnt at the same time
        devices = self._devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        cpu, memory = free_of(node)
        if devices.state.cards is None:
            devices.state.find_signatures()
        left = (cpu, memory) if self._reads_memory else cpu
        return devices.state.cards, model_of(node), left, self._version

    def kernel_score(self, stacked: _Stacked, axis: ClassAxis) -> KernelPart:
        made_for: Outlook | None = None  # the last outlook, with what the kernel reads of it
        scorer: Any = None
        back: Ints | None = None

        def argument(node: NodeInfo) -> object:
            nonlocal made_for, scorer, back
            outlook, left = self._one(node)
            if left is None:
                return None
            if made_for is not outlook:
                requests, back = self._prepared(outlook, stacked)
                made_for, scorer = outlook, requests.compiled(self._strategy, outlook)
            return IN_PYTHON if scorer is None else (scorer, back, axis.classes, *left)

        return KernelPart(PartKind.FRAGMENTS, numbers=(NEUTRAL,), argument=argument)

    def _prepared(self, outlook: Outlook, stacked: _Stacked) -> tuple[Requests, Ints]:
        """The shapes of the classes, and for each class the position of its shape."""
        if stacked.learnt != self._learnt or stacked.requests is None or stacked.back is None:
            every = [state[SHAPE] for state in stacked.states]
            order = sorted(range(len(every)), key=lambda number: not every[number].shares)
            stacked.requests = Requests(Shapes([every[number] for number in order], self._fleet.models), outlook)
            stacked.back = np.argsort(np.array(order, np.int64))
            stacked.learnt = self._learnt
        return stacked.requests, stacked.back

    # -- expectations and prices --------------------------------------------------------------------------------------

    def _one(self, node: NodeInfo) -> tuple[Outlook, Left | None]:
        """The outlook, and what is left of a node; None if the node has no GPUs."""
        outlook, fleet = self._outlook, self._fleet
        if outlook is None or self._stale or fleet.is_outdated:
            outlook = self._ready()
        left = fleet.one(node)
        if left is None and fleet.is_outdated:
            outlook = self._ready()
            left = self._fleet.one(node)
        return outlook, left

    def _ready(self) -> Outlook:
        """The outlook, made now if there is none or nodes are new."""
        if self._outlook is None or self._stale or self._fleet.is_outdated:
            fresh = self._fleet.survey()
            self._stale = False
            if self._outlook is None or fresh:
                self._learn()
            else:
                self._reprice()
        assert self._outlook is not None
        return self._outlook

    def arrived(self, uid: str, pod: Pod) -> None:
        """A pod exists."""
        if self._window is not None and uid not in self._window:
            self._window.arrived(uid, self._handle.cache.classes.of(pod))

    def moved(self) -> None:
        """A pod was placed on a node, or left one."""
        self._changes += 1
        if self._changes >= Market.REFRESH_CHANGES and self._outlook is not None:
            self._changes = 0
            if self._window is not None and self._window.is_due:
                if self._stale or self._fleet.is_outdated:
                    self._fleet.survey()
                self._learn()
            else:
                self._reprice()

    def nodes_changed(self) -> None:
        """A node is new or gone, or its labels changed."""
        self._stale = True

    def _learn(self) -> None:
        """Make the outlook anew, from the window or from the configured pods."""
        demand: Counter[Shape] = Counter()
        if self._window is not None:
            for pods, count in self._window.counts.items():
                demand[shape_of(pods, self._fleet.card_memory)] += count
            self._window.taken()
        if not demand:
            for typical in self._typical or UNTIL_LEARNT:
                demand[typical.shape] += typical.weight
        models = self._fleet.models or [""]
        self._learnt += 1
        self._outlook = Outlook.of(demand, models, self._fleet.width)
        states = self._fleet.every()
        self._market = None
        if self._reads_memory and self._outlook.demand:
            self._market = Market(self._outlook.demand, states)
            self._outlook = replace(self._outlook, prices=self._market.prices)
        self._renew()

    def _renew(self) -> None:
        """Begin a version in which the scores of all nodes may differ."""
        self._version += 1
        self._renewed = self._version
        self._repriced = np.zeros(self._fleet.nodes, np.int64)

    def _reprice(self) -> None:
        """Bring prices up to date with the nodes that changed."""
        if self._market is None or self._outlook is None:
            return
        before, differing = self._outlook.prices, None
        rows, states = self._fleet.unseen()
        if self._market.nodes != self._fleet.nodes:
            self._market = Market(self._outlook.demand, self._fleet.restart())
            self._repriced = np.full(self._fleet.nodes, self._version)  # scores of older versions are not kept
        elif len(rows):
            self._market.change(rows, states)
            self._market.refresh()
            differing = self._market.prices.differing(before)
        if self._market.prices.key != before.key:
            self._outlook = replace(self._outlook, prices=self._market.prices)
            if differing is None:
                self._renew()
            else:
                self._version += 1
                self._repriced[self._market.having(differing)] = self._version


class _Observer(Listener):
    """Passes events of pods and nodes to the plugin."""

    def __init__(self, plugin: DeviceFragmentation) -> None:
        self._plugin = plugin

    def pod_placed(self, info: PodInfo) -> None:
        self._plugin.arrived(info.uid, info.pod)
        self._plugin.moved()

    def pod_gone(self, info: PodInfo) -> None:
        self._plugin.moved()

    def node_set(self, node: Node, before: Node | None) -> None:
        self._plugin.nodes_changed()

    def node_added(self, name: str) -> None:
        self._plugin.nodes_changed()

    def pod_pending(self, pod: Pod) -> None:
        self._plugin.arrived(pod.metadata.uid, pod)

    def node_changed(self, name: str, node: Node | None) -> None:
        if node is None:  # the cache reports the others
            self._plugin.nodes_changed()
