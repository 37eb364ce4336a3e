"""Node lock for device plugins that serve one pod at a time: an annotation of the node (DEV-R73).

The scheduler locks and the plugin unlocks. A lock is effective from the decision on, before the node object shows it.
"""

from collections.abc import Mapping

from seatrial.scheduler.api.clock import from_rfc3339, rfc3339
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.handle import Handle

EXPIRES_AFTER = 300.0  # seconds


class LockedError(ValueError):
    """The node is locked by another pod; the text is Koordinator's reason."""


class NodeLocks(Listener):
    """Locks of all nodes, by the annotation's name."""

    def __init__(self) -> None:
        self._decided: dict[str, dict[str, str]] = {}  # node → annotations that its object does not show yet

    @staticmethod
    def of(handle: Handle) -> "NodeLocks":
        """The locks of this scheduler; the first caller creates them."""

        def make() -> NodeLocks:
            locks = NodeLocks()
            handle.cache.listen(locks)
            return locks

        return handle.shared(NodeLocks, make)

    def take(self, node: NodeInfo, name: str, pod: Pod, now: float) -> str:
        """The value to write into the annotation `name`; `now` is in seconds since 1970.

        The lock of a pod that is not bound after all is void: the pod is not on the node.

        Raises:
            LockedError: another pod holds the lock, or the annotation is not in our format.
        """
        held = self._decided.get(node.name, {}).get(name) or node.known.metadata.annotations.get(name, "")
        if held:
            _check(held, node, pod, now)
        value = f"{rfc3339(now)},{pod.metadata.namespace},{pod.metadata.name}"
        self._decided.setdefault(node.name, {})[name] = value
        return value

    def node_set(self, node: Node, before: Node | None) -> None:
        decided = self._decided.get(node.name)
        if decided:
            shown = _same(decided, node.metadata.annotations)
            for name in shown:
                del decided[name]
            if not decided:
                del self._decided[node.name]

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return False

    def pod_placed(self, info: PodInfo) -> None:
        """Pods do not matter."""

    def pod_gone(self, info: PodInfo) -> None:
        """Pods do not matter: `take` finds out that the pod of a lock is gone."""


def _same(labels: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [name for name, value in labels.items() if other.get(name) == value]


def _owner(pod: Pod) -> str:
    return f"{pod.metadata.namespace},{pod.metadata.name}"


def _check(held: str, node: NodeInfo, pod: Pod, now: float) -> None:
    """Raise if a lock excludes `pod`. A lock that expired, is the pod's own, or names a missing pod does not."""
    parts = held.split(",")
    try:
        since = from_rfc3339(parts[0])
        namespace, name = parts[1:]
    except ValueError as error:
        raise LockedError(f'failed to lock node: invalid node lock value "{held[:128]}"') from error
    mine = f"{namespace},{name}" == _owner(pod)
    there = any(info.key == f"{namespace}/{name}" for info in node.pods.values())
    if not mine and there and now - since <= EXPIRES_AFTER:
        raise LockedError(f'failed to lock node: node "{node.name}" has been locked')
