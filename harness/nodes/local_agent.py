"""The agent of this machine as a node: registers the node, watches the health of its devices, and runs its pods.

One node, one process, one client of the API; against the embedded server or any other. The simulated nodes' agents
(node_agents.py) ignore it, because its Node does not have their label.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from seatrial.fake_devices import mailbox
from seatrial.harness.apiserver.conversation import Conversation, Pipe, StreamSelection
from seatrial.harness.devices.stand_in import StandIn
from seatrial.harness.nodes import local
from seatrial.harness.nodes.container_error import ContainerError
from seatrial.harness.nodes.device_daemon import INFOS_FILE, DeviceDaemon
from seatrial.harness.nodes.devices import DAEMON_VENDORS
from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.leases import Leases
from seatrial.harness.nodes.local import LOOK_EVERY, LocalHardware
from seatrial.harness.nodes.local_processor import this_processor, topology_report
from seatrial.harness.nodes.local_use import LocalUse, RunBlocking
from seatrial.harness.nodes.node_agent import NodeAgent
from seatrial.harness.nodes.references import References
from seatrial.harness.nodes.runtimes.protocol import Runtime, Work
from seatrial.harness.nodes.stand_in_faults import StandInFaults
from seatrial.harness.nodes.usage import UsageReports
from seatrial.harness.nodes.writer import NODES, PODS, Writer, then
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.core import HOSTNAME_LABEL
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import Wire, decoder

log = logging.getLogger(__name__)

LOCAL_LABEL = "seatrial.dev/local"
LIMITS_ANNOTATION = "seatrial.dev/limits"
CGROUP_ANNOTATION = "seatrial.dev/cgroup-parent"  # for a node agent's --cgroup-parent
STAND_IN_ANNOTATION = "seatrial.dev/stand-in"  # the name of the stand-in for the machine's devices


class _NodeMeta(Wire, frozen=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _NodeSeen(Wire, frozen=True):
    metadata: _NodeMeta = _NodeMeta()


_decode_node = decoder(_NodeSeen)


class LocalAgent:
    """The agent. Start it when the API is ready; stop it before the API stops."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        name: str,
        hardware: LocalHardware,
        runtime: Runtime,
        *,
        run_blocking: RunBlocking,
        annotations: Mapping[str, str] | None = None,
        stand_in: StandIn | None = None,
        xpu_folder: Path | None = None,
    ) -> None:
        """`run_blocking` runs its first argument outside of the loop and passes the result to the second, on the loop.

        `stand_in` is what the providers read instead of a real machine; the Node's annotation `seatrial.dev/faults` is
        its fault script. `xpu_folder` gets koord-device-daemon's file while there are NPUs or MLUs, and the Device
        object is made from that file.
        """
        self.name = name
        self._clock, self._hardware, self._runtime, self._run_blocking = clock, hardware, runtime, run_blocking
        self._annotations = dict(annotations or {})
        self._stand_in = stand_in
        self._faults: StandInFaults | None = None
        if stand_in is not None:
            self._annotations[STAND_IN_ANNOTATION] = stand_in.name
            self._faults = StandInFaults(name, stand_in, hardware, clock, run_blocking, on_node=self._node_fails)
        self._writer = Writer(transport, clock)
        self._references = References(transport)
        self._leases = Leases(self._writer, clock)
        self._agent: NodeAgent | None = None
        self._timer: Timer | None = None
        self._stopped = False
        self._xpu_folder = xpu_folder
        self._daemon: DeviceDaemon | None = None
        self._use = LocalUse(
            hardware, runtime, clock, run_blocking=run_blocking, agent=lambda: self._agent, stand_in=stand_in
        )
        self._reports = UsageReports(
            transport, clock, self._writer, lambda node, _policy: self._use.now() if node == name else None
        )
        self._pods = Follower(
            transport,
            clock,
            PODS,
            {"fieldSelector": f"spec.nodeName={name}"},
            on_set=self._pod_set,
            on_gone=self._pod_gone,
        )
        self._node = Follower(
            transport,
            clock,
            NODES,
            {"fieldSelector": f"metadata.name={name}"},
            on_set=self._node_set,
            on_gone=self._node_gone,
        )

    def start(self) -> None:
        """Register the node, or take over an existing one."""
        if self._xpu_folder is not None and any(device.vendor in DAEMON_VENDORS for device in self._hardware.devices()):
            path = self._xpu_folder / INFOS_FILE.name
            self._daemon = DeviceDaemon(path, self._clock, lambda: (self._hardware.devices(), self._hardware.links()))
            self._daemon.start()
        labels = {HOSTNAME_LABEL: self.name, LOCAL_LABEL: "true"}
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": self._annotations},
        }
        self._writer.create(NODES, manifest, then(self._node.start))

    def stop(self) -> None:
        """End the pods and all watches; the objects in the API remain."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._faults is not None:
            self._faults.close()
        if self._daemon is not None:
            self._daemon.stop()
        self._use.stop()
        self._reports.stop()
        self._node.stop()
        self._pods.stop()
        self._leases.close()
        self._writer.close()
        self._runtime.close()

    def logs(self, namespace: str, pod: str, container: str) -> bytes | None:
        """A container's output; None if it is unknown or has not started. Without a name: the pod's first container."""
        work = self._agent.work(namespace, pod) if self._agent is not None else None
        if work is None:
            return None
        return self._runtime.logs(work, container or work.pod.spec.containers[0].name)

    async def exec(
        self, namespace: str, pod: str, container: str, command: list[str], selection: StreamSelection
    ) -> Conversation:
        """Run a command in a container. With `attach` and `dial` this implements `Containers`.

        Raises:
            ContainerError: the container does not run.
        """
        return await self._runtime.exec(self._work(namespace, pod), container, command, selection)

    async def attach(self, namespace: str, pod: str, container: str, selection: StreamSelection) -> Conversation:
        """Attach to a container's program.

        Raises:
            ContainerError: the container does not run.
        """
        return await self._runtime.attach(self._work(namespace, pod), container, selection)

    async def dial(self, namespace: str, pod: str, port: int) -> Pipe:
        """Connect to a pod's port.

        Raises:
            ContainerError: the pod does not run, or no program listens on the port.
        """
        return await self._runtime.dial(self._work(namespace, pod), port)

    def _work(self, namespace: str, pod: str) -> Work:
        work = self._agent.work(namespace, pod) if self._agent is not None else None
        if work is None:
            raise ContainerError(
                f"pod {namespace}/{pod} does not run on node {self.name}, the only one with containers"
            )
        return work

    # -- the node -----------------------------------------------------------------------------------------------------

    def _node_set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        if self._agent is None:
            self._boot(head)
        if self._faults is not None:
            self._faults.follow(_decode_node(raw).metadata.annotations)

    def _boot(self, head: HeadMeta) -> None:
        processor = this_processor()
        topology = topology_report(self.name, head.uid, processor) if processor is not None else None
        agent = self._agent = NodeAgent(
            self.name,
            head.uid,
            1,
            self._hardware,
            runtime=self._runtime,
            writer=self._writer,
            clock=self._clock,
            address=local.address(),
            facts=local.facts(),
            xpu_folder=self._xpu_folder,
            references=self._references,
            topology=topology,
        )
        agent.boot({LOCAL_LABEL: "true"}, (), self._booted)

    def _booted(self) -> None:
        if self._agent is not None and not self._stopped:
            self._leases.add(self.name, self._agent.uid)
            self._pods.start()
            self._look_later()
            self._use.start()
            self._reports.start()
            self._attend()

    def _node_gone(self, head: HeadMeta) -> None:
        """The Node object was deleted: end its pods, as on a machine that was removed."""
        if self._agent is not None and self._agent.uid == head.uid:
            log.warning("node deleted node=%s", self.name)
            self._leases.drop(self.name)
            self._agent.close()
            self._agent = None

    def _look_later(self) -> None:
        if not self._stopped:
            self._timer = self._clock.call_later(
                LOOK_EVERY, lambda: self._run_blocking(self._hardware.look, self._looked)
            )

    def _looked(self, changed: bool) -> None:
        self._look_later()
        if changed and self._agent is not None and not self._stopped:
            if self._daemon is not None:
                self._daemon.reload()
            self._agent.refresh()

    def _attend(self) -> None:
        """Carry out slicing requests that programs made through the stand-in's libraries."""
        if self._stand_in is not None and not self._stopped:
            self._clock.call_later(mailbox.POLL_INTERVAL, self._attend)
            self._stand_in.attend()

    # -- faults of a stand-in -----------------------------------------------------------------------------------------

    def _node_fails(self, verb: str, on: bool) -> None:
        if self._agent is not None:
            self._agent.apply_fault(verb, self._leases, on=on)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _pod_set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        if self._agent is not None:
            self._agent.pod_set(head.uid, head.deletion_timestamp is not None, raw)

    def _pod_gone(self, head: HeadMeta) -> None:
        if self._agent is not None:
            self._agent.pod_gone(head.uid)


class ThreadRunner:
    """`RunBlocking` in one thread, so that a driver that hangs blocks only calls of drivers."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "devices")
        self._loop = asyncio.get_running_loop()

    def __call__(self, ask: Callable[[], bool], answer: Callable[[bool], None]) -> None:
        future = self._loop.run_in_executor(self._pool, ask)

        def answered(done: "asyncio.Future[bool]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                log.error("devices unread why=%s", error)
            answer(False if error is not None else done.result())

        future.add_done_callback(answered)

    async def run(self, call: Callable[[], object]) -> object:
        """The result of a call, made in the same thread."""
        return await self._loop.run_in_executor(self._pool, call)

    def close(self) -> None:
        """Drop pending results."""
        self._pool.shutdown(wait=False, cancel_futures=True)
