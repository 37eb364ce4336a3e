"""Verbs of the Kubernetes API over any transport.

A request that fails for a temporary reason (too many requests, a server that is starting or stopping, a lost
connection) is sent again a few times with growing pauses; every other answer goes to the caller at once.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.transport import MERGE_PATCH, Done, Request, Response, Transport
from seatrial.scheduler.api.wire import ApiStatus, decoder, to_json

log = logging.getLogger(__name__)

_PASSING = frozenset({0, 429, 500, 502, 503, 504})
_decode_status = decoder(ApiStatus)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries after transient errors: their number, and the first pause in seconds."""

    attempts: int = 4
    pause: float = 0.1


def refusal(response: Response) -> str:
    """The message of a response that is not a success."""
    if response.code == 0:
        return response.body.decode(errors="replace") or "no answer"
    try:
        status = _decode_status(response.body)
    except msgspec.MsgspecError:
        return f"HTTP {response.code}"
    return status.message or f"HTTP {response.code} {status.reason}".strip()


def pod_path(pod: Pod, subresource: str = "") -> str:
    """The URL path of a pod or of one of its subresources."""
    path = f"/api/v1/namespaces/{_quoted(pod.metadata.namespace)}/pods/{_quoted(pod.metadata.name)}"
    return f"{path}/{subresource}" if subresource else path


def node_path(name: str) -> str:
    """The URL path of a node."""
    return f"/api/v1/nodes/{_quoted(name)}"


def _quoted(name: str) -> str:
    """Escape a name for a path. Valid names of these kinds need no escaping."""
    return name if _usual(name) else quote(name)


_usual = re.compile(r"[-a-z0-9.]*").fullmatch


class Rest:
    """Sends requests, with retries after transient errors."""

    def __init__(self, transport: Transport, clock: Clock, policy: RetryPolicy | None = None) -> None:
        self.transport = transport
        self.clock = clock
        self._policy = policy or RetryPolicy()
        self._stopped = False

    def stop(self) -> None:
        """Send nothing more, and drop the answers that are still to come: none of them leads to a write."""
        self._stopped = True

    def send(self, request: Request, done: Done, *, attempt: int = 1) -> None:
        """Send `request`; `done` gets the last response."""

        def answered(response: Response) -> None:
            if self._stopped:
                return
            if response.code in _PASSING and attempt < self._policy.attempts:
                pause = _asked_pause(response) or self._policy.pause * 2 ** (attempt - 1)
                self.clock.call_later(pause, lambda: self.send(request, done, attempt=attempt + 1))
            else:
                done(response)

        if not self._stopped:
            self.transport.send(request, answered)

    def bind(self, pod: Pod, node: str, annotations: Mapping[str, str], done: Done) -> None:
        """Post a Binding; the API server adds `annotations` to the pod in the same step.

        Not sent again on a lost connection: it may have been executed, which only reading the pod shows.
        """
        metadata: dict[str, Any] = {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "uid": pod.metadata.uid,
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}
        request = Request("POST", pod_path(pod, "binding"), to_json(body))
        self.send(request, done, attempt=self._policy.attempts)

    def merge(
        self,
        path: str,
        patch: Mapping[str, Any],
        done: Done,
        *,
        uid: str = "",
        version: str = "",
        kind: str = MERGE_PATCH,
    ) -> None:
        """A JSON merge patch of the object of that uid, or a patch of another `kind`.

        Another object that has the name by now gets nothing: the answer is 409. `version`: nor does the object if it
        has changed since that resource version.
        """
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        metadata = {**patch.get("metadata", {}), **conditions}
        self.send(Request("PATCH", path, to_json({**patch, "metadata": metadata}), kind), done)

    def post(self, path: str, body: Mapping[str, Any], done: Done) -> None:
        self.send(Request("POST", path, to_json(body)), done)

    def delete(self, path: str, *, uid: str, done: Done) -> None:
        """Delete the object if it has that uid; "": whichever has the name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid} if uid else {}}
        self.send(Request("DELETE", path, to_json(body)), done)


def _asked_pause(response: Response) -> float:
    """The value of Retry-After in seconds; 0 if absent."""
    return float(integer(response.headers.get("retry-after", ""), 0) or 0)
