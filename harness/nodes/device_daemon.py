"""koord-device-daemon: writes the file from which koordlet reads NPUs, MLUs and AMD GPUs.

The file is an array of JSON objects. It is replaced as a whole every 15 minutes, and removed when the daemon ends,
unless it runs once only. If this machine is a node, the agent makes the Device object from the file (xpu_files.py); a
real koordlet can read it too. Simulated nodes make the same Device object without a file (devices.py).
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seatrial.harness.apiserver.quantities import text
from seatrial.harness.devices.provider import Device, Link
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.devices import DAEMON_VENDORS, card_resources, device_id
from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.wire import to_json

Info = dict[str, Any]

PERIOD = 900.0  # seconds
INFOS_FILE = Path("/var/run/koordlet/xpu-device-infos/ic-device")


def device_infos(devices: Sequence[Device], links: Sequence[Link] = ()) -> list[Info]:
    """One entry for each NPU and MLU, sorted by minor; the daemon ignores other devices."""
    own = sorted((device for device in devices if device.vendor in DAEMON_VENDORS), key=lambda device: device.minor)
    return [_info(device, _peers(device, own, links)) for device in own]


def infos_json(devices: Sequence[Device], links: Sequence[Link] = ()) -> bytes:
    """The file's content."""
    return to_json(device_infos(devices, links))


class DeviceDaemon:
    """Keeps the file up to date with the devices."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        look: Callable[[], tuple[Sequence[Device], Sequence[Link]]],
        *,
        once: bool = False,
    ) -> None:
        """`look` finds devices and links anew; `once` writes a single time and leaves the file when it stops."""
        self._path, self._clock, self._look, self._once = path, clock, look, once
        self._timer: Timer | None = None

    def start(self) -> None:
        """Write now, and from then on every period.

        Raises:
            OSError: the file cannot be written.
        """
        self._turn()

    def reload(self) -> None:
        """Write now, as after SIGHUP; the next period counts from here."""
        if self._timer is not None:
            self._timer.cancel()
        self._turn()

    def stop(self) -> None:
        """Stop. A second call has no effect."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._once:
            self._path.unlink(missing_ok=True)

    def _turn(self) -> None:
        self._timer = None if self._once else self._clock.call_later(PERIOD, self._turn)
        devices, links = self._look()
        replace_file(self._path, infos_json(devices, links))


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; its mode is 0644.

    Raises:
        OSError: it cannot be written; nothing is left beside the old file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.chmod(0o644)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _info(device: Device, peers: Sequence[int]) -> Info:
    node = str(device.numa if device.numa is not None else -1)
    vendor = VENDORS[device.vendor]
    root = device.pcie_root if vendor.daemon_knows_root else ""
    topology: Info = {"socketID": "-1", "nodeID": node, "pcieID": root, "busID": device.bus_id}
    if vendor.partition_links:
        topology["mustHonorPartition"] = False
        topology["p2pLinks"] = (
            [{"peerMinor": ",".join(map(str, peers)), "type": vendor.partition_links.upper()}] if peers else []
        )
    well = device.health.ok
    return {
        "vendor": device.vendor,
        "model": device.label,
        "uuid": device_id(device),
        "minor": str(device.minor),
        "resources": {name: text(name, value) for name, value in _resources(device).items()},
        "topology": topology,
        "status": {
            "healthy": well,
            "errCode": "" if well else device.health.code,
            "errMessage": "" if well else device.health.message,
        },
    }


def _resources(device: Device) -> dict[str, int]:
    """All but the memory ratio, which koordlet adds."""
    return {name: value for name, value in card_resources(device).items() if name != words.GPU_MEMORY_RATIO}


def _peers(device: Device, devices: Sequence[Device], links: Sequence[Link]) -> list[int]:
    minors = {device.uuid: device.minor for device in devices}
    result = set()
    for link in links:
        if link.kind == VENDORS[device.vendor].partition_links and link.up and device.uuid in {link.a, link.b}:
            other = link.b if link.a == device.uuid else link.a
            if other in minors:
                result.add(minors[other])
    return sorted(result)
