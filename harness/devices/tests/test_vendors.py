"""Conformance of registered vendors: every part that a vendor must have, and a list of those that are missing."""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import fake_devices
from seatrial.fake_devices import faults
from seatrial.fake_devices.build import FOLDER
from seatrial.fake_devices.machine import from_devices
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.table import DeviceTable
from seatrial.fake_devices.vendors import HARDWARE
from seatrial.harness.devices.amd import AmdProvider
from seatrial.harness.devices.provider import Assignment, Device, Share
from seatrial.harness.devices.tests.boundaries import SERVERS
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.devices.vendors.descriptor import Vendor
from seatrial.harness.nodes.capacity import plugin_amounts
from seatrial.harness.nodes.hardware import NodeHardware
from seatrial.scheduler.api.builders import PROBE_COMMAND

ROOT = Path(fake_devices.__file__).resolve().parents[1]
NEEDED_VERBS = {"lost", "remove", "slow"}
NEEDED_VERBS_OF_CARDS = NEEDED_VERBS | {"critical", "ecc", "throttle", "reset_needed", "leak"}
CONTRACT = "Providers know their library alone"


def models_of(vendor: Vendor) -> list[str]:
    names = catalog().device_names()
    return [name for name in names if catalog().device(name).vendor == vendor.name]


def device_of(vendor: Vendor) -> Device | None:
    """A device of a simulated node; None if the catalogue has no model of the vendor."""
    if not models_of(vendor):
        return None
    machine = from_devices(((models_of(vendor)[0], 2),), catalog())
    return next(device for device in NodeHardware("n1", machine).devices() if device.vendor == vendor.name)


def has_hardware(vendor: Vendor) -> bool:
    return HARDWARE.get(vendor.name) is vendor.hardware


def has_provider(vendor: Vendor) -> bool:
    provider = vendor.provider()
    return not inspect.isabstract(provider) and provider.vendor == vendor.name


def has_stand_in(vendor: Vendor) -> bool:
    """A library whose sources exist and place the vendor by its code; NICs are read from files."""
    library = vendor.hardware.library
    if library is None:
        return vendor.kind == "rdma"
    sources = [FOLDER / name for name in library.sources]
    if not all(source.is_file() for source in sources):
        return False
    text = "".join(path.read_text() for path in sources[0].parent.glob("*.[ch]"))
    return f"= {vendor.hardware.code}," in text or f"= {vendor.hardware.code} }}" in text


def has_models(vendor: Vendor) -> bool:
    return bool(models_of(vendor)) and vendor.name in SERVERS


def has_grant(vendor: Vendor) -> bool:
    """The device's own nodes, and under `names` the card as the environment lists it."""
    device = device_of(vendor)
    if device is None:
        return False
    grant = vendor.grant(Assignment((Share(device, {}),)))
    named = device.uuid if vendor.names.by_uuid else str(device.minor)
    number = vendor.names.first + device.minor
    return (
        set(device.nodes) <= set(grant.nodes)
        and f"{vendor.names.node}{number}" in grant.nodes
        and (not vendor.names.variable or grant.env.get(vendor.names.variable) == named)
    )


def has_faults(vendor: Vendor) -> bool:
    """All verbs for its kind; `link` where the devices have ports or links."""
    needed = NEEDED_VERBS_OF_CARDS if vendor.kind == "gpu" else NEEDED_VERBS
    linked = vendor.kind == "rdma" or vendor.hardware.links is not None
    return needed <= set(vendor.hardware.faults) <= set(faults.VERBS) and linked == ("link" in vendor.hardware.faults)


def has_health(vendor: Vendor) -> bool:
    """A new device is well; one with a fault is not, with a code and a message."""
    if not models_of(vendor):
        return False
    table = DeviceTable.create(from_devices(((models_of(vendor)[0], 2),), catalog()), "n1")
    well = vendor.health(table.devices[0])
    faults.apply(table, 0, "critical" if vendor.kind == "gpu" else "link", {}, now=1.0)
    unwell = vendor.health(table.devices[0])
    return well.ok and not unwell.ok and bool(unwell.code) and bool(unwell.message)


def has_resources(vendor: Vendor) -> bool:
    device = device_of(vendor)
    if device is None:
        return False
    offered = plugin_amounts([device], healthy=True)
    return bool(vendor.amounts(device)) and (vendor.kind == "rdma" or offered.get(vendor.plugin_resource) == 1)


def has_contract(vendor: Vendor) -> bool:
    """The import contract of providers has the provider's module."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["name"].startswith(CONTRACT))
    return vendor.provider().__module__ in contract["source_modules"]


def has_probe(vendor: Vendor) -> bool:
    """Containers print the vendor's device nodes."""
    return all(glob in " ".join(PROBE_COMMAND) for glob in vendor.probe_globs)


def has_docs(vendor: Vendor) -> bool:
    return vendor.title in (ROOT / "docs/devices.md").read_text()


PARTS: Mapping[str, Callable[[Vendor], bool]] = {
    "hardware": has_hardware,
    "provider": has_provider,
    "stand-in": has_stand_in,
    "catalogue models": has_models,
    "grant": has_grant,
    "faults": has_faults,
    "health": has_health,
    "resources": has_resources,
    "import contract": has_contract,
    "probe": has_probe,
    "docs": has_docs,
}


def missing_parts(vendor: Vendor) -> list[str]:
    return [part for part, has in PARTS.items() if not has(vendor)]


LACKING = ["hardware", "stand-in", "grant", "faults", "resources", "import contract", "probe", "docs"]


@pytest.mark.parametrize("name", sorted(VENDORS))
def test_a_registered_vendor_has_every_part(name: str) -> None:
    assert missing_parts(VENDORS[name]) == []


def test_both_tables_register_the_same_vendors() -> None:
    assert list(VENDORS) == list(HARDWARE)
    codes = [vendor.code for vendor in HARDWARE.values()]
    assert len(set(codes)) == len(codes)


class OtherProvider(AmdProvider):
    """AMD's provider in a module that the import contract does not have."""


def test_a_vendor_that_lacks_parts_is_told_which() -> None:
    complete = VENDORS["amd"]
    hardware = replace(complete.hardware, faults={}, library=None)
    lacking = replace(
        complete,
        title="No such vendor",
        hardware=hardware,
        provider=lambda: OtherProvider,
        grant=VENDORS["mellanox"].grant,
        plugin_resource="",
        probe_globs=("/dev/absent*",),
    )
    assert missing_parts(lacking) == LACKING


def test_no_other_module_names_a_vendor() -> None:
    """A vendor's name stands in its own modules, in tests and in suites, and nowhere else in the harness."""
    own = ("harness/devices/", "fake_devices/", "harness/hami/")
    results = [
        path.relative_to(ROOT).as_posix()
        for folder in ("harness", "fixtures", "fake_devices")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
        and ("cambricon" in path.read_text().lower() or '"amd"' in path.read_text())
        and not path.relative_to(ROOT).as_posix().startswith(own)
    ]
    assert results == []
