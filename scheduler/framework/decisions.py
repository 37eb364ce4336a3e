"""Decisions: what the core wants done. The shell does it and reports back; the core itself touches nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from scheduler.cache.nodeinfo import PodInfo


class Bind(msgspec.Struct, frozen=True):
    """Put the pod on the node, with these marks on both. Answer with `Core.bound` or `Core.bind_failed`."""

    info: PodInfo
    node: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    node_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)  # to be written first


@dataclass(frozen=True, slots=True)
class Reject:
    """Tell the pod's owner that it cannot be placed: the condition PodScheduled=False and a Warning event.

    `nominated` None leaves status.nominatedNodeName as it is; "" clears it.
    """

    info: PodInfo
    message: str
    reason: str = "Unschedulable"  # or SchedulerError
    nominated: str | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Remove `victim` from `node` so that `by` can go there: condition DisruptionTarget, event Preempted, delete."""

    victim: PodInfo
    by: PodInfo
    node: str


@dataclass(frozen=True, slots=True)
class ClearNomination:
    """Empty status.nominatedNodeName of a pod that lost its place to a more important one."""

    info: PodInfo


Decision = Bind | Reject | Evict | ClearNomination
