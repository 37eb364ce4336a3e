"""The PCI tree of a machine in a folder, as the kernel shows it under /sys, and the device nodes under /dev.

The tree has only the files and links that providers read (`harness/devices/sysfs.py`, `harness/devices/rdma.py`), and
/proc only the numbers of MIG devices' device nodes, as NVIDIA's driver fixes them.
Directories and symbolic links are of the same kind as the kernel's, because readers distinguish them. The driver's link
points to a folder that is not written: only its name is read. Device nodes are character devices where this process may
make them (mknod as root), else plain files.
"""

import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

from seatrial.fake_devices.machine import Machine, Slot

MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
_FIRST_CAP, _INSTANCES, _COMPUTE_INSTANCES = 3, 15, 8  # of a card, and of a GPU instance
_NODE_MAJOR = 195  # NVIDIA's; no program opens these nodes, so any number works


def write_tree(root: Path, machine: Machine, *, vendors: Collection[str] | None = None) -> None:
    """Write the PCI devices of `machine` below `root`/sys, and an empty `root`/dev.

    Args:
        root: The folder that stands for `/`.
        machine: The machine whose devices are written.
        vendors: Only devices of these vendors; None writes all of them.
    """
    for slot in machine.slots:
        if vendors is None or slot.model.vendor in vendors:
            write_device(root, slot)
    (root / "dev").mkdir(parents=True, exist_ok=True)
    divisible = [slot.minor for slot in machine.slots if slot.model.hardware.slicing == "mig"]
    if divisible and (vendors is None or "nvidia" in vendors):
        (root / MIG_MINORS).parent.mkdir(parents=True, exist_ok=True)
        (root / MIG_MINORS).write_text("".join(map(_caps, divisible)))


def _caps(minor: int) -> str:
    """The lines of one card: a node for each GPU instance that it may have, and for each compute instance of that."""
    lines = []
    for instance in range(_INSTANCES):
        first = _FIRST_CAP + (minor * _INSTANCES + instance) * (_COMPUTE_INSTANCES + 1)
        own = f"gpu{minor}/gi{instance}"
        lines.append(f"{own}/access {first}\n")
        lines += [f"{own}/ci{number}/access {first + 1 + number}\n" for number in range(_COMPUTE_INSTANCES)]
    return "".join(lines)


def write_device(root: Path, slot: Slot) -> None:
    """Write one device, with its virtual functions if it is a NIC."""
    _device(root, slot, slot.bus)
    for number in range(len(slot.vfs)):
        write_function(root, slot, number)


def write_function(root: Path, slot: Slot, number: int) -> None:
    """Write a NIC's virtual function beside the NIC."""
    home = home_of(root, slot, slot.bus)
    function = _device(root, slot, slot.vfs[number])
    link(home, function / "physfn")
    link(function, home / f"virtfn{number}")


def remove_device(root: Path, bus: str) -> None:
    """Remove a device from the tree, as the kernel does after a hot unplug."""
    listed = root / "sys/bus/pci/devices" / bus
    if not listed.is_symlink():
        return
    home = listed.resolve()
    listed.unlink()
    shutil.rmtree(home)


def home_of(root: Path, slot: Slot, bus: str) -> Path:
    """Return the directory of a device: below its root port, and below the switch if there is one."""
    above = root / "sys/devices" / slot.root
    return (above / slot.switch if slot.switch else above) / bus


def write_value(path: Path, value: object) -> None:
    """Write one sysfs file: the value and a newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def make_node(root: Path, path: str, *, minor: int) -> bool:
    """Make a device node at `root` + `path`; return whether it is a real character device."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(_NODE_MAJOR, minor))
    except PermissionError:
        target.touch()
        return False
    return True


def link(target: Path, path: Path) -> None:
    """Make a relative symbolic link at `path` to `target`, as in sysfs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def _device(root: Path, slot: Slot, bus: str) -> Path:
    home = home_of(root, slot, bus)
    home.mkdir(parents=True)
    write_value(home / "class", f"0x{slot.model.facts.pci_class}")
    write_value(home / "numa_node", slot.numa)
    link(home, root / "sys/bus/pci/devices" / bus)
    link(root / "sys/bus/pci/drivers" / slot.model.hardware.pci_driver, home / "driver")
    return home
