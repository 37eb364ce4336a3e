"""`seatrial up --backend existing`: simulated nodes and a scheduler on a cluster that runs already, until `down`.

The nodes have the prefix, label and taint of a run, and the run's Lease is renewed while the process lives. What a
process that was killed leaves is removed by the next run, or by `seatrial clean`.
"""

import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.backends import EXISTING, backend_named
from seatrial.harness.clusters.existing import ExistingCluster
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.fleet import fleet_path, load_fleet
from seatrial.harness.processes import started_at, stop
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.protocol import DEPLOYED, IN_PROCESS, NONE, OURS, open_subject

READY_WITHIN = 180.0  # seconds; a dead run is removed first
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

    def words(self) -> list[str]:
        """The command line that starts the same in the foreground."""
        assert self.kubeconfig is not None  # noqa: S101 checked
        where = Path(self.fleet)
        return [
            sys.executable, "-m", "seatrial", "up", f"--backend={EXISTING}",
            f"--kubeconfig={self.kubeconfig.resolve()}", *([f"--context={self.context}"] if self.context else []),
            f"--fleet={where.resolve() if where.is_file() else self.fleet}", f"--subject={self.subject}",
            f"--seed={self.seed}",
        ]  # fmt: skip


def up_existing(options: ExistingOptions, *, name: str, detach: bool) -> int:
    """Add the nodes and start the scheduler; with `detach` in a process of its own."""
    options.check()
    running = detached.find(name)
    if running is not None:
        raise UsageError(f"cluster {name!r} is up already; end it with `seatrial down`, or give another --name")
    return _detached(options, name) if detach else _foreground(options)


def _foreground(options: ExistingOptions) -> int:
    fleet = fleet_path(options.fleet) if options.fleet != NONE else None
    backend = backend_named(
        EXISTING,
        seed=options.seed,
        kubeconfig=options.kubeconfig,
        context=options.context,
        own_schedulers=options.subject != NONE,
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with backend.start(fleet=fleet) as cluster, open_subject(options.subject, cluster, seed=options.seed):
            assert isinstance(cluster, ExistingCluster)  # noqa: S101 what the backend makes
            print("\n".join(description(options, cluster)), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
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
    """Start the foreground command as a process that stays, and pass on what it says.

    Raises:
        ClusterError: it ended, or was not ready in time.
    """
    log = detached.log_file(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
        process = subprocess.Popen(  # noqa: S603 our own interpreter, a list of words
            options.words(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            bufsize=0,  # `select` does not see lines in a buffer
        )
    try:
        assert process.stdout is not None  # noqa: S101
        said: list[str] = []
        while not said or not said[-1].endswith(LAST_LINE):
            readable, _, _ = select.select([process.stdout], [], [], READY_WITHIN)
            line = process.stdout.readline().decode() if readable else ""
            if not line:
                why = log.read_text(errors="replace").strip() or f"it was not ready within {READY_WITHIN:.0f} s"
                raise ClusterError(f"the process of the nodes did not start: {why}")
            said.append(line.rstrip("\n"))
        process.stdout.close()
        known = ((process.pid, started_at(process.pid)),)
        state = detached.Detached(name, str(options.kubeconfig), "", known)
        detached.remember(state)
    except BaseException:
        stop(process)
        raise
    print("\n".join(said))
    print("`seatrial down` ends it." if name == detached.DEFAULT_NAME else f"`seatrial down {name}` ends it.")
    return 0
