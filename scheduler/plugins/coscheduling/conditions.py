"""The condition of a PodGroup of scheduling.k8s.io (WAS-R34, WAS-R35). No I/O."""

from typing import Any

from seatrial.scheduler.api.podgroup import NativePodGroup
from seatrial.scheduler.plugins.coscheduling.gang import Gang

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"


def next_conditions(group: NativePodGroup, gang: Gang, timestamp: str) -> dict[str, Any] | None:
    """The status with the condition of the last attempt; None if there is nothing to write. It never leaves True."""
    conditions = group.status.conditions
    before = next((condition for condition in conditions if condition.get("type") == INITIALLY_SCHEDULED), {})
    if before.get("status") == "True":
        return None
    if gang.group.satisfied:
        state = {"status": "True", "reason": "Scheduled", "message": ""}
    elif gang.mismatch and len(gang.children) >= gang.minimum:
        state = {"status": "False", "reason": "SchedulerError", "message": gang.mismatch}
    elif gang.group.message:
        state = {"status": "False", "reason": "Unschedulable", "message": gang.group.message}
    else:
        return None
    if state.items() <= {"message": "", **before}.items():
        return None
    since = before.get("lastTransitionTime", timestamp) if before.get("status") == state["status"] else timestamp
    condition = {"type": INITIALLY_SCHEDULED, **state, "lastTransitionTime": since}
    if group.metadata.generation:  # API servers leave it out of PodGroups (1.37.2)
        condition["observedGeneration"] = group.metadata.generation
    return {"conditions": [*(other for other in conditions if other is not before), condition]}
