"""Files of the Container Device Interface: what a container runtime adds to a container that has a prepared device.

One file for each claim. Its kind is `k8s.DRIVER/claim`, as the drivers of vendors name theirs, and its devices are
`CLAIM_UID-DEVICE`. kubelet passes their qualified names to the runtime, which reads the file (CDI 0.5.0).
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.deviceplugin.messages import ContainerAllocateResponse
from seatrial.harness.errors import DeviceError
from seatrial.scheduler.api.private_files import write_private

VERSION = "0.5.0"
FOLDER = Path("/var/run/cdi")
_MODE = 0o644  # runtimes need not run as root; the files have no secrets


class CdiFolder:
    """The files of one driver."""

    def __init__(self, folder: Path, driver: str) -> None:
        self._folder, self._vendor = folder, f"k8s.{driver}"

    def qualified(self, device: str) -> str:
        """The name by which kubelet passes a device to the container runtime."""
        return f"{self._vendor}/claim={device}"

    def write(self, claim: str, devices: Mapping[str, ContainerAllocateResponse]) -> None:
        """Write the file of a claim in one step; `devices` by their names in it.

        Raises:
            DeviceError: the folder cannot be written.
        """
        content = {
            "cdiVersion": VERSION,
            "kind": f"{self._vendor}/claim",
            "devices": [{"name": name, "containerEdits": _edits(part)} for name, part in devices.items()],
        }
        try:
            write_private(self._file(claim), orjson.dumps(content))
            self._file(claim).chmod(_MODE)
        except OSError as error:
            raise DeviceError(f"CDI folder {self._folder}: expected one that can be written, found: {error}") from error

    def remove(self, claim: str) -> None:
        """Remove the file of a claim, if there is one.

        Raises:
            DeviceError: it cannot be removed.
        """
        try:
            with contextlib.suppress(NotADirectoryError):  # without a folder there is no file
                self._file(claim).unlink(missing_ok=True)
        except OSError as error:
            raise DeviceError(f"{self._file(claim)}: cannot be removed: {error}") from error

    def _file(self, claim: str) -> Path:
        return self._folder / f"{self._vendor}-claim_{claim}.json"


def _edits(part: ContainerAllocateResponse) -> dict[str, Any]:
    """The device's part of a container, without lists that would be empty."""
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(part.envs.items())],
        "deviceNodes": [{"path": node.container_path, "hostPath": node.host_path} for node in part.devices],
        "mounts": [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": ["rbind", "ro" if mount.read_only else "rw"],
            }
            for mount in part.mounts
        ],
    }
    return {name: value for name, value in edits.items() if value}
