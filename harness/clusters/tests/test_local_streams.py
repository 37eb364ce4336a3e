"""Speaking with pods that are processes of this machine: kubectl and the official Python client as they are."""

import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from seatrial.harness.clusters.local import LocalBackend, LocalCluster
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, with_mark
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl: expected on PATH, not found")
PROTOCOLS = [
    pytest.param({}, id="websocket"),
    pytest.param({"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}, id="spdy"),
]
SERVE = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"you asked for {self.path}".encode() * int(self.path.rpartition("/")[2]))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that is this machine, a pod `cat` that reads its input, and a pod `web` that serves HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with LocalBackend(fake="a10").start() as started:
            submit(started, "cat", ["sh", "-c", "echo early; exec cat"], stdin=True)
            submit(started, "web", [sys.executable, "-c", SERVE])
            yield started


def submit(cluster: LocalCluster, name: str, command: list[str], **container: Any) -> None:
    """A pod on this machine, once it runs."""
    built = pod(name).node_name(cluster.node).namespace("default")
    built.manifest["spec"]["containers"][0].update(command=command, **container)
    answer = cluster.call(Request("POST", PODS, orjson.dumps(built.manifest)))
    assert answer.ok, answer.body

    def ready() -> bool:
        log = cluster.call(Request("GET", f"{PODS}/{name}/log"))
        return log.ok and bool(log.body)

    assert cluster.wait(ready, within=WITHIN)


@pytest.fixture(scope="module")
def port(cluster: LocalCluster) -> int:
    """Where `web` listens."""
    return int(cluster.call(Request("GET", f"{PODS}/web/log")).body)


@pytest.fixture(scope="module")
def api(cluster: LocalCluster) -> client.CoreV1Api:
    return official(cluster)


def official(cluster: LocalCluster, token: str = "") -> client.CoreV1Api:
    assert cluster.endpoint is not None
    result = client.Configuration()
    config.load_kube_config(str(cluster.endpoint.kubeconfig), client_configuration=result)
    if token:
        result.api_key = {"BearerToken": f"Bearer {token}"}
        result.cert_file = result.key_file = result.refresh_api_key_hook = None
    return client.CoreV1Api(client.ApiClient(result))


def arguments(cluster: LocalCluster, *words: str) -> list[str]:
    assert cluster.endpoint is not None
    return ["kubectl", "--kubeconfig", str(cluster.endpoint.kubeconfig), *words]


def kubectl(
    cluster: LocalCluster, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        arguments(cluster, *words),
        input=stdin,
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, **(env or {})},
    )


# -- kubectl ----------------------------------------------------------------------------------------------------------


@needs_kubectl
@pytest.mark.parametrize("env", PROTOCOLS)
@pytest.mark.parametrize(
    ("words", "stdin", "code", "out", "err"),
    [
        pytest.param(
            ["exec", "cat", "--", "sh", "-c", "echo a; echo b >&2; exit 3"],
            b"",
            3,
            b"a\n",
            b"b\ncommand terminated with exit code 3\n",
            id="outputs-apart-and-a-code",
        ),
        pytest.param(["exec", "-i", "cat", "--", "sort"], b"b\na\n", 0, b"a\nb\n", b"", id="input-and-its-end"),
        pytest.param(["exec", "-i", "cat", "--", "cat"], bytes(5_000_000), 0, bytes(5_000_000), b"", id="much-of-both"),
        pytest.param(
            ["exec", "cat", "--", "no-such-program"],
            b"",
            1,
            b"",
            b"error: error executing command in container: no-such-program: No such file or directory\n",
            id="no-such-program",
        ),
        pytest.param(
            ["exec", "cat", "--", "printf", "[%s]", "", "a b", "é&=%"],
            b"",
            0,
            "[][a b][é&=%]".encode(),
            b"",
            id="words-as-they-are",
        ),
    ],
)
def test_exec_by_kubectl(
    cluster: LocalCluster, *, env: dict[str, str], words: list[str], stdin: bytes, code: int, out: bytes, err: bytes
) -> None:
    process = kubectl(cluster, *words, stdin=stdin, env=env)
    assert (process.returncode, process.stdout, process.stderr) == (code, out, err)


@needs_kubectl
def test_copying_both_ways(cluster: LocalCluster, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "big").write_bytes(os.urandom(1_000_000))
    (source / "small").write_text("small\n")

    for words in ([str(source), f"cat:{there}"], [f"cat:{there}", str(back)]):
        process = kubectl(cluster, "cp", *words)
        assert process.returncode == 0, process.stderr

    for name in ("deep/big", "small"):
        assert (back / name).read_bytes() == (source / name).read_bytes()


@contextmanager
def on_terminal(cluster: LocalCluster, *words: str) -> Iterator["Terminal"]:
    """kubectl with a terminal of its own, as a person has it."""
    pid, master = pty.fork()
    if pid == 0:
        command = arguments(cluster, *words)
        os.execvp(command[0], command)  # noqa: S606 the kubectl under test
    terminal = Terminal(pid, master)
    try:
        yield terminal
    finally:
        os.close(master)
        if terminal.code is None:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
            os.waitpid(pid, 0)


class Terminal:
    """What a person sees and types."""

    def __init__(self, pid: int, master: int) -> None:
        self._pid, self._master = pid, master
        self.seen = ""
        self.code: int | None = None

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, text: str) -> bool:
        """Whether that comes to be seen, within a while."""
        deadline = time.monotonic() + WITHIN
        while text not in self.seen and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 4096).decode()
                except OSError:
                    break  # it has ended
        return text in self.seen

    def ends(self) -> int:
        """The exit code, after the rest was read."""
        self.shows("\0 never seen")
        self.code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.code


@needs_kubectl
@pytest.mark.parametrize("env", PROTOCOLS)
def test_a_shell_on_a_terminal(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with on_terminal(cluster, "exec", "-it", "cat", "--", "sh") as terminal:
        terminal.type("PS1=; test -t 0 && echo on a ter''minal; echo $TERM\n")
        assert terminal.shows("on a terminal"), terminal.seen
        assert terminal.shows("xterm")
        mark = f"interrupted-{uuid.uuid4().hex}"
        terminal.type(f"MARK={mark} sleep 600\n")
        assert cluster.wait(lambda: bool(with_mark(mark)), within=WITHIN)
        terminal.type("\x03")  # control-C reaches the program, not kubectl
        terminal.type("echo still h''ere; exit 7\n")
        assert terminal.shows("still here"), terminal.seen
        assert terminal.ends() == 7


@needs_kubectl
def test_attaching_by_kubectl(cluster: LocalCluster) -> None:
    command = arguments(cluster, "attach", "-i", "cat")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as attached:
        assert attached.stdin is not None
        assert attached.stdout is not None
        attached.stdin.write(b"typed\n")
        attached.stdin.flush()
        assert attached.stdout.readline() == b"typed\n"
        attached.terminate()


@needs_kubectl
@pytest.mark.parametrize("terminal", [pytest.param(False, id="by-pipes"), pytest.param(True, id="on-a-terminal")])
def test_run_and_remove(cluster: LocalCluster, *, terminal: bool) -> None:
    name = f"run-{'tty' if terminal else 'pipe'}"
    overrides = orjson.dumps({"spec": {"nodeName": cluster.node}}).decode()
    words = ["run", name, "--rm", "--restart=Never", "--image=busybox", f"--overrides={overrides}"]
    script = "read line; echo got $line; exit 5"
    if terminal:
        with on_terminal(cluster, *words, "-it", "--command", "--", "sh", "-c", script) as result:
            assert result.shows("try pressing enter"), result.seen
            result.type("a word\n")
            assert result.shows("got a word"), result.seen
            assert result.ends() == 5
    else:
        done = kubectl(cluster, *words, "-i", "--command", "--", "sh", "-c", script, stdin=b"a word\n")
        assert (done.returncode, done.stdout.splitlines()[0]) == (5, b"got a word"), done.stderr
    assert cluster.wait(lambda: cluster.call(Request("GET", f"{PODS}/{name}")).code == 404, within=WITHIN)


@contextmanager
def forwarded(cluster: LocalCluster, env: dict[str, str], *ports: str) -> Iterator[int]:
    """A local port that kubectl forwards; the first of them."""
    process = subprocess.Popen(
        arguments(cluster, "port-forward", "--address", "127.0.0.1", "pod/web", *ports),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("Forwarding from 127.0.0.1:"), line
        yield int(line.split(":")[1].split(" ")[0])
    finally:
        process.terminate()
        process.wait(WITHIN)
        assert process.stdout is not None
        process.stdout.close()


def response_body(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WITHIN) as answer:
        return bytes(answer.read())


@needs_kubectl
@pytest.mark.parametrize("env", PROTOCOLS)
def test_http_through_port_forward(cluster: LocalCluster, port: int, env: dict[str, str]) -> None:
    with forwarded(cluster, env, f":{port}") as local:
        assert response_body(local, "/a/1") == b"you asked for /a/1"
        assert response_body(local, "/b/100000") == b"you asked for /b/100000" * 100_000
        for _ in range(20):  # a connection each
            assert response_body(local, "/c/1") == b"you asked for /c/1"


# -- the official Python client ---------------------------------------------------------------------------------------


def done_with(forward: Any) -> None:
    """Close what the library leaves open: its own ends once its thread has ended, and the connection."""
    forward.close()
    for thread in threading.enumerate():
        if thread.name.startswith("Kubernetes port forward proxy"):
            thread.join(WITHIN)
    forward.websocket.shutdown()  # its `close` leaves a connection open that the server has closed first


def test_exec_by_the_python_client(api: client.CoreV1Api) -> None:
    script = "read word; echo got $word; echo apart >&2; cat; exit 7"
    result = stream(
        api.connect_get_namespaced_pod_exec,
        "cat",
        "default",
        command=["sh", "-c", script],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    result.write_stdin("hello\n")
    assert result.readline_stdout(timeout=WITHIN) == "got hello"
    assert result.readline_stderr(timeout=WITHIN) == "apart"
    result.write_stdin("the rest")
    result.close_channel(0)
    result.run_forever(timeout=WITHIN)
    assert (result.read_stdout(), result.returncode) == ("the rest", 7)
    result.sock.shutdown()


def test_attaching_by_the_python_client(api: client.CoreV1Api) -> None:
    result = stream(
        api.connect_get_namespaced_pod_attach,
        "cat",
        "default",
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    result.write_stdin("from python\n")
    assert result.readline_stdout(timeout=WITHIN) == "from python"
    result.close()


def test_ports_by_the_python_client(api: client.CoreV1Api, port: int) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        closed = unheard.getsockname()[1]
        result = portforward(api.connect_get_namespaced_pod_portforward, "web", "default", ports=f"{port},{closed}")
        plug = result.socket(port)
        plug.settimeout(WITHIN)
        plug.sendall(b"GET /python/1 HTTP/1.0\r\n\r\n")
        message = b""
        while more := plug.recv(4096):
            message += more
        error = result.error(closed)
        done_with(result)
    assert message.endswith(b"you asked for /python/1")
    assert result.error(port) is None
    assert f"nothing listens on port {closed}" in error


# -- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        pytest.param({"pods/exec": ["get", "create"], "pods/portforward": ["get", "create"]}, True, id="by-role"),
        pytest.param({"pods/exec": ["get"], "pods/portforward": ["get"]}, False, id="reading-is-not-enough"),
        pytest.param({"pods": ["get", "create"]}, False, id="pods-themselves-are-not-enough"),
    ],
)
def test_who_may(
    cluster: LocalCluster, port: int, request: pytest.FixtureRequest, rules: dict[str, list[str]], *, allowed: bool
) -> None:
    name = request.node.callspec.id
    rows = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in rules.items()]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    for path, body in (
        ("/api/v1/namespaces/default/serviceaccounts", {}),
        (f"{ROLES}/roles", {"rules": rows}),
        (f"{ROLES}/rolebindings", {"roleRef": reference, "subjects": [subject]}),
    ):
        answer = cluster.call(Request("POST", path, orjson.dumps({"metadata": {"name": name}, **body})))
        assert answer.ok, answer.body
    token = cluster.call(Request("POST", f"/api/v1/namespaces/default/serviceaccounts/{name}/token", b"{}"))
    api = official(cluster, orjson.loads(token.body)["status"]["token"])

    def execute() -> str:
        result = stream(
            api.connect_get_namespaced_pod_exec,
            "cat",
            "default",
            command=["echo", "allowed"],
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
        result.run_forever(timeout=WITHIN)
        result.sock.shutdown()
        return str(result.read_stdout())

    def forward() -> str:
        result = portforward(api.connect_get_namespaced_pod_portforward, "web", "default", ports=str(port))
        done_with(result)
        return "allowed\n"

    for act in (execute, forward):
        if allowed:
            assert act() == "allowed\n"
        else:
            with pytest.raises(client.ApiException, match="403"):
                act()
