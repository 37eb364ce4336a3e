"""exec, attach and portforward over WebSocket and SPDY, with local processes as containers."""

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.streams import spdy
from seatrial.harness.apiserver.tests.asking import PODS, Api, pod
from seatrial.harness.apiserver.tests.serving import Served
from seatrial.harness.apiserver.tests.sockets import (
    SPDY,
    UPGRADE,
    Ending,
    channel,
    frames,
    masked,
    pieces,
    upgraded,
    with_processes,
)
from seatrial.harness.apiserver.webhooks.tests.answering import CONFIGURATIONS, Witness, webhook
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, with_mark

SUCCESS = {"metadata": {}, "status": "Success"}
END_OF_INPUT = masked(b"\xff\x00")
BOTH = "stdout=true&stderr=true"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_processes(tmp_path_factory.mktemp("pods"), "echo early; exec cat") as api:
        yield api


def soon(holds: Any, within: float = WITHIN) -> bool:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def shell(script: str) -> str:
    return "command=sh&command=-c&command=" + "".join(f"%{byte:02x}" for byte in script.encode())


def failure(code: int) -> dict[str, object]:
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
@pytest.mark.parametrize(
    ("script", "query", "sent", "out", "err", "status"),
    [
        pytest.param("echo a; echo b >&2", BOTH, b"", b"a\n", b"b\n", SUCCESS, id="both-outputs-apart"),
        pytest.param("exit 3", BOTH, b"", b"", b"", failure(3), id="an-exit-code"),
        pytest.param("head -c 300000 /dev/zero", BOTH, b"", bytes(300000), b"", SUCCESS, id="many-frames"),
        pytest.param("echo a; echo b >&2", "stderr=true", b"", b"", b"b\n", SUCCESS, id="only-what-was-asked-for"),
        pytest.param(
            "read x; echo got $x",
            f"{BOTH}&stdin=true",
            masked(b"\0word\n"),
            b"got word\n",
            b"",
            SUCCESS,
            id="input-right-behind-the-request",
        ),
        pytest.param(
            "read x; echo got $x",
            f"{BOTH}&stdin=true",
            masked(b"\0wo", last=False) + masked(b"rd\n", 0),
            b"got word\n",
            b"",
            SUCCESS,
            id="input-in-fragments",
        ),
        pytest.param(
            "read x; echo got $x",
            f"{BOTH}&stdin=true",
            masked(b"\0wo", 1) + masked(b"\0rd\n"),
            b"got word\n",
            b"",
            SUCCESS,
            id="input-as-text",
        ),
        pytest.param("cat", BOTH, masked(b"\0nobody asked for input"), b"", b"", SUCCESS, id="no-input-unless-asked"),
        pytest.param(
            "stty size; exit 5", f"{BOTH}&stdin=true&tty=true", b"", b"0 0\r\n", b"", failure(5), id="a-terminal"
        ),
    ],
)
def test_output_and_exit_code_of_a_command(
    api: Served,
    *,
    protocol: str,
    script: str,
    query: str,
    sent: bytes,
    out: bytes,
    err: bytes,
    status: dict[str, object],
) -> None:
    with api.connect() as wire:
        head = upgraded(wire, "exec", f"{shell(script)}&{query}", sent, sec_websocket_protocol=protocol)
        ending = Ending(wire)

    assert b"sec-websocket-accept: BACScCJPNqyz+UBoqMH89VmURoA=" in head  # by RFC 6455 from the key
    assert f"sec-websocket-protocol: {protocol}".encode() in head
    assert (ending.channels.get(1, b""), ending.channels.get(2, b"")) == (out, err)
    assert orjson.loads(ending.channels[3]) == status
    assert ending.close == 1000


def test_version_5_can_end_the_input(api: Served) -> None:
    with api.connect() as wire:
        upgraded(wire, "exec", f"command=wc&command=-c&{BOTH}&stdin=true", masked(bytes(100_001)) + END_OF_INPUT)
        ending = Ending(wire)

    assert (ending.channels[1].split(), orjson.loads(ending.channels[3])) == ([b"100000"], SUCCESS)


def test_a_terminal_gets_its_size(api: Served) -> None:
    size = masked(b'\x04{"Width":132,"Height":43}')
    with api.connect() as wire:
        upgraded(wire, "exec", f"{shell('read x; stty size')}&stdout=true&stdin=true&tty=true", size)
        wire.send(masked(b'\x04{"Width":133,"Hei') + masked(b'\x04ght":44}\n{"Width":-1}') + masked(b"\0\n"))
        ending = Ending(wire)

    assert ending.channels[1].split(b"\r\n")[-2] == b"44 133"


def test_attach_carries_input_and_output(api: Served) -> None:
    with api.connect() as wire:
        upgraded(wire, "attach", f"container=main&stdin=true&{BOTH}", masked(b"\0typed\n"))
        assert channel(wire, 1, 6) == b"typed\n"  # from now on: not what was printed before
    with api.connect() as again:  # the first client's going has ended nothing
        upgraded(again, "attach", f"stdin=true&{BOTH}", masked(b"\0once more\n"))
        assert channel(again, 1, 10) == b"once more\n"


def test_exec_over_spdy(api: Served) -> None:
    writer, reader = spdy.Writer(), spdy.Reader()
    names = {1: "error", 3: "stdin", 5: "stdout", 7: "stderr"}
    with api.connect() as wire:
        upgraded(wire, "exec", f"{shell('cat; echo b >&2; exit 4')}&{BOTH}&stdin=true", b"", **SPDY)
        wire.send(b"".join(writer.stream(at, {"streamType": name}) for at, name in names.items()) + spdy.ping(1))
        wire.send(spdy.data(3, b"a") + spdy.data(3, b"a", fin=True))
        frames = [frame for piece in pieces(wire) for frame in reader.feed(piece)]

    assert [frame.stream for frame in frames if frame.kind == spdy.SYN_REPLY] == [1, 3, 5, 7]
    assert [frame.number for frame in frames if frame.kind == spdy.PING] == [1]
    by_name = {
        name: b"".join(frame.data for frame in frames if frame.kind == spdy.DATA and frame.stream == at)
        for at, name in names.items()
    }
    assert (by_name["stdout"], by_name["stderr"]) == (b"aa", b"b\n")
    assert orjson.loads(by_name["error"]) == failure(4)
    assert {frame.stream for frame in frames if frame.fin} == {1, 5, 7}


@pytest.fixture
def echo() -> Iterator[int]:
    """A port on which everything comes back."""

    def answer(plug: socket.socket) -> None:
        with plug:
            while data := plug.recv(1 << 16):
                plug.sendall(data)

    def accept() -> None:
        while True:
            try:
                plug, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(plug,), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(WITHIN)


def test_portforward_over_channels(api: Served, echo: int) -> None:
    with closing(socket.socket()) as unheard, api.connect() as wire:
        unheard.bind(("127.0.0.1", 0))  # bound, not listening
        closed = unheard.getsockname()[1]
        upgraded(
            wire,
            "portforward",
            f"ports={echo}&ports={closed}",
            masked(b"\0there and back") + END_OF_INPUT,
            sec_websocket_protocol="v4.channel.k8s.io",
        )
        ending = Ending(wire)

    assert ending.channels[0] == echo.to_bytes(2, "little") + b"there and back"
    assert ending.channels[1] == echo.to_bytes(2, "little")
    assert ending.channels[2] == closed.to_bytes(2, "little")
    assert f"nothing listens on port {closed}".encode() in ending.channels[3]


@pytest.mark.parametrize("tunnelled", [pytest.param(True, id="within-a-websocket"), pytest.param(False, id="bare")])
def test_portforward_over_spdy(api: Served, echo: int, *, tunnelled: bool) -> None:
    writer, reader = spdy.Writer(), spdy.Reader()
    query = b""
    for at, request in enumerate(("0", "1", "2")):
        for number, kind in enumerate(("error", "data")):
            headers = {"streamType": kind, "port": str(echo), "requestID": request}
            query += writer.stream(4 * at + 2 * number + 1, headers)
        query += spdy.data(4 * at + 3, f"hello {request}".encode(), fin=True)
    messages: list[spdy.Frame] = []
    with api.connect() as wire:
        if tunnelled:
            headers = {"sec_websocket_protocol": "SPDY/3.1+portforward.k8s.io"}
            half = len(query) // 2
            query = masked(query[:half]) + masked(query[half:])
        else:
            headers = {**SPDY, "x_stream_protocol_version": "portforward.k8s.io"}
        upgraded(wire, "portforward", "", query, **headers)
        received = (content for _, content in frames(wire)) if tunnelled else pieces(wire)
        while len([frame for frame in messages if frame.fin]) < 6:
            messages += reader.feed(next(received))

    for at in range(3):
        text = b"".join(frame.data for frame in messages if frame.kind == spdy.DATA and frame.stream == 4 * at + 3)
        assert text == f"hello {at}".encode()
        assert not any(frame.data for frame in messages if frame.kind == spdy.DATA and frame.stream == 4 * at + 1)


GARBAGE = b"".join(masked(bytes((5 + at % 249, at % 251))) for at in range(10_000))


@pytest.mark.parametrize(
    ("sent", "close"),
    [
        pytest.param(GARBAGE + masked(b"\0a") + END_OF_INPUT, 1000, id="ten-thousand-unknown-channels"),
        pytest.param(masked(b"", 9) * 10_000 + masked(b"\0a") + END_OF_INPUT, 1000, id="ten-thousand-pings"),
        pytest.param(masked(b"\xff\x63\xff") + masked(b"\0a"), 1002, id="an-end-of-two-channels"),
        pytest.param(masked(b"\xff\x63") + masked(b"\0a") + END_OF_INPUT, 1000, id="the-end-of-no-channel"),
        pytest.param(b"\x82\xff" + b"\xff" * 8 + b"mask", 1002, id="a-frame-without-end"),
        pytest.param(b"\x82\x01\x00", 1002, id="no-mask"),
        pytest.param(b"\xf2\x81mask\x00", 1002, id="reserved-bits"),
        pytest.param(masked(b"x", 0), 1002, id="a-message-without-beginning"),
        pytest.param(masked(b"\0a", last=False) + masked(b"\0a"), 1002, id="a-message-within-another"),
        pytest.param(masked(b"x", 9, last=False), 1002, id="a-ping-in-parts"),
        pytest.param(masked(b"x" * 126, 9), 1002, id="a-long-ping"),
        pytest.param(masked(b"x", 11), 1002, id="an-unknown-opcode"),
        pytest.param(masked(b"\x03\xe8", 8), 1000, id="goodbye"),
    ],
)
def test_a_protocol_violation_ends_only_its_own_command(api: Served, sent: bytes, close: int) -> None:
    mark = f"nonsense-{uuid.uuid4().hex}"
    with api.connect() as wire:
        upgraded(wire, "exec", f"{shell(f'MARK={mark} exec cat')}&stdout=true&stdin=true", sent)
        ending = Ending(wire)

    assert ending.close == close
    if close == 1000 and sent.endswith(END_OF_INPUT):
        assert (ending.channels[1], orjson.loads(ending.channels[3])) == (b"a", SUCCESS)
    assert soon(lambda: not with_mark(mark))
    with api.connect() as wire:
        assert wire.ask("GET", f"{PODS}/p")[0] == 200


HEADERS = spdy.Writer().stream(1, {"streamType": "error"})


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x80\x02" + HEADERS[2:], id="another-version"),
        pytest.param(HEADERS[:18] + b"\0" * (len(HEADERS) - 18), id="headers-that-are-none"),
        pytest.param(b"\x80\x03\x00\x01\x00\xff\xff\xff", id="a-control-frame-of-16-MiB"),
        pytest.param(spdy.Writer().stream(1, {"streamType": "x" * 70_000}), id="headers-of-70-kB-packed-small"),
        pytest.param(spdy.Writer().stream(2, {}), id="a-stream-of-the-server"),
        pytest.param(b"\x80\x03\x00\x06\x00\x00\x00\x01\x00", id="a-ping-cut-short"),
    ],
)
def test_broken_spdy_ends_its_connection(api: Served, sent: bytes) -> None:
    with api.connect() as wire:
        upgraded(wire, "exec", f"command=cat&{BOTH}", sent, **SPDY)
        assert wire.closed()
    with api.connect() as wire:
        assert wire.ask("GET", f"{PODS}/p")[0] == 200


def test_the_number_of_streams_is_bounded(api: Served) -> None:
    writer, reader = spdy.Writer(), spdy.Reader()
    text = b"".join(writer.stream(at, {"streamtype": "data", "port": "9"}) for at in range(1, 20_001, 2))
    with api.connect() as wire:
        upgraded(wire, "portforward", "", text, **{**SPDY, "x_stream_protocol_version": "portforward.k8s.io"})
        frames: list[spdy.Frame] = []
        received = pieces(wire)
        while len(frames) < 10_000:
            frames += reader.feed(next(received))

    assert len([frame for frame in frames if frame.kind == spdy.SYN_REPLY]) == 1024
    assert {frame.number for frame in frames if frame.kind == spdy.RST_STREAM} == {spdy.REFUSED_STREAM}


def written(pid: int) -> int:
    """How many bytes a process has written."""
    rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(rows["wchar"])


def test_a_client_that_does_not_read_blocks_only_its_own_program(api: Served) -> None:
    mark = f"flood-{uuid.uuid4().hex}"
    with api.connect() as wire, api.connect() as other:
        upgraded(wire, "exec", f"{shell(f'MARK={mark} exec yes')}&stdout=true")
        assert soon(lambda: with_mark(mark))
        (pid,) = with_mark(mark)

        def still() -> bool:
            before = written(pid)
            time.sleep(0.2)
            return written(pid) == before

        assert soon(still)
        assert written(pid) < 32 << 20  # what the kernel's and our buffers took
        upgraded(other, "exec", "command=echo&command=mine&stdout=true")
        assert Ending(other).channels[1] == b"mine\n"
        before = written(pid)
        message = channel(wire, 1, before + 1)  # and it goes on when it is read
        assert message == (b"y\n" * (len(message) // 2 + 1))[: len(message)]
        assert written(pid) > before
    assert soon(lambda: not with_mark(mark))


@pytest.mark.parametrize("held", [pytest.param(False, id="idle"), pytest.param(True, id="while-its-input-waits")])
def test_a_lost_client_ends_its_command(api: Served, *, held: bool) -> None:
    mark = f"vanish-{uuid.uuid4().hex}"
    wire = api.connect()
    upgraded(wire, "exec", f"{shell(f'MARK={mark} exec sleep 600')}&stdout=true&stdin=true")
    assert soon(lambda: with_mark(mark))
    if held:
        wire.plug.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the client does not read, so the server stops reading from us
            wire.send(masked(bytes(1 << 16)) * 500)
    wire.plug.close()
    assert soon(lambda: not with_mark(mark))


@pytest.mark.parametrize(
    ("verb", "query", "more", "code", "message"),
    [
        pytest.param(
            "exec",
            f"command=true&{BOTH}",
            {"upgrade": "h2c"},
            400,
            "expected a WebSocket or SPDY/3.1",
            id="another-upgrade",
        ),
        pytest.param(
            "exec",
            f"command=true&{BOTH}",
            {"sec_websocket_protocol": "chat"},
            400,
            "expected one of v5.channel.k8s.io",
            id="another-protocol",
        ),
        pytest.param(
            "exec",
            f"command=true&{BOTH}",
            {"sec_websocket_version": "8"},
            400,
            "expected 13, found '8'",
            id="another-version",
        ),
        pytest.param(
            "exec",
            f"command=true&{BOTH}",
            {**SPDY, "x_stream_protocol_version": "v1"},
            403,
            "expected protocol v4.channel.k8s.io, found ['v1']",
            id="an-old-spdy-protocol",
        ),
        pytest.param("exec", BOTH, {}, 400, "you must specify at least one command", id="no-command"),
        pytest.param("exec", "command=true", {}, 400, "at least 1 of stdin, stdout, stderr", id="no-ends"),
        pytest.param(
            "exec",
            f"command=true&{BOTH}&container=other",
            {},
            400,
            "container other is not valid for pod p",
            id="no-such-container",
        ),
        pytest.param("attach", f"{BOTH}&tty=true", {}, 400, "was not started with a terminal", id="no-terminal"),
        pytest.param("portforward", "ports=0", {}, 400, "found '0'", id="no-port"),
        pytest.param("portforward", "ports=80,web", {}, 400, "found '80,web'", id="a-port-by-name"),
        pytest.param(
            "portforward",
            "ports=" + ",".join("9" * 128),
            {},
            400,
            "between 1 and 127 numbers",
            id="more-ports-than-channels",
        ),
        pytest.param(
            "portforward",
            "",
            {"sec_websocket_protocol": "v5.channel.k8s.io"},
            400,
            "SPDY/3.1+portforward.k8s.io, v4.channel.k8s.io",
            id="ports-by-another-protocol",
        ),
    ],
)
def test_invalid_options_are_refused(
    api: Served, *, verb: str, query: str, more: dict[str, str], code: int, message: str
) -> None:
    with api.connect() as wire:
        wire.send(wire.request("GET", f"{PODS}/p/{verb}?{query}", b"", **{**UPGRADE, **more}))
        value, answer = wire.answer()
        assert wire.closed()

    assert value == code
    assert message in answer["message"]


def test_a_pod_without_a_node_runs_nothing(api: Served) -> None:
    with api.connect() as wire:
        assert wire.ask("POST", PODS, pod("nowhere"))[0] == 201
        code, answer = wire.ask("GET", f"{PODS}/nowhere/exec?command=ls&{BOTH}", **UPGRADE)

    assert (code, answer["message"]) == (400, "pod nowhere does not have a host assigned")


def test_webhooks_admit_exec_and_attach(api: Served) -> None:
    seen = Witness()
    api.api.admission.webhooks.local["https://a.test/"] = seen
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*"]}
    body = {"metadata": {"name": "a"}, "webhooks": [webhook("a", rules=[rule])]}
    with api.connect() as wire:
        assert wire.ask("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", body)[0] == 201
        upgraded(wire, "exec", f"command=echo&command=hello&{BOTH}", masked(b""))
        assert Ending(wire).channels[1] == b"hello\n"
    with api.connect() as wire:
        upgraded(wire, "portforward", "ports=9,10", sec_websocket_protocol="v4.channel.k8s.io")
        Ending(wire)
        wire.plug.close()
    with api.connect() as wire:
        assert wire.ask("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/a")[0] == 200

    command, ports = seen.requests
    commands = [command[name] for name in ("operation", "subResource", "name", "options")]
    assert commands == ["CONNECT", "exec", "p", None]
    assert (command["object"]["kind"], command["object"]["command"]) == ("PodExecOptions", ["echo", "hello"])
    assert (ports["object"]["kind"], ports["object"]["ports"]) == ("PodPortForwardOptions", [9, 10])


@pytest.mark.parametrize("verb", ["exec", "attach", "portforward"])
def test_simulated_containers_run_no_commands(verb: str) -> None:
    api = Api()
    api.do("POST", PODS, pod("p"))

    code, answer = api.ask("GET", f"{PODS}/p/{verb}?command=ls&stdout=true")

    assert (code, answer["reason"]) == (400, "BadRequest")
    assert "its node simulates its containers" in answer["message"]
