"""The shell of the descheduler: informers, timers and writes around rounds and migration."""

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.core import UNSCHEDULABLE_TAINT, Node
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH, Reservation
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NodeMetric
from seatrial.scheduler.api.transport import Response, Transport
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.api.workloads import Namespace, PriorityClass
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.informer import Following, Informer
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.descheduler.config import DEFAULT_EVICTOR, MIGRATION_CONTROLLER, Configuration, Profile, expand
from seatrial.scheduler.descheduler.default_evictor import DefaultEvictor
from seatrial.scheduler.descheduler.evictors import MigrationEvictor
from seatrial.scheduler.descheduler.framework import Evictor, EvictorContext
from seatrial.scheduler.descheduler.migration.controller import MigrationController
from seatrial.scheduler.descheduler.objects import WORKLOADS, Pod, WorkloadObject
from seatrial.scheduler.descheduler.rounds import RoundError, Rounds
from seatrial.scheduler.descheduler.state import ClusterState

log = logging.getLogger(__name__)

NAME = "koord-descheduler"  # reporting controller of events
TRIGGER_PAUSE = 1.0  # seconds between an event that asks for a round and the round

K = TypeVar("K", bound=Following)


class Shell:
    """Runs one descheduler against one API server."""

    def __init__(
        self,
        configuration: Configuration,
        transport: Transport,
        clock: Clock,
        *,
        standby: bool = False,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        """`standby`: follow the cluster, and do nothing until `lead` is called. `on_round`: called after each round."""
        self._configuration, self._clock, self._transport = configuration, clock, transport
        self._on_round = on_round
        self.faults = clock.faults
        self.state = ClusterState()
        rest = Rest(transport, clock)
        self.events = EventRecorder(rest, clock, NAME, f"{NAME}-{socket.gethostname()}")
        profiles = expand(configuration)
        self.controllers = [
            MigrationController(
                self.state, profile.migration, rest, clock, self.events, name=profile.name, adopts=number == 0
            )
            for number, profile in enumerate(profiles)
        ]
        self._rest = rest
        self.rounds = Rounds(configuration, self._with_evictors(profiles), self.state, clock, self._patch)
        self._leading = not standby
        self._running = self._stopped = False
        self._timer: Timer | None = None
        self.round_errors = 0
        self._informers = self._follow_all()

    def _with_evictors(self, profiles: Sequence[Profile]) -> list[tuple[Profile, Evictor, list[Evictor]]]:
        evictors: list[tuple[Profile, Evictor, list[Evictor]]] = []
        context = EvictorContext(self.state, self._clock, self._rest)
        for profile, controller in zip(profiles, self.controllers, strict=True):
            migration = MigrationEvictor(controller)
            direct = DefaultEvictor(self.state, self._clock, self._rest, profile.default_evictor)
            of: dict[str, Evictor] = {DEFAULT_EVICTOR: direct, MIGRATION_CONTROLLER: migration}
            for name, (kind, args) in profile.evictors.items():
                of[name] = kind(context, args)  # type: ignore[call-arg]
            evictors.append((profile, of[profile.evictor], [of[name] for name in profile.filters]))
        return evictors

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        def answered(response: Response) -> None:
            if not response.ok:
                log.warning("patch refused path=%s why=%s", path, refusal(response))

        self._rest.merge(path, body, answered)

    @property
    def ready(self) -> bool:
        """Whether all informers are synced."""
        return self._running

    @property
    def leading(self) -> bool:
        return self._leading

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def lead(self) -> None:
        """Become the leader: begin with rounds and jobs as soon as everything is known that the one before has done."""
        self._leading = True
        self._running = False
        for informer in self._informers:
            informer.catch_up()

    def stop(self) -> None:
        self._stopped = True
        self._running = False
        self._rest.stop()
        if self._timer is not None:
            self._timer.cancel()
        for controller in self.controllers:
            controller.stop()
        for informer in self._informers:
            informer.stop()

    def trigger(self) -> None:
        """Ask for a round soon."""
        if self._running and self._leading:
            self._plan(TRIGGER_PAUSE)

    # -- following ----------------------------------------------------------------------------------------------------

    def _follow_all(self) -> list[Informer[Any]]:
        state = self.state
        return [
            self._follow("/api/v1/nodes", Node, self._set_node, state.remove_node),
            self._follow("/api/v1/namespaces", Namespace, self._set_namespace, self._drop_namespace),
            self._follow(
                "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass, self._set_class, self._drop_class
            ),
            *(
                self._follow(path, WorkloadObject, partial(state.set_workload, kind), state.remove_workload)
                for (kind, _), path in WORKLOADS.items()
            ),
            self._follow(NODE_METRICS_PATH, NodeMetric, state.set_metric, state.remove_metric),
            self._follow(RESERVATIONS_PATH, Reservation, self._set_reservation, self._drop_reservation),
            self._follow(JOBS_PATH, PodMigrationJob, self._set_job, self._drop_job),
            self._follow("/api/v1/pods", Pod, self._set_pod, self._drop_pod, optional=False),
        ]

    def _follow(
        self,
        path: str,
        kind: type[K],
        on_set: Callable[[K], object],
        on_gone: Callable[[K], object],
        *,
        optional: bool = True,
    ) -> Informer[K]:
        return Informer(
            self._transport,
            self._clock,
            path,
            decoder(kind),
            on_set=on_set,  # type: ignore[arg-type]
            on_gone=on_gone,  # type: ignore[arg-type]
            on_synced=self._synced,
            on_batch=self._report_problems,
            optional=optional,
        )

    def _report_problems(self) -> None:
        for problem in self.state.problems:
            log.warning("object not understood: %s", problem)
        self.state.problems.clear()

    def _set_node(self, node: Node) -> None:
        known = self.state.nodes.get(node.name)
        self.state.set_node(node)
        if known is None or _placement(known) != _placement(node):
            self.trigger()  # taints and labels decide where pods may be

    def _set_namespace(self, namespace: Namespace) -> None:
        self.state.namespaces[namespace.metadata.name] = namespace.metadata.labels

    def _drop_namespace(self, namespace: Namespace) -> None:
        self.state.namespaces.pop(namespace.metadata.name, None)

    def _set_class(self, priority_class: PriorityClass) -> None:
        self.state.priorities[priority_class.metadata.name] = priority_class.value

    def _drop_class(self, priority_class: PriorityClass) -> None:
        self.state.priorities.pop(priority_class.metadata.name, None)

    def _set_pod(self, pod: Pod) -> None:
        self.state.set_pod(pod)
        for controller in self.controllers:
            controller.pod_changed(pod)

    def _drop_pod(self, pod: Pod) -> None:
        self.state.remove_pod(pod)
        for controller in self.controllers:
            controller.pod_changed(pod)

    def _set_job(self, job: PodMigrationJob) -> None:
        if self.state.set_job(job):
            for controller in self.controllers:
                controller.job_changed(job)

    def _drop_job(self, job: PodMigrationJob) -> None:
        for controller in self.controllers:
            controller.job_gone(self.state.jobs.get(job.name, job))
        self.state.remove_job(job)

    def _set_reservation(self, reservation: Reservation) -> None:
        if self.state.set_reservation(reservation):
            for controller in self.controllers:
                controller.reservation_changed(reservation)

    def _drop_reservation(self, reservation: Reservation) -> None:
        self.state.remove_reservation(reservation)
        for controller in self.controllers:
            controller.reservation_changed(reservation)

    def _synced(self) -> None:
        if not self._running and not self._stopped and all(informer.synced for informer in self._informers):
            log.info("descheduler synced nodes=%d pods=%d", len(self.state.nodes), len(self.state.pods))
            self._running = True
            if self._leading:
                self._begin()

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for controller in self.controllers:
            controller.start()
        self._plan(0.0)

    def _plan(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay, self._round)

    def _round(self) -> None:
        self._timer = None
        if not self._running:
            return
        interval = self._configuration.interval
        if interval:
            self._plan(interval)
        began = self._clock.monotonic()
        try:
            self.rounds.run()
        except RoundError as error:
            self.round_errors += 1
            log.warning("round ended why=%s", error)
        else:
            log.info("round evicted=%d seconds=%.3f", self.rounds.limiter.count, self._clock.monotonic() - began)
        self._on_round()


def _placement(node: Node) -> tuple[object, ...]:
    """What starts a round when it changes. Whether the node is cordoned does not: a refused drain opens it again."""
    return node.metadata.labels, [taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE_TAINT]
