"""Boundaries for tests: one node's stand-ins, made the way foreign processes and this process would find them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_devices.build import NO_COMPILER, TABLE_FILE, compiler, install
from fake_devices.machine import from_server
from fake_devices.models import catalog
from fake_devices.nvidia.inprocess import InProcessNvml
from fake_devices.nvidia.library import NVML
from fake_devices.pci import write_tree
from fake_devices.table import FULL, DeviceTable

NODE = "n1"


@dataclass
class Standin:
    """A boundary and the table behind it."""

    library: object
    table: DeviceTable
    root: Path

    def position(self, vendor: str, number: int = 0) -> int:
        """Where the vendor's device of that index is in the table."""
        return next(
            at
            for at, slot in enumerate(self.table.machine.slots)
            if slot.model.vendor == vendor and slot.index == number
        )


@contextmanager
def nvml_object(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NVML as a Python object."""
    machine = from_server(server, catalog())
    write_tree(root, machine)
    table = DeviceTable.create(machine, NODE, room=FULL)
    yield Standin(InProcessNvml(table), table, root)


@contextmanager
def nvml_library(root: Path, server: str = "dgx-h100") -> Iterator[Standin]:
    """NVML as a shared library, in a directory of its own with its table."""
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    machine = from_server(server, catalog())
    write_tree(root, machine)
    folder = root / "lib"
    library = install(NVML, folder)
    table = DeviceTable.create(machine, NODE, room=FULL, path=folder / TABLE_FILE)
    yield Standin(library, table, root)


NVML_WAYS = {"object": nvml_object, "library": nvml_library}
