"""Files that only their owner may read: kubeconfigs, private keys, and the temporary folders that hold them.

A private folder is locked (`flock`) as long as its process lives. A process that can take the lock knows that the
folder's process has ended, and removes the folder. No process ids are compared.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

PREFIX = "seatrial-private-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make an empty folder of mode 0700 in the system's temporary folder; it is removed on exit.

    It is removed at the end of the process, too, if the context is never left: a second Ctrl-C may interrupt the first
    one's cleanup. The first call in a process removes what killed processes left.
    """
    _remove_abandoned_once()
    path, descriptor = _make()
    remove = partial(_remove, path, [descriptor])
    atexit.register(remove)
    try:
        yield path
    finally:
        remove()
        atexit.unregister(remove)


def remove_abandoned() -> int:
    """Remove private folders of this user whose process has ended; return how many were removed."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            descriptor = _open_folder(path)
        except OSError:  # a link, a file, another user's folder, or it has just been removed
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid() and take_lock(descriptor):
                shutil.rmtree(path, ignore_errors=True)
                removed += 1
        finally:
            os.close(descriptor)
    return removed


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in one step: readers see the old content or the new one, never a part.

    The new content goes to a new file beside `path` (O_CREAT | O_EXCL | O_NOFOLLOW, by `tempfile`) that then replaces
    `path`. A symbolic link at `path` is replaced, not followed. Folders that are missing are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@cache
def _remove_abandoned_once() -> None:
    remove_abandoned()


def _make() -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Another process may have taken the new folder for an abandoned one before it was locked here.
        with suppress(FileNotFoundError):
            descriptor = _open_folder(path)
            if take_lock(descriptor) and path.is_dir():
                return path, descriptor
            os.close(descriptor)


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def take_lock(descriptor: int) -> bool:
    """Whether the lock (`flock`) of an open file or folder was free and is held now, until it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path, held: list[int]) -> None:
    """Remove the folder and release its lock; the second call does nothing."""
    if held:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held.pop())
