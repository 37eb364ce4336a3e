"""Base class of objects that keep their own sums over pods on nodes. The cache calls them for each change."""

from abc import ABC, abstractmethod
from typing import ClassVar

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.nodeinfo import PodInfo


class Listener(ABC):
    """Receives every pod that is placed on a node or leaves it, assumed pods included."""

    only_annotations: ClassVar[bool] = False  # `pod_placed` is not called for pods without annotations
    follows_conditions: ClassVar[bool] = False  # `pod_conditions` is called

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:  # noqa: ARG002
        """Whether pods of this class can matter to `pod_placed` and `pod_gone`. Called once for each class."""
        return True

    def node_added(self, name: str) -> None:  # noqa: B027 most listeners do not need it
        """A node exists now and has its row."""

    def node_set(self, node: Node, before: Node | None) -> None:  # noqa: B027 most listeners do not need it
        """A node is new (`before` is None), or its labels or annotations changed. Called before `node_added`."""

    def node_gone(self, name: str) -> None:  # noqa: B027 most listeners do not need it
        """A node and all its pods are gone: what is kept of it by name can be forgotten."""

    @abstractmethod
    def pod_placed(self, info: PodInfo) -> None:
        """A pod is on a node, or is assumed to be."""

    @abstractmethod
    def pod_gone(self, info: PodInfo) -> None:
        """A pod left its node, or is no longer assumed to be there."""

    def pod_changed(self, info: PodInfo, before: Pod) -> None:  # noqa: B027 most listeners do not need it
        """Labels, annotations or the deletion mark of a placed pod changed."""

    def pod_started(self, info: PodInfo) -> None:  # noqa: B027 most listeners do not need it
        """The start time of a placed pod changed."""

    def pod_conditions(self, info: PodInfo) -> None:  # noqa: B027 most listeners do not need it
        """The conditions of a placed pod changed. Called for listeners with `follows_conditions`."""

    def namespace_changed(self, name: str) -> None:  # noqa: B027 most listeners do not need it
        """The labels of a namespace changed."""
