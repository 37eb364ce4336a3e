"""Faults as changes of the table: what each verb changes on each vendor's devices, and how it is taken back.

A verb changes together what a real machine would change together. A lost GPU answers no call but stays in sysfs and
/dev; a removed device leaves both. A reader sees the change in its next call; events follow in order. The effects are
in the vendors' `Hardware.faults`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.fake_devices.hardware import FaultContext
from seatrial.fake_devices.layout import DeviceRecord
from seatrial.fake_devices.models import unknown
from seatrial.fake_devices.table import DeviceTable
from seatrial.fake_devices.vendors import HARDWARE

Undo = Callable[[float], None]  # given the time

_RECOVERED = 0  # assertion of an event
_FAULT_EVENT = 0x8

_APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)


class FaultError(ValueError):
    """A fault has a verb or argument that the device does not support."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: `vendors` whose devices support it; names of the `arguments` that an entry may have."""

    vendors: frozenset[str]
    arguments: frozenset[str]


def check(vendor: str, verb: str, arguments: Mapping[str, Any]) -> None:
    """Check that a device of that vendor supports such a fault.

    Raises:
        FaultError: it does not; the message lists what it supports.
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
    """Apply a fault to the device at `position`; `now` is in seconds since 1970. Returns a function that ends it.

    Raises:
        FaultError: the device does not support it.
    """
    vendor = table.machine.slots[position].model.vendor
    check(vendor, verb, arguments)
    record = table.devices[position]
    before = DeviceRecord.from_buffer_copy(record)
    ports = {number: link.up for number, link in enumerate(table.links) if link.device == position}
    with table.writing(record):
        HARDWARE[vendor].faults[verb](_context(table, position, arguments, now))
    overlay = _Overlay(_values(before, record), {at: up for at, up in ports.items() if table.links[at].up != up})
    layers = table.overlays.setdefault(position, [])
    layers.append(overlay)
    code = record.error_codes[0] if "error_codes" in overlay.fields else 0

    def undo(later: float) -> None:
        above = layers[layers.index(overlay) + 1 :]
        layers.remove(overlay)
        with table.writing(record):
            for name, value in overlay.fields.items():
                _restore(record, name, value, [layer.fields for layer in above])
        for number, up in overlay.ports.items():
            with table.writing(table.links[number]) as link:
                later_change = next((layer for layer in above if number in layer.ports), None)
                if later_change is None:
                    link.up = up
                else:
                    later_change.ports[number] = up
        if HARDWARE[vendor].announces_recovery and code:
            table.event(position, type_=_FAULT_EVENT, code=code, now=later, assertion=_RECOVERED)

    return undo


@dataclass(slots=True)
class _Overlay:
    """The fields and link ports that one fault changed, with their values before it."""

    fields: dict[str, Any]
    ports: dict[int, int]


def _values(before: DeviceRecord, after: DeviceRecord) -> dict[str, Any]:
    names = [name for name, *_ in DeviceRecord._fields_ if name != "lock"]
    return {name: _value(before, name) for name in names if _value(before, name) != _value(after, name)}


def _restore(record: DeviceRecord, name: str, value: Any, above: Sequence[dict[str, Any]]) -> None:
    """Restore one field. A later fault that changed it too takes over the value, and restores it when it ends."""
    later = next((fields for fields in above if name in fields), None)
    if later is not None:
        later[name] = value
    elif isinstance(value, list):
        for place, element in enumerate(value):
            getattr(record, name)[place] = element
    else:
        setattr(record, name, value)


def _value(record: DeviceRecord, name: str) -> Any:
    value = getattr(record, name)
    return list(value) if hasattr(value, "_length_") else value


def _context(table: DeviceTable, position: int, arguments: Mapping[str, Any], now: float) -> FaultContext:
    def event(type_: int, code: int, severity: int, assertion: int = 2) -> None:
        table.event(position, type_=type_, code=code, now=now, severity=severity, assertion=assertion)

    def links_down(port: int | None) -> None:
        for link in table.links:
            if link.device == position and port in {None, link.port}:
                with table.writing(link):
                    link.up = 0
                    link.errors[0] += 1

    return FaultContext(table.devices[position], arguments, event, links_down)


_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "app_error": frozenset({"xid"}),
    "critical": frozenset({"xid", "action", "code", "health"}),
    "ecc": frozenset({"corrected", "uncorrected"}),
    "lost": frozenset(),
    "remove": frozenset(),
    "throttle": frozenset({"celsius"}),
    "link": frozenset({"port", "administrative"}),
    "reset_needed": frozenset(),
    "leak": frozenset({"mebibytes"}),
    "slow": frozenset({"milliseconds"}),
    "shrink": frozenset({"left"}),
}

VERBS: Mapping[str, Verb] = {
    verb: Verb(frozenset(name for name, vendor in HARDWARE.items() if verb in vendor.faults), arguments)
    for verb, arguments in _ARGUMENTS.items()
}
