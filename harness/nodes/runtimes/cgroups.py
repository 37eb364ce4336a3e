"""Control groups for containers, if this process may create them: version 2 if it is mounted, else version 1.

It needs a writable tree of groups: root has one, and systemd can delegate one to a user.
"""

import contextlib
import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from seatrial.harness.nodes.runtimes.commands import Limits

log = logging.getLogger(__name__)

PERIOD = 100_000  # microseconds, the CFS period of kubelet
_LEAST_QUOTA = 1_000
_TRIES, _PAUSE = 50, 0.01  # attempts to remove groups, and seconds between them
_CONTROLLERS = ("cpu", "memory")


class Cgroups:
    """The parent folder of groups, or the reason why there is none."""

    def __init__(self, version: int, parents: Mapping[str, Path], why: str = "") -> None:
        """`parents`: controller → folder in which groups are made; in version 2 both are one folder."""
        self.version, self.parents, self.why = version, dict(parents), why

    def __bool__(self) -> bool:
        return bool(self.parents)

    def __str__(self) -> str:
        return f"cgroup v{self.version}" if self else f"by process, cores by affinity (no control groups: {self.why})"

    def make(self, name: str, limits: Limits) -> tuple[Path, ...]:
        """Create a group with these limits. Returns its folders for `remove`; empty if no group can be created."""
        made: list[Path] = []
        for controller in _CONTROLLERS if self else ():
            folder = self.parents[controller] / name
            if folder not in made:
                folder.mkdir(exist_ok=True)
                made.append(folder)
            for file, value in self._settings(controller, limits):
                if "swap" in file and not (folder / file).exists():
                    continue  # a kernel or machine without swap
                try:
                    (folder / file).write_text(value, encoding="ascii")
                except OSError as error:
                    log.warning("limit refused group=%s file=%s value=%s why=%s", name, file, value, error.strerror)
        return tuple(made)

    def clear(self) -> None:
        """Remove the parents that were created here, and the groups in them. Processes in them are killed."""
        for parent in set(self.parents.values()):
            with contextlib.suppress(OSError):
                groups = [group for group in parent.iterdir() if group.is_dir()]
                for pid in {pid for group in groups for pid in _members(group)}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                for _ in range(_TRIES):
                    if remove([*groups, parent]):
                        break
                    time.sleep(_PAUSE)  # a killed process stays in its group until the kernel has released it

    def _settings(self, controller: str, limits: Limits) -> Iterator[tuple[str, str]]:
        if controller == "cpu" and limits.cpu is not None:
            quota = max(_LEAST_QUOTA, limits.cpu * PERIOD // 1000)
            if self.version == 2:
                yield "cpu.max", f"{quota} {PERIOD}"
            else:
                yield "cpu.cfs_period_us", str(PERIOD)
                yield "cpu.cfs_quota_us", str(quota)
        if controller == "memory" and limits.memory is not None:
            if self.version == 2:
                yield "memory.max", str(limits.memory)
                yield "memory.swap.max", "0"
                yield "memory.oom.group", "1"  # out of memory: the whole container is killed
            else:
                yield "memory.limit_in_bytes", str(limits.memory)


def _members(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return []


def remove(folders: list[Path] | tuple[Path, ...]) -> bool:
    """Remove empty groups. Returns whether all are removed."""
    gone = True
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone


def name_for(root: Path) -> str:
    """The name of the groups of the runtime whose folder is `root`."""
    return f"seatrial-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}"


def find(name: str, *, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")) -> Cgroups:
    """The groups `name` below the group of this process, or below its parent if the own group may have no children."""
    try:
        mounted = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        return Cgroups(0, {}, f"{error.filename}: {error.strerror}")
    why = "no control groups are mounted"
    for device in mounted:
        if device[2] == "cgroup2":
            at = next((path for number, _, path in lines if number == "0"), "/")
            parent, why = _second_version(Path(device[1]), at, name)
            if parent is not None:
                return Cgroups(2, dict.fromkeys(_CONTROLLERS, parent))
    parents: dict[str, Path] = {}
    for controller in _CONTROLLERS:
        mount = next((row[1] for row in mounted if row[2] == "cgroup" and controller in row[3].split(",")), None)
        if mount is None:
            return Cgroups(0, {}, why)
        at = next((path for _, names, path in lines if controller in names.split(",")), "/")
        parent = _writable(_below(Path(mount), at) / name)
        if parent is None:
            return Cgroups(0, {}, f"{_below(Path(mount), at)} is not writable")
        parents[controller] = parent
    return Cgroups(1, parents)


def _second_version(mount: Path, at: str, name: str) -> tuple[Path | None, str]:
    folder = _below(mount, at)
    why = f"{folder} is not writable"
    while True:
        parent = _writable(folder / name)
        if parent is not None:
            if _offers(folder, parent):
                return parent, ""
            remove([parent])
            why = f"{folder} does not hand its controllers {' and '.join(_CONTROLLERS)} down"
        if folder == mount:
            return None, why
        folder = folder.parent


def _offers(folder: Path, parent: Path) -> bool:
    """Enable limits for groups below `parent`. Returns whether that worked."""
    for each in (folder, parent):
        with contextlib.suppress(OSError):
            (each / "cgroup.subtree_control").write_text("+cpu +memory", encoding="ascii")
    try:
        return set(_CONTROLLERS) <= set((parent / "cgroup.subtree_control").read_text(encoding="ascii").split())
    except OSError:
        return False


def _below(mount: Path, at: str) -> Path:
    """The folder of a group; the mount itself if the path belongs to another namespace."""
    folder = mount / at.lstrip("/")
    return folder if folder.is_dir() else mount


def _writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
