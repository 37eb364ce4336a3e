"""`seatrial up --backend existing`: simulated nodes and a scheduler on a cluster that runs already, until `down`.

The nodes have the prefix, label and taint of a run, and the run's Lease is renewed while the process lives. What a
process that was killed leaves is removed by the next run, or by `seatrial clean`.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.backends import EXISTING, backend_named
from seatrial.harness.clusters.existing import ExistingCluster
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.harness.clusters.start_lock import start_lock
from seatrial.harness.commands.up_name import free_name
from seatrial.harness.commands.up_scheduler import SCHEDULER, record
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.fleet import fleet_path, load_fleet
from seatrial.harness.processes import stop
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.process import ProcessSubject
from seatrial.harness.subject.protocol import DEPLOYED, IN_PROCESS, NONE, OURS, open_subject

READY_WITHIN = 180.0  # seconds; an ended run is removed first
LAST_LINE = "is up"


@dataclass(frozen=True, slots=True)
class ExistingOptions:
    """The options of `seatrial up --backend existing`."""

    kubeconfig: Path | None
    context: str
    fleet: str
    subject: str
    seed: int

    def check(self) -> None:
        """
        Raises:
            UsageError: an option cannot be used, or the cluster does not answer.
        """
        if self.fleet != NONE:
            load_fleet(self.fleet)
        if self.subject in {IN_PROCESS, DEPLOYED}:
            raise UsageError(f"--subject {self.subject}: expected {OURS}, {NONE} or the path of a binary")
        if self.subject not in {OURS, NONE}:
            foreign_command(self.subject, Path("kubeconfig"))
        backend_named(EXISTING, kubeconfig=self.kubeconfig, context=self.context)

    def words(self, name: str) -> list[str]:
        """The command line that starts the same in the foreground."""
        assert self.kubeconfig is not None
        where = Path(self.fleet)
        return [
            sys.executable,
            "-m",
            "seatrial",
            "up",
            f"--backend={EXISTING}",
            f"--kubeconfig={self.kubeconfig.resolve()}",
            *([f"--context={self.context}"] if self.context else []),
            f"--fleet={where.resolve() if where.is_file() else self.fleet}",
            f"--subject={self.subject}",
            f"--seed={self.seed}",
            f"--name={name}",
        ]


def up_existing(options: ExistingOptions, *, name: str, detach: bool) -> int:
    """Add the nodes and start the scheduler; with `detach` in a process of its own."""
    options.check()
    with start_lock(name, parent=detach) as release:
        free_name(name)
        return _detached(options, name) if detach else _foreground(options, name, release)


def _foreground(options: ExistingOptions, name: str, release: Callable[[], None]) -> int:
    fleet = fleet_path(options.fleet) if options.fleet != NONE else None
    backend = backend_named(
        EXISTING,
        seed=options.seed,
        kubeconfig=options.kubeconfig,
        context=options.context,
        own_schedulers=options.subject != NONE,
    )
    recorded: list[detached.Detached] = []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        log = detached.new_log(name, SCHEDULER)
        with (
            backend.start(fleet=fleet) as cluster,
            open_subject(options.subject, cluster, seed=options.seed, log_file=log) as subject,
        ):
            assert isinstance(cluster, ExistingCluster)
            assert cluster.endpoint is not None
            started = isinstance(subject, ProcessSubject)
            scheduler = subject.services_url if isinstance(subject, ProcessSubject) else ""
            pids = [os.getpid(), *([subject.pid] if isinstance(subject, ProcessSubject) else [])]
            logs = {"nodes": detached.log_file(name, "nodes"), SCHEDULER: log}
            logs = {part: path for part, path in logs.items() if path.exists() and (part != SCHEDULER or started)}
            where = cluster.endpoint.kubeconfig
            recorded.append(
                record(name, EXISTING, cluster.endpoint.url, where, pids, scheduler, logs, removes_kubeconfig=False)
            )
            release()
            print("\n".join(description(options, cluster)), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        for each in recorded:
            detached.forget(each)
    print("nodes and scheduler are removed")
    return 0


def description(options: ExistingOptions, cluster: ExistingCluster) -> list[str]:
    """What was added, and what a pod needs to run there; the last line ends with LAST_LINE."""
    run = cluster.scope.run
    scheduler = cluster.scheduler_name("default-scheduler")
    return [
        f"fleet {options.fleet} on the cluster, nodes {cluster.scope.prefix}…, scheduler {options.subject}",
        f"  pods: schedulerName {scheduler}; nodeSelector and toleration {RUN_LABEL}: {run}",
        f"  kubectl --kubeconfig {options.kubeconfig} get nodes -l {RUN_LABEL}={run}",
        f"run {run} {LAST_LINE}",
    ]


def _detached(options: ExistingOptions, name: str) -> int:
    """Start the foreground command as a process that stays, and pass on its output.

    Raises:
        ClusterError: it ended, or was not ready in time.
    """
    log = detached.new_log(name, "nodes")
    with log.open("ab") as sink:
        process = subprocess.Popen(
            options.words(name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            bufsize=0,  # `select` does not see lines in a buffer
        )
    try:
        assert process.stdout is not None
        messages: list[str] = []
        while not messages or not messages[-1].endswith(LAST_LINE):
            readable, _, _ = select.select([process.stdout], [], [], READY_WITHIN)
            line = process.stdout.readline().decode() if readable else ""
            if not line:
                why = log.read_text(errors="replace").strip() or f"it was not ready within {READY_WITHIN:.0f} s"
                raise ClusterError(f"the process of the nodes did not start: {why}")
            messages.append(line.rstrip("\n"))
        process.stdout.close()
    except BaseException:
        stop(process)
        raise
    print("\n".join(messages))
    print(f"{detached.down_command(name)} ends it.")
    return 0
