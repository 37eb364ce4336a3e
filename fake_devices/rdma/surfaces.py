"""What the kernel shows of RDMA NICs beside the PCI tree: RDMA devices, their ports and verbs, and nodes in /dev.

Only the files that `harness/devices/rdma.py` reads are written.
"""

from pathlib import Path
from typing import Any

from seatrial.fake_devices.facts import NicFacts
from seatrial.fake_devices.machine import Slot
from seatrial.fake_devices.pci import home_of, make_node, remove_device, write_device, write_function, write_value
from seatrial.fake_devices.table import DeviceTable

FIRST_VF_VERBS, VERBS_PER_NIC = 64, 16
STATES = {1: "1: DOWN", 2: "2: INIT", 3: "3: ARMED", 4: "4: ACTIVE"}
RDMA_CM = "/dev/infiniband/rdma_cm"


def write_rdma(root: Path, table: DeviceTable) -> bool:
    """Write all NICs of a machine into its PCI tree; return whether the device nodes are real character devices."""
    real = make_node(root, RDMA_CM, minor=58)
    for slot, record in table:
        if isinstance(slot.model.facts, NicFacts):
            _nic(root, slot, record)
            for number in range(len(slot.vfs)):
                _function(root, slot, number)
    sync_rdma(root, table)
    return real


def sync_rdma(root: Path, table: DeviceTable) -> None:
    """Write the table's current state to the files: port states, virtual functions, devices that were removed."""
    for slot, record in table:
        if not slot.model.is_nic:
            continue
        if not record.present:
            for bus in (*slot.vfs, slot.bus):
                _forget(root, slot, bus)
            continue
        home = home_of(root, slot, slot.bus)
        if not home.is_dir():  # it was removed and is back
            write_device(root, slot)
            _nic(root, slot, record)
            for number in range(len(slot.vfs)):
                _function(root, slot, number)
        state = home / "infiniband" / record.ibdev.decode() / "ports/1/state"
        write_value(state, STATES.get(record.port_state, f"{record.port_state}: UNKNOWN"))
        _functions(root, slot, record)


def verbs_number(slot: Slot, function: int) -> int:
    """Return N in /dev/infiniband/uverbsN for a virtual function."""
    return FIRST_VF_VERBS + VERBS_PER_NIC * slot.minor + function


def _nic(root: Path, slot: Slot, record: Any) -> None:
    home = home_of(root, slot, slot.bus)
    name = record.ibdev.decode()
    _rdma_device(root, home, name, slot.minor)
    write_value(home / "infiniband" / name / "hca_type", slot.model.facts.name)


def _function(root: Path, slot: Slot, number: int) -> None:
    home = home_of(root, slot, slot.vfs[number])
    _rdma_device(root, home, f"mlx5_v{slot.minor}_{number}", verbs_number(slot, number))


def _functions(root: Path, slot: Slot, record: Any) -> None:
    enabled = record.vfs_enabled
    home = home_of(root, slot, slot.bus)
    for number, bus in list(enumerate(slot.vfs))[enabled:]:
        _forget(root, slot, bus)
        (home / f"virtfn{number}").unlink(missing_ok=True)
    for number in range(enabled):
        if not home_of(root, slot, slot.vfs[number]).is_dir():
            write_function(root, slot, number)
            _function(root, slot, number)


def _forget(root: Path, slot: Slot, bus: str) -> None:
    home = home_of(root, slot, bus)
    if not home.is_dir():
        return
    for verbs in (home / "infiniband_verbs").iterdir():
        (root / "dev/infiniband" / verbs.name).unlink(missing_ok=True)
    remove_device(root, bus)


def _rdma_device(root: Path, home: Path, name: str, verbs: int) -> None:
    """The kernel's RDMA device `name` of the PCI function at `home`, and its node uverbs`verbs`."""
    (home / "infiniband" / name).mkdir(parents=True)
    (home / "infiniband_verbs" / f"uverbs{verbs}").mkdir(parents=True)
    make_node(root, f"/dev/infiniband/uverbs{verbs}", minor=192 + verbs)
