"""What plugins can read of the scheduler, and register with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node, Pod, PodDisruptionBudget
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.extension_points import Filter, Gate, Plugin
from seatrial.scheduler.framework.groups import PodGroups
from seatrial.scheduler.framework.plugin_errors import PluginErrors
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.framework.timing import Timing
from seatrial.scheduler.serving.exposition import Family
from seatrial.scheduler.serving.routes import Handler

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Watch:
    """A kind of object that a plugin follows on the API server, and what happens when one is set or gone.

    `selector`: query parameters of list and watch requests. `optional`: the API server need not serve the kind.
    """

    path: str
    kind: type[Any]  # decoded from JSON; has `metadata`
    on_set: Callable[[Any], None]
    on_gone: Callable[[Any], None]
    selector: Mapping[str, str] = field(default_factory=dict)
    optional: bool = True


class ClassResults(Protocol):
    """The kept results of one equivalence class, as dry runs read them (`seatrial.scheduler.engine.class_scores`)."""

    @property
    def state(self) -> CycleState:
        """What PreFilters of the class wrote. Cycles use a fork."""

    @property
    def node_pods_filters(self) -> Sequence[Filter]:
        """The filters of scope NODE_PODS that matter to the class."""

    @property
    def cluster_filters(self) -> Sequence[Filter]:
        """The filters of scope CLUSTER that may matter to pods of the class."""

    @property
    def versioned(self) -> Sequence[Plugin]:
        """Plugins of scope NODE whose results for all nodes can become stale at once (`Plugin.version`)."""

    def node(self, row: int) -> NodeInfo: ...

    def admits(self, row: int) -> bool:
        """Whether the filters of scope NODE pass the node, so that the pods on it decide."""


class ProfileRunner(Protocol):
    """The plugins of one profile as other plugins run them (`seatrial.scheduler.engine.runner`)."""

    scheduler_name: str
    filters: Sequence[Filter]

    @property
    def plugins(self) -> Sequence[Plugin]:
        """All plugins of the profile."""

    def gates_of(self, pod: Pod) -> Sequence[tuple[Gate, str]]:
        """The gates that concern a pod, with their wake keys."""

    def class_scores(self, shape: EquivalenceClass) -> ClassResults:
        """The kept results of a class."""

    def check_with_nominated(self, state: CycleState, info: PodInfo, node: NodeInfo) -> Status:
        """Run the filters on one node, with the nominated pods of equal or higher priority there."""

    def removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Notify the filters with their own state that `victim` is removed from `node`, a copy."""

    def returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Notify them that `victim` is on `node` again."""

    def invalidate_class_scores(self) -> None:
        """Drop all kept results."""


class PodIntake(Protocol):
    """What plugins that turn their own objects into pods need of the scheduler's core."""

    def set_pod(self, pod: Pod) -> None:
        """A pod was added or changed."""

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has ended."""

    def on_ready(self) -> None:
        """Have the driver call `decide` soon. For timers of plugins; events need no call."""

    def regroup_waiting(self, mark_of: Callable[[Pod], str | None]) -> None:
        """Regroup waiting pods: those with a mark wait apart from other pods of their class."""


class WaitingPod(Protocol):
    """A pod that has a place and waits on Permit, as upstream's framework.WaitingPod."""

    @property
    def pod(self) -> Pod: ...

    @property
    def pending_plugins(self) -> Sequence[str]:
        """The plugins that have not allowed the pod yet."""

    def allow(self, plugin: str) -> None:
        """The plugin of this name allows the pod to be bound."""

    def reject(self, plugin: str, message: str) -> None:
        """The plugin of this name rejects the pod: it gives its place back."""


class WaitingPods(Protocol):
    """All pods that wait on Permit."""

    def get(self, uid: str) -> WaitingPod | None: ...

    def __iter__(self) -> Iterator[WaitingPod]: ...


class ObjectListener(Protocol):
    """Called for nodes, and for pods without a node: these are not in the cache."""

    def pod_pending(self, pod: Pod) -> None:
        """A pod without a node was added or changed, of any scheduler."""

    def pod_left(self, uid: str) -> None:
        """A pod is gone or has ended."""

    def node_changed(self, name: str, node: Node | None) -> None:
        """A node was added or changed, or (None) is gone."""


class Nominator:
    """Pods nominated to nodes by preemption (status.nominatedNodeName). Filters count them on those nodes."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._group_of: dict[str, str] = {}  # of nominated members, the key of their group
        self.nominated = self._node_of.keys()  # uids; every decision checks whether it is empty

    def nominate(self, info: PodInfo, node: str, group: str = "") -> None:
        """`group`: the key of the pod's group, if the group was nominated together."""
        self.forget(info.uid)
        if group:
            self._group_of[info.uid] = group
        self._node_of[info.uid] = node
        self._by_node.setdefault(node, {})[info.uid] = info

    def forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        self._group_of.pop(uid, None)
        if node is not None:
            there = self._by_node[node]
            del there[uid]
            if not there:
                del self._by_node[node]

    def node_of(self, uid: str) -> str:
        """The node that the pod is nominated to; "" if none."""
        return self._node_of.get(uid, "")

    def group_of(self, uid: str) -> str:
        """The group with which the pod was nominated; "" if none."""
        return self._group_of.get(uid, "")

    def on(self, node: str) -> Iterable[PodInfo]:
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Iterable[str]:
        return self._by_node


@dataclass(slots=True)
class DebugFlags:
    """What to log of each cycle for debugging. Each flag costs far more than the cycle itself."""

    top_scores: int = 0  # number of best nodes to log with their scores by plugin; 0 or less: none
    filter_failures: bool = False  # log each rejected node with the plugin and the reason
    diagnoses: bool = False  # log a JSON diagnosis of each failed cycle
    diagnoses_at_once: bool = False  # log it before the cycle returns

    @property
    def on(self) -> bool:
        return self.top_scores > 0 or self.filter_failures


class Handle:
    """Passed to every plugin at its construction: the cache, the clock, and registration of what the plugin adds.

    A plugin registers in its constructor or in `make` of `shared`, which runs once for all profiles:
    - `watch`: kinds of object that it follows;
    - `serve`: routes of the services API;
    - `export`: metric families;
    - `describe_nodes`: an entry of the node view.
    """

    def __init__(self, clock: Clock, cache: Cache, *, seed: int = 0) -> None:
        self.clock = clock
        self.cache = cache
        self.seed = seed
        self.leading = True  # a standby follows the cluster: it queues no pod, opens no gate and makes no decision
        self.nominator = Nominator()
        self.invalidations = 0  # how often all kept results were dropped
        self.budgets: dict[str, PodDisruptionBudget] = {}  # by namespace/name
        self.debug = DebugFlags()
        self.timing = Timing(clock)
        self.plugin_errors = PluginErrors()
        self.complaints: list[str] = []  # what is wrong with objects; the shell logs and empties it
        self.wake_requested = False  # a node may have become feasible for waiting pods; the core resets it
        # What a pod on a node that has a label of operating modes counts with; the plugin Reservation replaces it.
        self.as_counted: Callable[[Pod], Pod] = lambda pod: pod
        self.pod_left: list[Callable[[str], None]] = []  # called with the uid of each pod that is gone or has ended
        self.opened_gates: set[str] = set()  # wake keys whose held pods are to be asked again; the core empties it
        self.regate_requested = False  # gate keys of pods in the queue may have changed; the core resets it
        self.watches: list[Watch] = []
        self.object_listeners: list[ObjectListener] = []
        self.routes: list[tuple[str, Handler]] = []  # patterns below the services API
        self.exports: list[Callable[[], Iterable[Family]]] = []
        self.node_views: dict[str, Callable[[NodeInfo], Any]] = {}
        self._intake: PodIntake | None = None
        self.runners: dict[str, ProfileRunner] = {}
        self.groups: PodGroups | None = None  # set by the plugin of a profile that places groups
        self.permit_waiters: WaitingPods | None = None  # the core sets it
        self._shared: dict[type[Any], Any] = {}

    @property
    def columns(self) -> NodeColumns:
        return self.cache.columns

    def shared(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The one object of this type that plugins of all profiles share; created from the cache, or by `make`."""
        if kind not in self._shared:
            self._shared[kind] = make() if make is not None else kind(self.cache)  # type: ignore[call-arg]
        return cast("T", self._shared[kind])

    def has_shared(self, kind: type[Any]) -> bool:
        """Whether some plugin has created the shared object of this type."""
        return kind in self._shared

    def waiting_pod(self, uid: str) -> WaitingPod | None:
        """The pod of that uid if it waits on Permit (upstream's GetWaitingPod)."""
        return self.permit_waiters.get(uid) if self.permit_waiters is not None else None

    def waiting_pods(self) -> Iterator[WaitingPod]:
        """The pods that wait on Permit (upstream's IterateOverWaitingPods)."""
        return iter(self.permit_waiters) if self.permit_waiters is not None else iter(())

    def request_wake(self) -> None:
        """Have the core look again whether waiting pods fit."""
        self.wake_requested = True

    def open_gate(self, key: str) -> None:
        """Have the core ask the pods again that PreEnqueue or a gate holds back under this wake key.

        The first pod of each class is asked, and the next one when that pod was scheduled. A standby holds no pods.
        """
        if self.leading:
            self.opened_gates.add(key)

    def request_regate(self) -> None:
        """Have the core read `Gate.gate_key` of all pods in the queue again, and ask all held pods again."""
        self.regate_requested = True
        self.open_gate("")  # the core reads the flag when a gate opened

    def watch(self, watch: Watch) -> None:
        """Follow a kind of object. Call before the scheduler starts."""
        self.watches.append(watch)

    def serve(self, pattern: str, handler: Handler) -> None:
        """Answer GET requests below `/apis/v1/`. `pattern` may have `:name` for one part of the path."""
        self.routes.append((pattern, handler))

    def export(self, families: Callable[[], Iterable[Family]]) -> None:
        """Add metric families to `/metrics`; called for each request."""
        self.exports.append(families)

    def describe_nodes(self, key: str, view: Callable[[NodeInfo], Any]) -> None:
        """Add an entry to the answer of `nodes/:nodeName`."""
        self.node_views[key] = view

    @property
    def intake(self) -> PodIntake:
        """The core, once it exists: after construction of plugins, before the first event."""
        assert self._intake is not None, "the core is not built yet"  # noqa: S101
        return self._intake

    @intake.setter
    def intake(self, intake: PodIntake) -> None:
        self._intake = intake

    def register(self, runner: ProfileRunner) -> None:
        self.runners[runner.scheduler_name] = runner

    def runner_of(self, info: PodInfo) -> ProfileRunner:
        """The runner of the profile that a pod names."""
        return self.runners[info.pod.spec.scheduler_name]

    def check(self, state: CycleState, info: PodInfo, node: NodeInfo) -> Status:
        """Run the filters of the pod's profile on one node, nominated pods included, without kept results."""
        return self.runner_of(info).check_with_nominated(state, info, node)

    def invalidate_class_scores(self) -> None:
        """Drop the kept results of all profiles."""
        self.invalidations += 1
        for runner in self.runners.values():
            runner.invalidate_class_scores()
