"""`seatrial lab`: machines and cards, who holds them, and taking and returning them."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.commands.text_table import table_lines
from seatrial.harness.errors import UsageError
from seatrial.harness.lab.errors import LabError
from seatrial.harness.lab.lab import VARIABLE, Lab, Place, open_lab
from seatrial.harness.lab.ledger import DeviceLease, Ledger, PlaceRequest
from seatrial.harness.lab.windows import active
from seatrial.harness.processes import start_child, stop, stop_group
from seatrial.scheduler.api.wrong_values import printable

ANY = "any"
COLUMNS = ("device", "kind", "model", "state", "tags")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_FIXED = 7 * 86_400.0  # seconds
LabFile = Annotated[Path | None, Parameter(name="--lab", env_var=VARIABLE)]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Plain = Annotated[bool, Parameter(negative="")]
Count = Annotated[int, Parameter(validator=validators.Number(gte=0))]
Seconds = Annotated[float, Parameter(validator=validators.Number(gte=0))]


def list_(*, lab: LabFile = None, json_: Json = False) -> int:
    """Print machines, cards and NICs, and which of them are free.

    Args:
        lab: The inventory; by default that of $SEATRIAL_LAB.
        json_: Print JSON.
    """
    with _opened(lab) as opened:
        snapshot = opened.snapshot()
        rows = _device_rows(opened, snapshot.ledger, snapshot.at.wall)
    if json_:
        print(json.dumps({"lab": opened.inventory.lab, "devices": rows}, indent=2))
        return 0
    table = [COLUMNS]
    table += [(row["device"], row["kind"], row["model"], row["state"], ",".join(row["tags"]) or "-") for row in rows]
    print("\n".join(table_lines(table)))
    return 0


def who(*, lab: LabFile = None, json_: Json = False) -> int:
    """Print who holds devices and who waits in line.

    Args:
        lab: The inventory; by default that of $SEATRIAL_LAB.
        json_: Print JSON.
    """
    with _opened(lab) as opened:
        snapshot = opened.snapshot()
    ledger, now = snapshot.ledger, snapshot.at.now
    if json_:
        leases = [_lease_row(lease) | {"seconds_left": round(lease.expires - now)} for lease in ledger.leases]
        line = [
            {
                "number": waiter.number,
                "holder": waiter.holder,
                "request": str(waiter.request),
                "since": _moment(waiter.since),
            }
            for waiter in ledger.line
        ]
        print(json.dumps({"leases": leases, "line": line, "out_of_service": ledger.out_of_service}, indent=2))
        return 0
    for lease in ledger.leases:
        ends = f", until {_moment(lease.ends)} at the latest: {lease.why_ends}" if lease.ends else ""
        _tell(
            f"token {lease.token}: {lease.holder} holds {', '.join(lease.devices)} since {_moment(lease.since)}, "
            f"{max(0, round(lease.expires - now))} s left{' unless renewed' if lease.renewable else ''}{ends}"
        )
    for place, ticket in enumerate(ledger.line, 1):
        _tell(f"{place}. in line: {ticket.holder} wants {ticket.request} since {_moment(ticket.since)}")
    for machine, why in ledger.out_of_service.items():
        _tell(f"{machine} is out of service: {why}")
    if not (ledger.leases or ledger.line or ledger.out_of_service):
        print("no device is held and no request waits")
    return 0


def _tell(line: str) -> None:
    """Print a line of the ledger, which others write."""
    print(printable(line))


def acquire(
    want: str,
    *command: str,
    cards: Count = 1,
    nics: Count = 0,
    tag: tuple[str, ...] = (),
    machine: str = "",
    whole: Plain = False,
    window: str = "",
    wait: Seconds = 600.0,
    for_: Annotated[str, Parameter(name="--for")] = "",
    holder: str = "",
    lab: LabFile = None,
    json_: Json = False,
) -> int:
    """Wait in line for devices of one machine. With `-- COMMAND …` they are held while the command runs; with --for
    they are held for that time, and the lease is not renewed.

    The command gets SEATRIAL_LAB_MACHINE, SEATRIAL_LAB_CARDS, SEATRIAL_LAB_NICS and SEATRIAL_LAB_TOKEN. If the lease is
    lost, the command is ended and the exit status is 2; otherwise it is the command's.

    Args:
        want: A model or tag, as in h100; `any` for any card.
        command: The command, after `--`.
        cards: Number of cards.
        nics: Number of NICs of the same machine.
        tag: A tag that the machine or each card has too; may be repeated.
        machine: Only this machine.
        whole: A whole machine: all its cards and NICs; its hooks in `prepare` run first.
        window: The window that this run belongs to, as in nightly.
        wait: Seconds to wait in line.
        for_: How long to hold the devices without a command, as in 30m or 2h.
        holder: Who asks, as shown by `who`; by default the job of GitLab or GitHub, else user@host.
        lab: The inventory; by default that of $SEATRIAL_LAB.
        json_: Print the lease as JSON.
    """
    if bool(command) == bool(for_):
        raise UsageError(
            f"expected either --for DURATION or a command after `--`, found {'both' if command else 'neither'}; for "
            f"example: seatrial lab acquire {want} -- make test"
        )
    request = PlaceRequest("" if want == ANY else want, cards, nics, tag, machine, whole, window)
    with _opened(lab, holder) as opened:
        opened.on_wait = lambda why: print(f"seatrial: {why}; waiting up to {wait:g} s", file=sys.stderr, flush=True)
        if command:
            return _held_while(opened, request, command, wait)
        lease = opened.acquire_for(request, _duration(for_), wait=wait)
    if json_:
        print(json.dumps(_lease_row(lease), indent=2))
    else:
        print(f"token {lease.token}: {', '.join(lease.devices)}; return it with: seatrial lab release {lease.token}")
    return 0


def release(token: int, *, force: Plain = False, holder: str = "", lab: LabFile = None, json_: Json = False) -> int:
    """Return the devices of a lease before it ends.

    Args:
        token: The lease's token, which `acquire` and `who` print.
        force: Take it back although another holder has it.
        holder: Who you are, if `acquire` had --holder.
        lab: The inventory; by default that of $SEATRIAL_LAB.
        json_: Print the lease that has ended as JSON.
    """
    with _opened(lab, holder) as opened:
        lease = opened.release(token, force=force)
    print(json.dumps(_lease_row(lease), indent=2) if json_ else f"returned: {', '.join(lease.devices)}")
    return 0


def restore(machine: str, *, lab: LabFile = None) -> int:
    """Put a machine that a failed hook took out of service back into service.

    Args:
        machine: The machine.
        lab: The inventory; by default that of $SEATRIAL_LAB.
    """
    with _opened(lab) as opened:
        opened.set_service(machine, "")
    print(f"{machine} is in service")
    return 0


@contextmanager
def _opened(path: Path | None, holder: str = "") -> Iterator[Lab]:
    if path is None:
        raise UsageError(f"expected an inventory: give --lab FILE or set ${VARIABLE}; docs/lab.md has an example")
    lab = open_lab(path, holder=holder)
    try:
        yield lab
    finally:
        lab.close()


def _held_while(lab: Lab, request: PlaceRequest, command: Sequence[str], wait: float) -> int:
    """Run a command while the place is held, and return its exit status."""
    lost: list[LabError] = []
    running: list[subprocess.Popen[bytes]] = []

    def on_lost(error: LabError) -> None:
        lost.append(error)
        if running:
            stop(running[0])

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = lab.acquire(request, wait=wait, on_lost=on_lost)
    try:
        status = 2 if lost else _run(place, command, running)
    finally:
        place.give_back()
        signal.signal(signal.SIGTERM, before)
    if lost:
        raise lost[0]
    return status


def _run(place: Place, command: Sequence[str], running: "list[subprocess.Popen[bytes]]") -> int:
    try:
        process = start_child(list(command), stdin=None, env={**os.environ, **place.environment()})
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from error
    running.append(process)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        stop(process)
        raise
    finally:
        stop_group(process.pid)
    return status if status >= 0 else 128 - status


def _duration(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit()) or unit not in _UNITS:
        raise UsageError(f"--for: expected a duration such as 90s, 30m or 2h, found {text!r}")
    seconds = float(number) * _UNITS[unit]
    if not 0 < seconds <= MAX_FIXED:
        raise UsageError(f"--for: expected at most 7d, found {text!r}")
    return seconds


def _device_rows(lab: Lab, ledger: Ledger, wall: float) -> list[dict[str, Any]]:
    taken = {device: lease for lease in ledger.leases for device in lease.devices}
    rows = []
    for machine in lab.inventory.machines:
        window = active(lab.inventory.windows, machine.name, wall)
        for kind, devices in (("card", machine.cards), ("nic", machine.nics)):
            for device in devices:
                name = machine.full_name(device)
                lease = taken.get(name)
                if lease is not None:
                    state = f"held by {lease.holder}"
                elif machine.name in ledger.out_of_service:
                    state = f"out of service: {ledger.out_of_service[machine.name]}"
                else:
                    state = f"free for window {window.name}" if window else "free"
                tags = [*machine.tags, *device.tags]
                rows.append(
                    {
                        "device": name,
                        "kind": kind,
                        "model": device.model,
                        "numa": device.numa,
                        "tags": tags,
                        "state": state,
                        "token": lease.token if lease else None,
                    }
                )
    return rows


def _lease_row(lease: DeviceLease) -> dict[str, Any]:
    return {
        "token": lease.token,
        "holder": lease.holder,
        "machine": lease.machine,
        "devices": list(lease.devices),
        "since": _moment(lease.since),
        "until": _moment(lease.ends) if lease.ends else None,
    }


def _moment(wall: float) -> str:
    return dt.datetime.fromtimestamp(wall, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
