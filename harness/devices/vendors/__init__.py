"""The table of vendors. Every module that treats vendors differently reads it here; none names a vendor itself.

A vendor belongs here with everything that `Vendor` asks for, and in `fake_devices/vendors.py` with its `Hardware`;
`harness/devices/tests/test_vendors.py` lists what a registered vendor lacks. What belongs elsewhere: calls of a
vendor's library (the provider, `harness/devices/<provider>.py`) and the scheduler's adaptation to device plugins.
"""

from collections.abc import Mapping

from seatrial.harness.devices.vendors import amd, cambricon, huawei, mellanox, nvidia
from seatrial.harness.devices.vendors.descriptor import Vendor

VENDORS: Mapping[str, Vendor] = {
    vendor.name: vendor for vendor in (nvidia.VENDOR, huawei.VENDOR, cambricon.VENDOR, mellanox.VENDOR, amd.VENDOR)
}
