"""Work that depends on a Lease: in a real event loop, because of the signals, with the Lease in virtual time."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.client.leader import LeaderElection
from seatrial.scheduler.client.tests.test_leader import LeaseStore, Line
from seatrial.scheduler.serving.process import work


@dataclass
class Scene:
    """A worker that notes its calls, and the Lease that it depends on."""

    clock: SimClock = field(default_factory=SimClock)
    calls: list[str] = field(default_factory=list)
    requests_under_way: bool = False

    def __post_init__(self) -> None:
        self.store = LeaseStore(self.clock)
        self.ended = asyncio.Event()

    def start(self) -> None:
        self.calls.append("start")

    def lead(self) -> None:
        self.calls.append("lead")

    def stop(self) -> None:
        self.calls.append("stop")

    @property
    def holder(self) -> str:
        return str(self.store.spec["holderIdentity"])

    def run(self, steps: Callable[[], Coroutine[None, None, None]], *, elect: bool = True) -> int:
        """The exit status of work during which `steps` happen."""

        async def both() -> int:
            election = LeaderElection() if elect else None
            line = Line(self.store, "ours")
            task = work(self, line, self.clock, election, self.ended, busy=lambda: self.requests_under_way)
            running = asyncio.ensure_future(task)
            await self.pass_turns()
            await steps()
            while not running.done():
                await self.pass_turns()
            return running.result()

        return asyncio.run(both())

    async def pass_turns(self) -> None:
        """Let the loop run what is due, and the requests that this makes be answered."""
        await asyncio.sleep(0)
        self.clock.settle()
        await asyncio.sleep(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_work_and_releases_the_lease(number: int) -> None:
    scene = Scene()

    async def end() -> None:
        assert scene.holder, "the worker leads"
        os.kill(os.getpid(), number)

    assert scene.run(end) == 0
    assert scene.calls == ["start", "lead", "stop"]
    assert not scene.holder


def test_the_lease_is_released_after_the_requests_under_way() -> None:
    scene = Scene(requests_under_way=True)

    async def end() -> None:
        scene.ended.set()
        await scene.pass_turns()
        assert scene.calls[-1] == "stop"
        assert scene.holder, "a binding is under way: no other scheduler may lead yet"
        scene.requests_under_way = False

    assert scene.run(end) == 0
    assert not scene.holder


def test_a_lost_lease_stops_the_worker_at_once_with_exit_status_1() -> None:
    scene = Scene()

    async def lose() -> None:
        scene.store.cut.add("ours")
        scene.clock.advance(10)  # the renew deadline
        assert scene.calls == ["start", "lead", "stop"]  # before the event loop runs anything else

    assert scene.run(lose) == 1


def test_a_release_without_an_answer_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.scheduler.serving.process.HANDOVER_TIMEOUT", 0.0)
    scene = Scene(requests_under_way=True)

    async def end() -> None:
        scene.ended.set()

    assert scene.run(end) == 0
    assert scene.holder


def test_without_election_no_lease_is_written() -> None:
    scene = Scene()

    async def end() -> None:
        scene.ended.set()

    assert scene.run(end, elect=False) == 0
    assert scene.calls == ["start", "stop"]
    assert scene.store.lease is None
