"""The cluster as a process: up quickly, gone without a trace, and its mistakes told in a sentence."""

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from seatrial.harness.clusters.embedded import EmbeddedBackend, start_process
from seatrial.harness.clusters.kubeconfig import Access
from seatrial.harness.clusters.remote import PumpedClock, RemoteCluster, RemoteTransport
from seatrial.harness.clusters.simulated import is_ready
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.processes import stop
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteCluster]:
    with EmbeddedBackend().start() as cluster:
        yield cluster


def test_nodes_pods_and_watches_over_https() -> None:
    with EmbeddedBackend().start() as cluster:
        seen: list[bytes] = []
        stream = cluster.transport.stream(Request("GET", f"{PODS}?watch=1"), seen.append, lambda _: None)
        cluster.add_nodes([node("n1").gpus("a10", 1)])
        body = pod("a").request(cpu=1).node_name("n1").manifest
        assert cluster.call(Request("POST", PODS, orjson.dumps(body))).code == 201
        assert cluster.wait(lambda: any(b'"Running"' in line for line in seen), within=60)
        stream.close()
        assert cluster.endpoint is not None
        assert cluster.endpoint.kubeconfig.stat().st_mode & 0o777 == 0o600
        kubeconfig = cluster.endpoint.kubeconfig
    assert not kubeconfig.exists()


@pytest.mark.parametrize(
    ("headers", "path", "code"),
    [
        pytest.param({}, "/api/v1/nodes", 403, id="no-credentials"),
        pytest.param({"authorization": "Bearer no"}, "/api/v1/nodes", 401, id="a-wrong-token"),
        pytest.param({}, "/healthz", 200, id="health-is-for-everybody"),
    ],
)
def test_strangers(server: RemoteCluster, headers: dict[str, str], path: str, code: int) -> None:
    assert server.endpoint is not None
    config = yaml.safe_load(server.endpoint.kubeconfig.read_bytes())
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    trusting = ssl.create_default_context(cadata=authority)  # the server is known, the client shows nothing
    transport = RemoteTransport(Access(server.endpoint.url, trusting, headers), PumpedClock())
    assert transport.call(Request("GET", path)).code == code
    transport.close()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is in use"):
            start_process(tmp_path / "k", fleet="", seed=0, port=port, log=tmp_path / "log")
    assert not (tmp_path / "k").exists()


def test_a_fleet_with_a_mistake_is_said_before_anything_starts(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("nodes: [{name: a, devices: [{model: a11}]}]")
    with pytest.raises(UsageError, match="a11"), EmbeddedBackend().start(fleet=fleet):
        raise AssertionError("started")


def test_the_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Even if that one is killed: no server is left behind."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom harness.clusters.embedded import start_process\n"
        f"process, url = start_process(Path({str(tmp_path / 'k')!r}), fleet='', seed=0, port=0,"
        f" log=Path({str(tmp_path / 'log')!r}))\nprint(process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_is_told_to_stop_stops_at_once(tmp_path: Path) -> None:
    process, url = start_process(tmp_path / "k", fleet="", seed=0, port=0, log=tmp_path / "log")
    assert url.startswith("https://127.0.0.1:")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    stop(process)
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param({"annotations": {"kwok.x-k8s.io/node": "fake"}}, id="kwok"),
        pytest.param({"labels": {"seatrial.dev/simulated": "true"}}, id="our-label"),
    ],
)
def test_a_node_that_a_client_creates_becomes_ready_and_runs_pods(
    server: RemoteCluster, request: pytest.FixtureRequest, marks: dict[str, dict[str, str]]
) -> None:
    """As `kubectl create -f` of KWOK's example, whose pods ask for a resource that no device of ours provides."""
    name = request.node.callspec.id
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "example.com/fpga": "8"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **marks},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    assert server.call(Request("POST", "/api/v1/nodes", orjson.dumps(manifest))).code == 201

    def seen() -> dict[str, Any]:
        document: dict[str, Any] = orjson.loads(server.call(Request("GET", f"/api/v1/nodes/{name}")).body)
        return document

    assert server.wait(lambda: is_ready(seen()) and not seen()["spec"].get("taints"), within=60)
    assert seen()["status"]["allocatable"]["example.com/fpga"] == "8"
    body = pod(name).request(cpu=1, **{"example.com/fpga": 1}).node_name(name).manifest
    assert server.call(Request("POST", PODS, orjson.dumps(body))).code == 201
    assert server.wait(lambda: b'"phase":"Running"' in server.call(Request("GET", f"{PODS}/{name}")).body, within=60)


def test_a_node_without_a_mark_has_no_agent(server: RemoteCluster) -> None:
    """A Node made after it is Ready, and this one is not."""
    for name, marks in (("bare", {}), ("later", {"annotations": {"kwok.x-k8s.io/node": "fake"}})):
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **marks}}
        assert server.call(Request("POST", "/api/v1/nodes", orjson.dumps(manifest))).code == 201

    def node_named(name: str) -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(server.call(Request("GET", f"/api/v1/nodes/{name}")).body)
        return body

    assert server.wait(lambda: is_ready(node_named("later")), within=60)
    assert not is_ready(node_named("bare"))
