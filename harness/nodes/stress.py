"""Load for a pod: cores, memory, page cache, in bursts if asked. Runs on any Python 3 without our packages.

The text of this file is the program of a pod's container (`command`), so that an image needs Python alone.
"""

import argparse
import contextlib
import mmap
import os
import sys
import time
from pathlib import Path

SLICE = 0.05  # seconds, in which a part of a core is busy for its part


def command(*options: str, python: str = sys.executable) -> list[str]:
    """The command of a container that makes this load, as in `command("--cores", "1.5", "--memory", "1000000")`."""
    return [python, "-c", Path(__file__).read_text(encoding="utf-8"), *options]


def spin(part: float, on: float, off: float) -> None:
    """Keep `part` of a core busy for ever; with `off`, for `on` seconds and then not for `off` seconds."""
    while True:
        until = time.monotonic() + (on if off else SLICE)
        while time.monotonic() < until:
            begin = time.monotonic()
            while time.monotonic() - begin < SLICE * part:
                pass
            if part < 1:
                time.sleep(SLICE * (1 - part))
        if off:
            time.sleep(off)


def fill_cache(size: int) -> None:
    """Write and read a file of `size` bytes in the working directory: it stays in the page cache."""
    with Path("page-cache").open("w+b") as file:
        file.writelines(bytes(1 << 20) for _ in range(size >> 20))
        file.flush()
        file.seek(0)
        while file.read(1 << 20):
            pass


def main() -> None:
    """Make the load until a signal ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=float, default=0.0)
    parser.add_argument("--memory", type=int, default=0, help="bytes")
    parser.add_argument("--cache", type=int, default=0, help="bytes of page cache")
    parser.add_argument("--after", type=float, default=0.0, help="seconds without load")
    parser.add_argument("--burst", type=float, nargs=2, default=(1.0, 0.0), metavar=("ON", "OFF"), help="seconds")
    options = parser.parse_args()
    time.sleep(options.after)
    kept = mmap.mmap(-1, options.memory) if options.memory else None
    for place in range(0, options.memory, mmap.PAGESIZE):
        assert kept is not None
        kept[place] = 1
    fill_cache(options.cache)
    whole = int(options.cores)
    for part in (*[1.0] * whole, options.cores - whole):
        if part > 0 and os.fork() == 0:
            spin(part, *options.burst)
    with contextlib.suppress(ChildProcessError):
        os.wait()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
