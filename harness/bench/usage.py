"""Processor time of processes over an interval, and of all other programs on the machine; from /proc."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of one core by process name, over `seconds`; `others` is the share of all other programs."""

    seconds: float
    shares: dict[str, float]
    others: float


class Meter:
    """Measures from its construction to each call of `read`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._start = time.perf_counter()
        self._before = {name: _spent(pid) for name, pid in pids.items()}
        self._all_before = _all_spent()

    def read(self) -> Usage:
        """The usage since this meter was created."""
        seconds = max(time.perf_counter() - self._start, 1e-9)
        used = {name: _spent(pid) - self._before[name] for name, pid in self._pids.items()}
        others = max(0.0, _all_spent() - self._all_before - sum(used.values()))
        return Usage(
            seconds, {name: round(spent / seconds, 2) for name, spent in used.items()}, round(others / seconds, 2)
        )


def _spent(pid: int) -> float:
    """Seconds of processor time of a process, in user mode and in the kernel."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICK


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def spent_in_kernel(pid: int) -> float:
    """Seconds of processor time that the kernel spent for a process: mostly its sockets."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[12]) / _TICK


def _all_spent() -> float:
    """Seconds of processor time that all cores were busy."""
    user, nice, system, _, _, irq, soft_irq, *_ = (
        int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft_irq) / _TICK
