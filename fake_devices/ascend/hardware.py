"""Huawei Ascend NPUs: facts, faults and the stand-in library libdcmi.so.

Codes are those of the DCMI header and of Ascend's list of fault codes.
"""

from typing import Any

from seatrial.fake_devices.build import StandInLibrary
from seatrial.fake_devices.effects import CARD_FAULTS, links_down
from seatrial.fake_devices.facts import SlicedFacts
from seatrial.fake_devices.hardware import FaultContext, Hardware, Links

DCMI = StandInLibrary(
    soname="libdcmi.so", sources=tuple(f"ascend/abi/{name}.c" for name in ("dcmi", "dcmi_faults", "dcmi_vnpu"))
)

NOT_READY, BUSY_RESET, NO_DRIVER = -8012, -8017, -8005  # DCMI return codes
FAULT_EVENT = 0x8
CARD_DROP, LINK_DOWN = 0x40F84E00, 0x81078603
MAJOR, CRITICAL, GONE = 2, 3, 0xFFFFFFFF  # health


class AscendFacts(SlicedFacts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts of Ascend NPUs."""

    chip: str  # "910B3"; `name` is what chip_info prints
    cpus: int  # AI CPUs
    label: str  # the model as koord-device-daemon writes it


def _describe(record: Any, facts: AscendFacts) -> None:
    record.cpus, record.memory_used = facts.cpus, facts.reserved
    record.slice_capable = int(bool(facts.slices))


def _critical(fault: FaultContext) -> None:
    fault.record.health = fault.arguments.get("health", CRITICAL)
    fault.show(fault.arguments.get("code", 0x80E01801))
    fault.event(FAULT_EVENT, fault.record.error_codes[0], severity=3, assertion=1)


def _lost(fault: FaultContext) -> None:
    fault.record.code, fault.record.health = NOT_READY, GONE
    fault.show(CARD_DROP)
    fault.event(FAULT_EVENT, CARD_DROP, severity=3, assertion=1)


def _link(fault: FaultContext) -> None:
    links_down(fault)
    fault.record.health = MAJOR
    fault.show(LINK_DOWN)
    fault.event(FAULT_EVENT, LINK_DOWN, severity=2, assertion=1)


def _reset_needed(fault: FaultContext) -> None:
    fault.record.code, fault.record.health = BUSY_RESET, CRITICAL


def _uuid(digest: bytes) -> str:
    """The five words of a VDIE id."""
    return "-".join(digest[at : at + 4].hex().upper() for at in range(0, 20, 4))


HUAWEI = Hardware(
    name="huawei",
    code=1,
    facts=AscendFacts,
    pci_driver="devdrv_device_driver",
    uuid=_uuid,
    describe=_describe,
    faults={**CARD_FAULTS, "critical": _critical, "lost": _lost, "link": _link, "reset_needed": _reset_needed},
    library=DCMI,
    no_driver_code=NO_DRIVER,
    links=Links("hccs", group=4),
    chips_on_card=True,
    announces_recovery=True,
    slicing="vnpu",
    slice_codes={"unknown": -8001, "full": -8022, "busy": -8020},
)
