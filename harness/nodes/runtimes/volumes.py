"""A pod's volumes as folders of this machine, for runtimes that run programs.

Files from objects are written once, before the pod's first container starts, with the modes that the pod requests. The
folders belong to the pod and are removed with it. A host path is used as it is.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.nodes.pod_parts import HostPath, Item, Projection, Volume, VolumeMount
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.references import CONFIG_MAP, SECRET, TOKEN, token_name
from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.variables import field_of, resource_of

MODE = 0o644  # default mode of files
_OPEN_TO_ALL = 0o777  # kubelet's mode of an emptyDir
_CREATED = {"DirectoryOrCreate", "FileOrCreate"}


class CannotMount(Exception):
    """A volume or a mount is not available; the message names it."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A folder or file of this machine and its path in a container."""

    source: Path
    target: str
    read_only: bool


def prepare(work: Work, folder: Path) -> None:
    """Create the pod's volumes below `folder`; existing ones are not changed.

    Raises:
        CannotMount: a volume needs a storage driver, or its files cannot be written.
    """
    for volume in work.pod.spec.volumes:
        if volume.host_path is not None:
            _host(volume.name, volume.host_path)
            continue
        home = folder / volume.name
        if home.exists():
            continue
        parts = volume.parts()
        if volume.empty_dir is None and volume.projected is None and not parts:
            kinds = "emptyDir, hostPath, configMap, secret, downwardAPI or projected"
            raise CannotMount(f"volume {volume.name!r}: expected {kinds}, found another kind, which needs a driver")
        home.mkdir(parents=True)
        home.chmod(_OPEN_TO_ALL if volume.empty_dir is not None else 0o755)
        mode = volume.projected.default_mode if volume.projected is not None else None
        for part in parts:
            for path, content, own in _files(work, part):
                _write(volume.name, home, path, content, own if own is not None else mode)


def mounts(work: Work, plan: ContainerPlan, folder: Path) -> list[Mounted]:
    """The sources of a container's mounts, shortest path first.

    Raises:
        CannotMount: a mount names no volume of the pod, or its path leaves the volume.
    """
    volumes = {volume.name: volume for volume in work.pod.spec.volumes}
    results = [
        Mounted(_source(plan, mount, volumes.get(mount.name), folder), mount.mount_path, mount.read_only)
        for mount in plan.volume_mounts
    ]
    return sorted(results, key=lambda mount: mount.target)


def _source(plan: ContainerPlan, mount: VolumeMount, volume: Volume | None, folder: Path) -> Path:
    if volume is None:
        raise CannotMount(f"container {plan.name!r}: expected a volume {mount.name!r} in the pod, found none")
    home = Path(volume.host_path.path) if volume.host_path is not None else folder / volume.name
    if not mount.sub_path:
        return home
    source = home / mount.sub_path
    if ".." in Path(mount.sub_path).parts or Path(mount.sub_path).is_absolute():
        raise CannotMount(f"container {plan.name!r}: subPath {mount.sub_path!r}: expected a path inside the volume")
    if not source.exists():
        source.mkdir(parents=True)
    return source


def _host(name: str, host_path: HostPath) -> None:
    path, kind = Path(host_path.path), host_path.type
    if kind in _CREATED and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if kind == "DirectoryOrCreate" else path.touch()
    fits = {
        "": True,
        "Directory": path.is_dir(),
        "DirectoryOrCreate": path.is_dir(),
        "File": path.is_file(),
        "FileOrCreate": path.is_file(),
        "Socket": path.is_socket(),
        "CharDevice": path.is_char_device(),
        "BlockDevice": path.is_block_device(),
    }
    if not fits.get(kind, False):
        text = "something else" if path.exists() else "nothing"
        raise CannotMount(f"volume {name!r}: hostPath {host_path.path}: expected a {kind}, found {text}")


def _files(work: Work, part: Projection) -> Iterator[tuple[str, bytes, int | None]]:
    """Path, content and mode of each file of a source."""
    sources = ((CONFIG_MAP, part.config_map, part.config_map), (SECRET, part.secret, part.secret))
    for kind, source, _ in sources:
        if source is None:
            continue
        name = source.name if kind == CONFIG_MAP else source.called  # type: ignore[union-attr]
        data = work.objects.get((kind, name), {})
        for item in source.items or tuple(Item(key=key, path=key) for key in data):
            if item.key in data:
                yield item.path, data[item.key], item.mode if item.mode is not None else source.default_mode
            elif not source.optional:
                raise CannotMount(f"{kind} {name!r}: expected a key {item.key!r}, found {', '.join(data) or 'none'}")
    if part.downward_api is not None:
        for item in part.downward_api.items:
            mode = item.mode if item.mode is not None else part.downward_api.default_mode
            yield item.path, _downward(work, item).encode(), mode
    token = part.service_account_token
    if token is not None:
        yield token.path, work.objects.get((TOKEN, token_name(token)), {}).get("token", b""), 0o600


def _downward(work: Work, item: Item) -> str:
    if item.field_ref is not None:
        return field_of(work.pod, item.field_ref, ip=work.ip, host_ip=work.host_ip)
    return resource_of(work.pod, item.resource_field_ref, None) if item.resource_field_ref is not None else ""


def _write(volume: str, home: Path, path: str, content: bytes, mode: int | None) -> None:
    if ".." in Path(path).parts or Path(path).is_absolute() or not path:
        raise CannotMount(f"volume {volume!r}: expected a path inside it, found {path!r}")
    target = home / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # a later source of a projected volume replaces an earlier one's file
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode if mode is not None else MODE)
