"""What plugins may ask of the scheduler around them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scheduler.api.clock import Clock
from scheduler.api.core import PodDisruptionBudget
from scheduler.cache.cache import Cache
from scheduler.cache.columns import NodeColumns
from scheduler.cache.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.state import CycleState
from scheduler.framework.status import Status
from scheduler.framework.timing import Timing

if TYPE_CHECKING:
    from scheduler.framework.runner import Runner

T = TypeVar("T")


class Nominator:
    """Pods that wait for a place that preemption is clearing for them: their nodes count them already."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self.nominated = self._node_of.keys()  # uids; empty most of the time, which every decision asks

    def nominate(self, info: PodInfo, node: str) -> None:
        self.forget(info.uid)
        self._node_of[info.uid] = node
        self._by_node.setdefault(node, {})[info.uid] = info

    def forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            there = self._by_node[node]
            del there[uid]
            if not there:
                del self._by_node[node]

    def node_of(self, uid: str) -> str:
        """Where the pod is nominated to; "" if nowhere."""
        return self._node_of.get(uid, "")

    def on(self, node: str) -> Iterable[PodInfo]:
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Iterable[str]:
        return self._by_node


@dataclass(slots=True)
class DebugFlags:
    """What to log of every cycle beyond the usual; all of it costs far more than the cycle itself."""

    top_scores: int = 0  # so many of the best nodes with their scores by plugin; 0 or less: none
    filter_failures: bool = False  # each node that was rejected, and by whom
    diagnoses: bool = False  # a machine-readable account of each failed cycle, soon
    diagnoses_at_once: bool = False  # that, before anything else happens

    @property
    def on(self) -> bool:
        return self.top_scores > 0 or self.filter_failures


class Handle:
    """Handed to every plugin at its construction."""

    def __init__(self, clock: Clock, cache: Cache, *, seed: int = 0) -> None:
        self.clock = clock
        self.cache = cache
        self.seed = seed
        self.nominator = Nominator()
        self.budgets: dict[str, PodDisruptionBudget] = {}  # by namespace/name
        self.debug = DebugFlags()
        self.timing = Timing(clock)
        self._runners: dict[str, Runner] = {}
        self._shared: dict[type[Any], Any] = {}

    @property
    def columns(self) -> NodeColumns:
        return self.cache.columns

    def shared(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The one object of this kind that plugins of all profiles share; made of the cache, or by `make`, if new."""
        if kind not in self._shared:
            self._shared[kind] = make() if make is not None else kind(self.cache)  # type: ignore[call-arg]
        return cast("T", self._shared[kind])

    def register(self, runner: "Runner") -> None:
        self._runners[runner.scheduler_name] = runner

    def check(self, state: CycleState, info: PodInfo, node: NodeInfo) -> Status:
        """The filters of the pod's own profile on one node, the plain way, nominated pods counted."""
        return self._runners[info.pod.spec.scheduler_name].check_with_nominated(state, info, node)

    def invalidate_class_scores(self) -> None:
        """What plugins of all profiles said so far does not hold any more."""
        for runner in self._runners.values():
            runner.invalidate_class_scores()

    def runner_named(self, scheduler_name: str) -> "Runner":
        return self._runners[scheduler_name]

    def runner_of(self, info: PodInfo) -> "Runner":
        return self._runners[info.pod.spec.scheduler_name]
