"""A Docker engine for tests: the one that answers here, or one of their own where that is allowed."""

import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from seatrial.harness.nodes.runtimes.docker import DEFAULT_URL, OWNER, unreachable
from seatrial.harness.processes import stop

IMAGE = "seatrial-test:busybox"
UP_WITHIN = 30.0


@contextmanager
def engine_at(folder: Path) -> Iterator[str]:
    """The URL of an engine that has the tests' image; skips where there is none to be had."""
    busybox = next((each for each in ("/bin/busybox", "/usr/bin/busybox") if _static(each)), "")
    if not busybox:
        pytest.skip("no static busybox to make an image of (Debian: busybox-static)")
    if unreachable() is None:
        url = os.environ.get("DOCKER_HOST", DEFAULT_URL)
        _import(url, busybox)
        yield url
        return
    dockerd = shutil.which("dockerd")
    if os.geteuid() != 0 or dockerd is None:
        pytest.skip(f"{unreachable()}; none can be started here without root and dockerd")
    url = f"unix://{folder}/docker.sock"
    command = [
        dockerd,
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
        "--pidfile",
        f"{folder}/pid",
        "-H",
        url,
        "--iptables=false",
        "--ip6tables=false",
        "--bridge=none",
        "--storage-driver=vfs",
    ]
    with (folder / "log").open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + UP_WITHIN
        while unreachable(url) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-300:]}")
            time.sleep(0.1)
        _import(url, busybox)
        yield url
    finally:
        stop(process, within=30)
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """Unmount the daemon's network namespace, which it leaves mounted; otherwise the folder cannot be removed."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    for mounted in reversed([row[1] for row in rows if row[1].startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", mounted], check=False)  # noqa: S607 the system's own


def _static(path: str) -> bool:
    return Path(path).is_file() and b"/ld-linux" not in Path(path).read_bytes()[:4096]


def _import(url: str, busybox: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "cat", "env", "ls", "tail", "head"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    client = docker.DockerClient(base_url=url)
    repository, _, tag = IMAGE.partition(":")
    client.api.import_image_from_data(packed.getvalue(), repository=repository, tag=tag)
    client.close()


def containers(url: str, label: str = OWNER) -> list[str]:
    """The containers with a label."""
    client = docker.DockerClient(base_url=url)
    try:
        return [str(row["Id"]) for row in client.api.containers(all=True, filters={"label": label})]
    finally:
        client.close()
