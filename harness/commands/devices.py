"""`seatrial devices`: the devices of this machine, or of a simulated one, as the real providers read them."""

import json
from typing import Annotated, Any

from cyclopts import Parameter

from seatrial.harness.devices.provider import Device


def devices(*, fake: str | None = None, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print accelerators and NICs with identity, health and location; for vendors without devices print the reason.

    Args:
        fake: Read a simulated machine instead: a server of the catalogue, MODEL or MODEL:COUNT, as in dgx-h100 or
            a10:2.
        json_: Print JSON.
    """
    from seatrial.harness.devices.survey import survey

    result, missing = survey(fake)
    result = sorted(result, key=lambda device: (device.kind, device.minor))  # each library has its own order
    if json_:
        rows = [_row(device) for device in result]
        print(json.dumps({"devices": rows, "missing": missing}, indent=2))
        return 0
    for item in result:
        row = _row(item)
        place = f"NUMA {row['numa']}" if row["numa"] is not None else "no NUMA node"
        memory = f"{row['memory_mib']:,} MiB" if row["memory_mib"] else ""
        health = "healthy" if row["healthy"] else f"unhealthy: {row['health']}"
        print(f"{row['kind']:<5}{row['minor']:>3}  {row['model']:<28}{memory:>12}  {row['bus']:<14}{place:<14}{health}")
    for vendor, why in missing.items():
        print(f"{vendor}: no devices: {why}")
    return 0


def _row(device: Device) -> dict[str, Any]:
    return {
        "vendor": device.vendor,
        "kind": device.kind,
        "minor": device.minor,
        "id": device.uuid,
        "model": device.model,
        "memory_mib": device.memory >> 20,
        "bus": device.bus_id,
        "numa": device.numa,
        "healthy": device.health.ok,
        "health": device.health.message or device.health.code,
    }
