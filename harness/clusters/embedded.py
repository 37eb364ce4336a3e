"""The default: our own API server and simulated nodes, as one child process on the loopback interface."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from seatrial.harness.clusters.answers import listed
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.local_node import LocalNode
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.clusters.remote import RemoteCluster
from seatrial.harness.clusters.simulated import NODES, READY_WITHIN, SimulatedNodes, is_ready
from seatrial.harness.errors import ClusterError
from seatrial.harness.processes import die_with_parent, first_answer, stop
from seatrial.scheduler.api.private_files import private_folder

CAPABILITIES = frozenset(
    {Capability.REAL_TIME, Capability.NODES, Capability.HARDWARE, Capability.DEVICE_FAULTS, Capability.OWN_CLUSTER}
)


class EmbeddedCluster(RemoteCluster, SimulatedNodes):
    """A child process that serves the API and runs the nodes."""

    capabilities = CAPABILITIES

    def wait_for_nodes(self, count: int) -> None:
        """
        Raises:
            ClusterError: fewer than `count` nodes became Ready in time.
        """

        def ready() -> bool:
            return sum(is_ready(node) for node in listed(self.call, NODES)) >= count

        if not self.wait(ready, within=READY_WITHIN):
            raise ClusterError(f"fewer than {count} nodes were Ready within {READY_WITHIN:.0f} s")


class EmbeddedBackend(ClusterBackend):
    """Starts and stops the process."""

    name = "embedded"
    capabilities = CAPABILITIES

    def __init__(self, *, seed: int = 0, port: int = 0, workload_with_job: bool = False) -> None:
        self._seed, self._port, self._workload_with_job = seed, port, workload_with_job

    def probe(self) -> str | None:
        return None

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[EmbeddedCluster]:
        from seatrial.harness.nodes.fleet import load_fleet

        entries = load_fleet(fleet) if fleet is not None else []
        with private_folder() as folder:
            kubeconfig = folder / "kubeconfig"
            process, _ = start_process(
                kubeconfig,
                fleet=str(fleet or ""),
                seed=self._seed,
                port=self._port,
                log=folder / "log",
                workload_with_job=self._workload_with_job,
            )
            try:
                cluster = EmbeddedCluster(self.name, load_access(kubeconfig), kubeconfig)
                try:
                    cluster.wait_for_nodes(len(entries))
                    yield cluster
                finally:
                    cluster.close()
            finally:
                stop(process)


def start_process(
    kubeconfig: Path,
    *,
    fleet: str,
    seed: int,
    port: int,
    log: Path,
    host: str = "127.0.0.1",
    detached: bool = False,
    local: LocalNode | None = None,
    snapshot: Path | None = None,
    workload_with_job: bool = False,
) -> tuple["subprocess.Popen[bytes]", str]:
    """Start the server process and wait until it answers; returns it and its URL.

    Raises:
        ClusterError: it did not start; the message has its reason.
    """
    amounts = {
        "kubeconfig": str(kubeconfig),
        "fleet": fleet,
        "seed": seed,
        "port": port,
        "host": host,
        "local": asdict(local) if local is not None else None,
        "snapshot": str(snapshot) if snapshot is not None else "",
        "workload_with_job": workload_with_job,
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial.harness.clusters.serve", json.dumps(amounts)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=detached,
            process_group=None if detached else 0,  # Ctrl-C is for the parent, which stops this process last
            preexec_fn=None if detached else die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
        )
    answer = first_answer(process)
    if "url" not in answer:
        stop(process)
        why = answer.get("error") or log.read_text(errors="replace").strip() or "the process ended without output"
        raise ClusterError(f"the embedded API server did not start: {why}")
    return process, str(answer["url"])
