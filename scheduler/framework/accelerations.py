"""What makes plugins fast: judging many nodes at once, bounds of score changes, node signatures, batched dry runs.

Nothing here exists upstream. The plain methods of `extension_points` define what a plugin does. Methods here must give
the same results for many nodes or classes at once. `scheduler/tests/oracle.py` compares the two.

Axes of arrays: `class` (equivalence classes, in the order of the states passed to `stack`) and `node` (rows of
`NodeColumns`, in the order of `Batch.rows`).
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from seatrial.scheduler.cache.columns import Batch, Bools, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.extension_points import Filter, Score
from seatrial.scheduler.framework.kernel_parts import ClassAxis, KernelPart
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status


class FilterBatch(Filter):
    """A filter that can judge many nodes for many classes at once."""

    has_signature: ClassVar[bool] = False  # `filter_signature` and `filter_classes_batch` are implemented

    def can_batch(self, state: CycleState) -> bool:  # noqa: ARG002
        """Whether `filter_batch` works for this class. Otherwise `filter` is called for each node."""
        return True

    def stack(self, states: Sequence[CycleState]) -> Any:
        """Prepare the argument `stacked` of the other methods from the states of some classes."""
        return states

    @abstractmethod
    def filter_batch(self, stacked: Any, batch: Batch) -> Bools | None:
        """The results of `filter`, [class, node]; None if all nodes pass for all classes."""

    def filter_signature(self, stacked: Any, node: NodeInfo) -> Hashable:  # noqa: ARG002
        """Everything that `filter_classes_batch` reads of a node: nodes with equal signatures get equal results."""
        raise AssertionError(f"{self.name} has no node signature")

    def filter_classes_batch(self, stacked: Any, node: NodeInfo) -> Bools:  # noqa: ARG002
        """The results of `filter` for one node, [class]. Called when a pod is placed on the node."""
        raise AssertionError(f"{self.name} does not judge single nodes")

    def kernel_filter(self, stacked: Any, axis: ClassAxis) -> KernelPart | None:  # noqa: ARG002
        """`filter_classes_batch` for the compiled kernel; None: the kernel does not know it."""
        return None

    def reasons_batch(self, stacked: Any, batch: Batch) -> tuple[Ints, Callable[[int], Status]] | None:  # noqa: ARG002
        """For one class: a code for each node, [node], 0 where it passes; and the status of any code up to the highest.

        None: `filter` has to be called for each node.
        """
        return None


class ScoreBatch(Score):
    """A score that can judge many nodes for many classes at once, and may bound how a placement changes scores."""

    has_signature: ClassVar[bool] = False  # `score_signature` and `score_classes_batch` are implemented

    def can_batch_scores(self, state: CycleState) -> bool:  # noqa: ARG002
        """Whether `score_batch` works for this class. Otherwise `score` is called for each node."""
        return True

    def stack_scores(self, states: Sequence[CycleState]) -> Any:
        """Prepare the argument `stacked` of the other methods from the states of some classes."""
        return states

    @abstractmethod
    def score_batch(self, stacked: Any, batch: Batch) -> Ints | None:
        """The results of `score`, [class, node], which the caller may overwrite; None if all are 0."""

    def score_classes_batch(self, stacked: Any, node: NodeInfo) -> Ints:  # noqa: ARG002
        """The results of `score` for one node, [class].

        Called when a pod is placed on the node, for scores without a bound and for those with node signatures.
        """
        raise AssertionError(f"{self.name} neither has a bound nor scores single nodes")

    def kernel_score(self, stacked: Any, axis: ClassAxis) -> KernelPart | None:  # noqa: ARG002
        """`score_classes_batch` for the compiled kernel; None: the kernel does not know it."""
        return None

    def score_signature(self, stacked: Any, node: NodeInfo) -> Hashable:  # noqa: ARG002
        """Everything that `score_classes_batch` reads of a node: nodes with equal signatures get equal scores."""
        raise AssertionError(f"{self.name} has no node signature")

    @property
    def revision(self) -> int:
        """A number that grows when the scores of all nodes change for a reason that is not on the nodes, as prices do.

        Only this plugin scores again then, and only nodes that are feasible. Without a normalizer; read before each
        decision if it is overridden.
        """
        return 0

    def revised_rows(self, since: int) -> Rows | None:  # noqa: ARG002
        """The rows of the nodes whose scores may differ from those at the revision `since`; None: all."""
        return None

    @property
    def monotone(self) -> bool:
        """With a normalizer: whether a placement on a node never raises the node's raw score for any class."""
        return False

    def kind(self, state: CycleState) -> Hashable:  # noqa: ARG002
        """Classes with equal kinds share the result of `max_score_delta`."""
        return None

    @property
    def has_delta_bound(self) -> bool:
        """Whether `max_score_delta` is tight. If not, a placement rescores the node for all classes."""
        return False

    def max_score_delta(self, node: NodeInfo, placed: PodInfo, kind: Hashable) -> int:  # noqa: ARG002
        """Upper bound of the change of this score on `node`, for any pod that still fits, after `placed` came.

        Negative: the score fell by at least that much. A bound within one or two points avoids scoring nodes that
        cannot become the best. Most of the speed on large clusters comes from this.
        """
        raise AssertionError(f"{self.name} has no bound")


class DryRunBatch(Filter):
    """A filter of scope NODE_PODS for which preemption can dry-run many nodes at once, by amounts.

    The filter reads a vector of amounts of each node. Each pod on the node holds part of it and releases that part when
    it leaves.
    """

    @abstractmethod
    def dry_run_signature(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Hashable:
        """Everything that `filter` depends on there, for any pod, while some of `pods` are assumed to be gone.

        `pods` are on `node`. Nodes with equal signatures get equal results when pods at the same positions are gone.
        """

    @abstractmethod
    def can_batch_dry_run(self, state: CycleState) -> bool:
        """Whether amounts alone decide for this class."""

    @abstractmethod
    def dry_run_width(self) -> int:
        """The present length of the vector of amounts."""

    @abstractmethod
    def dry_run_free(self, node: NodeInfo) -> Sequence[int] | None:
        """Free amounts on the node, negative where too much is held; None: the node needs a dry run of its own."""

    @abstractmethod
    def dry_run_keys(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Sequence[Hashable]:
        """For each of these pods on `node`, a key: pods with equal keys hold equal amounts."""

    @abstractmethod
    def dry_run_held(self, node: NodeInfo, pod: PodInfo) -> Sequence[int]:
        """The amounts that `pod` holds on this node."""

    @abstractmethod
    def dry_run_filter(self, state: CycleState, free: Ints) -> Bools:
        """The results of `filter` for one class, [node], given free amounts [node, amount]."""


def has_delta_bound(score: Score) -> bool:
    """Whether `score` bounds the change that a placement makes."""
    return isinstance(score, ScoreBatch) and score.has_delta_bound


def score_kind(score: Score, state: CycleState) -> Hashable:
    """`ScoreBatch.kind`; None for scores that have no bound."""
    return score.kind(state) if isinstance(score, ScoreBatch) else None
