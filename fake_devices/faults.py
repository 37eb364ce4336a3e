"""Faults as changes of the table: what each verb moves on each vendor's devices, and how it is taken back.

A verb moves together what a real machine would move together. A lost GPU answers no call but stays in sysfs and /dev; a
removed device leaves both. Whoever reads sees the change in the next call; events come in order behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fake_devices.layout import REMOVED, DeviceRecord
from fake_devices.models import unknown
from fake_devices.table import DeviceTable

Undo = Callable[[float], None]  # given the time

GPU_IS_LOST, RESET_REQUIRED = 15, 16
DCMI_NOT_READY, DCMI_BUSY_RESET = -8012, -8017
XID_EVENT, ECC_DOUBLE_EVENT, RECOVERY_EVENT = 0x8, 0x2, 0x8000
ACTION_RESET, ACTION_REBOOT = 1, 2
CNDEV_XID_EVENT = 1
CARD_DROP, LINK_DOWN = 0x40F84E00, 0x81078603
HW_THERMAL, SW_THERMAL = 0x40, 0x20
PORT_DOWN, PHYS_POLLING, PHYS_DISABLED = 1, 2, 3
DCMI_MAJOR, DCMI_CRITICAL = 2, 3
CNDEV_BOOT_ERROR, CNDEV_RESET_FAILED = 5, 7

_APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)
_CRITICAL_XIDS = (48, 62, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143)


class FaultError(ValueError):
    """A fault names a verb or argument that the device cannot have."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A device to which something happens: its record is open for writing, `now` is in seconds since 1970."""

    table: DeviceTable
    at: int
    record: Any
    arguments: Mapping[str, int]
    now: float

    @property
    def vendor(self) -> str:
        return self.table.machine.slots[self.at].model.vendor

    def event(self, type_: int, code: int, severity: int, assertion: int = 2) -> None:
        self.table.event(self.at, type_=type_, code=code, now=self.now, severity=severity, assertion=assertion)

    def fault(self, code: int) -> None:
        """What the device shows as its present fault."""
        self.record.error_count, self.record.error_codes[0] = 1, code


@dataclass(frozen=True, slots=True)
class Verb:
    """`vendors`: whose devices can have it; `arguments`: what else an entry may say."""

    vendors: frozenset[str]
    arguments: frozenset[str]
    apply: Callable[[Scene], None]


def check(vendor: str, verb: str, arguments: Mapping[str, Any]) -> None:
    """Whether a device of that vendor can have such a fault.

    Raises:
        FaultError: it cannot; the message says what it can.
    """
    known = VERBS.get(verb)
    if known is None:
        raise FaultError(unknown("fault verb", verb, VERBS).replace(" in the catalogue", ""))
    if vendor not in known.vendors:
        raise FaultError(f"verb {verb!r}: expected a device of {', '.join(sorted(known.vendors))}, found {vendor}")
    for name in arguments:
        if name not in known.arguments:
            allowed = ", ".join(sorted(known.arguments)) or "none"
            raise FaultError(f"verb {verb!r}: expected the arguments {allowed}, found {name!r}")
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise FaultError(f"verb {verb!r}: {name}: expected a whole number, found {value!r}")
    xid = arguments.get("xid")
    if xid is not None and verb == "app_error" and xid not in _APPLICATION_XIDS:
        raise FaultError(
            f"verb 'app_error': xid: expected one of {_APPLICATION_XIDS}, found {xid}; see verb 'critical'"
        )
    if xid is not None and verb == "critical" and xid in _APPLICATION_XIDS:
        raise FaultError(f"verb 'critical': xid: {xid} is the application's fault; see verb 'app_error'")


def apply(table: DeviceTable, position: int, verb: str, arguments: Mapping[str, Any], now: float) -> Undo:
    """Let it happen to the device at `position` (seconds since 1970: `now`); returns how to take it back.

    Raises:
        FaultError: the device cannot have it.
    """
    vendor = table.machine.slots[position].model.vendor
    check(vendor, verb, arguments)
    record = table.devices[position]
    before = DeviceRecord.from_buffer_copy(record)
    ports = {number: one.up for number, one in enumerate(table.links) if one.device == position}
    with table.writing(record):
        VERBS[verb].apply(Scene(table, position, record, arguments, now))
    overlay = _Overlay(_values(before, record), {at: up for at, up in ports.items() if table.links[at].up != up})
    layers = table.overlays.setdefault(position, [])
    layers.append(overlay)
    code = record.error_codes[0] if "error_codes" in overlay.fields else 0

    def undo(later: float) -> None:
        above = layers[layers.index(overlay) + 1 :]
        layers.remove(overlay)
        with table.writing(record):
            for name, value in overlay.fields.items():
                _take_back(record, name, value, [one.fields for one in above])
        for number, up in overlay.ports.items():
            with table.writing(table.links[number]) as link:
                later_change = next((one for one in above if number in one.ports), None)
                if later_change is None:
                    link.up = up
                else:
                    later_change.ports[number] = up
        if vendor == "huawei" and code:  # XIDs are one-off; Ascend's faults are told when they end
            table.event(position, type_=XID_EVENT, code=code, now=later, assertion=0)

    return undo


@dataclass(slots=True)
class _Overlay:
    """What one fault changed, and what stood there before it."""

    fields: dict[str, Any]
    ports: dict[int, int]


def _values(before: DeviceRecord, after: DeviceRecord) -> dict[str, Any]:
    names = [name for name, *_ in DeviceRecord._fields_ if name != "lock"]
    return {name: _value(before, name) for name in names if _value(before, name) != _value(after, name)}


def _take_back(record: DeviceRecord, name: str, value: Any, above: Sequence[dict[str, Any]]) -> None:
    """Faults may overlap: where a later one changed the same field, that one now has this value below it."""
    later = next((fields for fields in above if name in fields), None)
    if later is not None:
        later[name] = value
    elif isinstance(value, list):
        for place, one in enumerate(value):
            getattr(record, name)[place] = one
    else:
        setattr(record, name, value)


def _value(record: DeviceRecord, name: str) -> Any:
    value = getattr(record, name)
    return list(value) if hasattr(value, "_length_") else value


def _app_error(scene: Scene) -> None:
    scene.event(XID_EVENT, scene.arguments.get("xid", 31), severity=1)


def _critical(scene: Scene) -> None:
    record, arguments = scene.record, scene.arguments
    if scene.vendor == "nvidia":
        scene.fault(arguments.get("xid", 95))
        record.recovery_action = arguments.get("action", ACTION_RESET)
        scene.event(XID_EVENT, record.error_codes[0], severity=3)
        scene.event(RECOVERY_EVENT, record.recovery_action, severity=2)
    elif scene.vendor == "huawei":
        record.health = arguments.get("health", DCMI_CRITICAL)
        scene.fault(arguments.get("code", 0x80E01801))
        scene.event(XID_EVENT, record.error_codes[0], severity=3, assertion=1)
    else:
        record.health = 0
        scene.fault(arguments.get("code", 1))
        scene.event(CNDEV_XID_EVENT, record.error_codes[0], severity=3, assertion=1)


def _ecc(scene: Scene) -> None:
    record = scene.record
    corrected, uncorrected = scene.arguments.get("corrected", 0), scene.arguments.get("uncorrected", 1)
    record.ecc_corrected += corrected
    record.ecc_corrected_ever += corrected
    record.ecc_uncorrected += uncorrected
    record.ecc_uncorrected_ever += uncorrected
    if scene.vendor == "nvidia" and uncorrected:
        record.remapped[1] += uncorrected
        record.remapped[2] = 1
        scene.fault(48)
        record.recovery_action = ACTION_RESET
        scene.event(ECC_DOUBLE_EVENT, 0, severity=2)
        scene.event(XID_EVENT, 48, severity=3)


def _lost(scene: Scene) -> None:
    record = scene.record
    if scene.vendor == "nvidia":
        record.code, record.recovery_action = GPU_IS_LOST, ACTION_REBOOT
        scene.fault(79)
        scene.event(XID_EVENT, 79, severity=3)
    elif scene.vendor == "huawei":
        record.code, record.health = DCMI_NOT_READY, 0xFFFFFFFF
        scene.fault(CARD_DROP)
        scene.event(XID_EVENT, CARD_DROP, severity=3, assertion=1)
    elif scene.vendor == "cambricon":
        record.health, record.driver_state = 0, CNDEV_BOOT_ERROR
        scene.fault(1)
        scene.event(CNDEV_XID_EVENT, 1, severity=3, assertion=1)
    else:
        _remove(scene)


def _remove(scene: Scene) -> None:
    scene.record.present = REMOVED


def _throttle(scene: Scene) -> None:
    record = scene.record
    record.temperature = scene.arguments.get("celsius", record.slowdown_temperature + 1)
    if scene.vendor == "nvidia":
        record.throttle = record.throttle | HW_THERMAL | SW_THERMAL


def _link(scene: Scene) -> None:
    record, arguments = scene.record, scene.arguments
    if scene.vendor == "mellanox":
        record.port_state = PORT_DOWN
        record.port_phys_state = PHYS_DISABLED if arguments.get("administrative") else PHYS_POLLING
        return
    port = arguments.get("port")
    for link in scene.table.links:
        if link.device == scene.at and port in {None, link.port}:
            with scene.table.writing(link):
                link.up = 0
                link.errors[0] += 1
    if scene.vendor == "nvidia":
        scene.fault(74)
        scene.event(XID_EVENT, 74, severity=3)
    elif scene.vendor == "huawei":
        record.health = DCMI_MAJOR
        scene.fault(LINK_DOWN)
        scene.event(XID_EVENT, LINK_DOWN, severity=2, assertion=1)


def _reset_needed(scene: Scene) -> None:
    record = scene.record
    if scene.vendor == "nvidia":
        record.code, record.recovery_action = RESET_REQUIRED, ACTION_RESET
        scene.fault(154)
        scene.event(XID_EVENT, 154, severity=3)
    elif scene.vendor == "huawei":
        record.code, record.health = DCMI_BUSY_RESET, DCMI_CRITICAL
    else:
        record.health, record.driver_state = 0, CNDEV_RESET_FAILED


def _leak(scene: Scene) -> None:
    record = scene.record
    leaked = scene.arguments.get("mebibytes", 1024) << 20
    record.memory_used = min(record.memory_total, record.memory_used + leaked)


def _slow(scene: Scene) -> None:
    scene.record.delay_ms = scene.arguments.get("milliseconds", 1000)


def _shrink(scene: Scene) -> None:
    scene.record.vfs_enabled = min(scene.record.vfs_enabled, scene.arguments.get("left", 0))


_CARDS = frozenset({"nvidia", "huawei", "cambricon"})
_ALL = _CARDS | {"mellanox"}

VERBS: Mapping[str, Verb] = {
    "app_error": Verb(frozenset({"nvidia"}), frozenset({"xid"}), _app_error),
    "critical": Verb(_CARDS, frozenset({"xid", "action", "code", "health"}), _critical),
    "ecc": Verb(_CARDS, frozenset({"corrected", "uncorrected"}), _ecc),
    "lost": Verb(_ALL, frozenset(), _lost),
    "remove": Verb(_ALL, frozenset(), _remove),
    "throttle": Verb(_CARDS, frozenset({"celsius"}), _throttle),
    "link": Verb(_ALL, frozenset({"port", "administrative"}), _link),
    "reset_needed": Verb(_CARDS, frozenset(), _reset_needed),
    "leak": Verb(_CARDS, frozenset({"mebibytes"}), _leak),
    "slow": Verb(_ALL, frozenset({"milliseconds"}), _slow),
    "shrink": Verb(frozenset({"mellanox"}), frozenset({"left"}), _shrink),
}
