"""The devices that drivers publish in ResourceSlices, by pool and node (DRA-R40 to DRA-R47)."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from seatrial.scheduler.api.cel.values import Semver
from seatrial.scheduler.api.core import Node, NodeSelector
from seatrial.scheduler.api.quantity import QuantityError, exact
from seatrial.scheduler.api.resourceclaims import (
    Attribute,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    RequestPolicy,
    ResourceSlice,
)
from seatrial.scheduler.plugins.dynamicresources.expressions import Subject
from seatrial.scheduler.plugins.node_selection import term_holds

DeviceId = tuple[str, str, str]  # driver, pool, device
PoolId = tuple[str, str]  # driver, pool
Counters = dict[str, Fraction]


class Card:
    """One device, with its values parsed. `attributes` and `capacity` are by full name, `domain/identifier`."""

    __slots__ = ("attributes", "capacity", "consumes", "device", "id", "node", "subject", "taints", "where")

    def __init__(self, pool: PoolId, device: Device, of_slice: ResourceSlice) -> None:
        """
        Raises:
            ValueError: an amount or a version cannot be read; the message names the device.
        """
        driver = pool[0]
        spec = of_slice.spec
        self.id: DeviceId = (*pool, device.name)
        self.device = device
        by_device = spec.per_device_node_selection
        self.node = device.node_name if by_device else spec.node_name
        self.where: NodeSelector | None = device.node_selector if by_device else spec.node_selector
        self.taints: tuple[DeviceTaint, ...] = device.taints
        self.attributes = {full_name(driver, name): _value(value) for name, value in device.attributes.items()}
        self.capacity: dict[str, tuple[Fraction, RequestPolicy | None]] = {}
        for name, capacity in device.capacity.items():
            self.capacity[full_name(driver, name)] = (_amount(capacity.value, name), capacity.request_policy)
        self.consumes = tuple(
            (entry.counter_set, {name: _amount(counter.value, name) for name, counter in entry.counters.items()})
            for entry in device.consumes_counters
        )
        self.subject = Subject(
            {
                ("driver",): driver,
                ("allowMultipleAllocations",): device.allow_multiple_allocations,
                **{("attributes", *name.split("/", 1)): _read(*value) for name, value in self.attributes.items()},
                **{("capacity", *name.split("/", 1)): value for name, (value, _) in self.capacity.items()},
            }
        )

    @property
    def shareable(self) -> bool:
        return self.device.allow_multiple_allocations

    @property
    def name(self) -> str:
        return "/".join(self.id)

    @property
    def is_local(self) -> bool:
        """Whether it can be used on one node only."""
        return bool(self.node)

    def reaches(self, node: Node) -> bool:
        """Whether it can be used on the node."""
        if self.node:
            return self.node == node.name
        terms = () if self.where is None else self.where.node_selector_terms
        return self.where is None or any(term_holds(term, node.name, node.metadata.labels) for term in terms)


class Pool:
    """A pool at its newest generation. `problem`: why nothing of it is allocated; `updating`: slices are missing."""

    __slots__ = ("awaits", "cards", "counters", "id", "nodes", "problem", "updating")

    def __init__(self, pool: PoolId, slices: Iterable[ResourceSlice]) -> None:
        self.id = pool
        newest = max(slice_.spec.pool.generation for slice_ in slices)
        current = sorted(
            (slice_ for slice_ in slices if slice_.spec.pool.generation == newest), key=lambda item: item.metadata.name
        )
        self.updating = len(current) != current[0].spec.pool.resource_slice_count
        self.problem = ""
        self.cards: list[Card] = []
        self.counters: dict[str, Counters] = {}
        try:
            self._read(current)
        except ValueError as error:
            self.problem = str(error)
        self.awaits = any(card.device.binding_conditions for card in self.cards)
        self.nodes = None if any(not card.is_local for card in self.cards) else {card.node for card in self.cards}

    def _read(self, current: list[ResourceSlice]) -> None:
        names: set[str] = set()
        for resource_slice in current:
            for counters in resource_slice.spec.shared_counters:
                if counters.name in self.counters:
                    raise ValueError(f"counter set {counters.name} is there twice")
                self.counters[counters.name] = {
                    name: _amount(counter.value, name) for name, counter in counters.counters.items()
                }
            for device in resource_slice.spec.devices:
                if device.name in names:
                    raise ValueError(f"device {device.name} is there twice")
                names.add(device.name)
                self.cards.append(Card(self.id, device, resource_slice))
        for card in self.cards:
            for counter_set, consumed in card.consumes:
                missing = consumed.keys() - self.counters.get(counter_set, {}).keys()
                if missing or counter_set not in self.counters:
                    raise ValueError(f"device {card.id[2]} takes from counter set {counter_set}, which lacks it")


class View:
    """The pools of one node in the order of the search, each with its cards for that node (DRA-R45).

    `places`: where in `cards`, all of them, a device is. `plain`: all belong to this node alone, and only which are
    in use decides whether one is free. `used`: what `in_use` last said; None: it may have changed.
    """

    __slots__ = ("cards", "places", "plain", "pools", "used")

    def __init__(self, pools: Iterable[Pool], node: Node) -> None:
        ordered = sorted(pools, key=lambda pool: (pool.awaits, pool.id))
        results = [(pool, [card for card in pool.cards if card.reaches(node)]) for pool in ordered]
        self.pools = [(pool, cards) for pool, cards in results if cards or not pool.cards]
        self.cards = [card for _, cards in self.pools for card in cards]
        self.places = {card.id: place for place, card in enumerate(self.cards)}
        self.plain = all(
            pool.nodes is not None and len(pool.nodes) <= 1 and not (pool.updating or pool.problem)
            for pool, _ in self.pools
        ) and not any(card.shareable or card.consumes or card.taints for card in self.cards)
        self.used: int | None = None

    def in_use(self, of_pool: Mapping[PoolId, Iterable[DeviceId]]) -> int:
        """The places of the devices in use, of those by pool, as bits. For a plain view."""
        if self.used is None:
            self.used = 0
            for pool, _ in self.pools:
                for device in of_pool.get(pool.id, ()):
                    self.used |= 1 << self.places[device] if device in self.places else 0
        return self.used


class Inventory:
    """All slices. `changed` is called with a node's name, or with "" where devices of many nodes changed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._slices: dict[str, ResourceSlice] = {}  # by name
        self._of_pool: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._of_node: dict[str, dict[PoolId, int]] = {}  # node → pools with slices of that node
        self._wide: dict[PoolId, int] = {}  # pools with slices for several nodes
        self._pools: dict[PoolId, Pool] = {}
        self._views: dict[str, View] = {}
        self._rules: dict[str, DeviceTaintRule] = {}

    def set(self, resource_slice: ResourceSlice) -> None:
        """A slice was added or changed."""
        name = resource_slice.metadata.name
        before = self._slices.get(name)
        if before is not None:
            if before.spec == resource_slice.spec:
                self._slices[name] = self._of_pool[_pool_of(resource_slice)][name] = resource_slice
                return
            self._drop(before)
            if _pool_of(before) != _pool_of(resource_slice):  # only a slice that was made anew
                self._pool_changed(_pool_of(before), before.spec.node_name)
        pool = _pool_of(resource_slice)
        self._slices[name] = resource_slice
        self._of_pool.setdefault(pool, {})[name] = resource_slice
        places = (
            self._of_node.setdefault(resource_slice.spec.node_name, {}) if resource_slice.spec.node_name else self._wide
        )
        places[pool] = places.get(pool, 0) + 1
        self._pool_changed(
            pool, resource_slice.spec.node_name, before.spec.node_name if before else resource_slice.spec.node_name
        )

    def remove(self, resource_slice: ResourceSlice) -> None:
        """A slice is gone."""
        before = self._slices.get(resource_slice.metadata.name)
        if before is not None:
            self._drop(before)
            self._pool_changed(_pool_of(before), before.spec.node_name)

    def _drop(self, before: ResourceSlice) -> None:
        pool, node = _pool_of(before), before.spec.node_name
        del self._slices[before.metadata.name]
        of_pool = self._of_pool[pool]
        del of_pool[before.metadata.name]
        if not of_pool:
            del self._of_pool[pool]
        places = self._of_node[node] if node else self._wide
        places[pool] -= 1
        if not places[pool]:
            del places[pool]
            if node and not places:
                del self._of_node[node]

    def set_rule(self, rule: DeviceTaintRule, *, gone: bool = False) -> None:
        """A rule adds a taint to devices, or no longer does (DRA-R76)."""
        self._rules.pop(rule.metadata.name, None)
        if not gone:
            self._rules[rule.metadata.name] = rule
        self._pools.clear()
        self._views.clear()
        self._changed("")

    def node_changed(self, name: str) -> None:
        """The node's labels may have changed."""
        self._views.pop(name, None)
        self._changed(name)

    def pool(self, pool: PoolId) -> Pool | None:
        """The pool as it is now; None if no slice is of it."""
        entry = self._pools.get(pool)
        if entry is None and pool in self._of_pool:
            entry = self._pools[pool] = Pool(pool, list(self._of_pool[pool].values()))
            for card in entry.cards:
                for rule in self._rules.values():
                    if _concerns(rule, card):
                        card.taints = (*card.taints, rule.spec.taint)
        return entry

    def view(self, node: Node) -> View:
        """The devices for a node."""
        view = self._views.get(node.name)
        if view is None:
            pools = [self.pool(pool) for pool in {**self._of_node.get(node.name, {}), **self._wide}]
            view = self._views[node.name] = View([pool for pool in pools if pool is not None], node)
        return view

    def use_changed(self, pool: PoolId) -> None:
        """Devices of the pool came into use, or are free again."""
        for node in self.places(pool):
            view = self._views.get(node)
            if view is not None:
                view.used = None
            self._changed(node)

    def places(self, pool: PoolId) -> Iterable[str]:
        """The nodes on which the pool's devices can be used; [""]: many."""
        current_pool = self.pool(pool)
        return [] if current_pool is None else [""] if current_pool.nodes is None else current_pool.nodes

    def _pool_changed(self, pool: PoolId, *nodes: str) -> None:
        """`nodes`: where the slice that changed was, and where it is."""
        places = {*nodes, *(self.places(pool) if pool in self._pools else ())}
        self._pools.pop(pool, None)
        places.update(self.places(pool))
        if "" in places:
            self._views.clear()
            self._changed("")
            return
        for node in places:
            self._views.pop(node, None)
            self._changed(node)


def _pool_of(resource_slice: ResourceSlice) -> PoolId:
    return resource_slice.spec.driver, resource_slice.spec.pool.name


def _concerns(rule: DeviceTaintRule, card: Card) -> bool:
    selector = rule.spec.device_selector
    if selector is None:
        return False
    targets = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(targets, card.id, strict=True))


def full_name(driver: str, name: str) -> str:
    """The name of an attribute or a capacity with its domain, which is the driver's where it has none."""
    return name if "/" in name else f"{driver}/{name}"


def _value(attribute: Attribute) -> tuple[str, Any]:
    """The type and the value of an attribute."""
    values = (
        ("version", attribute.version),
        ("int", attribute.int_),
        ("bool", attribute.bool_),
        ("string", attribute.string),
    )
    return next(((kind, value) for kind, value in values if value is not None), ("", None))


def _read(kind: str, value: Any) -> Any:
    """The value as expressions see it."""
    try:
        return Semver(value) if kind == "version" else value
    except ValueError:
        return value


def _amount(text: Any, name: str) -> Fraction:
    try:
        return _exact(text)
    except QuantityError as error:
        raise ValueError(f"{name}: {error}") from error


_exact = lru_cache(maxsize=4096)(exact)  # one object for the amounts of devices that are alike: it is compared often


def values_of(resources: Mapping[str, Any]) -> Counters:
    """The amounts of a resource list; unreadable ones are left out."""
    counters: Counters = {}
    for name, text in resources.items():
        try:
            counters[name] = exact(text)
        except QuantityError:
            continue
    return counters
