"""The shell: runs the core with informers, writes of decisions and the clock, on any transport.

On an event loop it yields after SLICE decisions, so that responses and events are handled. In simulated time the same
code runs from the simulation's queue of actions.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node, PodDisruptionBudget
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.informer import Following, Informer
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.shell.binding import Binder
from seatrial.scheduler.shell.monitor import PERIOD, TIMEOUT, Monitor
from seatrial.scheduler.shell.services.metrics import Metrics
from seatrial.scheduler.shell.watched_kinds import KINDS

log = logging.getLogger(__name__)

SLICE = 64  # decisions before the loop gets control
MAX_IN_FLIGHT = 2048  # bindings without a response; more would only queue at the API server
DECIDE, DECIDE_AGAIN = "Core.decide", 1.0  # the longest pause in seconds after an exception
UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}

K = TypeVar("K", bound=Following)


class Shell:
    """Runs one core against one API server."""

    def __init__(
        self,
        core: Core,
        transport: Transport,
        clock: Clock,
        *,
        name: str = "seatrial-scheduler",
        on_synced: Callable[[], None] = lambda: None,
        standby: bool = False,
        monitor_period: float = PERIOD,
        scheduling_timeout: float = TIMEOUT,
    ) -> None:
        """`on_synced` is called when all informers are synced: before the first decision, and first on a standby.

        `standby`: follow the cluster, and decide nothing until `lead` is called. Every `monitor_period` seconds pods
        that are in scheduling for more than `scheduling_timeout` seconds are logged.
        """
        self.core = core
        intake = core.intake
        self._transport = transport
        self._clock = clock
        self._rest = rest = Rest(transport, clock)
        self.events = EventRecorder(rest, clock, name, f"{name}-{socket.gethostname()}")
        monitor = Monitor(clock, period=monitor_period, timeout=scheduling_timeout)
        self.binder = Binder(core, rest, clock, self.events, self._plan, monitor=monitor)
        self._decode_errors: Counter[str] = Counter()
        self.metrics = Metrics(core, monitor.timeouts, self._decode_errors)
        self._planned = False
        self._running = False
        core.handle.wakes.leading = not standby
        self._on_synced = on_synced
        core.handle.call_when_ready(self._plan)
        self._informers: list[Informer[Any]] = [
            *(
                self._follow(
                    kind.path,
                    _decoder(kind.type),
                    partial(kind.note, core, there=True),
                    partial(kind.note, core, there=False),
                    optional=True,
                )
                for kind in KINDS
            ),
            self._follow("/api/v1/nodes", _decoder(Node), intake.set_node, lambda node: intake.remove_node(node.name)),
            *(self._follow_watch(watch) for watch in core.handle.watches),
            self._follow(
                "/apis/policy/v1/poddisruptionbudgets",
                _decoder(PodDisruptionBudget),
                intake.set_budget,
                lambda budget: intake.remove_budget(budget.metadata.key),
            ),
            self._follow("/api/v1/pods", PodDecoder(), intake.set_pod, intake.pod_deleted, selector=UNFINISHED),
        ]

    @property
    def ready(self) -> bool:
        """Whether all informers are synced."""
        return self._running

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    @property
    def leading(self) -> bool:
        """Whether this scheduler is the leader."""
        return self.core.handle.leading

    def lead(self) -> None:
        """Become the leader: start to decide as soon as everything is known that the leader before has done.

        A watch may be minutes late, and nothing in it says so.
        """
        self.core.handle.wakes.leading = True
        self._running = False
        for informer in self._informers:
            informer.catch_up()

    def stop(self) -> None:
        """Stop deciding and following. Requests in flight are not waited for."""
        self._running = self.core.handle.wakes.leading = False
        self.binder.stop()
        self._rest.stop()
        for informer in self._informers:
            informer.stop()

    def _follow(
        self,
        path: str,
        decode: Callable[[bytes], K],
        on_set: Callable[[K], None],
        on_gone: Callable[[K], None],
        *,
        selector: Mapping[str, str] | None = None,
        optional: bool = False,
    ) -> Informer[K]:
        return Informer(
            self._transport,
            self._clock,
            path,
            decode,
            on_set=on_set,
            on_gone=on_gone,
            on_synced=self._synced,
            on_batch=self._plan,
            selector=dict(selector or {}),
            optional=optional,
            errors=self._decode_errors,
            on_error=self.core.event_failed,
        )

    def _follow_watch(self, watch: Watch) -> Informer[Any]:
        return self._follow(
            watch.path,
            _decoder(watch.kind),
            watch.on_set,
            watch.on_gone,
            selector=watch.selector,
            optional=watch.optional,
        )

    def _synced(self) -> None:
        if not self._running and all(informer.synced for informer in self._informers):
            log.info("shell synced nodes=%d queue=%s", self.core.cache.known_count, self.core.queue.counts())
            self._running = True
            if self.leading:
                self.binder.start()
            self._on_synced()
            self._plan()

    def _plan(self) -> None:
        """Run the core in the next turn of the clock."""
        if self._running and not self._planned:
            self._planned = True
            self._clock.call_soon(self._work)

    def _work(self) -> None:
        self._planned = False
        if not self._running:
            return
        core, binder, clock = self.core, self.binder, self._clock
        for complaint in core.handle.take_complaints():
            log.warning("object not understood: %s", complaint)
        if not self.leading:
            return
        binder.work()
        for _ in range(SLICE):
            if binder.in_flight >= MAX_IN_FLIGHT or not core.busy:
                return
            began = clock.monotonic()
            try:
                decisions = core.decide()
            except Exception as error:  # noqa: BLE001 of no pod: `Core.decide` catches those
                clock.call_later(min(DECIDE_AGAIN, clock.faults.caught(error, DECIDE).pause), self._plan)
                return
            clock.faults.passed(DECIDE)
            self.metrics.decided(decisions, clock.monotonic() - began)
            for decision in decisions:
                binder.execute(decision)
        self._plan()


def _decoder(kind: type[K]) -> Callable[[bytes], K]:
    return decoder(kind)
