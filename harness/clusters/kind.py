"""A kind cluster (Kubernetes in Docker): created for a run and deleted, or kept under a name.

Runs use it as they use any cluster that others use too: kind's own kube-scheduler and node stay, and our simulated
nodes are beside them.
"""

import hashlib
import ipaddress
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.harness.clusters.existing import SHARED, ExistingBackend, ExistingCluster
from seatrial.harness.clusters.protocol import ClusterBackend
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.processes import started_at
from seatrial.scheduler.api.private_files import private_folder

KIND, DOCKER = "kind", "docker"
NETWORK = "kind"  # of Docker, which kind creates
CREATE_WITHIN, COMMAND_WITHIN = 900.0, 120.0  # seconds
READY_WITHIN = 180  # seconds that kind waits for its node
LAST_LINES = 8
_NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,39}", re.ASCII)


class KindBackend(ClusterBackend):
    """Creates, uses and deletes the cluster."""

    name = "kind"
    capabilities = SHARED

    def __init__(
        self,
        *,
        seed: int = 0,
        image: str = "",
        config: Path | None = None,
        keep: str = "",
        own_schedulers: bool = True,
        deployed: str = "",
    ) -> None:
        """`image`: the node image, by default kind's own, which it pulls. `config`: a file of kind's Cluster.
        `keep`: the name of a cluster that is created if it is not there, and that stays.

        Raises:
            UsageError: `keep` cannot be the name of a cluster, or `config` is no file.
        """
        if keep and not _NAME.fullmatch(keep):
            raise UsageError(f"--kind-keep {keep}: expected a name of small letters, digits and -, at most 40 long")
        if config is not None and not config.is_file():
            raise UsageError(f"--kind-config {config}: expected a file of kind's Cluster, found none")
        self._config = config
        self._seed, self._image, self._keep = seed, image, keep
        self._own_schedulers, self._deployed = own_schedulers, deployed

    def probe(self) -> str | None:
        if shutil.which(DOCKER) is None:
            return f"{DOCKER}: not found on PATH; Debian's package docker.io has it"
        if shutil.which(KIND) is None:
            return f"{KIND}: not found on PATH; `go install sigs.k8s.io/kind@v0.30.0` builds it"
        answer = _run([DOCKER, "info", "--format", "{{.ServerVersion}}"], within=COMMAND_WITHIN)
        if answer.returncode:
            return f"the Docker daemon does not answer: {_last(answer.stderr)}"
        if self._image and _run([DOCKER, "image", "inspect", self._image], within=COMMAND_WITHIN).returncode:
            return (
                f"node image {self._image!r} is not on this machine; get it with `docker pull {self._image}`, or build"
                " one with `kind build node-image --image NAME`"
            )
        return None

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[ExistingCluster]:
        with private_folder() as folder, self._cluster(folder / "kind.kubeconfig") as kubeconfig:
            existing = ExistingBackend(
                seed=self._seed,
                kubeconfig=kubeconfig,
                own_schedulers=self._own_schedulers,
                deployed=self._deployed,
                agents_host=_host_of_containers(),
            )
            with existing.start(fleet=fleet) as cluster:
                yield cluster

    @contextmanager
    def _cluster(self, kubeconfig: Path) -> Iterator[Path]:
        """The kubeconfig of a cluster that runs.

        Raises:
            ClusterError: it was not created.
        """
        there = clusters()
        if self._keep:
            if self._keep in there:
                _must([KIND, "export", "kubeconfig", "--name", self._keep, "--kubeconfig", str(kubeconfig)])
            else:
                self._create(self._keep, kubeconfig)
            yield kubeconfig
            return
        for name in there:
            if is_abandoned(name):
                delete(name)
        name = own_name(os.getpid())
        try:
            self._create(name, kubeconfig)
            yield kubeconfig
        finally:
            delete(name)

    def _create(self, name: str, kubeconfig: Path) -> None:
        image = ["--image", self._image] if self._image else []
        command = [KIND, "create", "cluster", "--name", name, "--kubeconfig", str(kubeconfig), *image]
        command += ["--config", str(self._config)] if self._config is not None else []
        _must([*command, "--wait", f"{READY_WITHIN}s"], within=CREATE_WITHIN)


def clusters() -> list[str]:
    """The names of all kind clusters.

    Raises:
        ClusterError: kind failed.
    """
    return _must([KIND, "get", "clusters"]).split()


def delete(name: str) -> None:
    """Delete a cluster; without effect if there is none.

    Raises:
        ClusterError: kind failed.
    """
    _must([KIND, "delete", "cluster", "--name", name])


def own_name(pid: int) -> str:
    """The name of a cluster that belongs to a process of this machine; it shows whether that process still runs."""
    return f"{_prefix()}{pid}-{started_at(pid)}"


def is_abandoned(name: str) -> bool:
    """Whether a process of this machine made the cluster and has ended."""
    match = re.fullmatch(re.escape(_prefix()) + r"(\d+)-(\d+)", name)
    return match is not None and started_at(int(match[1])) != int(match[2])


def _prefix() -> str:
    """Differs between machines and containers that share a Docker daemon: their process numbers mean nothing here."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"seatrial-{hashlib.sha256(f'{boot} {socket.gethostname()}'.encode()).hexdigest()[:6]}-"


def _host_of_containers() -> str:
    """The address at which containers of kind reach this machine, where node agents listen for kube-apiserver.

    Raises:
        ClusterError: Docker's network has no such address.
    """
    template = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    parts = _must([DOCKER, "network", "inspect", NETWORK, "--format", template]).split()
    for address in parts:
        try:
            if ipaddress.ip_address(address).version == 4:
                return address
        except ValueError:
            continue
    raise ClusterError(f"docker network {NETWORK!r}: expected an IPv4 gateway, found {' '.join(parts) or 'none'}")


def _must(command: list[str], *, within: float = COMMAND_WITHIN) -> str:
    done = _run(command, within=within)
    if done.returncode:
        raise ClusterError(f"{' '.join(command[:3])} ended with status {done.returncode}: {_last(done.stderr)}")
    return done.stdout


def _run(command: list[str], *, within: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=within
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(command[:3])} did not end within {within:.0f} s") from error
    except OSError as error:
        raise ClusterError(f"{command[0]}: cannot be started: {error.strerror}") from error


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LAST_LINES:]) or "it printed nothing"
