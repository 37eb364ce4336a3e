"""NodeMetrics as the manager reads them: of all usage only CPU and memory, once for each pod.

Thousands of them come each minute; what they say beside this is neither decoded nor kept.
"""

from seatrial.scheduler.api.quantity import Quantity
from seatrial.scheduler.api.slo import NodeMetricSpec
from seatrial.scheduler.api.wire import ObjectMeta, Wire


class Used(Wire, frozen=True):
    """None: not reported."""

    cpu: Quantity | None = None
    memory: Quantity | None = None


class Usage(Wire, frozen=True):
    """As `ResourceUsage`."""

    resources: Used = Used()


class PodUsage(Wire, frozen=True):
    """As `PodMetricInfo`."""

    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: Usage = Usage()


class ApplicationUsage(Wire, frozen=True):
    """As `HostApplicationMetric`."""

    usage: Usage = Usage()
    priority: str = ""


class NodeUsage(Wire, frozen=True):
    """As `NodeMetricInfo`."""

    node_usage: Usage = Usage()
    system_usage: Usage = Usage()


class Reclaimable(Wire, frozen=True):
    """As `ReclaimableMetric`."""

    resource: Usage = Usage()


class UsageStatus(Wire, frozen=True):
    """As `NodeMetricStatus`."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] = ()
    host_application_metric: tuple[ApplicationUsage, ...] = ()
    prod_reclaimable_metric: Reclaimable | None = None


class UsageReport(Wire, frozen=True):
    """A NodeMetric."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: UsageStatus = UsageStatus()
