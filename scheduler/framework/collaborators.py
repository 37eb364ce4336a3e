"""What plugins see of the engine and the core, and what these call of plugins, besides extension points."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.extension_points import Filter, Gate, Plugin
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status


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

    def class_scores(self, pod_class: EquivalenceClass) -> ClassResults:
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
