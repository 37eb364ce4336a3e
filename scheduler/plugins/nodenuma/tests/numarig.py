"""A small cluster in memory whose nodes have NUMA nodes."""

from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.numa import RESOURCE_STATUS, ResourceStatus, decode_status
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.plugins.nodenuma.tests.machines import SMALL, Shape, topology_of
from seatrial.scheduler.tests.rig import Rig, profile


def scored(**args: Any) -> Configuration:
    """One profile with these arguments of the plugin."""
    return profile(pluginConfig=[{"name": "NodeNUMAResource", "args": args}])


class Machines(Rig):
    """A rig whose nodes have NUMA nodes."""

    def machine(
        self,
        name: str,
        shape: Shape = SMALL,
        *,
        memory: int = 128,
        labels: Mapping[str, str] | None = None,
        **report: Any,
    ) -> None:
        sockets, nodes, cores, threads = shape
        self.node(
            name,
            cpu=str(sockets * nodes * cores * threads),
            memory=f"{memory * sockets * nodes}Gi",
            labels=dict(labels or {}),
        )
        self.core.intake.set_topology(name, topology_of(name, shape, memory=memory, **report))

    def holds(self, builder: PodBuilder, node: str, status: str) -> None:
        """Place a pod on a node with an earlier allocation of the scheduler."""
        self.running(builder.annotation(RESOURCE_STATUS, status), node)

    def filter_message(self, name: str) -> str:
        """The filter reasons for a pod, without those of preemption."""
        return self.message(name).partition(" preemption:")[0].removeprefix("0/1 nodes are available: ")

    def resource_status(self, name: str) -> ResourceStatus:
        return decode_status(self.binding(name).annotations[RESOURCE_STATUS])


def lsr(name: str, cpu: str = "4", memory: str = "1Gi") -> PodBuilder:
    return pod(name).qos("LSR").request(cpu=cpu, memory=memory)


def share(name: str, cpu: str = "4", memory: str = "1Gi") -> PodBuilder:
    return pod(name).request(cpu=cpu, memory=memory)
