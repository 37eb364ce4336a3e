"""Fault scripts: checks, starts and ends the entries of the annotation `seatrial.dev/faults`.

An entry: `{"verb": "critical", "device": 3, "xid": 79, "at": 10, "for": 60}`. `device` is a minor, a UUID or a bus
address; `type` (gpu by default, or rdma) is the kind that the minor counts. `at` is seconds after the entry was seen,
`for` is its duration in seconds; without it, the fault lasts until the entry is removed from the list. The verbs of
devices are those of `seatrial.fake_devices.faults`; `not_ready` and `frozen` are the node's own, and so are those of
its usage reports: `metrics_silent` (none are written), `metrics_stale` (the same one again and again, with its old
time) and `metrics_garbage` (negative amounts).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from seatrial.fake_devices import faults as device_faults
from seatrial.fake_devices.models import unknown
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.hardware import NodeHardware, machine_of
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.integers import integer

FAULTS_ANNOTATION = "seatrial.dev/faults"

METRICS_SILENT, METRICS_STALE, METRICS_GARBAGE = "metrics_silent", "metrics_stale", "metrics_garbage"
REPORT_VERBS = (METRICS_SILENT, METRICS_STALE, METRICS_GARBAGE)
NODE_VERBS = ("not_ready", "frozen", *REPORT_VERBS)


class FaultEntry(msgspec.Struct, frozen=True):
    """One entry; further keys are arguments of the verb."""

    verb: str
    device: int | str | None = None
    type: Literal["gpu", "rdma"] = "gpu"
    at: float = 0.0
    lasts: float | None = msgspec.field(default=None, name="for")
    arguments: dict[str, Any] = {}


_KNOWN = frozenset({"verb", "device", "type", "at", "for"})


def parse_entry(entry: Mapping[str, Any]) -> FaultEntry:
    """
    Raises:
        UsageError: the entry has a mistake.
    """
    known = {name: value for name, value in entry.items() if name in _KNOWN}
    rest = {name: value for name, value in entry.items() if name not in _KNOWN and name != "node"}
    try:
        fault = msgspec.convert({**known, "arguments": rest}, FaultEntry)
    except msgspec.ValidationError as error:
        raise UsageError(f"fault {json.dumps(dict(entry), default=str)}: {error}") from error
    if fault.at < 0 or (fault.lasts is not None and fault.lasts <= 0):
        raise UsageError(f"fault {fault.verb!r}: expected `at` of 0 and more and `for` above 0")
    return fault


def resolve(fault: FaultEntry, hardware: NodeHardware) -> int | None:
    """The position of the fault's device in the table; None for a verb of the node.

    Raises:
        UsageError: the node has no such device, or the device does not support the fault.
    """
    if fault.verb in NODE_VERBS:
        return None
    if fault.verb not in device_faults.VERBS:
        names = [*device_faults.VERBS, *NODE_VERBS]
        raise UsageError(unknown("fault verb", fault.verb, names).replace(" in the catalogue", ""))
    if fault.device is None:
        raise UsageError(f"fault {fault.verb!r}: expected `device`: a minor, a UUID or a bus address")
    position = _position(fault, hardware)
    if position is None:
        devices = ", ".join(f"{device.kind} {device.minor}" for device in hardware.devices()) or "no devices"
        raise UsageError(
            f"fault {fault.verb!r}: node {hardware.node!r} has no {fault.type} {fault.device!r}; it has {devices}"
        )
    try:
        device_faults.check(hardware.machine.slots[position].model.vendor, fault.verb, fault.arguments)
    except device_faults.FaultError as error:
        raise UsageError(f"fault: {error}") from error
    return position


def check_fault(fault: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Check a fault against a node, both as plain data: an entry of the script, an entry of the fleet.

    Raises:
        UsageError: the node does not support it.
    """
    resolve(parse_entry(fault), NodeHardware(str(entry.get("name", "?")), machine_of(entry)))


def _position(fault: FaultEntry, hardware: NodeHardware) -> int | None:
    minor = integer(fault.device) if isinstance(fault.device, str) else fault.device
    if minor is None:
        return hardware.table.position(str(fault.device))
    for position, slot in enumerate(hardware.machine.slots):
        if slot.minor == minor and slot.model.is_nic == (fault.type == "rdma"):
            return position
    return None


class FaultScript:
    """The faults of one node. The annotation is a set: a new entry starts a fault, a removed entry ends it."""

    def __init__(
        self,
        hardware: NodeHardware,
        clock: Clock,
        *,
        on_devices: Callable[[], None],
        on_node: Callable[[str, bool], None],
    ) -> None:
        """`on_devices` is called after each change of the table, `on_node(verb, on)` for each fault of the node
        itself."""
        self._stage = _Stage(hardware, clock, on_devices, on_node)
        self._running: dict[tuple[str, int], _Fault] = {}
        self._text = ""

    def follow(self, text: str) -> list[str]:
        """Follow the annotation's text. Returns messages about entries that cannot be applied."""
        if text == self._text:
            return []
        self._text = text
        problems: list[str] = []
        entries: dict[tuple[str, int], Mapping[str, Any]] = {}
        times: Counter[str] = Counter()
        for entry in _entries(text, problems):
            canonical = json.dumps(entry, sort_keys=True)
            entries[canonical, times[canonical]] = entry
            times[canonical] += 1
        for key in [fault for fault in self._running if fault not in entries]:
            self._running.pop(key).end()
        for key, content in entries.items():
            if key not in self._running:
                try:
                    fault = parse_entry(content)
                    self._running[key] = _Fault(self._stage, fault, resolve(fault, self._stage.hardware))
                except UsageError as error:
                    problems.append(str(error))
        return problems

    def close(self) -> None:
        for fault in self._running.values():
            fault.cancel()
        self._running.clear()


@dataclass(frozen=True, slots=True)
class _Stage:
    """The hardware that fails, and the callbacks."""

    hardware: NodeHardware
    clock: Clock
    on_devices: Callable[[], None]
    on_node: Callable[[str, bool], None]


class _Fault:
    """One active entry: before its start, applied, or ended."""

    def __init__(self, stage: _Stage, fault: FaultEntry, position: int | None) -> None:
        self._stage, self._fault, self._position = stage, fault, position
        self._undo: Callable[[], None] | None = None
        self._timer: Timer = stage.clock.call_later(fault.at, self._begin)

    def cancel(self) -> None:
        self._timer.cancel()

    def end(self) -> None:
        self._timer.cancel()
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()

    def _begin(self) -> None:
        self._undo = self._on_node() if self._position is None else self._on_device(self._position)
        if self._fault.lasts is not None:
            self._timer = self._stage.clock.call_later(self._fault.lasts, self.end)

    def _on_node(self) -> Callable[[], None]:
        on_node, verb = self._stage.on_node, self._fault.verb
        on_node(verb, True)
        return lambda: on_node(verb, False)

    def _on_device(self, position: int) -> Callable[[], None]:
        stage, fault = self._stage, self._fault
        take_back = device_faults.apply(stage.hardware.table, position, fault.verb, fault.arguments, stage.clock.now())
        stage.on_devices()

        def undo() -> None:
            take_back(stage.clock.now())
            stage.on_devices()

        return undo


def _entries(text: str, problems: list[str]) -> list[dict[str, Any]]:
    if not text:
        return []
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        problems.append(f"annotation {FAULTS_ANNOTATION}: expected a JSON list, found {text[:40]!r}: {error}")
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.append(f"annotation {FAULTS_ANNOTATION}: expected a JSON list of objects, found {text[:40]!r}")
        return []
    return entries
