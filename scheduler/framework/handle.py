"""What plugins can read of the scheduler, and register with it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.collaborators import PodIntake, ProfileRunner, WaitingPod, WaitingPods, Watch
from seatrial.scheduler.framework.controllers import ControllerFactory
from seatrial.scheduler.framework.groups import PodGroups
from seatrial.scheduler.framework.kept_decisions import KEPT_DECISIONS, KeptDecisions
from seatrial.scheduler.framework.nominator import Nominator
from seatrial.scheduler.framework.plugin_errors import PluginErrors
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.framework.timing import Timing
from seatrial.scheduler.framework.wakes import WakeRequests
from seatrial.scheduler.serving.exposition import Family
from seatrial.scheduler.serving.routes import Handler

T = TypeVar("T")

RejectionEvent = Callable[[Pod, str], tuple[str, str] | None]  # of a rejected pod and its message


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
    - `on_node_changed`, `on_pod_pending`, `on_pod_left`: nodes, and pods that are not on nodes;
    - `control`: a controller, which writes objects while this scheduler leads;
    - `serve`: routes of the services API;
    - `export`: metric families;
    - `describe_nodes`: an entry of the node view.
    """

    def __init__(self, clock: Clock, cache: Cache, *, seed: int = 0, kept_decisions: int = KEPT_DECISIONS) -> None:
        self.clock = clock
        self.cache = cache
        self.seed = seed
        self.nominator = Nominator()
        self.debug = DebugFlags()
        self.kept = KeptDecisions(clock, kept_decisions)
        self.timing = Timing(clock)
        self.plugin_errors = PluginErrors()
        self.wakes = WakeRequests()
        self.runners: dict[str, ProfileRunner] = {}  # by scheduler name
        self.invalidations = 0  # how often all kept results were dropped
        self.node_listeners: list[Callable[[str, Node | None], None]] = []
        self.pending_listeners: list[Callable[[Pod], None]] = []
        self.left_listeners: list[Callable[[str], None]] = []
        self.watches: list[Watch] = []
        self.controllers: list[ControllerFactory] = []
        self.rejection_events: list[RejectionEvent] = []
        self.routes: list[tuple[str, Handler]] = []  # patterns below the services API
        self.exports: list[Callable[[], Iterable[Family]]] = []
        self.node_views: dict[str, Callable[[NodeInfo], Any]] = {}
        self._groups: PodGroups | None = None
        self._count: Callable[[Pod], Pod] = lambda pod: pod
        self._complaints: list[str] = []
        self._intake: PodIntake | None = None
        self._waiting_pods: WaitingPods | None = None
        self._ready: Callable[[], None] = lambda: None
        self._shared: dict[type[Any], Any] = {}

    # -- what a plugin uses -------------------------------------------------------------------------------------------

    @property
    def columns(self) -> NodeColumns:
        return self.cache.columns

    @property
    def leading(self) -> bool:
        """Whether this scheduler decides. A standby follows the cluster: it queues no pod and opens no gate."""
        return self.wakes.leading

    @property
    def groups(self) -> PodGroups | None:
        """The groups of pods, if a profile places groups."""
        return self._groups

    @property
    def intake(self) -> PodIntake:
        """The core's input, once it exists: after construction of plugins, before the first event."""
        assert self._intake is not None, "the core is not built yet"
        return self._intake

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
        return self._waiting_pods.get(uid) if self._waiting_pods is not None else None

    def waiting_pods(self) -> Iterator[WaitingPod]:
        """The pods that wait on Permit (upstream's IterateOverWaitingPods)."""
        return iter(self._waiting_pods) if self._waiting_pods is not None else iter(())

    def request_wake(self) -> None:
        """Have the core look again whether waiting pods fit."""
        self.wakes.wake = True

    def open_gate(self, key: str) -> None:
        """Have the core ask the pods again that PreEnqueue or a gate holds back under this wake key.

        The first pod of each class is asked, and the next one when that pod was scheduled. A standby holds no pods.
        """
        self.wakes.open(key)

    def request_regate(self) -> None:
        """Have the core read `Gate.gate_key` of all pods in the queue again, and ask all held pods again."""
        self.wakes.read_gates_again()

    def request_cycle(self) -> None:
        """Have the driver call `decide` soon. For timers; events need no call."""
        self._ready()

    def complain(self, *problems: str) -> None:
        """Report what is wrong with an object; the shell logs it."""
        self._complaints += problems

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

    def evaluation_failed(self, error: Exception, concerned: str) -> str:
        """Record an exception of a plugin, and drop all kept results: some may be half updated. Returns the message."""
        message = self.plugin_errors.record(error, concerned)
        self.invalidate_class_scores()
        return message

    # -- what a plugin registers --------------------------------------------------------------------------------------

    def watch(self, watch: Watch) -> None:
        """Follow a kind of object. Call before the scheduler starts."""
        self.watches.append(watch)

    def on_node_changed(self, call: Callable[[str, Node | None], None]) -> None:
        """Have `call` called with the name of each node that was added or changed, and the node, or (None) is gone."""
        self.node_listeners.append(call)

    def on_pod_pending(self, call: Callable[[Pod], None]) -> None:
        """Have `call` called with each pod without a node, of any scheduler, that was added or changed.

        The cache does not count such pods. `Cache.pending` has those that came before.
        """
        self.pending_listeners.append(call)

    def on_pod_left(self, call: Callable[[str], None]) -> None:
        """Have `call` called with the uid of each pod that is gone or has ended."""
        self.left_listeners.append(call)

    def control(self, controller: ControllerFactory) -> None:
        """Run a controller; the factory is called once, with what writes to the API server."""
        self.controllers.append(controller)

    def explain_rejections(self, explain: RejectionEvent) -> None:
        """Have an event of its own written about a rejected pod, with the reason and note that `explain` returns."""
        self.rejection_events.append(explain)

    def serve(self, pattern: str, handler: Handler) -> None:
        """Answer GET requests below `/apis/v1/`. `pattern` may have `:name` for one part of the path."""
        self.routes.append((pattern, handler))

    def export(self, families: Callable[[], Iterable[Family]]) -> None:
        """Add metric families to `/metrics`; called for each request."""
        self.exports.append(families)

    def describe_nodes(self, key: str, view: Callable[[NodeInfo], Any]) -> None:
        """Add an entry to the answer of `nodes/:nodeName`."""
        self.node_views[key] = view

    def place_groups(self, groups: PodGroups) -> None:
        """Have the core place these groups of pods as one decision."""
        self._groups = groups

    def count_pods_as(self, count: Callable[[Pod], Pod]) -> None:
        """What a pod on a node counts with that has a label of operating modes."""
        self._count = count

    # -- what the core and the shell call -----------------------------------------------------------------------------

    def connect(self, intake: PodIntake, waiting_pods: WaitingPods) -> None:
        """The core is built."""
        self._intake, self._waiting_pods = intake, waiting_pods

    def register(self, runner: ProfileRunner) -> None:
        """The runner of a profile is built."""
        self.runners[runner.scheduler_name] = runner

    def as_counted(self, pod: Pod) -> Pod:
        """The pod as it counts on its node (`count_pods_as`)."""
        return self._count(pod)

    def call_when_ready(self, call: Callable[[], None]) -> None:
        """`call` has the driver call `decide` soon."""
        self._ready = call

    def take_complaints(self) -> list[str]:
        """What is wrong with objects, since the last call."""
        complaints, self._complaints = self._complaints, []
        return complaints
