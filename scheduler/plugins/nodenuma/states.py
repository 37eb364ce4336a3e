"""What is booked of a node's CPUs and NUMA nodes, as values that all nodes alike share.

As with devices (`deviceshare.states`): nodes with the same options and the same booked are in one state, and what is
worked out about a state is worked out once.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from scheduler.api.quantity import CPU, Amounts
from scheduler.plugins.nodenuma.accumulator import Cpus, Mark
from scheduler.plugins.nodenuma.options import NO_OPTIONS, Options, ZoneAmounts, amplify
from scheduler.plugins.nodenuma.topology import Topology

MAX_STATES = 50_000  # more than that, and they are forgotten and worked out anew
SINGLE, SHARED = "single", "shared"


@dataclass(frozen=True, slots=True)
class Booking:
    """What one pod holds."""

    cpus: Cpus = frozenset()
    exclusive: str = ""
    zones: ZoneAmounts = ()


class NumaState:
    """Options, what is booked under them, and what follows from both."""

    __slots__ = ("allocated", "available", "free", "marks", "options", "outcomes", "statuses", "topology", "totals")

    def __init__(self, options: Options, topology: Topology, held: Iterable[Booking]) -> None:
        self.options = options
        self.topology = topology
        self.marks: dict[int, Mark] = {}
        self.allocated: dict[int, Amounts] = {}
        spans: dict[int, str] = {}
        for booking in held:
            for cpu in booking.cpus:
                before = self.marks.get(cpu)
                self.marks[cpu] = Mark(before.pods + 1 if before is not None else 1, booking.exclusive)
            on = {topology.cpus[cpu].node for cpu in booking.cpus if cpu in topology.cpus}
            for node in on:
                spans[node] = SHARED if len(on) > 1 or spans.get(node) == SHARED else SINGLE
            for node, amounts in booking.zones:
                sums = self.allocated.setdefault(node, {})
                for name, value in amounts:
                    sums[name] = sums.get(name, 0) + value
        self.statuses: Mapping[int, str] = spans  # NUMA nodes without bound CPUs have none
        self.free: Cpus = topology.ids - self.marks.keys() - options.reserved
        self.totals: dict[int, Amounts] = {node: dict(amounts) for node, amounts in options.zones}
        self.available: dict[int, Amounts] = {node: self._left(node) for node in self.totals}
        self.outcomes: dict[object, Any] = {}  # by what a pod asks: filled and read by the plugin

    def _left(self, node: int) -> Amounts:
        """What is left of a NUMA node (NUMA-R21, NUMA-R48); bound CPUs count even where their pods say no amounts."""
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
        """The same with no other CPUs free than `cpus`, and no more than `zones` left of the resources they name.

        None: as it is. Such a state is for looking at alone; nobody is ever booked in it.
        """
        found = copy(self)
        found.outcomes = {}
        if cpus is not None:
            found.free = self.free & cpus
        if zones is not None:
            limits = {node: dict(amounts) for node, amounts in zones}
            named = {name for amounts in limits.values() for name in amounts}
            found.available = {
                node: {
                    name: min(value, limits.get(node, {}).get(name, 0)) if name in named else value
                    for name, value in amounts.items()
                }
                for node, amounts in self.available.items()
            }
        return found

    @property
    def bound(self) -> int:
        """How many CPUs of the machine are bound to pods."""
        return len(self.marks)


class StateCache:
    """Interns topologies and states."""

    def __init__(self) -> None:
        self._options: dict[Options, tuple[Options, Topology]] = {}
        self._states: dict[tuple[int, tuple[Booking, ...]], NumaState] = {}
        self.nothing = self.state(self.options(NO_OPTIONS), ())

    def options(self, options: Options) -> Options:
        """The one object for all options equal to these; only such may be given to `state`."""
        found = self._options.get(options)
        if found is None:
            found = self._options[options] = (options, Topology(options.topology))
        return found[0]

    def state(self, options: Options, held: Iterable[Booking]) -> NumaState:
        bookings = tuple(held)
        key = (id(options), bookings)
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MAX_STATES:
                self._states.clear()  # nodes keep the states they are in
            found = self._states[key] = NumaState(options, self._options[options][1], bookings)
        return found
