"""Koordinator's manager beside a scheduler under test: our controllers, and our node webhook as a process."""

import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson
import yaml

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import FaultyTransport, Link
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.processes import START_WITHIN, program, start_logged
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request
from seatrial.scheduler.manager.app import build_manager as build_manager  # noqa: PLC0414 benchmarks use it

READY_LINE = "manager synced"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextmanager
def running_manager(cluster: Cluster, selector: str, *, troubled: bool = False) -> Iterator[Link | None]:
    """The manager for the nodes that the selector selects; in this process if the cluster is there too. It writes
    gpu.shared, as simulated nodes do: what it removed while a node had no card, it alone writes again.

    `troubled`: yields its connection to the API server, which can be made to fail; otherwise None.

    Raises:
        UsageError: the cluster has no address for processes.
        SubjectError: it did not start.
    """
    if Capability.VIRTUAL_TIME in cluster.capabilities:
        link = FaultyTransport(cluster.transport, cluster.clock)
        manager = build_manager(link, cluster.clock, selector=selector, profiles=True, gpu_shared=True, seed=0)
        manager.start()
        try:
            if not cluster.wait(lambda: manager.ready, within=START_WITHIN):
                raise SubjectError(f"the manager did not see the whole cluster within {START_WITHIN:.0f} s")
            yield link if troubled else None
        finally:
            manager.stop()
        return
    if cluster.endpoint is None:
        raise UsageError(f"the manager is a process, and cluster {cluster.name!r} has no address for processes")
    with ExitStack() as cleanup:
        log = cleanup.enter_context(private_folder()) / "manager.log"
        way = cleanup.enter_context(TroubledWay(cluster.endpoint.kubeconfig)) if troubled else None
        kubeconfig = way.offered if way is not None else cluster.endpoint.kubeconfig
        command = [*program("seatrial.scheduler.manager"), "--kubeconfig", str(kubeconfig), "--selector", selector]
        command += [
            "--colocation-profile-controller",
            "--feature-gates",
            "EnableSyncGPUSharedResource=true",
            "--seed",
            "0",
        ]
        process = start_logged(command, log, cleanup)
        cluster.wait(lambda: READY_LINE in log.read_text() or process.poll() is not None, within=START_WITHIN)
        if READY_LINE not in log.read_text():
            raise SubjectError("the manager did not start\n" + log.read_text()[-4000:])
        yield way


@contextmanager
def running_node_webhook(cluster: Cluster, name: str, labels: str) -> Iterator[None]:
    """The node webhook as a process, registered for nodes with these labels under the name `name`.

    Raises:
        SubjectError: it did not start.
    """
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(private_folder())
        command = [
            *program("seatrial.scheduler.webhooks"),
            "--port",
            "0",
            "--cert-dir",
            str(folder / "tls"),
            "--disable-device-resource-spec",
            "--nodes",
            "--node-labels",
            labels,
        ]
        process = start_logged(command, folder / "webhook.log", cleanup, output=subprocess.PIPE)
        assert process.stdout is not None
        text = _read_until_closed(process)
        configuration = next(
            (
                document
                for document in yaml.safe_load_all(text)
                if document and document["kind"] == "MutatingWebhookConfiguration"
            ),
            None,
        )
        if configuration is None:
            raise SubjectError("the node webhook did not start\n" + (folder / "webhook.log").read_text()[-4000:])
        configuration["metadata"]["name"] = name
        body: dict[str, Any] = configuration
        accepted(cluster.call(Request("POST", WEBHOOKS, orjson.dumps(body))), "register the node webhook")
        cleanup.callback(lambda: cluster.call(Request("DELETE", f"{WEBHOOKS}/{name}")))
        yield


def _read_until_closed(process: "subprocess.Popen[bytes]") -> str:
    """The output up to its end, which comes when the process is ready or has ended."""
    assert process.stdout is not None
    content, until = b"", time.monotonic() + START_WITHIN
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(until - time.monotonic(), 0)):
            part = process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not part:
                break
            content += part
    return content.decode()
