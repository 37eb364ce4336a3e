"""What runs that were killed left on this machine: processes and files of their pods, and control groups.

A run is known by the process ID and the start time in the name of what it makes. Those of pods have a meaning only in
the boot and in the namespace of process IDs that are kept beside them.
"""

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

from seatrial.harness.clusters.detached import state_folder
from seatrial.harness.nodes.runtimes import cgroups
from seatrial.harness.nodes.runtimes.supervised_process import STATUS, end_leftovers, read_status
from seatrial.harness.processes import has_ended, own_identity
from seatrial.scheduler.api.private_files import write_private

log = logging.getLogger(__name__)

CGROUPS = Path("/sys/fs/cgroup")
KUBELET_CGROUP = "seatrial-kubelet-"  # the prefix of the group of a kubelet's pods
OWN_GROUPS = Path("/proc/self/cgroup")
_PLACE, _GROUPS = ".place", ".cgroup"  # in a folder of pods; no pod has such a uid
_BOOT, _PID_SPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
_POLL = 0.05  # seconds


def new_pods_folder() -> Path:
    """A folder for the pods of this process. It also has the control groups of the process, below which its pods' are.

    A successor may be in others, as each session of systemd is.
    """
    folder = _pods() / own_identity()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(folder / _GROUPS, OWN_GROUPS.read_bytes())
    write_private(folder / _PLACE, _place().encode())
    return folder


def end_abandoned() -> None:
    """End and remove what is left of runs whose process has ended. Runs that live, and other programs, stay."""
    place = _place()
    for folder in _pods().glob("*-*"):
        recorded = _text(folder / _PLACE)
        if not has_ended(folder.name) or (recorded != place and recorded.split()[:1] == place.split()[:1]):
            continue  # in another namespace of process IDs it may live
        if recorded == place:
            # By pod, container and run; deeper down, and in hidden folders, are the containers' own files.
            for pattern in (f"[!.]*/[!.]*/*/{STATUS}", f"[!.]*/[!.]*/*/exec-*/{STATUS}"):
                for status in folder.glob(pattern):
                    end_leftovers(read_status(status))
            if not cgroups.find(cgroups.name_for(folder), own=folder / _GROUPS).clear():
                log.warning("groups left folder=%s", folder)
                continue  # the next one tries again
        shutil.rmtree(folder, ignore_errors=True)
    for hierarchy in hierarchies():
        for folder in hierarchy.glob(f"{KUBELET_CGROUP}*-*"):
            if has_ended(folder.name.removeprefix(KUBELET_CGROUP)):
                remove_cgroups(folder.name)


def hierarchies() -> list[Path]:
    """The roots of control groups: one in version 2, one for each controller in version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(folder.resolve() for folder in CGROUPS.glob("*") if folder.is_dir() and not folder.is_symlink())


def remove_cgroups(name: str) -> None:
    """Remove a group and those below it; processes in them have ended."""
    for hierarchy in hierarchies():
        top = hierarchy / name
        for _ in range(100):
            folders = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
            for folder in folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            if not top.exists():
                break
            time.sleep(_POLL)  # a killed process stays in its group until the kernel has released it


def _pods() -> Path:
    return state_folder().parent / "pods"


def _place() -> str:
    """This boot, and the namespace of process IDs."""
    return f"{_text(_BOOT)} {_PID_SPACE.readlink()}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
