"""Carries out what PreBind plugins want done before a binding: patches of other objects, then conditions to wait for.

The pod keeps its place meanwhile. Conditions are evaluated each time the shell works, which is after every event.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.client.read_back import read_back, unclear
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.preparation import Awaited, ObjectPatch, Preparation
from seatrial.scheduler.framework.status import Code


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pod with the conditions that it still waits for; the timer is that of the first."""

    decision: Bind
    awaited: tuple[Awaited, ...]
    timer: Timer | None = None


class Preparations:
    """The pods whose bindings are being prepared. `ready` and `failed` are called once for each, unless it is gone."""

    def __init__(
        self, core: Core, rest: Rest, clock: Clock, ready: Callable[[Bind], None], failed: Callable[[Bind, str], None]
    ) -> None:
        self._core, self._rest, self._clock, self._ready, self._failed = core, rest, clock, ready, failed
        self._waiting: dict[str, _Waiting] = {}  # by pod uid

    def begin(self, decision: Bind, preparation: Preparation) -> None:
        """Send the patches, wait for the conditions, and have the pod bound."""
        self._patch(decision, preparation.patches, preparation.awaited)

    def work(self) -> None:
        """Ask the conditions again."""
        for waiting in list(self._waiting.values()):
            self._check(waiting)

    def stop(self) -> None:
        """Stop waiting."""
        for waiting in list(self._waiting.values()):
            self._drop(waiting)

    def _patch(self, decision: Bind, patches: tuple[ObjectPatch, ...], awaited: tuple[Awaited, ...]) -> None:
        if not patches:
            waiting = _Waiting(decision, awaited)
            self._waiting[decision.info.uid] = waiting
            self._check(waiting)
            return
        patch, rest = patches[0], patches[1:]

        def patched(response: Response) -> None:
            sent_before = patch.creates and response.code == 409  # a lost answer: the request was sent again
            if (unclear(response) or sent_before) and patch.holds is not None:
                read_back(self._rest, patch.object_path, shown)
            else:
                settled(response, done=response.ok)

        def shown(response: Response) -> None:
            assert patch.holds is not None
            settled(response, done=response.ok and patch.holds(response.body))

        def settled(response: Response, *, done: bool) -> None:
            there = decision.info.uid in self._core.bindings  # else the pod is gone
            try:
                if done:
                    patch.answered(response.body)
                for unsent in rest if done and not there else () if done else patches:
                    unsent.refused()
            except Exception as error:  # noqa: BLE001 of the plugin whose preparation this is
                why = self._core.handle.evaluation_failed(error, f"pod={decision.info.key}")
                if there:
                    self._failed(decision, why)
                return
            if there and done:
                self._patch(decision, rest, awaited)
            elif there:
                why = "it was not patched" if response.ok else refusal(response)
                self._failed(decision, f"{patch.failure or f'failed to patch {patch.what}'}: {why}")

        if patch.creates:
            self._rest.post(patch.path, patch.body, patched)
        else:
            self._rest.merge(patch.path, patch.body, patched, kind=patch.kind)

    def _check(self, waiting: _Waiting) -> None:
        if waiting.decision.info.uid not in self._core.bindings:
            self._drop(waiting)
            return
        while waiting.awaited:
            first = waiting.awaited[0]
            try:
                status = first.check()
            except Exception as error:  # noqa: BLE001 of the plugin whose preparation this is
                self._fail(waiting, self._core.handle.evaluation_failed(error, f"pod={waiting.decision.info.key}"))
                return
            if status.code is Code.WAIT:
                if waiting.timer is None:
                    waiting.timer = self._clock.call_later(first.seconds, partial(self._fail, waiting, first.late))
                return
            if not status.ok:
                self._fail(waiting, status.message)
                return
            self._stop_timer(waiting)
            waiting.awaited = waiting.awaited[1:]
        self._drop(waiting)
        self._ready(waiting.decision)

    def _fail(self, waiting: _Waiting, why: str) -> None:
        self._drop(waiting)
        self._failed(waiting.decision, why)

    def _drop(self, waiting: _Waiting) -> None:
        self._stop_timer(waiting)
        del self._waiting[waiting.decision.info.uid]

    def _stop_timer(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None
