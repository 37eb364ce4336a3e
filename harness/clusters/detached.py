"""State of the clusters that `seatrial up` started: list them, find their parts and stop them.

One file of mode 0600 for each, in the user's state folder. The file of a cluster whose processes have ended stays until
`seatrial down`, or until `seatrial up` starts a cluster of that name. Logs of the processes, and the address of the
live page if there is one, are beside it.
"""

import json
import os
import re
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seatrial.harness.clusters.kubeconfig import is_ours
from seatrial.harness.errors import UsageError
from seatrial.harness.processes import started_at
from seatrial.scheduler.api.private_files import write_private

STOP_WITHIN = 15.0
REMOVED_WITHIN = 180.0  # for the removal of nodes from an existing cluster
DEFAULT_NAME = "seatrial"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Detached:
    """A cluster that was started: its processes (server first), each with its start time, to detect reused ids.

    Without `kubeconfig` it is nodes on an existing cluster, whose kubeconfig stays. `scheduler` is the address of our
    scheduler's services, whose process is the last one; empty if the cluster has none or a foreign one. `uid` is that
    of the namespace kube-system. `logs` are pairs of a component's name and its file. `fleet` is the file or name
    of the fleet that it was started with; empty without nodes. `options` are those of `up` by which a
    detached cluster is started again.
    """

    name: str
    url: str
    kubeconfig: str
    processes: tuple[tuple[int, int], ...]
    backend: str = ""
    uid: str = ""
    scheduler: str = ""
    since: str = ""
    logs: tuple[tuple[str, str], ...] = ()
    fleet: str = ""
    options: dict[str, str | int] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return any(started_at(pid) == start for pid, start in self.processes)

    @property
    def server_alive(self) -> bool:
        """Whether the API server's process runs; with nodes on an existing cluster, that of their agents."""
        pid, start = self.processes[0]
        return started_at(pid) == start

    @property
    def ended_programs(self) -> list[str]:
        """The components beside the server whose process has ended.

        Their logs are the last ones of `logs`, in the order of their processes.
        """
        programs = [component for component, _ in self.logs][-len(self.processes[1:]) :]
        return [
            component
            for component, (pid, start) in zip(programs, self.processes[1:], strict=False)
            if started_at(pid) != start
        ]

    @property
    def scheduler_alive(self) -> bool:
        """Whether the process runs that holds the socket at the address `scheduler`."""
        pid, start = self.processes[-1]
        return bool(self.scheduler) and started_at(pid) == start


def state_folder() -> Path:
    """Return the folder of the state files: `$XDG_STATE_HOME/seatrial/clusters`."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "seatrial" / "clusters"


def log_file(name: str, component: str) -> Path:
    """Return the path of a component's log in the state folder."""
    check_name(name)
    return state_folder() / f"{name}.{component}.log"


def web_file(name: str) -> Path:
    """Return the path of the file with the address of a cluster's live page, whose last part is the token."""
    check_name(name)
    return state_folder() / f"{name}.web"


def new_log(name: str, component: str) -> Path:
    """Make an empty log file of mode 0600 for a component of a cluster."""
    path = log_file(name, component)
    write_private(path, b"")
    return path


def recorded(name: str) -> Detached | None:
    """Return the cluster of that name, or None if it was not started or has been ended by `seatrial down`.

    Raises:
        UsageError: the name is not valid for a cluster, or its file was not written by seatrial.
    """
    check_name(name)
    path = state_folder() / f"{name}.json"
    try:
        document = json.loads(path.read_bytes())
        return Detached(
            **{
                **document,
                "processes": tuple((pid, start) for pid, start in document["processes"]),
                "logs": tuple((component, log) for component, log in document.get("logs", ())),
            }
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path}: not a file of ours ({error}); remove it if no cluster {name!r} runs") from error


def find(name: str) -> Detached | None:
    """Return the cluster of that name, or None if all its processes have ended.

    Raises:
        UsageError: the name is not valid for a cluster, or its file was not written by seatrial.
    """
    cluster = recorded(name)
    return cluster if cluster is not None and cluster.alive else None


def recorded_names() -> list[str]:
    """Return the names of all clusters that have a state file."""
    return sorted(path.stem for path in state_folder().glob("*.json") if recorded(path.stem) is not None)


def names() -> list[str]:
    """Return the names of all running clusters."""
    return [name for name in recorded_names() if find(name) is not None]


def down_command(name: str) -> str:
    """Return the command that ends a cluster, for messages."""
    return "`seatrial down`" if name == DEFAULT_NAME else f"`seatrial down {name}`"


def remember(cluster: Detached) -> None:
    """Write the cluster's state file with mode 0600."""
    write_private(state_folder() / f"{cluster.name}.json", json.dumps(asdict(cluster)).encode())


def end(cluster: Detached) -> None:
    """Stop the cluster's processes, the newest first, and remove its files."""
    for pid, start in reversed(cluster.processes):
        if started_at(pid) == start:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + (
                STOP_WITHIN if cluster.kubeconfig else REMOVED_WITHIN
            )  # real processes end in real time
            while started_at(pid) == start and time.monotonic() < deadline:
                time.sleep(0.02)
            if started_at(pid) == start:
                os.kill(pid, signal.SIGKILL)
    forget(cluster)
    path = Path(cluster.kubeconfig)
    used = [other.kubeconfig for name in names() if (other := find(name)) is not None]
    if cluster.kubeconfig and cluster.kubeconfig not in used and is_ours(path):
        path.unlink(missing_ok=True)


def forget(cluster: Detached) -> None:
    """Remove the state file and the logs of a cluster that has ended."""
    (state_folder() / f"{cluster.name}.json").unlink(missing_ok=True)
    web_file(cluster.name).unlink(missing_ok=True)
    for _, log in cluster.logs:
        Path(log).unlink(missing_ok=True)


def check_name(name: str) -> None:
    """
    Raises:
        UsageError: the name of a cluster cannot be a file name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"cluster {name!r}: expected a name of letters, digits, dots and dashes, 63 at most")
