"""Binder: writes decisions to the API server and reports the results to the core.

A binding is one request: the Binding object carries the annotations, and the API server merges them into the pod when
it sets the node. Only labels, which older API servers do not take from a Binding, and annotations that go cost a patch
before it, and so do marks on the node.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.faults import name_of
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH, Done, Request, Response
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.read_back import read_back, unclear
from seatrial.scheduler.client.rest import Rest, node_path, pod_path, refusal
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.controllers import ControllerContext, DecisionWriter
from seatrial.scheduler.framework.decisions import Bind, ClearNomination, Decision, Evict, Reject
from seatrial.scheduler.pods.preempted import BY_SCHEDULER
from seatrial.scheduler.shell.monitor import Monitor
from seatrial.scheduler.shell.preparations import Preparations

log = logging.getLogger(__name__)

_decode_pod = decoder(Pod)
MAX_DELETES = 6  # of one victim, after 1, 2, 4, 8 and 16 s; `Rest` tries transient failures again by itself
MAX_WRITES = 5  # of one status of a pod that others change meanwhile
_TAKEN = frozenset({404, 409})  # gone, or bound by another scheduler: a retry cannot help


class Binder:
    """Executes decisions. `after` is called after each response that may make the core busy.

    `controllers`: those that plugins registered. Decisions about pods that one of them writes are handed to it.
    """

    def __init__(
        self,
        core: Core,
        rest: Rest,
        clock: Clock,
        events: EventRecorder,
        after: Callable[[], None],
        *,
        monitor: Monitor | None = None,
    ) -> None:
        self.monitor = monitor or Monitor(clock)
        self._core, self._rest, self._clock, self._events, self._after = core, rest, clock, events, after
        context = ControllerContext(rest, clock, events, self, after)
        self.controllers = [make(context) for make in core.handle.controllers]
        self._writers = [controller for controller in self.controllers if isinstance(controller, DecisionWriter)]
        self.preparations = Preparations(core, rest, clock, self._prepared, self._give_back)
        self._flying: set[str] = set()  # uids of pods that are being bound, those of `DecisionWriter`s too
        self.bindings = 0

    @property
    def in_flight(self) -> int:
        """The number of bindings under way."""
        return len(self._flying)

    def start(self) -> None:
        """Start the controllers: all that is followed is known, and this scheduler leads."""
        for controller in self.controllers:
            controller.start()

    def work(self) -> None:
        """Ask the conditions of preparations again, and let the controllers write what changed."""
        for work in (self.preparations.work, *(controller.work for controller in self.controllers)):
            self._clock.attempt(name_of(work), "", work)

    def stop(self) -> None:
        """Write nothing more. Requests in flight are not waited for."""
        self.preparations.stop()
        self.monitor.stop()
        for controller in self.controllers:
            controller.stop()

    def execute(self, decision: Decision) -> None:
        """Carry a decision out. After an exception its pod gives its place back, and others go on."""
        try:
            self._execute(decision)
        except Exception as error:  # noqa: BLE001 one decision must not stop the others
            info = decision.victim if isinstance(decision, Evict) else decision.info
            fault = self._clock.faults.not_repeated(error, "Binder.execute", info.key)
            if isinstance(decision, Bind):
                self._flying.discard(info.uid)
                self.monitor.end(info.uid)
                self._give_back(decision, f"internal error, see fault id={fault} in the scheduler's log")

    def _execute(self, decision: Decision) -> None:
        match decision:
            case Bind() if decision.preparation is not None:
                self.preparations.begin(decision, decision.preparation)
            case Evict():
                self._evict(decision)
            case Bind() | Reject() | ClearNomination():
                writer = next((each for each in self._writers if each.writes(decision.info.pod)), None)
                if writer is None:
                    self._write(decision)
                else:
                    self._hand_over(writer, decision)

    def _write(self, decision: Bind | Reject | ClearNomination) -> None:
        match decision:
            case Bind():
                self._bind(decision)
            case Reject():
                self._reject(decision)
            case ClearNomination(info):
                self._patch_status(info.pod, {"nominatedNodeName": None})

    def _hand_over(self, writer: DecisionWriter, decision: Bind | Reject | ClearNomination) -> None:
        match decision:
            case Bind():
                self._flying.add(decision.info.uid)
                writer.bind(decision, lambda: self._flying.discard(decision.info.uid))
            case Reject():
                writer.reject(decision)
            case ClearNomination():
                pass  # what stands for the pod has no nominated node

    # -- results of a `DecisionWriter` --------------------------------------------------------------------------------

    def bound(self, uid: str) -> None:
        """The API server accepted the binding."""
        self._core.bound(uid)

    def bind_failed(self, uid: str, message: str, *, retry: bool) -> None:
        """It did not: the pod gives its place back, and with `retry` is tried again."""
        for decision in self._core.bind_failed(uid, message, retry=retry):
            self.execute(decision)
        self._after()

    # -- bind ---------------------------------------------------------------------------------------------------------

    def _prepared(self, decision: Bind) -> None:
        self.execute(msgspec.structs.replace(decision, preparation=None))

    def _bind(self, decision: Bind) -> None:
        self._flying.add(decision.info.uid)
        self.monitor.begin(decision.info)
        if not decision.node_annotations:
            self._label(decision)
            return

        def patched(response: Response) -> None:
            if response.ok:
                self._label(decision)
            else:
                self._unbound(decision, f'failed to patch node "{decision.node}": {refusal(response)}', retry=True)

        node = self._core.cache.find(decision.node)
        marks = {"metadata": {"annotations": decision.node_annotations}}
        uid = node.known.metadata.uid if node is not None and node.node is not None else ""
        self._rest.merge(node_path(decision.node), marks, self._or_look(decision, patched), uid=uid)

    def _label(self, decision: Bind) -> None:
        if not (decision.labels or decision.stale):
            self._post_binding(decision)
            return
        # A merge patch takes away what is null; a Binding cannot.
        patch = {"metadata": {"labels": dict(decision.labels), "annotations": dict.fromkeys(decision.stale)}}

        def patched(response: Response) -> None:
            if response.ok:
                self._post_binding(decision)
            else:
                self._unbound(decision, refusal(response), retry=response.code not in _TAKEN)

        self._rest.merge(pod_path(decision.info.pod), patch, self._or_look(decision, patched), uid=decision.info.uid)

    def _post_binding(self, decision: Bind) -> None:
        def answered(response: Response) -> None:
            if response.ok:
                self._bound(decision)
            elif unclear(response):
                self._look(decision, refusal(response))
            else:
                self._unbound(decision, refusal(response), retry=response.code not in _TAKEN)

        self._rest.bind(decision.info.pod, decision.node, decision.annotations, self._or_look(decision, answered))

    def _or_look(self, decision: Bind, answered: Done) -> Done:
        """`answered`; if it raises an exception, the pod is read back, so that its binding comes to an end."""

        def done(response: Response) -> None:
            try:
                answered(response)
            except Exception as error:  # noqa: BLE001 the connection has answers for others
                fault = self._clock.faults.not_repeated(error, "Binder.answered", decision.info.key)
                self._look(decision, f"internal error, see fault id={fault} in the scheduler's log")

        return done

    def _bound(self, decision: Bind) -> None:
        self._ended(decision, ok=True)
        self.bindings += 1
        self._core.bound(decision.info.uid)
        pod = decision.info.pod
        self._events.normal(pod, "Scheduled", "Binding", f"Successfully assigned {pod.key} to {decision.node}")
        self._after()

    def _ended(self, decision: Bind, *, ok: bool) -> None:
        self._flying.discard(decision.info.uid)
        seconds = self.monitor.end(decision.info.uid)
        self._core.timing.bind(decision.info.pod.spec.scheduler_name, seconds, ok=ok)

    def _look(self, decision: Bind, why: str) -> None:
        """Find out whether the binding was accepted; until then the pod keeps its resources."""

        def shown(response: Response) -> None:
            if response.code == 404:
                self._unbound(decision, why, retry=False)
                return
            pod = _decode_pod(response.body)
            if pod.metadata.uid != decision.info.uid:
                self._unbound(decision, why, retry=False)
            elif not pod.spec.node_name:
                self._unbound(decision, why, retry=True)
            elif pod.spec.node_name == decision.node:
                self._bound(decision)
            else:
                self._unbound(decision, f"bound to {pod.spec.node_name} by another scheduler", retry=False)
                if pod.metadata.uid in self._core.cache.pending:  # else the watch has shown its node, or its end
                    self._core.intake.set_pod(pod)

        read_back(self._rest, pod_path(decision.info.pod), shown)

    def _unbound(self, decision: Bind, why: str, *, retry: bool) -> None:
        self._ended(decision, ok=False)
        self._give_back(decision, why, retry=retry)

    def _give_back(self, decision: Bind, why: str, *, retry: bool = True) -> None:
        log.warning("bind failed pod=%s node=%s why=%s", decision.info.key, decision.node, why)
        for more in self._core.bind_failed(decision.info.uid, why, retry=retry):
            self.execute(more)
        self._after()

    # -- reject -------------------------------------------------------------------------------------------------------

    def _reject(self, decision: Reject) -> None:
        pod = decision.info.pod
        self._events.warning(pod, "FailedScheduling", "Scheduling", decision.message)
        for explain in self._core.handle.rejection_events:
            event = explain(pod, decision.message)
            if event is not None:
                self._events.warning(pod, event[0], "Scheduling", event[1])
        status: dict[str, Any] = {}
        if not decision.is_present:
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": decision.reason,
                    "message": decision.message,
                    "lastTransitionTime": self._since(pod),
                }
            ]
        # A node that the status names already is written again: a write that clears it may be on its way.
        if decision.nominated is not None and (decision.nominated or pod.status.nominated_node_name):
            status["nominatedNodeName"] = decision.nominated or None
        if status:
            self._patch_status(pod, status)

    def _since(self, pod: Pod) -> str:
        """Transition time of PodScheduled=False; the existing one is kept."""
        kept = (
            c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"
        )
        return next((since for since in kept if since), self._clock.timestamp())

    # -- evict --------------------------------------------------------------------------------------------------------

    def _evict(self, decision: Evict) -> None:
        victim, by = decision.victim.pod, decision.by.pod
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": BY_SCHEDULER,
            "message": f"{by.spec.scheduler_name}: {_purpose(decision)}",
            "lastTransitionTime": self._clock.timestamp(),
        }

        def delete(tries: int) -> None:
            self._rest.delete(pod_path(victim), uid=victim.metadata.uid, done=lambda response: deleted(response, tries))

        def deleted(response: Response, tries: int) -> None:
            if response.ok:
                text = f"Preempted by pod {by.metadata.uid} on node {decision.node}"
                self._events.normal(victim, "Preempted", "Preempting", text, related=by)
            elif response.code not in _TAKEN:  # 409: another pod has the name now
                log.warning("evict failed pod=%s tries=%d why=%s", victim.key, tries, refusal(response))
                # A single pod preempts again; a group waits for all its victims, and the others go already.
                if decision.preemptor and tries < MAX_DELETES:
                    self._clock.call_later(2.0 ** (tries - 1), lambda: delete(tries + 1))

        def marked(response: Response) -> None:
            if response.code not in _TAKEN:
                delete(1)

        status = {"status": {"conditions": [condition]}}
        self._rest.merge(
            pod_path(victim, "status"), status, marked, uid=victim.metadata.uid, kind=STRATEGIC_MERGE_PATCH
        )

    def _patch_status(self, pod: Pod, status: dict[str, Any], *, tries: int = 1) -> None:
        """Write the status of a pod that waits, unless it is bound or gone by now: the event of that may be late."""

        def answered(response: Response) -> None:
            if response.code == 409 and tries < MAX_WRITES:
                self._rest.send(Request("GET", pod_path(pod)), read)
            elif not response.ok and response.code != 404:
                log.warning("status not written pod=%s why=%s", pod.key, refusal(response))
                self._core.status_refused(pod.metadata.uid)

        def read(response: Response) -> None:
            result = _decode_pod(response.body) if response.ok else None
            if result is not None and result.metadata.uid == pod.metadata.uid and not result.spec.node_name:
                self._patch_status(result, status, tries=tries + 1)

        self._rest.merge(
            pod_path(pod, "status"),
            {"status": status},
            answered,
            uid=pod.metadata.uid,
            version=pod.metadata.resource_version,
            kind=STRATEGIC_MERGE_PATCH,
        )


def _purpose(decision: Evict) -> str:
    """Why a victim ends (GANG-M28, WAS-R45)."""
    if not decision.preemptor:
        return "preempting to accommodate a higher priority pod"
    if decision.by.pod.spec.scheduling_group is not None:
        return "preempting to accommodate a higher priority podgroup"
    return (
        f"preempting to accommodate higher priority pods, preemptor: {decision.preemptor},"
        f" triggerPod: {decision.by.key}"
    )
