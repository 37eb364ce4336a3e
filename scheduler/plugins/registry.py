"""All plugins that a profile can name: those of this package, and those that other packages install by entry point.

Another package declares a plugin in its metadata, under the name that profiles use:

    [project.entry-points."seatrial.scheduler.plugins"]
    NodeColour = "colours.plugin:NodeColour"

The class derives from base classes of `seatrial.scheduler.framework.extension_points`. Its constructor takes a
`Handle`, and `args` if the class names a type of arguments in `args_type`. An entry point is loaded when a profile
names it, so that a broken package affects only the profiles that use it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import Any

from seatrial.scheduler.framework.entry_points import PluginError, check_class, installed, load
from seatrial.scheduler.framework.extension_points import Args, Bind, Plugin, check_plugin
from seatrial.scheduler.plugins import ARGS, ON_REQUEST, TABLE

GROUP = "seatrial.scheduler.plugins"


@dataclass(frozen=True, slots=True)
class Registered:
    """A plugin class with the type of its arguments (None: it takes none)."""

    kind: type[Plugin]
    args: type[Args] | None


class Registry:
    """Finds plugins by name. A built-in plugin cannot be replaced by an entry point of the same name."""

    def __init__(self, more: Iterable[type[Plugin]] = ()) -> None:
        """`more`: plugin classes to add to the built-in ones.

        Raises:
            PluginError: a class of `more` is not usable.
        """
        self._plugins = {name: Registered(kind, ARGS.get(name)) for name, (kind, _) in TABLE.items()}
        for kind in more:
            self._plugins[kind.name] = _checked(kind, kind.name, f"plugin {kind.name}")

    @cached_property
    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """Installed entry points by name. Read only when a profile names a plugin that is not built in."""
        return installed(GROUP)

    def __iter__(self) -> Iterator[str]:
        """All names: those of built-in plugins in default order, then those of entry points."""
        yield from self._plugins
        yield from sorted(self._entry_points.keys() - self._plugins.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._plugins or name in self._entry_points

    @property
    def defaults(self) -> list[tuple[str, int]]:
        """Plugins that run in every profile, with their default weights."""
        return [(name, weight) for name, (_, weight) in TABLE.items() if name not in ON_REQUEST]

    def find(self, name: str) -> Registered:
        """The plugin of that name.

        Raises:
            PluginError: its entry point is ambiguous, cannot be loaded, or is not a plugin.
            KeyError: there is no such plugin; see `in`.
        """
        entry = self._plugins.get(name)
        if entry is None:
            kind, where = load(name, self._entry_points[name])
            entry = self._plugins[name] = _checked(kind, name, where)
        return entry


def _checked(kind: Any, name: str, where: str) -> Registered:
    if not (isinstance(kind, type) and issubclass(kind, Plugin)):
        raise PluginError(
            f"{where}: expected a subclass of scheduler.framework.extension_points.Plugin, found {kind!r}"
        )
    try:
        check_plugin(kind)
    except ValueError as error:
        raise PluginError(f"{where}: {error}") from error
    check_class(kind, name, where)
    if issubclass(kind, Bind):
        raise PluginError(
            f"{where}: Bind plugins of other packages are not supported, because the scheduler writes bindings itself;"
            " use PreBind or PostBind"
        )
    args = kind.args_type
    if args is not None and not issubclass(args, Args):
        raise PluginError(f"{where}: args_type: expected a subclass of Args or None, found {args!r}")
    return Registered(kind, args)
