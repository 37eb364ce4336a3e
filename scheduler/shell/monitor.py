"""Monitor: logs pods whose scheduling takes too long, once per period (FWK-R31).

A pod counts from its decision until the API server has settled its binding. The decision itself is over before anything
else can look; a binding can hang.
"""

import logging
from collections import Counter

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.durations import go_text
from seatrial.scheduler.cache.nodeinfo import PodInfo

log = logging.getLogger(__name__)

PERIOD, TIMEOUT = 10.0, 30.0  # seconds, Koordinator's defaults


class Monitor:
    """Checks every `period` seconds, while pods are in scheduling, which took longer than `timeout` seconds."""

    def __init__(self, clock: Clock, *, period: float = PERIOD, timeout: float = TIMEOUT) -> None:
        self.timeouts: Counter[str] = Counter()  # by profile, one for each log line
        self._clock, self._period, self._timeout = clock, period, timeout
        self._begun: dict[str, tuple[PodInfo, float]] = {}
        self._timer: Timer | None = None

    def begin(self, info: PodInfo) -> None:
        self._begun[info.uid] = (info, self._clock.monotonic())
        if self._timer is None:
            self._timer = self._clock.call_later(self._period, self._look)

    def end(self, uid: str) -> float:
        """End the scheduling of a pod. Returns its duration in seconds; 0 if it had not begun."""
        if uid not in self._begun:
            return 0.0
        info, began = self._begun.pop(uid)
        took = self._clock.monotonic() - began
        self._judge(info, took)
        return took

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._clock.call_later(self._period, self._look) if self._begun else None
        now = self._clock.monotonic()
        for info, began in self._begun.values():
            self._judge(info, now - began)

    def _judge(self, info: PodInfo, took: float) -> None:
        if took <= self._timeout:
            return
        log.warning(
            "!!!CRITICAL TIMEOUT!!! scheduling pod %s(%s) took longer (%s) than the timeout %s",
            info.key,
            info.uid,
            go_text(round(took, 3)),
            go_text(self._timeout),
        )
        self.timeouts[info.pod.spec.scheduler_name] += 1
