"""Mellanox NICs: faults as sysfs shows them. No library: NICs are read from /sys and over netlink."""

from typing import Any

from seatrial.fake_devices.effects import remove, slow
from seatrial.fake_devices.facts import NicFacts
from seatrial.fake_devices.hardware import FaultContext, Hardware, dashed

PORT_DOWN, PHYS_POLLING, PHYS_DISABLED = 1, 2, 3  # the kernel's port states


def _describe(record: Any, facts: NicFacts) -> None:
    """A NIC's facts are written by the table, since every vendor's NICs have them."""


def _link(fault: FaultContext) -> None:
    fault.record.port_state = PORT_DOWN
    fault.record.port_phys_state = PHYS_DISABLED if fault.arguments.get("administrative") else PHYS_POLLING


def _shrink(fault: FaultContext) -> None:
    """Leave `left` virtual functions (default 0)."""
    fault.record.vfs_enabled = min(fault.record.vfs_enabled, fault.arguments.get("left", 0))


MELLANOX = Hardware(
    name="mellanox",
    code=3,
    facts=NicFacts,
    pci_driver="mlx5_core",
    uuid=dashed,
    describe=_describe,
    faults={"lost": remove, "remove": remove, "link": _link, "slow": slow, "shrink": _shrink},
)
