"""Plugins that a profile can name: the table of our strategies, and what other packages install by entry point.

Another package declares a strategy or an evictor in its metadata, under the name that profiles use:

    [project.entry-points."seatrial.descheduler.plugins"]
    RemoveRedPods = "colours.plugin:RemoveRedPods"

A strategy derives from `Deschedule` or `Balance` of `seatrial.scheduler.descheduler.framework`; its constructor takes
its arguments. An evictor derives from `Evictor`; its constructor takes an `EvictorContext` and its arguments. Both name
the type of their arguments in `args`. An entry point is loaded when a profile names it.
"""

from importlib.metadata import EntryPoint

from seatrial.scheduler.descheduler.args import Args
from seatrial.scheduler.descheduler.framework import Evictor, Plugin
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
from seatrial.scheduler.framework import entry_points
from seatrial.scheduler.framework.entry_points import PluginError

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

GROUP = "seatrial.descheduler.plugins"


def installed() -> dict[str, list[EntryPoint]]:
    """The entry points of other packages by name, without names of built-in plugins."""
    return {name: points for name, points in entry_points.installed(GROUP).items() if name not in PLUGINS}


def load_installed(name: str, points: list[EntryPoint]) -> type[Plugin] | type[Evictor]:
    """The class behind an entry point.

    Raises:
        PluginError: it is ambiguous, cannot be loaded, or is neither a strategy nor an evictor.
    """
    kind, where = entry_points.load(name, points)
    if not (isinstance(kind, type) and issubclass(kind, Plugin | Evictor)):
        raise PluginError(f"{where}: expected a subclass of Deschedule, Balance or Evictor, found {kind!r}")
    entry_points.check_class(kind, name, where)
    args = getattr(kind, "args", None)
    if not (isinstance(args, type) and issubclass(args, Args)):
        raise PluginError(f"{where}: args: expected a subclass of Args, found {args!r}")
    return kind
