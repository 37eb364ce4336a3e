"""Container images without a registry: a static busybox as an archive of `docker save`, which containerd imports."""

import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from seatrial.harness.errors import ClusterError

BUSYBOX = "busybox"
HOW_TO_GET = "Debian's package busybox-static has it"
COMMANDS = ("sh", "sleep", "env", "ls", "sed", "cat", "echo", "id", "true", "tail")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def static_busybox() -> Path | None:
    """A busybox that needs no libraries; None if there is none."""
    for item in (shutil.which(BUSYBOX), "/bin/busybox", "/usr/bin/busybox"):
        if item is not None and Path(item).is_file() and b"/ld-linux" not in Path(item).read_bytes():
            return Path(item)
    return None


def write_busybox_image(archive: Path, name: str, entrypoint: Sequence[str] = ()) -> None:
    """Write an image with busybox and its commands in /bin.

    Raises:
        ClusterError: there is no static busybox.
    """
    busybox = static_busybox()
    if busybox is None:
        raise ClusterError(f"no static {BUSYBOX} for the image {name!r}; {HOW_TO_GET}")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        _folder(files, "bin")
        _folder(files, "tmp", mode=0o1777)
        _file(files, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for command in COMMANDS:
            link = tarfile.TarInfo(f"bin/{command}")
            link.type, link.linkname = tarfile.SYMTYPE, BUSYBOX
            files.addfile(link)
    write_image(archive, name, layer.getvalue(), entrypoint)


def write_image(archive: Path, name: str, layer: bytes, entrypoint: Sequence[str] = ()) -> None:
    """Write an image of one layer, a tar file of its root."""
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    described = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": described, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as files:
        _file(files, described, config)
        _file(files, f"{digest}/layer.tar", layer)
        _file(files, "manifest.json", json.dumps(manifest).encode())


def _folder(files: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    files.addfile(entry)


def _file(files: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    files.addfile(entry, io.BytesIO(content))
