"""The PCI tree of a machine in a folder, as the kernel shows it under /sys, and the device nodes under /dev.

Links and directories are the same as in sysfs, since readers depend on them. Device nodes are character devices if this
process may make them (mknod as root), otherwise plain files with the same names.
"""

import os
import shutil
import stat
from pathlib import Path

from fake_devices.facts import NicFacts
from fake_devices.machine import Machine, Slot

_NODE_MAJOR = 195  # NVIDIA's; no program opens these nodes, so any number works


def write_tree(root: Path, machine: Machine) -> None:
    """Write all PCI devices of `machine` below `root`/sys, and an empty `root`/dev."""
    for slot in machine.slots:
        write_device(root, slot)
    (root / "dev").mkdir(parents=True, exist_ok=True)


def write_device(root: Path, slot: Slot) -> None:
    """Write one device, and the virtual functions of a NIC."""
    facts = slot.model.facts
    home = _device(root, slot, slot.bus, facts.pci)
    if isinstance(facts, NicFacts):
        write_value(home / "sriov_totalvfs", facts.vfs)
        write_value(home / "sriov_numvfs", len(slot.vfs))
        for number in range(len(slot.vfs)):
            write_function(root, slot, number)


def write_function(root: Path, slot: Slot, number: int) -> None:
    """Write one virtual function of a NIC."""
    facts = slot.model.facts
    assert isinstance(facts, NicFacts)  # noqa: S101 nothing else has functions
    home = home_of(root, slot, slot.bus)
    function = _device(root, slot, slot.vfs[number], facts.vf_pci)
    link(home, function / "physfn")
    link(function, home / f"virtfn{number}")


def remove_device(root: Path, bus: str) -> None:
    """Remove a device from the tree, as the kernel does after a surprise removal."""
    listed = root / "sys/bus/pci/devices" / bus
    if not listed.is_symlink():
        return
    home = listed.resolve()
    for link in (listed, *(root / "sys/bus/pci/drivers").glob(f"*/{bus}")):
        link.unlink(missing_ok=True)
    shutil.rmtree(home)


def home_of(root: Path, slot: Slot, bus: str) -> Path:
    """The real directory of a device: below its root port, and below the switch if there is one."""
    above = root / "sys/devices" / slot.root
    return (above / slot.switch if slot.switch else above) / bus


def write_value(path: Path, value: object) -> None:
    """Write one sysfs file: the value and a newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def make_node(root: Path, path: str, *, minor: int) -> bool:
    """Make a device node at `root` + `path`. Returns whether it is a character device."""
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
    """Make a relative link at `path` to `target`, as in sysfs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def _device(root: Path, slot: Slot, bus: str, pci: str) -> Path:
    home = home_of(root, slot, bus)
    pci_class = slot.model.facts.pci_class
    home.mkdir(parents=True)
    vendor, device = pci.split(":")
    own_vendor, own_device = slot.model.facts.subsystem.split(":")
    alias = (
        f"pci:v{int(vendor, 16):08X}d{int(device, 16):08X}sv{int(own_vendor, 16):08X}sd{int(own_device, 16):08X}"
        f"bc{pci_class[:2].upper()}sc{pci_class[2:4].upper()}i{pci_class[4:].upper()}"
    )
    values = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{own_vendor}",
        "subsystem_device": f"0x{own_device}",
        "class": f"0x{pci_class}",
        "modalias": alias,
        "numa_node": slot.numa,
    }
    for name, value in values.items():
        write_value(home / name, value)
    link(home, root / "sys/bus/pci/devices" / bus)
    driver = root / "sys/bus/pci/drivers" / slot.model.hardware.pci_driver
    driver.mkdir(parents=True, exist_ok=True)
    link(home, driver / bus)
    link(driver, home / "driver")
    return home
