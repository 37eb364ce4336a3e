"""Conversations with processes, end by end."""

import asyncio
import os
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.apiserver.conversation import OUTPUTS, STDERR, STDOUT, Conversation, StreamSelection, everything
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.runtimes.cgroups import Cgroups
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime, Stages
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, Reports, eventually, stopped, with_mark, work
from seatrial.scheduler.api.clock import SimClock, WallClock

Body = Callable[[ProcessRuntime, Work, Reports], Awaitable[None]]
ALL = StreamSelection(stdin=True, stdout=True, stderr=True)
TERMINAL = StreamSelection(stdin=True, stdout=True, tty=True)


def with_pod(root: Path, body: Body, command: list[str] | str = "sleep 600", **container: Any) -> None:
    """Run `body` with a pod of one container that runs."""

    async def run() -> None:
        none = Cgroups(0, {}, "not asked for in these tests")
        runtime = ProcessRuntime(WallClock(), root, stages=Stages(restart=(0.05, 0.1)), groups=none)
        try:
            one, reports = work(command, pod={"restartPolicy": "Never"}, **container), Reports()
            runtime.start(one, reports)
            await reports.state("running")
            async with asyncio.timeout(3 * WITHIN):
                await body(runtime, one, reports)
        finally:
            runtime.close()

    asyncio.run(run())


def folder_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def until(conversation: Conversation, text: bytes, output: int = STDOUT) -> bytes:
    """What is said until `text` is."""
    message = b""
    while text not in message:
        data = await conversation.read(output)
        assert data, message
        message += data
    return message


def test_a_command_reads_its_input_to_the_end(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        spoken = await runtime.exec(one, "main", ["sh", "-c", "sort; echo apart >&2; exit 3"], ALL)
        await spoken.write(b"b\n")
        await spoken.write(b"a\n")
        spoken.end_input()
        assert await everything(spoken) == b"a\nb\n"
        assert await everything(spoken, STDERR) == b"apart\n"
        assert (await spoken.outcome()).code == 3
        spoken.close()
        spoken.close()

    async def whole(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        await body(runtime, one, reports)
        left.extend(folder_names(tmp_path / "uid-one" / "main" / "0"))

    left: list[str] = []
    with_pod(tmp_path, whole)
    assert "supervisor.log" in left
    assert not [name for name in left if name.startswith("exec-")]  # nothing of the command is kept


def test_who_stops_listening_gets_no_more_input(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        spoken = await runtime.exec(one, "main", ["sh", "-c", "exec <&-; echo closed; sleep 600"], ALL)
        await until(spoken, b"closed")
        await spoken.write(bytes(10_000_000))  # more than any pipe holds, and it comes back all the same
        spoken.close()

    with_pod(tmp_path, body)


def test_a_command_waits_for_its_reader(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        done = tmp_path / "done"
        script = f"head -c 1000000 /dev/zero; touch {done}"
        spoken = await runtime.exec(one, "main", ["sh", "-c", script], OUTPUTS)
        first = await spoken.read(STDOUT)
        await asyncio.sleep(0.3)
        assert not done.exists()
        assert len(first + await everything(spoken)) == 1_000_000
        assert (await spoken.outcome()).code == 0
        assert done.exists()
        spoken.close()

    with_pod(tmp_path, body)


def test_a_terminal(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        script = "test -t 2 && echo $TERM; while read line; do echo [$line] $(stty size); done; echo over"
        spoken = await runtime.exec(one, "main", ["sh", "-c", script], TERMINAL)
        await until(spoken, b"xterm")
        spoken.resize(100, 30)
        await spoken.write(b"word\n")
        await until(spoken, b"[word] 30 100")
        spoken.end_input()  # control-D
        await until(spoken, b"over")
        await everything(spoken)
        assert (await spoken.outcome()).code == 0
        spoken.close()

    with_pod(tmp_path, body)


def test_a_program_is_told_that_its_terminal_has_another_size(tmp_path: Path) -> None:
    """The shell runs short commands, because a trapped signal ends a `read` as the end of the file does."""

    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.02; done"
        spoken = await runtime.exec(one, "main", ["sh", "-c", script], TERMINAL)
        await until(spoken, b"ready")
        spoken.resize(100, 30)
        await until(spoken, b"30 100")
        assert (await spoken.outcome()).code == 0
        spoken.close()

    with_pod(tmp_path, body)


def test_who_goes_away_takes_the_command_and_all_of_it_along(tmp_path: Path) -> None:
    mark = f"gone-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        script = f"export MARK={mark}; setsid sleep 600 & sleep 600"
        spoken = await runtime.exec(one, "main", ["sh", "-c", script], ALL)
        await eventually(lambda: len(with_mark(mark)) == 2)
        spoken.close()
        await eventually(lambda: not with_mark(mark))
        assert reports.last.state == "running"

    with_pod(tmp_path, body)


@pytest.mark.parametrize("tty", [pytest.param(False, id="by-pipe"), pytest.param(True, id="on-a-terminal")])
def test_attaching_to_a_program(tmp_path: Path, *, tty: bool) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        await eventually(lambda: b"early" in (runtime.logs(one, "main") or b""))
        first = await runtime.attach(one, "main", StreamSelection(stdin=True, stdout=True, tty=tty))
        second = await runtime.attach(one, "main", OUTPUTS)
        first.resize(120, 40)
        await first.write(b"from outside\n")
        message = await until(first, b"over")
        assert b"[from outside]" in message
        assert b"early" not in message  # from now on, says the specification
        assert b"[from outside]" in await until(second, b"[from outside]")
        assert (b"40 120" in message) == tty
        first.close()  # not its only client: the program goes on
        again = await runtime.attach(one, "main", StreamSelection(stdin=True, stdout=True, tty=tty))
        await again.write(b"quit\n")
        assert b"bye" in await everything(again)
        assert b"bye" in await everything(second)
        assert (await again.outcome()).code is None
        for each in (again, second):
            each.close()
        assert (await reports.state("terminated")).exit_code == 6
        with pytest.raises(ClusterError, match="is not running"):
            await runtime.attach(one, "main", OUTPUTS)

    script = (
        "echo early; while read line; do test $line = quit && break; echo [$line]; stty size 2>&1; echo over; done"
        "; echo bye; exit 6"
    ).replace("test $line", 'test "$line"')
    with_pod(tmp_path, body, script, stdin=True, tty=tty)


@pytest.mark.parametrize("tty", [pytest.param(False, id="by-pipe"), pytest.param(True, id="on-a-terminal")])
def test_an_input_for_one_client_ends_with_it(tmp_path: Path, *, tty: bool) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        spoken = await runtime.attach(one, "main", StreamSelection(stdin=True, stdout=True, tty=tty))
        await spoken.write(b"only\n")
        spoken.close()
        assert (await reports.state("terminated")).exit_code == 0
        assert b"[only]" in (runtime.logs(one, "main") or b"")

    with_pod(tmp_path, body, 'while read line; do echo "[$line]"; done', stdin=True, stdinOnce=True, tty=tty)


@contextmanager
def paused_supervisor(runtime: ProcessRuntime, one: Work) -> Iterator[None]:
    """What is ordered and written meanwhile reaches the supervisor at once afterwards."""
    supervisor = runtime.processes(one)[-1]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_a_terminal_has_its_new_size_before_it_gets_what_was_written_afterwards(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        spoken = await runtime.attach(one, "main", TERMINAL)
        for rows in range(30, 50):
            with paused_supervisor(runtime, one):
                spoken.resize(100, rows)
                await spoken.write(b"size\n")
            assert f"\n{rows} 100\r".encode() in await until(spoken, b"over")
        spoken.close()

    with_pod(tmp_path, body, "while read line; do stty size; echo over; done", stdin=True, tty=True)


def test_the_end_of_a_terminals_input_follows_all_of_the_input(tmp_path: Path) -> None:
    lines = 1000

    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        spoken = await runtime.attach(one, "main", TERMINAL)
        with paused_supervisor(runtime, one):
            await spoken.write(b"one more line\n" * lines)
            spoken.end_input()
        assert f"{lines} lines".encode() in await everything(spoken)
        spoken.close()

    script = 'count=0; while read line; do count=$((count + 1)); done; echo "$count lines"'
    with_pod(tmp_path, body, script, stdin=True, stdinOnce=True, tty=True)


def test_a_program_that_floods_its_terminal_can_be_stopped(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        await eventually(lambda: len(runtime.logs(one, "main") or b"") > 100_000)
        await stopped(runtime, one)

    with_pod(tmp_path, body, ["yes"], tty=True)


def test_ports_of_a_pod_that_runs(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime, one: Work, reports: Reports) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            writer.close()

        async with await asyncio.start_server(answer, "::1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            pipe = await runtime.dial(one, port)
            await pipe.write(b"hello")
            pipe.end_input()
            assert await pipe.read() == b"HELLO"
            assert await pipe.read() == b""
            pipe.close()
        await stopped(runtime, one)
        with pytest.raises(ClusterError, match="pod default/one is not running"):
            await runtime.dial(one, port)

    with_pod(tmp_path, body)


def test_simulated_containers_have_no_streams() -> None:
    runtime, one = SimulatedRuntime(SimClock()), work("sleep 600")

    async def body() -> None:
        for request in (
            lambda: runtime.exec(one, "main", ["ls"], OUTPUTS),
            lambda: runtime.attach(one, "main", OUTPUTS),
            lambda: runtime.dial(one, 80),
        ):
            with pytest.raises(ClusterError, match="runtime 'simulated' runs no"):
                await request()

    asyncio.run(body())
