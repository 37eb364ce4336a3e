"""Durations of plugins and extension points, measured in one cycle of ten, the first included (FWK-R29).

One call of a plugin is one observation, however many nodes and classes the call covers. Calls that a plugin makes to
other plugins count as part of its own duration.

The duration of an extension point is the sum over its plugins within one cycle. It is 0 when cached results answered.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.serving.histogram import Histogram

EVERY = 10  # one cycle in this many is timed; upstream samples at random with the same probability
PLUGIN_SECONDS = tuple(0.00001 * 1.5**power for power in range(20))  # upstream's: 10 µs to 22 ms
POINT_SECONDS = tuple(0.0001 * 2**power for power in range(12))  # upstream's: 0.1 ms to 0.2 s

PRE_FILTER, FILTER, POST_FILTER = "PreFilter", "Filter", "PostFilter"
PRE_SCORE, SCORE, RESERVE, PERMIT = "PreScore", "Score", "Reserve", "Permit"
PRE_BIND = "PreBind"
PRE_ENQUEUE, UNRESERVE, POST_BIND = "PreEnqueue", "Unreserve", "PostBind"  # not in cycles, or not in all
BEFORE_PRE_FILTER, AFTER_PRE_FILTER = "BeforePreFilter", "AfterPreFilter"  # Koordinator's
BIND, BINDER = "Bind", "DefaultBinder"  # we send one request; upstream times a plugin here

METHODS = {
    "pre_filter": PRE_FILTER,
    "filter": FILTER,
    "filter_batch": FILTER,
    "filter_classes_batch": FILTER,
    "reasons_batch": FILTER,
    "post_filter": POST_FILTER,
    "pre_score": PRE_SCORE,
    "survey": SCORE,
    "score": SCORE,
    "score_batch": SCORE,
    "score_classes_batch": SCORE,
    "normalize": SCORE,
}  # each method's point, by upstream's name; of Reserve and PreBind, which every decision comes by, the callers ask

NAMES = {
    Code.SUCCESS: "Success",
    Code.SKIP: "Skip",
    Code.WAIT: "Wait",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}  # upstream's
OK = NAMES[Code.SUCCESS]  # looked up once: the hash of an enumeration's member is a Python call

T = TypeVar("T")
Method = Callable[..., Any]
Key = tuple[str, str, str]


class Named(Protocol):
    """A plugin: only its name is needed here."""

    name: ClassVar[str]


class Timing:
    """Both histograms of one scheduler, by their labels."""

    def __init__(self, clock: Clock) -> None:
        self.by_plugin: dict[Key, Histogram] = {}  # plugin, extension point, status
        self.by_point: dict[Key, Histogram] = {}  # extension point, status, profile
        self.pre_filter: Status | None = None  # why PreFilter ended the cycle that is being timed
        self._clock = clock
        self.paused = True
        self._cancelled = False
        self._bindings = 0
        self._calls: Counter[str] = Counter()  # of `of_point`, by point
        self._spent: dict[str, float] = {}  # seconds by point, in this cycle
        self._statuses: dict[str, str] = {}  # the last status by point, in this cycle

    def start(self) -> None:
        """Begin a timed cycle."""
        self.pre_filter = None
        self._cancelled = False
        self._spent.clear()
        self._statuses.clear()
        self.paused = False

    def stop(self) -> None:
        self.paused = True

    def cancel(self) -> None:
        """A plugin raised in the current cycle: do not record the cycle."""
        self._cancelled = True

    def record_cycle(self, profile: str, *, placed: bool, waits: bool) -> None:
        """Record the timed calls as one whole cycle of a pod that was placed, or was not.

        `waits`: members have places and wait for their group, as upstream's plugin has them wait in Permit.
        """
        if self._cancelled:
            return
        if self.pre_filter is not None:
            self._point(PRE_FILTER, NAMES[self.pre_filter.code], profile)
        else:
            self._point(PRE_FILTER, OK, profile)
            self._point(FILTER, OK, profile)  # also where no node is left, as upstream has it
            if placed or RESERVE in self._spent:
                self._point(PRE_SCORE, OK, profile)
                self._point(SCORE, OK, profile)
                self._point(RESERVE, self._statuses.get(RESERVE, OK), profile)
            if placed or waits or PERMIT in self._statuses:
                self._point(PERMIT, NAMES[Code.WAIT] if waits else self._statuses.get(PERMIT, OK), profile)
            if placed:
                self._point(PRE_BIND, OK, profile)
        for point in (BEFORE_PRE_FILTER, AFTER_PRE_FILTER):
            if point in self._statuses:
                self._point(point, self._statuses[point], profile)
        if POST_FILTER in self._statuses:
            self._point(POST_FILTER, self._statuses[POST_FILTER], profile)

    def of_point(self, point: str, profile: str, run: Callable[..., T], *request: object) -> T:
        """Call what runs the plugins of a point that no cycle records; one call in ten is observed, as for cycles."""
        calls = self._calls[point] = self._calls[point] + 1
        if calls % EVERY != 1:
            return run(*request)
        began = self._clock.monotonic()
        result = run(*request)
        seconds = self._clock.monotonic() - began
        _of(self.by_point, (point, _status(result), profile), POINT_SECONDS).observe(seconds)
        return result

    def bind(self, profile: str, seconds: float, *, ok: bool) -> None:
        """Record a binding that ended `seconds` after its decision; one in ten is observed, as for cycles."""
        self._bindings += 1
        if self._bindings % EVERY == 1:
            status = OK if ok else NAMES[Code.ERROR]
            _of(self.by_point, (BIND, status, profile), POINT_SECONDS).observe(seconds)
            _of(self.by_plugin, (BINDER, BIND, status), PLUGIN_SECONDS).observe(seconds)

    def _point(self, point: str, status: str, profile: str) -> None:
        _of(self.by_point, (point, status, profile), POINT_SECONDS).observe(self._spent.get(point, 0.0))

    def ask(self, point: str, plugin: Named, method: Method, *request: object) -> Any:
        """Call the plugin's method and time it; call only during a timed cycle, which is while not `paused`."""
        self.paused = True  # calls that the plugin makes meanwhile count as its own
        began = self._clock.monotonic()
        try:
            result = method(*request)
        finally:
            self.paused = False
        seconds = self._clock.monotonic() - began
        status = self._statuses[point] = _status(result)
        self._spent[point] = self._spent.get(point, 0.0) + seconds
        _of(self.by_plugin, (plugin.name, point, status), PLUGIN_SECONDS).observe(seconds)
        return result


def _status(result: object) -> str:
    """Upstream's name of the status; a result for many nodes at once, or in numbers, counts as Success."""
    if result is SUCCESS:
        return OK
    if isinstance(result, PostFilterResult):
        result = result.status
    if isinstance(result, Status):
        return NAMES[result.code]
    return NAMES[Code.SKIP] if result is False else OK  # False: PreScore skips the plugin


def _of(
    histograms: dict[tuple[str, str, str], Histogram], key: tuple[str, str, str], bounds: Sequence[float]
) -> Histogram:
    histogram = histograms.get(key)
    if histogram is None:
        histogram = histograms[key] = Histogram(bounds)
    return histogram
