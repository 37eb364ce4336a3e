"""Classes that other packages install by entry point: plugins of the scheduler and of the descheduler."""

import inspect
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any


class PluginError(ValueError):
    """A plugin cannot be used. The message names the plugin, its source and the reason."""


def installed(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name."""
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        points.setdefault(point.name, []).append(point)
    return points


def load(name: str, points: Sequence[EntryPoint]) -> tuple[Any, str]:
    """What the entry points of this name stand for, and where it comes from, for messages.

    Raises:
        PluginError: the entry points differ, or theirs cannot be loaded.
    """
    if len({point.value for point in points}) > 1:
        sources = " and ".join(map(_source, points))
        raise PluginError(f"plugin {name}: expected one entry point, found {sources}; uninstall one of the packages")
    where = f"plugin {name}: {_source(points[0])}"
    try:
        return points[0].load(), where
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error


def check_class(kind: Any, name: str, where: str) -> None:
    """Check that the class has this name and implements all methods of its base classes.

    Raises:
        PluginError: it does not.
    """
    if kind.name != name:
        raise PluginError(f"{where}: expected the class attribute name = {name!r}, found {kind.name!r}")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise PluginError(f"{where}: the class does not implement {missing}")


def _source(point: EntryPoint) -> str:
    distribution = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return f"entry point {point.value!r}{distribution}"
