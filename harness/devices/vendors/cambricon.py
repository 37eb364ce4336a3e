"""Cambricon MLUs. The grant follows Cambricon's device plugin, whose spellings are kept, mistakes included.

Nodes offer the whole-card name and the dynamic-sMLU names side by side, since a fleet is asked for both; on real nodes
the plugin's mode decides.
"""

from typing import Any

from seatrial.fake_devices.cambricon.hardware import CAMBRICON
from seatrial.harness.devices.cndev import cambricon_health, cambricon_nodes
from seatrial.harness.devices.provider import Assignment, ContainerGrant, Device, DeviceProvider, Health
from seatrial.harness.devices.vendors.claim_driver import plain_driver
from seatrial.harness.devices.vendors.descriptor import CardNames, SharedPlugin, Vendor

CONTROL_NODES = ("/dev/cambricon_ctl", "/dev/cambricon_gdr")
NODE, VARIABLE = "/dev/cambricon_dev", "CAMBRICON_VISIBLE_DEVICES"
DSMLU_PROFILE = "CAMBRICON_DSMLU_PROFILE"
DSMLU_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"
DSMLU_INSTANCE = "CAMBRICON_DSMLU_PROFILE_INSTANCE"
DSMLU_LOCK = "cambricon.com/dsmlu.lock"
SMLU_MEMORY_UNIT = 256 << 20  # bytes; what Koordinator assumes of the plugin's min-dsmlu-unit


def _provider() -> type[DeviceProvider]:
    from seatrial.harness.devices.cambricon import CambriconProvider

    return CambriconProvider


def cambricon_grant(assignment: Assignment) -> ContainerGrant:
    """Whole cards with their control nodes; an sMLU instance by its cap node beside its card's."""
    nodes: list[str] = []
    annotations: dict[str, str] = {}
    for share in assignment.shares:
        minor = share.device.minor
        nodes += cambricon_nodes(minor)
        if share.slices:
            for part in share.slices:
                nodes += part.nodes or (f"/dev/cambricon-caps/cap_dev{minor}_mi{part.id}",)
            profile = assignment.annotations.get(DSMLU_PROFILE, f"{minor}_0_0")
            annotations = {DSMLU_ASSIGNED: "true", DSMLU_INSTANCE: f"{profile}_{share.slices[0].id}"}
        else:
            nodes += [f"/dev/cambr-msgq:{minor}", f"/dev/cambr-rpc:{minor}", f"/dev/cmsg_ctrl{minor}"]
    env = {VARIABLE: ",".join(str(share.device.minor) for share in assignment.shares)}
    return ContainerGrant(env, tuple(dict.fromkeys((*nodes, *CONTROL_NODES))), annotations=annotations)


def _health(record: Any) -> Health:
    return cambricon_health(record.health, record.driver_state)


def _plugin_extra(device: Device) -> dict[str, int]:
    return {
        "cambricon.com/mlu.smlu.vcore": 100,
        "cambricon.com/mlu.smlu.vmemory": device.memory // SMLU_MEMORY_UNIT,
        "cambricon.com/real-mlu-counts": 1,
    }


VENDOR = Vendor(
    title="Cambricon",
    any_model="mlu370-x8",
    hardware=CAMBRICON,
    provider=_provider,
    grant=cambricon_grant,
    nodes=cambricon_nodes,
    health=_health,
    dra=plain_driver("mlu.cambricon.com", "mlu", part_kind="smlu"),
    names=CardNames(VARIABLE, NODE),
    probe_globs=("/dev/cambricon*",),
    details=lambda record: {"serial": record.serial.decode()},
    device_id=lambda device: f"MLU-{device.uuid}",
    plugin_resource="cambricon.com/mlu",
    plugin_extra=_plugin_extra,
    shared_plugin=SharedPlugin(DSMLU_ASSIGNED, DSMLU_LOCK),
    by_daemon=True,
    daemon_knows_root=False,  # `cnmon` does not print it: requests aligned to PCIe never fit there
    visible="MLU_VISIBLE_DEVICES",
)
