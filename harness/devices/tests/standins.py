"""Boundaries for tests: one node's stand-ins, made the way foreign processes and this process would find them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_devices.ascend.library import DCMI
from fake_devices.build import NO_COMPILER, TABLE_FILE, Stand, compiler, install
from fake_devices.cambricon.library import CNDEV
from fake_devices.machine import from_server
from fake_devices.models import catalog
from fake_devices.nvidia.inprocess import InProcessNvml
from fake_devices.nvidia.library import NVML
from fake_devices.pci import write_tree
from fake_devices.rdma.netlink import RdmaPeer
from fake_devices.rdma.surfaces import sync_rdma, write_rdma
from fake_devices.table import FULL, DeviceTable
from harness.devices.ascend import AscendProvider
from harness.devices.cambricon import CambriconProvider
from harness.devices.nvidia import NvidiaProvider
from harness.devices.provider import DeviceProvider
from harness.devices.rdma import RdmaProvider

NODE = "n1"


@dataclass
class Standin:
    """A boundary and the table behind it. `settle` brings files up to the table after a change."""

    vendor: str
    library: object
    table: DeviceTable
    root: Path
    provider: Callable[[], DeviceProvider]
    settle: Callable[[], None] = lambda: None

    def position(self, number: int = 0, vendor: str = "") -> int:
        """Where the vendor's device of that index is in the table."""
        wanted = vendor or self.vendor
        return next(
            at
            for at, slot in enumerate(self.table.machine.slots)
            if slot.model.vendor == wanted and slot.index == number
        )


@contextmanager
def nvml_object(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NVML as a Python object."""
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=("nvidia",))
    table = DeviceTable.create(machine, NODE, room=FULL)
    library = InProcessNvml(table)
    yield Standin("nvidia", library, table, root, lambda: NvidiaProvider(library, root=root, source="fake-abi"))


def _library(root: Path, server: str, vendor: str, stand: Stand) -> tuple[Path, DeviceTable]:
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=(vendor,))
    folder = root / "lib"
    library = install(stand, folder)
    return library, DeviceTable.create(machine, NODE, room=FULL, path=folder / TABLE_FILE)


@contextmanager
def nvml_library(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NVML as a shared library, in a directory of its own with its table."""
    library, table = _library(root, server, "nvidia", NVML)
    yield Standin("nvidia", library, table, root, lambda: NvidiaProvider(library, root=root, source="fake-abi"))


@contextmanager
def dcmi_library(root: Path, server: str = "atlas-800t-a2") -> Iterator[Standin]:
    library, table = _library(root, server, "huawei", DCMI)
    yield Standin("huawei", library, table, root, lambda: AscendProvider(library, root=root, source="fake-abi"))


@contextmanager
def cndev_library(root: Path, server: str = "mlu370-x8-8") -> Iterator[Standin]:
    library, table = _library(root, server, "cambricon", CNDEV)
    yield Standin("cambricon", library, table, root, lambda: CambriconProvider(library, root=root, source="fake-abi"))


@contextmanager
def rdma_tree(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NICs as files alone."""
    machine = from_server(server, catalog())
    write_tree(root, machine, vendors=("mellanox",))
    table = DeviceTable.create(machine, NODE, room=FULL)
    write_rdma(root, table)
    yield Standin(
        "mellanox",
        None,
        table,
        root,
        lambda: RdmaProvider(root=root, source="fake-abi"),
        lambda: sync_rdma(root, table),
    )


@contextmanager
def rdma_tree_and_netlink(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NICs as files, and the kernel's answers over a socket."""
    with rdma_tree(root, server) as standin:
        peer = RdmaPeer(standin.table)
        standin.provider = lambda: RdmaProvider(root=root, netlink=peer.reader, source="fake-abi")
        yield standin
        peer.close()


Way = Callable[..., AbstractContextManager[Standin]]

NVML_WAYS: dict[str, Way] = {"object": nvml_object, "library": nvml_library}
ALL_WAYS: dict[str, Way] = {
    "nvidia-object": nvml_object,
    "nvidia-library": nvml_library,
    "huawei-library": dcmi_library,
    "cambricon-library": cndev_library,
    "rdma-tree": rdma_tree,
    "rdma-netlink": rdma_tree_and_netlink,
}
