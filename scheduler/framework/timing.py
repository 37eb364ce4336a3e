"""How long plugins take, looked at in one cycle of ten, the first included (R29).

In a cycle that is timed, the methods of its profile's plugins are covered by ones that look at the clock, and
uncovered when it is over; in all other cycles nothing is different from a scheduler without any of this. One call is
one observation, of however many nodes and classes it judges. What a plugin asks of others while it is asked counts as
its own.

An extension point's duration is the sum over its plugins within one cycle: 0 where kept verdicts said everything.
"""

from collections.abc import Callable, Sequence
from typing import Any

from scheduler.api.clock import Clock
from scheduler.framework.histogram import Histogram
from scheduler.framework.points import Plugin, PostFilterResult
from scheduler.framework.status import Code, Status

EVERY = 10  # one cycle of so many is timed; upstream draws lots with the same chance
PLUGIN_SECONDS = tuple(0.00001 * 1.5**power for power in range(20))  # upstream's: 10 µs to 22 ms
POINT_SECONDS = tuple(0.0001 * 2**power for power in range(12))  # upstream's: 0.1 ms to 0.2 s

PRE_FILTER, FILTER, POST_FILTER = "PreFilter", "Filter", "PostFilter"
PRE_SCORE, SCORE, RESERVE, PRE_BIND = "PreScore", "Score", "Reserve", "PreBind"

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
    "reserve": RESERVE,
    "pre_bind": PRE_BIND,
}  # each method's point, by upstream's name

NAMES = {
    Code.SUCCESS: "Success",
    Code.SKIP: "Skip",
    Code.WAIT: "Wait",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}  # upstream's

Cover = Callable[..., Any]


class Timing:
    """Both histograms of one scheduler, by their labels."""

    def __init__(self, clock: Clock) -> None:
        self.by_plugin: dict[tuple[str, str, str], Histogram] = {}  # plugin, extension point, status
        self.by_point: dict[tuple[str, str, str], Histogram] = {}  # extension point, status, profile
        self.pre_filter: Status | None = None  # why PreFilter ended the cycle that is being timed
        self._clock = clock
        self._covers: dict[Plugin, dict[str, Cover]] = {}
        self._covered: Sequence[Plugin] = ()
        self._asking = False
        self._spent: dict[str, float] = {}  # seconds by point, in this cycle
        self._said: dict[str, str] = {}  # the last status by point, in this cycle

    def start(self, plugins: Sequence[Plugin]) -> None:
        """Time these from now on."""
        self._covered, self.pre_filter = plugins, None
        self._spent.clear()
        self._said.clear()
        for plugin in plugins:
            covers = self._covers.get(plugin)
            if covers is None:
                covers = self._covers[plugin] = self._make_covers(plugin)
            vars(plugin).update(covers)  # in front of the class's methods, of which nothing is changed

    def stop(self) -> None:
        for plugin in self._covered:
            attributes = vars(plugin)
            for name in self._covers[plugin]:
                del attributes[name]
        self._covered = ()

    def settled(self, profile: str, *, placed: bool) -> None:
        """What was timed was one whole cycle, and `placed` its pod or did not."""
        if self.pre_filter is not None:
            self._point(PRE_FILTER, NAMES[self.pre_filter.code], profile)
        else:
            self._point(PRE_FILTER, NAMES[Code.SUCCESS], profile)
            self._point(FILTER, NAMES[Code.SUCCESS], profile)  # also where no node is left, as upstream has it
            if placed or RESERVE in self._spent:
                self._point(PRE_SCORE, NAMES[Code.SUCCESS], profile)
                self._point(SCORE, NAMES[Code.SUCCESS], profile)
                self._point(RESERVE, self._said.get(RESERVE, NAMES[Code.SUCCESS]), profile)
            if placed:
                self._point(PRE_BIND, NAMES[Code.SUCCESS], profile)
        if POST_FILTER in self._said:
            self._point(POST_FILTER, self._said[POST_FILTER], profile)

    def _point(self, point: str, status: str, profile: str) -> None:
        _of(self.by_point, (point, status, profile), POINT_SECONDS).observe(self._spent.get(point, 0.0))

    def _make_covers(self, plugin: Plugin) -> dict[str, Cover]:
        return {
            name: self._cover(plugin.name, point, getattr(plugin, name))
            for name, point in METHODS.items()
            if hasattr(plugin, name)
        }

    def _cover(self, plugin: str, point: str, method: Cover) -> Cover:
        def timed(*args: Any, **named: Any) -> Any:
            if self._asking:
                return method(*args, **named)
            self._asking = True
            began = self._clock.monotonic()
            try:
                result = method(*args, **named)
            finally:
                self._asking = False
            seconds = self._clock.monotonic() - began
            status = self._said[point] = _status(result)
            self._spent[point] = self._spent.get(point, 0.0) + seconds
            _of(self.by_plugin, (plugin, point, status), PLUGIN_SECONDS).observe(seconds)
            return result

        return timed


def _status(result: object) -> str:
    """Upstream's word for what a plugin said; of many nodes at once, or in numbers: that it said it."""
    if isinstance(result, PostFilterResult):
        result = result.status
    if isinstance(result, Status):
        return NAMES[result.code]
    return NAMES[Code.SKIP if result is False else Code.SUCCESS]  # False: PreScore has nothing to say


def _of(
    histograms: dict[tuple[str, str, str], Histogram], key: tuple[str, str, str], bounds: Sequence[float]
) -> Histogram:
    found = histograms.get(key)
    if found is None:
        found = histograms[key] = Histogram(bounds)
    return found
