"""Cambricon MLUs: facts, faults and the stand-in library libcndev.so. Codes are those of the CNDEV header."""

from typing import Any

from seatrial.fake_devices.build import StandInLibrary
from seatrial.fake_devices.effects import CARD_FAULTS, links_down
from seatrial.fake_devices.facts import AcceleratorFacts
from seatrial.fake_devices.hardware import FaultContext, Hardware, Links, dashed

CNDEV = StandInLibrary(
    soname="libcndev.so", sources=tuple(f"cambricon/abi/{name}.c" for name in ("cndev", "cndev_links", "cndev_smlu"))
)

NO_DRIVER = 1  # CNDEV return code
XID_EVENT = 1
UNWELL, WELL = 0, 1  # health
RUNNING, BOOT_ERROR, RESET_FAILED = 4, 5, 7  # driver state


class CambriconFacts(AcceleratorFacts, frozen=True, forbid_unknown_fields=True):
    """Facts of MLUs."""

    card: int  # CNDEV's number of the card's name


def _describe(record: Any, facts: CambriconFacts) -> None:
    record.model_code, record.health, record.driver_state = facts.card, WELL, RUNNING
    record.slice_capable = 1


def _critical(fault: FaultContext) -> None:
    fault.record.health = UNWELL
    fault.show(fault.arguments.get("code", 1))
    fault.event(XID_EVENT, fault.record.error_codes[0], severity=3, assertion=1)


def _lost(fault: FaultContext) -> None:
    fault.record.health, fault.record.driver_state = UNWELL, BOOT_ERROR
    fault.show(1)
    fault.event(XID_EVENT, 1, severity=3, assertion=1)


def _reset_needed(fault: FaultContext) -> None:
    fault.record.health, fault.record.driver_state = UNWELL, RESET_FAILED


CAMBRICON = Hardware(
    name="cambricon",
    code=2,
    facts=CambriconFacts,
    pci_driver="cambricon_pci_drv",
    uuid=dashed,
    describe=_describe,
    faults={**CARD_FAULTS, "critical": _critical, "lost": _lost, "link": links_down, "reset_needed": _reset_needed},
    library=CNDEV,
    no_driver_code=NO_DRIVER,
    links=Links("mlulink", group=4),
    minor_is_index=True,
    slicing="smlu",
    slice_codes={"unknown": 14, "full": 9, "busy": 15},
)
