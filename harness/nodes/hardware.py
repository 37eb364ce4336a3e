"""The hardware of a simulated node: its machine from the catalogue, its device table, and both as neutral devices.

Fleets read the table directly, without vendor libraries; the answers are those of the real providers, with `source`
`fake-table`. A test compares both field by field.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seatrial.fake_devices.machine import Machine, Slot, from_devices, from_server
from seatrial.fake_devices.models import Catalog, CatalogError, catalog
from seatrial.fake_devices.table import DeviceTable
from seatrial.fake_devices.vendors import BY_LIBRARY_CODE, HARDWARE
from seatrial.harness.apiserver.quantities import QuantityError, units
from seatrial.harness.devices.provider import Device, Driver, Function, Link
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError


def machine_of(entry: Mapping[str, Any], models: Catalog | None = None) -> Machine:
    """The machine that an entry of a fleet file describes.

    Raises:
        UsageError: it names a model that the catalogue does not have, or an amount that is no quantity.
    """
    models = models or catalog()
    where = f"node {entry.get('name', '?')!r}"
    devices = entry.get("devices") or ()
    try:
        if entry.get("server"):
            if devices:
                raise CatalogError("expected `server` or `devices`, found both; a server brings its own devices")
            machine = from_server(str(entry["server"]), models)
        else:
            machine = from_devices(
                tuple((str(entry["model"]), int(entry.get("count", 1))) for entry in devices), models
            )
        cpu = units(entry.get("cpu", machine.cpu))
        memory = units(entry.get("memory", machine.memory))
        pods = units(entry.get("pods", machine.pods))
    except (CatalogError, QuantityError) as error:
        raise UsageError(f"{where}: {error}") from error
    extended = tuple((entry.get("extended") or {}).items())
    if (cpu, memory, pods, extended) == (machine.cpu, machine.memory, machine.pods, ()):
        return machine
    return replace(machine, cpu=cpu, memory=memory, pods=pods, extended=extended)


class NodeHardware:
    """One node's machine and its device table, which is made on first use."""

    def __init__(self, node: str, machine: Machine, *, seed: int = 0, table: DeviceTable | None = None) -> None:
        """`table`: an existing table, which stand-ins for vendor libraries read."""
        self.node = node
        self.machine = machine
        self._seed = seed
        self._table = table

    @property
    def table(self) -> DeviceTable:
        """The table. It is kept from now on, because the caller may change it."""
        if self._table is None:
            self._table = self._factory_fresh()
        return self._table

    def devices(self) -> tuple[Device, ...]:
        """All devices that the kernel shows, cards first, each kind sorted by minor."""
        table = self._table or self._factory_fresh()
        devices = [_device(slot, record) for slot, record in table if record.present]
        return tuple(sorted(devices, key=lambda device: (device.kind, device.minor)))

    def driver(self, vendor: str) -> Driver:
        """Versions of a vendor's driver and library."""
        header = (self._table or self._factory_fresh()).header
        library = header.libraries[HARDWARE[vendor].code]
        return Driver(library.driver.decode(), library.library.decode(), str(library.runtime or ""))

    def links(self) -> tuple[Link, ...]:
        """The links between cards, each pair once."""
        table = self._table or self._factory_fresh()
        lanes: dict[tuple[str, str, int], list[bool]] = {}
        for record in table.links:
            own = table.devices[record.device].uuid.decode()
            peer = table.devices[record.peer].uuid.decode() if record.peer >= 0 else ""
            first, second = (own, peer) if not peer or own < peer else (peer, own)
            if not peer or own == first:
                lanes.setdefault((first, second, record.kind), []).append(bool(record.up))
        return tuple(
            Link(first, second, _link_kind(kind), len(ups), all(ups)) for (first, second, kind), ups in lanes.items()
        )

    def _factory_fresh(self) -> DeviceTable:
        return DeviceTable.create(self.machine, self.node, seed=self._seed)


def _link_kind(code: int) -> str:
    links = BY_LIBRARY_CODE[code].links
    return links.kind if links is not None else ""


def _device(slot: Slot, record: Any) -> Device:
    vendor = VENDORS[slot.model.vendor]
    return Device(
        vendor=vendor.name,
        kind=vendor.kind,
        model=slot.model.facts.name,
        label=vendor.label(slot.model.facts),
        index=record.index,
        minor=record.minor,
        uuid=record.uuid.decode(),
        bus_id=slot.bus,
        numa=record.numa if record.numa >= 0 else None,
        pcie_root=slot.root,
        memory=record.memory_total,
        health=vendor.health(record),
        card=record.card,
        ai_cpus=record.cpus,
        kernel_name=record.ibdev.decode(),
        nodes=vendor.nodes(record.minor),
        functions=tuple(Function(bus, 64 + 16 * record.minor + number) for number, bus in enumerate(slot.vfs))[
            : record.vfs_enabled
        ],
        source="fake-table",
        **vendor.details(record),
    )
