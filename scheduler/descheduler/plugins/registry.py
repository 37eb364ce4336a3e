"""Plugins that a profile can name: the table of our strategies, and what other packages install by entry point.

Another package declares a strategy or an evictor in its metadata, under the name that profiles use:

    [project.entry-points."seatrial.descheduler.plugins"]
    RemoveRedPods = "colours.plugin:RemoveRedPods"

A strategy derives from `Deschedule` or `Balance` of `seatrial.scheduler.descheduler.framework`; its constructor takes
its arguments. An evictor derives from `Evictor`; its constructor takes an `EvictorContext` and its arguments. Both name
the type of their arguments in `args`. An entry point is loaded when a profile names it.
"""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any

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


class PluginError(ValueError):
    """A plugin of another package cannot be used. The message names the entry point and the reason."""


def installed() -> dict[str, list[EntryPoint]]:
    """The entry points of other packages by name, without names of built-in plugins."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in PLUGINS:
            found.setdefault(point.name, []).append(point)
    return found


def load_installed(name: str, points: list[EntryPoint]) -> type[Plugin] | type[Evictor]:
    """The class behind an entry point.

    Raises:
        PluginError: it is ambiguous, cannot be loaded, or is neither a strategy nor an evictor.
    """
    if len({point.value for point in points}) > 1:
        sources = " and ".join(map(_source, points))
        raise PluginError(f"plugin {name}: expected one entry point, found {sources}; uninstall one of the packages")
    where = f"plugin {name}: {_source(points[0])}"
    try:
        kind: Any = points[0].load()
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Plugin | Evictor)):
        raise PluginError(f"{where}: expected a subclass of Deschedule, Balance or Evictor, found {kind!r}")
    if kind.name != name:
        raise PluginError(f"{where}: expected the class attribute name = {name!r}, found {kind.name!r}")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise PluginError(f"{where}: the class does not implement {missing}")
    args = getattr(kind, "args", None)
    if not (isinstance(args, type) and issubclass(args, Args)):
        raise PluginError(f"{where}: args: expected a subclass of Args, found {args!r}")
    return kind


def _source(point: EntryPoint) -> str:
    distribution = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return f"entry point {point.value!r}{distribution}"
