"""NodeMetric: the measured usage of a node and its pods (Koordinator apis/slo/v1alpha1)."""

from seatrial.scheduler.api.wire import ObjectMeta, ResourceList, Wire

NODE_METRICS_PATH = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"


class ResourceUsage(Wire, frozen=True):
    resources: ResourceList = {}


class PodMetricInfo(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    priority: str = ""
    qos: str = ""
    pod_usage: ResourceUsage = ResourceUsage()


class NodeMetricInfo(Wire, frozen=True):
    node_usage: ResourceUsage = ResourceUsage()
    system_usage: ResourceUsage = ResourceUsage()


class NodeMetricStatus(Wire, frozen=True):
    """`update_time` None or `node_metric` None: nothing has been reported yet."""

    update_time: str | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: tuple[PodMetricInfo, ...] = ()


class NodeMetric(Wire, frozen=True):
    """Has the name of its node."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeMetricStatus = NodeMetricStatus()
