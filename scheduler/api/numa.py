"""CPUs and NUMA nodes: the NodeResourceTopology object, and labels and annotations of pods and nodes.

Keys and values follow apis/extension/{resource,numa_aware,node}.go; the object is topology.node.k8s.io/v1alpha1.
"""

from collections.abc import Iterable

from msgspec import field

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quantity import Quantity
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList, Wire, decoder
from seatrial.scheduler.api.wrong_values import shown

GROUP_VERSION = "topology.node.k8s.io/v1alpha1"
NODE_TOPOLOGIES_PATH = f"/apis/{GROUP_VERSION}/noderesourcetopologies"

# On pods.
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"

# On nodes.
CPU_BIND_POLICY_LABEL = "node.koordinator.sh/cpu-bind-policy"
NUMA_ALLOCATE_STRATEGY_LABEL = "node.koordinator.sh/numa-allocate-strategy"
NUMA_TOPOLOGY_POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
CPU_NORMALIZATION_RATIO = "node.koordinator.sh/cpu-normalization-ratio"
CPU_NORMALIZATION_ENABLED = "node.koordinator.sh/cpu-normalization-enabled"  # a label

# On NodeResourceTopology objects; the first two are copies of the node's.
NODE_RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
KUBELET_CPU_MANAGER = "kubelet.koordinator.sh/cpu-manager-policy"

FULL_PCPUS, SPREAD_BY_PCPUS, CONSTRAINED_BURST, DEFAULT = "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst", "Default"
PCPU_LEVEL, NUMA_NODE_LEVEL = "PCPULevel", "NUMANodeLevel"
BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "BestEffort", "Restricted", "SingleNUMANode"
NUMA_POLICIES = frozenset({BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE})
REQUIRED, PREFERRED = "Required", "Preferred"

LSE, LSR = "LSE", "LSR"
PROD = "koord-prod"


class ResourceSpec(Wire, frozen=True):
    """CPU binding requirements of a pod."""

    required_cpu_bind_policy: str = field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = field(default="", name="preferredCPUExclusivePolicy")


class CpuBasicInfo(Wire, frozen=True):
    """The CPU model of a node, as koordlet reports it."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    vendor_id: str = field(default="", name="vendorID")


class NumaTopologySpec(Wire, frozen=True):
    """Alignment requirements of a pod."""

    policy: str = field(default="", name="numaTopologyPolicy")
    exclusive: str = field(default="", name="singleNUMANodeExclusive")


class NumaNodeResource(Wire, frozen=True, omit_defaults=False):
    """A pod's part of one NUMA node."""

    node: int = 0
    resources: ResourceList = {}


class ResourceStatus(Wire, frozen=True):
    """The CPUs and NUMA amounts allocated to a pod."""

    cpuset: str = ""
    numa_node_resources: tuple[NumaNodeResource, ...] = ()


class CpuDetail(Wire, frozen=True, omit_defaults=False):
    """One logical CPU: its core, socket and NUMA node."""

    id: int = 0
    core: int = 0
    socket: int = 0
    node: int = 0


class CpuTopology(Wire, frozen=True):
    """All logical CPUs of a node."""

    detail: tuple[CpuDetail, ...] = ()


class PodCpuAlloc(Wire, frozen=True):
    """CPUs that kubelet gave to a pod."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class CpuManagerPolicy(Wire, frozen=True):
    """kubelet's CPU manager policy and its options."""

    policy: str = ""
    options: dict[str, str] = {}
    reserved_cpus: str = field(default="", name="reservedCPUs")


class NodeReservation(Wire, frozen=True):
    """Resources and CPUs of a node that pods do not get."""

    resources: ResourceList = {}
    reserved_cpus: str = field(default="", name="reservedCPUs")
    apply_policy: str = ""


class SystemQos(Wire, frozen=True):
    """CPUs that are kept for pods of class SYSTEM."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None  # None means true


class ZoneResource(Wire, frozen=True, omit_defaults=False):
    """A resource of one NUMA node."""

    name: str
    capacity: Quantity = 0
    allocatable: Quantity = 0
    available: Quantity = 0


class Zone(Wire, frozen=True):
    """A NUMA node with its resources."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(Wire, frozen=True):
    """The NUMA nodes of one node; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()


MAX_NUMA_NODES = 8  # of one node: each set of them is tried. The kubelet has the same limit (`maxAllowableNUMANodes`)
MAX_CPUS = 1 << 14  # of one node: twice as many as Linux can have


class CpusetError(ValueError):
    """The text is not a Linux list of CPUs."""


def parse_cpuset(text: str) -> frozenset[int]:
    """A Linux CPU list such as `0-3,8` as a set of numbers; the empty text is the empty set.

    Raises:
        CpusetError: the text is not such a list.
    """
    numbers: set[int] = set()
    listed = 0
    for part in text.split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        low = integer(first, 0, MAX_CPUS - 1)
        high = integer(last, 0, MAX_CPUS - 1) if dash else low
        if low is None or high is None:
            raise CpusetError(f"expected a list of CPUs such as 0-3,8, found {shown(text)}")
        if high < low:
            raise CpusetError(f"expected ascending ranges of CPUs, found {part.strip()!r}")
        listed += high - low + 1
        if listed > MAX_CPUS:
            raise CpusetError(f"expected at most {MAX_CPUS} CPUs, found more in {shown(text)}")
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def cpuset_text(cpus: Iterable[int]) -> str:
    """Numbers as a Linux CPU list with ranges."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)


decode_status = decoder(ResourceStatus)
