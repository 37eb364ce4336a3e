"""The registry of served resources: one row for each version of each kind, built-in or custom."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

EVENTS_GROUP = "events.k8s.io"  # a second version of core events, stored in the same collection
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One served version of one kind. `(group, plural)` names its collection in the store."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    # The entry in `spec.versions` of its CRD.
    custom: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
    verbs: tuple[str, ...] = ALL_VERBS
    stored_as: str = ""  # the stored apiVersion, if a webhook converts
    conversion: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)  # of its CRD
    deprecation: str = ""  # the warning that clients get
    key: tuple[str, str] = field(init=False, compare=False)  # of the collection in the store
    api_version: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("" if self.group == EVENTS_GROUP else self.group, self.plural))
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _built_in(row: str) -> Resource:
    where, plural, kind, flags, short, categories, subresources = (cell.strip() for cell in row.split("|"))
    group, _, version = where.rpartition("/")
    return Resource(
        group,
        version,
        plural,
        kind,
        namespaced="n" in flags,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=frozenset(subresources.split()),
        verbs=("create",)
        if "c" in flags
        else ("get", "list")
        if "r" in flags
        else tuple(verb for verb in ALL_VERBS if verb != "deletecollection" or "s" not in flags),
    )


# group/version | plural | kind | flags | short names | categories | subresources; the flags:
# n: namespaced, c: can only be created, r: can only be read, s: can only be deleted singly
_BUILT_IN = """
v1 | bindings | Binding | nc | | |
v1 | componentstatuses | ComponentStatus | r | cs | |
v1 | configmaps | ConfigMap | n | cm | |
v1 | endpoints | Endpoints | n | ep | |
v1 | events | Event | n | ev | |
v1 | limitranges | LimitRange | n | limits | |
v1 | namespaces | Namespace | s | ns | | status finalize
v1 | nodes | Node | | no | | status
v1 | persistentvolumeclaims | PersistentVolumeClaim | n | pvc | | status
v1 | persistentvolumes | PersistentVolume | | pv | | status
v1 | pods | Pod | n | po | all | status binding eviction log exec attach portforward ephemeralcontainers resize
v1 | podtemplates | PodTemplate | n | | |
v1 | replicationcontrollers | ReplicationController | n | rc | all | status scale
v1 | resourcequotas | ResourceQuota | n | quota | | status
v1 | secrets | Secret | n | | |
v1 | serviceaccounts | ServiceAccount | n | sa | | token
v1 | services | Service | n | svc | all | status
_ADMISSION_ | mutatingwebhookconfigurations | MutatingWebhookConfiguration | | | api-extensions |
_ADMISSION_ | validatingadmissionpolicies | ValidatingAdmissionPolicy | | | api-extensions | status
_ADMISSION_ | validatingadmissionpolicybindings | ValidatingAdmissionPolicyBinding | | | api-extensions |
_ADMISSION_ | validatingwebhookconfigurations | ValidatingWebhookConfiguration | | | api-extensions |
apiextensions.k8s.io/v1 | customresourcedefinitions | CustomResourceDefinition | | crd crds | api-extensions | status
apiregistration.k8s.io/v1 | apiservices | APIService | | | api-extensions | status
apps/v1 | controllerrevisions | ControllerRevision | n | | |
apps/v1 | daemonsets | DaemonSet | n | ds | all | status
apps/v1 | deployments | Deployment | n | deploy | all | status scale
apps/v1 | replicasets | ReplicaSet | n | rs | all | status scale
apps/v1 | statefulsets | StatefulSet | n | sts | all | status scale
authentication.k8s.io/v1 | selfsubjectreviews | SelfSubjectReview | c | | |
authentication.k8s.io/v1 | tokenreviews | TokenReview | c | | |
authorization.k8s.io/v1 | localsubjectaccessreviews | LocalSubjectAccessReview | nc | | |
authorization.k8s.io/v1 | selfsubjectaccessreviews | SelfSubjectAccessReview | c | | |
authorization.k8s.io/v1 | selfsubjectrulesreviews | SelfSubjectRulesReview | c | | |
authorization.k8s.io/v1 | subjectaccessreviews | SubjectAccessReview | c | | |
autoscaling/v2 | horizontalpodautoscalers | HorizontalPodAutoscaler | n | hpa | all | status
autoscaling/v1 | horizontalpodautoscalers | HorizontalPodAutoscaler | n | hpa | all | status
batch/v1 | cronjobs | CronJob | n | cj | all | status
batch/v1 | jobs | Job | n | | all | status
certificates.k8s.io/v1 | certificatesigningrequests | CertificateSigningRequest | | csr | | approval status
coordination.k8s.io/v1 | leases | Lease | n | | |
discovery.k8s.io/v1 | endpointslices | EndpointSlice | n | | |
events.k8s.io/v1 | events | Event | n | ev | |
flowcontrol.apiserver.k8s.io/v1 | flowschemas | FlowSchema | | | | status
flowcontrol.apiserver.k8s.io/v1 | prioritylevelconfigurations | PriorityLevelConfiguration | | | | status
metrics.k8s.io/v1beta1 | nodes | NodeMetrics | r | | |
metrics.k8s.io/v1beta1 | pods | PodMetrics | nr | | |
networking.k8s.io/v1 | ingressclasses | IngressClass | | | |
networking.k8s.io/v1 | ingresses | Ingress | n | ing | | status
networking.k8s.io/v1 | ipaddresses | IPAddress | | ip | |
networking.k8s.io/v1 | networkpolicies | NetworkPolicy | n | netpol | |
networking.k8s.io/v1 | servicecidrs | ServiceCIDR | | | | status
node.k8s.io/v1 | runtimeclasses | RuntimeClass | | | |
policy/v1 | poddisruptionbudgets | PodDisruptionBudget | n | pdb | | status
rbac.authorization.k8s.io/v1 | clusterrolebindings | ClusterRoleBinding | | | |
rbac.authorization.k8s.io/v1 | clusterroles | ClusterRole | | | |
rbac.authorization.k8s.io/v1 | rolebindings | RoleBinding | n | | |
rbac.authorization.k8s.io/v1 | roles | Role | n | | |
resource.k8s.io/v1 | deviceclasses | DeviceClass | | | |
resource.k8s.io/v1 | devicetaintrules | DeviceTaintRule | | | | status
resource.k8s.io/v1 | resourceclaims | ResourceClaim | n | | | status
resource.k8s.io/v1 | resourceclaimtemplates | ResourceClaimTemplate | n | | |
resource.k8s.io/v1 | resourceslices | ResourceSlice | | | |
scheduling.k8s.io/v1 | priorityclasses | PriorityClass | | pc | |
scheduling.k8s.io/v1beta1 | podgroups | PodGroup | n | | | status
scheduling.k8s.io/v1beta1 | workloads | Workload | n | | |
storage.k8s.io/v1 | csidrivers | CSIDriver | | | |
storage.k8s.io/v1 | csinodes | CSINode | | | |
storage.k8s.io/v1 | csistoragecapacities | CSIStorageCapacity | n | | |
storage.k8s.io/v1 | storageclasses | StorageClass | | sc | |
storage.k8s.io/v1 | volumeattachments | VolumeAttachment | | | | status
storage.k8s.io/v1 | volumeattributesclasses | VolumeAttributesClass | | vac | |
"""

BUILT_IN = tuple(
    _built_in(row) for row in _BUILT_IN.replace("_ADMISSION_", "admissionregistration.k8s.io/v1").strip().splitlines()
)


class Registry:
    """Finds the resource for a path or kind. Custom resources are added and removed while the server runs."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Resource] = {}
        self._custom: dict[tuple[str, str], tuple[Resource, ...]] = {}
        self._stored: dict[tuple[str, str], Resource] = {}  # cache of `storage`, by collection
        self.generation = 0  # grows with every change; key of caches that derive from the rows
        for row in BUILT_IN:
            self._rows[row.group, row.version, row.plural] = row

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._rows.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        for row in self._rows.values():
            if row.kind == kind and row.group == group and row.version == version:
                return row
        return None

    def storage(self, key: tuple[str, str]) -> Resource | None:
        """The resource under which a collection stores its objects: the stored version, or the first."""
        resource = self._stored.get(key)
        if resource is None:
            rows = [row for row in self._rows.values() if row.key == key]
            stored = (row for row in rows if row.conversion is None or row.stored_as == row.api_version)
            resource = next(stored, rows[0] if rows else None)
            if resource is not None:
                self._stored[key] = resource
        return resource

    def set_custom(self, group: str, plural: str, rows: tuple[Resource, ...]) -> None:
        """Serve these versions of a CRD; without rows, stop serving it."""
        for old in self._custom.pop((group, plural), ()):
            self._rows.pop((old.group, old.version, old.plural), None)
        if rows:
            self._custom[group, plural] = rows
            for row in rows:
                self._rows[row.group, row.version, row.plural] = row
        self._stored.clear()
        self.generation += 1

    def taken(self, group: str, plural: str) -> bool:
        """Whether a built-in resource has that name."""
        return any(row.group == group and row.plural == plural for row in BUILT_IN)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._rows.values())

    def groups(self) -> dict[str, list[str]]:
        """Group → its versions, in the order of registration; the core group is ''."""
        by_group: dict[str, list[str]] = {}
        for row in self._rows.values():
            versions = by_group.setdefault(row.group, [])
            if row.version not in versions:
                versions.append(row.version)
        return by_group
