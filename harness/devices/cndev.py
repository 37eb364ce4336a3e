"""CNDEV's structures and codes, as the vendor's header has them (LP64). Sizes are checked by tests.

Nearly every structure starts with a version that the caller must set to 6.
"""

from ctypes import Structure, c_int, c_int64, c_ubyte, c_uint, c_uint16, c_uint64
from typing import TypeVar

from seatrial.harness.devices.provider import WELL, FailureKind, Health

LIBRARIES = ("libcndev.so", "/usr/lib/x86_64-linux-gnu/libcndev.so", "/usr/lib64/libcndev.so")
VERSION = 6
XID = 1
SPACE_TOO_SMALL = 9
DRIVER_RUNNING = 4
DRIVER_STATES = (
    "early initialisation",
    "bring-up",
    "booting",
    "late initialisation",
    "running",
    "boot error",
    "resetting",
    "reset failed",
)

KINDS = {
    1: FailureKind.ABSENT,
    2: FailureKind.BAD_LAYOUT,
    3: FailureKind.BAD_LAYOUT,
    6: FailureKind.LOST,
    9: FailureKind.BUSY,
    10: FailureKind.UNSUPPORTED,
    12: FailureKind.ABSENT,
    13: FailureKind.DENIED,
    14: FailureKind.ABSENT,
    15: FailureKind.BUSY,
    17: FailureKind.TIMEOUT,
    18: FailureKind.LOST,
}


class CardInfo(Structure):
    """`cndevCardInfo_t`: the number of cards."""

    _fields_ = [("version", c_int), ("number", c_uint)]


class Number(Structure):
    """Card name, NUMA node, compute mode, sMLU mode, topology relationship: a version and a value."""

    _fields_ = [("version", c_int), ("value", c_int)]


class Uuid(Structure):
    """`cndevUUID_t`."""

    _fields_ = [("version", c_int), ("uuid", c_ubyte * 37), ("pad", c_ubyte * 7), ("ncs", c_uint64)]


class CardSN(Structure):
    """`cndevCardSN_t`: serial numbers of card and board."""

    _fields_ = [("version", c_int), ("sn", c_int64), ("motherboard", c_int64)]


class MemoryInfoV2(Structure):
    """MiB; no version."""

    _fields_ = [
        ("total", c_int64),
        ("used", c_int64),
        ("reserved", c_int64),
        ("virtual_total", c_int64),
        ("virtual_used", c_int64),
        ("global_memory", c_uint64),
        ("spare", c_uint64 * 16),
    ]


class VersionInfo(Structure):
    """`cndevVersionInfo_t`: three numbers each of MCU and driver."""

    _fields_ = [("version", c_int), ("mcu", c_uint * 3), ("driver", c_uint * 3)]


class CardHealthState(Structure):
    """`cndevCardHealthState_t`."""

    _fields_ = [("version", c_int), ("health", c_int), ("device_state", c_int), ("driver_state", c_int)]


class UtilizationInfo(Structure):
    """`cndevUtilizationInfo_t`, in percent: the card's average, and its cores."""

    _fields_ = [("version", c_int), ("average", c_int), ("core", c_int * 80)]


class PCIeInfoV2(Structure):
    """`cndevPCIeInfoV2_t`: PCI IDs and address."""

    _fields_ = [
        ("subsystem", c_uint),
        ("device", c_uint),
        ("vendor", c_uint16),
        ("subvendor", c_uint16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device_id", c_uint),
        ("function", c_uint),
        ("module", c_uint16),
        ("slot", c_uint16),
        ("spare", c_uint * 8),
    ]


class MLULinkStatusV2(Structure):
    """`cndevMLULinkStatusV2_t`: the state of one port."""

    _fields_ = [("version", c_int), ("mac_state", c_int), ("rest", c_uint * 9)]


class MLULinkRemoteInfo(Structure):
    """`cndevMLULinkRemoteInfo_t`: the card at the other end of a port."""

    _fields_ = [("version", c_int), ("head", c_ubyte * 44), ("uuid", c_ubyte * 37), ("tail", c_ubyte * 291)]


class ProcessInfo(Structure):
    """KiB."""

    _fields_ = [("version", c_int), ("pid", c_uint), ("physical", c_uint64), ("virtual_used", c_uint64)]


class TemperatureInfo(Structure):
    """`cndevTemperatureInfo_t`, in °C."""

    _fields_ = [("version", c_int), ("board", c_int), ("rest", c_int * 35)]


class SMluSet(Structure):
    """Quota in percent of the cores, memory in bytes."""

    _fields_ = [("version", c_int), ("quota", c_uint), ("memory", c_uint64)]


class SMluInfo(Structure):
    """`cndevSMluInfo_t`: one sMLU instance, a share of a card."""

    _fields_ = [
        ("version", c_int),
        ("profile", c_int),
        ("instance", c_int),
        ("uuid", c_ubyte * 37),
        ("pad", c_ubyte * 3),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("function", c_uint),
        ("profile_name", c_ubyte * 100),
        ("instance_name", c_ubyte * 100),
        ("node_name", c_ubyte * 100),
        ("quota", c_uint * 2),
        ("memory", c_uint64 * 2),
        ("tail", c_ubyte * 512),
    ]


class EventData(Structure):
    """`cndevEventData_t`: one event of a card."""

    _fields_ = [
        ("version", c_int),
        ("pad", c_uint),
        ("type", c_uint64),
        ("device", c_int),
        ("instance", c_uint),
        ("data", c_uint64),
        ("time", c_uint64),
        ("tail", c_ubyte * 64),
    ]


SIZES: dict[type[Structure], int] = {
    CardInfo: 8,
    Number: 8,
    Uuid: 56,
    CardSN: 24,
    MemoryInfoV2: 176,
    VersionInfo: 28,
    CardHealthState: 16,
    UtilizationInfo: 328,
    PCIeInfoV2: 64,
    MLULinkStatusV2: 44,
    MLULinkRemoteInfo: 376,
    ProcessInfo: 24,
    TemperatureInfo: 148,
    SMluSet: 16,
    SMluInfo: 904,
    EventData: 104,
}

S = TypeVar("S", bound=Structure)


def versioned(kind: type[S]) -> S:
    """A structure with the version that callers must set."""
    return kind(version=VERSION)


def text(field: object) -> str:
    """The text in a byte array."""
    return bytes(field).split(b"\0")[0].decode()  # type: ignore[call-overload]


def cambricon_health(health: int, driver_state: int) -> Health:
    """Health of an MLU: `health` 1 is healthy, 0 is not; the driver must be in the state running."""
    if driver_state != DRIVER_RUNNING:
        known = driver_state < len(DRIVER_STATES)
        state = DRIVER_STATES[driver_state] if known else str(driver_state)
        return Health(ok=False, code=f"DriverState{driver_state}", message=f"driver is not running: {state}")
    return WELL if health else Health(ok=False, code="CardUnhealthy", message="card health state is bad")


def cambricon_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one MLU; the second is for memory shared between processes."""
    return (f"/dev/cambricon_dev{minor}", f"/dev/cambricon_ipcm{minor}")
