"""Which pods may be evicted at all (RSV-R75)."""

from collections.abc import Sequence

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.migration import EVICT_ANNOTATION, EVICTION_COST
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, PriorityThreshold
from seatrial.scheduler.descheduler.node_fit import fits_elsewhere
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.pod_order import NEVER, cost
from seatrial.scheduler.descheduler.state import ClusterState, controller_of
from seatrial.scheduler.pods.selectors import selector_matches

SYSTEM_CRITICAL = 2_000_000_000
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
MIRROR, CONFIG_SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"

NO_OWNER = "pod does not have any ownerRefs"
NO_OWNER_NOT_FAILED = "pod does not have any ownerRefs and is not in failed phase"
CRITICAL = "pod has system critical priority"
ABOVE_THRESHOLD = "pod has higher priority than specified priority class threshold"
LOCAL_STORAGE = "pod has local storage and descheduler is not configured with evictLocalStoragePods"
WITH_CLAIM = "pod has a PVC and descheduler is configured to ignore PVC pods"
OTHER_LABELS = "pod labels do not match the labelSelector filter in the policy parameter"


def forced(pod: Pod) -> bool:
    """Whether the pod's annotation asks for its eviction: filters and limits do not apply."""
    return EVICT_ANNOTATION in pod.metadata.annotations


def why_not(state: ClusterState, args: MigrationControllerArgs, pod: Pod, nodes: Sequence[Node]) -> list[str]:
    """Reasons why the pod is not evicted; empty if it may be. `nodes`: where it could go instead."""
    if forced(pod):
        return []
    messages = [*never(pod), *(["pod is a DaemonSet pod"] if of_daemon_set(pod) else [])]
    skipped = args.skip_eviction_gates
    if "BarePods" not in skipped and not pod.metadata.owner_references and not args.evict_all_bare_pods:
        if not args.evict_failed_bare_pods:
            messages.append(NO_OWNER)
        elif pod.status.phase != "Failed":
            messages.append(NO_OWNER_NOT_FAILED)
    if not args.evict_system_critical_pods:
        if "SystemCritical" not in skipped and is_critical(pod):
            messages.append(CRITICAL)
        threshold = priority_threshold(state, args.priority_threshold)
        if "PriorityThreshold" not in skipped and threshold is not None and pod.spec.priority >= threshold:
            messages.append(ABOVE_THRESHOLD)
    local = any(volume.empty_dir is not None or volume.host_path is not None for volume in pod.spec.volumes)
    if "LocalStorage" not in skipped and local and not args.evict_local_storage_pods:
        messages.append(LOCAL_STORAGE)
    claims = any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
    if "PVC" not in skipped and args.ignore_pvc_pods and claims:
        messages.append(WITH_CLAIM)
    selector = args.label_selector
    if "LabelSelector" not in skipped and selector and not selector_matches(selector, pod.metadata.labels):
        messages.append(OTHER_LABELS)
    if "Namespaces" not in skipped and not args.namespaces.allows(pod.metadata.namespace):
        messages.append(f"pod is in namespace {pod.metadata.namespace}, which the configuration does not allow")
    if not messages and args.node_fit and "NodeFit" not in skipped and not fits_elsewhere(state, pod, list(nodes)):
        messages.append("pod does not fit on any other node")
    return messages


def never(pod: Pod) -> list[str]:
    """Reasons that no configuration lifts."""
    annotations = pod.metadata.annotations
    results = []
    if MIRROR in annotations:
        results.append("pod is a mirror pod")
    elif annotations.get(CONFIG_SOURCE, "api") != "api":
        results.append("pod is a static pod")
    if pod.deleting:
        results.append("pod is terminating")
    if annotations and cost(pod, EVICTION_COST) == NEVER:
        results.append("pod's eviction cost forbids eviction")
    return results


def of_daemon_set(pod: Pod) -> bool:
    """Whether the pod's controller is a DaemonSet, which would create it again on the same node."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind == "DaemonSet"


def is_critical(pod: Pod) -> bool:
    """Whether the pod has a system-critical priority or priority class."""
    return pod.spec.priority >= SYSTEM_CRITICAL or pod.spec.priority_class_name in CRITICAL_CLASSES


def priority_threshold(state: ClusterState, threshold: PriorityThreshold | None) -> int | None:
    """Pods of this priority and above stay. A named class that does not exist protects all pods."""
    if threshold is None:
        return None
    if threshold.name:
        return state.priorities.get(threshold.name, -(1 << 31))
    return threshold.value
