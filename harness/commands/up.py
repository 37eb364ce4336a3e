"""`seatrial up` and `seatrial down`: start and end a local cluster."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST, EXISTING, LOCAL_DOCKER, backend_named
from seatrial.harness.clusters.kubeconfig import is_ours
from seatrial.harness.clusters.local_node import LocalNode
from seatrial.harness.errors import UsageError
from seatrial.harness.private_files import write_private
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.protocol import DEPLOYED, IN_PROCESS, NONE, OURS

LOOPBACK = "127.0.0.1"
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]


def up(
    *,
    backend: Literal["embedded", "envtest", "existing", "local", "local-docker"] = "embedded",
    fleet: str = "default",
    kubeconfig: Path | None = None,
    context: str = "",
    subject: str = OURS,
    detach: Annotated[bool, Parameter(negative="")] = False,
    name: str = detached.DEFAULT_NAME,
    host: str = "127.0.0.1",
    port: Port = 0,
    seed: int = 0,
    fake: str = "",
) -> int:
    """Start a cluster with simulated nodes and a scheduler; it runs until Ctrl-C (or `seatrial down`).

    Args:
        backend: embedded: the embedded API server with simulated nodes. envtest: real etcd, kube-apiserver and
            kube-controller-manager with simulated nodes, without --detach, --host and --port. existing: simulated nodes
            and a scheduler beside the nodes of a cluster that runs already; all is removed in the end. local: the
            embedded server with this machine as the only node, its pods as processes; local-docker: as Docker
            containers.
        fleet: A fleet file, or the name of a shipped one; `none` starts without nodes.
        kubeconfig: File for the kubeconfig (mode 0600), by default ./seatrial.kubeconfig; removed with the cluster.
            An existing file that seatrial did not write is refused. With existing: the kubeconfig of that cluster,
            which is only read.
        context: With existing: the context in the kubeconfig, by default its current one.
        subject: The scheduler: seatrial (ours), none, or the path of a binary.
        detach: Return once the cluster answers; `seatrial down` ends it.
        name: Name of the cluster, if there are several.
        host: The address to listen on. Addresses other than loopback can be reached from other machines.
        port: The port to listen on; 0 takes a free one.
        seed: Decides identities, delays and ties.
        fake: With local: stand-ins for this machine's devices, as in dgx-h100 or a10:2.
    """
    if fleet not in {"default", NONE} and backend not in {EMBEDDED, ENVTEST, EXISTING}:
        raise UsageError(f"--fleet {fleet}: backend {backend!r} has one node, this machine, and takes no fleet")
    if backend == EXISTING:
        from seatrial.harness.commands.up_existing import ExistingOptions, up_existing

        if port or host != LOOPBACK:
            raise UsageError(f"--host, --port: not with --backend {EXISTING}, whose API server runs already")
        return up_existing(ExistingOptions(kubeconfig, context, fleet, subject, seed), name=name, detach=detach)
    if context:
        raise UsageError(f"--context {context}: expected --backend {EXISTING}, found {backend}")
    backend_named(backend, fake=fake)
    if backend == ENVTEST and (detach or port or host != LOOPBACK):
        raise UsageError(f"--detach, --host, --port: not with --backend {ENVTEST}, which listens on {LOOPBACK} only")
    local = (
        None if backend in {EMBEDDED, ENVTEST} else LocalNode("docker" if backend == LOCAL_DOCKER else "process", fake)
    )
    if subject in {IN_PROCESS, DEPLOYED}:
        raise UsageError(f"--subject {subject}: expected {OURS}, {NONE} or the path of a binary")
    running = detached.find(name)
    if running is not None:
        raise UsageError(
            f"cluster {name!r} is up already at {running.url} (kubeconfig {running.kubeconfig});"
            " end it with `seatrial down`, or give another --name"
        )
    path = (kubeconfig or Path("seatrial.kubeconfig")).resolve()
    _check_kubeconfig(path)
    options = UpOptions(path, "" if fleet == NONE or local else fleet, subject, host, port, seed, local)
    if backend == ENVTEST:
        return _envtest(options)
    if detach:
        return _detached(options, name)
    return _foreground(options)


def down(
    name: str = detached.DEFAULT_NAME, *, all_: Annotated[bool, Parameter(name="--all", negative="")] = False
) -> int:
    """End a cluster that was started with `seatrial up --detach`.

    Args:
        name: Name of the cluster.
        all_: End all clusters.
    """
    wanted = detached.names() if all_ else [name]
    for each in wanted:
        running = detached.find(each)
        if running is None:
            others = ", ".join(detached.names()) or "none"
            raise UsageError(f"no cluster {each!r} is up (up: {others})")
        detached.end(running)
        print(f"cluster {each!r} is down")
    if not wanted:
        print("no cluster is up")
    return 0


def _check_kubeconfig(path: Path) -> None:
    """Check that the kubeconfig may be overwritten now and removed when the cluster ends.

    Raises:
        UsageError: another program wrote it, another cluster uses it, or it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"--kubeconfig {path}: expected a file, found a folder")
    for each in detached.names():
        running = detached.find(each)
        if running is not None and Path(running.kubeconfig) == path:
            raise UsageError(f"--kubeconfig {path}: it is that of the cluster {each!r}, which is up; name another file")
    if path.exists() and not is_ours(path):
        raise UsageError(
            f"--kubeconfig {path}: expected no such file, or one that an earlier `seatrial up` left; found another"
            " file; name another path, or remove the file"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--kubeconfig {path}: cannot be written: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--kubeconfig {path}: the folder {path.parent} cannot be written to")


class UpOptions:
    """The checked options of `seatrial up`."""

    def __init__(  # noqa: PLR0917
        self, kubeconfig: Path, fleet: str, subject: str, host: str, port: int, seed: int, local: LocalNode | None
    ) -> None:
        from seatrial.harness.nodes.fleet import load_fleet

        self.kubeconfig, self.fleet, self.subject = kubeconfig, fleet, subject
        self.host, self.port, self.seed, self.local = host, port, seed, local
        if fleet:
            load_fleet(fleet)  # reports mistakes before anything is started
            self.fleet = fleet if not Path(fleet).is_file() else str(Path(fleet).resolve())
        if subject not in {OURS, NONE}:
            foreign_command(subject, kubeconfig)

    def scheduler(self) -> list[str] | None:
        """The scheduler's command line."""
        from seatrial.harness.subject.process import our_command

        if self.subject == NONE:
            return None
        if self.subject == OURS:
            return our_command(self.kubeconfig, self.seed)
        return foreign_command(self.subject, self.kubeconfig)


def _foreground(options: UpOptions) -> int:
    """Run the server in this process and the scheduler as a child."""
    from seatrial.harness.clusters.serve import Serving, serve

    children: list[subprocess.Popen[bytes]] = []

    def ready(url: str) -> None:
        command = options.scheduler()
        if command is not None:
            children.append(_spawn(command, None))
        _tell(options, url)
        print("Ctrl-C ends it.", flush=True)

    try:
        serve(
            Serving(options.kubeconfig, options.host, options.port, options.fleet, options.seed, options.local), ready
        )
    finally:
        from seatrial.harness.processes import stop

        for child in children:
            stop(child)
        options.kubeconfig.unlink(missing_ok=True)
    print("the cluster is down")
    return 0


def _envtest(options: UpOptions) -> int:
    """Run a real control plane and the scheduler as children until Ctrl-C or SIGTERM."""
    from seatrial.harness.nodes.fleet import fleet_path
    from seatrial.harness.processes import stop

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    fleet = fleet_path(options.fleet) if options.fleet else None
    try:
        with backend_named(ENVTEST, seed=options.seed).start(fleet=fleet) as cluster:
            assert cluster.endpoint is not None  # noqa: S101 it is a cluster of processes
            write_private(options.kubeconfig, cluster.endpoint.kubeconfig.read_bytes())
            command = options.scheduler()
            child = _spawn(command, None) if command is not None else None
            try:
                _tell(options, cluster.endpoint.url)
                print("Ctrl-C ends it.", flush=True)
                signal.pause()
            except KeyboardInterrupt:
                pass
            finally:
                if child is not None:
                    stop(child)
    finally:
        signal.signal(signal.SIGTERM, before)
        options.kubeconfig.unlink(missing_ok=True)
    print("the cluster is down")
    return 0


def _detached(options: UpOptions, name: str) -> int:
    from seatrial.harness.clusters.embedded import start_process
    from seatrial.harness.processes import started_at, stop

    log = detached.log_file(name)
    server, url = start_process(
        options.kubeconfig,
        fleet=options.fleet,
        seed=options.seed,
        port=options.port,
        host=options.host,
        log=log,
        detached=True,
        local=options.local,
    )
    processes = [server]
    try:
        command = options.scheduler()
        if command is not None:
            processes.append(_spawn(command, log))
        known = tuple((process.pid, started_at(process.pid)) for process in processes)
        detached.remember(detached.Detached(name, url, str(options.kubeconfig), known))
    except BaseException:
        for child in reversed(processes):
            stop(child)
        raise
    _tell(options, url)
    print("`seatrial down` ends it." if name == detached.DEFAULT_NAME else f"`seatrial down {name}` ends it.")
    return 0


def _spawn(command: list[str], log: Path | None) -> "subprocess.Popen[bytes]":
    """Start the scheduler: with its own log for a detached cluster, else as a child that ends with this process."""
    from seatrial.harness.processes import die_with_parent

    with _sink(log) as sink:
        return subprocess.Popen(  # noqa: S603 a list of words, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=log is not None,
            process_group=None if log is not None else 0,
            preexec_fn=None if log is not None else die_with_parent,  # noqa: PLW1509 one call into libc
        )


@contextmanager
def _sink(log: Path | None) -> Iterator[int]:
    if log is None:
        yield subprocess.DEVNULL
        return
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tell(options: UpOptions, url: str) -> None:
    nodes = "this machine" if options.local else f"fleet {options.fleet or 'none'}"
    print(f"Kubernetes API at {url}, {nodes}, scheduler {options.subject}")
    print(f"  kubectl --kubeconfig {options.kubeconfig} get nodes,devices", flush=True)
