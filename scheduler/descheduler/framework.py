"""Plugins of the descheduler and what they may do: the handle of a profile."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.descheduler.args import Args
from seatrial.scheduler.descheduler.limits import EvictionLimiter
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState

log = logging.getLogger(__name__)

Patch = Callable[[str, dict[str, Any]], None]  # sends a merge patch to a path


@dataclass(frozen=True, slots=True)
class EvictorContext:
    """What an evictor of another package is built with."""

    state: ClusterState
    clock: Clock
    rest: Rest


class Evictor(ABC):
    """Filter and evict plugin of a profile. One of another package is built with an `EvictorContext` and its `args`."""

    name: ClassVar[str]
    args: ClassVar[type[Args]] = Args

    @abstractmethod
    def may_evict(self, pod: Pod) -> bool:
        """Whether the pod may be evicted."""

    @abstractmethod
    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        """Begin the eviction of the pod; False if it is refused. `trigger`: the plugin that requests it."""


@dataclass(slots=True)
class Handle:
    """What plugins of one profile see and do."""

    state: ClusterState
    clock: Clock
    evictor: Evictor
    limiter: EvictionLimiter
    evicted: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # result, strategy, namespace, node
    dry_run: bool = False
    filters: Sequence[Callable[[Pod], bool]] = ()
    send: Patch | None = None

    def patch(self, path: str, body: dict[str, Any]) -> None:
        """Send a merge patch, unless in a dry run."""
        if self.send is not None and not self.dry_run:
            self.send(path, body)

    def may_evict(self, pod: Pod) -> bool:
        """Whether the pod may be evicted; False after an exception, which is the pod's own."""
        with self.clock.faults.guard("Handle.may_evict", pod.key):
            return all(allows(pod) for allows in self.filters) if self.filters else self.evictor.may_evict(pod)
        return False

    def pods_on(self, node: str) -> list[Pod]:
        """The node's pods that have not ended."""
        return [pod for pod in self.state.pods_on(node) if not pod.terminated]

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        """Evict a pod within the caps of the round; whether it was accepted."""
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        if not self.limiter.allows(node, namespace):
            log.debug("evict capped pod=%s strategy=%s", pod.key, trigger)
            self.evicted["limited", trigger, namespace, node] += 1
            return False
        if self.dry_run:
            log.info("evict dry-run pod=%s node=%s strategy=%s reason=%s", pod.key, node, trigger, reason)
            accepted = True
        else:
            accepted = False
            with self.clock.faults.guard("Handle.evict", pod.key):
                accepted = self.evictor.evict(pod, trigger, reason)
        self.evicted["success" if accepted else "error", trigger, namespace, node] += 1
        if accepted:
            self.limiter.done(node, namespace)
            log.info("evict accepted pod=%s node=%s strategy=%s reason=%s", pod.key, node, trigger, reason)
        return accepted


class Plugin(ABC):
    """A strategy. It is built once for each profile that enables it, and called once in each round."""

    name: ClassVar[str]
    args: ClassVar[type[Args]]

    @abstractmethod
    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        """Evict what should go. `nodes`: Ready nodes that the configuration selects."""


class Deschedule(Plugin):
    """A strategy for single pods. All of these run before the first of `Balance`."""


class Balance(Plugin):
    """A strategy for the distribution of pods."""
