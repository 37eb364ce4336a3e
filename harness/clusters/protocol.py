"""The interface of backends: a backend starts a cluster, lists its capabilities, and removes everything at the end.

Suites ask for capabilities, never for a backend by name; what is missing becomes a skip with the reason.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Request, Response, Transport


class Capability(StrEnum):
    """What a suite may need; the value is how a skip names it."""

    VIRTUAL_TIME = "time that the test moves"
    REAL_TIME = "real time, for processes that the test starts"
    NODES = "nodes that the test adds and removes"
    HARDWARE = "nodes with the hardware that the test states"  # simulated, or lent nodes of the cluster
    DEVICE_FAULTS = "devices that fail on request"
    NODE_FAULTS = "a node that fails on request"
    OWN_CLUSTER = "a cluster of its own"
    CONTAINERS = "containers that really run"
    REAL_DEVICES = "real devices"
    CLAIM_DRIVER = "a driver that prepares claims for containers that really run"
    SERVER_RESTART = "an API server that the test may end and start again"


VIRTUAL_CAPABILITIES = frozenset(
    {
        Capability.VIRTUAL_TIME,
        Capability.NODES,
        Capability.HARDWARE,
        Capability.DEVICE_FAULTS,
        Capability.OWN_CLUSTER,
        Capability.SERVER_RESTART,
    }
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and kubeconfig for other processes; absent for a cluster that is in this process."""

    url: str
    kubeconfig: Path


class Cluster(ABC):
    """A running cluster: the interface for tests, load and subjects."""

    name: str
    clock: Clock
    capabilities: frozenset[Capability]
    endpoint: Endpoint | None

    def scheduler_name(self, name: str) -> str:
        """The schedulerName on the API server for the one that pods of tests name; another on shared clusters."""
        return name

    @property
    @abstractmethod
    def transport(self) -> Transport:
        """Callback-style access on `clock`, for a scheduler in this process and for recorders."""

    @abstractmethod
    def call(self, request: Request) -> Response:
        """Carry out one request and wait for its answer (in virtual time: no time passes).

        Raises:
            ClusterError: no answer came.
        """

    @abstractmethod
    def wait(self, until: Callable[[], bool], *, within: float) -> bool:
        """Let time pass until `until()` holds, at most `within` seconds of the cluster's clock; whether it held."""

    def pass_time(self, seconds: float) -> None:
        """Let this time of the cluster's clock pass."""
        self.wait(lambda: False, within=seconds)

    @abstractmethod
    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:
        """Add nodes described as in a fleet file and wait until they are Ready with their Device objects.

        Where nodes are lent instead, they have the stated cards and NICs free, and at least the rest.

        Raises:
            HardwareMissingError: no lent node has what an entry states.
            UsageError: an entry names what the catalogue does not have.
            ClusterError: the backend cannot add nodes, or they did not become Ready.
        """

    def end_api_server(self) -> None:
        """End the API server at once, as by a kill. All connections break; its objects are kept.

        Raises:
            NotImplementedError: the cluster lacks the capability SERVER_RESTART.
        """
        raise NotImplementedError(f"{self.name}: {Capability.SERVER_RESTART}")

    def start_api_server(self) -> None:
        """Start the API server again, with the objects that it had; returns when it answers."""
        raise NotImplementedError(f"{self.name}: {Capability.SERVER_RESTART}")

    def refused_requests(self) -> list[str]:
        """Requests since the last call that the account of the run has no right to, as in `get jobs.batch`; empty where
        the run has all rights, or where the API server does not tell."""
        return []

    @abstractmethod
    def remove_node(self, name: str) -> None:
        """Remove a node, its pods and its Device object."""

    @abstractmethod
    def inject(self, fault: Mapping[str, Any]) -> None:
        """Make a device or node fail, in the words of a fault script's entry.

        Raises:
            UsageError: the entry names a device or verb that is not there.
            ClusterError: the backend cannot.
        """


class ClusterBackend(ABC):
    """One way of having a cluster."""

    name: str
    capabilities: frozenset[Capability]

    @abstractmethod
    def probe(self) -> str | None:
        """Return the reason why this backend cannot be used here, one sentence; None if it can."""

    @abstractmethod
    def start(self, *, fleet: Path | None = None) -> AbstractContextManager[Cluster]:
        """A cluster that is up when entered, with the nodes of `fleet`, and gone when left, however that happens.

        Raises:
            ClusterError: it did not start; nothing is left running.
        """
