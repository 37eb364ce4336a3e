"""The inventory of a lab: its machines with their cards, NICs and tags, in a YAML file.

    lab: shelf-3
    leases: {file: shelf-3.json}            # or {kubeconfig: admin.conf, context: lab, namespace: seatrial-lab}
    ttl: 60                                 # seconds after which a lease that is not renewed has ended
    machines:
      - name: dgx-1
        tags: [nvlink]
        cards: [{name: "0", model: h100, numa: 0}, {name: "1", model: h100, numa: 1, tags: [ecc-suspect]}]
        nics: [{name: mlx5_0, model: connectx-7, numa: 0}]
        hooks:
          reimage: {command: [provision, --host, "{machine}"], within: 1800, retries: 1}
        prepare: [reimage]
    windows:
      - {name: nightly, machines: [dgx-1], from: "01:00", to: "05:00", days: [mon, tue], zone: Europe/Berlin}

The name of a device in the lab is `MACHINE/NAME`.
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

from seatrial.harness.errors import UsageError
from seatrial.harness.lab.windows import Window

MIN_TTL, MAX_TTL = 5.0, 3600.0  # seconds
MAX_DEVICES = 10_000  # of a lab: its ledger is one object of the API server
PLACEHOLDERS = frozenset({"machine", "token", "holder"})
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]{0,61}[A-Za-z0-9])?", re.ASCII)
_BRACES = re.compile(r"\{([^{}]*)\}")


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A card or NIC of a machine."""

    name: str
    model: str
    tags: tuple[str, ...] = ()
    numa: int | None = None


class Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command for a machine: words, not a line for a shell. `{machine}`, `{token}` and `{holder}` are replaced."""

    command: tuple[str, ...]
    within: float = 300.0  # seconds
    retries: int = 0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine with its devices."""

    name: str
    tags: tuple[str, ...] = ()
    cards: tuple[Device, ...] = ()
    nics: tuple[Device, ...] = ()
    hooks: dict[str, Hook] = {}
    prepare: tuple[str, ...] = ()  # hooks that run before a lease of the whole machine is handed out

    def full_name(self, device: Device) -> str:
        return f"{self.name}/{device.name}"


class Leases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the ledger is kept: a file, or a Lease on a cluster."""

    file: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = "seatrial-lab"


class Inventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A lab."""

    lab: str
    leases: Leases
    machines: tuple[Machine, ...]
    ttl: float = 60.0
    windows: tuple[Window, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Machine]:
        return {machine.name: machine for machine in self.machines}


def load_inventory(path: Path) -> Inventory:
    """Read an inventory. Paths in it are relative to its folder.

    Raises:
        UsageError: there is no such file, or it has a mistake; the message names what was expected and found.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise UsageError(f"inventory {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"inventory {path}: expected YAML: {error}") from error
    return parse_inventory(content, where=path)


def parse_inventory(content: Any, *, where: Path) -> Inventory:
    """
    Raises:
        UsageError: it has a mistake.
    """
    try:
        inventory = msgspec.convert(content, Inventory)
    except msgspec.ValidationError as error:
        raise UsageError(f"inventory {where}: {error}") from error
    for mistake in _mistakes(inventory):
        raise UsageError(f"inventory {where}: {mistake}")
    return msgspec.structs.replace(inventory, leases=_resolved(inventory.leases, where))


def _resolved(leases: Leases, where: Path) -> Leases:
    folder = where.resolve().parent
    return msgspec.structs.replace(
        leases,
        file=str(folder / leases.file) if leases.file else "",
        kubeconfig=str(folder / leases.kubeconfig) if leases.kubeconfig else "",
    )


def _mistakes(inventory: Inventory) -> list[str]:
    return [
        *_bad_name("lab", inventory.lab),
        *_leases_mistakes(inventory.leases),
        *_range_mistakes(inventory),
        *[line for machine in inventory.machines for line in _machine_mistakes(machine)],
        *_twice("machine", [machine.name for machine in inventory.machines]),
        *_twice("window", [window.name for window in inventory.windows]),
        *[line for window in inventory.windows for line in _window_mistakes(window, inventory)],
    ]


def _range_mistakes(inventory: Inventory) -> list[str]:
    devices = sum(len(machine.cards) + len(machine.nics) for machine in inventory.machines)
    lines = []
    if not MIN_TTL <= inventory.ttl <= MAX_TTL:
        lines.append(f"ttl: expected {MIN_TTL:g} to {MAX_TTL:g} seconds, found {inventory.ttl:g}")
    if not devices:
        lines.append("machines: expected at least one card or NIC, found none")
    if devices > MAX_DEVICES:
        lines.append(f"machines: expected at most {MAX_DEVICES} devices, found {devices}")
    return lines


def _leases_mistakes(leases: Leases) -> list[str]:
    if bool(leases.file) == bool(leases.kubeconfig):
        text = "both" if leases.file else "neither"
        return [f"leases: expected either file or kubeconfig, found {text}"]
    if leases.file and leases.context:
        return [f"leases: context {leases.context!r} needs a kubeconfig, found a file"]
    return []


def _machine_mistakes(machine: Machine) -> list[str]:
    where = f"machine {machine.name!r}"
    lines = _bad_name("machine", machine.name)
    for device in (*machine.cards, *machine.nics):
        lines += _bad_name(f"{where}: device", device.name)
    lines += _twice(f"{where}: device", [device.name for device in (*machine.cards, *machine.nics)])
    for name, hook in machine.hooks.items():
        lines += [f"{where}: hook {name!r}: {line}" for line in _hook_mistakes(hook)]
    for name in machine.prepare:
        if name not in machine.hooks:
            there = ", ".join(machine.hooks) or "none"
            lines.append(f"{where}: prepare: expected the name of a hook ({there}), found {name!r}")
    return lines


def _hook_mistakes(hook: Hook) -> list[str]:
    lines = []
    if not hook.command or not hook.command[0]:
        lines.append("command: expected a program and its arguments, found nothing")
    for word in hook.command:
        for name in _BRACES.findall(word):
            if name not in PLACEHOLDERS:
                lines.append(f"expected {{{'}, {'.join(sorted(PLACEHOLDERS))}}}, found {{{name}}}")  # noqa: PERF401
    if not 0 < hook.within <= 86_400:
        lines.append(f"within: expected more than 0 and at most 86400 seconds, found {hook.within:g}")
    if not 0 <= hook.retries <= 10:
        lines.append(f"retries: expected 0 to 10, found {hook.retries}")
    return lines


def _window_mistakes(window: Window, inventory: Inventory) -> list[str]:
    lines = [f"window {window.name!r}: {line}" for line in window.mistakes()] + _bad_name("window", window.name)
    known = [machine.name for machine in inventory.machines]
    for name in window.machines:
        if name not in known:
            lines.append(f"window {window.name!r}: expected a machine ({', '.join(known)}), found {name!r}")
    return lines


def _bad_name(what: str, name: str) -> list[str]:
    if _NAME.fullmatch(name):
        return []
    return [f"{what}: expected a name of letters, digits and - _ . :, at most 63 long, found {name!r}"]


def _twice(what: str, names: list[str]) -> list[str]:
    return [f"{what}: the name {name!r} is there twice" for name in sorted(set(names)) if names.count(name) > 1]
