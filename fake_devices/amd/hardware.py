"""AMD Instinct GPUs: facts, faults and the stand-in library librocm_smi64.so.

Codes are those of rocm_smi.h (rsmi_status_t, rsmi_gpu_block_t, rsmi_evt_notification_type_t). What the library answers
for a GPU that left the bus is inferred: it reads sysfs, and reads of a lost device fail.
"""

from typing import Any

from seatrial.fake_devices.build import StandInLibrary
from seatrial.fake_devices.effects import CARD_FAULTS, count_memory_errors, links_down, overheat
from seatrial.fake_devices.facts import AcceleratorFacts
from seatrial.fake_devices.hardware import FaultContext, Hardware, Links

ROCM_SMI = StandInLibrary(
    soname="librocm_smi64.so.7",
    sources=("amd/abi/rocm_smi.c", "amd/abi/rocm_smi_links.c"),
    aliases=("librocm_smi64.so",),
)

FILE_ERROR, INIT_ERROR, BUSY = 3, 8, 16  # rsmi_status_t
VM_FAULT, THERMAL_THROTTLE, PRE_RESET, POST_RESET, RING_HANG = 1, 2, 3, 4, 5  # rsmi_evt_notification_type_t
BLOCK_UMC, BLOCK_GFX, BLOCK_XGMI = 0x1, 0x4, 0x80  # rsmi_gpu_block_t


class AmdFacts(AcceleratorFacts, frozen=True, forbid_unknown_fields=True):
    """Facts of AMD GPUs. `library` is the version of ROCm SMI: three numbers."""

    ecc: bool


def _describe(record: Any, facts: AmdFacts) -> None:
    record.ecc_mode, record.memory_used = int(facts.ecc), facts.reserved


def _app_error(fault: FaultContext) -> None:
    fault.event(VM_FAULT, 0, severity=1)


def _critical(fault: FaultContext) -> None:
    """An uncorrectable RAS error in the block `code` (default GFX), after which the driver resets the GPU."""
    fault.show(fault.arguments.get("code", BLOCK_GFX))
    fault.event(PRE_RESET, fault.record.error_codes[0], severity=3)


def _ecc(fault: FaultContext) -> None:
    count_memory_errors(fault)
    if fault.arguments.get("uncorrected", 1):
        fault.show(BLOCK_UMC)


def _lost(fault: FaultContext) -> None:
    fault.record.code = FILE_ERROR


def _throttle(fault: FaultContext) -> None:
    overheat(fault)
    fault.event(THERMAL_THROTTLE, 0, severity=2)


def _link(fault: FaultContext) -> None:
    links_down(fault)
    fault.show(BLOCK_XGMI)


def _reset_needed(fault: FaultContext) -> None:
    fault.record.code = BUSY
    fault.event(RING_HANG, 0, severity=3)


AMD = Hardware(
    name="amd",
    code=4,
    facts=AmdFacts,
    pci_driver="amdgpu",
    uuid=lambda digest: f"GPU-{digest[:8].hex()}",
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
    library=ROCM_SMI,
    no_driver_code=INIT_ERROR,
    links=Links("xgmi", group=8),
)
