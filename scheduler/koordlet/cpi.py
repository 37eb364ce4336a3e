"""Cycles and instructions of containers (KM-17), as the kernel's performance events count them.

Two events for the control group of a container are one perf group on each CPU, so that the kernel counts both at the
same time. In cgroup v1 the groups are in the hierarchy of perf_event.
"""

import ctypes
import errno
import fcntl
import logging
import os
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.koordlet.cgroups import Cgroups, File
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

PERIOD, WINDOW = 60.0, 10.0  # seconds between two rounds, and of one
FIELDS = ("cycles", "instructions")
_GROUP = File("cgroup.procs", "perf_event", "cgroup.procs")  # a file that each group has
_CALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open, by architecture
_HARDWARE, _SIZE = 0, 64  # of linux/perf_event.h: PERF_TYPE_HARDWARE, PERF_ATTR_SIZE_VER0
_FORMAT = 1 | 2 | 8  # PERF_FORMAT_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING, _GROUP
_DISABLED = 1
_PID_CGROUP, _CLOEXEC = 4, 8
_ENABLE = 0x2400  # PERF_EVENT_IOC_ENABLE
_ATTRIBUTES, _COUNTS = struct.Struct("=IIQQQQQIIQ"), struct.Struct("=5Q")


class PerfEvents:
    """The kernel's events."""

    def __init__(self, kind: int = _HARDWARE, events: tuple[int, int] = (0, 1)) -> None:
        """`kind` and `events` of linux/perf_event.h: by default the CPU's cycles and instructions."""
        self._kind, self._events = kind, events
        self._libc = ctypes.CDLL(None, use_errno=True)

    def why_not(self) -> str:
        """Why this kernel does not count them; empty if it does."""
        try:
            os.close(self._open(0, 0, -1, -1))
        except OSError as error:
            missing = error.errno in {errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP}
            return "the kernel has no counters of the CPU (PMU)" if missing else str(error.strerror)
        return ""

    def count(self, group: Path, cpu: int, until: ExitStack) -> int:
        """Count on one CPU what runs in a control group, until the stack ends. Returns the descriptor for `read`.

        Raises:
            OSError: the kernel refuses it, or there is no such group.
        """
        with ExitStack() as opened:
            folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            leader = self._open(0, folder, cpu, -1)
            until.callback(os.close, leader)
            until.callback(os.close, self._open(1, folder, cpu, leader))
        fcntl.ioctl(leader, _ENABLE)
        return leader

    def read(self, descriptor: int) -> bytes:
        """What was counted up to now, as the kernel writes it."""
        return os.read(descriptor, _COUNTS.size)

    def _open(self, number: int, pid: int, cpu: int, leader: int) -> int:
        state = _DISABLED if leader < 0 else 0  # members count while their leader does
        attributes = _ATTRIBUTES.pack(self._kind, _SIZE, self._events[number], 0, 0, _FORMAT, state, 0, 0, 0)
        flags = _CLOEXEC if cpu < 0 else _CLOEXEC | _PID_CGROUP
        call = _CALLS.get(platform.machine())
        if call is None:
            raise OSError(errno.EOPNOTSUPP, f"no system call is known for {platform.machine()}")
        descriptor: int = self._libc.syscall(call, attributes, pid, cpu, leader, flags)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return descriptor


def scaled(counts: bytes) -> tuple[float, float] | None:
    """Cycles and instructions of one CPU; None if the group never ran.

    What was counted in a part of the time stands for the whole time.
    """
    _, enabled, running, *values = _COUNTS.unpack(counts)
    if not running:
        return None
    first, second = (value * enabled / running for value in values)
    return first, second


class CpiCollector:
    """Counts in rounds, and keeps the results of the last one."""

    def __init__(self, cgroups: Cgroups, clock: Clock, cpus: Iterable[int], events: PerfEvents) -> None:
        self._cgroups, self._clock, self._cpus, self._events = cgroups, clock, tuple(cpus), events
        self._last: list[tuple[dict[str, str], tuple[float, float]]] = []
        self._open = ExitStack()
        self._supported: bool | None = None  # None: not tried
        self._say = Once(log)

    def begin(self, pods: Iterable[LocalPod]) -> None:
        """Count for WINDOW seconds, in the containers that are active now."""
        if self._supported is None:
            why = self._events.why_not() or self._without_hierarchy()
            self._supported = not why
            if why:
                log.warning("CPICollector: cycles and instructions are not counted: %s", why)
        if not self._supported:
            return
        self._open.close()
        counting = [(labels, self._count(uid, folder)) for uid, labels, folder in _containers(pods)]
        self._clock.call_later(WINDOW, lambda: self._end(counting))

    def _without_hierarchy(self) -> str:
        above = self._cgroups.path("", _GROUP).parent
        return "" if above.is_dir() else f"{above}: no hierarchy of control groups is mounted there"

    def _count(self, uid: str, folder: str) -> list[int]:
        """The descriptors of a container on all CPUs; none where it cannot be counted."""
        opened = ExitStack()
        try:
            group = self._cgroups.path(folder, _GROUP).parent
            descriptors = [self._events.count(group, cpu, opened) for cpu in self._cpus]
        except OSError as error:
            opened.close()
            if not isinstance(error, FileNotFoundError):  # the container is gone
                self._say(uid, f"CPICollector: group {folder}: {error.strerror}")
            return []
        self._open.callback(opened.close)
        return descriptors

    def _end(self, counting: list[tuple[dict[str, str], list[int]]]) -> None:
        self._last = []
        with self._open:
            for labels, descriptors in counting:
                values: list[tuple[float, float]] = []
                for descriptor in descriptors:
                    with suppress(OSError):
                        counts = scaled(self._events.read(descriptor))
                        values += [counts] if counts is not None else []
                if values:
                    first, second = (sum(each) for each in zip(*values, strict=True))
                    self._last.append((labels, (first, second)))

    def stop(self) -> None:
        """Close what counts."""
        self._open.close()

    def families(self, labels: Mapping[str, str]) -> Iterator[Family]:
        """The metric family under Koordinator's name; `labels`: of the node."""
        name = "koordlet_container_cpi"
        rows = [
            sample(name, {**labels, **own, "cpi_field": field}, value)
            for own, values in self._last
            for field, value in zip(FIELDS, values, strict=True)
        ]
        if rows:
            yield name, "gauge", "Cycles and instructions of a container in ten seconds.", rows


def _containers(pods: Iterable[LocalPod]) -> Iterator[tuple[str, dict[str, str], str]]:
    """The uid of the pod, the labels and the control group of each container."""
    for pod in pods:
        metadata = pod.pod.metadata
        for status in pod.pod.status.container_statuses:
            if pod.active and status.name in pod.containers:
                yield (
                    pod.uid,
                    {
                        "container_id": status.container_id,
                        "container_name": status.name,
                        "pod_uid": pod.uid,
                        "pod_name": metadata.name,
                        "pod_namespace": metadata.namespace,
                    },
                    pod.containers[status.name],
                )
