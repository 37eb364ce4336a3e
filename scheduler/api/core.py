"""Pods, nodes and other objects of Kubernetes' own groups: the fields that scheduling reads, under their names."""

from msgspec import field

from seatrial.scheduler.api.wire import Condition, LabelSelector, ObjectMeta, Requirement, ResourceList, Wire

DEFAULT_SCHEDULER = "default-scheduler"
HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
PREEMPT_NEVER = "Never"


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ResourceRequirements(Wire, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""


class VolumeMount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    volume_mounts: tuple[VolumeMount, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Shape of both podAffinity and podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class PersistentVolumeClaimSource(Wire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None


class PodSpec(Wire, frozen=True, weakref=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30


class ContainerStateTerminated(Wire, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def terminated(self) -> bool:
        """Whether its containers have ended and will not restart, so that it holds no resources."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(default="", name="providerID")


class ContainerImage(Wire, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(Wire, frozen=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name


class ConfigMap(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
