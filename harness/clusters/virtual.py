"""The embedded API server and its nodes in this process, in virtual time: fast and deterministic."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.harness.apiserver import InProcessTransport, build_server, call_blocking
from seatrial.harness.clusters.protocol import VIRTUAL_CAPABILITIES, ClusterBackend
from seatrial.harness.clusters.simulated import SimulatedNodes
from seatrial.harness.nodes.fleet import load_fleet
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response


class VirtualCluster(SimulatedNodes):
    """Everything on one clock, which only `wait` and the test itself move."""

    name = "virtual"
    capabilities = VIRTUAL_CAPABILITIES
    endpoint = None

    def __init__(self, *, seed: int = 0, workload_with_job: bool = False) -> None:
        self.clock: SimClock = SimClock()
        self.server = build_server(self.clock, seed=seed, workload_with_job=workload_with_job)
        self.server.admission.webhooks.blocking_caller = call_blocking
        self._transport = InProcessTransport(self.server, self.clock)
        self._agents = NodeAgents(self._transport, self.clock, seed=seed)
        self.server.logs = self._agents.logs
        self._agents.start()
        self.clock.settle()

    @property
    def transport(self) -> InProcessTransport:
        return self._transport

    def call(self, request: Request) -> Response:
        response = self._transport.call(request)
        self.clock.settle()
        return response

    def wait(self, until: Callable[[], bool], *, within: float) -> bool:
        """Moves from one planned action to the next, so that what holds is seen at its own moment."""
        deadline = self.clock.monotonic() + within
        self.clock.settle()
        while not until():
            due = self.clock.next_due()
            if due is None or due > deadline:
                self.clock.run_until(deadline)
                return until()
            self.clock.run_until(due)
            self.clock.settle()
        return True

    def end_api_server(self) -> None:
        self._transport.end_server()
        self.clock.settle()

    def start_api_server(self) -> None:
        self._transport.start_server()
        self.clock.settle()

    def close(self) -> None:
        self._agents.stop()


class VirtualBackend(ClusterBackend):
    """The backend; it has no requirements."""

    name = "virtual"
    capabilities = VIRTUAL_CAPABILITIES

    def __init__(self, *, seed: int = 0, workload_with_job: bool = False) -> None:
        self._seed, self._workload_with_job = seed, workload_with_job

    def probe(self) -> str | None:
        return None

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[VirtualCluster]:
        cluster = VirtualCluster(seed=self._seed, workload_with_job=self._workload_with_job)
        try:
            if fleet is not None:
                cluster.add_nodes(load_fleet(fleet))
            yield cluster
        finally:
            cluster.close()
