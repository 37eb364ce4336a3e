"""A bound pod as a node agent sees it: the fields it acts on, decoded once when the pod is admitted."""

from collections.abc import Mapping

import msgspec
from msgspec import field

from scheduler.api.core import PodSpec, ResourceRequirements
from scheduler.api.requests import Amounts, pod_requests
from scheduler.api.wire import Wire


class PodMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class FieldRef(Wire, frozen=True):
    field_path: str = ""


class ValueFrom(Wire, frozen=True):
    field_ref: FieldRef | None = None


class Variable(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class ContainerPlan(Wire, frozen=True):
    """A container as the pod asks for it."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Variable, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class SpecPlan(Wire, frozen=True):
    """What of `spec` PodSpec does not say, or says with fields an agent has no use for."""

    containers: tuple[ContainerPlan, ...] = ()
    init_containers: tuple[ContainerPlan, ...] = ()
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    host_network: bool = False


class ResourceHealth(Wire, frozen=True):
    resource_id: str = field(default="", name="resourceID")
    health: str = ""


class ResourceStatus(Wire, frozen=True):
    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class RunningState(Wire, frozen=True):
    started_at: str | None = None


class TerminatedState(Wire, frozen=True):
    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None
    started_at: str | None = None


class StateSeen(Wire, frozen=True):
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerSeen(Wire, frozen=True):
    """A container status that was written earlier, perhaps by a predecessor of this agent."""

    name: str = ""
    restart_count: int = 0
    state: StateSeen = StateSeen()
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class StatusSeen(Wire, frozen=True):
    phase: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: str | None = None
    container_statuses: tuple[ContainerSeen, ...] = ()


class BoundPod(Wire, frozen=True):
    """A pod with a node."""

    metadata: PodMeta = PodMeta()
    spec: SpecPlan = SpecPlan()
    status: StatusSeen = StatusSeen()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def terminated(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}


class _SpecOnly(Wire, frozen=True):
    spec: PodSpec = PodSpec()


_decode_pod = msgspec.json.Decoder(BoundPod).decode
_decode_spec = msgspec.json.Decoder(_SpecOnly).decode


def decode_pod(raw: msgspec.Raw | bytes) -> BoundPod:
    """
    Raises:
        msgspec.DecodeError: not a pod.
    """
    return _decode_pod(raw)


def requests_of(raw: msgspec.Raw | bytes) -> Amounts:
    """What the whole pod asks of its node, by the rule that the scheduler uses.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    return pod_requests(_decode_spec(raw).spec)


def resolve_env(pod: BoundPod, container: ContainerPlan, extra: Mapping[str, str], *, ip: str = "") -> dict[str, str]:
    """The container's environment: what kubelet sets, what the pod says (the downward API included), what was granted.

    A granted variable wins over the pod's own, as a runtime hook's does.
    """
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": pod.metadata.name}
    for variable in container.env:
        source = variable.value_from
        env[variable.name] = (
            _field(pod, source.field_ref.field_path, ip) if source and source.field_ref else variable.value
        )
    return {**env, **extra}


def _field(pod: BoundPod, path: str, ip: str) -> str:
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "status.podIP": ip,
    }
    if path in plain:
        return plain[path]
    kind, _, key = path.partition("['")
    table = {"metadata.labels": meta.labels, "metadata.annotations": meta.annotations}.get(kind, {})
    return table.get(key.removesuffix("']"), "")
