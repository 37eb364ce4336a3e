"""The agents of all simulated nodes of a cluster, in one process, as one client of its API.

They watch Node objects that carry the label `seatrial.dev/simulated`, build the machine that each asks for in its
annotation `seatrial.dev/node`, and run the pods that are bound there. With `cares_for` they also take care of Nodes
without that label, such as KWOK's. They use only a Transport and a Clock, in virtual
time or on an event loop.
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import orjson

from seatrial.fake_devices.machine import Machine
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes import topology
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION, FaultScript
from seatrial.harness.nodes.fleet import ENTRY_ANNOTATION, SIMULATED_LABEL, checked_entry, kubelet_of, processor_of
from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.hardware import NodeHardware, machine_of
from seatrial.harness.nodes.kwok import is_fake, size_of
from seatrial.harness.nodes.leases import Leases
from seatrial.harness.nodes.node_agent import NodeAgent
from seatrial.harness.nodes.runtimes.protocol import Runtime
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime
from seatrial.harness.nodes.usage import RESOURCES_ANNOTATION, NodeUse, UsageReports
from seatrial.harness.nodes.writer import NODES, PODS, Writer
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.numa import AMPLIFICATION_RATIO, NODE_RESERVATION
from seatrial.scheduler.api.slo import CollectPolicy
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import Condition, ResourceList, Wire, decoder

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletAddress:
    """Where a node's kubelet is reached."""

    host: str
    port: int


class Endpoints(Protocol):
    """Serves logs for nodes on an API server that asks kubelets for them."""

    def open(self, node: str, number: int) -> KubeletAddress: ...
    def close(self, node: str) -> None: ...


class _NodeMeta(Wire, frozen=True):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _NodeStatus(Wire, frozen=True):
    capacity: ResourceList = msgspec.field(default_factory=dict)
    allocatable: ResourceList = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @property
    def given_up(self) -> bool:
        """Whether the node lifecycle controller missed the node's Lease and has set Ready to Unknown."""
        return any(condition.type == "Ready" and condition.status == "Unknown" for condition in self.conditions)


class _NodeSeen(Wire, frozen=True):
    metadata: _NodeMeta = _NodeMeta()
    status: _NodeStatus = _NodeStatus()


class _PodSpec(Wire, frozen=True):
    node_name: str = ""


class _PodSeen(Wire, frozen=True):
    spec: _PodSpec = _PodSpec()


# A kubelet repeats its status every few minutes, and the node webhook amplifies what it writes. Simulated nodes repeat
# it only after the ratios changed, and sooner.
STATUS_WITHIN = 10.0

_decode_node = decoder(_NodeSeen)
_decode_pod = decoder(_PodSeen)


class _Node:
    """A node and what runs beside its agent."""

    __slots__ = ("agent", "booted", "entry", "faults", "given_up", "machine", "ratios", "reserved")

    def __init__(self, agent: NodeAgent, faults: FaultScript, entry: str, machine: Machine) -> None:
        self.agent, self.faults, self.entry, self.machine = agent, faults, entry, machine
        self.booted = False
        self.given_up = False
        self.ratios = ""  # the amplification ratios that the Node showed last
        self.reserved: str | None = None  # for processes outside containers, as in the NodeResourceTopology


class NodeAgents:
    """Start it once the API server answers; stop it before the API server ends."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        seed: int = 0,
        runtime: Runtime | None = None,
        selector: str = SIMULATED_LABEL,
        cares_for: Callable[[Mapping[str, str], Mapping[str, str]], bool] = lambda _labels, _annotations: True,
    ) -> None:
        """Pods are simulated unless another runtime is given. `seed` determines identities and delays.

        The nodes are those that the label selector matches (all with an empty one) and for whose labels and annotations
        `cares_for` is true.
        """
        self.endpoints: Endpoints | None = None  # set before start
        self._clock, self._seed, self._cares_for = clock, seed, cares_for
        self._writer = Writer(transport, clock)
        self._runtime = runtime or SimulatedRuntime(clock, seed=seed)
        self._leases = Leases(self._writer, clock)
        self._nodes: dict[str, _Node] = {}  # by name
        self._refused: dict[str, str] = {}  # node uid → the entry that cannot be built
        self._numbers = itertools.count(1)
        self._nodes_seen = self._following_pods = False
        self._homes: dict[str, str] = {}  # pod uid → node name
        self._early: dict[str, dict[str, tuple[HeadMeta, bytes]]] = {}  # node name → pod uid → pod bound to it too soon
        self._usage = UsageReports(transport, clock, self._writer, self._device_use)
        self._pods = Follower(
            transport, clock, PODS, {"fieldSelector": "spec.nodeName!="}, on_set=self._pod_set, on_gone=self._pod_gone
        )
        self._follow_nodes = Follower(
            transport,
            clock,
            NODES,
            {"labelSelector": selector} if selector else {},
            on_set=self._node_set,
            on_gone=self._node_gone,
            on_synced=self._follow_pods,  # nodes first, so that pods find their nodes after a restart
        )

    def start(self) -> None:
        """Begin to watch."""
        self._follow_nodes.start()
        self._usage.start()

    def _follow_pods(self) -> None:
        """Watch pods once there is a simulated node: pods on other nodes are not handled."""
        if self._nodes_seen and self._follow_nodes.synced and not self._following_pods:
            self._following_pods = True
            self._pods.start()

    def stop(self) -> None:
        """Stop. The objects stay in the API server, and a new NodeAgents continues from them."""
        self._follow_nodes.stop()
        self._pods.stop()
        self._usage.stop()
        self._leases.close()
        self._writer.close()
        for name, node in self._nodes.items():
            node.faults.close()
            if self.endpoints is not None:
                self.endpoints.close(name)
        self._runtime.close()
        self._nodes.clear()

    def logs(self, namespace: str, pod: str, container: str) -> bytes | None:
        """The output of a container; None if it is not here or has not started. Default: the pod's first."""
        for node in self._nodes.values():
            work = node.agent.work(namespace, pod)
            if work is not None:
                return self._runtime.logs(work, container or work.pod.spec.containers[0].name)
        return None

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _node_set(self, _head: HeadMeta, raw: msgspec.Raw) -> None:
        node = _decode_node(raw)
        seen = node.metadata
        known = self._nodes.get(seen.name)
        if not self._cares_for(seen.labels, seen.annotations):
            if known is not None:
                self._forget(seen.name)
            return
        self._nodes_seen = True
        self._follow_pods()
        if known is not None and known.agent.uid != seen.uid:
            self._forget(seen.name)
            known = None
        if known is None:
            known = self._boot(seen, node.status)
        if known is not None:
            known.reserved = topology.reservation(known.machine, seen.annotations.get(NODE_RESERVATION, ""))
            if known.booted:
                known.agent.keep(known.reserved)
            ratios = seen.annotations.get(AMPLIFICATION_RATIO, "")
            if ratios != known.ratios:
                known.ratios = ratios
                self._clock.call_later(STATUS_WITHIN, known.agent.report_status)
            if node.status.given_up and not known.given_up:
                # As a kubelet, which compares its status every ten seconds.
                self._clock.call_later(STATUS_WITHIN, known.agent.report_status)
            known.given_up = node.status.given_up
            known.agent.set_amplified(node.status.allocatable if ratios else {})
            known.agent.usage.set_node(seen.annotations.get(RESOURCES_ANNOTATION, ""))
            for problem in known.faults.follow(seen.annotations.get(FAULTS_ANNOTATION, "")):
                log.warning("fault refused node=%s why=%s", seen.name, problem)

    def _boot(self, seen: _NodeMeta, status: _NodeStatus) -> _Node | None:
        text = seen.annotations.get(ENTRY_ANNOTATION, "")
        if self._refused.get(seen.uid) == text:
            return None  # the event of our own write
        try:
            size = size_of({**status.allocatable, **status.capacity}) if is_fake(seen.annotations) else {}
            entry = checked_entry({**size, **_entry(text), "name": seen.name})
            machine = machine_of(entry)
        except UsageError as error:
            self._refused[seen.uid] = text
            self._cannot_boot(seen, str(error))
            return None
        hardware = NodeHardware(seen.name, machine, seed=self._seed)
        number = next(self._numbers)
        kubelet = self.endpoints.open(seen.name, number) if self.endpoints is not None else None
        agent = NodeAgent(
            seen.name,
            seen.uid,
            number,
            hardware,
            runtime=self._runtime,
            writer=self._writer,
            clock=self._clock,
            topology=topology.manifest(seen.name, seen.uid, machine, kubelet_of(entry), processor_of(entry)),
            kubelet=(kubelet.host, kubelet.port) if kubelet is not None else None,
            seed=self._seed,
            dra="whole" if entry.get("dra") is True else entry.get("dra") or None,
        )
        faults = FaultScript(
            hardware,
            self._clock,
            on_devices=agent.refresh,
            on_node=lambda verb, on: agent.apply_fault(verb, self._leases, on=on),
        )
        node = self._nodes[seen.name] = _Node(agent, faults, text, machine)
        agent.boot(entry.get("labels", {}), entry.get("taints", ()), lambda: self._booted(node))
        return node

    def _booted(self, node: _Node) -> None:
        agent = node.agent
        if self._nodes.get(agent.name) is not node:
            return
        node.booted = True
        agent.keep(node.reserved)
        self._leases.add(agent.name, agent.uid)
        for head, raw in self._early.pop(agent.name, {}).values():
            self._homes[head.uid] = agent.name
            agent.pod_set(head.uid, head.deletion_timestamp is not None, msgspec.Raw(raw))

    def _cannot_boot(self, seen: _NodeMeta, why: str) -> None:
        """Report a mistake in the Node's annotation as a condition of the Node."""
        log.warning("node cannot-boot node=%s why=%s", seen.name, why)
        now = self._clock.timestamp()
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": "FleetEntryRefused",
            "message": why,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        patch = {"metadata": {"uid": seen.uid}, "status": {"conditions": [condition]}}
        self._writer.strategic(f"{NODES}/{seen.name}/status", patch)

    def _node_gone(self, head: HeadMeta) -> None:
        self._refused.pop(head.uid, None)
        known = self._nodes.get(head.name)
        if known is not None and known.agent.uid == head.uid:
            self._forget(head.name)

    def _forget(self, name: str) -> None:
        node = self._nodes.pop(name)
        self._leases.drop(name)
        if self.endpoints is not None:
            self.endpoints.close(name)
        node.faults.close()
        node.agent.close()

    def _device_use(self, name: str, policy: CollectPolicy) -> NodeUse | None:
        node = self._nodes.get(name)
        return node.agent.device_use(policy) if node is not None else None

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _pod_set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        home = self._homes.get(head.uid)
        if home is None:
            home = _decode_pod(raw).spec.node_name
            if home not in self._nodes:
                self._early.setdefault(home, {})[head.uid] = (head, bytes(raw))
                return
            self._homes[head.uid] = home
        node = self._nodes.get(home)
        if node is not None:
            node.agent.pod_set(head.uid, head.deletion_timestamp is not None, raw)

    def _pod_gone(self, head: HeadMeta) -> None:
        home = self._homes.pop(head.uid, None)
        if home is not None and home in self._nodes:
            self._nodes[home].agent.pod_gone(head.uid)
        for early in self._early.values():
            early.pop(head.uid, None)


def _entry(text: str) -> dict[str, object]:
    """
    Raises:
        UsageError: the annotation is not a JSON object.
    """
    try:
        entry = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError as error:
        raise UsageError(f"annotation {ENTRY_ANNOTATION}: expected a JSON object: {error}") from error
    if not isinstance(entry, dict):
        raise UsageError(f"annotation {ENTRY_ANNOTATION}: expected a JSON object, found {text[:40]!r}")
    return entry
