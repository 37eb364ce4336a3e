"""Our node agent over a fake root: in this process if the cluster is there too, otherwise as a process."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.processes import START_WITHIN, program, start_logged
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.koordlet.app import build_agent

READY_LINE = "koordlet synced"


@contextmanager
def running_koordlet(
    cluster: Cluster, node: str, root: Path, *gates: str, parent: str = "", port: int = 0
) -> Iterator["subprocess.Popen[bytes] | None"]:
    """The agent of a node whose control groups, /proc and /sys are below `root`; its process, if it is one.

    `gates`: features to be switched on; `parent`: the control group in which those of pods are; `port`: where a process
    serves its metrics.

    Raises:
        UsageError: the cluster has no address for processes.
        SubjectError: it did not start.
    """
    cgroup, proc, sys = root / "sys/fs/cgroup", root / "proc", root / "sys"
    if Capability.VIRTUAL_TIME in cluster.capabilities:
        switched = dict.fromkeys(gates, True)
        agent = build_agent(
            cluster.transport,
            cluster.clock,
            node,
            cgroup=cgroup,
            proc=proc,
            sys=sys,
            parent=parent,
            gates=switched,
            seed=0,
        )
        agent.start()
        try:
            if not cluster.wait(lambda: agent.ready, within=START_WITHIN):
                raise SubjectError(f"the node agent did not see its objects within {START_WITHIN:.0f} s")
            yield None
        finally:
            agent.stop()
        return
    if cluster.endpoint is None:
        raise UsageError(f"the node agent is a process, and cluster {cluster.name!r} has no address for processes")
    with ExitStack() as cleanup:
        log = cleanup.enter_context(private_folder()) / "koordlet.log"
        options: dict[str, object] = {
            "--node-name": node,
            "--cgroup-root-dir": cgroup,
            "--proc-root-dir": proc,
            "--sys-root-dir": sys,
        }
        options |= {"--cgroup-parent": parent} if parent else {}
        options |= {"--port": port} if port else {}
        command = [
            *program("seatrial.scheduler.koordlet"),
            "--kubeconfig",
            str(cluster.endpoint.kubeconfig),
            *(str(word) for option in options.items() for word in option),
            *(("--feature-gates", ",".join(f"{gate}=true" for gate in gates)) if gates else ()),
        ]
        process = start_logged(command, log, cleanup)
        cluster.wait(lambda: READY_LINE in log.read_text() or process.poll() is not None, within=START_WITHIN)
        if READY_LINE not in log.read_text():
            raise SubjectError("the node agent did not start\n" + log.read_text()[-4000:])
        yield process
