"""Pods and workloads with the fields that descheduling reads besides those of scheduling."""

from typing import Any

from seatrial.scheduler.api import core
from seatrial.scheduler.api.wire import ObjectMeta, Wire


class Volume(core.Volume, frozen=True):
    """A volume with the sources that tie a pod to its node."""

    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class PodSpec(core.PodSpec, frozen=True):
    """A pod's spec, also with volumes of the node."""

    volumes: tuple[Volume, ...] = ()


class Waiting(Wire, frozen=True):
    """Why a container waits."""

    reason: str = ""


class ContainerState(core.ContainerState, frozen=True):
    """A container's state, also while it waits."""

    waiting: Waiting | None = None


class ContainerStatus(core.ContainerStatus, frozen=True):
    """What kubelet reports of a container."""

    state: ContainerState = ContainerState()


class PodStatus(core.PodStatus, frozen=True):
    """A pod's status, also with init containers and ephemeral containers."""

    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""


class Pod(core.Pod, frozen=True):
    """A pod, with the fields that descheduling reads."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether it runs, is Ready and is not being deleted."""
        return (
            self.status.phase == "Running"
            and not self.deleting
            and any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)
        )


class WorkloadSpec(Wire, frozen=True):
    """A workload's number of pods."""

    replicas: int | None = None
    parallelism: int | None = None  # of a Job


class WorkloadObject(Wire, frozen=True):
    """A controller of pods, of any of the kinds in `WORKLOADS`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


WORKLOADS = {  # kind and group → path; kinds of Kruise need not be served
    ("Deployment", "apps"): "/apis/apps/v1/deployments",
    ("ReplicaSet", "apps"): "/apis/apps/v1/replicasets",
    ("StatefulSet", "apps"): "/apis/apps/v1/statefulsets",
    ("ReplicationController", ""): "/api/v1/replicationcontrollers",
    ("Job", "batch"): "/apis/batch/v1/jobs",
    ("CloneSet", "apps.kruise.io"): "/apis/apps.kruise.io/v1alpha1/clonesets",
    ("StatefulSet", "apps.kruise.io"): "/apis/apps.kruise.io/v1beta1/statefulsets",
}
