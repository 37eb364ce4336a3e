"""The interface of container runtimes: as data, as processes, in Docker.

The node agent decides about admission, grants, phases and what the API gets; a runtime starts, stops and reports.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seatrial.harness.apiserver.conversation import Conversation, Pipe, StreamSelection
from seatrial.harness.devices.provider import ContainerGrant
from seatrial.harness.nodes.container_error import ContainerError
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan

State = Literal["waiting", "running", "terminated"]

NO_CONFIG = "CreateContainerConfigError"  # kubelet's reason: an object that the container refers to is missing


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
    ready: bool = True  # result of the readiness probe; True without one
    up: bool = True  # the startup probe has succeeded, or there is none
    init: bool = False


@dataclass(slots=True)
class Work:
    """An admitted pod: everything that a runtime needs to run it."""

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
    """A container runtime."""

    name: str
    version: str
    real = False  # whether programs run, which need the content of ConfigMaps and Secrets

    @abstractmethod
    def start(self, work: Work, report: Report) -> None:
        """Start the pod's containers; `report` gets the states of all of them whenever one has changed."""

    @abstractmethod
    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        """Take over a pod that an earlier agent started; False if the runtime does not have it."""

    @abstractmethod
    def stop(self, work: Work, grace: float, done: Callable[[], None]) -> None:
        """Stop the containers, and kill them after `grace` seconds; `done` is called once they have ended."""

    @abstractmethod
    def logs(self, work: Work, container: str) -> bytes | None:
        """The container's output; None if there is no such container or no output is stored."""

    async def exec(
        self,
        work: Work,
        container: str,
        command: Sequence[str],
        selection: StreamSelection,  # noqa: ARG002 for runtimes that can
    ) -> Conversation:
        """Run a command inside a running container.

        Raises:
            ContainerError: there is no such container, it does not run, or this runtime runs no commands.
        """
        raise ContainerError(
            f"runtime {self.name!r} runs no commands: expected one with containers,"
            f" asked for {' '.join(command)!r} in {container!r} of {work.pod.key}"
        )

    def processes(self, work: Work) -> tuple[int, ...]:  # noqa: ARG002
        """The pids of the running containers' first processes, then those of their subreapers; none for containers that
        are not processes of this machine."""
        return ()

    async def attach(
        self,
        work: Work,
        container: str,
        selection: StreamSelection,  # noqa: ARG002 for runtimes that can
    ) -> Conversation:
        """Attach to a container's program: its output, and its input if it has one.

        Raises:
            ContainerError: there is no such container, it does not run, or this runtime runs no programs.
        """
        raise ContainerError(f"runtime {self.name!r} runs no programs: asked for {container!r} of {work.pod.key}")

    async def dial(self, work: Work, port: int) -> Pipe:
        """Connect to a port of a pod.

        Raises:
            ContainerError: the pod does not run, or no program listens on the port.
        """
        raise ContainerError(f"runtime {self.name!r} runs no programs: asked for port {port} of {work.pod.key}")

    @abstractmethod
    def close(self) -> None:
        """End all pods."""
