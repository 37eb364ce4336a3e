"""PodGroup objects of both API groups, and the labels and annotations that make a pod a member of a gang.

Invalid values never reject a pod; each reader returns the default of `docs/spec/gang-topology-preemption.md` and, where
a user would want to know, a note with what was expected and what was found.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.scheduler.api.core import Pod, PodResourceClaim, PodStatus
from seatrial.scheduler.api.durations import go_duration, go_text
from seatrial.scheduler.api.integers import MAX_INT32, integer
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList, Wire, decode_as
from seatrial.scheduler.api.wrong_values import shown

PODGROUPS_PATH = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"

NATIVE_API = "/apis/scheduling.k8s.io/v1beta1"
NATIVE_PODGROUPS_PATH = f"{NATIVE_API}/podgroups"

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
POD_GROUP_NAME_LABEL = "pod-group.scheduling.sigs.k8s.io/name"  # deprecated
POD_GROUP_MIN_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"  # deprecated
POD_GROUP_MATCH_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"
GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_MIN = "gang.scheduling.koordinator.sh/min-available"
GANG_TOTAL = "gang.scheduling.koordinator.sh/total-number"
GANG_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
GANG_MODE = "gang.scheduling.koordinator.sh/mode"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
GANG_MATCH_POLICY = "gang.scheduling.koordinator.sh/match-policy"
NETWORK_TOPOLOGY_INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
BIND_GANG_GROUP = "internal.scheduling.koordinator.sh/bind-gang-group-id"
BIND_MEMBER_COUNT = "internal.scheduling.koordinator.sh/bind-gang-member-count"
OLD_BIND_GANG_GROUP = "scheduling.koordinator.sh/bind-gang-group-id"  # deprecated, still written
OLD_BIND_MEMBER_COUNT = "scheduling.koordinator.sh/bind-gang-member-count"


MAX_GROUPS = 1000  # gangs of a group; Koordinator has no limit


class Mode(StrEnum):
    """What happens to the other members when one cannot be placed."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """What counts towards the minimum at Permit."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


class PodGroupSpec(Wire, frozen=True):
    """The size of a gang, and its waiting time in seconds."""

    min_member: int = 0
    min_resources: ResourceList = {}
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(Wire, frozen=True):
    """Phase of a gang, and numbers of members by state."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(Wire, frozen=True):
    """A gang as an object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class GangPolicy(Wire, frozen=True):
    """The least number of members that are placed together."""

    min_count: int = 1


class SchedulingPolicy(Wire, frozen=True):
    """How a group of Kubernetes' own API is placed; without `gang` (policy basic) one member is enough."""

    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    """All members are on nodes with one value of the label `key`."""

    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    """Where the members of a group are placed together; at most one constraint."""

    topology: tuple[TopologyConstraint, ...] | None = ()


class DisruptionMode(Wire, frozen=True):
    """Whether a group is preempted whole; otherwise its members one by one."""

    all: dict[str, Any] | None = None


class NativePodGroupSpec(Wire, frozen=True):
    """The policy of a group, its constraints, how it ends, the priority of its members, and the claims they share."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority: int = 0
    resource_claims: tuple[PodResourceClaim, ...] = ()


class NativePodGroupStatus(Wire, frozen=True):
    """The conditions of a group."""

    conditions: tuple[dict[str, Any], ...] = ()


class NativePodGroup(Wire, frozen=True):
    """A gang as an object of Kubernetes' own API, scheduling.k8s.io."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NativePodGroupSpec = NativePodGroupSpec()
    status: NativePodGroupStatus = NativePodGroupStatus()

    @property
    def minimum(self) -> int:
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 1

    @property
    def topology_key(self) -> str:
        """The label that gathers the members; "" if they may be anywhere."""
        constraints = self.spec.scheduling_constraints
        return next((each.key for each in (constraints.topology if constraints else None) or ()), "")

    @property
    def whole(self) -> bool:
        """Whether all members are preempted together."""
        mode = self.spec.disruption_mode
        return mode is not None and mode.all is not None

    @property
    def gang_id(self) -> str:
        return f"{self.metadata.key}{NATIVE}"


class EndedMember(Wire, frozen=True):
    """A pod of a PodGroup that succeeded or failed."""

    metadata: ObjectMeta = ObjectMeta()
    status: PodStatus = PodStatus()


NATIVE = "@scheduling.k8s.io"  # ends names of gangs of Kubernetes' own API, so that they differ from all others


def gang_name(pod: Pod) -> str:
    """The name of the pod's gang; "" if it is in none (GANG-R1). A native group wins (WAS-R80)."""
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        return f"{native.pod_group_name}{NATIVE}"
    metadata = pod.metadata
    labels = metadata.labels
    if labels:
        name = labels.get(POD_GROUP_LABEL) or labels.get(POD_GROUP_NAME_LABEL)
        if name:
            return name
    return metadata.annotations.get(GANG_NAME, "") if metadata.annotations else ""


_COUNT = f"a whole number, at most {MAX_INT32}"


def _count(text: str) -> int | None:
    """A number of members or a rank; None if the text is none."""
    return integer(text, 0, MAX_INT32)


def gang_minimum(pod: Pod) -> tuple[int | None, str]:
    """The minimum of an annotation gang (GANG-R2), None if there is none, and what is wrong."""
    text = pod.metadata.labels.get(POD_GROUP_MIN_LABEL) or pod.metadata.annotations.get(GANG_MIN)
    if text is None:
        return None, f"annotation {GANG_MIN}: expected a whole number, found none"
    value = _count(text)
    if value is None:
        return None, f"annotation {GANG_MIN}: expected {_COUNT}, found {shown(text)}"
    return value, ""


def gang_total(annotations: Mapping[str, str], minimum: int) -> tuple[int, str]:
    """The expected number of members, at least the minimum, and what is wrong with the annotation."""
    text = annotations.get(GANG_TOTAL, "")
    value = _count(text)
    if value is not None:
        return max(value, minimum), ""
    note = f"annotation {GANG_TOTAL}: expected {_COUNT}, found {shown(text)}; {minimum} is used" if text else ""
    return minimum, note


def gang_mode(annotations: Mapping[str, str]) -> tuple[Mode, str]:
    """The mode, Strict by default, and what is wrong with the annotation."""
    text = annotations.get(GANG_MODE, "")
    if text in {"", Mode.STRICT}:
        return Mode.STRICT, ""
    if text == Mode.NON_STRICT:
        return Mode.NON_STRICT, ""
    return Mode.STRICT, f"annotation {GANG_MODE}: expected Strict or NonStrict, found {shown(text)}; Strict is used"


def gang_match_policy(annotations: Mapping[str, str], default: MatchPolicy) -> tuple[MatchPolicy, str]:
    """The match policy, and what is wrong with the annotation."""
    text = annotations.get(GANG_MATCH_POLICY) or annotations.get(POD_GROUP_MATCH_POLICY, "")
    if not text:
        return default, ""
    try:
        return MatchPolicy(text), ""
    except ValueError:
        expected = ", ".join(MatchPolicy)
        return (
            default,
            f"annotation {GANG_MATCH_POLICY}: expected one of {expected}, found {shown(text)}; {default} is used",
        )


def gang_groups(annotations: Mapping[str, str], own: str) -> tuple[tuple[str, ...], str]:
    """The sorted ids `namespace/name` of the gang group, by default `own` alone, and what is wrong."""
    text = annotations.get(GANG_GROUPS, "")
    if not text:
        return (own,), ""
    try:
        result = decode_as(text, list[str])
    except msgspec.DecodeError:
        return (own,), (
            f"annotation {GANG_GROUPS}: expected a JSON list of namespace/name, found {shown(text)};"
            f" {own} is alone in its group"
        )
    if len(result) > MAX_GROUPS:
        return (own,), (
            f"annotation {GANG_GROUPS}: expected at most {MAX_GROUPS} gangs, found {len(result)};"
            f" {own} is alone in its group"
        )
    wrong = [name for name in result if not re.fullmatch(r"[^/\s]+/[^/\s]+", name)]
    if not result or wrong:
        return (own,), (
            f"annotation {GANG_GROUPS}: expected ids namespace/name, found {shown(wrong or result)};"
            f" {own} is alone in its group"
        )
    note = f"annotation {GANG_GROUPS}: expected {own} in the list, found {shown(result)}; it is added"
    note = "" if own in result else note
    return tuple(sorted({*result, own})), note


def gang_waiting_time(annotations: Mapping[str, str], default: float) -> tuple[float, str]:
    """Seconds that a member waits at Permit, and what is wrong with the annotation."""
    text = annotations.get(GANG_WAITING_TIME, "")
    if not text:
        return default, ""
    value = go_duration(text)
    if value is None or value <= 0:
        return default, (
            f"annotation {GANG_WAITING_TIME}: expected a duration above 0 as 300s or 10m, found {shown(text)};"
            f" {go_text(default)} is used"
        )
    return value, ""


def schedule_timeout(spec: "PodGroupSpec", default: float) -> tuple[float, str]:
    """Seconds that a member waits at Permit, and what is wrong with the field of the PodGroup."""
    seconds = spec.schedule_timeout_seconds
    if seconds is None:
        return default, ""
    if seconds <= 0:
        return (
            default,
            f"scheduleTimeoutSeconds: expected a number above 0, found {seconds}; {go_text(default)} is used",
        )
    return float(seconds), ""


def topology_index(pod: Pod) -> int:
    """The rank of the pod in its job; -1 if it has none."""
    text = pod.metadata.annotations.get(NETWORK_TOPOLOGY_INDEX, "")
    value = _count(text)
    return -1 if value is None else value


def topology_index_note(pod: Pod) -> str:
    """What is wrong with the pod's annotation for its rank; "" if nothing is."""
    text = pod.metadata.annotations.get(NETWORK_TOPOLOGY_INDEX, "")
    if not text or topology_index(pod) >= 0:
        return ""
    return (
        f"pod {pod.metadata.key}, annotation {NETWORK_TOPOLOGY_INDEX}: expected {_COUNT}, found {shown(text)};"
        " the pod has no rank"
    )
