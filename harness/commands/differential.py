"""`seatrial differential`: sends the same requests to two API servers and lists where their answers differ."""

import base64
import secrets
import ssl
import time
from pathlib import Path
from typing import Annotated, Any

import orjson
import urllib3
from cyclopts import Parameter

from seatrial.harness.apiserver.differential.comparison import (
    ANONYMOUS,
    BAD_TOKEN,
    Call,
    Difference,
    Outcome,
    Send,
    calls,
    compare,
    known_differences,
    outcome,
)
from seatrial.harness.apiserver.differential.recorded import NAMESPACE, record, recorded
from seatrial.harness.clusters.kubeconfig import content_of, load_access
from seatrial.harness.errors import UsageError

_WITHIN = 70.0  # seconds; kube-apiserver gives up after 60
_POLL, _POLLS = 0.2, 150  # seconds; kube-controller-manager takes a while to remove the namespace of an earlier run


def differential(
    kubeconfig: Path,
    reference: Path | None = None,
    *,
    every: Annotated[bool, Parameter(negative="")] = False,
    write: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Compare an API server with kube-apiserver.

    Objects named `differential` are created and deleted in both, and a namespace `differential…`.

    Parameters
    ----------
    kubeconfig
        The server that is judged.
    reference
        The server that is right, as a kubeconfig: kube-apiserver. Without it the recorded answers of kube-apiserver.
    every
        Show the differences that are meant too.
    write
        Record the answers of the first server, a kube-apiserver, in place of comparing.
    """
    ours = _sender(kubeconfig)
    theirs = _sender(reference) if reference is not None else recorded()
    live = [ours] if reference is None else [ours, theirs]
    namespace = NAMESPACE if reference is None else f"differential-{secrets.token_hex(3)}"
    for send in live:
        _prepare(send, namespace)
    try:
        if write:
            print(f"{record(ours, namespace)} answers recorded")
            return 0
        comparison = list(compare(ours, theirs, calls(namespace), known_differences()))
    finally:
        for send in live:
            send(Call("DELETE", f"/api/v1/namespaces/{namespace}"))
    differences = [row for row in comparison if row is not None]
    unknown = [row for row in differences if not row.reason]
    for row in differences if every else unknown:
        _show(row)
    print(f"{len(comparison)} requests, {len(differences)} differ, {len(unknown)} of them without a reason")
    return 1 if unknown else 0


def _show(row: Difference) -> None:
    print(row.text + (f" ({row.reason})" if row.reason else ""))


def _sender(path: Path) -> Send:
    access = load_access(path)
    pool, nobody = access.pool(connections=1), _without_credentials(path)

    def send(call: Call) -> Outcome:
        if call.wait:
            time.sleep(call.wait)
        headers = {"content-type": call.content_type, "accept": "application/json", **dict(call.headers)}
        if call.sender == BAD_TOKEN:
            headers["authorization"] = "Bearer wrong"
        elif call.sender != ANONYMOUS:
            headers.update(access.headers)
            if call.sender:
                headers["impersonate-user"] = call.sender
        chosen = nobody if call.sender in {ANONYMOUS, BAD_TOKEN} else pool
        address, body = access.url + call.path, call.body or None
        try:
            answer = chosen.request(call.method, address, body=body, headers=headers, timeout=_WITHIN, retries=False)
        except urllib3.exceptions.TimeoutError:
            return Outcome(0)  # the comparison goes on, and shows it
        return outcome(answer.status, answer.data, answer.headers.get("warning", ""), call.show)

    return send


def _without_credentials(path: Path) -> urllib3.PoolManager:
    """Connections without a client certificate, to a server whose authority the kubeconfig embeds."""
    clusters: list[dict[str, Any]] = content_of(path).get("clusters") or [{}]
    encoded = (clusters[0].get("cluster") or {}).get("certificate-authority-data") or ""
    data = base64.b64decode(encoded).decode()
    return urllib3.PoolManager(maxsize=1, ssl_context=ssl.create_default_context(cadata=data or None))


def _prepare(send: Send, namespace: str) -> None:
    """Create the namespace, and its service account where no controller does."""
    for path, name in (("namespaces", namespace), (f"namespaces/{namespace}/serviceaccounts", "default")):
        body = orjson.dumps({"metadata": {"name": name}})
        for _ in range(_POLLS):
            result = send(Call("POST", f"/api/v1/{path}", body))
            if result.code == 201 or (result.code == 409 and name == "default"):
                break
            time.sleep(_POLL)
        else:
            raise UsageError(f"create {path}: expected 201, found {result.text}")
