"""Exceptions of plugins: which plugin raised one, at which extension point, and how often.

A plugin that raises costs the pod its attempt, not its place in the queue, and other pods nothing. The plugin is found
in the traceback, so that calls of plugins need no wrapper.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from types import FrameType

from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.framework import timing
from seatrial.scheduler.framework.extension_points import Plugin

log = logging.getLogger(__name__)

SCHEDULER = "scheduler"  # the name where no plugin is in the traceback
MAX_TRACEBACKS = 1000  # places in the code whose tracebacks were logged

POINTS = {
    **timing.METHODS,
    "pre_enqueue": "PreEnqueue",
    "gate_key": "PreEnqueue",
    "sort_key": "QueueSort",
    "checked_key": "QueueSort",
    "gate": timing.PRE_FILTER,
    "gate_beside": timing.PRE_FILTER,
    "filter_signature": timing.FILTER,
    "slots_signature": timing.FILTER,
    "stack": timing.FILTER,
    "can_batch": timing.FILTER,
    "victim_removed": timing.FILTER,
    "victim_returned": timing.FILTER,
    "overlooked": timing.AFTER_PRE_FILTER,
    "chosen": timing.AFTER_PRE_FILTER,
    "post_filter_group": timing.POST_FILTER,
    "score_signature": timing.SCORE,
    "stack_scores": timing.SCORE,
    "can_batch_scores": timing.SCORE,
    "max_score_delta": timing.SCORE,
    "revised_rows": timing.SCORE,
    "reserve": timing.RESERVE,
    "unreserve": "Unreserve",
    "permit": timing.PERMIT,
    "pre_bind": timing.PRE_BIND,
    "post_bind": "PostBind",
}  # upstream's names, by method


class PluginErrors:
    """Counts and logs the exceptions of one scheduler's plugins."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # plugin, extension point or method
        self._logged: set[tuple[str, str, str]] = set()

    def record(self, error: Exception, concerned: str) -> str:
        """Count an exception, and log it: with its traceback the first time that it is raised at its place in the code.

        `concerned`: what was tried, as `pod=NAMESPACE/NAME`. Returns the message for users, in upstream's words.
        """
        plugin, point = origin(error)
        self.counts[plugin, point] += 1
        text = f'running {point} plugin "{plugin}": {type(error).__name__}: {error}'
        place = (plugin, type(error).__name__, _place(error))
        first = place not in self._logged and len(self._logged) < MAX_TRACEBACKS
        if first:
            self._logged.add(place)
        log.error("plugin raised %s why=%s", concerned, text, exc_info=error if first else None)
        return text


def origin(error: Exception) -> tuple[str, str]:
    """The plugin that raised an exception and its extension point: of nested calls, those of the innermost plugin.

    Without a plugin: a listener's class and method, or the scheduler and its function.
    """
    results = listener = ("", "")
    last = ""
    for frame in _frames(error):
        code = frame.f_code
        last = code.co_name
        receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(receiver, Plugin):
            if code.co_name in POINTS or results[0] != receiver.name:
                results = receiver.name, POINTS.get(code.co_name, code.co_name)
        elif isinstance(receiver, Listener):
            listener = type(receiver).__name__, code.co_name
    if results[0]:
        return results
    return listener if listener[0] else (SCHEDULER, last)


def _frames(error: Exception) -> Iterator[FrameType]:
    """The frames of the traceback, the outermost first."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _place(error: Exception) -> str:
    """File and line where the exception was raised."""
    step = error.__traceback__
    place = ""
    while step is not None:
        place, step = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}", step.tb_next
    return place
