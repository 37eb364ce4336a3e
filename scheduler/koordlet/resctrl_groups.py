"""The resctrl groups of a node: those of the classes, and of pods with the annotation (RC-1, RC-4 to RC-6, KM-18)."""

import errno
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.koordlet.cgroups import TASKS, CgroupError, Cgroups
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.resctrl import ANNOTATION, GROUPS, ResctrlError, bandwidth, cache_mask, line, pod_lines
from seatrial.scheduler.koordlet.strategies import QosStrategy
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

POD_GROUP = "koordlet-"  # and the uid
_DEFAULTS = {"LSR": (0, 100), "LS": (0, 100), "BE": (0, 30)}  # range of the cache in percent
_MONITORED = "mon_L3_"  # and the number of the cache
_COUNTERS = (
    ("koordlet_resctrl_llc_occupancy", "Bytes of a cache that a class has.", ("llc_occupancy",)),
    (
        "koordlet_resctrl_memory_bandwidth",
        "Bytes that a class moved between a cache and memory.",
        ("mbm_local_bytes", "mbm_total_bytes"),
    ),
)


class _Caches(NamedTuple):
    """The caches of the node by ID, the ways that each has, and whether an AMD CPU limits bandwidth."""

    ids: list[int]
    cbm: str
    amd: bool


class Resctrl:
    """Writes groups below `root`, where the kernel's file system is mounted."""

    def __init__(self, root: Path, proc: Path, cgroups: Cgroups) -> None:
        self._root, self._proc, self._cgroups = root, proc, cgroups
        self._say = Once(log)

    @property
    def mounted(self) -> bool:
        return (self._root / "schemata").exists()

    def prepare(self, pod: LocalPod) -> None:
        """Write the group of a pod with the annotation, before it has tasks."""
        caches = self._read()
        if caches is not None:
            self._own_group(pod, caches)

    def group_of(self, pod: LocalPod) -> str:
        """The name of the pod's own group; "" if it has none."""
        group = f"{POD_GROUP}{pod.uid}"
        return group if ANNOTATION in pod.pod.metadata.annotations and (self._root / group).is_dir() else ""

    def reconcile(self, pods: Iterable[LocalPod], qos: QosStrategy) -> None:
        """Write the lines of all groups, move the tasks of pods into theirs, remove groups of pods that are gone."""
        pods = list(pods)
        caches = self._read()
        if caches is None:
            return
        for group, of in {"LSR": qos.lsr, "LS": qos.ls, "BE": qos.be}.items():
            config = of.resctrl
            start, end = _DEFAULTS[group] if config.enable else (0, 100)
            if config.enable:
                start = start if config.cat_range_start_percent is None else config.cat_range_start_percent
                end = end if config.cat_range_end_percent is None else config.cat_range_end_percent
            try:
                mask = cache_mask(caches.cbm, start, end)
            except ResctrlError as error:
                self._say(group, f"resctrl {group}: {error}")
                continue
            limit = bandwidth(config.mba_percent if config.enable else 100, amd=caches.amd)
            lines = [line("L3", dict.fromkeys(caches.ids, mask))]
            self._write(group, [*lines, *([line("MB", dict.fromkeys(caches.ids, limit))] if limit else [])])
        alive = {f"{POD_GROUP}{pod.uid}" for pod in pods if ANNOTATION in pod.pod.metadata.annotations}
        for pod in pods:
            own = ANNOTATION in pod.pod.metadata.annotations
            group = self._own_group(pod, caches) if own else GROUPS.get(pod.qos, "")
            if group:
                self._move(group, self._tasks(pod))
        for folder in self._root.glob(f"{POD_GROUP}*"):
            if folder.name not in alive:
                self._remove(folder)

    def families(self, labels: Mapping[str, str]) -> Iterator[Family]:
        """What each class has of each cache, under Koordinator's names (KM-18); `labels`: of the node."""
        for name, text, files in _COUNTERS:
            rows = []
            for group, folder in self._monitored():
                cache = folder.name.removeprefix(_MONITORED)
                own = {**labels, "cache_id": str(integer(cache)), "qos": group}
                for file in files:
                    value = self._counter(group, folder / file)
                    if value is not None:
                        rows.append(sample(name, {**own, "mb_type": file} if len(files) > 1 else own, value))
            if rows:
                yield name, "gauge", text, rows

    def _monitored(self) -> Iterator[tuple[str, Path]]:
        """The classes, with the folders of the caches of which the kernel counts their use."""
        for group in _DEFAULTS:
            for folder in sorted((self._root / group / "mon_data").glob(f"{_MONITORED}*")):
                if integer(folder.name.removeprefix(_MONITORED), 0) is not None:
                    yield group, folder

    def _counter(self, group: str, path: Path) -> int | None:
        """None: the CPU does not count it, or not now; the kernel then writes a word."""
        try:
            return integer(path.read_text(encoding="ascii", errors="replace").strip(), 0)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._say(f"{group}/{path.name}", f"resctrl {group}: {path.name}: {error.strerror}")
            return None

    def _read(self) -> _Caches | None:
        """None: a file cannot be read."""
        try:
            return _Caches(
                _caches((self._root / "schemata").read_text(encoding="ascii")),
                (self._root / "info/L3/cbm_mask").read_text(encoding="ascii").strip(),
                "AuthenticAMD" in (self._proc / "cpuinfo").read_text(encoding="ascii", errors="replace"),
            )
        except OSError as error:
            self._say("", f"resctrl: {error.filename}: {error.strerror}")
            return None

    def _own_group(self, pod: LocalPod, caches: _Caches) -> str:
        """Write the group of a pod with the annotation; "" without one that can be read."""
        text = pod.pod.metadata.annotations.get(ANNOTATION)
        if text is None:
            return ""
        try:
            lines = pod_lines(text, caches.ids, caches.cbm, amd=caches.amd)
        except ResctrlError as error:
            self._say(pod.uid, f"pod {pod.pod.metadata.namespace}/{pod.pod.metadata.name}: {error}")
            return ""
        group = f"{POD_GROUP}{pod.uid}"
        self._write(group, lines)
        return group

    def _tasks(self, pod: LocalPod) -> set[int]:
        """The tasks of all groups below the pod's: those of the sandbox too, which no status names (RC-5)."""
        numbers: set[int] = set()
        for folder in self._cgroups.children(pod.folder, "cpu"):
            try:
                words = self._cgroups.read(folder, TASKS).split()
            except CgroupError:
                continue  # gone
            numbers |= {number for number in map(integer, words) if number is not None}
        return numbers

    def _write(self, group: str, lines: list[str]) -> None:
        """Write the lines if one of them differs; the kernel keeps what they do not name."""
        path = self._root / group / "schemata"
        try:
            path.parent.mkdir(exist_ok=True)
            written = path.read_text(encoding="ascii").split() if path.exists() else []
            if not {each.strip(";") for each in lines} <= {each.strip(";") for each in written}:
                path.write_text("".join(f"{each}\n" for each in lines), encoding="ascii")
        except OSError as error:
            self._say(group, f"resctrl {group}: {error.strerror}")

    def _move(self, group: str, tasks: set[int]) -> None:
        path = self._root / group / "tasks"
        try:
            have = set(map(integer, path.read_text(encoding="ascii").split())) if path.exists() else set()
            for task in sorted(tasks - have):
                with path.open("a", encoding="ascii") as opened:
                    opened.write(f"{task}\n")
        except OSError as error:
            if error.errno != errno.ESRCH:  # it has ended meanwhile
                self._say(group, f"resctrl {group}: {error.strerror}")

    def _remove(self, folder: Path) -> None:
        """The kernel removes the files of a group with its folder; in a fake root they are in the way."""
        try:
            folder.rmdir()
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)


def _caches(schemata: str) -> list[int]:
    """The caches of the line L3."""
    for each in schemata.splitlines():
        name, _, values = each.strip().partition(":")
        if name == "L3":
            results = [integer(part.partition("=")[0]) for part in values.split(";")]
            return sorted(number for number in results if number is not None)
    return []
