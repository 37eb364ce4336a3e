"""What programs of other projects on a node keep writing, for simulated nodes: `python -m … --kubeconfig FILE DUTY`.

`--handshake ANNOTATION`: a device plugin sets it on its node every 30 seconds. `--reservations NAMESPACE`: a pod there
that holds a card writes the card's name on itself. A companion of recipes (docs/scoreboard.md), ended by its signal.
"""

import time
from pathlib import Path
from typing import Any

import orjson
from cyclopts import App

from seatrial.harness.clusters.kubeconfig import load_access

EVERY = 30.0  # seconds
ROUND = 0.2  # seconds
CARD = "run.ai/reserve_for_gpu_index"


class Writer:
    """One cluster, and what is written to it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._access = load_access(kubeconfig)
        self._pool = self._access.pool(connections=1)

    def handshake(self, annotation: str, value: str) -> None:
        """Set the annotation of each node."""
        for node in self._listed("/api/v1/nodes"):
            self._annotate(f"/api/v1/nodes/{node['metadata']['name']}", annotation, value)

    def reservations(self, namespace: str) -> None:
        """Set the annotation of each pod that runs and has none."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        for pod in self._listed(path):
            if pod["status"].get("phase") == "Running" and CARD not in (pod["metadata"].get("annotations") or {}):
                name = pod["metadata"]["name"]
                self._annotate(f"{path}/{name}", CARD, f"card-{name}")

    def _listed(self, path: str) -> list[dict[str, Any]]:
        answer = self._pool.request("GET", f"{self._access.url}{path}", headers=self._access.headers)
        return list(orjson.loads(answer.data).get("items", ()))

    def _annotate(self, path: str, name: str, value: str) -> None:
        headers = {**self._access.headers, "Content-Type": "application/merge-patch+json"}
        body = orjson.dumps({"metadata": {"annotations": {name: value}}})
        self._pool.request("PATCH", f"{self._access.url}{path}", headers=headers, body=body)


def main(*, kubeconfig: Path, handshake: str = "", reservations: str = "") -> None:
    """Write until the end.

    Args:
        kubeconfig: The cluster.
        handshake: The annotation of nodes.
        reservations: The namespace of pods.
    """
    writer, written = Writer(kubeconfig), -EVERY
    while True:
        if handshake and time.monotonic() - written > EVERY:
            written = time.monotonic()
            writer.handshake(handshake, f"Reported {written:.0f}")
        if reservations:
            writer.reservations(reservations)
        time.sleep(ROUND)


if __name__ == "__main__":
    app = App()
    app.default(main)
    app()
