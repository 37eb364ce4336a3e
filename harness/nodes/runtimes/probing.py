"""The startup, readiness and liveness probes of a running container, by kubelet's rules.

The other two wait until the startup probe has succeeded; readiness starts as not ready; a probe fails after as many
consecutive failures as its threshold. A failed startup or liveness probe ends the container.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from seatrial.harness.nodes.pod_parts import Probe
from seatrial.harness.nodes.runtimes.handlers import Place, Unwell, perform
from seatrial.scheduler.api.clock import Clock, Timer

log = logging.getLogger(__name__)


class Probing:
    """The probes of one run of one container."""

    def __init__(
        self,
        place: Place,
        clock: Clock,
        *,
        changed: Callable[[bool, bool], object],
        kill: Callable[[Probe, str], object],
    ) -> None:
        """`changed(ready, up)` is called when either changes; `kill(probe, why)` once, when the container has to
        end."""
        plan = place.plan
        self._place, self._clock, self._changed, self._kill = place, clock, changed, kill
        self.up = plan.startup_probe is None
        self.ready = plan.readiness_probe is None and self.up
        self._tasks: list[_ProbeLoop] = []
        self._began = clock.monotonic()

    def start(self) -> None:
        """Start probing; initial delays count from now."""
        startup = self._place.plan.startup_probe
        if startup is None:
            self._after_startup()
        else:
            self._ask("startup", startup, self._startup)

    def close(self) -> None:
        """Stop probing."""
        for task in self._tasks:
            task.close()
        self._tasks.clear()

    def _after_startup(self) -> None:
        plan = self._place.plan
        if plan.readiness_probe is not None:
            self._ask("readiness", plan.readiness_probe, self._readiness)
        if plan.liveness_probe is not None:
            self._ask("liveness", plan.liveness_probe, self._liveness)

    def _ask(self, kind: str, probe: Probe, result: "Callable[[Probe, bool, str], object]") -> None:
        waited = self._clock.monotonic() - self._began
        asking = _ProbeLoop(kind, probe, self._place, self._clock, result)
        self._tasks.append(asking)
        asking.start(max(0.0, probe.initial_delay_seconds - waited))

    def _startup(self, probe: Probe, well: bool, why: str) -> None:
        self.close()
        if not well:
            self._kill(probe, f"startup probe failed: {why}")
            return
        self.up, self.ready = True, self._place.plan.readiness_probe is None
        self._changed(self.ready, self.up)
        self._after_startup()

    def _readiness(self, _probe: Probe, well: bool, _why: str) -> None:
        if well != self.ready:
            self.ready = well
            self._changed(self.ready, self.up)

    def _liveness(self, probe: Probe, well: bool, why: str) -> None:
        if not well:
            self.close()
            self._kill(probe, f"liveness probe failed: {why}")


class _ProbeLoop:
    """One probe, run each period; a result counts after as many equal consecutive results as its threshold."""

    def __init__(
        self, kind: str, probe: Probe, place: Place, clock: Clock, result: Callable[[Probe, bool, str], object]
    ) -> None:
        self._kind, self._probe, self._place, self._clock, self._on_result = kind, probe, place, clock, result
        self._row = 0  # consecutive equal results: above 0 successes, below 0 failures
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, delay: float) -> None:
        self._timer = self._clock.call_later(delay, self._once)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not _current():
            self._task.cancel()
        self._on_result = _ignore

    def _once(self) -> None:
        self._timer = self._clock.call_later(max(1, self._probe.period_seconds), self._once)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run_once())

    async def _run_once(self) -> None:
        why = ""
        try:
            await perform(self._probe, self._place, within=max(1, self._probe.timeout_seconds))
        except Unwell as error:
            why = str(error)
            log.info("probe failed kind=%s container=%s why=%s", self._kind, self._place.plan.name, why)
        self._row = (max(self._row, 0) + 1) if not why else (min(self._row, 0) - 1)
        if self._row >= max(1, self._probe.success_threshold):
            self._on_result(self._probe, True, "")
        elif -self._row >= max(1, self._probe.failure_threshold):
            self._on_result(self._probe, False, why)


def _ignore(_probe: Probe, _no_pressure: bool, _why: str) -> None:
    """The result of a closed probe is dropped."""


def _current() -> "asyncio.Task[None] | None":
    with contextlib.suppress(RuntimeError):
        return asyncio.current_task()
    return None
