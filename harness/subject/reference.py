"""Two schedulers that every case about scheduling must fail: one that does nothing, and one that binds at random.

A case that passes with one of them does not judge the scheduler.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

import msgspec
import orjson

from seatrial.harness.clusters.fault_injection.transport import FaultyTransport, Link
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import SubjectError
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.transport import Request, Response, Stream
from seatrial.scheduler.api.wire import WatchEvent

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
_decode_event = msgspec.json.Decoder(WatchEvent).decode
_decode_pod = msgspec.json.Decoder(Pod).decode


class Idle(Subject):
    """Runs and does nothing."""

    name = "idle"
    version = "1"

    def __init__(self, cluster: Cluster) -> None:
        self._link = FaultyTransport(cluster.transport, cluster.clock)

    def log(self) -> str:
        return ""

    def ask(self, method: str, path: str, body: bytes = b"") -> Response | None:  # noqa: ARG002 it serves nothing
        return None

    def kill(self) -> None:
        """It has nothing to end."""

    def start_again(self) -> None:
        """It has nothing to start."""

    @contextmanager
    def troubled(self) -> Iterator[Link]:
        yield self._link

    @contextmanager
    def configured(self, config: Path) -> Iterator[None]:  # noqa: ARG002 it treats alike the pods of all profiles
        yield

    def check(self) -> None:
        """It never ends by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class RandomBinder(Idle):
    """Binds each pod to a random node at once, without any check."""

    name = "random"

    def __init__(self, cluster: Cluster, *, seed: int = 0) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._random = random.Random(seed)  # noqa: S311 chooses nodes
        self._stream: Stream | None = None
        self._done: set[str] = set()

    def __enter__(self) -> Self:
        self.start_again()
        return self

    def start_again(self) -> None:
        listed = self._cluster.call(Request("GET", PODS))
        if not listed.ok:
            raise SubjectError(f"the random scheduler cannot list pods: {listed.code}")
        body = orjson.loads(listed.body)
        for row in body["items"]:
            self._bind(msgspec.convert(row, Pod))
        query = urlencode({"watch": "1", "resourceVersion": body["metadata"]["resourceVersion"]})
        self._stream = self._cluster.transport.stream(Request("GET", f"{PODS}?{query}"), self._on_line, lambda _: None)

    def kill(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _on_line(self, line: bytes) -> None:
        event = _decode_event(line)
        if event.type == "ADDED":
            pod = _decode_pod(bytes(event.object))
            self._cluster.clock.call_soon(lambda: self._bind(pod))

    def _bind(self, pod: Pod) -> None:
        if pod.spec.node_name or pod.metadata.uid in self._done:
            return
        self._done.add(pod.metadata.uid)

        def listed(response: Response) -> None:
            names = (
                sorted(row["metadata"]["name"] for row in orjson.loads(response.body)["items"]) if response.ok else []
            )
            if names:
                self._send(pod, self._random.choice(names))

        self._cluster.transport.send(Request("GET", NODES), listed)

    def _send(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/binding"
        self._cluster.transport.send(Request("POST", path, orjson.dumps(body)), lambda _: None)
