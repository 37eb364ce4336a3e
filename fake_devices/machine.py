"""One machine assembled from the catalogue: the place of each device, and the links between devices.

A machine is immutable, and thousands of nodes share one. State that changes (health, memory in use, slices) is in the
node's `DeviceTable`. Values that differ between equal nodes (UUIDs, serial numbers, GUIDs) are derived from the node's
name and a seed by `identity`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from seatrial.fake_devices.facts import NicFacts, Size
from seatrial.fake_devices.models import Catalog, CatalogError, DeviceModel, Place, ServerModel, Wiring, check_places

NUMA_NODES = 2  # of machines that are described by their devices alone
CARDS_PER_SWITCH = 2
_FIRST_ROOT, _ROOT_STEP, _ROOTS_PER_DOMAIN = 0x10, 0x1C, 8


@dataclass(frozen=True, slots=True)
class Slot:
    """One device in its place. Index, minor, card and chip are four different numbers."""

    model: DeviceModel
    index: int  # the vendor library's order: by bus address
    minor: int  # the kernel's number, as in /dev/nvidia<minor>, /dev/davinci<minor>, mlx5_<minor>
    card: int
    chip: int  # on the card
    bus: str
    root: str
    switch: str
    numa: int  # -1: unknown
    vfs: tuple[str, ...] = ()  # bus addresses of a NIC's virtual functions


@dataclass(frozen=True, slots=True)
class Link:
    """One port of an accelerator and its peer."""

    slot: int  # position in Machine.slots
    port: int
    peer: int  # position in Machine.slots; -1: a switch
    kind: str  # nvlink, hccs, mlulink, xgmi


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A node's hardware. Compared by identity, so that it can be the key of a cache."""

    server: str  # the catalogue's name; empty if it was described by its devices
    cpu: int
    memory: int  # bytes
    numa: int
    pods: int
    slots: tuple[Slot, ...]
    links: tuple[Link, ...]
    extended: tuple[tuple[str, int], ...] = ()  # resources that device plugins of other projects offer, with amounts

    @property
    def vendors(self) -> tuple[str, ...]:
        """The vendors of its devices, each once, in the order of the slots."""
        return tuple(dict.fromkeys(slot.model.vendor for slot in self.slots))


@dataclass(frozen=True, slots=True)
class Identity:
    """Values that identify one device among devices of the same model."""

    uuid: str
    serial: str
    guid: int


def identity(node: str, slot: Slot, *, seed: int = 0) -> Identity:
    """The identity of the device in `slot` of `node`; a function of its arguments alone."""
    digest = hashlib.sha256(f"{seed}/{node}/{slot.bus}".encode()).digest()
    serial = str(int.from_bytes(digest[20:26]) % 10**13).zfill(13)
    return Identity(slot.model.hardware.uuid(digest), serial, 0xA088C20300000000 | int.from_bytes(digest[26:30]))


def from_server(model: str, catalog: Catalog) -> Machine:
    """The machine of a server model.

    Raises:
        CatalogError: no such server.
    """
    return _assemble(catalog.server(model), catalog)


MAX_DEVICES = 1000  # of one model in a machine


@lru_cache(maxsize=256)
def from_devices(devices: tuple[tuple[str, int], ...], catalog: Catalog) -> Machine:
    """A machine with `count` devices of each model: two cards per PCIe switch, NICs spread over the switches, two NUMA
    nodes.

    Raises:
        CatalogError: no such device, or more of them than a PCIe tree has room for.
    """
    cards: list[DeviceModel] = []
    nics: list[DeviceModel] = []
    for name, count in devices:
        device = catalog.device(name)
        if count > MAX_DEVICES:
            raise CatalogError(f"expected at most {MAX_DEVICES} of {name}, found {count}")
        (nics if device.is_nic else cards).extend([device] * count)
    switches = max(1, -(-len(cards) // CARDS_PER_SWITCH), min(len(nics), 4) if not cards else 0)
    below: list[list[DeviceModel]] = [[] for _ in range(switches)]
    for number, card in enumerate(cards):
        below[number // CARDS_PER_SWITCH].append(card)
    for number, nic in enumerate(nics):
        below[number % switches].append(nic)
    places = [place for number, group in enumerate(below) for place in _below_switch(number, switches, group)]
    linked = tuple(range(len(cards)))
    links = cards[0].hardware.links if cards else None
    wiring = None
    if links and len(cards) > 1 and all(card.accelerator.links and card.vendor == cards[0].vendor for card in cards):
        step = links.group or len(linked)
        groups = tuple(linked[at : at + step] for at in range(0, len(linked), step))
        wiring = Wiring(kind=links.kind, groups=groups, switched=links.switched)
    count = len(cards)
    server = ServerModel(
        server="",
        cpu=16 + 12 * count if count else 32,
        memory=Size((64 + 128 * count) << 30),
        numa=NUMA_NODES,
        pods=110,
        devices=tuple(_numbered(places, catalog)),
        wiring=wiring,
    )
    check_places("devices", server, catalog)
    return _assemble(server, catalog)


def _below_switch(number: int, switches: int, devices: Sequence[DeviceModel]) -> list[Place]:
    """Places of the devices below one switch, without minors."""
    domain, root = number // _ROOTS_PER_DOMAIN, _FIRST_ROOT + _ROOT_STEP * (number % _ROOTS_PER_DOMAIN)
    if len(devices) > _ROOT_STEP - 3:
        raise CatalogError(f"expected at most {_ROOT_STEP - 3} devices below one PCIe switch, found {len(devices)}")
    return [
        Place(
            model=device.model,
            bus=f"{domain:04x}:{root + 3 + position:02x}:00.0",
            root=f"pci{domain:04x}:{root:02x}",
            numa=number * NUMA_NODES // switches,
            minor=-1,
            switch=f"{domain:04x}:{root + 1:02x}:00.0",
        )
        for position, device in enumerate(devices)
    ]


def _numbered(places: Sequence[Place], catalog: Catalog) -> list[Place]:
    """The places with minors: NICs in address order; cards swapped in pairs, so that code that confuses minor and index
    fails.

    Where a vendor's driver counts as its library does, the minor is the index.
    """
    cards = sum(not catalog.device(place.model).is_nic for place in places)
    numbered: list[Place] = []
    card = nic = 0
    for place in places:
        if catalog.device(place.model).is_nic:
            minor, nic = nic, nic + 1
        else:
            swapped = card ^ 1 < cards and not catalog.device(place.model).hardware.minor_is_index
            minor, card = (card ^ 1 if swapped else card), card + 1
        numbered.append(Place(place.model, place.bus, place.root, place.numa, minor, place.switch, place.card))
    return numbered


@lru_cache(maxsize=256)
def _assemble(server: ServerModel, catalog: Catalog) -> Machine:
    order = sorted(server.devices, key=lambda place: _bus_key(place.bus))
    indexes: dict[str, int] = {}
    chips: dict[int, int] = {}
    slots: list[Slot] = []
    for place in order:
        model = catalog.device(place.model)
        index = indexes.get(model.vendor, 0)
        indexes[model.vendor] = index + 1
        card = place.card if place.card >= 0 else index
        chip = chips.get(card, 0) if model.hardware.chips_on_card else 0
        if model.hardware.chips_on_card:
            chips[card] = chip + 1
        vfs = _vfs(place.bus, model.facts.enabled_vfs) if isinstance(model.facts, NicFacts) else ()
        slots.append(
            Slot(
                model=model,
                index=index,
                minor=place.minor,
                card=card,
                chip=chip,
                bus=place.bus,
                root=place.root,
                switch=place.switch,
                numa=place.numa,
                vfs=vfs,
            )
        )
    return Machine(
        server=server.server,
        cpu=server.cpu,
        memory=server.memory,
        numa=server.numa,
        pods=server.pods,
        slots=tuple(slots),
        links=tuple(_links(slots, server.wiring)) if server.wiring else (),
    )


def _bus_key(bus: str) -> tuple[int, ...]:
    domain, number, rest = bus.split(":")
    return int(domain, 16), int(number, 16), int(rest.replace(".", ""), 16)


def _vfs(bus: str, count: int) -> tuple[str, ...]:
    """Addresses of virtual functions; functions 0 and 1 are the two physical ports that a chip may have."""
    return tuple(f"{bus[:-4]}{(2 + vf) // 8:02x}.{(2 + vf) % 8}" for vf in range(count))


def _links(slots: Sequence[Slot], wiring: Wiring) -> list[Link]:
    by_minor = {slot.minor: position for position, slot in enumerate(slots) if not slot.model.is_nic}
    links: list[Link] = []
    for group in wiring.groups:
        members = [by_minor[minor] for minor in group]
        for position in members:
            ports = slots[position].model.accelerator.links
            if wiring.switched:
                links += [Link(position, port, -1, wiring.kind) for port in range(ports)]
                continue
            peers = [other for other in members if other != position]
            links += [Link(position, port, peer, wiring.kind) for port, peer in enumerate(peers)][:ports]
    return links
