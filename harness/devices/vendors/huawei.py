"""Huawei Ascend NPUs. The grant follows ascend-docker-runtime."""

from typing import Any

from seatrial.fake_devices.ascend.hardware import HUAWEI
from seatrial.harness.devices.dcmi import davinci_nodes, dcmi_health
from seatrial.harness.devices.provider import Assignment, ContainerGrant, Device, DeviceProvider, Health
from seatrial.harness.devices.vendors.claim_driver import Cut, Part, plain_driver, sliced_facts
from seatrial.harness.devices.vendors.descriptor import UNIT, CardNames, Vendor
from seatrial.scheduler.api import device as words

CONTROL_NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
CREATES_VNPU = "ASCEND_VNPU_SPECS"  # ascend-docker-runtime creates a vNPU of this template for the container
NODE, VARIABLE = "/dev/davinci", "ASCEND_VISIBLE_DEVICES"


def _provider() -> type[DeviceProvider]:
    from seatrial.harness.devices.ascend import AscendProvider

    return AscendProvider


def ascend_grant(assignment: Assignment) -> ContainerGrant:
    """Whole chips by their physical ids; a vNPU under its own id, which the runtime shows as a davinci node."""
    slices = [part for share in assignment.shares for part in share.slices]
    if slices:
        ids = [part.id for part in slices]
        env = {VARIABLE: ",".join(ids), CREATES_VNPU: slices[0].template, "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}
        return ContainerGrant(env, (*(f"{NODE}{number}" for number in ids), *CONTROL_NODES))
    minors = [share.device.minor for share in assignment.shares]
    env = {VARIABLE: ",".join(map(str, minors))}
    return ContainerGrant(env, (*(f"{NODE}{minor}" for minor in minors), *CONTROL_NODES))


def _health(record: Any) -> Health:
    return dcmi_health(record.health, record.error_codes[0] if record.error_count else 0)


def _amounts(device: Device) -> dict[str, int]:
    return {
        words.GPU_MEMORY: device.memory,
        words.GPU_MEMORY_RATIO: UNIT,
        words.NPU_CORE: device.ai_cores,
        words.NPU_CPU: device.ai_cpus,
        words.NPU_DVPP: UNIT,
    }


def _cut(device: Device) -> Cut | None:
    """vNPUs of each template, as often as it fits on a chip."""
    facts = sliced_facts(device.vendor, device.model)
    if facts is None:
        return None
    parts = [
        Part(
            f"{name.replace('_', '-')}-{number}",
            name,
            amounts := {
                "memory": int(profile.memory),
                "ai-cores": profile.cores,
                "ai-cpus": profile.cpus,
                "dvpp": profile.dvpp,
            },
            {"memory": amounts["memory"], "aiCores": profile.cores, "aiCpus": profile.cpus, "dvpp": profile.dvpp},
            {"type": {"string": "vnpu"}, "parentUUID": {"string": device.uuid}, "template": {"string": name}},
        )
        for name, profile in facts.slices.items()
        for number in range(profile.count)
    ]
    whole = {"memory": device.memory, "ai-cores": device.ai_cores, "ai-cpus": device.ai_cpus, "dvpp": UNIT}
    return Cut(whole, tuple(parts))


VENDOR = Vendor(
    title="Ascend",
    any_model="ascend-910b3",
    hardware=HUAWEI,
    provider=_provider,
    grant=ascend_grant,
    nodes=davinci_nodes,
    health=_health,
    dra=plain_driver("npu.huawei.com", "npu", cut=_cut, part_kind="vnpu", part_class="vnpu.huawei.com", shared=False),
    names=CardNames(VARIABLE, NODE),
    probe_globs=("/dev/davinci*", "/dev/vdavinci*"),
    label=lambda facts: str(facts.label),
    details=lambda record: {"ai_cores": record.cores},
    device_id=lambda device: f"npu-{device.card}-{device.minor}",
    amounts=_amounts,
    plugin_resource="huawei.com/Ascend910",
    by_daemon=True,
    partition_links="hccs",
    visible="ASCEND_RT_VISIBLE_DEVICES",
    oci_runtime="ascend",
)
