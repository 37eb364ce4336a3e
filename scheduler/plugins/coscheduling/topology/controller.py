"""ClusterNetworkTopology controller: writes the status of the object `default`, and events about its mistakes."""

import logging

from seatrial.scheduler.api.networktopology import DEFAULT_TOPOLOGY, TOPOLOGIES_PATH, ClusterNetworkTopology
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.client.rest import refusal
from seatrial.scheduler.framework.controllers import Controller, ControllerContext
from seatrial.scheduler.plugins.coscheduling.topology.tree import NetworkTopology, not_read

log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds between a change of the tree and the writing of the status: nodes come in numbers
RETRY = 5.0  # seconds before a status that was refused is written again
SHOWN = 5  # nodes that an event names


class NetworkTopologyController(Controller):
    """One write at a time. A status that did not change is not written."""

    def __init__(self, topology: NetworkTopology, context: ControllerContext) -> None:
        self._topology, self._rest, self._clock, self._events = topology, context.rest, context.clock, context.events
        self._seen: tuple[int, ClusterNetworkTopology | None] = (-1, None)
        self._timed = False
        self._last_event: tuple[str, str] = ("", "")  # problem and nodes of the last events
        self._told_others: set[str] = set()  # uids of objects of other names with an event

    def work(self) -> None:
        """Evaluate the tree after PAUSE, if it or its object changed."""
        topology = self._topology
        if self._timed or self._seen == (topology.changes, topology.cluster_topology):
            return
        self._timed = True
        self._clock.call_later(
            PAUSE, lambda: self._clock.attempt("NetworkTopologyController._reconcile", "", self._reconcile)
        )

    def _reconcile(self) -> None:
        self._timed = False
        topology = self._topology
        cluster_network_topology = topology.cluster_topology
        self._seen = topology.changes, cluster_network_topology
        self._tell_others(topology)
        if cluster_network_topology is None:
            return
        self._tell(topology, cluster_network_topology)
        status = {"detailStatus": topology.detail()}
        if not topology.ready or cluster_network_topology.status == status:
            return

        def written(response: Response) -> None:
            if not response.ok and response.code != 404:
                log.info("status not written clusternetworktopology=%s why=%s", DEFAULT_TOPOLOGY, refusal(response))
                self._seen = (-1, None)
                self._clock.call_later(RETRY, self.work)

        path = f"{TOPOLOGIES_PATH}/{DEFAULT_TOPOLOGY}/status"
        self._rest.merge(path, {"status": status}, written, uid=cluster_network_topology.metadata.uid)

    def _tell(self, topology: NetworkTopology, cluster_network_topology: ClusterNetworkTopology) -> None:
        """Write an event for each new problem."""
        missing = topology.missing
        names = sorted(missing)
        listed = ", ".join(f"{name} ({missing[name]})" for name in names[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        nodes = f"nodes without a label for a layer can hold no gang with a network-topology-spec: {listed}{more}"
        messages, self._last_event = self._last_event, (topology.problem, nodes if names else "")
        regarding = _reference(cluster_network_topology.metadata)
        if topology.problem and messages[0] != topology.problem:
            note = f"{topology.problem}; the layers of before stay in use, if there are any"
            self._events.about(regarding, "Warning", "InvalidTopology", "Reconcile", note)
        if names and messages[1] != nodes:
            self._events.about(regarding, "Warning", "NodesLeftOut", "Reconcile", nodes)

    def _tell_others(self, topology: NetworkTopology) -> None:
        """Write an event for each object of another name."""
        there = {metadata.uid for metadata in topology.others.values()}
        for name, metadata in sorted(topology.others.items()):
            if metadata.uid not in self._told_others:
                self._events.about(_reference(metadata), "Warning", "NotRead", "Reconcile", not_read(name))
        self._told_others = there


def _reference(metadata: ObjectMeta) -> dict[str, str]:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "name": metadata.name,
        "uid": metadata.uid,
    }
