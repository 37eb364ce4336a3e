"""Pods that wait on Permit: they have a place, and plugins decide whether they are bound (upstream's WaitingPod).

A plugin that returns `Status.wait(seconds)` from Permit is not called again. It allows or rejects the pod through
`Handle.waiting_pod`. A pod is bound when all plugins that had it wait allow it, and gives its place back when one of
them rejects it or its time ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.durations import go_text
from seatrial.scheduler.core.bindings import Bindings
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.places import Places
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.waking import Waker
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.decisions import Decision, Reject
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState

MAX_WAIT = 900.0  # seconds; upstream cuts longer waits to this


@dataclass(slots=True, eq=False)
class PermitWaiter:
    """One pod that waits on Permit."""

    waiters: "PermitWaiters"
    entry: Entry
    runner: Runner
    state: CycleState
    node_name: str
    timers: dict[str, Timer]  # by name of the plugin that is waited for

    @property
    def pod(self) -> Pod:
        return self.entry.info.pod

    @property
    def pending_plugins(self) -> Sequence[str]:
        """The plugins that have not allowed the pod yet."""
        return sorted(self.timers)

    def allow(self, plugin: str) -> None:
        """The plugin has nothing against the binding. The last one that allows it has the pod bound."""
        timer = self.timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
            if not self.timers:
                self.waiters.bind(self)

    def reject(self, plugin: str, message: str) -> None:
        """The pod is not to be bound: it gives its place back and is tried again later."""
        self.waiters.reject(self, message or f"rejected by plugin {plugin}")


class PermitWaiters:
    """All pods that wait on Permit."""

    def __init__(  # noqa: PLR0917 the parts of the core that end a wait
        self,
        handle: Handle,
        places: Places,
        bindings: Bindings,
        waker: Waker,
        outbox: Outbox,
        attempt_failed: Callable[[Exception, Entry], Sequence[Decision]],
    ) -> None:
        """`attempt_failed` takes care of a pod for which a plugin raised."""
        self._handle, self._places, self._bindings = handle, places, bindings
        self._waker, self._outbox, self._attempt_failed = waker, outbox, attempt_failed
        self._waiting: dict[str, PermitWaiter] = {}  # by pod uid
        self.followed = self._waiting.keys()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PermitWaiter]:
        return iter(list(self._waiting.values()))

    def get(self, uid: str) -> PermitWaiter | None:
        return self._waiting.get(uid)

    def add(
        self, entry: Entry, runner: Runner, state: CycleState, node: str, waits: Sequence[tuple[str, float]]
    ) -> None:
        """Have a pod wait that is reserved and assumed on its node. `waits`: plugins and seconds."""
        waiter = PermitWaiter(self, entry, runner, state, node, {})
        self._waiting[entry.info.uid] = waiter
        for plugin, seconds in waits:
            waiter.timers[plugin] = self._handle.clock.call_later(
                min(seconds, MAX_WAIT), partial(self._expire, waiter, plugin, seconds)
            )

    def bind(self, waiter: PermitWaiter) -> None:
        """All plugins allow the pod."""
        self._forget(waiter)
        try:
            self._outbox.put(self._bindings.decide(waiter.entry, waiter.runner, waiter.state, waiter.node_name))
        except Exception as error:  # noqa: BLE001 of a PreBind plugin
            for decision in self._attempt_failed(error, waiter.entry):
                self._outbox.put(decision)

    def reject(self, waiter: PermitWaiter, message: str) -> None:
        """Give the place back."""
        if self._waiting.get(waiter.entry.info.uid) is waiter:
            self._release(waiter)
            self._waker.wait(waiter.entry, waiter.state)
            self._outbox.put(Reject(waiter.entry.info, f"0/1 nodes are available: 1 {message}."))

    def pod_changed(self, pod: Pod) -> None:
        """A pod was changed: one that is deleted, or was bound by another scheduler, waits no more."""
        if pod.spec.node_name or pod.metadata.deletion_timestamp:
            self.drop(pod.metadata.uid)

    def pod_left(self, uid: str) -> None:
        """A pod is gone or has ended."""
        self.drop(uid)

    def drop(self, uid: str) -> None:
        """Have a pod wait no more; it gives its place back."""
        waiter = self._waiting.get(uid)
        if waiter is not None:
            self._release(waiter)

    def _expire(self, waiter: PermitWaiter, plugin: str, seconds: float) -> None:
        del waiter.timers[plugin]
        text = f"rejected due to timeout after waiting {go_text(min(seconds, MAX_WAIT))} at plugin {plugin}"
        self.reject(waiter, text)

    def _forget(self, waiter: PermitWaiter) -> None:
        del self._waiting[waiter.entry.info.uid]
        for timer in waiter.timers.values():
            timer.cancel()

    def _release(self, waiter: PermitWaiter) -> None:
        self._forget(waiter)
        self._places.give_back(waiter.entry.info, waiter.state, waiter.node_name)
        self._handle.request_wake()
