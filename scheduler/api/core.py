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
    """A taint that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Wire, frozen=True):
    """A taint of a node: key, value, effect."""

    key: str = ""
    value: str = ""
    effect: str = ""


class ContainerPort(Wire, frozen=True):
    """A port of a container; `host_port` 0: none on the node."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerClaim(Wire, frozen=True):
    """A claim of the pod, or one request of it, whose devices a container gets."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Wire, frozen=True):
    """What a container requests and is limited to, by resource name, and the claims whose devices it gets."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ContainerClaim, ...] = ()


class EnvVar(Wire, frozen=True):
    """An environment variable with a value."""

    name: str = ""
    value: str = ""


class VolumeMount(Wire, frozen=True):
    """A volume that a container uses."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Wire, frozen=True):
    """A container of a pod, with the fields that scheduling reads."""

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
    """Requirements on labels and fields of a node; all must hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    """A term whose weight counts for nodes that match it."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    """Nodes that a pod requires or prefers."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True):
    """Pods, and the topology domain in which they count."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    """A term whose weight counts in domains with matching pods."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Shape of both podAffinity and podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """Rules on the nodes and on the other pods of a node."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    """How far the numbers of matching pods may differ between topology domains."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Wire, frozen=True):
    """A reason not to schedule the pod yet."""

    name: str = ""


class PersistentVolumeClaimSource(Wire, frozen=True):
    """A claim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Wire, frozen=True):
    """A claim that is made for the pod; its template is not read."""


class Volume(Wire, frozen=True):
    """A volume of a pod; of its sources only claims are read."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Wire, frozen=True):
    """A claim of dynamic resource allocation: an existing one, or one that is made from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodResourceClaimStatus(Wire, frozen=True):
    """The claim that was made for the pod; None: none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Wire, frozen=True):
    """The request of the claim that serves an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Wire, frozen=True):
    """The claim that the scheduler made for extended resources of the pod."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodSchedulingGroup(Wire, frozen=True):
    """The PodGroup of scheduling.k8s.io that a pod is a member of."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True, weakref=True, gc=True):
    """A pod's spec, with the fields that scheduling reads."""

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
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    host_network: bool = False
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30


class ContainerStateTerminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    """The state of a container; only its end is read."""

    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True):
    """What kubelet reports of a container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None


class PodStatus(Wire, frozen=True):
    """A pod's status."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Wire, frozen=True):
    """A pod, with the fields that scheduling reads."""

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
    """A node's spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(default="", name="providerID")


class ContainerImage(Wire, frozen=True):
    """An image on a node; its size is in bytes."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(Wire, frozen=True):
    """A node's resources, conditions and images."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(Wire, frozen=True):
    """A node, with the fields that scheduling reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name


class ConfigMap(Wire, frozen=True):
    """A ConfigMap with text values."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """The pods of a budget, and how many must or may be missing: a number or a percentage."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """How many pods may be evicted now, and those whose eviction is under way."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Wire, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
