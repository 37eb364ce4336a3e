"""Limits and weights of disks for best-effort pods and single pods, on cgroup v1 (BK-1).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/blkio; `blkio.cost.*` are files of Anolis. Disks are named by
device or by volume group, and looked up in /sys; volumes of pods are not.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet.cgroups import Cgroups
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.strategies import BlkioQos, Block, IoConfig, QosStrategy
from seatrial.scheduler.pods.qos import BEST_EFFORT
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

ANNOTATION = "koordinator.sh/blkioQOS"
_FULL_WEIGHT = "100"
_LIMITS = {
    "blkio.throttle.read_iops_device": "read_iops",
    "blkio.throttle.write_iops_device": "write_iops",
    "blkio.throttle.read_bps_device": "read_bps",
    "blkio.throttle.write_bps_device": "write_bps",
    "blkio.cost.weight": "io_weight_percent",
}
_NEUTRAL = {**dict.fromkeys(_LIMITS, "0"), "blkio.cost.weight": _FULL_WEIGHT}
_ROOT_NEUTRAL = {"blkio.cost.qos": "enable=0", "blkio.cost.model": "ctrl=auto"}


class BlkioError(ValueError):
    """A disk cannot be told from what names it."""


def limits(config: IoConfig) -> dict[str, str]:
    """The values of one disk by file; 0: no limit."""
    values = {file: getattr(config, name) for file, name in _LIMITS.items()}
    return {file: _NEUTRAL[file] if value is None else str(value) for file, value in values.items()}


def costs(config: IoConfig) -> dict[str, str]:
    """What the root's files have for one disk."""
    qos = (
        f"enable=1 ctrl=user rpct={config.read_latency_percent} rlat={config.read_latency}"
        f" wpct={config.write_latency_percent} wlat={config.write_latency}"
    )
    if not config.enable_user_model:
        return {"blkio.cost.qos": qos, "blkio.cost.model": _ROOT_NEUTRAL["blkio.cost.model"]}
    model = (
        f"ctrl=user rbps={config.model_read_bps} rseqiops={config.model_read_seq_iops}"
        f" rrandiops={config.model_read_rand_iops} wbps={config.model_write_bps}"
        f" wseqiops={config.model_write_seq_iops} wrandiops={config.model_write_rand_iops}"
    )
    return {"blkio.cost.qos": qos, "blkio.cost.model": model}


class Blkio:
    """Writes the files of the subsystem blkio where the kernel has them."""

    def __init__(self, cgroups: Cgroups, sys: Path) -> None:
        self._root, self._layout, self._sys = cgroups.root / "blkio", cgroups.layout, sys
        self._say = Once(log)

    def reconcile(self, pods: Iterable[LocalPod], qos: QosStrategy) -> None:
        """Write the blocks of best-effort pods together, of the root, and of pods with the annotation."""
        if qos.be.blkio is not None:
            self._write(self._root / self._layout.qos(BEST_EFFORT), _blocks(qos.be.blkio), root=False)
        if qos.root.blkio is not None:
            self._write(self._root, _blocks(qos.root.blkio), root=True)
        for pod in pods:
            text = pod.pod.metadata.annotations.get(ANNOTATION)
            if not text or not pod.raw_qos:
                continue
            try:
                own = decode_as(text, BlkioQos)
            except msgspec.MsgspecError as error:
                self._say(pod.uid, f"pod {pod.pod.metadata.namespace}/{pod.pod.metadata.name}: {ANNOTATION}: {error}")
                continue
            self._write(self._root / pod.folder, own.blocks, root=False)

    def _write(self, folder: Path, blocks: Iterable[Block], *, root: bool) -> None:
        try:
            disks = {self._disk(block): costs(block.io) if root else limits(block.io) for block in blocks}
        except BlkioError as error:
            self._say(folder, f"blkio {folder.name}: {error}")
            return
        for file, neutral in (_ROOT_NEUTRAL if root else _NEUTRAL).items():
            try:
                self._set(folder / file, {disk: values[file] for disk, values in disks.items()}, neutral)
            except OSError as error:
                self._say(folder / file, f"{folder / file}: {error.strerror}")

    @staticmethod
    def _set(path: Path, values: Mapping[str, str], neutral: str) -> None:
        """Write a line for each disk whose line lacks its words; disks with none get neutral ones."""
        if not path.exists():
            return
        lines = (line.partition(" ") for line in path.read_text(encoding="ascii", errors="replace").splitlines())
        before = {disk: set(words.split()) for disk, _, words in lines if ":" in disk}
        for disk, words in {**dict.fromkeys(before, neutral), **values}.items():
            if not set(words.split()) <= before.get(disk, set(neutral.split())):
                path.write_text(f"{disk} {words}\n", encoding="ascii")

    def _disk(self, block: Block) -> str:
        """The numbers of the disk, as in `8:16`.

        Raises:
            BlkioError: there is none of that name.
        """
        devices = self._sys / "class/block"
        find = {"device": _device, "volumegroup": _disk_of_group}.get(block.type)
        if find is None:
            raise BlkioError(f"expected a block of the type device or volumegroup, found {block.type!r:.60}")
        try:
            return (find(devices, block.name) / "dev").read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:  # names are users': too long for a file, or with a null character
            what = f"expected a disk of {block.type} {block.name!r:.60}, found none in {devices}"
            raise BlkioError(what) from error


def _device(devices: Path, name: str) -> Path:
    """The folder of a device, or of the disk that it is a partition of."""
    path = devices / name.rpartition("/")[2]
    return path.resolve().parent if (path / "partition").exists() else path


def _disk_of_group(devices: Path, name: str) -> Path:
    """The folder of the first disk of a volume group."""
    prefix = f"{name.replace('-', '--')}-"
    volume = next((each for each in devices.glob("dm-*/dm/name") if each.read_text().startswith(prefix)), None)
    slaves = sorted(each.name for each in (volume.parents[1] / "slaves").iterdir()) if volume else []
    return devices / (slaves[0] if slaves else "none")


def _blocks(qos: BlkioQos) -> tuple[Block, ...]:
    return qos.blocks if qos.enable else ()
