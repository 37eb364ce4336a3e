"""The program `seatrial koordlet`: the node agent as a process, on a real node or over a fake root."""

import asyncio
import logging
import os
import re
import socket
import sys
from pathlib import Path
from random import SystemRandom

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.koordlet.agent import AUDIT, AUDIT_HTTP, GATES
from seatrial.scheduler.koordlet.app import build_agent, build_routes
from seatrial.scheduler.koordlet.audit import NO_AUDIT, AuditConfig, AuditPages
from seatrial.scheduler.koordlet.hooks import LIBRARY
from seatrial.scheduler.koordlet.machine import MachineError
from seatrial.scheduler.koordlet.nri import NriConfig, Plugin
from seatrial.scheduler.serving.feature_gates import feature_gates as read_gates
from seatrial.scheduler.serving.http import serve
from seatrial.scheduler.serving.process import log_to_stderr, on_end_signal

app = cyclopts.App(name="seatrial koordlet", result_action="return_value")


@app.default
def run(
    *,
    node_name: str = "",
    kubeconfig: Path | None = None,
    cgroup_root_dir: Path = Path("/sys/fs/cgroup"),
    proc_root_dir: Path = Path("/proc"),
    sys_root_dir: Path = Path("/sys"),
    cgroup_driver: str = "",
    cgroup_parent: str = "",
    feature_gates: str = "",
    prediction_checkpoint_filepath: Path | None = None,
    seed: int | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
    enable_nri_runtime_hook: bool = False,
    runtime_hooks_nri_socket_path: Path = Path("/var/run/nri/nri.sock"),
    runtime_hooks_nri_plugin_name: str = "koordlet_nri",
    runtime_hooks_nri_plugin_index: str = "00",
    runtime_hooks_nri_connect_timeout: float = 6.0,
    runtime_hooks_nri_backoff_duration: float = 1.0,
    runtime_hooks_nri_backoff_cap: float = 60.0,
    runtime_hooks_plugin_failure_policy: str = "Ignore",
    hami_core_library_directory_path: Path = Path(LIBRARY),
    audit_log_dir: Path = Path("/var/log/koordlet"),
    audit_verbose: int = 3,
    audit_max_disk_space_mb: int = 16,
) -> int:
    """Measure the pods of this node, report them, and keep best-effort pods from disturbing the others.

    Until SIGTERM or Ctrl-C. The NodeSLO of the node says what it enforces, its NodeMetric how often it reports.

    Args:
        node_name: The node; by default $NODE_NAME, or the host's name.
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        cgroup_root_dir: Where control groups are mounted; version 1 or 2 is seen from what is there.
        proc_root_dir: Where /proc is.
        sys_root_dir: Where /sys is.
        cgroup_driver: systemd or cgroupfs, as kubelet's; by default what is there.
        cgroup_parent: The folder of the control groups in which those of pods are, as kubelet's --cgroup-root.
        feature_gates: As in BECPUEvict=true,CPUBurst=false.
        prediction_checkpoint_filepath: A folder in which predictions outlive the process; by default they do not.
        seed: Of the dice for burst limiters; by default they differ in each process.
        address: Where health and metrics are served.
        port: At which port; 0 for none.
        enable_nri_runtime_hook: Change containers before the runtime makes them, as its NRI plugin. Koordinator's is on
            by default; this one also runs over roots that are not the machine's.
        runtime_hooks_nri_socket_path: The runtime's socket for NRI; containerd 2 has it without further settings.
        runtime_hooks_nri_plugin_name: The plugin's name.
        runtime_hooks_nri_plugin_index: Two digits; plugins are called in this order.
        runtime_hooks_nri_connect_timeout: Seconds for registration, after which it connects anew.
        runtime_hooks_nri_backoff_duration: Seconds before it connects again; doubled each time.
        runtime_hooks_nri_backoff_cap: The longest such time.
        runtime_hooks_plugin_failure_policy: Fail: a container of which a hook cannot read an annotation is not made.
            Ignore: it is made without what this hook gives.
        hami_core_library_directory_path: HAMi-core on this node, for containers with a part of a card (GPUEnvInject).
        audit_log_dir: Where changes are recorded, with the feature AuditEvents; AuditEventsHTTPHandler serves them at
            /events.
        audit_verbose: 0 to record all; 1: evictions and what the whole node gets; 3: what groups get, too.
        audit_max_disk_space_mb: MiB of all records; the oldest go.
    """
    log_to_stderr(logging.INFO)
    try:
        server = load_server(kubeconfig)
        gates = read_gates(feature_gates, GATES)
        if cgroup_driver not in {"", "systemd", "cgroupfs"}:
            raise ValueError(f"--cgroup-driver: expected systemd or cgroupfs, found {cgroup_driver!r}")
        kept = prediction_checkpoint_filepath
        if kept is not None and not kept.is_dir():
            raise ValueError(f"--prediction-checkpoint-filepath: expected a folder, found {str(kept)!r}")
        nri = _nri(
            runtime_hooks_nri_socket_path,
            runtime_hooks_nri_plugin_name,
            runtime_hooks_nri_plugin_index,
            runtime_hooks_nri_connect_timeout,
            runtime_hooks_nri_backoff_duration,
            runtime_hooks_nri_backoff_cap,
            runtime_hooks_plugin_failure_policy,
        )
        audit = _audit(gates, audit_log_dir, audit_verbose, audit_max_disk_space_mb)
    except (KubeconfigError, ValueError) as error:
        print(f"koordlet: {error}", file=sys.stderr)  # noqa: T201
        return 2
    node = node_name or os.environ.get("NODE_NAME") or socket.gethostname()

    async def watch() -> int:
        clock = WallClock()
        transport = HttpTransport(server, clock.faults)
        try:
            agent = build_agent(
                transport,
                clock,
                node,
                cgroup=cgroup_root_dir,
                proc=proc_root_dir,
                sys=sys_root_dir,
                driver=cgroup_driver,
                parent=cgroup_parent,
                gates=gates,
                checkpoints=prediction_checkpoint_filepath,
                seed=seed,
                library=hami_core_library_directory_path,
                audit=audit,
            )
        except MachineError as error:
            print(f"koordlet: {error}", file=sys.stderr)  # noqa: T201
            return 2
        try:
            pages = AuditPages(agent.audit, clock, SystemRandom()) if gates[AUDIT_HTTP] else None
            listening = [await serve(build_routes(agent, pages), address, port)] if port else []
        except OSError as error:
            print(f"koordlet: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        ended = asyncio.Event()
        on_end_signal(ended.set)
        agent.start()
        plugin = Plugin(nri, agent, clock) if enable_nri_runtime_hook else None
        if plugin is not None:
            plugin.start()
        await ended.wait()
        if plugin is not None:
            plugin.stop()
        agent.stop()
        for listener in listening:
            listener.close()
        transport.close()
        return 0

    return uvloop.run(watch())


def _nri(  # noqa: PLR0917
    path: Path, name: str, index: str, connect_timeout: float, backoff: float, backoff_cap: float, policy: str
) -> NriConfig:
    """The settings of the plugin.

    Raises:
        ValueError: one of them has no meaning.
    """
    if not re.fullmatch("[0-9]{2}", index, re.ASCII):
        raise ValueError(f"--runtime-hooks-nri-plugin-index: expected two digits, found {index!r}")
    if policy not in {"Ignore", "Fail"}:
        raise ValueError(f"--runtime-hooks-plugin-failure-policy: expected Ignore or Fail, found {policy!r}")
    times = {"connect-timeout": connect_timeout, "backoff-duration": backoff, "backoff-cap": backoff_cap}
    for option, seconds in times.items():
        if not 0 < seconds < 86400:
            raise ValueError(f"--runtime-hooks-nri-{option}: expected seconds, more than 0, found {seconds:g}")
    return NriConfig(path, name, index, connect_timeout, backoff, backoff_cap, policy == "Fail")


def _audit(gates: dict[str, bool], folder: Path, verbosity: int, space: int) -> AuditConfig:
    """What is recorded; the folder is made.

    Raises:
        ValueError: one of the settings has no meaning, or the folder cannot be written.
    """
    if verbosity < 0 or not 0 < space <= 1 << 20:
        expected = "expected 0 or more, and 1 MiB to 1 TiB"
        raise ValueError(f"--audit-verbose, --audit-max-disk-space-mb: {expected}, found {verbosity} and {space}")
    if not gates[AUDIT]:
        return NO_AUDIT
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--audit-log-dir: expected a folder, found {str(folder)!r}: {error.strerror}") from error
    return AuditConfig(folder, verbosity, space << 20)


if __name__ == "__main__":
    sys.exit(app())
