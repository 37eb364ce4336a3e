"""Allocated CPUs and NUMA amounts of nodes, as values that equal nodes share.

As for devices (`deviceshare.states`): nodes with equal options and equal allocations share one state, and results for
a state are computed once.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.api.quantity import CPU, Amounts
from seatrial.scheduler.plugins.nodenuma.accumulator import Cpus, Mark
from seatrial.scheduler.plugins.nodenuma.options import NO_OPTIONS, Options, ZoneAmounts, amplify
from seatrial.scheduler.plugins.nodenuma.topology import Topology

MAX_STATES = 50_000  # then all are dropped and computed again
SINGLE, SHARED = "single", "shared"


@dataclass(frozen=True, slots=True)
class NumaAllocation:
    """The allocation of one pod."""

    cpus: Cpus = frozenset()
    exclusive: str = ""
    zones: ZoneAmounts = ()


class NumaState:
    """Options, the allocations under them, and the values derived from both."""

    __slots__ = ("allocated", "available", "free", "marks", "options", "outcomes", "statuses", "topology", "totals")

    def __init__(self, options: Options, topology: Topology, held: Iterable[NumaAllocation]) -> None:
        self.options = options
        self.topology = topology
        self.marks: dict[int, Mark] = {}
        self.allocated: dict[int, Amounts] = {}
        spans: dict[int, str] = {}
        for allocation in held:
            for cpu in allocation.cpus:
                before = self.marks.get(cpu)
                self.marks[cpu] = Mark(before.pods + 1 if before is not None else 1, allocation.exclusive)
            on = {topology.cpus[cpu].node for cpu in allocation.cpus if cpu in topology.cpus}
            for node in on:
                spans[node] = SHARED if len(on) > 1 or spans.get(node) == SHARED else SINGLE
            for node, amounts in allocation.zones:
                sums = self.allocated.setdefault(node, {})
                for name, value in amounts:
                    sums[name] = sums.get(name, 0) + value
        self.statuses: Mapping[int, str] = spans  # NUMA nodes without bound CPUs have no entry
        self.free: Cpus = topology.ids - self.marks.keys() - options.reserved
        self.totals: dict[int, Amounts] = {node: dict(amounts) for node, amounts in options.zones}
        self.available: dict[int, Amounts] = {node: self._left(node) for node in self.totals}
        self.outcomes: dict[object, Any] = {}  # by request; filled and read by the plugin

    def _left(self, node: int) -> Amounts:
        """Free amounts of a NUMA node (NUMA-R21, NUMA-R48); bound CPUs count even where their pods give no amounts."""
        taken = self.allocated.get(node, {})
        bound = 1000 * sum(
            1 for cpu in self.marks if cpu in self.topology.cpus and self.topology.cpus[cpu].node == node
        )
        left = {}
        for name, total in self.totals[node].items():
            used = taken.get(name, 0)
            if name == CPU:
                used = max(used - bound, 0) + amplify(bound, self.options.ratio(CPU))
            left[name] = max(total - used, 0)
        return left

    def within(self, cpus: Cpus | None, zones: ZoneAmounts | None) -> "NumaState":
        """The state with only `cpus` free, and at most `zones` left of the resources they name.

        None: unchanged. Such a state is for reading only; no allocation is added to it.
        """
        state = copy(self)
        state.outcomes = {}
        if cpus is not None:
            state.free = self.free & cpus
        if zones is not None:
            limits = {node: dict(amounts) for node, amounts in zones}
            named = {name for amounts in limits.values() for name in amounts}
            state.available = {
                node: {
                    name: min(value, limits.get(node, {}).get(name, 0)) if name in named else value
                    for name, value in amounts.items()
                }
                for node, amounts in self.available.items()
            }
        return state

    @property
    def bound(self) -> int:
        """The number of CPUs bound to pods."""
        return len(self.marks)


class StateCache:
    """Interns topologies and states."""

    def __init__(self) -> None:
        self._options: dict[Options, tuple[Options, Topology]] = {}
        self._states: dict[tuple[int, tuple[NumaAllocation, ...]], NumaState] = {}
        self.nothing = self.state(self.options(NO_OPTIONS), ())

    def options(self, options: Options) -> Options:
        """The one object for all options equal to these; only such options may be passed to `state`."""
        return self._interned(options)[0]

    def _interned(self, options: Options) -> tuple[Options, Topology]:
        option = self._options.get(options)
        if option is None:
            if len(self._options) >= MAX_STATES:
                self._options.clear()
            option = self._options[options] = (options, Topology(options.topology))
        return option

    def state(self, options: Options, held: Iterable[NumaAllocation]) -> NumaState:
        allocations = tuple(held)
        key = (id(options), allocations)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._states.clear()  # nodes keep references to their states
            _, topology = self._interned(options)
            state = self._states[key] = NumaState(options, topology, allocations)
        return state
