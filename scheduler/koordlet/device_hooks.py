"""What a container gets of the devices that were allocated to its pod: variables, a library, device files.

Rules HK-10 and HK-11, as Koordinator's pkg/koordlet/runtimehooks/hooks/gpu and rdma. Numbers of device files are read
from /sys, so that the agent needs no /dev of its node.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATED,
    GPU_CORE,
    GPU_ISOLATION_PROVIDER,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    HAMI_CORE,
    DeviceAllocation,
)
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quantity import Quantity, units
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet.nri_messages import KeyValue, LinuxDevice, Mount, Number

_WHOLE = 100  # gpu-memory-ratio of a card
_LOCK = "/tmp/vgpulock"  # noqa: S108 HAMi-core's, by its name
_FILES = "/dev/infiniband"
_MANAGER = "rdma_cm"
_BUS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)  # one part of a path


class DeviceHookError(Exception):
    """An allocation lacks an amount, or the node lacks a device."""


def allocations(annotations: Mapping[str, str], kind: str) -> Sequence[DeviceAllocation]:
    """The devices of a kind that were allocated to a pod.

    Raises:
        msgspec.MsgspecError: the annotation is not of its form.
    """
    text = annotations.get(DEVICE_ALLOCATED, "")
    return decode_as(text, dict[str, list[DeviceAllocation]]).get(kind, []) if text else []


def gpu_variables(devices: Sequence[DeviceAllocation], labels: Mapping[str, str], library: Path) -> dict[str, str]:
    """The cards of a pod, and what HAMi-core lets it use of the first one if that is not whole.

    Raises:
        DeviceHookError: the allocation lacks an amount.
        QuantityError: an amount is not a quantity.
    """
    result = {"NVIDIA_VISIBLE_DEVICES": ",".join(str(device.minor) for device in devices)}
    if devices and labels.get(GPU_ISOLATION_PROVIDER) == HAMI_CORE:
        amounts = devices[0].resources
        if _amount(amounts, GPU_MEMORY_RATIO) < _WHOLE:
            result["CUDA_DEVICE_MEMORY_LIMIT"] = str(_amount(amounts, GPU_MEMORY))
            if GPU_CORE in amounts:
                result["CUDA_DEVICE_SM_LIMIT"] = str(_amount(amounts, GPU_CORE))
            result["LD_PRELOAD"] = str(library)
    return result


def gpu_changes(
    devices: Sequence[DeviceAllocation], labels: Mapping[str, str], library: Path, monitored: str = ""
) -> tuple[tuple[KeyValue, ...], tuple[Mount, ...]]:
    """Variables and mounts of a container (HK-10).

    `monitored`: the pod's uid and the container's name, as in `u_c`, where a monitor reads what the container uses;
    its folder on the node is made anew, for anybody to write, because containers run as any user.

    Raises:
        DeviceHookError: the allocation lacks an amount, or the folder cannot be made.
        QuantityError: an amount is not a quantity.
    """
    variables, mounts = gpu_variables(devices, labels, library), []
    if "LD_PRELOAD" in variables:
        mounts += [_bind(str(library), str(library)), _bind(_LOCK, _LOCK)]
        if monitored:
            folder = library.parent / "containers" / monitored
            _make(folder)
            variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{library.parent}/{monitored}.cache"
            mounts.append(_bind(str(folder), str(library.parent)))
    return tuple(KeyValue(name, value) for name, value in variables.items()), tuple(mounts)


def rdma_files(devices: Sequence[DeviceAllocation], sys: Path) -> tuple[LinuxDevice, ...]:
    """The device files of NICs: of their virtual functions if these were allocated (HK-11).

    Raises:
        DeviceHookError: the node has no such NIC, or its files have no numbers.
    """
    if not devices:
        return ()
    return (_device(_MANAGER, sys / "class/misc" / _MANAGER), *_verbs(devices, sys))


def _verbs(devices: Sequence[DeviceAllocation], sys: Path) -> Iterator[LinuxDevice]:
    for device in devices:
        functions = device.extension.vfs if device.extension is not None else ()
        for bus in [each.bus_id for each in functions] or [device.id]:
            if not _BUS.fullmatch(bus):
                raise DeviceHookError(f"NIC {bus[:40]!r}: expected the address of a PCI device, as in 0000:5e:00.0")
            home = sys / "bus/pci/devices" / bus / "infiniband_verbs"
            names = sorted(path.name for path in home.iterdir()) if home.is_dir() else []
            if not names:
                raise DeviceHookError(f"NIC {bus}: expected a folder in {home}, found none")
            yield _device(names[0], home / names[0])


def _device(name: str, folder: Path) -> LinuxDevice:
    """A character device that anybody may read and write; its numbers are as in `231:192`."""
    try:
        text = (folder / "dev").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceHookError(f"{folder / 'dev'}: {getattr(error, 'strerror', None) or error}") from error
    major, _, minor = text.partition(":")
    numbers = integer(major), integer(minor)
    if numbers[0] is None or numbers[1] is None:
        raise DeviceHookError(f"{folder / 'dev'}: expected numbers as in 231:192, found {text[:40]!r}")
    return LinuxDevice(f"{_FILES}/{name}", "c", numbers[0], numbers[1], Number(0o666))


def _amount(amounts: Mapping[str, Quantity], name: str) -> int:
    if name not in amounts:
        raise DeviceHookError(f"{name.rpartition('/')[2].replace('-', ' ')} not found in gpu resource")
    return units(amounts[name])


def _bind(source: str, destination: str) -> Mount:
    return Mount(destination, "bind", source, ("rbind",))


def _make(folder: Path) -> None:
    if not _PLAIN.fullmatch(folder.name):
        raise DeviceHookError(f"container {folder.name[:80]!r}: expected the pod's uid and the name of a container")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    except OSError as error:
        raise DeviceHookError(f"{folder}: {error.strerror}") from error
