"""The end of a container as the engine reports it, in parts and late."""

from typing import Any, cast

import pytest

from seatrial.harness.nodes.runtimes.docker import DockerRuntime
from seatrial.harness.nodes.runtimes.docker_run import OOM_REPORTED_WITHIN, DockerRun
from seatrial.scheduler.api.clock import SimClock

POLL = 0.25  # seconds


class Engine:
    """What a run uses of its runtime. The test says what the engine reports."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.ends = 0

    def watch(self, run: DockerRun) -> None: ...

    def send(self, id_: str, signal: int) -> None: ...

    def run(self) -> DockerRun:
        run = DockerRun(cast("DockerRuntime", self), self._changed)
        run.created("container")
        run.seen(_state("running"))
        self.ends = 0
        return run

    def _changed(self) -> None:
        self.ends += 1

    def look_for(self, run: DockerRun, seconds: float, state: dict[str, Any]) -> None:
        for _ in range(int(seconds / POLL)):
            run.seen(state)
            self.clock.advance(POLL)


def _state(status: str, *, oom: bool = False, code: int = 0) -> dict[str, Any]:
    moment = "2026-01-02T03:04:05.0Z"
    return {"Status": status, "ExitCode": code, "OOMKilled": oom, "StartedAt": moment, "FinishedAt": moment}


@pytest.mark.parametrize("late", [0.0, 1.0, OOM_REPORTED_WITHIN - POLL])
def test_a_reason_that_comes_late_is_reported(late: float) -> None:
    """The engine reports a container killed, and `late` seconds later that it was for its memory."""
    engine = Engine()
    run = engine.run()
    engine.look_for(run, late, _state("exited", code=137))
    run.seen(_state("exited", code=137, oom=True))
    assert (run.gone, run.status.code, run.status.oom, engine.ends) == (True, 137, True, 1)


def test_a_container_that_was_killed_for_no_known_reason_ends_all_the_same() -> None:
    engine = Engine()
    run = engine.run()
    engine.look_for(run, OOM_REPORTED_WITHIN, _state("exited", code=137))
    assert not run.gone
    run.seen(_state("exited", code=137))
    assert (run.gone, run.status.code, run.status.oom, engine.ends) == (True, 137, False, 1)


@pytest.mark.parametrize("code", [0, 1, 137])
def test_other_ends_are_reported_at_once(code: int) -> None:
    """A command that ended by itself, and a container that was stopped here."""
    engine = Engine()
    run = engine.run()
    if code == 137:
        run.stop(0)
    run.seen(_state("exited", code=code))
    assert (run.gone, run.status.code, engine.ends) == (True, code, 1)
