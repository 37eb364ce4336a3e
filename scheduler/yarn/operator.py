"""Keeps the sizes of NodeManagers and the third-party allocations of their nodes right (YN-2 to YN-4).

Follows Koordinator's docs/designs/koordinator-yarn.md. The ResourceManager is asked through the REST API that Hadoop
documents (Cluster Node API, Cluster Node Update Resource API; Hadoop 3.3 or later).
"""

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.integers import MAX_INT64
from seatrial.scheduler.api.quantity import QuantityError, amount, text
from seatrial.scheduler.api.slo import (
    BATCH_CPU,
    BATCH_MEMORY,
    ORIGIN_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    ThirdPartyAllocation,
    ThirdPartyAllocations,
)
from seatrial.scheduler.api.transport import Request, Response, Transport
from seatrial.scheduler.api.wire import ResourceList, Wire, decode_as, decoder, to_json
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.client.rest import Rest, node_path, refusal
from seatrial.scheduler.pods.priority import BATCH
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

NODE_ID = "yarn.hadoop.apache.org/node-id"  # annotation of a NodeManager's pod
NAME = "hadoop-yarn"
INTERVAL = 15.0  # seconds between two looks at what YARN has allocated
_MIB = 1 << 20
_ENDED = frozenset({"Succeeded", "Failed"})


class _Origin(Wire, frozen=True):
    resources: ResourceList = {}  # noqa: RUF012 frozen


class _YarnNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node of the ResourceManager: what its containers have."""

    used_memory_mb: int = msgspec.field(default=0, name="usedMemoryMB")
    used_virtual_cores: int = 0


class _YarnAnswer(msgspec.Struct, frozen=True):
    node: _YarnNode


class Operator:
    """Follows nodes and pods of one cluster, and asks one ResourceManager."""

    def __init__(self, transport: Transport, resource_manager: Transport, clock: Clock) -> None:
        self._clock, self._yarn = clock, resource_manager
        self.faults = clock.faults
        self._rest = Rest(transport, clock)
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, dict[str, Pod]] = {}  # by node and uid
        self._sizes: dict[str, tuple[int, int]] = {}  # by NodeManager: vcores and MiB that YARN has taken over
        self._say = Once(log)
        self._stopped = False
        self._informers: list[Informer[Any]] = [
            self._follow("/api/v1/nodes", decoder(Node), self._set_node, self._node_gone),
            self._follow("/api/v1/pods", PodDecoder(), self._set_pod, self._pod_gone, "spec.nodeName!="),
        ]

    @property
    def ready(self) -> bool:
        return all(informer.synced for informer in self._informers)

    def start(self) -> None:
        for informer in self._informers:
            informer.start()
        self._clock.call_later(INTERVAL, self._round)

    def stop(self) -> None:
        self._stopped = True
        self._rest.stop()
        for informer in self._informers:
            informer.stop()

    def _follow(self, path: str, decode: Any, on_set: Any, on_gone: Any, only: str = "") -> Informer[Any]:
        return Informer(
            self._rest.transport,
            self._clock,
            path,
            decode,
            on_set=on_set,
            on_gone=on_gone,
            on_synced=self._synced,
            on_batch=lambda: None,
            selector={"fieldSelector": only} if only else {},
        )

    def _synced(self) -> None:
        if self.ready:
            log.info("yarn-operator synced nodes=%d", len(self._nodes))
            for name in self._nodes:
                self._attend(name)

    def _set_node(self, node: Node) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or before.metadata.annotations != node.metadata.annotations:
            self._attend(node.name)

    def _node_gone(self, node: Node) -> None:
        self._nodes.pop(node.name, None)

    def _set_pod(self, pod: Pod) -> None:
        self._pods.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = pod
        self._attend(pod.spec.node_name)

    def _pod_gone(self, pod: Pod) -> None:
        self._pods.get(pod.spec.node_name, {}).pop(pod.metadata.uid, None)
        self._attend(pod.spec.node_name)

    def _round(self) -> None:
        if not self._stopped:
            self._clock.call_later(INTERVAL, self._round)
            for name in list(self._nodes):
                self._attend(name)

    def _attend(self, name: str) -> None:
        if self.ready and not self._stopped:
            self._clock.attempt("Operator._look_at", name, lambda: self._look_at(name))

    def _look_at(self, name: str) -> None:
        """Give YARN the size of the NodeManager of a node, and ask what it has allocated there."""
        node = self._nodes.get(name)
        manager = next(self._managers(name), None)
        if node is None or manager is None:
            return
        identity = manager.metadata.annotations[NODE_ID]
        try:
            size = self.size_of(node, manager)
        except (QuantityError, msgspec.MsgspecError) as error:
            self._say(name, f"node {name}: annotation {ORIGIN_ALLOCATABLE} or a request: {error}")
            return
        if size is None:
            return  # colocation is not enabled there
        if self._sizes.get(identity) != size:
            self._resize(identity, size)
        path = f"/ws/v1/cluster/nodes/{quote(identity)}"
        self._yarn.send(Request("GET", path), lambda response: self._allocated(name, identity, response))

    def _managers(self, name: str) -> Iterator[Pod]:
        """The NodeManager of a node: the oldest by name that has not ended."""
        pods = sorted(self._pods.get(name, {}).values(), key=lambda pod: pod.key)
        return (pod for pod in pods if NODE_ID in pod.metadata.annotations and pod.status.phase not in _ENDED)

    def size_of(self, node: Node, manager: Pod) -> tuple[int, int] | None:
        """Virtual cores and MiB for YARN: the node's batch resources less the requests of other pods (YN-2); None if it
        offers none.

        Raises:
            QuantityError, msgspec.MsgspecError: the annotation or a request cannot be read.
        """
        written = node.metadata.annotations.get(ORIGIN_ALLOCATABLE, "")
        if not written:
            return None
        origin = decode_as(written, _Origin).resources
        cpu, memory = (amount(key, origin.get(key, 0)) for key in (BATCH_CPU, BATCH_MEMORY))
        for pod in self._pods.get(node.name, {}).values():
            if pod.metadata.uid != manager.metadata.uid and pod.status.phase not in _ENDED:
                requests = pod_requests(pod.spec)
                cpu, memory = cpu - requests.get(BATCH_CPU, 0), memory - requests.get(BATCH_MEMORY, 0)
        return max(cpu, 0) // 1000, max(memory, 0) // _MIB

    def _resize(self, identity: str, size: tuple[int, int]) -> None:
        body = {
            "resource": {"memory": size[1], "vCores": size[0]},
            "overCommitTimeout": -1,
        }  # containers are not killed

        def done(response: Response) -> None:
            if response.ok:
                self._sizes[identity] = size
            else:
                self._say((identity, "resize"), f"YARN: resize {identity}: {refusal(response)}")

        self._yarn.send(Request("POST", f"/ws/v1/cluster/nodes/{quote(identity)}/resource", to_json(body)), done)

    def _allocated(self, name: str, identity: str, response: Response) -> None:
        """Write what YARN's containers have into the annotation, beside what others have (YN-3)."""
        node = self._nodes.get(name)
        if node is None:
            return
        if not response.ok:
            self._say(identity, f"YARN: read {identity}: {refusal(response)}")
            return
        try:
            yarn_node = msgspec.json.decode(response.body, type=_YarnAnswer).node
            written = node.metadata.annotations.get(THIRD_PARTY_ALLOCATIONS, "")
            before = decode_as(written, ThirdPartyAllocations) if written else ThirdPartyAllocations()
        except msgspec.MsgspecError as error:
            self._say(identity, f"YARN: {identity}, or annotation {THIRD_PARTY_ALLOCATIONS} of node {name}: {error}")
            return
        cpu, memory = (
            max(value, 0) for value in (yarn_node.used_virtual_cores * 1000, yarn_node.used_memory_mb * _MIB)
        )
        amounts = {BATCH_CPU: min(cpu, MAX_INT64), BATCH_MEMORY: min(memory, MAX_INT64)}
        own = ThirdPartyAllocation(NAME, BATCH, {key: text(key, value) for key, value in amounts.items()})
        after = ThirdPartyAllocations((*(each for each in before.allocations if each.name != NAME), own))
        if after != before:
            patch = {"metadata": {"annotations": {THIRD_PARTY_ALLOCATIONS: to_json(after).decode()}}}
            self._rest.merge(node_path(name), patch, self._written, uid=node.metadata.uid)

    def _written(self, response: Response) -> None:
        if not response.ok and response.code not in {404, 409}:
            self._say("annotation", f"annotation {THIRD_PARTY_ALLOCATIONS}: {refusal(response)}")
