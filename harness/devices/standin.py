"""A machine of the catalogue behind the vendors' own boundaries, in place of the real one.

One table, one folder of libraries beside it, one tree of /sys and /dev. The providers read them as they would read the
machine's own; other programs do too, once the folder comes first in `LD_LIBRARY_PATH` (NVML's stand-in is then what
`libnvidia-ml.so.1` names). What is not real and cannot be: the cards compute nothing, so nothing measured here says
anything about hardware.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fake_devices import mailbox
from fake_devices.ascend.library import DCMI
from fake_devices.build import NO_COMPILER, TABLE_FILE, Stand, compiler, install
from fake_devices.cambricon.library import CNDEV
from fake_devices.machine import Machine, from_devices, from_server
from fake_devices.models import CatalogError, catalog
from fake_devices.nvidia.inprocess import InProcessNvml
from fake_devices.nvidia.library import NVML
from fake_devices.pci import write_tree
from fake_devices.rdma.surfaces import sync_rdma, write_rdma
from fake_devices.table import FULL, DeviceTable
from harness.devices.ascend import AscendProvider
from harness.devices.cambricon import CambriconProvider
from harness.devices.nvidia import NvidiaProvider
from harness.devices.provider import DeviceProvider
from harness.devices.rdma import RdmaProvider
from harness.errors import UsageError
from harness.private_files import private_folder

NODE = "this-machine"
COUNT = 8  # devices of a bare model, where nobody says how many
MOST = 64
LIBRARY_PATH = "LD_LIBRARY_PATH"
SPELLING = "a server of the catalogue, or MODEL or MODEL:COUNT as in a10:2"

_LIBRARIES: Mapping[str, Stand] = {"nvidia": NVML, "huawei": DCMI, "cambricon": CNDEV}


@dataclass(frozen=True, slots=True)
class StandIn:
    """What stands in for a machine's devices. `root` is where its /sys and /dev are."""

    name: str
    machine: Machine
    table: DeviceTable
    root: Path
    libraries: Path | None  # the folder for LD_LIBRARY_PATH; None where there was no compiler to make any

    def providers(self) -> list[DeviceProvider]:
        """The vendors' providers on these boundaries, none of them open."""
        vendors = dict.fromkeys(slot.model.vendor for slot in self.machine.slots)
        return [self._provider(vendor) for vendor in vendors]

    def env(self) -> dict[str, str]:
        """The variables by which a program of this machine finds the libraries."""
        return {LIBRARY_PATH: str(self.libraries)} if self.libraries is not None else {}

    def set_processes(self, rows: Sequence[tuple[int, str, int, float]], *, now: float) -> None:
        """Who is on the cards from now on: process id, UUID, bytes, percent of the cores; `now` in seconds since 1970.

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
        """Answer what programs ask of the libraries to be changed; to be called each `mailbox.EVERY` seconds."""
        mailbox.answer(self.table)

    def sync(self) -> None:
        """Bring the files up to what the table says now; the libraries read the table themselves."""
        if any(slot.model.is_nic for slot in self.machine.slots):
            sync_rdma(self.root, self.table)

    def _provider(self, vendor: str) -> DeviceProvider:
        root = self.root
        if vendor == "mellanox":
            return RdmaProvider(root=root, source="fake-abi")
        library = self.libraries / _LIBRARIES[vendor].soname if self.libraries is not None else None
        if vendor == "nvidia":
            given = library if library is not None else InProcessNvml(self.table)
            return NvidiaProvider(given, root=root, source="fake-abi")
        make: Callable[..., DeviceProvider] = AscendProvider if vendor == "huawei" else CambriconProvider
        return make(library, root=root, source="fake-abi")


def machine_called(name: str) -> Machine:
    """The machine that `--fake NAME` means: a server of the catalogue, or some devices of one model.

    Raises:
        UsageError: the catalogue has neither, or the count is none.
    """
    model, colon, number = name.partition(":")
    if colon and not (number.isdecimal() and 1 <= int(number) <= MOST):
        raise UsageError(f"--fake {name}: expected MODEL:COUNT with a count of 1 to {MOST}, found {number!r}")
    try:
        return from_devices(((model, int(number)),), catalog()) if colon else from_server(name, catalog())
    except CatalogError as error:
        if colon:
            raise UsageError(f"--fake {name}: {error}") from error
        try:
            return from_devices(((name, COUNT),), catalog())
        except CatalogError:
            raise UsageError(f"--fake {name}: {error}; expected {SPELLING}") from error


@contextmanager
def stand_in(name: str) -> Iterator[StandIn]:
    """Put a machine up; its files are gone afterwards.

    Raises:
        UsageError: there is no such machine, or a compiler is needed for it and missing.
    """
    machine = machine_called(name)
    wanted = [vendor for vendor in _LIBRARIES if any(slot.model.vendor == vendor for slot in machine.slots)]
    if compiler() is None and set(wanted) - {"nvidia"}:
        raise UsageError(f"--fake {name}: {NO_COMPILER}")
    with private_folder() as scratch:
        root, libraries = scratch / "root", scratch / "lib"
        write_tree(root, machine)
        libraries.mkdir()
        table = DeviceTable.create(machine, NODE, room=FULL, path=libraries / TABLE_FILE)
        for vendor in wanted if compiler() is not None else ():
            install(_LIBRARIES[vendor], libraries)
        write_rdma(root, table)
        yield StandIn(name, machine, table, root, libraries if compiler() is not None else None)
