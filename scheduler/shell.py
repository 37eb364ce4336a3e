"""The scheduler in its surroundings: watches in, decisions out, on whatever transport and clock it is given.

On an event loop it yields after a slice of decisions, so that answers and events get their turn; in virtual time the
same code runs from the simulation's queue of actions.
"""

import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from scheduler.api.clock import Clock
from scheduler.api.core import Node, PodDisruptionBudget
from scheduler.api.transport import Transport
from scheduler.binding import Binder
from scheduler.client.events import EventRecorder
from scheduler.client.informer import Following, Informer
from scheduler.client.pods import PodDecoder
from scheduler.client.rest import Rest
from scheduler.cycle import Core
from scheduler.framework.handle import Watch
from scheduler.monitor import PERIOD, TIMEOUT, Monitor
from scheduler.services.metrics import Metrics
from scheduler.watched_kinds import KINDS

log = logging.getLogger(__name__)

SLICE = 64  # decisions before others get their turn
MOST_IN_FLIGHT = 2048  # bindings without an answer; more would only queue up at the API server
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
        """`on_synced` is called once, when the whole cluster has been seen and before the first decision.

        With `standby` it follows the cluster, but decides nothing until `lead` is called. Every
        `monitor_period` seconds it says which pods are in scheduling for more than `scheduling_timeout`.
        """
        self.core = core
        self._transport = transport
        self._clock = clock
        rest = Rest(transport, clock)
        self.events = EventRecorder(rest, clock, name, f"{name}-{socket.gethostname()}")
        monitor = Monitor(clock, period=monitor_period, timeout=scheduling_timeout)
        self.binder = Binder(core, rest, clock, self.events, self._plan, monitor=monitor)
        self.metrics = Metrics(core, monitor.timeouts)
        self._planned = False
        self._running = False
        self._leading = not standby
        self._on_synced = on_synced
        core.on_ready = self._plan  # type: ignore[method-assign]
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
            self._follow("/api/v1/nodes", _decoder(Node), core.set_node, lambda node: core.remove_node(node.name)),
            *(self._follow_watch(watch) for watch in core.handle.watches),
            self._follow(
                "/apis/policy/v1/poddisruptionbudgets",
                _decoder(PodDisruptionBudget),
                core.set_budget,
                lambda budget: core.remove_budget(budget.metadata.key),
            ),
            self._follow(
                "/api/v1/pods",
                PodDecoder(),
                core.set_pod,
                lambda pod: core.remove_pod(pod.metadata.uid),
                selector=UNFINISHED,
            ),
        ]

    @property
    def ready(self) -> bool:
        """Whether it has seen the whole cluster, and schedules if it leads."""
        return self._running

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    @property
    def leading(self) -> bool:
        """Whether it is our turn to decide."""
        return self._leading

    def lead(self) -> None:
        """Decide from now on; until then others did."""
        self._leading = True
        self._plan()

    def stop(self) -> None:
        """Make no more decisions; what is under way is left to the API server to finish."""
        self._running = False
        self.binder.reservations.stop()
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
            self._on_synced()
            self._plan()

    def _plan(self) -> None:
        """See to it that the core gets its turn soon."""
        if self._running and self._leading and not self._planned:
            self._planned = True
            self._clock.call_soon(self._work)

    def _work(self) -> None:
        self._planned = False
        if not self._running:
            return
        core, binder = self.core, self.binder
        for complaint in core.complaints:
            log.warning("object not understood: %s", complaint)
        core.complaints.clear()
        binder.reservations.work()
        for _ in range(SLICE):
            if binder.in_flight >= MOST_IN_FLIGHT or not core.busy:
                return
            began = self._clock.monotonic()
            decisions = core.decide()
            self.metrics.decided(decisions, self._clock.monotonic() - began)
            for decision in decisions:
                binder.execute(decision)
        self._plan()


def _decoder(kind: type[K]) -> Callable[[bytes], K]:
    return msgspec.json.Decoder(kind).decode
