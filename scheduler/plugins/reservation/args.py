"""ReservationArgs: the plugin's arguments in a configuration file."""

import msgspec

from seatrial.scheduler.plugins.defaultpreemption.args import CandidateNodesArgs


class PreAllocationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Pre-allocation of pods by label, in any namespace, and whether nodes without such pods are preferred."""

    enable_cluster_mode: bool = False
    cluster_label_key: str = "pod.koordinator.sh/is-pre-allocatable"
    cluster_priority_annotation_key: str = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_no_pre_allocated_pods: bool = False


class SelectorIndexArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Labels of reservations by which nodes are found for a `reservationSelector`."""

    enabled: bool = False
    key_prefixes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class ReservationArgs(CandidateNodesArgs, frozen=True):
    """Times are in seconds. The workers have no effect."""

    enable_preemption: bool = False
    controller_workers: int = 1
    gc_duration_seconds: int = 86400
    gc_interval_seconds: int = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: int = 60
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    clean_expired_reservation_allocated: bool = False  # upstream's feature gate CleanExpiredReservationAllocated
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    reservation_selector_index: SelectorIndexArgs = SelectorIndexArgs()

    def ignores(self, name: str) -> bool:
        """Whether the free amount of a resource, on the node and in a Restricted reservation, is not checked.

        Native resources always are.
        """
        return "/" in name and (name in self.ignored_resources or name.split("/", 1)[0] in self.ignored_resource_groups)

    def check(self) -> None:
        super().check()
        for name, value in (
            ("gcDurationSeconds", self.gc_duration_seconds),
            ("gcIntervalSeconds", self.gc_interval_seconds),
            ("resyncIntervalSeconds", self.resync_interval_seconds),
        ):
            if value <= 0:
                raise ValueError(f"{name}: expected more than 0, found {value}")
        for name in self.ignored_resources:
            if "/" not in name or _is_native(name.split("/", 1)[0]):
                raise ValueError(f"ignoredResources: expected names such as example.com/gpu, found {name!r}")
        for group in self.ignored_resource_groups:
            if "/" in group or _is_native(group):
                raise ValueError(f"ignoredResourceGroups: expected groups such as example.com, found {group!r}")


def _is_native(group: str) -> bool:
    """Whether resources of this group are Kubernetes' own."""
    return group == "kubernetes.io" or group.endswith(".kubernetes.io")
