"""Commands in containers, over a WebSocket."""

import base64
from collections.abc import Iterator

import orjson
import pytest

from harness.apiserver.tests.asking import PODS, Api, pod
from harness.apiserver.tests.serving import Served, Wire, served
from harness.apiserver.webhooks.tests.answering import CONFIGURATIONS, Witness, webhook
from harness.errors import ClusterError

UPGRADE = {
    "connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
    "sec_websocket_key": base64.b64encode(b"0123456789abcdef").decode(),
    "sec_websocket_protocol": "v5.channel.k8s.io, v4.channel.k8s.io",
}  # fmt: skip
ANSWERS = {"hello": (0, b"hello\n"), "false": (1, b""), "much": (0, b"x" * 200_000)}


async def run(namespace: str, name: str, container: str, command: list[str]) -> tuple[int, bytes] | None:
    """A runner for tests: knows a few words."""
    if container == "gone":
        raise ClusterError("container 'gone' is not running")
    return ANSWERS[command[0]]


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as found:
        found.api.commands = run
        with found.connect() as wire:
            assert wire.ask("POST", PODS, pod("p"))[0] == 201
        yield found


def frames(wire: Wire) -> list[tuple[int, bytes]]:
    """Opcode and content of everything until the server closes."""
    data = wire._left
    while more := wire._receive():
        data += more
    found = []
    while data:
        size, at = data[1], 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
        found.append((data[0] & 0x0F, data[at : at + size]))
        data = data[at + size :]
    return found


def spoken(api: Served, query: str) -> tuple[bytes, bytes, list[tuple[int, bytes]]]:
    """The answer's head, the output channel, and the other frames."""
    with api.connect() as wire:
        wire.send(wire.request("GET", f"{PODS}/p/exec?{query}", b"", **UPGRADE))
        head = wire._until(b"\r\n\r\n")
        found = frames(wire)
    output = b"".join(content[1:] for opcode, content in found if opcode == 2 and content[0] == 1)
    return head, output, [one for one in found if one[0] != 2 or one[1][0] != 1]


@pytest.mark.parametrize(
    ("query", "output", "status"),
    [
        pytest.param("command=hello&stdout=true", b"hello\n", {"status": "Success"}, id="a-word"),
        pytest.param("command=much&stdout=true", b"x" * 200_000, {"status": "Success"}, id="many-frames"),
        pytest.param(
            "command=false", b"",
            {
                "status": "Failure", "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code: exit status 1",
                "details": {"causes": [{"reason": "ExitCode", "message": "1"}]},
            },
            id="a-failure",
        ),
        pytest.param(
            "command=hello&container=gone", b"",
            {
                "status": "Failure", "reason": "InternalError", "code": 500,
                "message": "container 'gone' is not running",
            },
            id="a-container-that-is-gone",
        ),
    ],
)  # fmt: skip
def test_what_a_command_says(api: Served, query: str, output: bytes, status: dict[str, object]) -> None:
    head, said, rest = spoken(api, query)

    assert head.startswith(b"HTTP/1.1 101 Switching Protocols")
    assert b"sec-websocket-accept: BACScCJPNqyz+UBoqMH89VmURoA=" in head  # by RFC 6455 from the key
    assert b"sec-websocket-protocol: v5.channel.k8s.io" in head
    assert said == output
    (error, close) = rest
    assert (error[1][:1], orjson.loads(error[1][1:])) == (b"\x03", {"metadata": {}, **status})
    assert close == (8, (1000).to_bytes(2, "big"))


@pytest.mark.parametrize(
    ("verb", "query", "more", "said"),
    [
        pytest.param("exec", "command=hello", {"upgrade": "SPDY/3.1"}, "Upgrade request required", id="spdy"),
        pytest.param(
            "exec", "command=hello", {"sec_websocket_protocol": "chat"}, "expected one of v5.channel.k8s.io",
            id="another-protocol",
        ),
        pytest.param("exec", "stdout=true", {}, "you must specify at least one command", id="no-command"),
        pytest.param("exec", "command=hello&stdin=true", {}, "commands get no input on this node", id="input"),
        pytest.param("attach", "", {}, "attach is not supported", id="attach"),
        pytest.param("portforward", "ports=80", {}, "portforward is not supported", id="portforward"),
    ],
)  # fmt: skip
def test_what_cannot_be_done(api: Served, verb: str, query: str, more: dict[str, str], said: str) -> None:
    with api.connect() as wire:
        wire.send(wire.request("GET", f"{PODS}/p/{verb}?{query}", b"", **{**UPGRADE, **more}))
        code, answer = wire.answer()

    assert code == 400
    assert said in answer["message"]


def test_webhooks_have_a_word_in_it(api: Served) -> None:
    seen = Witness()
    api.api.admission.webhooks.local["https://a.test/"] = seen
    connecting = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"]}
    body = {"metadata": {"name": "a"}, "webhooks": [webhook("a", rules=[connecting])]}
    with api.connect() as wire:
        assert wire.ask("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", body)[0] == 201

    spoken(api, "command=hello&stdout=true")

    (asked,) = seen.requests
    assert (asked["operation"], asked["subResource"], asked["name"], asked["options"]) == ("CONNECT", "exec", "p", None)
    assert asked["object"]["command"] == ["hello"]


def test_simulated_containers_run_no_commands() -> None:
    api = Api()
    api.do("POST", PODS, pod("p"))

    code, answer = api.ask("GET", f"{PODS}/p/exec?command=ls")

    assert (code, answer["reason"]) == (400, "BadRequest")
    assert "its node simulates its containers" in answer["message"]
