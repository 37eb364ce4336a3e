"""Upstream's extension points: one base class for each, named as in k8s.io/kube-scheduler/framework.

A plugin declares, besides its methods:
- `scope`: what its result for a node depends on. The engine uses it to decide when a kept result is stale.
- `reads_labels`, `reads_annotations`: the pod metadata that its result depends on. Pods that agree in all of these can
  share an equivalence class.

`check_plugin` refuses declarations that contradict each other. A plugin that can judge many nodes at once also derives
from a class of `accelerations`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar

import msgspec
import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.group_failure import GroupFailure
from seatrial.scheduler.framework.preparation import Preparation
from seatrial.scheduler.framework.sort_keys import checked
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import PostFilterResult, Status
from seatrial.scheduler.framework.timing import Timing

MAX_NODE_SCORE = 100
NO_LABELS = frozenset[str]()


class Scope(IntEnum):
    """What a result for a node depends on, besides the pod's equivalence class."""

    NODE = 1  # the node object
    NODE_PODS = 2  # the node object, its devices, and the pods on it
    CLUSTER = 3  # anything else: nothing is kept, the plugin runs in each cycle of a pod that it `concerns`


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of plugin arguments, spelled as in a configuration file. Unknown fields are refused."""

    api_version: str = ""
    kind: str = ""

    def check(self) -> None:
        """Refuse values that are out of range or contradict each other.

        Raises:
            ValueError: a value is refused. The message has the field's path, the expected and the found value.
        """


class Plugin(ABC):
    """Base of all plugins. `name` is the name in profiles and messages."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.CLUSTER
    reads_labels: ClassVar[Sequence[str]] = ()
    reads_annotations: ClassVar[Sequence[str]] = ()
    only_volumes: ClassVar[bool] = False  # with scope CLUSTER: it concerns no pods without volumes
    args_type: ClassVar[type[Args] | None] = None  # read for plugins of other packages
    timing: Timing  # set by the scheduler after construction

    def concerns(self, pod: Pod) -> bool:  # noqa: ARG002
        """With scope CLUSTER: whether the plugin can affect this pod. If not, the plugin is skipped for it.

        Called for every pod in every cycle, so it must be fast.
        """
        return True

    def label_keys(self, pod: Pod) -> frozenset[str] | None:  # noqa: ARG002
        """With scope CLUSTER: the keys of the pod's labels on which the result may depend; None: any.

        Waiting pods of one class and namespace that agree in these labels are woken as one.
        """
        return None

    @property
    def version(self) -> int:
        """With scope NODE: a number that changes when the kept results for all nodes become stale.

        For results that also depend on other node objects. It is read only after a node object changed.
        """
        return 0


class PreEnqueue(Plugin):
    """Decides whether a pod enters the scheduling queue."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether the pod may enter the queue.

        A rejected pod stays gated until it changes, or, with `Status.until(key)`, until `Handle.open_gate(key)`.
        """


class Gate(Plugin):
    """A condition of a pod that no node decides, as free quota: asked once per cycle, before all filters.

    A rejected pod waits under its wake key instead of under its equivalence class: changes of nodes do not wake it,
    `Handle.open_gate(key)` does. A pod without a key is never asked.
    """

    @abstractmethod
    def gate_key(self, pod: Pod) -> str:
        """The wake key, for example `quota/NAME`; "" if the gate does not concern the pod.

        Read when the pod enters the queue, when it changes, and for all pods after `Handle.request_regate()`.
        """

    @abstractmethod
    def gate(self, info: PodInfo) -> Status:
        """Whether the pod may be scheduled now. `info.shape.requests` has its parsed requests.

        Pods with equal key and equal equivalence class must get equal answers (`reads_labels`, `reads_annotations`).
        A rejection is reported as that of a PreFilter: `0/N nodes are available: <message>.`, and PostFilter runs.
        Must have no effects: it is also called to find the pods to wake, and by `seatrial explain`.
        """

    def gate_beside(self, info: PodInfo, planned: Sequence[PodInfo], gone: Sequence[PodInfo]) -> Status:  # noqa: ARG002
        """`gate` while the pods `planned` are imagined to be placed, and the pods `gone` to be gone."""
        return self.gate(info)


class QueueSort(Plugin):
    """Orders the scheduling queue; a profile has exactly one."""

    @abstractmethod
    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """The key by which the queue is ordered, smallest first. `queued_at`: monotonic seconds.

        Numbers of any size, but not NaN. Keys are compared as tuples are: one that begins another one is smaller.
        """

    def checked_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """`sort_key`, checked. A wrong key is reported as an exception of this plugin (`plugin_errors.origin`).

        Raises:
            TypeError: the key is not a tuple of numbers.
            ValueError: it has NaN in it.
        """
        return checked(self.sort_key(pod, queued_at))


class PreFilter(Plugin):
    """Reads a pod before Filter; may restrict the nodes or reject the pod."""

    honours_pins: ClassVar[bool] = False  # keeps only the nodes that a pod names (`cache.pins`)

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Read the pod once. Skip: this plugin's Filter does not run. `Status.only`: other nodes are rejected."""


class Filter(Plugin):
    """With scope NODE_PODS: a placement on a node must not turn a rejection there into a pass for another pod."""

    @abstractmethod
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Whether the pod can go on this node."""

    @property
    def limits_by_requests(self) -> bool:
        """Whether it rejects a node where less of any requested resource is free than the pod requests."""
        return False

    def slots_signature(self, state: CycleState, node: NodeInfo) -> Hashable:  # noqa: ARG002
        """With scope NODE_PODS: everything besides requests that decides how many pods of the class fit on the node.

        None: only requests do. Nodes with equal signatures and equal room have equal numbers of pods.
        """
        return node.name


class VictimAware(Plugin):
    """A filter with its own state about pods on nodes: upstream's PreFilterExtensions (RemovePod, AddPod)."""

    @abstractmethod
    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """A simulated preemption removes `victim` from `node`: update this plugin's data in `state`."""

    @abstractmethod
    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """A simulated preemption puts `victim` back on `node`: undo `victim_removed`."""


class Transformer(Plugin):
    """Koordinator's AfterPreFilter transformer: lets some pods ignore pods on a node, as for reservations."""

    @abstractmethod
    def overlooked(self, state: CycleState, pod: Pod) -> Mapping[str, Sequence[PodInfo]]:
        """By node, the pods there that `pod` ignores. Called for pods that the plugin `concerns`."""

    @abstractmethod
    def chosen(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        """`node`, a copy without the ignored pods, was selected. Record in `state` what `pod` uses. Before Reserve."""

    @property
    def concern_version(self) -> int | None:
        """A number that changes when `concerns` may answer otherwise for the same pod; None: it is not counted.

        With None, groups that wait for room are looked at after each change of a node.
        """
        return None


class PostFilter(Plugin):
    """Called for a pod that no node fits."""

    @abstractmethod
    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        """No node fits: find a remedy, as preemption does."""

    def serves_group(self, pod: Pod) -> bool:  # noqa: ARG002
        """Whether `post_filter_group` is called if the group of this pod cannot be placed."""
        return False

    def post_filter_group(self, group: GroupFailure) -> PostFilterResult:  # noqa: ARG002
        """Some members of a group fit nowhere: find a remedy for all of them, or for none."""
        return PostFilterResult(Status.unschedulable())


class Score(Plugin):
    """Scores feasible nodes; the node with the highest weighted sum of scores is selected."""

    normalizer: ClassVar["ByMaximum | None"] = None
    common_ties: bool = False  # equally good nodes have one order for all classes, not one for each class

    @abstractmethod
    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """The score of the node, 0 to 100; any number if a `normalizer` maps it to that range."""

    def normalize(self, state: CycleState, raw: Ints) -> Ints:  # noqa: ARG002
        """With scope CLUSTER: map the raw scores [node] of the feasible nodes to 0..100."""
        if self.normalizer is None:
            return raw
        return self.normalizer.apply(raw[None], raw.max(initial=0).reshape(1, 1))[0]

    def survey(self, state: CycleState, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        """With scope CLUSTER: receives the feasible nodes before `score`. `score_batch` gets them as its batch."""

    def pre_score(self, state: CycleState, pod: Pod) -> bool:  # noqa: ARG002
        """Whether `score` matters for this pod. Called once for each class; with scope CLUSTER, in each cycle."""
        return True


class Reserve(Plugin):
    """Books resources on the selected node before the binding, and returns them if the binding fails."""

    reserves: ClassVar[bool] = True  # False: both methods do nothing and are not called
    acts_on: ClassVar[StateKey[Any] | None] = None  # `reserve` does nothing without this entry, and is not called

    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Take the resources that the pod gets on the node. `unreserve` follows any rejection."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give them back. Also called when `reserve` did not run."""


class Permit(Plugin):
    """Approves, delays or denies a binding."""

    @abstractmethod
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Approve or deny the binding after Reserve: Success, or a rejection, which runs Unreserve.

        `Status.wait(seconds)`: the pod keeps its place until the plugin allows or rejects it through
        `Handle.waiting_pod`. When the time ends it is rejected.
        """


class Bind(Plugin):
    """Marks DefaultBinder. Other Bind plugins are refused in the configuration, because the shell writes bindings."""


class PostBind(Plugin):
    """Called after a binding succeeded."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """The API server accepted the binding. Not called for a binding that failed."""


class MetadataChanges(msgspec.Struct, frozen=True):
    """Labels and annotations to write to a pod with its binding, and annotations to write to its node before that.

    `preparation`: patches of other objects that come first, and what must then hold. `stale`: annotations of the pod to
    take away before that.
    """

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    node_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    preparation: Preparation | None = None
    stale: tuple[str, ...] = ()


NO_METADATA_CHANGES = MetadataChanges({}, {})


class PreBind(Plugin):
    """Contributes labels and annotations to the binding, and what has to be done before it."""

    acts_on: ClassVar[StateKey[Any] | None] = None  # `pre_bind` does nothing without this entry, and is not called

    @abstractmethod
    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        """What to write to the pod and its node when the pod is bound. Must not do I/O: the binder writes it.

        With a `preparation` the pod keeps its place until all of it is done; if that fails, Unreserve runs and the pod
        is tried again after its backoff.
        """


class ByMaximum:
    """Upstream's DefaultNormalizeScore: scale raw scores so that the largest becomes 100; `reverse`: 100 minus that.

    Other nodes affect a score only through the largest raw score of a feasible node.
    """

    def __init__(self, *, reverse: bool = False) -> None:
        self.reverse = reverse

    def apply(self, raw: Ints, highest: Ints) -> Ints:
        """Scores 0..100 for `raw` [class, node], given each class's largest raw score [class, 1]."""
        scaled = raw * MAX_NODE_SCORE  # where the highest is 0 all are 0, and stay 0 (or 100, in reverse)
        scaled //= np.maximum(highest, 1)
        return MAX_NODE_SCORE - scaled if self.reverse else scaled

    def one(self, raw: int, highest: int) -> int:
        """The same for one value."""
        scaled = raw * MAX_NODE_SCORE // (highest or 1)
        return MAX_NODE_SCORE - scaled if self.reverse else scaled


def check_plugin(kind: type[Plugin]) -> None:
    """Check the declarations of a plugin class.

    Raises:
        ValueError: `name` or `scope` is missing or wrong, or a method is overridden that never runs with this scope.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"class {kind.__qualname__}: expected a non-empty string in `name`, found {name!r}")
    declared: object = kind.scope
    if not isinstance(declared, Scope):
        expected = ", ".join(f"Scope.{scope.name}" for scope in Scope)
        raise ValueError(f"scope: expected one of {expected}, found {declared!r}")
    for methods, scope in _METHODS_OF_SCOPE:
        for method, base in methods.items():
            result = getattr(kind, method, base)
            if result != base and kind.scope is not scope:
                raise ValueError(
                    f"scope: `{method}` needs Scope.{scope.name}, found Scope.{kind.scope.name};"
                    f" change the scope, or remove `{method}`"
                )
    if issubclass(kind, Transformer) and kind.scope is not Scope.CLUSTER:
        raise ValueError(f"scope: a Transformer needs Scope.CLUSTER, found Scope.{kind.scope.name}")


_METHODS_OF_SCOPE: tuple[tuple[dict[str, object], Scope], ...] = (
    (
        {
            "concerns": Plugin.concerns,
            "label_keys": Plugin.label_keys,
            "survey": Score.survey,
            "normalize": Score.normalize,
        },
        Scope.CLUSTER,
    ),
    ({"only_volumes": Plugin.only_volumes}, Scope.CLUSTER),
    ({"version": Plugin.version}, Scope.NODE),
)
