"""How long plugins take, looked at in one cycle of ten, the first included (R29).

One call of a plugin is one observation, of however many nodes and classes it judges. What a plugin asks of others while
it is asked counts as its own.

An extension point's duration is the sum over its plugins within one cycle: 0 where kept verdicts said everything.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scheduler.api.clock import Clock
from scheduler.framework.histogram import Histogram
from scheduler.framework.points import Plugin, PostFilterResult, Transformer
from scheduler.framework.status import SUCCESS, Code, Status

BASES = Plugin.__module__
EVERY = 10  # one cycle of so many is timed; upstream draws lots with the same chance
PLUGIN_SECONDS = tuple(0.00001 * 1.5**power for power in range(20))  # upstream's: 10 µs to 22 ms
POINT_SECONDS = tuple(0.0001 * 2**power for power in range(12))  # upstream's: 0.1 ms to 0.2 s

PRE_FILTER, FILTER, POST_FILTER = "PreFilter", "Filter", "PostFilter"
PRE_SCORE, SCORE, RESERVE, PRE_BIND = "PreScore", "Score", "Reserve", "PreBind"
BEFORE_PRE_FILTER, AFTER_PRE_FILTER = "BeforePreFilter", "AfterPreFilter"  # Koordinator's
BIND, BINDER = "Bind", "DefaultBinder"  # one request of ours, whatever plugin upstream has for it

METHODS = {
    "pre_filter": PRE_FILTER,
    "filter": FILTER,
    "passing": FILTER,
    "passing_on": FILTER,
    "rejections": FILTER,
    "post_filter": POST_FILTER,
    "pre_score": PRE_SCORE,
    "survey": SCORE,
    "score": SCORE,
    "scores": SCORE,
    "scores_on": SCORE,
    "normalize": SCORE,
}  # each method's point, by upstream's name; of Reserve and PreBind, which every decision comes by, the callers ask
TRANSFORMING = {**METHODS, "pre_filter": BEFORE_PRE_FILTER, "overlooked": AFTER_PRE_FILTER}
"""Those of a transformer: what it looks for in `pre_filter`, Koordinator's look for one point earlier."""

NAMES = {
    Code.SUCCESS: "Success",
    Code.SKIP: "Skip",
    Code.WAIT: "Wait",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}  # upstream's
OK = NAMES[Code.SUCCESS]  # looked up once: the hash of an enumeration's member is a Python call

Method = Callable[..., Any]
Key = tuple[str, str, str]
P = TypeVar("P", bound=Plugin)


class Timing:
    """Both histograms of one scheduler, by their labels."""

    def __init__(self, clock: Clock) -> None:
        self.by_plugin: dict[Key, Histogram] = {}  # plugin, extension point, status
        self.by_point: dict[Key, Histogram] = {}  # extension point, status, profile
        self.pre_filter: Status | None = None  # why PreFilter ended the cycle that is being timed
        self._clock = clock
        self.resting = True
        self._bindings = 0
        self._spent: dict[str, float] = {}  # seconds by point, in this cycle
        self._said: dict[str, str] = {}  # the last status by point, in this cycle

    def covering(self, kind: type[P]) -> type[P]:
        """A plugin's class, with our clock around the methods of extension points.

        A class made once, rather than methods exchanged for each cycle that is timed: CPython finds the attributes of
        an object whose dictionary was touched, or of a class that changes, more slowly for good.
        """
        methods = {
            name: point
            for name, point in (TRANSFORMING if issubclass(kind, Transformer) else METHODS).items()
            if getattr(getattr(kind, name, None), "__module__", BASES) != BASES  # what these do is nobody's work
        }
        return type(kind.__name__, (kind,), {
            "__doc__": kind.__doc__,
            "__module__": kind.__module__,
            **{name: self._cover(kind, name, point) for name, point in methods.items()},
        })  # fmt: skip

    def start(self) -> None:
        """A cycle begins that is timed."""
        self.pre_filter = None
        self._spent.clear()
        self._said.clear()
        self.resting = False

    def stop(self) -> None:
        self.resting = True

    def settled(self, profile: str, *, placed: bool) -> None:
        """What was timed was one whole cycle, and `placed` its pod or did not."""
        if self.pre_filter is not None:
            self._point(PRE_FILTER, NAMES[self.pre_filter.code], profile)
        else:
            self._point(PRE_FILTER, OK, profile)
            self._point(FILTER, OK, profile)  # also where no node is left, as upstream has it
            if placed or RESERVE in self._spent:
                self._point(PRE_SCORE, OK, profile)
                self._point(SCORE, OK, profile)
                self._point(RESERVE, self._said.get(RESERVE, OK), profile)
            if placed:
                self._point(PRE_BIND, OK, profile)
        if POST_FILTER in self._said:
            self._point(POST_FILTER, self._said[POST_FILTER], profile)

    def bind(self, profile: str, seconds: float, *, ok: bool) -> None:
        """A binding was settled after so long, from its decision; one of ten is observed, as cycles are."""
        self._bindings += 1
        if self._bindings % EVERY == 1:
            status = OK if ok else NAMES[Code.ERROR]
            _of(self.by_point, (BIND, status, profile), POINT_SECONDS).observe(seconds)
            _of(self.by_plugin, (BINDER, BIND, status), PLUGIN_SECONDS).observe(seconds)

    def _point(self, point: str, status: str, profile: str) -> None:
        _of(self.by_point, (point, status, profile), POINT_SECONDS).observe(self._spent.get(point, 0.0))

    def _cover(self, kind: type[Plugin], name: str, point: str) -> Method:
        method: Method = getattr(kind, name)
        if len(inspect.signature(method).parameters) == len(("self", "state", "pod", "node")):

            def of_node(plugin: Plugin, state: object, pod: object, node: object) -> Any:
                if self.resting:  # the usual case, and asked once for each node and plugin in preemption
                    return method(plugin, state, pod, node)
                return self.ask(point, plugin, method, plugin, state, pod, node)

            return of_node

        def of_many(plugin: Plugin, *asked: object) -> Any:
            if self.resting:
                return method(plugin, *asked)
            return self.ask(point, plugin, method, plugin, *asked)

        return of_many

    def ask(self, point: str, plugin: Plugin, method: Method, *asked: object) -> Any:
        """Call the plugin's method in a cycle that is timed, which is while it is not `resting`."""
        self.resting = True  # what the plugin asks meanwhile is its own
        began = self._clock.monotonic()
        try:
            result = method(*asked)
        finally:
            self.resting = False
        seconds = self._clock.monotonic() - began
        status = self._said[point] = _status(result)
        self._spent[point] = self._spent.get(point, 0.0) + seconds
        _of(self.by_plugin, (plugin.name, point, status), PLUGIN_SECONDS).observe(seconds)
        return result


def _status(result: object) -> str:
    """Upstream's word for what a plugin said; of many nodes at once, or in numbers: that it said it."""
    if result is SUCCESS:
        return OK
    if isinstance(result, PostFilterResult):
        result = result.status
    if isinstance(result, Status):
        return NAMES[result.code]
    return NAMES[Code.SKIP] if result is False else OK  # False: PreScore has nothing to say


def _of(
    histograms: dict[tuple[str, str, str], Histogram], key: tuple[str, str, str], bounds: Sequence[float]
) -> Histogram:
    found = histograms.get(key)
    if found is None:
        found = histograms[key] = Histogram(bounds)
    return found
