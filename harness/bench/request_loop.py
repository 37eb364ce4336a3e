"""A program with fixed work for each request: `request_loop.py FILE ITERATIONS INTERVAL PROCESSES`.

Each process serves a request every INTERVAL seconds, and appends moment (CLOCK_MONOTONIC) and latency of each to
`FILE.NUMBER` as two doubles of seconds. Latency counts from when the request was due, so that a request which had to
wait for the one before it is late by that too. Standard library only: it runs as a pod.
"""

import os
import struct
import sys
import time
from pathlib import Path

ROW = struct.Struct("<dd")


def work(iterations: int) -> int:
    """The work of one request."""
    value = 1
    for number in range(iterations):
        value = (value * 31 + number) % 1_000_003
    return value


def serve(path: Path, iterations: int, interval: float) -> None:
    """Serve for ever. After a pause of a second, requests that were due in it are dropped."""
    with path.open("ab", buffering=0) as file:
        due = time.monotonic()
        while True:
            due = max(due + interval, time.monotonic() - 1)
            time.sleep(max(due - time.monotonic(), 0))
            work(iterations)
            file.write(ROW.pack(due, time.monotonic() - due))


def main() -> None:
    """Start the processes."""
    path, iterations, interval, processes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    for number in range(processes):
        if os.fork() == 0:
            serve(Path(f"{path}.{number}"), iterations, interval)
    os.wait()


if __name__ == "__main__":
    main()
