"""Decisions of the core. The shell carries them out and reports the results of bindings to the core."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.preparation import Preparation

SCHEDULER_ERROR = "SchedulerError"  # upstream's reason of a rejection that is no verdict on the nodes


class Bind(msgspec.Struct, frozen=True):
    """Bind the pod to the node and write this metadata. Report with `Core.bound` or `Core.bind_failed`."""

    info: PodInfo
    node: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    node_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)  # written before the binding
    preparation: Preparation | None = None  # done before all this
    stale: tuple[str, ...] = ()  # annotations of the pod that are taken away before the binding


@dataclass(frozen=True, slots=True)
class Reject:
    """The pod cannot be placed: write the condition PodScheduled=False and a Warning event.

    `nominated` None leaves status.nominatedNodeName as it is; "" clears it.
    """

    info: PodInfo
    message: str
    reason: str = "Unschedulable"  # or SchedulerError
    nominated: str | None = None

    @property
    def is_present(self) -> bool:
        """Whether the pod has this condition already."""
        return any(
            condition.type == "PodScheduled"
            and condition.status == "False"
            and condition.reason == self.reason
            and condition.message == self.message
            for condition in self.info.pod.status.conditions
        )


@dataclass(frozen=True, slots=True)
class Evict:
    """Preempt `victim` on `node` for `by`: condition DisruptionTarget, event Preempted, delete.

    `preemptor`: with job-level preemption the gang group, or the pod, that gets the room.
    """

    victim: PodInfo
    by: PodInfo
    node: str
    preemptor: str = ""


@dataclass(frozen=True, slots=True)
class ClearNomination:
    """Clear status.nominatedNodeName of a pod whose nomination a pod of higher priority took."""

    info: PodInfo


Decision = Bind | Reject | Evict | ClearNomination
