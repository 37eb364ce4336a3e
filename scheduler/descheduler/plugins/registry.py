"""The table of strategies: name → class."""

from seatrial.scheduler.descheduler.framework import Plugin
from seatrial.scheduler.descheduler.plugins.anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from seatrial.scheduler.descheduler.plugins.custom_priority import CustomPriority
from seatrial.scheduler.descheduler.plugins.fragmentation_aware import FragmentationAware
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoad
from seatrial.scheduler.descheduler.plugins.node_utilization import HighNodeUtilization, LowNodeUtilization
from seatrial.scheduler.descheduler.plugins.pod_life_time import PodLifeTime
from seatrial.scheduler.descheduler.plugins.pod_strategies import (
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
)
from seatrial.scheduler.descheduler.plugins.remove_duplicates import RemoveDuplicates
from seatrial.scheduler.descheduler.plugins.scale_down_bin_pack import ScaleDownBinPack
from seatrial.scheduler.descheduler.plugins.topology_spread import RemovePodsViolatingTopologySpreadConstraint

PLUGINS: dict[str, type[Plugin]] = {
    kind.name: kind
    for kind in (
        CustomPriority,
        FragmentationAware,
        HighNodeUtilization,
        LowNodeLoad,
        LowNodeUtilization,
        PodLifeTime,
        RemoveDuplicates,
        RemoveFailedPods,
        RemovePodsHavingTooManyRestarts,
        RemovePodsViolatingInterPodAntiAffinity,
        RemovePodsViolatingNodeAffinity,
        RemovePodsViolatingNodeTaints,
        RemovePodsViolatingTopologySpreadConstraint,
        ScaleDownBinPack,
    )
}
