"""The status of a PodGroup: the next one for the present members (GANG-R45, GANG-R46). No I/O."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.podgroup import PodGroup
from seatrial.scheduler.plugins.coscheduling.gang import Gang

PENDING, PRE_SCHEDULING, SCHEDULING = "Pending", "PreScheduling", "Scheduling"
SCHEDULED, RUNNING, FINISHED, FAILED = "Scheduled", "Running", "Finished", "Failed"
ABANDONED = 48 * 3600.0  # seconds between creation and the first Scheduling after which a stuck group is left alone


def next_status(pod_group: PodGroup, gang: Gang, ended: Mapping[str, str], timestamp: str) -> dict[str, Any] | None:
    """The fields of the status that change, one transition at a time; None if none does.

    `ended`: phases of members that succeeded or failed, by uid. Upstream does not count them as scheduled, so that a
    group of which some members succeeded returns to Scheduling; here they count.
    """
    status, minimum = pod_group.status, pod_group.spec.min_member
    if status.phase in {FINISHED, FAILED} or _abandoned(pod_group):
        return None
    phases = Counter(pod.status.phase for pod in gang.children.values())
    over = Counter(ended.values())
    counts = {
        "scheduled": len(gang.bound) + len(ended),
        "running": phases["Running"],
        "succeeded": over["Succeeded"],
        "failed": over["Failed"],
    }
    members = len(gang.children) + len(ended)
    timestamps: dict[str, Any] = dict(counts)
    timestamps["phase"] = phase = _phase(status.phase, members, minimum, counts)
    if phase == PRE_SCHEDULING:
        timestamps["occupiedBy"] = occupied_by(gang)
    if phase == SCHEDULING and not status.schedule_start_time:
        timestamps["scheduleStartTime"] = timestamp
    present = {
        "phase": status.phase,
        "occupiedBy": status.occupied_by,
        "scheduled": status.scheduled,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "scheduleStartTime": status.schedule_start_time,
    }
    return {key: value for key, value in timestamps.items() if present[key] != value} or None


def _phase(phase: str, members: int, minimum: int, counts: Mapping[str, int]) -> str:
    if not phase:
        return PENDING
    if phase == PENDING:
        return PRE_SCHEDULING if members >= max(minimum, 1) else PENDING
    if not members:
        return PENDING
    text = SCHEDULED if counts["scheduled"] >= minimum else SCHEDULING
    if text == SCHEDULED and phase != SCHEDULING and counts["succeeded"] + counts["running"] >= minimum:
        text = RUNNING
    if counts["failed"] and counts["failed"] + counts["running"] + counts["succeeded"] >= minimum:
        text = FAILED
    if counts["succeeded"] >= minimum:
        text = FINISHED
    return text


def occupied_by(gang: Gang) -> str:
    """The owners of the members, `namespace/name`, sorted and joined."""
    owners = {
        f"{pod.metadata.namespace}/{owner.name}"
        for pod in gang.children.values()
        for owner in pod.metadata.owner_references
    }
    return ",".join(sorted(owners))


def _abandoned(pod_group: PodGroup) -> bool:
    status = pod_group.status
    if status.scheduled != pod_group.spec.min_member or status.running:
        return False
    started, created = read_time(status.schedule_start_time), read_time(pod_group.metadata.creation_timestamp)
    return started is not None and created is not None and started - created > ABANDONED
