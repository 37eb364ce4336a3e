"""The HTTPS servers that stand for kubelets of simulated nodes."""

import asyncio
import ssl

import pytest

from seatrial.harness.clusters.agents import _tls, object_of
from seatrial.harness.clusters.kubelet_endpoints import KubeletEndpoints, cut


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({}, b"a\nb\nc\n", id="all"),
        pytest.param({"tailLines": "2"}, b"b\nc\n", id="tail"),
        pytest.param({"tailLines": "0"}, b"", id="nothing"),
        pytest.param({"limitBytes": "3"}, b"a\nb", id="bytes"),
        pytest.param({"tailLines": "1", "limitBytes": "1"}, b"c", id="both"),
    ],
)
def test_part_of_a_log(query: dict[str, str], want: bytes) -> None:
    assert cut(b"a\nb\nc\n", query) == want


async def _ask(target: str, *, method: str = "GET", node: str = "n1") -> tuple[int, bytes]:
    """The status and body of one request to the endpoint of n1; n2 has another one."""
    logs = {("ns", "p", "c"): b"one\ntwo\n"}

    async def pods_of(node: str) -> bytes:
        return f"the pods of {node}".encode()

    endpoints = KubeletEndpoints(lambda *of: logs.get(of), pods_of, _tls(1_700_000_000.0, "127.0.0.1"))
    addresses = {"n1": endpoints.open("n1", 1), "n2": endpoints.open("n2", 2)}
    assert addresses["n1"] != addresses["n2"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    at = addresses[node]
    reader, writer = await asyncio.open_connection(at.host, at.port, ssl=context)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    for name in addresses:
        endpoints.close(name)
    await asyncio.sleep(0)
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("target", "method", "code", "words"),
    [
        pytest.param("/healthz", "GET", 200, b"ok", id="health"),
        pytest.param("/pods/", "GET", 200, b"the pods of n1", id="pods"),
        pytest.param("/containerLogs/ns/p/c", "GET", 200, b"one\ntwo\n", id="log"),
        pytest.param("/containerLogs/ns/p/c?tailLines=1", "GET", 200, b"two\n", id="tail"),
        pytest.param("/containerLogs/ns/p/c?tailLines=x", "GET", 400, b"expected a whole number", id="no-number"),
        pytest.param("/containerLogs/ns/q/c", "GET", 404, b'pod "q" is not running', id="no-such-pod"),
        pytest.param("/exec/ns/p/c?command=ls", "POST", 501, b"simulates its containers", id="exec"),
        pytest.param("/healthz", "POST", 405, b"only GET", id="method"),
        pytest.param("/stats", "GET", 404, b"not found", id="unknown"),
    ],
)
def test_answers(target: str, method: str, code: int, words: bytes) -> None:
    result, body = asyncio.run(_ask(target, method=method))
    assert result == code
    assert words in body


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/api/v1/nodes/a/status?x=y", "/api/v1/nodes/a", id="subresource"),
        pytest.param("/api/v1/nodes/a", "/api/v1/nodes/a", id="object"),
        pytest.param("/api/v1/nodes?limit=1", "/api/v1/nodes", id="collection"),
    ],
)
def test_requests_for_one_object_share_a_worker(path: str, want: str) -> None:
    assert object_of(path) == want
