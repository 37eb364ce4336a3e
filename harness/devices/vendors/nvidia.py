"""NVIDIA GPUs.

The grant follows koordlet's hook "gpu env inject" and NVIDIA's container runtime; HAMi-core's part follows the same
hook.
"""

import re
from typing import Any

from seatrial.fake_devices.nvidia.hardware import BRAND_NVIDIA, GPU_IS_LOST, NVIDIA
from seatrial.fake_devices.slices import MIG_PLACES, MIG_SLICES, mig_places
from seatrial.harness.devices.hami_core import hami_grant
from seatrial.harness.devices.nvml import BRANDS, gpu_label, gpu_nodes
from seatrial.harness.devices.provider import WELL, Assignment, ContainerGrant, Device, DeviceProvider, Driver, Health
from seatrial.harness.devices.vendors.claim_driver import Attributes, ClaimDriver, Cut, Part, sliced_facts, version
from seatrial.harness.devices.vendors.descriptor import CardNames, Vendor
from seatrial.harness.devices.xid import xid_health
from seatrial.scheduler.api import device as words

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_ARCHITECTURES = (  # first compute capability, and the name that NVIDIA's driver gives it (go-nvlib)
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada Lovelace"),
    ((8, 0), "Ampere"),
    ((7, 5), "Turing"),
    ((7, 0), "Volta"),
    ((6, 0), "Pascal"),
    ((5, 0), "Maxwell"),
    ((3, 0), "Kepler"),
)
NODE, VARIABLE = "/dev/nvidia", "NVIDIA_VISIBLE_DEVICES"


def _provider() -> type[DeviceProvider]:
    from seatrial.harness.devices.nvidia import NvidiaProvider

    return NvidiaProvider


def nvidia_grant(assignment: Assignment) -> ContainerGrant:
    """Cards by minor, as koordlet names them. NVIDIA's own runtime reads the numbers as NVML indices, which differ on
    some machines; the grant models what was allocated.

    Raises:
        ProviderError: HAMi-core was asked for and cannot be granted.
    """
    minors = [share.device.minor for share in assignment.shares]
    env = {VARIABLE: ",".join(map(str, minors))}
    caps = (node for share in assignment.shares for part in share.slices for node in part.nodes)
    nodes = (*(f"{NODE}{minor}" for minor in minors), *caps, *CONTROL_NODES)
    first = assignment.shares[0]
    if assignment.isolation != words.HAMI_CORE or first.whole:
        return ContainerGrant(env, nodes)
    hami_env, mounts = hami_grant(assignment, first)
    return ContainerGrant({**env, **hami_env}, nodes, mounts)


def _health(record: Any) -> Health:
    if record.error_count and record.error_codes[0]:
        return xid_health(record.error_codes[0], record.recovery_action)
    if record.code == GPU_IS_LOST:
        return Health(ok=False, code="GpuIsLost", message="GPU is lost", sticky=True)
    return WELL


def _details(record: Any) -> dict[str, Any]:
    board = (record.domain << 16 | record.bus << 8 | record.device << 3) & 0xFFFFFFFF
    return {
        "board": f"{board:x}",
        "serial": record.serial.decode(),
        "capability": f"{record.capability_major}.{record.capability_minor}",
        "brand": BRANDS[BRAND_NVIDIA],
    }


def _architecture(capability: str) -> str:
    number = tuple(int(part) for part in capability.split("."))
    return next((name for first, name in _ARCHITECTURES if number >= first), "Unknown")


def _attributes(device: Device, driver: Driver) -> Attributes:
    runtime = driver.runtime
    if "." not in runtime:  # as NVML counts: 12080 is 12.8
        runtime = f"{int(runtime or 0) // 1000}.{int(runtime or 0) % 1000 // 10}"
    reported: dict[str, dict[str, Any]] = {}
    if device.brand:
        reported["brand"] = {"string": device.brand}
    if device.capability:
        reported["architecture"] = {"string": _architecture(device.capability)}
        reported["cudaComputeCapability"] = version(device.capability)
    return {
        "type": {"string": "gpu"},
        "uuid": {"string": device.uuid},
        "productName": {"string": device.model},
        **reported,
        "driverVersion": version(driver.driver),
        "cudaDriverVersion": version(runtime),
    }


def _cut(device: Device) -> Cut | None:
    """MIG devices of each profile and place, as NVIDIA's driver offers them with its gate DynamicMIG."""
    facts = sliced_facts(device.vendor, device.model)
    if facts is None:
        return None
    parts: list[Part] = []
    for name, profile in facts.slices.items():
        size = mig_places(profile, device.memory)
        cores = facts.cores * profile.cores // MIG_SLICES
        amounts = {"memory": int(profile.memory), "multiprocessors": cores}
        for start in range(0, profile.count * size, size):
            places = {f"memory-slice-{place}": 1 for place in range(start, start + size)}
            own = _mig_name(name, profile.profile, start)
            parts.append(Part(own, name, {**amounts, **places}, amounts, _mig_attributes(device, name)))
    places = {f"memory-slice-{place}": 1 for place in range(MIG_PLACES)}
    return Cut({"memory": device.memory, "multiprocessors": facts.cores, **places}, tuple(parts))


def _made(device: Device) -> list[Part]:
    """The MIG devices that an administrator has made, as NVIDIA's driver offers them without that gate.

    Those that have a part of a GPU instance, as 1c.3g.40gb, are left out: NVIDIA's driver does not start with them.
    """
    return [
        Part(
            _mig_name(made.template, made.profile, made.places.start),
            made.template,
            {},
            {"memory": made.memory, **dict(made.engines), **{f"memorySlice{place}": 1 for place in made.places}},
            {**_mig_attributes(device, made.template), "uuid": {"string": made.id}},
            made,
        )
        for made in device.slices
        if made.profile >= 0 and "c." not in made.template
    ]


def _mig_name(template: str, profile: int, start: int) -> str:
    text = re.sub("[^a-z0-9]+", "-", template.lower().replace(".", "")).strip("-")  # 1g.10gb+me
    return f"mig-{text}-{profile}-{start}"


def _mig_attributes(device: Device, template: str) -> Attributes:
    return {"type": {"string": "mig"}, "parentUUID": {"string": device.uuid}, "profile": {"string": template}}


VENDOR = Vendor(
    title="NVIDIA",
    any_model="a10",
    hardware=NVIDIA,
    provider=_provider,
    grant=nvidia_grant,
    nodes=gpu_nodes,
    health=_health,
    dra=ClaimDriver(
        "gpu.nvidia.com",
        "gpu",
        lambda device: f"gpu-{device.minor}",
        _attributes,
        words.NVIDIA_GPU,
        {VARIABLE: "void"},  # NVIDIA's container runtime then adds no cards of its own
        cut=_cut,
        made=_made,
        part_kind="mig",
        part_class="mig.nvidia.com",
    ),
    names=CardNames(VARIABLE, NODE),
    probe_globs=("/dev/nvidia*",),
    label=lambda facts: gpu_label(facts.name),
    details=_details,
    plugin_resource=words.NVIDIA_GPU,
    visible="CUDA_VISIBLE_DEVICES",
    visible_by_uuid=True,
    oci_runtime="nvidia",
    measured=True,
)
