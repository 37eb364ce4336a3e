"""Rounds: all profiles' strategies, once (RSV-R78)."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.descheduler.config import Configuration, Profile
from seatrial.scheduler.descheduler.framework import Evictor, Handle, Patch, Plugin
from seatrial.scheduler.descheduler.limits import EvictionLimiter
from seatrial.scheduler.descheduler.node_fit import is_ready
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.pods.selectors import selector_matches

log = logging.getLogger(__name__)

TOO_FEW = "the cluster size is 0 or 1 meaning eviction causes service disruption or degradation"


class RoundError(Exception):
    """A round ended early."""


@dataclass(slots=True)
class _Runnable:
    profile: Profile
    handle: Handle
    deschedule: list[Plugin]
    balance: list[Plugin]


class Rounds:
    """The strategies of all profiles."""

    def __init__(
        self,
        configuration: Configuration,
        profiles: Sequence[tuple[Profile, Evictor, Sequence[Evictor]]],
        state: ClusterState,
        clock: Clock,
        patch: Patch | None = None,
    ) -> None:
        """`profiles`: each with its evictor and its filters. `patch`: sends a merge patch."""
        self._selector = configuration.node_selector
        self._state, self._faults = state, clock.faults
        self.limiter = EvictionLimiter(
            configuration.max_no_of_pods_to_evict_per_node,
            configuration.max_no_of_pods_to_evict_per_namespace,
            configuration.max_no_of_pods_to_evict_total,
        )
        self.evicted: Counter[tuple[str, str, str, str]] = Counter()
        self.count = 0
        self._runnable = [
            _Runnable(
                profile,
                Handle(
                    state,
                    clock,
                    evictor,
                    self.limiter,
                    self.evicted,
                    configuration.dry_run,
                    [plugin.may_evict for plugin in filters],
                    patch,
                ),
                [kind(args) for kind, args in profile.deschedule],  # type: ignore[call-arg]
                [kind(args) for kind, args in profile.balance],  # type: ignore[call-arg]
            )
            for profile, evictor, filters in profiles
        ]

    def run(self) -> None:
        """One round.

        Raises:
            RoundError: there are too few nodes.
        """
        self.limiter.reset()
        self.count += 1
        for profile in self._runnable:
            nodes = self._nodes(profile.profile.node_selector)
            for plugin in profile.deschedule:
                self._run_plugin(plugin, profile, nodes)
        for profile in self._runnable:
            nodes = self._nodes(profile.profile.node_selector)
            for plugin in profile.balance:
                self._run_plugin(plugin, profile, nodes)

    def _run_plugin(self, plugin: Plugin, profile: _Runnable, nodes: list[Node]) -> None:
        with self._faults.guard(type(plugin).__name__, profile.profile.name):
            plugin.run(profile.handle, nodes)

    def _nodes(self, selector: LabelSelector | None) -> list[Node]:
        chosen = [candidate for candidate in (self._selector, selector) if candidate is not None]
        nodes = [
            node
            for _, node in sorted(self._state.nodes.items())
            if is_ready(node) and all(selector_matches(entry, node.metadata.labels) for entry in chosen)
        ]
        if len(nodes) <= 1:
            raise RoundError(TOO_FEW)
        return nodes
