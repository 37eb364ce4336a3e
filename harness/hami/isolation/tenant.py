"""One tenant of a card: a process that reads requests, one JSON object per line, and writes answers likewise.

    {"do": "totals"}                                          → free, total, device_total (bytes), multiprocessors
    {"do": "fill", "block": bytes}                            → blocks, code of the refusal, free before and after
    {"do": "allocate", "bytes": n, "kind": "managed"}         → code; what was given is kept until release
    {"do": "release"}                                         → free, codes of what could not be given back
    {"do": "calibrate", "seconds": 0.001}                     → rounds a launch needs to last so long
    {"do": "run", "seconds": s, "tick": t, "rounds": r}       → ticks: [seconds, kernels finished] each t seconds
    {"do": "launches", "count": n}                            → seconds for n launches of next to no work

Kernels are launched without waiting for each; at most IN_FLIGHT are under way.
"""

import json
import os
import sys
import time
from collections import deque
from typing import Any

from seatrial.harness.hami.isolation.cuda import SUCCESS, Cuda, CudaError

IN_FLIGHT = 64
BLOCKS, THREADS = 16_384, 256
MAX_BLOCKS = 100_000  # of memory; ends a run under a library without limits

Answer = dict[str, Any]


class Tenant:
    """The CUDA context of the process and its allocations."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._held: list[tuple[int, str]] = []

    def totals(self) -> Answer:
        free, total = self._cuda.memory()
        return {
            "free": free,
            "total": total,
            "device_total": self._cuda.total(),
            "multiprocessors": self._cuda.multiprocessors(),
        }

    def fill(self, block: int) -> Answer:
        """Allocate blocks until one is refused."""
        before, _ = self._cuda.memory()
        count, code = 0, SUCCESS
        while count < MAX_BLOCKS:
            code, place = self._cuda.allocate(block)
            if code != SUCCESS:
                break
            self._held.append((place, "device"))
            count += 1
        return {"blocks": count, "code": code, "free_before": before, "free": self._cuda.memory()[0]}

    def allocate(self, bytes: int, kind: str = "device") -> Answer:  # noqa: A002 the protocol's word
        code, place = self._cuda.allocate(bytes, kind)
        if code == SUCCESS:
            self._held.append((place, kind))
        return {"code": code}

    def release(self) -> Answer:
        """Free everything; `codes` are the return codes other than 0, by kind of memory."""
        codes: dict[str, int] = {}
        while self._held:
            place, kind = self._held.pop()
            code = self._cuda.free(place, kind)
            if code != SUCCESS:
                codes[kind] = code
        return {"free": self._cuda.memory()[0], "codes": codes}

    def calibrate(self, seconds: float) -> Answer:
        """Double the work until ten launches take ten times so long, then scale."""
        rounds = 64
        while True:
            taken = self._timed(rounds, 10) / 10
            if taken >= seconds or rounds >= 1 << 30:
                return {"rounds": max(1, round(rounds * seconds / taken)), "seconds": taken}
            rounds *= 2

    def run(self, seconds: float, rounds: int, tick: float = 1.0) -> Answer:
        """Keep the card's queue full and count finished kernels."""
        free = [self._cuda.event() for _ in range(IN_FLIGHT)]
        flying: deque[Any] = deque()
        start = time.monotonic()
        done, end, due = 0, start + seconds, start + tick
        ticks: list[tuple[float, int]] = [(start, 0)]
        while (now := time.monotonic()) < end:
            if now >= due:
                ticks.append((now, done))
                due += tick * max(1, int((now - due) / tick) + 1)
            if free:
                event = free.pop()
                self._cuda.launch(rounds, BLOCKS, THREADS)
                self._cuda.record(event)
                flying.append(event)
            else:
                self._cuda.wait(flying[0])
            while flying and self._cuda.finished(flying[0]):
                free.append(flying.popleft())
                done += 1
        ticks.append((time.monotonic(), done))
        self._cuda.settle()
        return {"ticks": ticks}

    def launches(self, count: int) -> Answer:
        """Measure the cost of a launch."""
        return {"seconds": self._timed(1, count, blocks=1)}

    def _timed(self, rounds: int, count: int, *, blocks: int = BLOCKS) -> float:
        self._cuda.launch(rounds, blocks, THREADS)
        self._cuda.settle()
        start = time.monotonic()
        for _ in range(count):
            self._cuda.launch(rounds, blocks, THREADS)
        self._cuda.settle()
        return time.monotonic() - start


def serve() -> None:
    """Answer requests until the input ends."""
    tenant = Tenant(Cuda())
    _write({"pid": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: Answer = getattr(tenant, request.pop("do"))(**request)
        except CudaError as error:
            answer = {"error": str(error), "code": error.code}
        _write(answer)


def _write(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        serve()
    except (CudaError, OSError) as failed:
        _write({"error": str(failed)})
        sys.exit(3)
