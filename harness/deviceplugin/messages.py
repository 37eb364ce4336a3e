"""Messages of kubelet's gRPC interfaces: device plugins (v1beta1) and pod resources (v1).

Field numbers and names are those of k8s.io/kubelet `pkg/apis/deviceplugin/v1beta1/api.proto` and
`pkg/apis/podresources/v1/api.proto`; `Annotated` has the number. Fields that neither side uses here are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
POD_RESOURCES = "v1.PodResourcesLister"


@dataclass(frozen=True, slots=True)
class Empty:
    """A message without fields."""


@dataclass(frozen=True, slots=True)
class DevicePluginOptions:
    """Which optional calls the plugin answers."""

    pre_start_required: Annotated[bool, 1] = False
    get_preferred_allocation_available: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """A plugin's registration at kubelet."""

    version: Annotated[str, 1] = ""
    endpoint: Annotated[str, 2] = ""  # the socket's name in the folder of kubelet.sock
    resource_name: Annotated[str, 3] = ""
    options: Annotated[DevicePluginOptions | None, 4] = None


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """`Device` of the interface: one unit of a resource."""

    id: Annotated[str, 1] = ""
    health: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class ListAndWatchResponse:
    """All devices of a plugin with their health."""

    devices: Annotated[tuple[PluginDevice, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class ContainerPreferredAllocationRequest:
    """From which devices `size` are to be chosen for one container, and which must be among them."""

    available: Annotated[tuple[str, ...], 1] = ()
    must_include: Annotated[tuple[str, ...], 2] = ()
    size: Annotated[int, 3] = 0


@dataclass(frozen=True, slots=True)
class PreferredAllocationRequest:
    """The requests of a pod's containers."""

    containers: Annotated[tuple[ContainerPreferredAllocationRequest, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class ContainerPreferredAllocationResponse:
    """The devices that the plugin would choose."""

    ids: Annotated[tuple[str, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class PreferredAllocationResponse:
    """The answers for a pod's containers, in the order of the request."""

    containers: Annotated[tuple[ContainerPreferredAllocationResponse, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class ContainerAllocateRequest:
    """The devices that kubelet has chosen for one container."""

    ids: Annotated[tuple[str, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class AllocateRequest:
    """The requests of a pod's containers."""

    containers: Annotated[tuple[ContainerAllocateRequest, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class PluginMount:
    """A mount that a plugin adds to a container."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device file that a plugin adds to a container; permissions are some of `rwm`."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class ContainerAllocateResponse:
    """What a container gets with its devices: variables, mounts, device files, annotations."""

    envs: Annotated[Mapping[str, str], 1] = field(default_factory=dict)
    mounts: Annotated[tuple[PluginMount, ...], 2] = ()
    devices: Annotated[tuple[DeviceSpec, ...], 3] = ()
    annotations: Annotated[Mapping[str, str], 4] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocateResponse:
    """The answers for a pod's containers, in the order of the request."""

    containers: Annotated[tuple[ContainerAllocateResponse, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class PreStartContainerRequest:
    """The devices of a container that is about to start."""

    ids: Annotated[tuple[str, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Devices of one resource that a container has."""

    resource_name: Annotated[str, 1] = ""
    ids: Annotated[tuple[str, ...], 2] = ()


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """A container's devices."""

    name: Annotated[str, 1] = ""
    devices: Annotated[tuple[ContainerDevices, ...], 2] = ()


@dataclass(frozen=True, slots=True)
class PodResources:
    """A pod's containers with their devices."""

    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[tuple[ContainerResources, ...], 3] = ()


@dataclass(frozen=True, slots=True)
class ListPodResourcesResponse:
    """All pods of the node that kubelet knows."""

    pods: Annotated[tuple[PodResources, ...], 1] = ()
