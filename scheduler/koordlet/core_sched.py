"""Core scheduling: tasks of different groups never run on two threads of one core at a time (HK-9).

The kernel knows a group by a cookie, which prctl(PR_SCHED_CORE) makes for a process and copies to others.
"""

import ctypes
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import LSE, LSR
from seatrial.scheduler.koordlet.cgroups import PROCESSES, CgroupError, Cgroups
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.strategies import CpuQos, QosStrategy
from seatrial.scheduler.pods.qos import BE, LS
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

POLICY = "coreSched"  # value of cpuPolicy
GROUP_LABEL, POLICY_LABEL = "koordinator.sh/core-sched-group-id", "koordinator.sh/core-sched-policy"
_PR_SCHED_CORE, _GET, _CREATE, _SHARE_TO, _SHARE_FROM = 62, 0, 1, 2, 3
_THREAD, _THREAD_GROUP = 0, 1  # scopes
_WITHOUT_COOKIE = 1  # a process from which the cookie 0 is copied


class Cookies(Protocol):
    """The cookies of processes; each method raises OSError if the process is gone or the kernel refuses."""

    def get(self, process: int) -> int:
        """0: none."""

    def create(self, process: int) -> None:
        """A new cookie for a process."""

    def share(self, source: int, target: int) -> None:
        """The cookie of one process for another, also 0."""


class KernelCookies:
    """Cookies of the running kernel, 5.14 or later with CONFIG_SCHED_CORE. Not verified on one that has it."""

    def __init__(self) -> None:
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def _call(self, command: int, process: int, scope: int, answer: object = 0) -> None:
        if self._prctl(_PR_SCHED_CORE, command, process, scope, answer) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def get(self, process: int) -> int:
        c_ulong = ctypes.c_ulong()
        self._call(_GET, process, _THREAD, ctypes.byref(c_ulong))
        return c_ulong.value

    def create(self, process: int) -> None:
        self._call(_CREATE, process, _THREAD_GROUP)

    def share(self, source: int, target: int) -> None:
        """Through this thread, which has no cookie afterwards."""
        self._call(_SHARE_FROM, source, _THREAD)
        try:
            self._call(_SHARE_TO, target, _THREAD_GROUP)
        finally:
            self._call(_SHARE_FROM, _WITHOUT_COOKIE, _THREAD)


class FileCookies:
    """Cookies of a fake root, in `core_sched_cookie` of each process's folder."""

    def __init__(self, proc: Path) -> None:
        self._proc, self._last = proc, 0

    def get(self, process: int) -> int:
        if not (self._proc / str(process)).is_dir() and process != _WITHOUT_COOKIE:
            raise ProcessLookupError(process)
        path = self._proc / str(process) / "core_sched_cookie"
        return integer(path.read_text(encoding="ascii").strip()) or 0 if path.exists() else 0

    def _set(self, process: int, cookie: int) -> None:
        (self._proc / str(process) / "core_sched_cookie").write_text(str(cookie), encoding="ascii")

    def create(self, process: int) -> None:
        self._last += 1
        self._set(process, self._last)

    def share(self, source: int, target: int) -> None:
        self._set(target, self.get(source))


def group_of(pod: LocalPod, qos: QosStrategy) -> str | None:
    """The group of a pod's tasks; None: they have no cookie."""
    own = {LSE: qos.lsr, LSR: qos.lsr, LS: qos.ls, BE: qos.be}.get(pod.qos)
    labels = pod.pod.metadata.labels
    if qos.policies.get("cpuPolicy") != POLICY or own is None or not own.cpu.enable:
        return None
    policy = labels.get(POLICY_LABEL, "")
    if policy == "none":
        return None
    group = pod.uid if policy == "exclusive" else labels.get(GROUP_LABEL, "")
    return f"{group}-expeller" if expels(own.cpu, pod.qos) else group


def expels(config: CpuQos, name: str) -> bool:
    """Whether tasks of a class send those of other groups off their core; all but BE do by default."""
    return name != BE if config.core_expeller is None else config.core_expeller


class CoreScheduling:
    """Gives the processes of each group one cookie, and remembers it."""

    def __init__(self, cgroups: Cgroups, cookies: Cookies) -> None:
        self._cgroups, self._cookies = cgroups, cookies
        self._of_group: dict[str, int] = {}
        self._active: set[int] = set()
        self._say = Once(log)

    def reconcile(self, pods: Iterable[LocalPod], qos: QosStrategy) -> None:
        """Make and copy cookies; take them from pods that are in no group any more."""
        groups: dict[str | None, list[int]] = {}
        for pod in pods:
            groups.setdefault(group_of(pod, qos), []).extend(self._processes(pod))
        self._of_group = {group: cookie for group, cookie in self._of_group.items() if group in groups}
        for group, processes in groups.items():
            try:
                if group is None:
                    self._clear(processes)
                else:
                    self._share(group, processes)
                self._say(group, "")
            except ProcessLookupError:
                continue  # it has ended meanwhile: the next round sees the others
            except OSError as error:
                self._say(group, f"core scheduling of group {group!r}: {error.strerror}")

    def _clear(self, processes: Iterable[int]) -> None:
        for process in processes:
            if self._cookies.get(process) in self._active:
                self._cookies.share(_WITHOUT_COOKIE, process)

    def _share(self, group: str, processes: list[int]) -> None:
        have = {process: self._cookies.get(process) for process in processes}
        source = next((each for each, cookie in have.items() if cookie and cookie == self._of_group.get(group)), None)
        if source is None and have:
            source = next(iter(have))
            self._cookies.create(source)
            self._of_group[group] = have[source] = self._cookies.get(source)
            self._active.add(have[source])
        for process, cookie in have.items():
            if source is not None and cookie != self._of_group[group]:
                self._cookies.share(source, process)

    def _processes(self, pod: LocalPod) -> list[int]:
        numbers: list[int] = []
        for folder in pod.containers.values():
            try:
                words = self._cgroups.read(folder, PROCESSES).split()
            except CgroupError:
                continue
            numbers += [number for number in map(integer, words) if number is not None]
        return numbers
