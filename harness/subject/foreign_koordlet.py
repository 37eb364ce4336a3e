"""Koordinator's own node agent over a fake root, beside a simulated node that is its kubelet.

Its roots are options, and it finds the CPUs by `lscpu`, which reads the fake /sys too. It asks the kubelet at the
address in the Node's status for pods, so that the cluster must be one whose simulated nodes have an endpoint (envtest).
It does not start on a node without pods, as it takes an empty list for that of a kubelet which is still starting, nor
without a NodeSLO, which koord-manager makes: until there is one it has no usage of the system.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import NotStarted, UsageError
from seatrial.harness.processes import START_WITHIN, start_logged
from seatrial.harness.subject.foreign import binary_words
from seatrial.harness.subject.services import LOOPBACK, free_port
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.slo import NODE_SLOS_PATH
from seatrial.scheduler.api.transport import Request

READY_LINE = "Start daemon successfully"
_PODS = "/api/v1/namespaces/kube-system/pods"


def agent_command(text: str, kubeconfig: Path, root: Path, folder: Path, *gates: str) -> list[str]:
    """The command line of koordlet; flags that the user has not given are added. Its own files go to `folder`.

    Raises:
        UsageError: its first word is no executable file, or a quote is left open.
    """
    words = binary_words(text, "node agent", "the path of koordlet, with its flags")
    parts = {word.lstrip("-").partition("=")[0] for word in words[1:]}
    flags = {
        "kubeconfig": kubeconfig,
        "addr": f"{LOOPBACK}:{free_port()}",
        "cgroup-root-dir": f"{root}/sys/fs/cgroup/",
        "sys-root-dir": f"{root}/sys/",
        "sys-fs-root-dir": f"{root}/sys/fs/",
        "proc-root-dir": f"{root}/proc/",
        **{f"{name}-dir": f"{folder}/{name}/" for name in ("var-run-root", "run-root", "var-lib-kubelet")},
        "tsdb-path": folder / "metrics",
        "prediction-checkpoint-filepath": folder / "checkpoints",
        "runtime-hooks-addr": folder / "koordlet.sock",
        "runtime-hooks-config-path": folder,
        "enable-nri-runtime-hook": "false",
        "disable-query-kubelet-config": "true",  # a simulated node has no configuration of a kubelet
        "kubelet-sync-interval": "1s",  # 10 s by default: cases change what runs within seconds
        "enable-pagecache-collector": "true",  # a NodeMetric may ask for memory with the page cache
        "only-evict-by-api": "true",  # there is no container runtime
        **({"feature-gates": ",".join(f"{gate}=true" for gate in gates)} if gates else {}),
    }
    return [*words, *(f"--{flag}={value}" for flag, value in flags.items() if flag not in parts)]


@contextmanager
def running_foreign_koordlet(
    cluster: Cluster, text: str, node: str, root: Path, *gates: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent of a node whose control groups, /proc and /sys are below `root`.

    Raises:
        UsageError: the cluster has no address for processes, or its nodes have no kubelet.
        NotStarted: it did not start.
    """
    if cluster.endpoint is None:
        raise UsageError(f"--agent is a process, and cluster {cluster.name!r} has no address for processes")
    addresses = orjson.loads(cluster.call(Request("GET", f"/api/v1/nodes/{node}")).body)["status"]["addresses"]
    if not any(each["address"].startswith("127.") for each in addresses):
        raise UsageError(f"--agent asks the kubelet for pods; nodes of {cluster.name!r} have none, those of envtest do")
    with ExitStack() as cleanup:
        group = "slo.koordinator.sh/v1alpha1"
        slo = {"apiVersion": group, "kind": "NodeSLO", "metadata": {"name": node}, "spec": {}}
        bystander = pod("bystander").node_name(node).qos("SYSTEM").manifest
        cluster.call(Request("DELETE", f"{NODE_SLOS_PATH}/{node}"))  # that of a manager that has ended before the node
        for path, name, body in ((NODE_SLOS_PATH, node, slo), (_PODS, "bystander", bystander)):
            made = cluster.call(Request("POST", path, orjson.dumps(body)))
            accepted(made, f"create {body['kind']} {name!r}")
            cleanup.callback(cluster.call, Request("DELETE", f"{path}/{name}?gracePeriodSeconds=0"))
        folder = cleanup.enter_context(private_folder())
        lscpu = folder / "lscpu"
        lscpu.write_text(f'#!/bin/sh\nexec {shutil.which("lscpu")} --sysroot {shlex.quote(str(root))} "$@"\n')
        lscpu.chmod(0o700)
        log = folder / "koordlet.log"
        env = {**os.environ, "NODE_NAME": node, "agent_mode": "hostMode", "PATH": f"{folder}:{os.environ['PATH']}"}
        command = agent_command(text, cluster.endpoint.kubeconfig, root, folder, *gates)
        process = start_logged(command, log, cleanup, env=env)
        cluster.wait(lambda: READY_LINE in log.read_text() or process.poll() is not None, within=START_WITHIN)
        if READY_LINE not in log.read_text():
            raise NotStarted(f"the node agent {text!r} did not start\n" + log.read_text()[-4000:])
        yield process
