"""Locks that a process holds while it starts a cluster: of the cluster's name, and of its kubeconfig.

They are `flock` locks on files in the state folder. The kernel releases them when the process ends, also when it is
killed; no process ids are compared.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from seatrial.harness.clusters.detached import check_name, state_folder
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.private_files import take_lock


@contextmanager
def start_lock(name: str, kubeconfig: Path | None = None, *, parent: bool = False) -> Iterator[Callable[[], None]]:
    """Hold the locks of a name and of the kubeconfig that will be written; yield the function that releases them.

    `parent`: the lock of a process that waits for a child, which takes the lock of the name itself.

    Raises:
        UsageError: another process holds a lock, or the name is not valid.
    """
    check_name(name)
    with ExitStack() as locks:
        file = state_folder() / f".{name}.{'parent' if parent else 'lock'}"
        if not _take(file, locks):
            raise UsageError(
                f"cluster {name!r} is being started{_by(file)}; wait until it is up, or give another --name"
            )
        if kubeconfig is not None:
            file = state_folder() / f".{hashlib.sha256(os.fsencode(kubeconfig)).hexdigest()}.kubeconfig"
            if not _take(file, locks):
                raise UsageError(
                    f"--kubeconfig {kubeconfig}: another cluster is being started with this file{_by(file)};"
                    " name another file"
                )
        yield locks.close


def _take(path: Path, locks: ExitStack) -> bool:
    """Lock the file, which is made if it is missing; False if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not take_lock(descriptor):
            os.close(descriptor)
            return False
        if _is_at(descriptor, path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            locks.callback(partial(_release, path, descriptor))
            return True
        os.close(descriptor)  # its holder removed the file between `open` and `flock`


def _release(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)  # before the lock is released: the file of the next holder stays
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _by(path: Path) -> str:
    """The holder of a lock in words, for messages; empty if it has not written its process id yet."""
    try:
        pid = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return ""
    return f" by process {pid}" if pid else ""
