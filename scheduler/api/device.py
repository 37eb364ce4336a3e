"""The Device object and the device annotations of pods (Koordinator apis/extension/device_share.go)."""

from collections.abc import Mapping
from typing import Literal

from msgspec import field

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import Quantity
from seatrial.scheduler.api.wire import Condition, LabelSelector, ObjectMeta, ResourceList, Wire, decoder

DeviceType = Literal["gpu", "rdma", "fpga"]
DEVICE_TYPES: tuple[DeviceType, ...] = ("gpu", "rdma", "fpga")

GROUP_VERSION = "scheduling.koordinator.sh/v1alpha1"

DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"
HAMI_CORE = "HAMi-core"

GPU_VENDOR_LABEL = "node.koordinator.sh/gpu-vendor"
GPU_MODEL_LABEL = "node.koordinator.sh/gpu-model"
GPU_DRIVER_LABEL = "node.koordinator.sh/gpu-driver-version"
GPU_PARTITION_POLICY_LABEL = "node.koordinator.sh/gpu-partition-policy"
SECONDARY_PLANNED_LABEL = "node.koordinator.sh/secondary-device-well-planned"

GPU = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA = "koordinator.sh/rdma"
FPGA = "koordinator.sh/fpga"
NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
HYGON_DCU = "dcu.com/gpu"
NPU_CORE = "huawei.com/npu-core"
NPU_CPU = "huawei.com/npu-cpu"
NPU_DVPP = "huawei.com/npu-dvpp"

RENAMED = {  # names of v0.7, still accepted
    "kubernetes.io/rdma": RDMA,
    "kubernetes.io/fpga": FPGA,
    "kubernetes.io/gpu": GPU,
    "kubernetes.io/gpu-core": GPU_CORE,
    "kubernetes.io/gpu-memory": GPU_MEMORY,
    "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
}


class DeviceTopology(Wire, frozen=True):
    """The device's place in the machine: CPU socket, NUMA node, PCIe ID and bus address; -1: unknown."""

    socket_id: int = field(default=-1, name="socketID")
    node_id: int = field(default=-1, name="nodeID")
    pcie_id: str = field(default="", name="pcieID")
    bus_id: str = field(default="", name="busID")


class VirtualFunction(Wire, frozen=True):
    """An SR-IOV virtual function of a NIC."""

    minor: int = 0
    bus_id: str = field(default="", name="busID")


class VirtualFunctionGroup(Wire, frozen=True):
    """Virtual functions with the same labels, by which `vfSelector` selects them."""

    labels: dict[str, str] = {}
    vfs: tuple[VirtualFunction, ...] = ()


class DeviceInfo(Wire, frozen=True):
    """One device of a node; `resources` are its total amounts."""

    type: str
    minor: int | None = None
    id: str = ""
    module_id: int | None = field(default=None, name="moduleID")
    labels: dict[str, str] = {}
    health: bool = False
    resources: ResourceList = {}
    topology: DeviceTopology | None = None
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()
    conditions: tuple[Condition, ...] = ()


class DeviceSpec(Wire, frozen=True):
    """The devices of a node, of all types."""

    devices: tuple[DeviceInfo, ...] = ()


class Device(Wire, frozen=True):
    """All devices of one node; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()


class AllocationExtension(Wire, frozen=True):
    """What an allocation has besides amounts: virtual functions, or the template of a virtual NPU."""

    vfs: tuple[VirtualFunction, ...] = ()
    gpu_shared_resource_template: str = ""


class DeviceAllocation(Wire, frozen=True):
    """One device's share of a pod's allocation."""

    minor: int
    resources: dict[str, Quantity]
    id: str = ""  # the UUID of a card, the bus address of a NIC
    extension: AllocationExtension | None = None


class DeviceHint(Wire, frozen=True):
    """One type's part of `device-allocate-hint`."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class JointAllocate(Wire, frozen=True):
    """The annotation `device-joint-allocate`: types that are allocated together, the leading one first."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class PartitionSpec(Wire, frozen=True):
    """The annotation `gpu-partition-spec` of a pod; the bandwidth is a quantity, as in 200Gi."""

    allocate_policy: str = ""
    ring_bus_bandwidth: Quantity = ""


class Partition(Wire, frozen=True):
    """One entry of a partition table: cards that may be allocated together, with their bandwidth and score."""

    minors: tuple[int, ...] = ()
    gpu_link_type: str = ""
    ring_bus_bandwidth: Quantity = ""
    allocation_score: int | str = 0  # v1.7's post writes a string


Allocations = dict[str, list[DeviceAllocation]]

_decode_allocations = decoder(Allocations)


def device_allocations(pod: Pod) -> Allocations:
    """A pod's allocated devices, by device type; empty without the annotation.

    Raises:
        msgspec.DecodeError: the annotation does not have Koordinator's format.
    """
    return parse_allocations(pod.metadata.annotations)


def parse_allocations(annotations: Mapping[str, str]) -> Allocations:
    """`device_allocations`, from the annotations."""
    annotation = annotations.get(DEVICE_ALLOCATED)
    return _decode_allocations(annotation) if annotation else {}
