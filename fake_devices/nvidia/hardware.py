"""NVIDIA GPUs: facts, faults and the stand-in library libnvidia-ml.so.1.

Codes are those of the NVML API reference and of NVIDIA's XID catalogue.
"""

from typing import Any

from seatrial.fake_devices.build import StandInLibrary
from seatrial.fake_devices.effects import CARD_FAULTS, count_memory_errors, links_down, overheat
from seatrial.fake_devices.facts import SlicedFacts
from seatrial.fake_devices.hardware import FaultContext, Hardware, Links, dashed

NVML = StandInLibrary(
    soname="libnvidia-ml.so.1",
    sources=tuple(f"nvidia/abi/{name}.c" for name in ("nvml", "nvml_topology", "nvml_events", "nvml_mig")),
    aliases=("libnvidia-ml.so",),
)

GPU_IS_LOST, RESET_REQUIRED, DRIVER_NOT_LOADED = 15, 16, 9  # NVML return codes
BRAND_NVIDIA = 14  # of cards for data centres
XID_EVENT, ECC_DOUBLE_EVENT, RECOVERY_EVENT = 0x8, 0x2, 0x8000
ACTION_RESET, ACTION_REBOOT = 1, 2
HW_THERMAL, SW_THERMAL = 0x40, 0x20
IDLE_THROTTLE = 1  # the clock event reason "nothing runs"


class NvidiaFacts(SlicedFacts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts of NVIDIA GPUs."""

    cuda: int  # as nvmlSystemGetCudaDriverVersion gives it: 12080 = 12.8
    capability: str  # compute capability
    ecc: bool


def _describe(record: Any, facts: NvidiaFacts) -> None:
    major, minor = facts.capability.split(".")
    record.capability_major, record.capability_minor = int(major), int(minor)
    record.ecc_mode, record.throttle = int(facts.ecc), IDLE_THROTTLE
    record.slice_capable = int(bool(facts.slices))


def _app_error(fault: FaultContext) -> None:
    fault.event(XID_EVENT, fault.arguments.get("xid", 31), severity=1)


def _critical(fault: FaultContext) -> None:
    fault.show(fault.arguments.get("xid", 95))
    fault.record.recovery_action = fault.arguments.get("action", ACTION_RESET)
    fault.event(XID_EVENT, fault.record.error_codes[0], severity=3)
    fault.event(RECOVERY_EVENT, fault.record.recovery_action, severity=2)


def _ecc(fault: FaultContext) -> None:
    count_memory_errors(fault)
    uncorrected = fault.arguments.get("uncorrected", 1)
    if uncorrected:
        fault.record.remapped[1] += uncorrected
        fault.record.remapped[2] = 1
        fault.show(48)
        fault.record.recovery_action = ACTION_RESET
        fault.event(ECC_DOUBLE_EVENT, 0, severity=2)
        fault.event(XID_EVENT, 48, severity=3)


def _lost(fault: FaultContext) -> None:
    fault.record.code, fault.record.recovery_action = GPU_IS_LOST, ACTION_REBOOT
    fault.show(79)
    fault.event(XID_EVENT, 79, severity=3)


def _throttle(fault: FaultContext) -> None:
    overheat(fault)
    fault.record.throttle = fault.record.throttle | HW_THERMAL | SW_THERMAL


def _link(fault: FaultContext) -> None:
    links_down(fault)
    fault.show(74)
    fault.event(XID_EVENT, 74, severity=3)


def _reset_needed(fault: FaultContext) -> None:
    fault.record.code, fault.record.recovery_action = RESET_REQUIRED, ACTION_RESET
    fault.show(154)
    fault.event(XID_EVENT, 154, severity=3)


NVIDIA = Hardware(
    name="nvidia",
    code=0,
    facts=NvidiaFacts,
    pci_driver="nvidia",
    uuid=lambda digest: f"GPU-{dashed(digest)}",
    describe=_describe,
    faults={
        **CARD_FAULTS,
        "app_error": _app_error,
        "critical": _critical,
        "ecc": _ecc,
        "lost": _lost,
        "throttle": _throttle,
        "link": _link,
        "reset_needed": _reset_needed,
    },
    library=NVML,
    python_library=True,
    no_driver_code=DRIVER_NOT_LOADED,
    links=Links("nvlink", switched=True),
    runtime=lambda facts: facts.cuda,
    slicing="mig",
)
