"""The table of plugins: name → class. The order in it is the default order, the number the default score weight."""

from scheduler.framework.points import Plugin
from scheduler.plugins.binding import DefaultBinder
from scheduler.plugins.defaultpreemption import DefaultPreemption, DefaultPreemptionArgs
from scheduler.plugins.deviceshare.args import DeviceShareArgs
from scheduler.plugins.deviceshare.plugin import DeviceShare
from scheduler.plugins.imagelocality import ImageLocality
from scheduler.plugins.interpodaffinity.plugin import InterPodAffinity, InterPodAffinityArgs
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesources.balanced import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from scheduler.plugins.noderesources.fit import NodeResourcesFit, NodeResourcesFitArgs
from scheduler.plugins.placement import NodeAffinity, NodeName, NodeUnschedulable, TaintToleration
from scheduler.plugins.podtopologyspread.plugin import PodTopologySpread, PodTopologySpreadArgs
from scheduler.plugins.queueing import PrioritySort, SchedulingGates

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
        (PodTopologySpread, 2),
        (InterPodAffinity, 2),
        (DeviceShare, 1),
        (DefaultPreemption, 0),
        (NodeResourcesBalancedAllocation, 1),
        (ImageLocality, 1),
        (DefaultBinder, 0),
    )
}

ARGS = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DeviceShare": DeviceShareArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
}
