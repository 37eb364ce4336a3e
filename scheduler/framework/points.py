"""What a plugin can be: one base class for each extension point, as upstream's scheduling framework names them.

A plugin says two things beyond its methods. `scope`: what its verdict on a node depends on, so that the engine knows
when a kept verdict is stale. `reads_labels` and `reads_annotations`: which of a pod's marks make a difference to it, so
that pods alike in all of them can share one verdict. A plugin that can judge many nodes at once also is a
`FilterBatch` or `ScoreBatch`; its plain method stays the definition, and a test compares the two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from scheduler.api.core import Node, Pod
from scheduler.cache.classes import EquivalenceClass
from scheduler.cache.columns import Batch, Bools, Ints
from scheduler.framework.state import CycleState
from scheduler.framework.status import Status

if TYPE_CHECKING:
    from scheduler.framework.fit_error import FitError
    from scheduler.framework.nodeinfo import NodeInfo, PodInfo
    from scheduler.framework.timing import Timing

MAX_NODE_SCORE = 100


class Scope(IntEnum):
    """What a verdict depends on, beyond the pod's class."""

    NODE = 1  # the node object
    NODE_PODS = 2  # the node object, its devices, and the pods on it
    CLUSTER = 3  # anything, so that nothing is kept: asked anew in each cycle, of pods that the plugin `concerns`


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of plugin arguments as a configuration file spells them; a field that nobody knows is refused."""

    api_version: str = ""
    kind: str = ""

    def check(self) -> None:
        """Refuse values that make no sense.

        Raises:
            ValueError: with the field's path from here, what was expected and what was found.
        """


class Plugin(ABC):
    """Base of all plugins; `name` is the one in profiles and messages."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.CLUSTER
    reads_labels: ClassVar[Sequence[str]] = ()
    reads_annotations: ClassVar[Sequence[str]] = ()
    only_volumes: ClassVar[bool] = False  # with scope CLUSTER: pods without volumes are none of its business
    timing: "Timing"  # the scheduler's, set once the plugin is built

    def concerns(self, pod: Pod) -> bool:  # noqa: ARG002
        """With scope CLUSTER: whether there is anything to say about this pod; if not, it is as if it had been skipped.

        Asked in every cycle, of every pod: it must be quick. A pod that no such plugin concerns pays for no more.
        """
        return True

    @property
    def version(self) -> int:
        """With scope NODE: what is kept about all nodes is stale once this changes.

        For verdicts that also depend, rarely, on node objects other than the one node's. It is asked only when some
        node object has changed.
        """
        return 0


class PreEnqueue(Plugin):
    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether the pod may enter the queue; a rejection keeps it out until it changes."""


class QueueSort(Plugin):
    @abstractmethod
    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """What the queue is ordered by: smallest first."""


class PreFilter(Plugin):
    honours_pins: ClassVar[bool] = False  # leaves over only the nodes that a pod names (`cache.pins`)

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Look at the pod once. Skip: this plugin's Filter is not asked. `Status.only`: nodes outside need no look."""


class Filter(Plugin):
    """With scope NODE_PODS: a pod that does not pass on a node does not come to pass because another came there."""

    @abstractmethod
    def filter(self, state: CycleState, pod: Pod, node: "NodeInfo") -> Status:
        """Whether the pod can go on this node."""


class FilterBatch(Filter):
    """A filter that can judge many nodes, for many classes, at once."""

    has_signature: ClassVar[bool] = (
        False  # whether `filter_signature` and `filter_classes_batch` are there; a score's likewise
    )

    def can_batch(self, state: CycleState) -> bool:  # noqa: ARG002
        """Whether it can for this class; if not, `filter` is asked node by node."""
        return True

    def stack(self, states: Sequence[CycleState]) -> Any:
        """What `filter_batch` needs to know of these classes, put together as it likes best."""
        return states

    @abstractmethod
    def filter_batch(self, stacked: Any, batch: Batch) -> Bools | None:
        """`filter` for every class and row, [class, node]; None if they all pass."""

    def filter_signature(self, stacked: Any, node: "NodeInfo") -> Hashable:  # noqa: ARG002
        """What of a node `filter_classes_batch` depends on: nodes with equal signatures get equal results."""
        raise AssertionError(f"{self.name} has no signature")

    def filter_classes_batch(self, stacked: Any, node: "NodeInfo") -> Bools:  # noqa: ARG002
        """`filter_batch` for one node, [class]: asked when a pod comes to a node."""
        raise AssertionError(f"{self.name} does not judge single nodes")

    def reasons_batch(self, stacked: Any, batch: Batch) -> "tuple[Ints, Callable[[int], Status]] | None":  # noqa: ARG002
        """For one class: a small number for every row, 0 where it passes, and the status that a number stands for.

        None: `filter` has to be asked for each.
        """
        return None


class DryRunBatch(Filter):
    """A filter of scope NODE_PODS of which preemption can try many nodes at once, by amounts.

    What it looks at of a node is a line of numbers; each pod there holds some of them, and gives them back if it goes.
    """

    @abstractmethod
    def dry_run_signature(self, node: "NodeInfo", pods: "Sequence[PodInfo]") -> Hashable:
        """What `filter` depends on there, for any pod, while some of `pods`, which are on it, are imagined gone.

        On nodes with equal signatures it says the same when pods at the same places are gone: one is tried for all.
        """

    @abstractmethod
    def can_batch_dry_run(self, state: CycleState) -> bool:
        """Whether amounts decide for this class."""

    @abstractmethod
    def dry_run_width(self) -> int:
        """How many numbers there are at present."""

    @abstractmethod
    def dry_run_free(self, node: "NodeInfo") -> Sequence[int] | None:
        """What of each is free on the node, below 0 where too much is held; None: it has to be tried by itself."""

    @abstractmethod
    def dry_run_keys(self, node: "NodeInfo", pods: "Sequence[PodInfo]") -> Sequence[Hashable]:
        """For each of these pods, which are on `node`, what decides about `dry_run_held`."""

    @abstractmethod
    def dry_run_held(self, node: "NodeInfo", pod: "PodInfo") -> Sequence[int]:
        """What `pod` holds of each on this node."""

    @abstractmethod
    def dry_run_filter(self, state: CycleState, free: Ints) -> Bools:
        """`filter` for one class where so much would be free [node, number]."""


class VictimAware(Plugin):
    """A filter with state of its own about pods on nodes; preemption tells it whom to imagine gone."""

    @abstractmethod
    def victim_removed(self, state: CycleState, victim: "PodInfo", node: "NodeInfo") -> None: ...

    @abstractmethod
    def victim_returned(self, state: CycleState, victim: "PodInfo", node: "NodeInfo") -> None: ...


class Transformer(Plugin):
    """Shows some pods a node otherwise than it is: upstream's AfterPreFilter, where what is held is handed back."""

    @abstractmethod
    def overlooked(self, state: CycleState, pod: Pod) -> "Mapping[str, Sequence[PodInfo]]":
        """By node, pods there that `pod` need take no notice of. Of scope CLUSTER: asked of pods that it `concerns`."""

    @abstractmethod
    def chosen(self, state: CycleState, pod: Pod, node: "NodeInfo") -> None:
        """The pod goes to `node`, which it sees like this: settle in `state` what it uses there. Before Reserve."""


class PostFilter(Plugin):
    @abstractmethod
    def post_filter(self, state: CycleState, info: "PodInfo", failure: "FitError") -> "PostFilterResult":
        """No node fits; what could be done."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """Success: nominate `node` and evict `victims`. Otherwise `status` says why nothing can be done."""

    status: Status
    node: str = ""
    victims: tuple["PodInfo", ...] = ()
    clear_nomination: bool = False


class Score(Plugin):
    normalizer: ClassVar["ByMaximum | None"] = None

    @abstractmethod
    def score(self, state: CycleState, pod: Pod, node: "NodeInfo") -> int:
        """How good the node is: 0 to 100, or any number if `normalizer` brings it there."""

    def normalize(self, state: CycleState, raw: Ints) -> Ints:  # noqa: ARG002
        """With scope CLUSTER: bring the raw scores [node] of the feasible nodes to 0..100, in whatever way."""
        if self.normalizer is None:
            return raw
        return self.normalizer.apply(raw[None], raw.max(initial=0).reshape(1, 1))[0]

    def survey(self, state: CycleState, pod: Pod, nodes: "Sequence[NodeInfo]") -> None:
        """With scope CLUSTER: these nodes are feasible; comes before `score`. `score_batch` gets them as its batch."""

    def pre_score(self, state: CycleState, pod: Pod) -> bool:  # noqa: ARG002
        """Whether `score` has anything to say about this pod; asked once a class (or cycle, by scope)."""
        return True

    def kind(self, state: CycleState) -> Hashable:  # noqa: ARG002
        """What classes must have in common for `max_score_delta` to hold for all of them."""
        return None

    @property
    def has_delta_bound(self) -> bool:
        """Whether `max_score_delta` is a good bound. If not, a pod that comes to a node rescores it for all classes."""
        return False

    def max_score_delta(self, node: "NodeInfo", placed: "PodInfo", kind: Hashable) -> int:  # noqa: ARG002
        """By how much at most the score of any pod that still fits on `node` has risen, now that `placed` is there.

        Negative: it has fallen by at least that much. A bound within a point or two saves scoring nodes that cannot
        come out best; much of the speed on large clusters is here.
        """
        raise AssertionError(f"{self.name} has no bound")


class ScoreBatch(Score):
    """A score that can judge many nodes, for many classes, at once."""

    has_signature: ClassVar[bool] = (
        False  # whether `score_signature` and `score_classes_batch` are there; a filter's likewise
    )

    def can_batch_scores(self, state: CycleState) -> bool:  # noqa: ARG002
        """Whether it can for this class; if not, `score` is asked node by node."""
        return True

    def stack_scores(self, states: Sequence[CycleState]) -> Any:
        """What `score_batch` needs to know of these classes, put together as it likes best."""
        return states

    @abstractmethod
    def score_batch(self, stacked: Any, batch: Batch) -> Ints | None:
        """`score` for every class and row, [class, node], for the caller to overwrite; None if all are 0."""

    def score_classes_batch(self, stacked: Any, node: "NodeInfo") -> Ints:  # noqa: ARG002
        """The same for one node, [class]: asked of scores that are not `has_delta_bound` when a pod comes to a node."""
        raise AssertionError(f"{self.name} neither has a bound nor scores single nodes")

    def score_signature(self, stacked: Any, node: "NodeInfo") -> Hashable:  # noqa: ARG002
        """What of a node `score_classes_batch` depends on: nodes with equal signatures get equal scores."""
        raise AssertionError(f"{self.name} has no signature")

    @property
    def monotone(self) -> bool:
        """With a normalizer: whether a pod that comes to a node never raises the node's raw score for another."""
        return False


class Permit(Plugin):
    """Base of plugins that may hold a pod back after its node is settled."""


class Bind(Plugin):
    """Base of plugins that say how a pod is bound; the shell carries it out."""


class PostBind(Plugin):
    """Base of plugins that want to know that a pod is bound."""


class Reserve(Plugin):
    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Take what the pod was promised."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give it back; also called when `reserve` never ran."""


class PreBind(Plugin):
    @abstractmethod
    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> "Marks":
        """What to write on the pod together with its node. No I/O here: binding writes it."""


class Marks(msgspec.Struct, frozen=True):
    """Labels and annotations for a pod that is being bound, and for its node."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    node_annotations: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # for the node, before anything else is written


NO_MARKS = Marks({}, {})


class Listener(ABC):
    """Somebody who keeps sums of its own over pods on nodes."""

    only_annotations: ClassVar[bool] = False  # a pod that comes without annotations is nothing to `pod_placed`

    def is_relevant(self, shape: EquivalenceClass) -> bool:  # noqa: ARG002
        """Whether pods of this class can matter to `pod_placed` and `pod_gone`; asked once a class, not once a pod."""
        return True

    def node_added(self, name: str) -> None:  # noqa: B027 most listeners do not mind
        """The node exists now and has its row."""

    def node_set(self, node: Node, before: Node | None) -> None:  # noqa: B027 likewise
        """A node is new (`before` is None), or its labels or annotations are; comes before `node_added`."""

    @abstractmethod
    def pod_placed(self, info: "PodInfo") -> None:
        """A pod is on a node now, or is assumed to be."""

    @abstractmethod
    def pod_gone(self, info: "PodInfo") -> None:
        """It is not any more."""

    def pod_changed(self, info: "PodInfo", before: Pod) -> None:  # noqa: B027 likewise
        """Its marks changed while it stayed where it is: labels, annotations, or that it is being deleted."""

    def pod_started(self, info: "PodInfo") -> None:  # noqa: B027 likewise
        """The API server says when it started; it said nothing, or something else, before."""

    def namespace_changed(self, name: str) -> None:  # noqa: B027 likewise
        """A namespace's labels are others than they were."""


class ByMaximum:
    """Brings raw scores to 0..100: the largest becomes 100, the others in proportion; `reverse` counts down from 100.

    (upstream DefaultNormalizeScore.) All other nodes matter only through the largest raw score of a feasible one.
    """

    def __init__(self, *, reverse: bool = False) -> None:
        self.reverse = reverse

    def apply(self, raw: Ints, highest: Ints) -> Ints:
        """Scores for `raw` [class, node], given each class's largest [class, 1]."""
        scaled = raw * MAX_NODE_SCORE  # where the highest is 0 all are 0, and stay 0 (or 100, in reverse)
        scaled //= np.maximum(highest, 1)
        return MAX_NODE_SCORE - scaled if self.reverse else scaled

    def one(self, raw: int, highest: int) -> int:
        """The same for one value."""
        scaled = raw * MAX_NODE_SCORE // (highest or 1)
        return MAX_NODE_SCORE - scaled if self.reverse else scaled
