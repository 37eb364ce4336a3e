"""The pods of the node with what the agent reads of them."""

from dataclasses import dataclass
from functools import cached_property

from msgspec import field

from seatrial.scheduler.api.core import PodSpec
from seatrial.scheduler.api.wire import ObjectMeta, Wire
from seatrial.scheduler.koordlet.cgroups import Layout
from seatrial.scheduler.pods.priority import class_with_default
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, koordinator_qos, kubernetes_qos, raw_qos


class RunningContainer(Wire, frozen=True):
    """A container's status; `container_id` "": not created yet."""

    name: str = ""
    container_id: str = field(default="", name="containerID")


class AgentPodStatus(Wire, frozen=True):
    """A pod's status."""

    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    container_statuses: tuple[RunningContainer, ...] = ()


class AgentPod(Wire, frozen=True):
    """A pod as the API server has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: AgentPodStatus = AgentPodStatus()


@dataclass
class LocalPod:
    """A pod of the node, its classes and its control groups."""

    pod: AgentPod
    layout: Layout

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def active(self) -> bool:
        return self.pod.status.phase in {"Running", "Pending"} and self.pod.metadata.deletion_timestamp is None

    @cached_property
    def kubernetes(self) -> str:
        return kubernetes_qos(self.pod.spec, self.pod.status.qos_class)

    @cached_property
    def raw_qos(self) -> str:
        return raw_qos(self.pod.metadata.labels)

    @cached_property
    def qos(self) -> str:
        return koordinator_qos(self.pod.metadata.labels, self.pod.spec, self.pod.status.qos_class)

    @cached_property
    def priority_class(self) -> str:
        return class_with_default(self.pod.metadata.labels, self.pod.spec)

    @property
    def best_effort(self) -> bool:
        """Whether it is suppressed: by its label, or because it requests nothing (Q-5)."""
        return self.raw_qos == BE or self.kubernetes == BEST_EFFORT

    @cached_property
    def folder(self) -> str:
        return self.layout.pod(self.kubernetes, self.uid)

    @cached_property
    def containers(self) -> dict[str, str]:
        """The groups of its containers by name."""
        return {
            running_container.name: self.layout.container(self.folder, running_container.container_id)
            for running_container in self.pod.status.container_statuses
            if running_container.container_id
        }
