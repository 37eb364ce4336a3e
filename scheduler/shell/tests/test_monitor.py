"""Pods whose binding hangs: what is said of them, how often, and that it ends."""

import pytest

from seatrial.scheduler.__main__ import FlagError, duration
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, Request
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.shell.binding import Binder
from seatrial.scheduler.tests.rig import Rig
from seatrial.scheduler.tests.scripted import Scripted, ok, refused


class Hanging(Scripted):
    """Bindings wait until the test lets them go."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.held: list[Done] = []

    def send(self, request: Request, done: Done) -> None:
        if request.path.endswith("/binding"):
            self.held.append(done)
        else:
            super().send(request, done)


def scene() -> tuple[Rig, Hanging, Binder]:
    """A rig with one pod whose binding is under way."""
    rig = Rig()
    api = Hanging(rig.clock)
    rest = Rest(api, rig.clock)
    binder = Binder(rig.core, rest, rig.clock, EventRecorder(rest, rig.clock, "s", "here"), lambda: None)
    rig.node("n")
    rig.submit(pod("p"))
    for decision in rig.core.decide():
        binder.execute(decision)
    return rig, api, binder


def test_a_binding_that_hangs_is_told_of_in_every_period_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    rig, api, binder = scene()
    rig.clock.advance(30)
    assert not caplog.records
    rig.clock.advance(20)
    words = "!!!CRITICAL TIMEOUT!!! scheduling pod default/p(uid-p) took longer ({}) than the timeout 30s"
    assert [record.getMessage() for record in caplog.records] == [words.format("40s"), words.format("50s")]
    rig.clock.advance(2.5)
    api.held[0](ok())
    assert caplog.records[-1].getMessage() == words.format("52.5s")
    rig.clock.advance(100)
    assert binder.monitor.timeouts == {"default-scheduler": 3}
    assert rig.clock.next_due() is None, "no pod is left to monitor"


@pytest.mark.parametrize(
    ("response", "status"),
    [pytest.param(ok(), "Success", id="taken"), pytest.param(refused(409, "Conflict", "taken"), "Error", id="refused")],
)
def test_how_long_a_binding_took_is_observed(response: object, status: str) -> None:
    rig, api, _ = scene()
    rig.clock.advance(0.004)
    api.held[0](response)  # type: ignore[arg-type]
    timing = rig.core.timing
    assert timing.by_point["Bind", status, "default-scheduler"].sum == pytest.approx(0.004)
    assert timing.by_plugin["DefaultBinder", "Bind", status].count == 1


@pytest.mark.parametrize(("text", "value"), [("10s", 10.0), ("1m30s", 90.0), ("500ms", 0.5)])
def test_durations_of_flags(text: str, value: float) -> None:
    assert duration("--scheduling-timeout", text) == value


@pytest.mark.parametrize(
    ("text", "words"), [("10", "expected a duration such as 15s"), ("0s", "expected more than 0, found '0s'")]
)
def test_refused_durations(text: str, words: str) -> None:
    with pytest.raises(FlagError, match=f"--scheduling-timeout: {words}"):
        duration("--scheduling-timeout", text)
