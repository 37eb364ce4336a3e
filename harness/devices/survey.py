"""Every vendor's provider asked once: what is in this machine, or in a simulated one behind the same boundaries."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fake_devices.ascend.library import DCMI
from fake_devices.build import NO_COMPILER, TABLE_FILE, Stand, compiler, install
from fake_devices.cambricon.library import CNDEV
from fake_devices.machine import Machine, from_devices, from_server
from fake_devices.models import CatalogError, catalog
from fake_devices.nvidia.inprocess import InProcessNvml
from fake_devices.pci import write_tree
from fake_devices.rdma.surfaces import write_rdma
from fake_devices.table import FULL, DeviceTable
from harness.devices.ascend import AscendProvider
from harness.devices.cambricon import CambriconProvider
from harness.devices.nvidia import NvidiaProvider
from harness.devices.provider import Device, DeviceProvider
from harness.devices.rdma import RdmaProvider
from harness.errors import DeviceError, UsageError

NODE = "this-machine"
_ONE_SERVER = 8  # devices of a bare model that a simulated machine gets


def survey(fake: str | None = None) -> tuple[list[Device], dict[str, str]]:
    """All devices found, and per vendor with none the reason in words.

    Raises:
        UsageError: the catalogue has no machine or model called `fake`.
    """
    with providers_of(fake) as providers:
        found: list[Device] = []
        missing: dict[str, str] = {}
        for provider in providers:
            absent = provider.probe()
            if absent is not None:
                missing[provider.vendor] = absent.why
                continue
            try:
                with provider:
                    found += provider.devices()
            except DeviceError as error:
                missing[provider.vendor] = str(error)
        return found, missing


@contextmanager
def providers_of(fake: str | None) -> Iterator[list[DeviceProvider]]:
    """The providers of this machine, none of them open; or those of a simulated one behind the same boundaries.

    Raises:
        UsageError: the catalogue has no machine or model called `fake`.
    """
    if fake is None:
        yield [NvidiaProvider(), AscendProvider(), CambriconProvider(), RdmaProvider()]
        return
    machine = _machine(fake)
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        yield [make(machine, Path(folder) / vendor) for vendor, make in _STANDINS.items() if _has(machine, vendor)]


def _machine(name: str) -> Machine:
    try:
        return from_server(name, catalog())
    except CatalogError as server_error:
        try:
            return from_devices(((name, _ONE_SERVER),), catalog())
        except CatalogError:
            raise UsageError(f"--fake {name}: {server_error}") from server_error


def _has(machine: Machine, vendor: str) -> bool:
    return any(slot.model.vendor == vendor for slot in machine.slots)


def _nvidia(machine: Machine, root: Path) -> DeviceProvider:
    write_tree(root, machine)
    return NvidiaProvider(InProcessNvml(DeviceTable.create(machine, NODE, room=FULL)), root=root, source="fake-abi")


def _ascend(machine: Machine, root: Path) -> DeviceProvider:
    return AscendProvider(_library(DCMI, machine, root), root=root, source="fake-abi")


def _cambricon(machine: Machine, root: Path) -> DeviceProvider:
    return CambriconProvider(_library(CNDEV, machine, root), root=root, source="fake-abi")


def _rdma(machine: Machine, root: Path) -> DeviceProvider:
    write_tree(root, machine)
    write_rdma(root, DeviceTable.create(machine, NODE, room=FULL))
    return RdmaProvider(root=root, source="fake-abi")


def _library(stand: Stand, machine: Machine, root: Path) -> Path:
    if compiler() is None:
        raise UsageError(f"--fake: {NO_COMPILER}")
    write_tree(root, machine)
    folder = root / "lib"
    library = install(stand, folder)
    DeviceTable.create(machine, NODE, room=FULL, path=folder / TABLE_FILE)
    return library


_STANDINS: dict[str, Callable[[Machine, Path], DeviceProvider]] = {
    "nvidia": _nvidia,
    "huawei": _ascend,
    "cambricon": _cambricon,
    "mellanox": _rdma,
}
