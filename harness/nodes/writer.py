"""Writes of a node agent: raw JSON, sent again while the API server is busy or not reachable."""

import logging
from collections.abc import Callable
from typing import Any

import orjson

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import (
    JSON,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Done,
    Request,
    Response,
    Transport,
)

log = logging.getLogger(__name__)

PASSING = frozenset({0, 429, 500, 502, 503, 504})
INITIAL_BACKOFF, MAX_BACKOFF = 0.1, 10.0

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod in the API."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


class Writer:
    """Sends a request until the server accepts or refuses it. After `close` nothing is sent."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def merge(self, path: str, patch: Any, done: Done | None = None) -> None:
        self._send(Request("PATCH", path, orjson.dumps(patch), MERGE_PATCH), done)

    def strategic(self, path: str, patch: Any, done: Done | None = None) -> None:
        self._send(Request("PATCH", path, orjson.dumps(patch), STRATEGIC_MERGE_PATCH), done)

    def create(self, path: str, body: Any, done: Done | None = None) -> None:
        self._send(Request("POST", path, orjson.dumps(body), JSON), done)

    def read(self, path: str, done: Done) -> None:
        """Read one object."""
        self._send(Request("GET", path), done)

    def remove_pod(self, namespace: str, name: str, uid: str, done: Done | None = None) -> None:
        """The request by which kubelet removes an ended pod: grace period 0, with the pod's UID as precondition."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._send(Request("DELETE", pod_path(namespace, name), orjson.dumps(body), JSON), done)

    def _send(self, request: Request, done: Done | None, pause: float = INITIAL_BACKOFF) -> None:
        def answered(response: Response) -> None:
            if self._closed:
                return
            if response.code in PASSING:
                self._clock.call_later(pause, lambda: self._again(request, done, min(pause * 2, MAX_BACKOFF)))
                return
            if not response.ok and response.code not in {404, 409}:
                log.warning("write refused method=%s path=%s code=%d", request.method, request.path, response.code)
            if done is not None:
                done(response)

        self._transport.send(request, answered)

    def _again(self, request: Request, done: Done | None, pause: float) -> None:
        if not self._closed:
            self._send(request, done, pause)


def then(action: Callable[[], object]) -> Done:
    """A `done` that continues after any answer."""

    def done(_response: Response) -> None:
        action()

    return done
