"""Control groups for pods, if this process may create them: version 2 if it is mounted, else version 1.

It needs a writable tree of groups: root has one, and systemd can delegate one to a user. Below one group of its own
they are as kubelet makes them: `kubepods`, a group for each class, each pod and each container.
"""

import contextlib
import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.harness.nodes.runtimes.commands import Limits

log = logging.getLogger(__name__)

PERIOD = 100_000  # microseconds, the CFS period of kubelet
_LEAST_QUOTA = 1_000
_LEAST_SHARES = 2
_TRIES, _PAUSE = 50, 0.01  # attempts to remove groups, and seconds between them
_CONTROLLERS = ("cpu", "memory")
_OPTIONAL = ("cpuset", "cpuacct", "blkio")  # used where they are; part of `cpu` in version 2
_CLASSES = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
_BURSTABLE, _BEST_EFFORT = "Burstable", "BestEffort"


class Cgroups:
    """The group of a runtime, or the reason why there is none."""

    def __init__(
        self,
        version: int,
        parents: Mapping[str, Path],
        why: str = "",
        *,
        path: str = "",
        systemd: bool = False,
        others: Iterable[Path] = (),
    ) -> None:
        """
        Args:
            version: Of the control groups.
            parents: Controller → folder of the group; in version 2 all are one folder.
            why: Why there is none.
            path: Of the group in each hierarchy, as kubelet's --cgroup-root.
            systemd: Whether groups have the names that kubelet's driver systemd gives them; else those of cgroupfs.
            others: The group in further hierarchies, where a container engine makes groups too.
        """
        self.version, self.parents, self.why, self.path, self._systemd = version, dict(parents), why, path, systemd
        self._others = tuple(others)
        self._requests: dict[str, int] = {}  # thousandths of a core by burstable pod

    def __bool__(self) -> bool:
        return bool(self.parents)

    def __str__(self) -> str:
        return f"cgroup v{self.version}" if self else f"by process, cores by affinity (no control groups: {self.why})"

    def pod(self, qos: str, uid: str) -> str:
        """The folder of a pod of a Kubernetes QoS class, relative to the group."""
        kind = _CLASSES.get(qos, _CLASSES[_BEST_EFFORT])  # a status may say anything
        if not self._systemd:
            return "/".join(filter(None, ("kubepods", kind, f"pod{uid}")))
        names = ["kubepods", *([f"kubepods-{kind}"] if kind else ())]
        return "/".join(f"{name}.slice" for name in (*names, f"{names[-1]}-pod{uid.replace('-', '_')}"))

    def open_pod(self, qos: str, uid: str, containers: Sequence[Limits]) -> str:
        """Create the group of a pod with what its containers have together. Returns its folder."""
        folder, whole = self.pod(qos, uid), together(containers)
        if not all((parent / folder).is_dir() for parent in self.parents.values()):
            self.make(folder, whole)
            if qos == _BURSTABLE:
                self._requests[uid] = whole.request
            self._share()
        return folder

    def close_pod(self, qos: str, uid: str) -> None:
        """Remove the group of a pod whose containers have ended."""
        remove([parent / self.pod(qos, uid) for parent in self._everywhere()])
        self._requests.pop(uid, None)
        self._share()

    def _share(self) -> None:
        """Burstable pods weigh what they request, best-effort pods nothing."""
        for qos, request in ((_BURSTABLE, sum(self._requests.values())), (_BEST_EFFORT, 0)):
            folder = self.parents.get("cpu", Path()) / Path(self.pod(qos, "")).parent
            if self and folder.is_dir():
                self._set(folder, self._settings("cpu", Limits(request=request)))

    def container(self, pod: str, name: str) -> str:
        """The folder of a container; `name` is its ID without the runtime's prefix."""
        return f"{pod}/cri-containerd-{name}.scope" if self._systemd else f"{pod}/{name}"

    def make(self, folder: str, limits: Limits) -> tuple[Path, ...]:
        """Create a group with these limits. Returns its folders for `remove`; empty if no group can be created."""
        made: list[Path] = []
        for controller, parent in self.parents.items():
            here = parent
            for name in folder.split("/"):
                above, here = here, here / name
                if not here.is_dir():
                    here.mkdir(exist_ok=True)
                    self.open_below(above, here)
            if here not in made:
                made.append(here)
            self._set(here, self._settings(controller, limits))
        return tuple(made)

    def open_below(self, above: Path, folder: Path) -> None:
        """Make a new group usable: it needs CPUs in version 1; in version 2 its parent hands controllers down."""
        if self.version == 2:
            hand_down(above)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if self.version == 1 and (folder / name).exists():
                (folder / name).write_text((above / name).read_text(encoding="ascii"), encoding="ascii")

    def _set(self, folder: Path, settings: Iterable[tuple[str, str]]) -> None:
        for file, value in settings:
            if "swap" in file and not (folder / file).exists():
                continue  # a kernel or machine without swap
            try:
                (folder / file).write_text(value, encoding="ascii")
            except OSError as error:
                log.warning("limit refused group=%s file=%s value=%s why=%s", folder, file, value, error.strerror)

    def clear(self) -> bool:
        """Remove the group, and the groups in it. Processes in them are killed. Returns whether all are removed."""
        for parent in self._everywhere():
            with contextlib.suppress(OSError):
                for _ in range(_TRIES):
                    groups = [parent, *(path for path in parent.rglob("*") if path.is_dir())]
                    for pid in {pid for group in groups for pid in _members(group)}:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    if remove(groups[::-1]):
                        break
                    time.sleep(_PAUSE)  # a killed process stays in its group until the kernel has released it
        return not any(parent.exists() for parent in self._everywhere())

    def _everywhere(self) -> set[Path]:
        return {*self.parents.values(), *self._others}

    def _settings(self, controller: str, limits: Limits) -> Iterator[tuple[str, str]]:
        if controller == "cpu":
            shares = max(_LEAST_SHARES, limits.request * 1024 // 1000)
            if self.version == 2:
                yield "cpu.weight", str(1 + (shares - _LEAST_SHARES) * 9999 // 262142)
            else:
                yield "cpu.shares", str(shares)
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


def together(containers: Sequence[Limits]) -> Limits:
    """What a pod gets: a limit only if all containers have one, as by kubelet."""
    cpu, memory = [each.cpu for each in containers], [each.memory for each in containers]
    return Limits(
        None if None in cpu or not cpu else sum(filter(None, cpu)),
        None if None in memory or not memory else sum(filter(None, memory)),
        sum(each.request for each in containers),
    )


def _members(group: Path) -> list[int]:
    """The processes in a group, but those of other namespaces, which all have the number 0."""
    try:
        return [pid for line in (group / "cgroup.procs").read_text(encoding="ascii").split() if (pid := int(line))]
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


def find(
    name: str, *, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup"), systemd: bool = False
) -> Cgroups:
    """The group `name` below the group of this process, or below its parent if the own group may have no children.

    In version 1 it is below the innermost group that this process is in, in all hierarchies: a node agent looks for it
    under one path.
    """
    try:
        mounted = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        return Cgroups(0, {}, f"{error.filename}: {error.strerror}")
    why = "no control groups are mounted"
    for device in mounted:
        if device[2] == "cgroup2":
            mount = Path(device[1])
            at = next((path for number, _, path in lines if number == "0"), "/")
            parent, why = _second_version(mount, at, name)
            if parent is not None:
                path = str(parent.relative_to(mount))
                return Cgroups(2, dict.fromkeys(_CONTROLLERS, parent), path=path, systemd=systemd)
    places: dict[str, Path] = {}
    for controller in (*_CONTROLLERS, *_OPTIONAL):
        place = next((row[1] for row in mounted if row[2] == "cgroup" and controller in row[3].split(",")), None)
        if place is not None:
            places[controller] = Path(place)
        elif controller in _CONTROLLERS:
            return Cgroups(0, {}, why)
    own_groups = [path for _, names, path in lines if set(names.split(",")) & places.keys()]
    at = os.path.commonpath(own_groups).lstrip("/") if own_groups else ""
    at = at if all((mount / at).is_dir() for mount in places.values()) else ""  # a path of another namespace
    others = [Path(row[1]) / at / name for row in mounted if row[2] in {"cgroup", "cgroup2"}]
    groups = Cgroups(1, {}, path=f"{at}/{name}".lstrip("/"), systemd=systemd, others=others)
    for controller, mount in places.items():
        parent = _writable(mount / at / name)
        if parent is None:
            return Cgroups(0, {}, f"{mount / at} is not writable")
        groups.open_below(mount / at, parent)
        groups.parents[controller] = parent
    return groups


def _second_version(mount: Path, at: str, name: str) -> tuple[Path | None, str]:
    folder = _below(mount, at)
    why = f"{folder} is not writable"
    while True:
        parent = _writable(folder / name)
        if parent is not None:
            hand_down(folder)
            if hand_down(parent):
                return parent, ""
            remove([parent])
            why = f"{folder} does not hand its controllers {' and '.join(_CONTROLLERS)} down"
        if folder == mount:
            return None, why
        folder = folder.parent


def hand_down(folder: Path) -> bool:
    """Enable limits for the groups below a group of version 2. Returns whether that worked."""
    for controllers in ("+cpu +memory", "+cpuset"):
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(controllers, encoding="ascii")
    try:
        return set(_CONTROLLERS) <= set((folder / "cgroup.subtree_control").read_text(encoding="ascii").split())
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
