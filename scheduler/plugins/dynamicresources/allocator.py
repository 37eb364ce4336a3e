"""The search for devices on one node: depth first with backtracking, the first full solution wins (DRA-R77 to DRA-R86).

The order of the search is upstream's (`dra: structured/internal/incubating/allocator_incubating.go`): claims, requests,
alternatives, then devices by pool, slice and place in the slice.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from seatrial.scheduler.api.core import Node, NodeSelector, NodeSelectorTerm
from seatrial.scheduler.api.quantity import QuantityError, binary, exact
from seatrial.scheduler.api.resourceclaims import (
    MAX_RESULTS,
    Allocation,
    AllocationDevices,
    Constraint,
    DeviceTaint,
    RequestPolicy,
    Result,
    ResultConfig,
)
from seatrial.scheduler.api.wire import Requirement
from seatrial.scheduler.plugins.dynamicresources.inventory import Card, Counters, DeviceId, Pool, View, full_name
from seatrial.scheduler.plugins.dynamicresources.ledger import Ledger
from seatrial.scheduler.plugins.dynamicresources.wants import AllocationError, Alternative, Want, too_many

MAX_STEPS = 200_000  # devices that are tried for a node, about a second; upstream gives up by time, after 10 s
_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_NODE_NAME = "metadata.name"


class Pick(NamedTuple):
    """One chosen device. `consumed`: of each capacity, for a share."""

    card: Card
    way: Alternative
    consumed: Counters | None


Solution = tuple[tuple[Pick, ...], ...]  # by claim


class Search:
    """One search. `steps`: devices that were tried."""

    def __init__(self, wants: Sequence[Want], view: View, ledger: Ledger, node: str) -> None:
        self._wants, self._view, self._ledger, self._node = wants, view, ledger, node
        self._usable = [(pool, cards) for pool, cards in view.pools if not (pool.updating or pool.problem)]
        self._cards = [(pool, card) for pool, cards in self._usable for card in cards]
        self._picks: list[list[Pick]] = [[] for _ in wants]
        self._chosen: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, Counters] = {}
        self._taken: dict[tuple[str, str, str, str], Fraction] = {}  # driver, pool, counter set, counter
        self._marks = [[_Mark(constraint) for constraint in want.constraints] for want in wants]
        self._left: dict[tuple[str, str], dict[str, Counters]] = {}
        self._fixed: dict[Alternative, list[tuple[Pool, Card]]] = {}
        self.steps = 0

    def run(self) -> Solution | None:
        """The devices for each claim; None: the node does not have them.

        Raises:
            AllocationError: no node is to be tried any more.
        """
        try:
            return tuple(map(tuple, self._picks)) if self._request(0, 0) else None
        except RecursionError as error:
            raise AllocationError(f"node {self._node}: the claims ask for too many devices") from error

    @property
    def invalid(self) -> bool:
        """Whether a pool for the node is invalid."""
        return any(pool.problem for pool, _ in self._view.pools)

    def _request(self, claim: int, request: int) -> bool:
        if claim == len(self._wants):
            return True
        want = self._wants[claim]
        if request == len(want.requests):
            return self._request(claim + 1, 0)
        have = len(self._picks[claim])
        for way in want.requests[request]:
            more = len(self._all(way)) if way.all else way.request.count
            if have + more > MAX_RESULTS:
                if way.all:
                    raise AllocationError(too_many(want.key, way.name, more, have))
                continue
            if not more:
                continue
            if not way.all and more > 1 and self._usable_count(way) < more:
                continue
            if self._devices((claim, request), way, more, 0):
                return True
        return False

    def _devices(self, place: tuple[int, int], way: Alternative, more: int, start: int) -> bool:
        """Choose `more` devices for the request at `place` (claim, request), from the candidate `start` on."""
        claim, request = place
        if not more:
            return self._request(claim, request + 1)
        cards = self._all(way) if way.all else self._cards
        for at in range(start, len(cards) - more + 1):
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise AllocationError(f"node {self._node}: timed out trying to allocate devices")
            pool, card = cards[at]
            if self._take(claim, way, pool, card):
                if self._devices(place, way, more - 1, at + 1):
                    return True
                self._give_back(claim, pool, card)
        return False

    def _all(self, way: Alternative) -> list[tuple[Pool, Card]]:
        """Every device that the request means (DRA-R82)."""
        cards = self._fixed.get(way)
        if cards is None:
            for pool, _ in self._view.pools:
                state = "currently being updated" if pool.updating else "currently invalid" if pool.problem else ""
                if state:
                    raise AllocationError(
                        f"claim {way.claim}, request {way.name}: asks for all devices, but resource pool"
                        f" {'/'.join(pool.id)} is {state}"
                    )
            cards = [(pool, card) for pool, card in self._cards if serves(way, card)]
            self._fixed[way] = cards
        return cards

    def _usable_count(self, way: Alternative) -> int:
        """How many devices could serve the request; those count whose selectors fail."""
        count = 0
        for _, card in self._cards:
            try:
                count += self._is_free(way, card) and way.selects(card)
            except AllocationError:
                count += 1
        return count

    # -- one device ----------------------------------------------------------------------------------------------------

    def _is_free(self, way: Alternative, card: Card) -> bool:
        return way.admin or card.shareable or not (card.id in self._chosen or self._ledger.has(card.id))

    def _take(self, claim: int, way: Alternative, pool: Pool, card: Card) -> bool:
        if not self._is_free(way, card):
            return False
        if way.admin and any(pick.card is card for pick in self._picks[claim]):
            return False
        if not way.selects(card):
            return False
        amounts = _amounts(way, card)
        if amounts is None or not self._has_counters(pool, card) or not _tolerated(way, card.taints):
            return False
        if card.shareable and not self._has_capacity(card, amounts):
            return False
        entered: list[_Mark] = []
        for mark in self._marks[claim]:
            if not way.concerns(mark.constraint.requests):
                continue
            if not mark.enter(card):
                for earlier in entered:
                    earlier.leave()
                if way.all:
                    raise AllocationError(
                        f"claim {way.claim}, request {way.name}: cannot add device {card.name} because a claim"
                        " constraint would not be satisfied"
                    )
                return False
            entered.append(mark)
        self._count(pool, card, 1)
        if card.shareable:
            consumed = self._consumed.setdefault(card.id, {})
            for name, amount in amounts.items():
                consumed[name] = consumed.get(name, Fraction(0)) + amount
        self._picks[claim].append(Pick(card, way, amounts if card.shareable else None))
        return True

    def _give_back(self, claim: int, pool: Pool, card: Card) -> None:
        pick = self._picks[claim].pop()
        for mark in self._marks[claim]:
            if pick.way.concerns(mark.constraint.requests):
                mark.leave()
        for name, amount in (pick.consumed or {}).items():
            self._consumed[card.id][name] -= amount
        self._count(pool, card, -1)

    def _count(self, pool: Pool, card: Card, sign: int) -> None:
        """Count the device as chosen, and the counters that it takes where it is the first user."""
        if sign < 0:
            self._chosen[card.id] -= 1
            if not self._chosen[card.id]:
                del self._chosen[card.id]
        if card.id not in self._chosen and not (card.shareable and self._ledger.has(card.id)):
            for counter_set, counters in card.consumes:
                for name, amount in counters.items():
                    key = (*pool.id, counter_set, name)
                    self._taken[key] = self._taken.get(key, Fraction(0)) + sign * amount
        if sign > 0:
            self._chosen[card.id] = self._chosen.get(card.id, 0) + 1

    def _has_counters(self, pool: Pool, card: Card) -> bool:
        """Whether its counters are left: of those of the pool, what devices of any node have not taken (DRA-R97)."""
        if not card.consumes or (card.shareable and (card.id in self._chosen or self._ledger.has(card.id))):
            return True
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = {name: dict(counters) for name, counters in pool.counters.items()}
            in_use = self._ledger.of_pool.get(pool.id, {})
            for other in pool.cards:
                if other.id in in_use:
                    for counter_set, counters in other.consumes:
                        for name, amount in counters.items():
                            left[counter_set][name] -= amount
        return all(
            left[counter_set][name] - self._taken.get((*pool.id, counter_set, name), 0) >= amount
            for counter_set, counters in card.consumes
            for name, amount in counters.items()
        )

    def _has_capacity(self, card: Card, amounts: Counters) -> bool:
        chosen = self._consumed.get(card.id, {})
        return all(
            self._ledger.consumed(card.id, name) + chosen.get(name, 0) + amount <= card.capacity[name][0]
            for name, amount in amounts.items()
        )


class _Mark:
    """A constraint with the values of the devices that were chosen so far."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self._values: list[object] = []

    def enter(self, card: Card) -> bool:
        """Whether the device keeps the constraint; then it counts."""
        constraint = self.constraint
        value = card.attributes.get(constraint.match_attribute or constraint.distinct_attribute)
        if value is None:
            return False
        if constraint.match_attribute:
            if self._values and self._values[0] != value:
                return False
        elif value in self._values:
            return False
        self._values.append(value)
        return True

    def leave(self) -> None:
        self._values.pop()


def _tolerated(way: Alternative, taints: Iterable[DeviceTaint]) -> bool:
    """Whether the request tolerates the taints (DRA-R95)."""
    return all(
        taint.effect not in _BLOCKING
        or any(
            toleration.effect in {"", taint.effect}
            and toleration.key in {"", taint.key}
            and (toleration.operator == "Exists" or toleration.value == taint.value)
            for toleration in way.tolerations
        )
        for taint in taints
    )


def serves(way: Alternative, card: Card) -> bool:
    """Whether the request means the device, in use or not.

    Raises:
        AllocationError: a selector fails for it.
    """
    return way.selects(card) and _amounts(way, card) is not None


def _amounts(way: Alternative, card: Card) -> Counters | None:
    """What the request takes of each capacity of a device that is shared; None: the device does not fit (DRA-R100).

    What others have taken of it does not matter here.
    """
    if not (way.capacity or card.shareable):
        return {}
    amounts = {full_name(card.id[0], name): amount for name, amount in way.capacity.items()}
    if not amounts.keys() <= card.capacity.keys():
        return None
    if not card.shareable:
        return {} if all(card.capacity[name][0] >= amount for name, amount in amounts.items()) else None
    counters: Counters = {}
    for name, (value, policy) in card.capacity.items():
        amount = _rounded(amounts.get(name), value, policy)
        if amount is None or amount > value:
            return None
        counters[name] = amount
    return counters


def _rounded(level: Fraction | None, value: Fraction, policy: RequestPolicy | None) -> Fraction | None:
    """The amount that is taken; None: more than the policy allows."""
    try:
        if level is None:
            return value if policy is None or policy.default is None else exact(policy.default)
        if policy is None:
            return level
        if policy.valid_values:
            return min((candidate for candidate in map(exact, policy.valid_values) if candidate >= level), default=None)
        if policy.valid_range is not None:
            low = exact(policy.valid_range.min)
            high = value if policy.valid_range.max is None else exact(policy.valid_range.max)
            amount = max(level, low)
            if policy.valid_range.step is not None:
                step = exact(policy.valid_range.step)
                amount = low + -(-(amount - low) // step) * step
            return amount if amount <= high else None
    except (QuantityError, ZeroDivisionError):
        return None
    return level


# -- allocations -------------------------------------------------------------------------------------------------------


def allocation_of(
    picks: Sequence[Pick], want: Want, node: Node, share: Sequence[str], timestamp: str | None = None
) -> Allocation:
    """What is written to the claim. `share`: an identity for each pick; `timestamp`: when it was decided."""
    results = tuple(
        Result(
            request=pick.way.name,
            driver=pick.card.id[0],
            pool=pick.card.id[1],
            device=pick.card.id[2],
            admin_access=True if pick.way.admin else None,
            tolerations=pick.way.tolerations,
            binding_conditions=pick.card.device.binding_conditions,
            binding_failure_conditions=pick.card.device.binding_failure_conditions,
            share_id=share_id if pick.consumed is not None else "",
            consumed_capacity=_consumed(pick),
        )
        for pick, share_id in zip(picks, share, strict=True)
    )
    return Allocation(AllocationDevices(results, _configs(picks, want)), _selector(picks, node), timestamp)


def _consumed(pick: Pick) -> dict[str, str | int | float]:
    """What a share takes of each capacity, named as in the slice."""
    driver, taken = pick.card.id[0], pick.consumed
    if not taken:
        return {}
    return {name: _text(taken[full_name(driver, name)]) for name in pick.card.device.capacity}


def _text(amount: Fraction) -> str:
    if amount.denominator == 1:
        return binary(int(amount))
    return f"{int(amount * 1000)}m"


def _selector(picks: Sequence[Pick], node: Node) -> NodeSelector | None:
    """The nodes where all of the devices can be used (DRA-R84)."""
    if any(pick.card.is_local or pick.card.device.binds_to_node for pick in picks):
        field = Requirement(_NODE_NAME, "In", (node.name,))
        return NodeSelector((NodeSelectorTerm(match_fields=(field,)),))
    terms = [term for pick in picks if pick.card.where is not None for term in pick.card.where.node_selector_terms[:1]]
    if not terms:
        return None
    labels = dict.fromkeys(_hashed(requirement) for term in terms for requirement in term.match_expressions)
    fields = dict.fromkeys(_hashed(requirement) for term in terms for requirement in term.match_fields)
    return NodeSelector((NodeSelectorTerm(tuple(labels), tuple(fields)),))


def _hashed(requirement: Requirement) -> Requirement:
    return Requirement(requirement.key, requirement.operator, tuple(requirement.values))


def _configs(picks: Sequence[Pick], want: Want) -> tuple[ResultConfig, ...]:
    """The configurations that hold, those of classes first (DRA-R85)."""
    ways = dict.fromkeys([pick.way for pick in picks])
    result_configs: list[ResultConfig] = []
    for name in dict.fromkeys(way.class_name for way in ways):
        own = [way for way in ways if way.class_name == name]
        requests = () if len(own) == len(want.requests) else tuple(way.name for way in own)
        result_configs += [ResultConfig("FromClass", requests, config.opaque) for config in own[0].configs]
    for config in want.configs:
        if any(way.concerns(config.requests) for way in ways):
            result_configs.append(ResultConfig("FromClaim", config.requests, config.opaque))
    return tuple(result_configs)
