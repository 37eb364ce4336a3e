"""Devices of this machine as its vendors' libraries report them, against the kernel's view of the same machine."""

from pathlib import Path

import pytest

from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.devices.survey import survey

pytestmark = [pytest.mark.needs(Capability.REAL_DEVICES)]

PCI = Path("/sys/bus/pci/devices")
INFINIBAND = Path("/sys/class/infiniband")
# Vendor IDs of PCI functions; accelerators have class 0x03.. (display controller) or 0x12.. (processing accelerator).
ACCELERATORS = {"nvidia": "0x10de", "huawei": "0x19e5", "cambricon": "0xcabc"}


def listed_by_the_kernel(vendor: str) -> int:
    """Accelerators by their PCI functions; RDMA NICs by their RDMA devices, without virtual functions."""
    if vendor not in ACCELERATORS:
        return sum(not (device / "device" / "physfn").exists() for device in INFINIBAND.iterdir())
    value = 0
    for function in PCI.iterdir():
        kind = (function / "class").read_text().strip()
        value += (function / "vendor").read_text().strip() == ACCELERATORS[vendor] and kind.startswith(("0x03", "0x12"))
    return value


@pytest.mark.case("DS-115", severity="critical")
@pytest.mark.parametrize(
    "vendor",
    [
        pytest.param("nvidia", marks=pytest.mark.feature("HIL-5.nvidia")),
        pytest.param("huawei", marks=pytest.mark.feature("HIL-5.ascend", "DEV-11.driver")),
        pytest.param("cambricon", marks=pytest.mark.feature("HIL-5.cambricon", "DEV-12.driver")),
        pytest.param("mellanox", marks=pytest.mark.feature("HIL-5.rdma")),
    ],
)
def test_the_library_and_the_kernel_agree(vendor: str) -> None:
    """As many healthy devices as the kernel lists, each with an identity of its own."""
    devices, missing = survey()
    mine = [device for device in devices if device.vendor == vendor]
    if not mine:
        pytest.skip(f"needs devices of {vendor}: {missing.get(vendor, 'this machine has none')}")

    assert len(mine) == listed_by_the_kernel(vendor)
    assert len({device.uuid for device in mine}) == len(mine)
