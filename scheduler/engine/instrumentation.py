"""Wraps plugin classes so that calls of their extension point methods are timed."""

import inspect
from functools import cache
from typing import Any, TypeVar

from seatrial.scheduler.framework import accelerations, extension_points
from seatrial.scheduler.framework.extension_points import Plugin, Transformer
from seatrial.scheduler.framework.timing import AFTER_PRE_FILTER, BEFORE_PRE_FILTER, METHODS, Method

BASES = frozenset({accelerations.__name__, extension_points.__name__})

TRANSFORMING = {**METHODS, "pre_filter": BEFORE_PRE_FILTER, "overlooked": AFTER_PRE_FILTER}
"""Those of a transformer: what it looks for in `pre_filter`, Koordinator's look for one point earlier."""

P = TypeVar("P", bound=Plugin)


def with_timing(kind: type[P]) -> type[P]:
    """Subclass of a plugin class whose extension point methods are timed through the instance's `timing`.

    Made once for each plugin class, not for each scheduler: classes are in reference cycles and in the caches of
    abstract base classes, so a process that builds many schedulers would keep all of them, and each isinstance would
    slow down.

    A subclass, rather than methods exchanged for each timed cycle: CPython permanently slows down attribute access on
    objects whose dictionary was touched and on classes that change.
    """
    points = TRANSFORMING if issubclass(kind, Transformer) else METHODS
    methods = tuple(
        (name, getattr(kind, name))
        for name in points
        if getattr(getattr(kind, name, None), "__module__", extension_points.__name__)
        not in BASES  # inherited defaults do no work
    )
    return _subclass(kind, methods)  # methods are part of the key, so a patched class is wrapped anew


@cache
def _subclass(kind: type[P], methods: tuple[tuple[str, Method], ...]) -> type[P]:
    points = TRANSFORMING if issubclass(kind, Transformer) else METHODS
    return type(
        kind.__name__,
        (kind,),
        {
            "__doc__": kind.__doc__,
            "__module__": kind.__module__,
            **{name: _timed(method, points[name]) for name, method in methods},
        },
    )


def _timed(method: Method, point: str) -> Method:
    if len(inspect.signature(method).parameters) == len(("self", "state", "pod", "node")):

        def of_node(plugin: Plugin, state: object, pod: object, node: object) -> Any:
            timing = plugin.timing
            if timing.paused:  # the usual case; preemption calls this once for each node and plugin
                return method(plugin, state, pod, node)
            return timing.ask(point, plugin, method, plugin, state, pod, node)

        return of_node

    def of_many(plugin: Plugin, *args: object) -> Any:
        timing = plugin.timing
        if timing.paused:
            return method(plugin, *args)
        return timing.ask(point, plugin, method, plugin, *args)

    return of_many
