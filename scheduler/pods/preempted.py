"""Pods that a scheduler has preempted."""

from seatrial.scheduler.api.core import Pod

BY_SCHEDULER = "PreemptionByScheduler"  # the reason of the condition DisruptionTarget


def preempted(pod: Pod) -> bool:
    """Whether the pod is terminating because a scheduler preempted it."""
    return pod.deleting and any(
        condition.type == "DisruptionTarget" and condition.status == "True" and condition.reason == BY_SCHEDULER
        for condition in pod.status.conditions
    )
