"""ClusterColocationProfile: what new pods get by their labels (Koordinator apis/config/v1alpha1)."""

from typing import Any

from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, Wire

PROFILES_PATH = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
SKIP_RESOURCES = "config.koordinator.sh/skip-update-resources"  # annotation of a profile
CONTROLLER_MANAGED = "config.koordinator.sh/controller-managed"  # label of a profile
EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"  # annotation of pods


class ProfileSpec(Wire, frozen=True):
    """What pods get, and which pods; a selector of None matches all."""

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    scheduler_name: str = ""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    patch: dict[str, Any] = {}


class ClusterColocationProfile(Wire, frozen=True):
    """A profile of config.koordinator.sh/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProfileSpec = ProfileSpec()
