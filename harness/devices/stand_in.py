"""A simulated machine of the catalogue behind the vendors' boundaries: libraries, /sys and /dev.

There is one table, one folder of libraries beside it, and one tree of /sys and /dev. Providers read them like the
machine's own. Other programs do too if the folder is first in `LD_LIBRARY_PATH`. The cards do not compute: nothing that
is measured here applies to hardware.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seatrial.fake_devices import mailbox
from seatrial.fake_devices.build import NO_COMPILER, TABLE_FILE, compiler, install
from seatrial.fake_devices.machine import Machine, from_devices, from_server
from seatrial.fake_devices.models import CatalogError, catalog
from seatrial.fake_devices.nvidia.inprocess import InProcessNvml
from seatrial.fake_devices.pci import write_tree
from seatrial.fake_devices.rdma.surfaces import sync_rdma, write_rdma
from seatrial.fake_devices.table import FULL, DeviceTable
from seatrial.harness.devices.provider import DeviceProvider
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.private_files import private_folder

NODE = "this-machine"
DEFAULT_COUNT = 8  # devices of a model that is given without a count
MAX_DEVICES = 64
LIBRARY_PATH = "LD_LIBRARY_PATH"
SPELLING = "a server of the catalogue, or MODEL or MODEL:COUNT as in a10:2"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A simulated machine. `root` has its /sys and /dev."""

    name: str
    machine: Machine
    table: DeviceTable
    root: Path
    libraries: Path | None  # folder for LD_LIBRARY_PATH; None without a compiler

    def providers(self) -> list[DeviceProvider]:
        """Providers of its vendors, none of them open."""
        return [self._provider(vendor) for vendor in self.machine.vendors]

    def env(self) -> dict[str, str]:
        """Environment variables with which a program finds the libraries."""
        return {LIBRARY_PATH: str(self.libraries)} if self.libraries is not None else {}

    def set_processes(self, rows: Sequence[tuple[int, str, int, float]], *, now: float) -> None:
        """Replace the processes on the cards. A row is process id, UUID, bytes and percent of the cores.

        `now` is in seconds since 1970.

        More processes than the table has room for are left out.
        """
        for number, record in enumerate(self.table.processes):
            pid, uuid, memory, core = rows[number] if number < len(rows) else (0, "", 0, 0.0)
            at = self.table.position(uuid) if pid else None
            if not pid and not record.pid:
                continue
            with self.table.writing(record):
                record.pid, record.device = (pid, at) if at is not None else (0, 0)
                record.used, record.sm, record.sampled_us = memory, round(core), int(now * 1e6)

    def attend(self) -> None:
        """Carry out changes that programs request from the libraries. Call it every `mailbox.POLL_INTERVAL` seconds."""
        mailbox.answer(self.table)

    def sync(self) -> None:
        """Update the files from the table; the libraries read the table directly."""
        if any(slot.model.is_nic for slot in self.machine.slots):
            sync_rdma(self.root, self.table)

    def _provider(self, name: str) -> DeviceProvider:
        vendor = VENDORS[name]
        make: Callable[..., DeviceProvider] = vendor.provider()
        stand_in_library = vendor.hardware.library
        if stand_in_library is None:
            return make(root=self.root, source="fake-abi")
        if self.libraries is None:
            return make(InProcessNvml(self.table), root=self.root, source="fake-abi")
        return make(self.libraries / stand_in_library.soname, root=self.root, source="fake-abi")


def machine_called(name: str) -> Machine:
    """The machine that `--fake NAME` means: a server of the catalogue, or some devices of one model.

    Raises:
        UsageError: the catalogue has neither, or the count is none.
    """
    model, colon, number = name.partition(":")
    if colon and not (number.isdecimal() and 1 <= int(number) <= MAX_DEVICES):
        raise UsageError(f"--fake {name}: expected MODEL:COUNT with a count of 1 to {MAX_DEVICES}, found {number!r}")
    try:
        return from_devices(((model, int(number)),), catalog()) if colon else from_server(name, catalog())
    except CatalogError as error:
        if colon:
            raise UsageError(f"--fake {name}: {error}") from error
        try:
            return from_devices(((name, DEFAULT_COUNT),), catalog())
        except CatalogError:
            raise UsageError(f"--fake {name}: {error}; expected {SPELLING}") from error


@contextmanager
def stand_in(name: str) -> Iterator[StandIn]:
    """Set up a simulated machine; its files are removed at the end of the block.

    Raises:
        UsageError: there is no such machine, or a compiler is needed for it and missing.
    """
    machine = machine_called(name)
    hardware = [VENDORS[vendor].hardware for vendor in machine.vendors]
    if compiler() is None and any(vendor.library is not None and not vendor.python_library for vendor in hardware):
        raise UsageError(f"--fake {name}: {NO_COMPILER}")
    with private_folder() as scratch:
        root, libraries = scratch / "root", scratch / "lib"
        write_tree(root, machine)
        libraries.mkdir()
        table = DeviceTable.create(machine, NODE, room=FULL, path=libraries / TABLE_FILE)
        for vendor in hardware if compiler() is not None else ():
            if vendor.library is not None:
                install(vendor.library, libraries)
        write_rdma(root, table)
        yield StandIn(name, machine, table, root, libraries if compiler() is not None else None)
