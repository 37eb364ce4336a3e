"""NodeMetric and NodeSLO: what a node's agent reports, and what it is to enforce (Koordinator apis/slo/v1alpha1)."""

from typing import Any

from seatrial.scheduler.api.wire import ObjectMeta, ResourceList, Wire

NODE_METRICS_PATH = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
NODE_SLOS_PATH = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"

# The ConfigMap with the settings of all nodes, and its keys.
CONFIG_NAMESPACE, CONFIG_NAME = "koordinator-system", "slo-controller-config"
CONFIG_COLOCATION = "colocation-config"
CONFIG_THRESHOLD, CONFIG_QOS, CONFIG_BURST, CONFIG_SYSTEM = (
    "resource-threshold-config",
    "resource-qos-config",
    "cpu-burst-config",
    "system-config",
)
CONFIG_STRATEGIES = (CONFIG_THRESHOLD, CONFIG_QOS, CONFIG_BURST, CONFIG_SYSTEM)  # with clusterStrategy, nodeStrategies

# Resources of nodes that pods of the classes batch and mid request: thousandths of a core as a plain number, bytes.
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU, MID_MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"

# Annotations of nodes.
ORIGIN_ALLOCATABLE = "node.koordinator.sh/originExtendedAllocatable"  # batch resources before those of third parties
THIRD_PARTY_ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"  # amounts before amplification
USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"  # replace those of LoadAwareSchedulingArgs

# Annotations of pods, read where LoadAwareSchedulingArgs.allowCustomizeEstimation is set.
ESTIMATED_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ESTIMATED_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
ESTIMATED_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"

AVG, P50, P90, P95, P99 = "avg", "p50", "p90", "p95", "p99"
AGGREGATIONS = (AVG, P50, P90, P95, P99)

AGGREGATE_SECONDS, REPORT_SECONDS = 300, 60
AGGREGATE_DURATIONS = ("5m", "10m", "30m")
WITHOUT_PAGE_CACHE = "usageWithoutPageCache"


class ResourceUsage(Wire, frozen=True):
    """Used amounts by resource name."""

    resources: ResourceList = {}


class AggregatedUsage(Wire, frozen=True):
    """Usage by aggregation (`avg`, `p50`, `p90`, `p95`, `p99`) over `duration`, a Go duration."""

    usage: dict[str, ResourceUsage] = {}
    duration: str = ""


class PodMetricInfo(Wire, frozen=True):
    """Usage of one pod, with its Koordinator priority class and QoS class."""

    namespace: str = ""
    name: str = ""
    priority: str = ""
    qos: str = ""
    pod_usage: ResourceUsage = ResourceUsage()


class HostApplicationMetric(Wire, frozen=True):
    """Usage of a program outside of pods."""

    name: str = ""
    usage: ResourceUsage = ResourceUsage()
    priority: str = ""
    qos: str = ""


class NodeMetricInfo(Wire, frozen=True):
    """Usage of the node, and of its programs outside of pods."""

    node_usage: ResourceUsage = ResourceUsage()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceUsage = ResourceUsage()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()


class ReclaimableMetric(Wire, frozen=True):
    """Amounts that pods of class Prod have requested and do not use."""

    resource: ResourceUsage = ResourceUsage()


class NodeMetricStatus(Wire, frozen=True):
    """`update_time` None or `node_metric` None: nothing has been reported yet."""

    update_time: str | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: tuple[PodMetricInfo, ...] = ()
    host_application_metric: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable_metric: ReclaimableMetric | None = None


class AggregatePolicy(Wire, frozen=True):
    """Durations of aggregated usage, as Go durations."""

    durations: tuple[str, ...] = ()


class CollectPolicy(Wire, frozen=True):
    """How often the node agent reports, and over which durations; None: the defaults."""

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: str | None = None


class NodeMetricSpec(Wire, frozen=True):
    """How the node agent reports usage."""

    metric_collect_policy: CollectPolicy | None = None


class NodeMetric(Wire, frozen=True):
    """Koordinator's usage report of one node; it has the name of its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


class NodeSlo(Wire, frozen=True):
    """How a node's agent shares the machine between service classes; it has the name of its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class ThirdPartyAllocation(Wire, frozen=True):
    """What a scheduler beside Kubernetes has given away on a node."""

    name: str = ""
    priority: str = ""
    resources: ResourceList = {}


class ThirdPartyAllocations(Wire, frozen=True):
    """The annotation `thirdPartyAllocations` of a node."""

    allocations: tuple[ThirdPartyAllocation, ...] = ()
