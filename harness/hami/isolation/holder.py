"""A process that takes the lock of a region and ends without releasing it, or holds it until its input ends.

    python -m seatrial.harness.hami.isolation.holder REGION [die]

It prints `held` when it has the lock. The library's processes find an ended holder by its pid in the region.
"""

import ctypes
import mmap
import os
import struct
import sys
from pathlib import Path

OWNER, SEMAPHORE = 16, 24  # bytes from the region's start, in all layouts that are read


def take(path: Path) -> mmap.mmap:
    """Map the region and take its lock.

    Raises:
        OSError: another process has it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file:
        region = mmap.mmap(file.fileno(), 0)
    place = ctypes.addressof(ctypes.c_char.from_buffer(region, SEMAPHORE))
    if libc.sem_trywait(ctypes.c_void_p(place)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    struct.pack_into("<Q", region, OWNER, os.getpid())
    return region


def main() -> None:
    """Take the lock; it is not released at the end."""
    region = take(Path(sys.argv[1]))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    if sys.argv[2:] != ["die"]:
        sys.stdin.read()
    assert region is not None
    os._exit(0)


if __name__ == "__main__":
    main()
