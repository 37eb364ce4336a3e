"""ElasticQuota and ElasticQuotaProfile, their labels and annotations (Koordinator apis/extension/elastic_quota.go)."""

import msgspec

from seatrial.scheduler.api.quantity import QuantityError, amounts
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, ResourceList, Wire, decode_as

QUOTAS_PATH = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
PROFILES_PATH = "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles"

DOMAIN = "quota.scheduling.koordinator.sh"
PARENT = f"{DOMAIN}/parent"
IS_PARENT = f"{DOMAIN}/is-parent"
ALLOW_LENT = f"{DOMAIN}/allow-lent-resource"
TREE_ID = f"{DOMAIN}/tree-id"
IS_ROOT = f"{DOMAIN}/is-root"
PROFILE = f"{DOMAIN}/profile"
IGNORE_DEFAULT_TREE = f"{DOMAIN}/ignore-default-tree"
ALLOW_FORCE_UPDATE = f"{DOMAIN}/allow-force-update"
QUOTA_NAME = f"{DOMAIN}/name"
PREEMPTIBLE = f"{DOMAIN}/preemptible"

ADMISSION = f"{DOMAIN}/admission"
SHARED_WEIGHT = f"{DOMAIN}/shared-weight"
NAMESPACES = f"{DOMAIN}/namespaces"
STRICT_KEYS = f"{DOMAIN}/max-strict-check-resource-keys"
TOTAL_RESOURCE = f"{DOMAIN}/total-resource"
UNSCHEDULABLE_RESOURCE = f"{DOMAIN}/unschedulable-resource"
RESOURCE_KEYS = f"{DOMAIN}/resource-keys"
RUNTIME = f"{DOMAIN}/runtime"
REQUEST = f"{DOMAIN}/request"
CHILD_REQUEST = f"{DOMAIN}/child-request"
GUARANTEED = f"{DOMAIN}/guaranteed"
ALLOCATED = f"{DOMAIN}/allocated"
NON_PREEMPTIBLE_REQUEST = f"{DOMAIN}/non-preemptible-request"
NON_PREEMPTIBLE_USED = f"{DOMAIN}/non-preemptible-used"

ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA = (
    "koordinator-root-quota",
    "koordinator-system-quota",
    "koordinator-default-quota",
)


class ElasticQuotaSpec(Wire, frozen=True):
    """Amounts that the quota is guaranteed (`min`) and may use at most (`max`)."""

    min: ResourceList | None = None
    max: ResourceList | None = None


class ElasticQuotaStatus(Wire, frozen=True):
    """Amounts that the quota's pods use."""

    used: ResourceList | None = None


class ElasticQuota(Wire, frozen=True):
    """One quota of a quota tree; parent and tree are named by labels."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec | None = None
    status: ElasticQuotaStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def parent(self) -> str:
        """The name of the parent; the root's where none is named."""
        return "" if self.name == ROOT_QUOTA else self.metadata.labels.get(PARENT) or ROOT_QUOTA

    @property
    def tree(self) -> str:
        """The ID of its tree; "" is the default tree."""
        return self.metadata.labels.get(TREE_ID, "")

    @property
    def is_parent(self) -> bool:
        return self.metadata.labels.get(IS_PARENT) == "true"

    @property
    def lends(self) -> bool:
        return self.metadata.labels.get(ALLOW_LENT) != "false"

    @property
    def is_tree_root(self) -> bool:
        return self.metadata.labels.get(IS_ROOT) == "true"


class ElasticQuotaProfileSpec(Wire, frozen=True):
    """The root quota that a profile maintains, and the nodes whose capacity it gets."""

    quota_name: str = ""
    quota_labels: dict[str, str] | None = None
    resource_ratio: str | None = None
    node_selector: LabelSelector | None = None


class ElasticQuotaProfile(Wire, frozen=True):
    """Derives a tree's root quota from the capacity of selected nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaProfileSpec = ElasticQuotaProfileSpec()


class AnnotationError(ValueError):
    """An annotation is not what it should be. The message has the reason without the annotation's name."""


def resource_list(quota: ElasticQuota, annotation: str) -> dict[str, int] | None:
    """A resource list in an annotation, as amounts; None if it is absent.

    Raises:
        AnnotationError: it is not JSON, or not a resource list.
    """
    text = quota.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        return amounts(decode_as(text, ResourceList))
    except (msgspec.MsgspecError, QuantityError) as error:
        raise AnnotationError(str(error)) from error


def string_list(annotations: dict[str, str], annotation: str) -> list[str] | None:
    """A JSON array of strings in an annotation; None if it is absent.

    Raises:
        AnnotationError: it is not JSON, or not an array of strings.
    """
    text = annotations.get(annotation)
    if text is None:
        return None
    try:
        return decode_as(text, list[str])
    except msgspec.MsgspecError as error:
        raise AnnotationError(str(error)) from error
