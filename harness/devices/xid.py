"""NVIDIA's XIDs: which are the application's fault, and what the others mean for a GPU.

Sources: koordlet's device reporting (which XIDs are the application's fault), NVIDIA's XID catalogue, NVML reference.
"""

from seatrial.harness.devices.provider import WELL, Health

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})  # koordlet ignores these six

RECOVERY_ACTIONS = (
    "",
    "gpu-reset",
    "node-reboot",
    "drain-peers",
    "drain-and-reset",
    "recover-imex-domain",
    "bus-reset",
    "system-reboot",
)


def xid_health(xid: int, action: int = 0) -> Health:
    """Health of a GPU after an XID, with koordlet's reason and message. As in koordlet only a restart ends it."""
    if xid in APPLICATION_XIDS:
        return WELL
    message = f"Xid error detected on device, error code: {xid}"
    text = RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else str(action)
    return Health(ok=False, code=f"Xid{xid}", message=message, sticky=True, action=text)
