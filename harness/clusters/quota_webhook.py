"""Admission of elastic quotas on the embedded cluster: our scheduler's webhook process, started when it is needed.

The webhooks are registered when the cluster starts, at a port on which this process listens. The webhook process
starts with the first request that concerns it, inherits the socket, and answers the connection that waits there. A
cluster without quotas of users starts no process: what the scheduler does to its own three quotas is not asked. The
webhooks for pods are registered for pods with a quota's label only, until the first quota comes: then for all pods
outside of kube-system, as upstream's, because a pod without the label belongs to a quota of its namespace. Each call
costs the creation of a pod about a millisecond.
"""

import asyncio
import base64
import logging
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial.harness.apiserver import KOORDINATOR, Answer, Call, Credentials, HttpsCaller
from seatrial.harness.processes import die_with_parent, program, stop
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.quota import QUOTA_NAME, SPECIAL

log = logging.getLogger(__name__)

NAME = "seatrial-quota-webhook"
HOST = "127.0.0.1"
GROUP = "admissionregistration.k8s.io/v1"
QUOTAS = ("scheduling.sigs.k8s.io", "elasticquotas")
_ANSWERS_WITHIN = 30  # seconds; the first call waits until the process has started
_WAITING = 64  # connections
_MAX_FAILURES = 3  # then the next call starts the process again


def _author_part(name: str) -> str:
    return " + ".join(f"(has({name}.{field}) ? [{name}.{field}] : [])" for field in ("spec", "metadata.labels"))


# The scheduler creates its three quotas and writes their status.
_NOT_BY_THE_SCHEDULER = (
    f"!(request.namespace == '{KOORDINATOR}' && request.name in {sorted(SPECIAL)}) || request.operation == 'DELETE' || "
    f"(request.operation == 'UPDATE' && {_author_part('object')} != {_author_part('oldObject')})"
)


class QuotaWebhook:
    """Calls webhooks like `caller`, and starts the process before a call to it."""

    def __init__(
        self, caller: HttpsCaller, credentials: Credentials, kubeconfig: Path, folder: Path, *, quotas: bool = False
    ) -> None:
        """`folder` is private and exists as long as this object is used. `quotas`: users have some already."""
        self._caller, self._kubeconfig, self._folder = caller, kubeconfig, folder
        self._authority = credentials.authority
        write_private(folder / "tls.crt", credentials.server.certificate)
        write_private(folder / "tls.key", credentials.server.key)
        write_private(folder / "ca.crt", credentials.authority)
        self._socket = socket.create_server((HOST, 0), backlog=_WAITING)
        self._url = f"https://{HOST}:{self._socket.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._failures = 0  # ends of the process since the last call
        self._widened = quotas
        self.on_first_quota: Callable[[], None] = lambda: None  # called before the first quota is stored

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        """As `HttpsCaller.call`."""
        if call.url.startswith(f"{self._url}/"):
            self._failures = 0
            if self._process is None:
                self._start()
            if not self._widened and "-elasticquota" in call.url:
                self._widened = True
                self.on_first_quota()
        self._caller.call(call, done)

    def _start(self) -> None:
        descriptor = self._socket.fileno()
        command = [
            *program("seatrial.scheduler.webhooks"),
            "--listen-fd",
            str(descriptor),
            "--cert-dir",
            str(self._folder),
            "--kubeconfig",
            str(self._kubeconfig),
            "--multi-quota-tree",
            "--disable-device-resource-spec",
        ]
        log.info("quota-webhook start")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            preexec_fn=die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)

    def _ended(self) -> None:
        """The process ended: start it again, since calls may wait for it, unless that has just failed."""
        self._forget()
        self._failures += 1
        log.warning("quota-webhook ended failures=%d", self._failures)
        if self._failures < _MAX_FAILURES:
            self._start()

    def _forget(self) -> None:
        if self._process is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            stop(self._process)
            self._process = None

    def close(self) -> None:
        """Stop the process."""
        self._forget()
        self._socket.close()

    def manifests(self) -> list[dict[str, Any]]:
        """The configurations that register the webhooks, with Koordinator's names for them."""
        quotas = {"apiGroups": [QUOTAS[0]], "apiVersions": ["v1alpha1"], "resources": [QUOTAS[1]]}
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        conditions = {"matchConditions": [{"name": "not-by-the-scheduler", "expression": _NOT_BY_THE_SCHEDULER}]}
        checked = self._webhook("vquota", "validate-elasticquota", quotas, ["CREATE", "UPDATE", "DELETE"]) | conditions
        completed = self._webhook("mquota", "mutate-elasticquota", quotas, ["CREATE"]) | conditions
        some: dict[str, Any] = {"objectSelector": {"matchExpressions": [{"key": QUOTA_NAME, "operator": "Exists"}]}}
        if self._widened:
            system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
            some = {"namespaceSelector": {"matchExpressions": [system]}}
        pod = self._webhook("vpod", "validate-pod", pods, ["CREATE", "UPDATE"]) | some
        placed = self._webhook("mpod", "mutate-pod", pods, ["CREATE"]) | some
        return [
            {"apiVersion": GROUP, "kind": kind, "metadata": {"name": NAME}, "webhooks": webhooks}
            for kind, webhooks in (
                ("MutatingWebhookConfiguration", [completed, placed]),
                ("ValidatingWebhookConfiguration", [checked, pod]),
            )
        ]

    def _webhook(self, name: str, path: str, rule: dict[str, Any], operations: list[str]) -> dict[str, Any]:
        bundle = base64.b64encode(self._authority).decode()
        return {
            "name": f"{name}.koordinator.sh",
            "clientConfig": {"url": f"{self._url}/{path}", "caBundle": bundle},
            "rules": [{**rule, "operations": operations, "scope": "Namespaced"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": _ANSWERS_WITHIN,
        }
