"""Messages of kubelet's gRPC interfaces for drivers of claims: registration of plugins, dra (v1), dra-health (v1).

Field numbers and names are those of k8s.io/kubelet `pkg/apis/pluginregistration/v1/api.proto`,
`pkg/apis/dra/v1/api.proto` and `pkg/apis/dra-health/v1/api.proto`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

REGISTRATION = "pluginregistration.Registration"
CLAIMS = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
HEALTH = "v1.DRAResourceHealth"

PLUGIN_TYPE = "DRAPlugin"
VERSIONS = ("v1.DRAPlugin", HEALTH)
HEALTHY, UNHEALTHY = 1, 2


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a driver tells kubelet of itself."""

    type: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    endpoint: Annotated[str, 3] = ""  # path of the socket for claims
    supported_versions: Annotated[tuple[str, ...], 4] = ()


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """Whether kubelet took the driver."""

    plugin_registered: Annotated[bool, 1] = False
    error: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """`Claim` of the interface: which claim is meant."""

    namespace: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class ClaimsRequest:
    """`NodePrepareResourcesRequest`, and `NodeUnprepareResourcesRequest`."""

    claims: Annotated[tuple[ClaimRef, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """`Device` of the interface: one allocated device, and what the container runtime adds for it."""

    request_names: Annotated[tuple[str, ...], 1] = ()
    pool_name: Annotated[str, 2] = ""
    device_name: Annotated[str, 3] = ""
    cdi_device_ids: Annotated[tuple[str, ...], 4] = ()
    share_id: Annotated[str, 5] = ""


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """`NodePrepareResourceResponse`: the devices of one claim, or why it cannot be prepared."""

    devices: Annotated[tuple[PreparedDevice, ...], 1] = ()
    error: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class PrepareResponse:
    """The answers by the claims' UIDs."""

    claims: Annotated[Mapping[str, PreparedClaim], 1] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleasedClaim:
    """`NodeUnprepareResourceResponse`: empty, or why the claim's devices are not released."""

    error: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class UnprepareResponse:
    """The answers by the claims' UIDs."""

    claims: Annotated[Mapping[str, ReleasedClaim], 1] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceIdentifier:
    """A device of a pool."""

    pool_name: Annotated[str, 1] = ""
    device_name: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """A device's health. kubelet takes the time of arrival for the time of the report."""

    device: Annotated[DeviceIdentifier | None, 1] = None
    health: Annotated[int, 2] = 0
    message: Annotated[str, 5] = ""


@dataclass(frozen=True, slots=True)
class HealthResponse:
    """The health of all devices of a driver."""

    devices: Annotated[tuple[DeviceHealth, ...], 1] = ()
