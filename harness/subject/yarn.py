"""The YARN operator beside a scheduler under test, with a ResourceManager: in this process if the cluster is there."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson

from seatrial.fake_devices.resource_manager import ResourceManager
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.processes import START_WITHIN, program, start_logged
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.yarn.app import build_operator

READY_LINE = "yarn-operator synced"


class _Direct:
    """A transport to a ResourceManager in this process."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    def send(self, request: Request, done: Done) -> None:
        code, body = self._manager.answer(request.method, request.path, request.body)
        done(Response(code, orjson.dumps(body)))

    def stream(self, *_: Any) -> Any:
        raise AssertionError("nothing is watched at a ResourceManager")


@contextmanager
def running_operator(cluster: Cluster, manager: ResourceManager) -> Iterator[None]:
    """The operator.

    Raises:
        UsageError: the cluster has no address for processes.
        SubjectError: it did not start.
    """
    if Capability.VIRTUAL_TIME in cluster.capabilities:
        operator = build_operator(cluster.transport, _Direct(manager), cluster.clock)
        operator.start()
        try:
            if not cluster.wait(lambda: operator.ready, within=START_WITHIN):
                raise SubjectError(f"the operator did not see the whole cluster within {START_WITHIN:.0f} s")
            yield
        finally:
            operator.stop()
        return
    if cluster.endpoint is None:
        raise UsageError(f"the operator is a process, and cluster {cluster.name!r} has no address for processes")
    with ExitStack() as cleanup:
        log = cleanup.enter_context(private_folder()) / "yarn.log"
        address = cleanup.enter_context(manager.serving())
        options = ("--kubeconfig", str(cluster.endpoint.kubeconfig), "--resource-manager", address)
        process = start_logged([*program("seatrial.scheduler.yarn"), *options], log, cleanup)
        cluster.wait(lambda: READY_LINE in log.read_text() or process.poll() is not None, within=START_WITHIN)
        if READY_LINE not in log.read_text():
            raise SubjectError("the operator did not start\n" + log.read_text()[-4000:])
        yield
