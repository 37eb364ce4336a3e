"""Mellanox RDMA NICs. The grant follows koordlet's hook "rdma device inject"."""

from seatrial.fake_devices.rdma.hardware import MELLANOX
from seatrial.harness.devices.ib_ports import port_health
from seatrial.harness.devices.provider import Assignment, ContainerGrant, Device, DeviceProvider, Driver
from seatrial.harness.devices.vendors.claim_driver import Attributes, ClaimDriver
from seatrial.harness.devices.vendors.descriptor import UNIT, CardNames, Vendor
from seatrial.scheduler.api import device as words

CONTROL_NODE = "/dev/infiniband/rdma_cm"
NODE = "/dev/infiniband/uverbs"


def _provider() -> type[DeviceProvider]:
    from seatrial.harness.devices.rdma import RdmaProvider

    return RdmaProvider


def rdma_grant(assignment: Assignment) -> ContainerGrant:
    """The connection manager, then the verbs node of each virtual function, or of the NIC where none was allocated."""
    nodes = [CONTROL_NODE]
    for share in assignment.shares:
        if share.functions:
            nodes += [f"{NODE}{function.uverbs}" for function in share.functions if function.uverbs is not None]
        else:
            nodes += share.device.nodes
    return ContainerGrant(nodes=tuple(nodes))


def _attributes(device: Device, _driver: Driver) -> Attributes:
    return {
        "rdma": {"bool": True},
        "rdmaDevice": {"string": device.kernel_name},
        "pciAddress": {"string": device.bus_id},
        "sriovVfs": {"int": len(device.functions)},
    }


VENDOR = Vendor(
    title="RDMA",
    hardware=MELLANOX,
    provider=_provider,
    grant=rdma_grant,
    nodes=lambda number: (f"{NODE}{number}",),
    health=lambda record: port_health([record.port_state]),
    dra=ClaimDriver("dra.net", "", lambda device: f"rdma-{device.minor}", _attributes, shared=False),
    names=CardNames("", NODE),
    probe_globs=("/dev/infiniband/*",),
    kind="rdma",
    device_id=lambda device: device.bus_id,
    amounts=lambda _: {words.RDMA: UNIT},
)
