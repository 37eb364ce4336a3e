"""`seatrial differential`: sends the same requests to two API servers and lists where their answers differ."""

import secrets
from pathlib import Path
from typing import Annotated

import orjson
from cyclopts import Parameter

from seatrial.harness.apiserver.differential.comparison import Difference, Send, calls, compare, known_differences
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.errors import UsageError

_WITHIN = 70.0  # seconds; kube-apiserver gives up after 60


def differential(kubeconfig: Path, reference: Path, *, every: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Compare two API servers.

    Objects named `differential` are created and deleted in both, and a namespace `differential-…`.

    Parameters
    ----------
    kubeconfig
        The server that is judged.
    reference
        The server that is right, as a kubeconfig: kube-apiserver.
    every
        Show the differences that are meant too.
    """
    ours, theirs = _sender(kubeconfig), _sender(reference)
    namespace = f"differential-{secrets.token_hex(3)}"
    for send in (ours, theirs):
        _prepare(send, namespace)
    try:
        found = list(compare(ours, theirs, calls(namespace), known_differences()))
    finally:
        for send in (ours, theirs):
            send("DELETE", f"/api/v1/namespaces/{namespace}", b"", "application/json")
    differences = [row for row in found if row is not None]
    unknown = [row for row in differences if not row.reason]
    for row in differences if every else unknown:
        _show(row)
    print(f"{len(found)} requests, {len(differences)} differ, {len(unknown)} of them without a reason")
    return 1 if unknown else 0


def _show(row: Difference) -> None:
    print(row.text + (f" ({row.reason})" if row.reason else ""))


def _sender(path: Path) -> Send:
    access = load_access(path)
    pool = access.pool(connections=1)

    def send(method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        headers = {**access.headers, "content-type": content_type, "accept": "application/json"}
        answer = pool.request(
            method, access.url + path, body=body or None, headers=headers, timeout=_WITHIN, retries=False
        )
        return answer.status, answer.data

    return send


def _prepare(send: Send, namespace: str) -> None:
    """Create the namespace and its service account, which pods need where no controller creates it."""
    for path, name in (("namespaces", namespace), (f"namespaces/{namespace}/serviceaccounts", "default")):
        body = orjson.dumps({"metadata": {"name": name}})
        code, answer = send("POST", f"/api/v1/{path}", body, "application/json")
        if code not in {201, 409}:
            raise UsageError(f"create {path}: expected 201, found {code}: {answer.decode(errors='replace')[:300]}")
