"""Fault effects that are the same for several vendors; the vendors' tables of faults are composed of them."""

from collections.abc import Mapping

from seatrial.fake_devices.hardware import FaultContext, FaultEffect
from seatrial.fake_devices.layout import REMOVED


def count_memory_errors(fault: FaultContext) -> None:
    """Raise the ECC counters: `corrected` (default 0) and `uncorrected` (default 1)."""
    record = fault.record
    corrected, uncorrected = fault.arguments.get("corrected", 0), fault.arguments.get("uncorrected", 1)
    record.ecc_corrected += corrected
    record.ecc_corrected_ever += corrected
    record.ecc_uncorrected += uncorrected
    record.ecc_uncorrected_ever += uncorrected


def remove(fault: FaultContext) -> None:
    """Take the device out of the machine: library, sysfs and /dev no longer show it."""
    fault.record.present = REMOVED


def overheat(fault: FaultContext) -> None:
    """Set the temperature to `celsius`, or to one degree above the slowdown temperature."""
    record = fault.record
    record.temperature = fault.arguments.get("celsius", record.slowdown_temperature + 1)


def links_down(fault: FaultContext) -> None:
    """Take down the link at `port`, or all links of the device."""
    fault.links_down(fault.arguments.get("port"))


def leak(fault: FaultContext) -> None:
    """Raise memory in use by `mebibytes` (default 1024) without a process that uses it."""
    record = fault.record
    leaked = fault.arguments.get("mebibytes", 1024) << 20
    record.memory_used = min(record.memory_total, record.memory_used + leaked)


def slow(fault: FaultContext) -> None:
    """Delay every call on the device by `milliseconds` (default 1000)."""
    fault.record.delay_ms = fault.arguments.get("milliseconds", 1000)


# Of all cards. Vendors whose cards are linked add `link`.
CARD_FAULTS: Mapping[str, FaultEffect] = {
    "ecc": count_memory_errors,
    "remove": remove,
    "throttle": overheat,
    "leak": leak,
    "slow": slow,
}
