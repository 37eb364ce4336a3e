"""Our own API server, and this machine as the only node: pods run as processes, on the devices of this machine.

Needs no Kubernetes, and no root: without it limits hold for each process alone where control groups cannot be made.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.local_node import LocalNode, RuntimeName, node_name
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.clusters.remote import RemoteCluster
from seatrial.harness.clusters.simulated import NODES, READY_WITHIN, is_ready
from seatrial.harness.devices.stand_in import machine_called
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION, parse_entry, resolve
from seatrial.harness.nodes.hardware import NodeHardware
from seatrial.harness.processes import stop
from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

_ONE_NODE = "backend 'local' has one node, this machine"


class LocalCluster(RemoteCluster):
    """A child process that serves the API and runs this machine's pods."""

    def __init__(self, name: str, kubeconfig: Path, capabilities: frozenset[Capability], fake: str = "") -> None:
        """`fake`: what stands in for the machine's devices, if they are not the real ones."""
        super().__init__(name, load_access(kubeconfig), kubeconfig)
        self.capabilities, self.fake = capabilities, fake

    @property
    def node(self) -> str:
        """What this machine is called as a node."""
        return node_name()

    def wait_for_node(self) -> None:
        """
        Raises:
            ClusterError: this machine did not become Ready in time.
        """

        def ready() -> bool:
            response = self.call(Request("GET", f"{NODES}/{self.node}"))
            return response.code != 404 and is_ready(orjson.loads(accepted(response, "read the node").body))

        if not self.wait(ready, within=READY_WITHIN):
            raise ClusterError(f"node {self.node!r} (this machine) was not Ready within {READY_WITHIN:.0f} s")

    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:
        amount = len(list(nodes))
        raise ClusterError(
            f"{_ONE_NODE}, and adds none (asked for {amount}); use --backend embedded for simulated ones"
        )

    def remove_node(self, name: str) -> None:
        raise ClusterError(f"{_ONE_NODE}, and does not remove {name!r}")

    def inject(self, fault: Mapping[str, Any]) -> None:
        if not self.fake:
            raise ClusterError(f"{_ONE_NODE}; its devices are real, and nothing here can make them fail: {dict(fault)}")
        if fault.get("node") != self.node:
            raise UsageError(f"fault: expected `node` to be {self.node!r}, this machine, found {fault.get('node')!r}")
        entry = {key: value for key, value in fault.items() if key != "node"}
        resolve(parse_entry(entry), NodeHardware(self.node, machine_called(self.fake)))
        response = accepted(self.call(Request("GET", f"{NODES}/{self.node}")), f"read node {self.node!r}")
        annotations = orjson.loads(response.body)["metadata"].get("annotations") or {}
        script = [*orjson.loads(annotations.get(FAULTS_ANNOTATION) or "[]"), entry]
        patch = {"metadata": {"annotations": {FAULTS_ANNOTATION: orjson.dumps(script).decode()}}}
        request = Request("PATCH", f"{NODES}/{self.node}", orjson.dumps(patch), MERGE_PATCH)
        accepted(self.call(request), f"annotate node {self.node!r}")


class LocalBackend(ClusterBackend):
    """Starts and stops the process."""

    name = "local"
    runtime: RuntimeName = "process"
    more_faults = frozenset({Capability.NODE_FAULTS})

    def __init__(self, *, seed: int = 0, fake: str = "") -> None:
        """`fake`: what stands in for the real devices behind the vendors' boundaries: a server, MODEL or MODEL:COUNT.

        Raises:
            UsageError: the catalogue has no such machine.
        """
        if fake:
            machine_called(fake)
        self._seed, self._fake = seed, fake

    @cached_property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Looks for devices when first asked."""
        from seatrial.harness.devices.survey import survey

        results = {Capability.REAL_TIME, Capability.CONTAINERS}
        if self._fake:
            results |= {Capability.DEVICE_FAULTS, *self.more_faults}
        elif survey()[0]:
            results.add(Capability.REAL_DEVICES)
        return frozenset(results)

    def probe(self) -> str | None:
        return None

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[LocalCluster]:
        if fleet is not None:
            raise UsageError(f"fleet {fleet}: {_ONE_NODE}, and takes no fleet")
        with private_folder() as folder:
            kubeconfig, log = folder / "kubeconfig", folder / "log"
            local = LocalNode(self.runtime, self._fake)
            process, _ = start_process(kubeconfig, fleet="", seed=self._seed, port=0, log=log, local=local)
            try:
                cluster = LocalCluster(self.name, kubeconfig, self.capabilities, self._fake)
                try:
                    cluster.wait_for_node()
                    yield cluster
                finally:
                    cluster.close()
            finally:
                stop(process)


class LocalDockerBackend(LocalBackend):
    """The same with Docker containers instead of processes."""

    name = "local-docker"
    runtime = "docker"

    def probe(self) -> str | None:
        from seatrial.harness.nodes.runtimes.docker import unreachable

        return unreachable()
