"""The table of strategies: name → class."""

from seatrial.scheduler.descheduler.framework import Plugin
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoad
from seatrial.scheduler.descheduler.plugins.pod_strategies import (
    PodLifeTime,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
)
from seatrial.scheduler.descheduler.plugins.remove_duplicates import RemoveDuplicates

PLUGINS: dict[str, type[Plugin]] = {
    kind.name: kind
    for kind in (
        LowNodeLoad,
        PodLifeTime,
        RemoveDuplicates,
        RemoveFailedPods,
        RemovePodsHavingTooManyRestarts,
        RemovePodsViolatingNodeAffinity,
        RemovePodsViolatingNodeTaints,
    )
}
