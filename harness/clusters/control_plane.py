"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, as envtest of controller-runtime.

The programs are found in $KUBEBUILDER_ASSETS, then on PATH. All data is in one folder; nothing else is written.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import urllib3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from seatrial.harness.apiserver import MASTERS, Credentials, kubeconfig, make_credentials
from seatrial.harness.clusters.definitions import DEFINITIONS_PATH, served_path
from seatrial.harness.clusters.feature_gates import WORKLOAD_WITH_JOB
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.errors import ClusterError
from seatrial.harness.processes import check_running, start_child
from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.private_files import write_private

ASSETS = "KUBEBUILDER_ASSETS"
ETCD, API_SERVER, CONTROLLER_MANAGER = "etcd", "kube-apiserver", "kube-controller-manager"
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
HOW_TO_GET = (
    "setup-envtest (sigs.k8s.io/controller-runtime/tools/setup-envtest) downloads etcd and kube-apiserver; "
    "`go build k8s.io/kubernetes/cmd/kube-controller-manager` makes the third; see docs/backends.md"
)
LOOPBACK = "127.0.0.1"
START_WITHIN = 120.0  # seconds: the first start reads the programs from disk
POLL = 0.05
_NATIVE_GANGS = "scheduling.k8s.io/v1beta1=true"
_GANGS_SINCE = 37  # minor version
_VERSION = re.compile(r"v1\.(\d+)\.", re.ASCII)
_ALONE = ("--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition")


@dataclass(frozen=True, slots=True)
class Programs:
    """The paths of the programs."""

    etcd: Path
    api_server: Path
    controller_manager: Path


def find_program(name: str) -> Path | None:
    """The program in $KUBEBUILDER_ASSETS or on PATH."""
    folder = os.environ.get(ASSETS)
    if folder:
        program = Path(folder) / name
        if program.is_file() and os.access(program, os.X_OK):
            return program
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def missing_programs() -> str | None:
    """Which programs are missing and how to get them; None if all are there."""
    missing = [name for name in PROGRAMS if find_program(name) is None]
    if not missing:
        return None
    assets = os.environ.get(ASSETS)
    where = f"${ASSETS} ({assets})" if assets else f"${ASSETS} (not set)"
    return f"{', '.join(missing)}: not found in {where} or on PATH; {HOW_TO_GET}"


def find_programs() -> Programs:
    """
    Raises:
        ClusterError: one is missing.
    """
    why = missing_programs()
    if why is not None:
        raise ClusterError(why)
    etcd, api_server, controller_manager = (find_program(name) for name in PROGRAMS)
    assert etcd is not None and api_server is not None and controller_manager is not None  # noqa: PT018
    return Programs(etcd, api_server, controller_manager)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane."""

    url: str
    kubeconfig: Path
    processes: tuple["subprocess.Popen[bytes]", ...]
    api_server: "ApiServerProcess"
    api_server_log: Path


@contextmanager
def control_plane(
    folder: Path,
    definitions: Sequence[dict[str, object]] = (),
    *,
    controllers: bool = True,
    api_server_flags: Sequence[str] = (),
    workload_with_job: bool = False,
) -> Iterator[ControlPlane]:
    """Start it in `folder` with custom resource definitions; killed on exit. Files of secrets have mode 0600.

    The data are of no use afterwards. After SIGTERM kube-apiserver would first wait for its clients' requests, and etcd
    for kube-apiserver, for seconds on a busy machine.

    Without `controllers` no kube-controller-manager runs, and what would wait for it is switched off: service accounts
    of pods, and the taint of new nodes. Nodes whose Lease is not renewed stay as written; benchmarks need that.
    `api_server_flags` are added to those of kube-apiserver. `workload_with_job`: that feature gate is on.

    Raises:
        ClusterError: a program is missing or ended; the message has its last log lines.
    """
    programs = find_programs()
    port, etcd_port, peer_port, manager_port = free_ports(4)
    url, etcd_url = f"https://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{etcd_port}"
    credentials = make_credentials([LOOPBACK], WallClock().now())
    _write_secrets(credentials, folder, url)
    with ExitStack() as stack:

        def start(name: str, command: list[str]) -> _Process:
            return stack.enter_context(_process(name, command, folder / f"{name}.log"))

        etcd = start(
            ETCD,
            [
                str(programs.etcd),
                "--data-dir",
                str(folder / "etcd"),
                "--unsafe-no-fsync",
                "--log-level",
                "warn",
                "--listen-client-urls",
                etcd_url,
                "--advertise-client-urls",
                etcd_url,
                "--listen-peer-urls",
                f"http://{LOOPBACK}:{peer_port}",
                "--initial-advertise-peer-urls",
                f"http://{LOOPBACK}:{peer_port}",
                "--initial-cluster",
                f"default=http://{LOOPBACK}:{peer_port}",
            ],
        )
        gates = _gates(programs.api_server, workload_with_job=workload_with_job)
        groups = ["--runtime-config", _NATIVE_GANGS] if gates else []
        flags = [*_api_server_flags(folder, port, etcd_url), *gates, *groups, *api_server_flags]
        server = start(API_SERVER, [str(programs.api_server), *flags, *(() if controllers else _ALONE)])
        _wait(url, folder / "kubeconfig", "/readyz", (etcd, server))
        _define(url, folder / "kubeconfig", definitions, (etcd, server))
        restartable = ApiServerProcess(server, lambda: _wait(url, folder / "kubeconfig", "/readyz", (etcd, server)))
        if not controllers:
            _wait(url, folder / "kubeconfig", "/api/v1/namespaces/default", (etcd, server))
            yield ControlPlane(url, folder / "kubeconfig", (etcd.process, server.process), restartable, server.log)
            return
        gates = _gates(programs.controller_manager, workload_with_job=workload_with_job)
        flags = [*_controller_manager_flags(folder, manager_port), *gates]
        manager = start(CONTROLLER_MANAGER, [str(programs.controller_manager), *flags])
        everything = (etcd, server, manager)
        _wait(url, folder / "kubeconfig", "/api/v1/namespaces/default/serviceaccounts/default", everything)
        processes = tuple(supervised.process for supervised in everything)
        yield ControlPlane(url, folder / "kubeconfig", processes, restartable, server.log)


def _gates(program: Path, *, workload_with_job: bool) -> list[str]:
    """The flags for native gangs, their claims, topology and Jobs. Programs before 1.37 refuse to start."""
    stdout = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = _VERSION.search(stdout)
    gates = "GenericWorkload=true,DRAWorkloadResourceClaims=true,TopologyAwareWorkloadScheduling=true"
    gates += f",{WORKLOAD_WITH_JOB}=true" if workload_with_job else ""
    return ["--feature-gates", gates] if match and int(match[1]) >= _GANGS_SINCE else []


def free_ports(count: int) -> list[int]:
    """Different free TCP ports of the loopback address."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind((LOOPBACK, 0))
        return [listening.getsockname()[1] for listening in sockets]


def _api_server_flags(folder: Path, port: int, etcd_url: str) -> list[str]:
    return [
        "--etcd-servers",
        etcd_url,
        "--bind-address",
        LOOPBACK,
        "--advertise-address",
        LOOPBACK,
        "--secure-port",
        str(port),
        "--tls-cert-file",
        str(folder / "server.crt"),
        "--tls-private-key-file",
        str(folder / "server.key"),
        "--client-ca-file",
        str(folder / "ca.crt"),
        "--kubelet-client-certificate",
        str(folder / "kubelet-client.crt"),
        "--kubelet-client-key",
        str(folder / "kubelet-client.key"),
        "--kubelet-preferred-address-types",
        "InternalIP,Hostname",
        "--service-account-issuer",
        "https://kubernetes.default.svc",
        "--service-account-key-file",
        str(folder / "sa.pub"),
        "--service-account-signing-key-file",
        str(folder / "sa.key"),
        "--authorization-mode",
        "Node,RBAC",
        "--service-cluster-ip-range",
        "10.96.0.0/16",
        "--allow-privileged",
        "--endpoint-reconciler-type",
        "none",
        "--token-auth-file",
        str(folder / "tokens.csv"),
    ]


def _controller_manager_flags(folder: Path, port: int) -> list[str]:
    return [
        "--kubeconfig",
        str(folder / "controller-manager.kubeconfig"),
        "--leader-elect=false",
        "--secure-port",
        str(port),
        "--bind-address",
        LOOPBACK,
        "--service-account-private-key-file",
        str(folder / "sa.key"),
        "--root-ca-file",
        str(folder / "ca.crt"),
        "--use-service-account-credentials",
        "--cluster-signing-cert-file",
        str(folder / "ca.crt"),
        "--cluster-signing-key-file",
        str(folder / "ca.key"),
        "--kube-api-qps",
        "200",
        "--kube-api-burst",
        "400",
    ]


def _write_secrets(credentials: Credentials, folder: Path, url: str) -> None:
    now, signer = WallClock().now(), credentials.signer
    kubelet_client = signer.issue("kube-apiserver-kubelet-client", (MASTERS,), now)
    manager = signer.issue("system:kube-controller-manager", (), now)
    account = ec.generate_private_key(ec.SECP256R1())
    private = account.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = account.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for name, data in {
        "ca.crt": credentials.authority,
        "ca.key": signer.key_pem(),
        "server.crt": credentials.server.certificate,
        "server.key": credentials.server.key,
        "kubelet-client.crt": kubelet_client.certificate,
        "kubelet-client.key": kubelet_client.key,
        "sa.key": private,
        "sa.pub": public,
        "tokens.csv": f'{credentials.token},seatrial-admin,seatrial-admin,"{MASTERS}"\n'.encode(),
        "kubeconfig": kubeconfig(credentials, url),
        "controller-manager.kubeconfig": kubeconfig(
            Credentials(signer, credentials.server, manager, ""), url, with_token=False
        ),
    }.items():
        write_private(folder / name, data)


@dataclass(slots=True)
class _Process:
    """A program that was started; `start` replaces `process` by a new one of the same command."""

    name: str
    command: list[str]
    log: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        """
        Raises:
            ClusterError: it cannot be started.
        """
        with self.log.open("ab") as sink:
            try:
                self.process = start_child(self.command, stdout=sink, stderr=sink, last_signal=signal.SIGKILL)
            except OSError as error:
                raise ClusterError(f"{self.command[0]}: cannot be started: {error.strerror}") from error

    def check(self) -> None:
        """
        Raises:
            ClusterError: it has ended.
        """
        check_running(self.name, self.process, self.log)


@contextmanager
def _process(name: str, command: list[str], log: Path) -> Iterator[_Process]:
    process = _Process(name, command, log)
    process.start()
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()


@dataclass(frozen=True, slots=True)
class ApiServerProcess:
    """The kube-apiserver, which may be killed and started again; etcd keeps its objects."""

    _process: _Process
    _wait_until_ready: Callable[[], None]

    def end(self) -> None:
        """Kill it."""
        self._process.process.kill()
        self._process.process.wait()

    def start_again(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            ClusterError: it ended, or did not become ready.
        """
        self._process.start()
        self._wait_until_ready()


def _wait(url: str, kubeconfig: Path, path: str, processes: Sequence[_Process]) -> None:
    """Wait until the API server answers a GET of `path` with success."""
    pool, deadline = load_access(kubeconfig).pool(connections=1), time.monotonic() + START_WITHIN
    answer = "no answer"
    try:
        while True:
            for process in processes:
                process.check()
            try:
                response = pool.request("GET", url + path, retries=False, timeout=5.0)
            except urllib3.exceptions.HTTPError as error:
                answer = str(error)
            else:
                if response.status == 200:
                    return
                answer = f"HTTP {response.status}"
            if time.monotonic() > deadline:
                raise ClusterError(f"{url}{path} did not succeed within {START_WITHIN:.0f} s: {answer}")
            time.sleep(POLL)
    finally:
        pool.clear()


def _define(
    url: str, kubeconfig: Path, definitions: Sequence[dict[str, object]], processes: Sequence[_Process]
) -> None:
    """Create custom resource definitions and wait until their kinds are served."""
    pool = load_access(kubeconfig).pool(connections=1)
    try:
        for body in definitions:
            answer = pool.request(
                "POST", url + DEFINITIONS_PATH, body=orjson.dumps(body), headers={"content-type": "application/json"}
            )
            if answer.status not in {201, 409}:
                raise ClusterError(f"definition {_name(body)}: the API server refused: {answer.data.decode()}")
    finally:
        pool.clear()
    for body in definitions:
        _wait(url, kubeconfig, served_path(body), processes)


def _name(body: dict[str, object]) -> object:
    return body["metadata"]["name"]  # type: ignore[index]


def main() -> int:
    """`python -m seatrial.harness.clusters.control_plane`: prints what is missing; status 0 if nothing is."""
    why = missing_programs()
    if why is not None:
        print(why)  # noqa: T201 read by the Makefile
    return int(why is not None)


if __name__ == "__main__":
    sys.exit(main())
