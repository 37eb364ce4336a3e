"""What Coscheduling adds to the scheduler: PodGroup objects, routes and metrics."""

from collections.abc import Iterator

from seatrial.scheduler.api.networktopology import TOPOLOGIES_PATH, ClusterNetworkTopology
from seatrial.scheduler.api.podgroup import (
    NATIVE_PODGROUPS_PATH,
    POD_GROUP_LABEL,
    PODGROUPS_PATH,
    EndedMember,
    NativePodGroup,
    PodGroup,
)
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.controller import PodGroupController
from seatrial.scheduler.plugins.coscheduling.summary import summary_of, topology_summary
from seatrial.scheduler.plugins.coscheduling.topology.controller import NetworkTopologyController
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.routes import Answer, RequestContext, json, missing

PODS_PATH = "/api/v1/pods"


def register(handle: Handle) -> None:
    """Register the watches, controllers, routes and metrics, if a profile runs Coscheduling."""
    cache = handle.groups
    if not isinstance(cache, GangCache):
        return
    gangs: GangCache = cache

    def one(request: RequestContext) -> Answer:
        gang_id = f"{request.parameters['namespace']}/{request.parameters['name']}"
        gang = gangs.gangs.get(gang_id)
        return missing(f"cannot find gang {gang_id}") if gang is None else json(summary_of(gangs, gang))

    handle.control(lambda context: PodGroupController(gangs, context))
    handle.watch(Watch(PODGROUPS_PATH, PodGroup, gangs.set_object, lambda gone: gangs.remove_object(gone.metadata.key)))
    handle.watch(
        Watch(NATIVE_PODGROUPS_PATH, NativePodGroup, gangs.set_native, lambda gone: gangs.remove_object(gone.gang_id))
    )
    for phase in ("Succeeded", "Failed"):  # the scheduler's own watch of pods leaves these out
        selector = {"fieldSelector": f"status.phase={phase}", "labelSelector": POD_GROUP_LABEL}
        handle.watch(Watch(PODS_PATH, EndedMember, gangs.member_ended, gangs.ended_member_gone, selector))
    if gangs.topology is not None:
        topology = gangs.topology
        handle.control(lambda context: NetworkTopologyController(topology, context))
        handle.watch(Watch(TOPOLOGIES_PATH, ClusterNetworkTopology, topology.set_object, topology.remove_object))
        handle.serve("plugins/Coscheduling/networktopology", lambda _: json(topology_summary(topology)))
    handle.serve("plugins/Coscheduling/gang/:namespace/:name", one)
    handle.serve(
        "plugins/Coscheduling/gangs",
        lambda _: json({gang_id: summary_of(gangs, gang) for gang_id, gang in sorted(gangs.gangs.items())}),
    )
    handle.export(lambda: _families(gangs))


def _families(cache: GangCache) -> Iterator[Family]:
    waiting = {gang.group.id for gang in cache.gangs.values() if gang.waiting}
    name = "scheduler_waiting_gang_group_number"
    yield (
        name,
        "gauge",
        "Gang groups with members that are placed and wait for others.",
        [sample(name, {}, len(waiting))],
    )
    yield from cache.measures.families()
