"""Messages of ttrpc and of NRI, the interface by which plugins change containers before containerd makes them.

Field numbers and names are those of containerd/ttrpc `request.proto` and containerd/nri `pkg/api/api.proto` (v1alpha1);
fields that are not used here are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

PLUGIN_SERVICE, RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
RUN_POD, CREATE_CONTAINER, UPDATE_CONTAINER = 1, 4, 8  # events
CREATED, RUNNING = 1, 3  # states of containers


@dataclass(frozen=True, slots=True)
class Request:
    """A call of ttrpc."""

    service: Annotated[str, 1] = ""
    method: Annotated[str, 2] = ""
    payload: Annotated[bytes, 3] = b""


@dataclass(frozen=True, slots=True)
class Status:
    """Why a call failed; codes are those of gRPC, 0: it did not."""

    code: Annotated[int, 1] = 0
    message: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a call of ttrpc."""

    status: Annotated[Status | None, 1] = None
    payload: Annotated[bytes, 2] = b""


@dataclass(frozen=True, slots=True)
class Number:
    """`OptionalInt` and its kin: a number that may be 0."""

    value: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True)
class Text:
    """`OptionalString`: a text that may be empty."""

    value: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class LinuxMemory:
    """Memory of a container; the limit is in bytes."""

    limit: Annotated[Number | None, 1] = None


@dataclass(frozen=True, slots=True)
class LinuxCpu:
    """CPU of a container; the quota is in microseconds."""

    shares: Annotated[Number | None, 1] = None
    quota: Annotated[Number | None, 2] = None
    cpus: Annotated[str, 6] = ""


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """What a container's control group gets."""

    memory: Annotated[LinuxMemory | None, 1] = None
    cpu: Annotated[LinuxCpu | None, 2] = None
    rdt_class: Annotated[Text | None, 5] = None


@dataclass(frozen=True, slots=True)
class LinuxPod:
    """`LinuxPodSandbox` of the interface."""

    cgroup_parent: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """A pod, as kubelet gave it to the runtime."""

    id: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    uid: Annotated[str, 3] = ""
    namespace: Annotated[str, 4] = ""
    labels: Annotated[Mapping[str, str], 5] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], 6] = field(default_factory=dict)
    linux: Annotated[LinuxPod, 8] = LinuxPod()


@dataclass(frozen=True, slots=True)
class LinuxContainer:
    """What a container has of Linux."""

    resources: Annotated[LinuxResources | None, 3] = None


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod."""

    id: Annotated[str, 1] = ""
    pod_sandbox_id: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""
    state: Annotated[int, 4] = 0
    linux: Annotated[LinuxContainer | None, 11] = None


@dataclass(frozen=True, slots=True)
class RegisterPluginRequest:
    """A plugin's registration; plugins are called in the order of their index, two digits."""

    plugin_name: Annotated[str, 1] = ""
    plugin_index: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class ConfigureRequest:
    """Which runtime it is."""

    runtime_name: Annotated[str, 2] = ""
    runtime_version: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class ConfigureResponse:
    """The events for which the plugin is called, as bits: 1 shifted by the event less one."""

    events: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True)
class LinuxUpdate:
    """`LinuxContainerUpdate` of the interface."""

    resources: Annotated[LinuxResources | None, 1] = None


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """A change to a container that exists."""

    container_id: Annotated[str, 1] = ""
    linux: Annotated[LinuxUpdate | None, 2] = None
    ignore_failure: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True)
class SynchronizeRequest:
    """What runs already; `more`: another such request follows."""

    pods: Annotated[tuple[PodSandbox, ...], 1] = ()
    containers: Annotated[tuple[Container, ...], 2] = ()
    more: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True)
class UpdatesResponse:
    """`SynchronizeResponse` and `UpdateContainerResponse`; `more`, of the former, is that of the request."""

    update: Annotated[tuple[ContainerUpdate, ...], 1] = ()
    more: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """Requests of `RunPodSandbox`, of `CreateContainer`, and of `UpdateContainer`, which has the new resources."""

    pod: Annotated[PodSandbox, 1] = PodSandbox()
    container: Annotated[Container, 2] = Container()
    resources: Annotated[LinuxResources | None, 3] = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount that a container gets."""

    destination: Annotated[str, 1] = ""
    type: Annotated[str, 2] = ""
    source: Annotated[str, 3] = ""
    options: Annotated[tuple[str, ...], 4] = ()


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A variable of a container."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class LinuxDevice:
    """A device file that a container gets; `type` c: a character device."""

    path: Annotated[str, 1] = ""
    type: Annotated[str, 2] = ""
    major: Annotated[int, 3] = 0
    minor: Annotated[int, 4] = 0
    file_mode: Annotated[Number | None, 5] = None


@dataclass(frozen=True, slots=True)
class LinuxAdjustment:
    """`LinuxContainerAdjustment` of the interface."""

    devices: Annotated[tuple[LinuxDevice, ...], 1] = ()
    resources: Annotated[LinuxResources | None, 2] = None
    oom_score_adj: Annotated[Number | None, 4] = None


@dataclass(frozen=True, slots=True)
class ContainerAdjustment:
    """Changes to a container that is about to be made."""

    mounts: Annotated[tuple[Mount, ...], 3] = ()
    env: Annotated[tuple[KeyValue, ...], 4] = ()
    linux: Annotated[LinuxAdjustment | None, 6] = None


@dataclass(frozen=True, slots=True)
class CreateContainerResponse:
    """The changes to the container."""

    adjust: Annotated[ContainerAdjustment | None, 1] = None
