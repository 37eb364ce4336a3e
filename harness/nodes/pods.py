"""A bound pod as a node agent sees it: the fields it acts on, decoded once when the pod is admitted."""

import msgspec
from msgspec import field

from seatrial.harness.apiserver.quantities import Amounts
from seatrial.harness.nodes.pod_parts import EnvFrom, Lifecycle, Port, Probe, Variable, Volume, VolumeMount
from seatrial.harness.nodes.pod_requests import pod_requests
from seatrial.scheduler.api.core import (
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
)
from seatrial.scheduler.api.wire import Wire, decoder


class PodMeta(Wire, frozen=True):
    """The fields of a pod's metadata that the agent uses."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ContainerPlan(Wire, frozen=True):
    """A container as the pod asks for it."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Variable, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    ports: tuple[Port, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class ReadinessGate(Wire, frozen=True):
    """A condition, written by another client, that must be True before a pod with ready containers is Ready."""

    condition_type: str = ""


class SpecPlan(Wire, frozen=True):
    """The fields of `spec` that the agent uses and PodSpec does not have, or has in another form."""

    containers: tuple[ContainerPlan, ...] = ()
    init_containers: tuple[ContainerPlan, ...] = ()
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    host_network: bool = False
    priority: int = 0
    service_account_name: str = ""
    readiness_gates: tuple[ReadinessGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None


class ResourceHealth(Wire, frozen=True):
    """The health of one device in `allocatedResourcesStatus`: Healthy, Unhealthy or Unknown."""

    resource_id: str = field(default="", name="resourceID")
    health: str = ""


class ResourceStatus(Wire, frozen=True):
    """The devices of one resource of a container in `allocatedResourcesStatus`."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class RunningState(Wire, frozen=True):
    """The state `running` of a container status."""

    started_at: str | None = None


class TerminatedState(Wire, frozen=True):
    """The state `terminated` of a container status."""

    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None
    started_at: str | None = None


class StateSeen(Wire, frozen=True):
    """The state of a container status that was written earlier."""

    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerSeen(Wire, frozen=True):
    """A container status that was written earlier, perhaps by a predecessor of this agent."""

    name: str = ""
    restart_count: int = 0
    state: StateSeen = StateSeen()
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class ConditionSeen(Wire, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""


class StatusSeen(Wire, frozen=True):
    """The pod's status that was written earlier, perhaps by a predecessor of this agent."""

    phase: str = ""
    qos_class: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: str | None = None
    conditions: tuple[ConditionSeen, ...] = ()
    container_statuses: tuple[ContainerSeen, ...] = ()
    init_container_statuses: tuple[ContainerSeen, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class BoundPod(Wire, frozen=True):
    """A pod with a node."""

    metadata: PodMeta = PodMeta()
    spec: SpecPlan = SpecPlan()
    status: StatusSeen = StatusSeen()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def priority(self) -> int:
        return self.spec.priority

    @property
    def terminated(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}

    def closed_gates(self) -> tuple[str, ...]:
        """Why the pod's readiness gates keep it from being ready, in kubelet's words (`GeneratePodReadyCondition`)."""
        statuses = {condition.type: condition.status for condition in self.status.conditions}
        closed = []
        for gate in self.spec.readiness_gates:
            name = gate.condition_type
            if name not in statuses:
                closed.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
            elif statuses[name] != "True":
                closed.append(f'the status of pod readiness gate "{name}" is not "True", but {statuses[name]}')
        return tuple(closed)


class _SpecOnly(Wire, frozen=True):
    spec: PodSpec = PodSpec()


_decode_pod = decoder(BoundPod)
_decode_spec = decoder(_SpecOnly)


def decode_pod(raw: msgspec.Raw | bytes) -> BoundPod:
    """
    Raises:
        msgspec.DecodeError: not a pod.
    """
    return _decode_pod(raw)


def requests_of(raw: msgspec.Raw | bytes) -> Amounts:
    """What the whole pod requests of its node; zero amounts are left out.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    return pod_requests(_decode_spec(raw).spec)
