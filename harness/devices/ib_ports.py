"""States of InfiniBand ports, as the kernel's sysfs documentation numbers them."""

from collections.abc import Iterable

from seatrial.harness.devices.provider import WELL, Health

PORT_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
PORT_ACTIVE = 4


def port_health(states: Iterable[int]) -> Health:
    """Health of a NIC: well if every port is ACTIVE. It is read anew each time, so a NIC recovers."""
    down = [PORT_STATES[state] if state < len(PORT_STATES) else str(state) for state in states if state != PORT_ACTIVE]
    return Health(ok=False, code="PortDown", message=f"port state is {', '.join(down)}") if down else WELL
