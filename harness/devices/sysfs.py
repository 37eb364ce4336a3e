"""PCI facts from sysfs: bus addresses, NUMA nodes and PCIe roots, for all vendors."""

import re
from pathlib import Path

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)


def read_text(path: Path) -> str | None:
    """A file's content without the newline; None if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def read_int(path: Path, base: int = 10) -> int | None:
    """A file's number; None if it cannot be read or is none."""
    text = read_text(path)
    try:
        return int(text, base) if text else None
    except ValueError:
        return None


def sysfs_bus(bus: str) -> str:
    """A bus address as sysfs spells it: lower case, four digits of domain unless more are needed."""
    domain, rest = bus.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


class Pci:
    """The PCI tree below `root`; `/` for this machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.devices = root / "sys/bus/pci/devices"

    def addresses(self) -> list[str]:
        """All bus addresses, sorted."""
        try:
            return sorted(entry.name for entry in self.devices.iterdir())
        except OSError:
            return []

    def path(self, bus: str) -> Path:
        return self.devices / sysfs_bus(bus)

    def vendor(self, bus: str) -> int | None:
        return read_int(self.path(bus) / "vendor", 16)

    def device_class(self, bus: str) -> int | None:
        return read_int(self.path(bus) / "class", 16)

    def numa(self, bus: str) -> int | None:
        """The NUMA node; None if the kernel reports -1 or nothing."""
        node = read_int(self.path(bus) / "numa_node")
        return node if node is not None and node >= 0 else None

    def pcie_root(self, bus: str) -> str:
        """The root port's name in the device's real path, as `pci0000:15`; empty if there is none."""
        try:
            parts = self.path(bus).resolve(strict=True).parts
        except OSError:
            return ""
        return next((part for part in parts if _ROOT.fullmatch(part)), "")

    def is_virtual_function(self, bus: str) -> bool:
        return (self.path(bus) / "physfn").exists()
