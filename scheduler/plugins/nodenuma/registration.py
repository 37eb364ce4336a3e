"""What NodeNUMAResource adds to the scheduler: NodeResourceTopology objects and routes about NUMA nodes."""

from functools import partial

from seatrial.scheduler.api.numa import GROUP_VERSION, NodeResourceTopology
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.plugins.nodenuma.summary import summary_of
from seatrial.scheduler.serving.routes import Answer, RequestContext, json, missing

PLUGIN = "NodeNUMAResource"
OLD_PATH = "plugins/NodeNUMAResources/cpuTopologyOptions/:nodeName"  # Koordinator v0.7


def register(handle: Handle) -> None:
    """Register watches and routes. Call after the plugins of all profiles are built."""
    numa = NumaCache.of(handle)

    def set_topology(name: str, topology: NodeResourceTopology | None) -> None:
        handle.complain(*numa.set_topology(name, topology))
        handle.request_wake()

    handle.watch(
        Watch(
            f"/apis/{GROUP_VERSION}/noderesourcetopologies",
            NodeResourceTopology,
            lambda topology: set_topology(topology.metadata.name, topology),
            lambda topology: set_topology(topology.metadata.name, None),
        )
    )
    for pattern in (f"plugins/{PLUGIN}/nodes/:nodeName", OLD_PATH):
        handle.serve(pattern, partial(_summary, handle, numa))


def _summary(handle: Handle, numa: NumaCache, request: RequestContext) -> Answer:
    result = numa.find(request.parameters["nodeName"])
    if result is None:
        return missing("cannot find target node")
    if not result.state.topology.valid:
        return json({"message": "invalid topology, please check the NodeResourceTopology object"}, 500)
    return json(summary_of(result, handle.cache))
