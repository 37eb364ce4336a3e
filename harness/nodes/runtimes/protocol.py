"""What runs a pod's containers, whatever that means: as data, as processes, in Docker.

The node agent decides (admission, grants, phases, what the API hears); a runtime only starts, stops and reports.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seatrial.harness.conversation import Conversation, Pipe, Wanted
from seatrial.harness.devices.provider import ContainerGrant
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan

State = Literal["waiting", "running", "terminated"]

NO_CONFIG = "CreateContainerConfigError"  # what it refers to cannot be had


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container at one moment. Times in seconds since 1970."""

    name: str
    state: State = "waiting"
    reason: str = ""
    message: str = ""
    started: float = 0.0
    finished: float = 0.0
    exit_code: int = 0
    restarts: int = 0
    id: str = ""
    ready: bool = True  # what its readiness probe says while it runs; without one, that it runs
    up: bool = True  # whether its startup probe has succeeded, or there is none
    init: bool = False


@dataclass(slots=True)
class Work:
    """A pod that was admitted: all that a runtime needs to run it."""

    pod: BoundPod
    node: str
    ip: str
    grants: Mapping[str, ContainerGrant] = field(default_factory=dict)  # by container
    granted_ids: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)  # container → resource → ids
    delay: float = 0.0  # seconds that a fault adds to its start
    host_ip: str = ""
    objects: Mapping[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)  # kind and name → content

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def container(self, name: str) -> ContainerPlan | None:
        """The container of that name, init containers included."""
        for container in (*self.pod.spec.containers, *self.pod.spec.init_containers):
            if container.name == name:
                return container
        return None


Report = Callable[[tuple[ContainerState, ...]], None]  # the containers in the pod's order, then init containers


class Runtime(ABC):
    """Runs pods."""

    name: str
    version: str
    real = False  # whether programs run, which need what ConfigMaps and Secrets hold

    @abstractmethod
    def start(self, work: Work, report: Report) -> None:
        """Start the pod's containers; `report` gets the states of all of them whenever one has changed."""

    @abstractmethod
    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        """Take up a pod that an earlier agent had started; False if it cannot be found any more."""

    @abstractmethod
    def stop(self, work: Work, grace: float, done: Callable[[], None]) -> None:
        """End the containers, by force after `grace` seconds; `done` is called once nothing of them is left."""

    @abstractmethod
    def logs(self, work: Work, container: str) -> bytes | None:
        """What the container has printed; None if there is no such container or none of its output."""

    async def exec(
        self,
        work: Work,
        container: str,
        command: Sequence[str],
        wanted: Wanted,  # noqa: ARG002 for runtimes that can
    ) -> Conversation:
        """Run a command inside a container that runs.

        Raises:
            ClusterError: there is no such container, it does not run, or this runtime runs no commands.
        """
        raise ClusterError(
            f"runtime {self.name!r} runs no commands: expected one with containers,"
            f" asked for {' '.join(command)!r} in {container!r} of {work.pod.key}"
        )

    def processes(self, work: Work) -> tuple[int, ...]:  # noqa: ARG002
        """The first processes of the pod's running containers, then whatever their orphans become children of; none
        where containers are no processes of this machine."""
        return ()

    async def attach(
        self,
        work: Work,
        container: str,
        wanted: Wanted,  # noqa: ARG002 for runtimes that can
    ) -> Conversation:
        """Listen to a container's own program, and speak to it if it listens.

        Raises:
            ClusterError: there is no such container, it does not run, or this runtime runs no programs.
        """
        raise ClusterError(f"runtime {self.name!r} runs no programs: asked for {container!r} of {work.pod.key}")

    async def dial(self, work: Work, port: int) -> Pipe:
        """Connect to a port of a pod.

        Raises:
            ClusterError: the pod does not run, or nobody listens there.
        """
        raise ClusterError(f"runtime {self.name!r} runs no programs: asked for port {port} of {work.pod.key}")

    @abstractmethod
    def close(self) -> None:
        """End everything that was started."""
