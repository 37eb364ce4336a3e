"""The files of koord-device-daemon as koordlet reads them: entries of the Device object, labels, partition table.

Every file of the folder is read; each holds a JSON array, one object a card (device_daemon.py writes one). A file that
cannot be read is logged and left out, as in koordlet. Details are koordlet's: the memory ratio is always added,
bare names get Koordinator's prefix, a card without a status is healthy, and labels come from the first card by UUID.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.wire import Wire, to_json

log = logging.getLogger(__name__)

Manifest = dict[str, Any]
UNIT = "100"
_BARE = {"gpu-core": words.GPU_CORE, "gpu-memory": words.GPU_MEMORY}


class P2pLink(Wire, frozen=True):
    """Minors of the peers, joined by commas."""

    peer_minor: str = ""
    type: str = ""


class Topology(Wire, frozen=True):
    """The card's place in the machine and its links; IDs are texts, "-1" or empty: unknown."""

    p2p_links: tuple[P2pLink, ...] = msgspec.field(default=(), name="p2pLinks")
    must_honor_partition: bool = False
    socket_id: str = msgspec.field(default="-1", name="socketID")
    node_id: str = msgspec.field(default="-1", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class Status(Wire, frozen=True):
    """The card's health; code and message are empty for a healthy card."""

    healthy: bool = True
    err_code: str = ""
    err_message: str = ""


class Xpu(Wire, frozen=True):
    """One card as the daemon describes it."""

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    topology: Topology = Topology()
    status: Status | None = None


_decode = msgspec.json.Decoder(tuple[Xpu, ...]).decode


def read_xpus(folder: Path) -> tuple[Xpu, ...]:
    """The cards of all files, sorted by UUID; empty if the folder does not exist."""
    xpus: list[Xpu] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue  # a file that is just being written
        try:
            xpus += _decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            log.warning("xpus unread file=%s why=%s", path, error)
    return tuple(sorted(xpus, key=lambda card: card.uuid))


def entries(xpus: Iterable[Xpu], before: Iterable[Manifest] = (), *, now: str) -> list[Manifest]:
    """Entries of `spec.devices`, sorted by minor. `before` is the list published last: the time of a condition changes
    only with its status."""
    known = {entry["minor"]: entry for entry in before if entry["type"] == "gpu"}
    statuses = [_entry(xpu, known.get(int(xpu.minor)), now) for xpu in xpus]
    return sorted(statuses, key=lambda entry: entry["minor"])


def labels(xpus: Sequence[Xpu]) -> dict[str, str]:
    """Vendor and model of the node; empty without cards."""
    if not xpus:
        return {}
    return {words.GPU_VENDOR_LABEL: xpus[0].vendor, words.GPU_MODEL_LABEL: xpus[0].model}


def partitions(xpus: Iterable[Xpu]) -> str:
    """The partition table made from the links between cards, as JSON; empty without links."""
    groups: dict[tuple[int, ...], str] = {}
    for xpu in sorted(xpus, key=lambda each: int(each.minor)):
        for link in xpu.topology.p2p_links:
            peers = {int(minor) for minor in link.peer_minor.split(",") if minor}
            groups.setdefault(tuple(sorted({int(xpu.minor), *peers})), link.type)
    table: dict[str, list[Manifest]] = {}
    for minors, kind in groups.items():
        row = {"minors": minors, "gpuLinkType": kind, "allocationScore": 1}
        table.setdefault(str(len(minors)), []).append(row)
    return to_json(table).decode() if table else ""


def _entry(card: Xpu, before: Manifest | None, now: str) -> Manifest:
    place = card.topology
    entry: Manifest = {
        "type": "gpu",
        "id": card.uuid,
        "minor": int(card.minor),
        "health": card.status is None or card.status.healthy,
        "resources": {
            **{_BARE.get(name, name): value for name, value in card.resources.items()},
            words.GPU_MEMORY_RATIO: UNIT,
        },
        "topology": {
            "socketID": int(place.socket_id),
            "nodeID": int(place.node_id or "-1"),
            "pcieID": place.pcie_id,
            "busID": place.bus_id,
        },
    }
    if card.status is not None:
        entry["conditions"] = [_condition(card.status, before, now)]
    return entry


def _condition(status: Status, before: Manifest | None, now: str) -> Manifest:
    condition = {
        "type": "Healthy",
        "status": "True" if status.healthy else "False",
        "reason": "DeviceHealthy" if status.healthy else status.err_code or "Unknown",
        "message": "device is healthy" if status.healthy else status.err_message or "device is unhealthy",
        "lastTransitionTime": now,
    }
    last = (before or {}).get("conditions") or [{}]
    if last[0].get("status") == condition["status"]:
        condition["lastTransitionTime"] = last[0]["lastTransitionTime"]
    return condition
