"""The table of vendors whose hardware can be faked. A vendor is registered here and in `harness/devices/vendors`."""

from collections.abc import Mapping

from seatrial.fake_devices.amd.hardware import AMD
from seatrial.fake_devices.ascend.hardware import HUAWEI
from seatrial.fake_devices.cambricon.hardware import CAMBRICON
from seatrial.fake_devices.hardware import Hardware
from seatrial.fake_devices.nvidia.hardware import NVIDIA
from seatrial.fake_devices.rdma.hardware import MELLANOX

HARDWARE: Mapping[str, Hardware] = {vendor.name: vendor for vendor in (NVIDIA, HUAWEI, CAMBRICON, MELLANOX, AMD)}
BY_LIBRARY_CODE: Mapping[int, Hardware] = {vendor.code: vendor for vendor in HARDWARE.values()}
