"""AMD GPUs.

The grant follows AMD's device plugin (ROCm/k8s-device-plugin, `Allocate`): /dev/kfd and the render node of each GPU.
The plugin sets no variable, since the ROCm runtime finds the nodes; ROCR_VISIBLE_DEVICES is added, so that a container
that can open all nodes uses its own GPUs alone.

Koordinator's agent has no reader for AMD. GPUs are reported through the file that koord-device-daemon writes, the way
that koordlet offers to other vendors.
"""

from typing import Any

from seatrial.fake_devices.amd.hardware import AMD, BLOCK_UMC
from seatrial.harness.devices.provider import Assignment, ContainerGrant, Device, DeviceProvider, Driver, Health
from seatrial.harness.devices.rsmi import FIRST_RENDER_MINOR, failed_health, ras_health, render_nodes
from seatrial.harness.devices.vendors.claim_driver import Attributes, ClaimDriver, version
from seatrial.harness.devices.vendors.descriptor import CardNames, Vendor
from seatrial.scheduler.api import device as words

CONTROL_NODE = "/dev/kfd"
NODE, VARIABLE = "/dev/dri/renderD", "ROCR_VISIBLE_DEVICES"


def _provider() -> type[DeviceProvider]:
    from seatrial.harness.devices.amd import AmdProvider

    return AmdProvider


def amd_grant(assignment: Assignment) -> ContainerGrant:
    """Whole GPUs: the compute driver's node, each GPU's render node, and their UUIDs for the ROCm runtime."""
    devices = [share.device for share in assignment.shares]
    env = {VARIABLE: ",".join(device.uuid for device in devices)}
    return ContainerGrant(env, (CONTROL_NODE, *(node for device in devices for node in device.nodes)))


def _health(record: Any) -> Health:
    if record.code:
        return failed_health(record.code)
    bad = [record.error_codes[0]] if record.error_count else []
    return ras_health([*bad, BLOCK_UMC] if record.ecc_uncorrected else bad)


def _attributes(device: Device, driver: Driver) -> Attributes:
    return {
        "type": {"string": "amdgpu"},
        "pciAddr": {"string": device.bus_id},
        "cardIndex": {"int": device.minor},
        "renderIndex": {"int": FIRST_RENDER_MINOR + device.minor},
        "productName": {"string": device.model},
        "driverVersion": version(driver.driver),
    }


def _claim_name(device: Device) -> str:
    return f"gpu-{device.minor}-{FIRST_RENDER_MINOR + device.minor}"


VENDOR = Vendor(
    title="AMD",
    any_model="mi300x",
    hardware=AMD,
    provider=_provider,
    grant=amd_grant,
    nodes=render_nodes,
    health=_health,
    dra=ClaimDriver("gpu.amd.com", "amdgpu", _claim_name, _attributes, shared=False),
    names=CardNames(VARIABLE, NODE, FIRST_RENDER_MINOR, by_uuid=True),
    probe_globs=("/dev/kfd", "/dev/dri/*"),
    details=lambda record: {"serial": record.serial.decode()},
    plugin_resource=words.AMD_GPU,
    by_daemon=True,
    visible=VARIABLE,
    visible_by_uuid=True,
)
