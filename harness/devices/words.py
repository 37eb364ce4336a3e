"""What vendors' numbers mean: health scales, XIDs, names of device nodes. Tables and rules, no calls.

Sources: koordlet's device reporting (which XIDs are the application's own fault), NVIDIA's XID catalogue and NVML
reference, DCMI and CNDEV headers, the kernel's sysfs documentation.
"""

from collections.abc import Iterable

from harness.devices.provider import WELL, Health

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})  # koordlet passes over these six

RECOVERY_ACTIONS = (
    "", "gpu-reset", "node-reboot", "drain-peers", "drain-and-reset", "recover-imex-domain", "bus-reset",
    "system-reboot",
)  # fmt: skip

DCMI_MINOR = 1  # health 1 is a warning; from 2 on a device leaves the pool
DCMI_GONE = 0xFFFFFFFF
CNDEV_RUNNING = 4
CNDEV_DRIVER_STATES = (
    "early initialisation", "bring-up", "booting", "late initialisation", "running", "boot error", "resetting",
    "reset failed",
)  # fmt: skip
PORT_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
PORT_ACTIVE = 4


def xid_health(xid: int, action: int = 0) -> Health:
    """An NVIDIA card after that XID. Koordlet's words, and its rule: nothing but a restart makes it well again."""
    if xid in APPLICATION_XIDS:
        return WELL
    message = f"Xid error detected on device, error code: {xid}"
    wanted = RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else str(action)
    return Health(ok=False, code=f"Xid{xid}", message=message, sticky=True, action=wanted)


def dcmi_health(scale: int, code: int) -> Health:
    """An Ascend chip: 0 well, 1 minor, 2 major, 3 critical, all ones not there. It recovers with the scale."""
    if scale <= DCMI_MINOR:
        return WELL
    name = f"0x{code:08X}" if code else f"health{scale if scale != DCMI_GONE else 'Gone'}"
    return Health(ok=False, code=name, message="chip error" if scale != DCMI_GONE else "chip is not there")


def cambricon_health(health: int, driver_state: int) -> Health:
    """An MLU: 1 well, 0 not; and a driver that is not running is not well either. Both recover."""
    if driver_state != CNDEV_RUNNING:
        known = driver_state < len(CNDEV_DRIVER_STATES)
        state = CNDEV_DRIVER_STATES[driver_state] if known else str(driver_state)
        return Health(ok=False, code=f"DriverState{driver_state}", message=f"driver is not running: {state}")
    return WELL if health else Health(ok=False, code="CardUnhealthy", message="card health state is bad")


def port_health(states: Iterable[int]) -> Health:
    """A NIC: well if every port is ACTIVE. It is read again each time, so it recovers."""
    down = [PORT_STATES[state] if state < len(PORT_STATES) else str(state) for state in states if state != PORT_ACTIVE]
    return Health(ok=False, code="PortDown", message=f"port state is {', '.join(down)}") if down else WELL


def label_of(vendor: str, model: str) -> str:
    """The model as Koordinator's node label has it: NVIDIA's name without its maker, spaces as dashes."""
    return model.removeprefix("NVIDIA ").replace(" ", "-") if vendor == "nvidia" else model.replace(" ", "-")


def nvidia_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one GPU."""
    return (f"/dev/nvidia{minor}",)


def davinci_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one NPU."""
    return (f"/dev/davinci{minor}",)


def cambricon_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one MLU, the second for sharing memory between processes."""
    return (f"/dev/cambricon_dev{minor}", f"/dev/cambricon_ipcm{minor}")


def rdma_nodes(number: int) -> tuple[str, ...]:
    """Device nodes of one NIC, by the number of its verbs device."""
    return (f"/dev/infiniband/uverbs{number}",)
