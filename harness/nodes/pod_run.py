"""The state of a pod on a node, from its admission until its object is gone."""

from typing import Any

import msgspec

from seatrial.harness.nodes.runtimes.protocol import ContainerState, Work

Manifest = dict[str, Any]


class PodRun:
    """A pod that this node runs."""

    __slots__ = (
        "closed_gates",
        "explained",
        "generation",
        "in_flight",
        "next_status",
        "resize_pending",
        "start",
        "states",
        "stopping",
        "waiting_resize",
        "work",
    )

    def __init__(self, work: Work, start: str, closed_gates: tuple[str, ...]) -> None:
        self.work = work
        self.start = start
        self.closed_gates = closed_gates  # why its readiness gates keep the pod from being ready
        self.states: tuple[ContainerState, ...] = ()
        self.explained = bool(work.pod.status.container_statuses)  # perhaps, by an earlier agent
        self.stopping = False
        self.in_flight = False
        self.next_status: Manifest | None = None
        self.generation = work.pod.metadata.generation
        self.waiting_resize: msgspec.Raw | None = None  # the pod whose resize waits for room
        self.resize_pending: str | None = None  # why the last resize was not carried out; "": it was

    @property
    def running(self) -> bool:
        """A container runs."""
        return any(state.state == "running" for state in self.states)
