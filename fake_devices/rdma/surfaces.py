"""What the kernel shows of RDMA NICs beside the PCI tree: class infiniband, verbs and net devices, nodes in /dev."""

from pathlib import Path
from typing import Any

from fake_devices.facts import NicFacts
from fake_devices.machine import Slot
from fake_devices.pci import home_of, link, make_node, remove_device, write_device, write_function, write_value
from fake_devices.table import DeviceTable

FIRST_VF_VERBS, VERBS_PER_NIC = 64, 16
STATES = {1: "1: DOWN", 2: "2: INIT", 3: "3: ARMED", 4: "4: ACTIVE"}
PHYS_STATES = {2: "2: Polling", 3: "3: Disabled", 5: "5: LinkUp"}
RDMA_CM = "/dev/infiniband/rdma_cm"


def write_rdma(root: Path, table: DeviceTable) -> bool:
    """Write all NICs of a machine into its PCI tree. Returns whether the device nodes are character devices."""
    write_value(root / "sys/class/infiniband_verbs/abi_version", 6)
    real = make_node(root, RDMA_CM, minor=58)
    for slot, record in table:
        if isinstance(slot.model.facts, NicFacts):
            _nic(root, slot, record)
            for number in range(len(slot.vfs)):
                _function(root, slot, record, number)
    sync_rdma(root, table)
    return real


def sync_rdma(root: Path, table: DeviceTable) -> None:
    """Update the files from the table: port states, virtual functions, removed devices."""
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
                _function(root, slot, record, number)
        port = home / "infiniband" / record.ibdev.decode() / "ports/1"
        write_value(port / "state", STATES.get(record.port_state, f"{record.port_state}: UNKNOWN"))
        write_value(port / "phys_state", PHYS_STATES.get(record.port_phys_state, f"{record.port_phys_state}: UNKNOWN"))
        carrier = home / "net" / record.netdev.decode()
        write_value(carrier / "carrier", int(record.port_state > 1))
        write_value(carrier / "operstate", "up" if record.port_state > 1 else "down")
        _functions(root, slot, record)


def verbs_number(slot: Slot, function: int) -> int:
    """N of /dev/infiniband/uverbsN of a virtual function."""
    return FIRST_VF_VERBS + VERBS_PER_NIC * slot.minor + function


def _nic(root: Path, slot: Slot, record: Any) -> None:
    names = record.ibdev.decode(), record.netdev.decode()
    _device(root, slot, home_of(root, slot, slot.bus), names=names, number=slot.minor, guid=record.guid)
    make_node(root, f"/dev/infiniband/uverbs{slot.minor}", minor=192 + slot.minor)


def _function(root: Path, slot: Slot, record: Any, number: int) -> None:
    names = f"mlx5_v{slot.minor}_{number}", f"ib{slot.minor}v{number}"
    verbs = verbs_number(slot, number)
    _device(root, slot, home_of(root, slot, slot.vfs[number]), names=names, number=verbs, guid=record.guid)
    make_node(root, f"/dev/infiniband/uverbs{verbs}", minor=192 + verbs)


def _functions(root: Path, slot: Slot, record: Any) -> None:
    enabled = record.vfs_enabled
    home = home_of(root, slot, slot.bus)
    write_value(home / "sriov_numvfs", enabled)
    for number, bus in list(enumerate(slot.vfs))[enabled:]:
        _forget(root, slot, bus)
        (home / f"virtfn{number}").unlink(missing_ok=True)
    for number in range(enabled):
        if not home_of(root, slot, slot.vfs[number]).is_dir():
            write_function(root, slot, number)
            _function(root, slot, record, number)


def _forget(root: Path, slot: Slot, bus: str) -> None:
    home = home_of(root, slot, bus)
    if not home.is_dir():
        return
    for kind in ("infiniband", "infiniband_verbs"):
        for item in (home / kind).iterdir():
            (root / "sys/class" / kind / item.name).unlink(missing_ok=True)
            if kind == "infiniband_verbs":
                (root / "dev/infiniband" / item.name).unlink(missing_ok=True)
    remove_device(root, bus)


def _device(root: Path, slot: Slot, home: Path, *, names: tuple[str, str], number: int, guid: int) -> None:
    facts = slot.model.facts
    assert isinstance(facts, NicFacts)  # noqa: S101 the caller picked NICs
    ibdev, netdev = names
    own = home / "infiniband" / ibdev
    words = ":".join(f"{guid >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
    values = {
        "node_type": "1: CA",
        "node_guid": words,
        "sys_image_guid": words,
        "node_desc": f"{ibdev} HCA",
        "fw_ver": facts.firmware,
        "hw_rev": "0",
        "hca_type": facts.name,
        "board_id": facts.board,
        "ports/1/state": "4: ACTIVE",
        "ports/1/phys_state": "5: LinkUp",
        "ports/1/rate": f"{facts.rate} Gb/sec ({facts.speed})",
        "ports/1/lid": f"{slot.minor + 1:#x}",
        "ports/1/sm_lid": "0x1",
        "ports/1/lid_mask_count": "0",
        "ports/1/cap_mask": "0xa751e848",
        "ports/1/link_layer": facts.link_layer,
        "ports/1/gids/0": f"fe80:0000:0000:0000:{words}",
        "ports/1/gid_attrs/ndevs/0": netdev,
        "ports/1/gid_attrs/types/0": "IB/RoCE v1" if facts.link_layer == "InfiniBand" else "RoCE v2",
        "ports/1/pkeys/0": "0xffff",
    }
    for name, value in values.items():
        write_value(own / name, value)
    link(home, own / "device")
    link(own, root / "sys/class/infiniband" / ibdev)
    verbs = home / "infiniband_verbs" / f"uverbs{number}"
    write_value(verbs / "ibdev", ibdev)
    write_value(verbs / "dev", f"231:{192 + number}")
    write_value(verbs / "abi_version", 1)
    link(home, verbs / "device")
    link(verbs, root / "sys/class/infiniband_verbs" / f"uverbs{number}")
    address = ":".join(f"{byte:02x}" for byte in guid.to_bytes(8))
    write_value(home / "net" / netdev / "address", f"00:00:10:49:fe:80:00:00:00:00:00:00:{address}")
