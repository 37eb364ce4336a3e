"""Node fingerprints: the possible victims on each node and all that a dry run can depend on; computed on first use.

Dry runs on nodes with the same fingerprint have the same result: filters read the same values of these nodes and of
the possible victims in their order. Fingerprints have numbers, so that one dry run serves all nodes that share one.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from seatrial.scheduler.api.core import Pod, PodDisruptionBudget
from seatrial.scheduler.cache.columns import Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import DryRunBatch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.defaultpreemption.dry_run import Beside, broken, importance
from seatrial.scheduler.plugins.defaultpreemption.ledger import Ledger, NodeAccounts
from seatrial.scheduler.plugins.defaultpreemption.units import Breaks, Cost, Unit, cost_of, sum_of, unit_of
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.pods.selectors import budget_covers

MAX_KEYS = 65536
NEVER = 0  # stamp of a row without a computed fingerprint
UNNUMBERED = -1


class NodeFingerprint:
    """The fingerprint of one node, valid until something changes there."""

    __slots__ = ("accounts", "apart", "breaks", "lesser", "number", "units")

    def __init__(
        self,
        lesser: Sequence[PodInfo],
        breaks: tuple[int, ...],
        accounts: NodeAccounts | None,
        units: Sequence[Unit] = (),
        *,
        apart: bool = False,
    ) -> None:
        self.apart = apart  # no other node has it
        self.units = units  # of these pods, where some go with others
        self.lesser = lesser  # possible victims, most important first
        self.breaks = breaks  # how many violations the removal of each is
        self.accounts = accounts  # amounts of these pods; None if the node needs a dry run of its own
        self.number = UNNUMBERED

    def beside(self, node: NodeInfo, nodes: Mapping[str, NodeInfo] | None) -> Beside:
        """The pods that go with each, and their nodes: those on `node`, or, with all `nodes`, on any."""
        return {
            place: [
                (other, node if other.node_name == node.name or nodes is None else nodes[other.node_name])
                for other in (unit.here[node.name] if nodes is None else unit.pods)
                if other is not self.lesser[place]
            ]
            for place, unit in enumerate(self.units)
            if unit.is_group
        }

    def cost(self, places: Sequence[int]) -> Cost:
        """The cost of the pods of these places, at least one, and of all that go with them."""
        if self.units:
            return sum_of([self.units[place].cost for place in places])
        return cost_of(self.lesser[place] for place in places)

    def gone(self, victims: Bools) -> list[int]:
        """Indices in `lesser` of the pods that a dry run by amounts could not put back."""
        order = sorted(range(len(self.lesser)), key=lambda place: not self.breaks[place])
        return [place for place, gone in zip(order, victims.tolist(), strict=True) if gone]


class NodeFingerprints:
    """The fingerprints of all nodes for pods that are more important than `highest`.

    `stamp`: int64 [node]: `NEVER`, or a unique number, new whenever the fingerprint is computed again.
    """

    def __init__(
        self,
        handle: Handle,
        filters: Sequence[DryRunBatch],
        highest: int,
        spares: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        """`spares`: whether a pod is never a victim."""
        self.ledger = Ledger(filters)
        self._handle = handle
        self._spares = spares
        self._reservations = ReservationCache.of(handle)
        self._columns = handle.columns
        self._filters = filters
        self.highest = highest
        self._position = -1  # position in the columns' log
        self._stamps = NEVER
        self._numbers: dict[Hashable, int] = {}
        self._next = 0
        self._budgets: dict[str, PodDisruptionBudget] = {}
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        self._units: dict[str, Unit] = {}  # native groups that go as a whole, by uid of each member; until `refresh`
        self._united: list[int] = []  # rows with a part of a unit: what happens on other nodes matters there
        self._covered: dict[str, set[int]] = {}  # budget → rows where it covers a pod, or did
        self._rows: list[NodeFingerprint | None] = []
        self.stamp: Ints = np.zeros(0, np.int64)

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """All nodes by name."""
        return self._handle.cache.nodes

    def forget(self, row: int) -> None:
        """Drop everything: something changed that the columns' log does not contain."""
        if row < len(self.stamp):
            self.stamp[row] = NEVER

    def refresh(self) -> None:
        """Take in the changes since the last call."""
        columns = self._columns
        missing = columns.capacity - len(self.stamp)
        if missing:
            self.stamp = np.pad(self.stamp, (0, missing))
            self._rows += [None] * missing
        changed = columns.changed_since(self._position) if self._position >= 0 else None
        self._position = columns.changes
        if self.ledger.refresh():
            changed = None
        self.stamp[slice(None) if changed is None else changed] = NEVER
        self._units.clear()
        if self._united:
            self.stamp[self._united] = NEVER
            self._united.clear()
        if self._handle.cache.budgets or self._budgets:
            self._take_in_budgets()

    def _take_in_budgets(self) -> None:
        before, now = self._budgets, self._handle.cache.budgets
        moved = [key for key in before.keys() | now.keys() if before.get(key) is not now.get(key)]
        if not moved:
            return
        for key in moved:
            old, new = before.get(key), now.get(key)
            if new is not None and (old is None or old.spec != new.spec):
                self.stamp[:] = NEVER  # the pods that it covers are unknown
                self._covered.clear()
                break
            self.stamp[list(self._covered.get(key, ()))] = NEVER
        self._budgets = now.copy()
        self._by_namespace = {}
        for budget in now.values():
            self._by_namespace.setdefault(budget.metadata.namespace, []).append(budget)

    def of(self, row: int, node: NodeInfo) -> NodeFingerprint:
        """The fingerprint of `node`, which has this row; `refresh` must have been called."""
        node_fingerprint = self._rows[row]
        if node_fingerprint is not None and self.stamp[row] != NEVER:
            return node_fingerprint
        highest = self.highest
        lesser = [pod for pod in node.pods.values() if pod.pod.spec.priority <= highest and not self._spares(pod.pod)]
        if any(pod.pod.spec.scheduling_group is not None for pod in lesser):
            units = self._unite(lesser)
            if units is not None:
                return self._of_units(row, node, units)
        if len(lesser) > 1:
            lesser.sort(key=importance)
        breaks = self._breaks(lesser, row) if self._budgets else (False,) * len(lesser)
        # What a pod holds in a reservation does not return to the node when the pod goes: no sum of amounts shows that.
        apart = any(self._reservations.holding(pod.uid) is not None for pod in lesser)
        accounts = self.ledger.accounts(node, lesser, breaks) if lesser and not apart else None
        self._stamps += 1
        self.stamp[row] = self._stamps
        node_fingerprint = self._rows[row] = NodeFingerprint(lesser, breaks, accounts, apart=apart)
        return node_fingerprint

    def _unite(self, lesser: Sequence[PodInfo]) -> list[tuple[PodInfo, Unit]] | None:
        """What can go from a node, unit by unit with a pod that is on the node; None if each pod goes alone."""
        units: dict[int, tuple[PodInfo, Unit]] = {}
        grouped = False
        for pod in lesser:
            unit = self._unit(pod)
            grouped |= unit.is_group
            if unit.can_go:
                units.setdefault(id(unit), (pod, unit))
        if not grouped:
            return None
        return sorted(  # MoreImportantVictim
            units.values(), key=lambda one: (-one[0].priority, not one[1].is_group, -len(one[1].pods), one[1].started)
        )

    def _unit(self, pod: PodInfo) -> Unit:
        unit = self._units.get(pod.uid)
        if unit is None:
            groups = self._handle.groups
            members = list(groups.unit_of(pod)) if groups is not None else []
            unit = unit_of(
                members if pod in members else [*members, pod],
                lambda member: member.priority <= self.highest and not self._spares(member.pod),
                is_group=bool(members),
            )
            if members:
                self._units.update((member.uid, unit) for member in members)
        return unit

    def _of_units(self, row: int, node: NodeInfo, units: Sequence[tuple[PodInfo, Unit]]) -> NodeFingerprint:
        """The fingerprint of a node where pods go together; of no other node, and until the next `refresh`."""
        breaks = Breaks(self._by_namespace)
        violations = tuple(breaks.of(unit, pod) for pod, unit in units)
        for key in breaks.allowed:
            self._covered.setdefault(key, set()).add(row)
        self._united.append(row)
        self._stamps += 1
        self.stamp[row] = self._stamps
        fingerprint = NodeFingerprint(
            [pod for pod, _ in units], violations, None, [unit for _, unit in units], apart=True
        )
        self._rows[row] = fingerprint
        return fingerprint

    def number(self, fingerprint: NodeFingerprint, node: NodeInfo) -> int:
        """The number of a node's fingerprint: equal numbers give equal results, for every class."""
        if fingerprint.number == UNNUMBERED:
            signatures = [plugin.dry_run_signature(node, fingerprint.lesser) for plugin in self._filters]
            key = (fingerprint.breaks, *signatures, object() if fingerprint.apart else None)
            number = self._numbers.get(key)
            if number is None:
                if len(self._numbers) >= MAX_KEYS:
                    self._numbers.clear()  # numbers go on, so that no old number gets a new meaning
                number = self._numbers[key] = self._next
                self._next += 1
            fingerprint.number = number
        return fingerprint.number

    def _breaks(self, lesser: Sequence[PodInfo], row: int) -> tuple[bool, ...]:
        budgets = [
            budget
            for namespace in dict.fromkeys(pod.pod.metadata.namespace for pod in lesser)
            for budget in self._by_namespace.get(namespace, ())
            if any(budget_covers(budget, pod.pod.metadata.namespace, pod.pod.metadata.labels) for pod in lesser)
        ]
        for budget in budgets:
            self._covered.setdefault(budget.metadata.key, set()).add(row)
        return broken(lesser, budgets)
