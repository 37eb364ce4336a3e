"""`seatrial up` and `seatrial down`: start and end a local cluster."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.abandoned import end_abandoned
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST, EXISTING, LOCAL_DOCKER, backend_named
from seatrial.harness.clusters.feature_gates import workload_with_job
from seatrial.harness.clusters.kubeconfig import is_ours
from seatrial.harness.clusters.local_node import LocalNode
from seatrial.harness.clusters.start_lock import start_lock
from seatrial.harness.commands.live_page import WEB, start_page
from seatrial.harness.commands.up_beside import beside
from seatrial.harness.commands.up_name import free_name
from seatrial.harness.commands.up_scheduler import SCHEDULER, record, spawn
from seatrial.harness.errors import UsageError
from seatrial.harness.processes import stop
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.protocol import DEPLOYED, IN_PROCESS, NONE, OURS
from seatrial.harness.subject.services import listening_socket
from seatrial.scheduler.api.private_files import write_private

LOOPBACK = "127.0.0.1"
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]

KEPT_DECISIONS = 10_000  # for `explain`; people look at such a cluster, and it measures nothing


def up(
    *,
    backend: Literal["embedded", "envtest", "existing", "local", "local-docker"] = "embedded",
    fleet: str = "default",
    snapshot: Path | None = None,
    kubeconfig: Path | None = None,
    context: str = "",
    subject: str = OURS,
    scheduler_config: Path | None = None,
    with_: Annotated[str, Parameter(name="--with")] = "",
    descheduler_config: Path | None = None,
    web: Annotated[bool, Parameter(negative="")] = False,
    detach: Annotated[bool, Parameter(negative="")] = False,
    name: str = detached.DEFAULT_NAME,
    host: str = "127.0.0.1",
    port: Port = 0,
    seed: int = 0,
    fake: str = "",
    feature_gates: str = "",
) -> int:
    """Start a cluster with simulated nodes and a scheduler; it runs until Ctrl-C (or `seatrial down`).

    Args:
        backend: embedded: the embedded API server with simulated nodes. envtest: real etcd, kube-apiserver and
            kube-controller-manager with simulated nodes, without --detach, --host and --port. existing: simulated nodes
            and a scheduler beside the nodes of a cluster that runs already; all is removed in the end. local: the
            embedded server with this machine as the only node, its pods as processes; local-docker: as Docker
            containers.
        fleet: A fleet file, or the name of a shipped one; `none` starts without nodes.
        snapshot: A file of `seatrial snapshot save`: its objects, nodes too, in place of a fleet. With embedded.
        kubeconfig: File for the kubeconfig (mode 0600), by default ./seatrial.kubeconfig; removed with the cluster.
            An existing file that seatrial did not write is refused. With existing: the kubeconfig of that cluster,
            which is only read.
        context: With existing: the context in the kubeconfig, by default its current one.
        subject: The scheduler: seatrial (ours), none, or the path of a binary.
        scheduler_config: A KubeSchedulerConfiguration file for our scheduler.
        with_: Programs beside the scheduler: `manager` (NodeMetrics), `descheduler`, or both: `manager,descheduler`.
        descheduler_config: A DeschedulerConfiguration file; without it the descheduler only carries out
            PodMigrationJobs.
        web: Serve a live page of nodes, cards, pending pods and decisions, for a browser on this machine; its address
            is printed once.
        detach: Return once the cluster answers; `seatrial down` ends it.
        name: Name of the cluster, if there are several.
        host: The address to listen on. Addresses other than loopback can be reached from other machines.
        port: The port to listen on; 0 takes a free one.
        seed: Decides identities, delays and ties.
        fake: With local: stand-ins for this machine's devices, as in dgx-h100 or a10:2.
        feature_gates: With embedded and envtest: `WorkloadWithJob=true` gives Jobs native gangs (alpha in Kubernetes
            1.37, off by default).
    """
    if snapshot is not None:
        if backend != EMBEDDED or fleet not in {"default", NONE}:
            other = f"--backend {backend}" if backend != EMBEDDED else f"--fleet {fleet}"
            raise UsageError(f"--snapshot {snapshot}: expected --backend {EMBEDDED} without --fleet, found {other}")
        fleet = NONE
    if fleet not in {"default", NONE} and backend not in {EMBEDDED, ENVTEST, EXISTING}:
        raise UsageError(f"--fleet {fleet}: backend {backend!r} has one node, this machine, and takes no fleet")
    if backend == EXISTING:
        if feature_gates:
            raise UsageError(f"--feature-gates {feature_gates}: not with --backend {EXISTING}, which runs already")
        from seatrial.harness.commands.up_existing import ExistingOptions, up_existing

        if port or host != LOOPBACK:
            raise UsageError(f"--host, --port: not with --backend {EXISTING}, whose API server runs already")
        if scheduler_config or with_ or descheduler_config or web:
            raise UsageError(
                f"--scheduler-config, --with, --descheduler-config, --web: not with --backend {EXISTING}; start"
                " `seatrial scheduler`, `manager` or `descheduler` with its --kubeconfig, and `up` with --subject none"
            )
        return up_existing(ExistingOptions(kubeconfig, context, fleet, subject, seed), name=name, detach=detach)
    if context:
        raise UsageError(f"--context {context}: expected --backend {EXISTING}, found {backend}")
    backend_named(backend, fake=fake, feature_gates=feature_gates)
    if backend == ENVTEST and (detach or port or host != LOOPBACK):
        raise UsageError(f"--detach, --host, --port: not with --backend {ENVTEST}, which listens on {LOOPBACK} only")
    local = (
        None if backend in {EMBEDDED, ENVTEST} else LocalNode("docker" if backend == LOCAL_DOCKER else "process", fake)
    )
    if subject in {IN_PROCESS, DEPLOYED}:
        raise UsageError(f"--subject {subject}: expected {OURS}, {NONE} or the path of a binary")
    end_abandoned()
    path = (kubeconfig or Path("seatrial.kubeconfig")).resolve()
    with start_lock(name, path) as release:
        free_name(name)
        _check_kubeconfig(path)
        options = UpOptions(path, "" if fleet == NONE or local else fleet, subject, host, port, seed, local)
        options.configure(scheduler_config, with_, descheduler_config)
        if snapshot is not None:
            options.load(snapshot)
        options.web, options.feature_gates = web, feature_gates
        if backend == ENVTEST:
            return _envtest(options, name, release)
        if detach:
            files = {"scheduler_config": scheduler_config, "descheduler_config": descheduler_config}
            again = {flag: str(file.resolve()) for flag, file in files.items() if file is not None}
            again |= {"subject": subject, "with_": with_, "feature_gates": feature_gates}
            return _detached(options, name, backend, {"seed": seed, **again})
        return _foreground(options, name, backend, release)


def down(
    name: str = detached.DEFAULT_NAME, *, all_: Annotated[bool, Parameter(name="--all", negative="")] = False
) -> int:
    """End a cluster that was started with `seatrial up`.

    Args:
        name: Name of the cluster.
        all_: End all clusters.
    """
    names = detached.recorded_names() if all_ else [name]
    for each in names:
        cluster = detached.recorded(each)
        if cluster is None:
            others = ", ".join(detached.names()) or "none"
            raise UsageError(f"no cluster {each!r} is up (up: {others})")
        was_up = cluster.alive
        detached.end(cluster)
        print(f"cluster {each!r} is down" if was_up else f"cluster {each!r} had ended; its files are removed")
    end_abandoned()
    if not names:
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
        self.snapshot: Path | None = None
        self.scheduler_config: Path | None = None
        self.web, self.feature_gates = False, ""
        self.beside: dict[str, list[str]] = {}  # command lines of the programs beside the scheduler, by name

    def load(self, snapshot: Path) -> None:
        """Check the snapshot that the cluster begins with, and tell what it has.

        Raises:
            UsageError: it cannot be used.
        """
        from seatrial.harness.clusters.snapshot import check

        self.snapshot = snapshot.resolve()
        for kind, count in check(self.snapshot).items():
            print(f"{snapshot}: left out, because the API server does not serve it: {count} {kind}")

    def configure(self, scheduler: Path | None, name: str, descheduler: Path | None) -> None:
        """Check the configuration files, and what is to run beside the scheduler.

        Raises:
            UsageError: one of them cannot be used.
        """
        if scheduler is not None:
            if self.subject != OURS:
                raise UsageError(
                    f"--scheduler-config {scheduler}: expected --subject {OURS}, found {self.subject}; name the file"
                    " in the command of a binary: --subject './koord-scheduler --config FILE'"
                )
            from seatrial.harness.subject.inprocess import check_file

            check_file(scheduler)
            self.scheduler_config = scheduler.resolve()
        self.beside = beside(name, descheduler, self.kubeconfig)

    def scheduler(self) -> list[str] | None:
        """The scheduler's command line."""
        from seatrial.harness.subject.process import our_command

        if self.subject == NONE:
            return None
        if self.subject == OURS:
            command = our_command(self.kubeconfig, self.seed, self.scheduler_config)
            return [*command, "--kept-decisions", str(KEPT_DECISIONS)]
        return foreign_command(self.subject, self.kubeconfig)


def _foreground(options: UpOptions, name: str, backend: str, release: Callable[[], None]) -> int:
    """Run the server in this process and the scheduler as a child; `release` the name once the cluster is recorded."""
    from seatrial.harness.clusters.serve import Serving, serve

    children: list[subprocess.Popen[bytes]] = []
    recorded: list[detached.Detached] = []

    async def ready(url: str) -> None:
        logs: dict[str, Path] = {}
        scheduler = _start_programs(options, name, children, logs)
        pids = [os.getpid(), *(child.pid for child in children)]
        # In a thread, because the server that is asked runs in this one.
        written = await asyncio.to_thread(
            record, name, backend, url, options.kubeconfig, pids, scheduler, logs, fleet=options.fleet
        )
        recorded.append(written)
        release()
        _tell(options, name, url)
        print("Ctrl-C ends it.", flush=True)

    try:
        serve(
            Serving(
                options.kubeconfig,
                options.host,
                options.port,
                options.fleet,
                options.seed,
                options.local,
                options.snapshot,
                workload_with_job(options.feature_gates),
            ),
            ready,
        )
    finally:
        for child in children:
            stop(child)
        for cluster in recorded:
            detached.forget(cluster)
        options.kubeconfig.unlink(missing_ok=True)
    print("the cluster is down")
    return 0


def _envtest(options: UpOptions, name: str, release: Callable[[], None]) -> int:
    """Run a real control plane and the scheduler as children until Ctrl-C or SIGTERM; `release` as in `_foreground`."""
    from seatrial.harness.nodes.fleet import fleet_path

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    fleet = fleet_path(options.fleet) if options.fleet else None
    try:
        backend = backend_named(ENVTEST, seed=options.seed, feature_gates=options.feature_gates)
        with backend.start(fleet=fleet) as cluster:
            assert cluster.endpoint is not None
            write_private(options.kubeconfig, cluster.endpoint.kubeconfig.read_bytes())
            logs = {log.stem: log for log in sorted(cluster.endpoint.kubeconfig.parent.glob("*.log"))}
            children: list[subprocess.Popen[bytes]] = []
            recorded: list[detached.Detached] = []
            try:
                scheduler = _start_programs(options, name, children, logs)
                pids = [os.getpid(), *(child.pid for child in children)]
                url = cluster.endpoint.url
                recorded.append(
                    record(name, ENVTEST, url, options.kubeconfig, pids, scheduler, logs, fleet=options.fleet)
                )
                release()
                _tell(options, name, url)
                print("Ctrl-C ends it.", flush=True)
                signal.pause()
            except KeyboardInterrupt:
                pass
            finally:
                for child in children:
                    stop(child)
                for each in recorded:
                    detached.forget(each)
    finally:
        signal.signal(signal.SIGTERM, before)
        options.kubeconfig.unlink(missing_ok=True)
    print("the cluster is down")
    return 0


def _detached(options: UpOptions, name: str, backend: str, again: dict[str, str | int]) -> int:
    """Start processes that stay; `again` are the options of `up` for another start."""
    from seatrial.harness.clusters.embedded import start_process

    logs = {"server": detached.new_log(name, "server")}
    server, url = start_process(
        options.kubeconfig,
        fleet=options.fleet,
        seed=options.seed,
        port=options.port,
        host=options.host,
        log=logs["server"],
        detached=True,
        local=options.local,
        snapshot=options.snapshot,
        workload_with_job=workload_with_job(options.feature_gates),
    )
    processes = [server]
    try:
        scheduler = _start_programs(options, name, processes, logs, stays=True)
        pids = [process.pid for process in processes]
        record(name, backend, url, options.kubeconfig, pids, scheduler, logs, fleet=options.fleet, options=again)
    except BaseException:
        for child in reversed(processes):
            stop(child)
        raise
    _tell(options, name, url)
    print(f"{detached.down_command(name)} ends it.")
    return 0


def _start_programs(
    options: UpOptions,
    name: str,
    processes: "list[subprocess.Popen[bytes]]",
    logs: dict[str, Path],
    *,
    stays: bool = False,
) -> str:
    """Start what runs beside the API server, the scheduler last, and append it to `processes` and `logs`.

    Returns the address of the scheduler's services.
    """
    url = ""
    if options.web:
        log = logs[WEB] = detached.new_log(name, WEB)
        processes.append(start_page(["cluster", name], detached.web_file(name), log, stays=stays))
    for component, command in {**options.beside, SCHEDULER: options.scheduler()}.items():
        if command is not None:
            log = logs[component] = detached.new_log(name, component)
            ours = component == SCHEDULER and options.subject == OURS
            listening, url = listening_socket() if ours else (None, "")
            processes.append(spawn(command, log, listening, stays=stays))
    return url


def _tell(options: UpOptions, name: str, url: str) -> None:
    nodes = "this machine" if options.local else f"fleet {options.fleet or 'none'}"
    if options.snapshot is not None:
        nodes = f"snapshot {options.snapshot}"
    programs = "".join(f", {name}" for name in options.beside)
    print(f"Kubernetes API at {url}, {nodes}, scheduler {options.subject}{programs}")
    print(f"  kubectl --kubeconfig {options.kubeconfig} get nodes,devices", flush=True)
    if options.web:
        print(f"  live page: {detached.web_file(name).read_text()}", flush=True)
