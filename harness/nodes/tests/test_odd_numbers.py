"""Numbers that users write and that are none, have thousands of digits, or are not finite."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.faults import check_fault
from seatrial.harness.nodes.pod_parts import Handler, HttpAction
from seatrial.harness.nodes.runtimes.handlers import Place, Unwell, perform
from seatrial.harness.nodes.runtimes.simulated import EXIT_CODE, RUNS_FOR, ending_of

MANY = "1" * 5000


@pytest.mark.parametrize(
    ("annotations", "script"),
    [
        pytest.param({}, f"exit {MANY}", id="exit-status"),
        pytest.param({RUNS_FOR: "nan"}, "true", id="no-time"),
        pytest.param({RUNS_FOR: "1e999"}, "true", id="for-ever"),
        pytest.param({RUNS_FOR: "1", EXIT_CODE: MANY}, "true", id="exit-code"),
    ],
)
def test_such_a_container_runs_until_it_is_stopped(annotations: dict[str, str], script: str) -> None:
    work: Any = SimpleNamespace(pod=SimpleNamespace(metadata=SimpleNamespace(annotations=annotations)))
    container: Any = SimpleNamespace(command=("sh", "-c", script), args=())
    assert ending_of(work, container) is None


@pytest.mark.parametrize("device", ["²", MANY])
def test_a_fault_of_such_a_device_is_refused_in_words(device: str) -> None:
    with pytest.raises(UsageError, match="node 'n' has no gpu"):
        check_fault({"verb": "ecc", "device": device}, {"name": "n", "server": "dgx-h100"})


def test_a_probe_that_is_answered_with_such_a_status_fails() -> None:
    async def answered() -> None:
        def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 {MANY} OK\r\n".encode())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        plan: Any = SimpleNamespace(name="main", ports=())
        place = Place("127.0.0.1", plan, execute=None)  # type: ignore[arg-type]
        async with server:
            await perform(Handler(http_get=HttpAction(port=port)), place, within=30)

    with pytest.raises(Unwell, match="expected an HTTP response"):
        asyncio.run(answered())
