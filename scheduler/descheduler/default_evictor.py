"""DefaultEvictor: evicts at once, by the Eviction API (RSV-R97).

Follows descheduler: pkg/framework/plugins/defaultevictor. Arguments that would need objects that this descheduler does
not follow (disruption budgets, storage classes of volumes) are refused.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec

from seatrial.scheduler.api.clock import Clock, read_time
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.descheduler.args import (
    Args,
    ArgsError,
    PriorityThreshold,
    check_duration,
    check_selector,
    node_selector,
)
from seatrial.scheduler.descheduler.evictability import (
    ABOVE_THRESHOLD,
    CRITICAL,
    NO_OWNER,
    NO_OWNER_NOT_FAILED,
    OTHER_LABELS,
    forced,
    is_critical,
    never,
    of_daemon_set,
    priority_threshold,
)
from seatrial.scheduler.descheduler.framework import Evictor
from seatrial.scheduler.descheduler.migration.evictions import evict
from seatrial.scheduler.descheduler.node_fit import fits_elsewhere
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.pods.selectors import selector_matches

log = logging.getLogger(__name__)

LOCAL, CRITICAL_PODS, BARE, DAEMONS = "PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods"
CLAIMS, WITHOUT_BUDGET, RESOURCE_CLAIMS = "PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"
DEFAULT = frozenset({LOCAL, CRITICAL_PODS, BARE, DAEMONS})
EXTRA = frozenset({CLAIMS, RESOURCE_CLAIMS})
PREFERRED, MANDATORY = "Preferred", "Mandatory"
NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"  # annotation of pods


class PodProtections(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which kinds of pods are protected, beyond the default and other than by default."""

    extra_enabled: tuple[str, ...] = ()
    default_disabled: tuple[str, ...] = ()
    config: Any = None


class DefaultEvictorArgs(Args, frozen=True):
    """Arguments of the evict and filter plugin DefaultEvictor."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset({"noEvictionPolicy"})
    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: int = 0
    min_pod_age: str = "0s"
    no_eviction_policy: str = PREFERRED
    pod_protections: PodProtections = PodProtections()
    # Older spellings of podProtections
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = msgspec.field(default=False, name="ignorePodsWithoutPDB")

    @property
    def protections(self) -> frozenset[str]:
        """The kinds of pods that are protected."""
        pod_protections = self.pod_protections
        if pod_protections.extra_enabled or pod_protections.default_disabled:
            return DEFAULT - {*pod_protections.default_disabled} | {*pod_protections.extra_enabled}
        lifted = {
            LOCAL: self.evict_local_storage_pods,
            DAEMONS: self.evict_daemon_set_pods,
            CRITICAL_PODS: self.evict_system_critical_pods,
            BARE: self.evict_failed_bare_pods,
        }
        kept = {kind for kind in DEFAULT if not lifted[kind]}
        return frozenset({*kept, CLAIMS} if self.ignore_pvc_pods else kept)

    @property
    def _has_older_spelling(self) -> bool:
        return (
            self.evict_local_storage_pods
            or self.evict_daemon_set_pods
            or self.evict_system_critical_pods
            or self.evict_failed_bare_pods
            or self.ignore_pvc_pods
            or self.ignore_pods_without_pdb
        )

    def check(self) -> None:
        threshold, pod_protections = self.priority_threshold, self.pod_protections
        if threshold is not None and threshold.value is not None and threshold.name:
            raise ArgsError("priorityThreshold: expected value or name, found both")
        check_selector("labelSelector", self.label_selector)
        check_selector("namespaceLabelSelector", self.namespace_label_selector)
        node_selector("nodeSelector", self.node_selector)
        check_duration("minPodAge", self.min_pod_age)
        if self.min_replicas < 0:
            raise ArgsError(f"minReplicas: expected 0 or more, found {self.min_replicas}")
        if self.no_eviction_policy not in {PREFERRED, MANDATORY}:
            raise ArgsError(f"noEvictionPolicy: expected {PREFERRED} or {MANDATORY}, found {self.no_eviction_policy!r}")
        if self._has_older_spelling and (pod_protections.extra_enabled or pod_protections.default_disabled):
            raise ArgsError("podProtections: expected it or the older fields such as evictLocalStoragePods, found both")
        if self.ignore_pods_without_pdb:
            raise ArgsError("ignorePodsWithoutPDB: disruption budgets are not read")
        if pod_protections.config is not None:
            raise ArgsError("podProtections.config: storage classes of volumes are not read")
        for field, listed, known in (
            ("extraEnabled", pod_protections.extra_enabled, EXTRA),
            ("defaultDisabled", pod_protections.default_disabled, DEFAULT),
        ):
            for kind in listed:
                if kind not in known or listed.count(kind) > 1:
                    raise ArgsError(
                        f"podProtections.{field}: expected each of {', '.join(sorted(known))} at most once,"
                        f" found {', '.join(listed)}"
                    )


class DefaultEvictor(Evictor):
    """Evicts at once; a disruption budget may still refuse it, which is logged."""

    name = "DefaultEvictor"
    args = DefaultEvictorArgs

    def __init__(self, state: ClusterState, clock: Clock, rest: Rest, args: DefaultEvictorArgs) -> None:
        self._state, self._clock, self._rest, self._args = state, clock, rest, args
        self._protections, self._min_age = args.protections, check_duration("minPodAge", args.min_pod_age)
        self._selector = node_selector("nodeSelector", args.node_selector)

    def may_evict(self, pod: Pod) -> bool:
        if not forced(pod) and any(self._reasons(pod)):
            return False
        args, namespaces = self._args, self._state.namespaces
        selector = args.namespace_label_selector
        if selector is not None and not selector_matches(selector, namespaces.get(pod.metadata.namespace, {})):
            return False
        return not args.node_fit or fits_elsewhere(self._state, pod, self._nodes())

    def _nodes(self) -> list[Node]:
        """The nodes that `nodeSelector` matches."""
        return [node for node in self._state.nodes.values() if selector_matches(self._selector, node.metadata.labels)]

    def _reasons(self, pod: Pod) -> Iterator[str]:
        """Why the pod stays; nothing if it may be evicted."""
        args, guarded = self._args, self._protections
        if args.no_eviction_policy == MANDATORY and NO_EVICTION in pod.metadata.annotations:
            yield "pod asks not to be evicted"
        yield from never(pod)
        if DAEMONS in guarded and of_daemon_set(pod):
            yield "pod is a DaemonSet pod"
        if not pod.metadata.owner_references and (BARE in guarded or pod.status.phase != "Failed"):
            yield NO_OWNER if BARE in guarded else NO_OWNER_NOT_FAILED
        if CRITICAL_PODS in guarded:
            threshold = priority_threshold(self._state, args.priority_threshold)
            if is_critical(pod):
                yield CRITICAL
            if threshold is not None and pod.spec.priority >= threshold:
                yield ABOVE_THRESHOLD
        for kind, is_there in _PARTS.items():
            if kind in guarded and is_there(pod):
                yield f"pod is protected by {kind}"
        if args.label_selector is not None and not selector_matches(args.label_selector, pod.metadata.labels):
            yield OTHER_LABELS
        owners = pod.metadata.owner_references
        if args.min_replicas > 1 and len(owners) == 1 and self._state.count_of(owners[0].uid) < args.min_replicas:
            yield "owner has fewer pods than minReplicas"
        started = read_time(pod.status.start_time)
        if self._min_age and (started is None or self._clock.now() - started < self._min_age):
            yield "pod is younger than minPodAge"

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        if not self.may_evict(pod):
            return False

        def answered(response: Response) -> None:
            if not response.ok:
                log.warning("evict refused pod=%s strategy=%s why=%s", pod.key, trigger, refusal(response))

        log.info("evict pod=%s node=%s strategy=%s reason=%s", pod.key, pod.spec.node_name, trigger, reason)
        evict(self._rest, pod, {"preconditions": {"uid": pod.metadata.uid}}, answered)
        return True


_PARTS: dict[str, Callable[[Pod], bool]] = {
    LOCAL: lambda pod: any(volume.empty_dir is not None or volume.host_path is not None for volume in pod.spec.volumes),
    CLAIMS: lambda pod: any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes),
    RESOURCE_CLAIMS: lambda pod: bool(pod.spec.resource_claims),
}
