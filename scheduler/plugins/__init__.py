"""The table of plugins: name → class, in default order, with default score weights.

Plugins in `ON_REQUEST` run only where a profile names them.
"""

from seatrial.scheduler.framework.extension_points import Args, Plugin
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.binding import DefaultBinder
from seatrial.scheduler.plugins.coscheduling.args import CoschedulingArgs
from seatrial.scheduler.plugins.coscheduling.plugin import Coscheduling
from seatrial.scheduler.plugins.coscheduling.registration import register as register_gangs
from seatrial.scheduler.plugins.defaultpreemption.args import DefaultPreemptionArgs
from seatrial.scheduler.plugins.defaultpreemption.plugin import DefaultPreemption
from seatrial.scheduler.plugins.deviceshare.args import DeviceShareArgs
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.plugins.deviceshare.registration import register as register_devices
from seatrial.scheduler.plugins.dynamicresources.plugin import DynamicResources, DynamicResourcesArgs
from seatrial.scheduler.plugins.dynamicresources.registration import register as register_claims
from seatrial.scheduler.plugins.elasticquota.args import ElasticQuotaArgs
from seatrial.scheduler.plugins.elasticquota.plugin import ElasticQuota
from seatrial.scheduler.plugins.elasticquota.registration import register as register_quotas
from seatrial.scheduler.plugins.errorinjection import ErrorInjection
from seatrial.scheduler.plugins.fragmentation.args import DeviceFragmentationArgs
from seatrial.scheduler.plugins.fragmentation.plugin import DeviceFragmentation
from seatrial.scheduler.plugins.imagelocality import ImageLocality
from seatrial.scheduler.plugins.interpodaffinity.plugin import InterPodAffinity, InterPodAffinityArgs
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.plugins.loadaware.plugin import LoadAwareScheduling
from seatrial.scheduler.plugins.loadaware.registration import register as register_loads
from seatrial.scheduler.plugins.nodenuma.args import NodeNUMAResourceArgs
from seatrial.scheduler.plugins.nodenuma.plugin import NodeNUMAResource
from seatrial.scheduler.plugins.nodenuma.registration import register as register_numa
from seatrial.scheduler.plugins.nodeports import NodePorts, used_ports
from seatrial.scheduler.plugins.noderesources.balanced import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from seatrial.scheduler.plugins.noderesources.fit import NodeResourcesFit, NodeResourcesFitArgs
from seatrial.scheduler.plugins.noderesources.fitplus import NodeResourcesFitPlus, NodeResourcesFitPlusArgs
from seatrial.scheduler.plugins.noderesources.scarce import ScarceResourceAvoidance, ScarceResourceAvoidanceArgs
from seatrial.scheduler.plugins.placement import (
    NodeAffinity,
    NodeAffinityArgs,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from seatrial.scheduler.plugins.podtopologyspread.plugin import PodTopologySpread, PodTopologySpreadArgs
from seatrial.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from seatrial.scheduler.plugins.reservation.args import ReservationArgs
from seatrial.scheduler.plugins.reservation.plugin import Reservation
from seatrial.scheduler.plugins.reservation.registration import register as register_reservations
from seatrial.scheduler.plugins.volumes.attaching import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from seatrial.scheduler.plugins.volumes.binding import VolumeBinding, VolumeBindingArgs

TABLE: dict[str, tuple[type[Plugin], int]] = {
    plugin.name: (plugin, weight)
    for plugin, weight in (
        (SchedulingGates, 0),
        (PrioritySort, 0),
        (NodeUnschedulable, 0),
        (NodeName, 0),
        (TaintToleration, 3),
        (NodeAffinity, 2),
        (NodePorts, 0),
        (NodeResourcesFit, 1),
        (VolumeRestrictions, 0),
        (NodeVolumeLimits, 0),
        (VolumeBinding, 0),
        (VolumeZone, 0),
        (PodTopologySpread, 2),
        (InterPodAffinity, 2),
        (DynamicResources, 2),
        (NodeNUMAResource, 1),
        (DeviceShare, 1),
        (Reservation, 5000),
        (Coscheduling, 0),
        (ElasticQuota, 0),
        (DefaultPreemption, 0),
        (NodeResourcesBalancedAllocation, 1),
        (ImageLocality, 1),
        (DefaultBinder, 0),
        (NodeResourcesFitPlus, 0),
        (ScarceResourceAvoidance, 0),
        (DeviceFragmentation, 0),
        (ErrorInjection, 0),
        (LoadAwareScheduling, 1),
    )
}

ON_REQUEST = frozenset(
    {
        NodeResourcesFitPlus.name,
        ScarceResourceAvoidance.name,
        DeviceFragmentation.name,
        ErrorInjection.name,
        LoadAwareScheduling.name,
    }
)

ARGS: dict[str, type[Args]] = {
    "Coscheduling": CoschedulingArgs,
    "DefaultPreemption": DefaultPreemptionArgs,
    "DeviceFragmentation": DeviceFragmentationArgs,
    "DeviceShare": DeviceShareArgs,
    "DynamicResources": DynamicResourcesArgs,
    "ElasticQuota": ElasticQuotaArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "LoadAwareScheduling": LoadAwareSchedulingArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeNUMAResource": NodeNUMAResourceArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "NodeResourcesFitPlus": NodeResourcesFitPlusArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "Reservation": ReservationArgs,
    "ScarceResourceAvoidance": ScarceResourceAvoidanceArgs,
    "VolumeBinding": VolumeBindingArgs,
}


def register(handle: Handle) -> None:
    """Register what plugins of this package add besides extension points. Call after all profiles are built.

    It does not depend on the profiles: Device objects are followed even if no profile runs DeviceShare.
    """
    handle.describe_nodes("usedPorts", used_ports)
    register_claims(handle)
    register_devices(handle)
    register_gangs(handle)
    register_numa(handle)
    register_reservations(handle)
    register_quotas(handle)
    register_loads(handle)
