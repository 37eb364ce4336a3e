"""A stand-in for YARN's ResourceManager: the part of its REST API by which nodes are read and resized.

Paths and fields are those of Hadoop's documentation (Cluster Node API, Cluster Node Update Resource API).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

_NODES = "/ws/v1/cluster/nodes/"


class ResourceManager:
    """Nodes by their address, as in node-0:8041: total and used virtual cores and MiB."""

    def __init__(self, *nodes: str) -> None:
        self.totals = dict.fromkeys(nodes, (8, 8192))
        self.used = dict.fromkeys(nodes, (0, 0))

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object of one request."""
        name, _, resource = path.removeprefix(_NODES).partition("/")
        name = unquote(name)
        if not path.startswith(_NODES) or name not in self.totals:
            error = {"exception": "NotFoundException", "message": f"nodeId, {name}, is not found"}
            return 404, {"RemoteException": error}
        if method == "POST" and resource == "resource":
            value = json.loads(body)["resource"]
            self.totals[name] = (value["vCores"], value["memory"])
            return 200, {"resourceInfo": value}
        (cores, memory), (used_cores, used_memory) = self.totals[name], self.used[name]
        node = {
            "id": name,
            "state": "RUNNING",
            "usedMemoryMB": used_memory,
            "availMemoryMB": memory - used_memory,
            "usedVirtualCores": used_cores,
            "availableVirtualCores": cores - used_cores,
        }
        return 200, {"node": node}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve it on a free port of this machine alone. Yields its address."""
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                code, answer = manager.answer(self.command, self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = _answer  # noqa: N815 the names that the base class calls

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()
