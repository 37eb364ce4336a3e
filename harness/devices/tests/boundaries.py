"""Boundaries for tests: the stand-ins of one node, as this process and other processes find them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from seatrial.fake_devices.build import NO_COMPILER, TABLE_FILE, StandInLibrary, compiler, install
from seatrial.fake_devices.machine import from_server
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.nvidia.inprocess import InProcessNvml
from seatrial.fake_devices.pci import write_tree
from seatrial.fake_devices.rdma.netlink import RdmaPeer
from seatrial.fake_devices.rdma.surfaces import sync_rdma, write_rdma
from seatrial.fake_devices.table import FULL, DeviceTable
from seatrial.harness.devices.nvidia import NvidiaProvider
from seatrial.harness.devices.provider import DeviceProvider
from seatrial.harness.devices.rdma import RdmaProvider
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.devices.vendors.descriptor import Vendor

NODE = "n1"

Way = Callable[..., AbstractContextManager["Boundary"]]


@dataclass
class Boundary:
    """A boundary and the table behind it. `settle` updates files from the table after a change."""

    vendor: str
    library: object
    table: DeviceTable
    root: Path
    provider: Callable[[], DeviceProvider]
    settle: Callable[[], None] = lambda: None

    def position(self, number: int = 0, vendor: str = "") -> int:
        """Where the vendor's device of that index is in the table."""
        name = vendor or self.vendor
        return next(
            at for at, slot in enumerate(self.table.machine.slots) if slot.model.vendor == name and slot.index == number
        )


@contextmanager
def nvml_object(root: Path, server: str = "dgx-h100") -> Iterator[Boundary]:
    """NVML as a Python object."""
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=("nvidia",))
    table = DeviceTable.create(machine, NODE, room=FULL)
    library = InProcessNvml(table)
    yield Boundary("nvidia", library, table, root, lambda: NvidiaProvider(library, root=root, source="fake-abi"))


def _library(root: Path, server: str, vendor: str, stand: StandInLibrary) -> tuple[Path, DeviceTable]:
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=(vendor,))
    folder = root / "lib"
    library = install(stand, folder)
    return library, DeviceTable.create(machine, NODE, room=FULL, path=folder / TABLE_FILE)


@contextmanager
def vendor_library(root: Path, vendor: Vendor, server: str) -> Iterator[Boundary]:
    """A vendor's shared library, in a directory of its own with its table."""
    assert vendor.hardware.library is not None
    library, table = _library(root, server, vendor.name, vendor.hardware.library)
    make: Callable[..., DeviceProvider] = vendor.provider()
    yield Boundary(vendor.name, library, table, root, lambda: make(library, root=root, source="fake-abi"))


def _way(name: str, default: str) -> Way:
    def way(root: Path, server: str = default) -> AbstractContextManager[Boundary]:
        return vendor_library(root, VENDORS[name], server)

    return way


@contextmanager
def rdma_tree(root: Path, server: str = "dgx-h100") -> Iterator[Boundary]:
    """NICs as files alone."""
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=("mellanox",))
    table = DeviceTable.create(machine, NODE, room=FULL)
    write_rdma(root, table)
    yield Boundary(
        "mellanox",
        None,
        table,
        root,
        lambda: RdmaProvider(root=root, source="fake-abi"),
        lambda: sync_rdma(root, table),
    )


@contextmanager
def rdma_tree_and_netlink(root: Path, server: str = "dgx-h100") -> Iterator[Boundary]:
    """NICs as files, and the kernel's answers over a socket."""
    with rdma_tree(root, server) as boundary:
        peer = RdmaPeer(boundary.table)
        boundary.provider = lambda: RdmaProvider(root=root, netlink=peer.reader, source="fake-abi")
        yield boundary
        peer.close()


SERVERS = {  # vendor → servers of the catalogue with its devices, the usual one first
    "nvidia": ["dgx-h100", "hgx-a100", "a10-4", "a10-vm", "mixed-gpu"],
    "huawei": ["atlas-800t-a2", "ascend-16"],
    "cambricon": ["mlu370-x8-8"],
    "mellanox": ["dgx-h100", "hgx-a100"],
    "amd": ["mi300x-8"],
}
LIBRARY_WAYS: dict[str, Way] = {
    name: _way(name, SERVERS[name][0]) for name, vendor in VENDORS.items() if vendor.hardware.library is not None
}
nvml_library, dcmi_library, cndev_library = (LIBRARY_WAYS[name] for name in ("nvidia", "huawei", "cambricon"))
NVML_WAYS: dict[str, Way] = {"object": nvml_object, "library": nvml_library}
ALL_WAYS: dict[str, Way] = {
    "nvidia-object": nvml_object,
    "rdma-tree": rdma_tree,
    "rdma-netlink": rdma_tree_and_netlink,
    **{f"{name}-library": way for name, way in LIBRARY_WAYS.items()},
}
