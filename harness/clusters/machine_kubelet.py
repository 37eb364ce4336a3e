"""A real kubelet on this machine with containerd and our device plugin, as a node of any API server.

All of it runs in mount and process namespaces of its own, in which /run, /var/lib and /var/log are folders of ours: a
kubelet always uses /var/lib/kubelet/device-plugins. When the first process of the namespaces ends, the kernel ends all
others with it, containers too, and no mount is left. What is outside of namespaces is removed by name: control groups.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from seatrial.harness.clusters.abandoned import KUBELET_CGROUP, end_abandoned, hierarchies, remove_cgroups
from seatrial.harness.clusters.container_image import BUSYBOX, HOW_TO_GET, static_busybox, write_busybox_image
from seatrial.harness.clusters.control_plane import find_program, missing_programs
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.local import address
from seatrial.harness.processes import check_running, own_identity, start_child, stop
from seatrial.scheduler.api.builders import PROBE_IMAGE

KUBELET, CONTAINERD, RUNC, CTR, PLUGIN = "kubelet", "containerd", "runc", "ctr", "device-plugin"
_TOOLS = ("unshare", "nsenter", "mount")
_PACKAGES = {CONTAINERD: CONTAINERD, RUNC: RUNC, CTR: CONTAINERD} | dict.fromkeys(_TOOLS, "util-linux")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("ptp", "host-local", "loopback")
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")  # the CNI plugin switches it on

PAUSE_IMAGE = "seatrial.invalid/pause:1"  # `.invalid` is never a registry
SOCKET = "/run/containerd/containerd.sock"
PODS_NETWORK = "10.244.137.0/24"
STARTS_WITHIN = 60.0  # seconds
POLL = 0.05


def missing_parts() -> str | None:
    """What a kubelet needs and this machine lacks, as a sentence; None if nothing."""
    missing = missing_programs()
    if missing is not None:
        return missing
    if find_program(KUBELET) is None:
        return (
            f"{KUBELET}: not found in $KUBEBUILDER_ASSETS or on PATH; `go build k8s.io/kubernetes/cmd/kubelet` makes it"
        )
    for name, package in _PACKAGES.items():
        if shutil.which(name) is None:
            return f"{name}: not found on PATH; Debian's package {package} has it"
    if _cni_folder() is None:
        names, folders = ", ".join(CNI_PLUGINS), " or ".join(map(str, CNI_FOLDERS))
        return f"CNI plugins {names}: not found in {folders}; Debian's package containernetworking-plugins has them"
    if static_busybox() is None:
        return f"no static {BUSYBOX} for the pods' image; {HOW_TO_GET}"
    if os.geteuid() != 0:
        return "a kubelet must run as root"
    if address().startswith("127."):
        return "this machine has no network address but loopback, which a kubelet refuses"
    trial = subprocess.run(
        [_tool("unshare"), "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    if trial.returncode:
        return f"this process may not make mount and process namespaces: {trial.stderr.strip()}"
    return None


@dataclass(slots=True)
class MachineKubelet:
    """The node's processes. `restart_kubelet` starts kubelet anew, as an upgrade does."""

    name: str
    folder: Path
    kubeconfig: Path
    _space: "_Namespace"
    _kubelet: "_Inside"
    _plugin_command: list[str]
    _plugin: "_Inside | None" = None

    def start_plugin(self) -> None:
        """Start our device plugin, or our driver of claims."""
        self._plugin = self._space.start(PLUGIN, self._plugin_command)

    def kill_plugin(self) -> None:
        """End it with SIGKILL; its sockets stay behind."""
        assert self._plugin is not None
        self._plugin.signal(signal.SIGKILL)
        self._plugin.stop()

    def start_program(self, name: str, command: Sequence[str]) -> None:
        """Start another program of the node, for example a driver; it ends with the node. See `log`."""
        self._space.start(name, command)

    def restart_kubelet(self) -> None:
        """Stop kubelet with SIGTERM and start it; containers and the device plugin keep running."""
        self._kubelet.stop()
        self._kubelet = self._space.start(KUBELET, _kubelet_command(self.folder, self.name, self.kubeconfig))

    def check(self) -> None:
        """
        Raises:
            ClusterError: a process has ended; the message has its last log lines.
        """
        for process in self._space.processes:
            process.check()

    def log(self, name: str) -> str:
        """What a process (kubelet, containerd, device-plugin) has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


@contextmanager
def machine_kubelet(
    folder: Path, kubeconfig: Path, authority: Path, name: str, fake: str, *, devices: bool, dra: bool = False
) -> Iterator[MachineKubelet]:
    """Start containerd, kubelet and the device plugin; everything is ended and removed on exit.

    `folder` is empty and private. `authority`: the certificate of the API server's clients. `fake`: what stands in for
    the machine's devices. Without `devices` no device plugin runs; with `dra` it is a driver of claims.

    Raises:
        ClusterError: a program did not start; the message has its last log lines.
    """
    forward = FORWARD.read_text(encoding="ascii")
    cgroup = f"{KUBELET_CGROUP}{own_identity()}"
    end_abandoned()
    with ExitStack() as stack:
        stack.callback(_restore_forwarding, forward)
        stack.callback(remove_cgroups, cgroup)
        for controller in hierarchies():
            (controller / cgroup).mkdir(exist_ok=True)
        port = _free_port(address())
        _write_configuration(folder, authority, port, cgroup)
        space = stack.enter_context(_namespace(folder))
        containerd = space.start(CONTAINERD, [_tool(CONTAINERD), "--config", str(folder / "containerd.toml")])
        _wait(lambda: space.run([CTR, "--address", SOCKET, "version"]).returncode == 0, containerd, "its socket")
        for number, (image, entrypoint) in enumerate(((PAUSE_IMAGE, ("/bin/sleep", "2147483647")), (_full_name(), ()))):
            archive = folder / f"image-{number}.tar"
            write_busybox_image(archive, image, entrypoint)
            done = space.run([CTR, "--address", SOCKET, "--namespace", "k8s.io", "image", "import", str(archive)])
            if done.returncode:
                raise ClusterError(f"containerd does not import the image {image!r}: {done.stderr.strip()}")
        kubelet = space.start(KUBELET, _kubelet_command(folder, name, kubeconfig))
        registration = folder / "lib" / KUBELET / "device-plugins" / "kubelet.sock"
        _wait(registration.exists, kubelet, f"{registration.name}")
        plugin = ["-m", "seatrial", "device-plugin", "--kubeconfig", str(kubeconfig), "--node", name, "--verbose"]
        more = [*(["--fake", fake] if fake else []), *(["--dra"] if dra else [])]
        machine = MachineKubelet(name, folder, kubeconfig, space, kubelet, [sys.executable, *plugin, *more])
        if devices:
            machine.start_plugin()
        yield machine


def _kubelet_command(folder: Path, name: str, kubeconfig: Path) -> list[str]:
    program = find_program(KUBELET)
    assert program is not None
    return [
        str(program),
        "--config",
        str(folder / "kubelet.yaml"),
        "--kubeconfig",
        str(kubeconfig),
        "--hostname-override",
        name,
        "--node-ip",
        address(),
        "--cert-dir",
        str(folder / "certificates"),
        "--v",
        "2",
    ]


def _write_configuration(folder: Path, authority: Path, port: int, cgroup: str) -> None:
    for name in ("run", "lib", "log", "certificates", "cni", "lib/kubelet"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    plugins = _cni_folder()
    (folder / "containerd.toml").write_text(f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
""")  # oom_score_adj: lower values than our own are refused where CAP_SYS_RESOURCE is missing
    ranges = [[{"subnet": PODS_NETWORK}]]
    ipam = {"type": "host-local", "ranges": ranges, "dataDir": "/run/cni", "routes": [{"dst": "0.0.0.0/0"}]}
    network = {"cniVersion": "0.4.0", "name": "seatrial", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}]}
    (folder / "cni" / "10-seatrial.conflist").write_text(json.dumps(network))
    (folder / "kubelet.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": address(),
                "port": port,
                "healthzPort": 0,
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(authority)},
                },
                "authorization": {"mode": "Webhook"},
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{cgroup}",
                "containerRuntimeEndpoint": f"unix://{SOCKET}",
                "failSwapOn": False,
                "nodeStatusUpdateFrequency": "1s",  # 10 s by default: a sick device would be counted that long
                "failCgroupV1": False,
                "enforceNodeAllocatable": ["pods"],
                "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "oomScoreAdj": 0,
                "resolvConf": "",
                "makeIPTablesUtilChains": False,
                "shutdownGracePeriod": "0s",
                "syncFrequency": "5s",  # 1 min by default: a pod whose claim was not prepared would wait that long
                "serializeImagePulls": False,
            }
        )
    )


# -- namespaces -------------------------------------------------------------------------------------------------------


class _Inside:
    """A program inside the namespaces. `nsenter` waits for it outside, under another process ID."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    def check(self) -> None:
        """
        Raises:
            ClusterError: it has ended.
        """
        check_running(self.name, self.process, self.log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), number)

    def stop(self) -> None:
        """Send SIGTERM to the program, then wait for it."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10.0)
        stop(self.process)


class _Namespace:
    """The namespaces, and what runs in them."""

    def __init__(self, folder: Path, first: int) -> None:
        self._folder, self._first = folder, first
        self.processes: list[_Inside] = []

    def start(self, name: str, command: Sequence[str]) -> _Inside:
        """Start a program; its output goes to `NAME.log` in the folder."""
        log = self._folder / f"{name}.log"
        with log.open("ab") as sink:
            process = start_child([*self._enter(), *command], stdout=sink, stderr=sink, last_signal=signal.SIGKILL)
        self.processes = [one for one in self.processes if one.name != name]
        inside = _Inside(name, process, log)
        self.processes.append(inside)
        return inside

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run([*self._enter(), *command], capture_output=True, text=True, check=False)

    def end(self) -> None:
        """Kill the first process; the kernel kills all others in the namespaces."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)

    def _enter(self) -> list[str]:
        return [_tool("nsenter"), f"--mount=/proc/{self._first}/ns/mnt", f"--pid=/proc/{self._first}/ns/pid"]


@contextmanager
def _namespace(folder: Path) -> Iterator[_Namespace]:
    """Namespaces that last until the end of the block, or until this process ends.

    Raises:
        ClusterError: they cannot be made.
    """
    ready = folder / "namespaces"
    script = " && ".join(
        [
            f"mount --bind '{folder}/run' /run",
            f"mount --bind '{folder}/lib' /var/lib",
            f"mount --bind '{folder}/log' /var/log",
            "mount -t proc proc /proc",
            f"touch '{ready}'",
            "exec sleep 2147483647",
        ]
    )
    command = [
        _tool("unshare"),
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
    ]
    # `unshare` ignores SIGTERM while its child lives.
    process = start_child(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, last_signal=signal.SIGKILL)
    space: _Namespace | None = None
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                assert process.stderr is not None
                text = process.stderr.read().decode(errors="replace").strip() if process.poll() is not None else "late"
                raise ClusterError(f"namespaces for a kubelet cannot be made: {text}")
            time.sleep(POLL)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        space = _Namespace(folder, int(children[0]))
        yield space
    finally:
        for one in reversed(space.processes if space is not None else []):
            one.stop()
        if space is not None:
            space.end()
        stop(process)
        if process.stderr is not None:
            process.stderr.close()


def _wait(until: Callable[[], bool], process: _Inside, what: str) -> None:
    """
    Raises:
        ClusterError: it did not happen in time, or the process has ended.
    """
    deadline = time.monotonic() + STARTS_WITHIN
    while not until():
        process.check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{process.name}: {what} was not there within {STARTS_WITHIN:.0f} s")
        time.sleep(POLL)


def _tool(name: str) -> str:
    return shutil.which(name) or name


def _full_name() -> str:
    """The image that pods of the builders name, as kubelet completes it."""
    return f"docker.io/library/{PROBE_IMAGE}"


def _cni_folder() -> Path | None:
    return next((folder for folder in CNI_FOLDERS if all((folder / name).is_file() for name in CNI_PLUGINS)), None)


def _free_port(host: str) -> int:
    with socket.socket() as listening:
        listening.bind((host, 0))
        port: int = listening.getsockname()[1]
        return port


def _restore_forwarding(before: str) -> None:
    with contextlib.suppress(OSError):
        if FORWARD.read_text(encoding="ascii") != before:
            FORWARD.write_text(before, encoding="ascii")


def main() -> int:
    """`python -m seatrial.harness.clusters.machine_kubelet`: prints what is missing; status 0 if nothing is."""
    why = missing_parts()
    if why is not None:
        print(why)  # noqa: T201 read by the Makefile
    return int(why is not None)


if __name__ == "__main__":
    sys.exit(main())
