"""The reading part of HAMi's vGPUmonitor: memory and cores of containers on shared cards, from regions on the host.

Names and labels are those of HAMi v2.6. Left out: the feedback into regions (priorities, the limiter's switch), the
removal of folders that belong to no pod, and MIG. Containers are those of the node's pods; HAMi also requires the label
`hami.io/vgpu-node` on them, which only some schedulers write.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from seatrial.harness.errors import UsageError
from seatrial.harness.hami.exposition import CONTENT_TYPE, Sample, exposition
from seatrial.harness.hami.region import Region, RegionError, read_region

log = logging.getLogger(__name__)

FOLDER = Path("/usr/local/vgpu/containers")
UUID_LENGTH = 40  # "GPU-" and a UUID; what follows in the region is cut off, as in the original
ZONE = {"zone": "vGPU"}
UNREADABLE = "seatrial_vgpu_region_unreadable"
LAST_KERNEL = "Device_last_kernel_of_container"

HELPS = {
    "HostGPUMemoryUsage": "Bytes in use on a card of this node",
    "HostCoreUtilization": "Percent of time a card of this node was busy",
    "vGPU_device_memory_usage_in_bytes": "Bytes that a container holds on a card",
    "vGPU_device_memory_limit_in_bytes": "Bytes that a container may hold on a card, 0 for no limit",
    "Device_memory_desc_of_container": "Bytes that a container holds on a card, its kinds as labels",
    "Device_utilization_desc_of_container": "Percent of a card that a container keeps busy, as its limiter saw it",
    LAST_KERNEL: "Seconds since a container last launched a kernel",
    UNREADABLE: "1 for a region that could not be read; the reason is in the log",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod of a container."""

    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class HostCard:
    """A card as the node sees it; None: the driver does not report it. Memory in bytes, cores in percent."""

    index: int
    uuid: str
    memory: int | None
    cores: float | None


@dataclass(frozen=True, slots=True)
class RegionFile:
    """A container's region on the host."""

    pod_uid: str
    container: str
    path: Path


def region_files(folder: Path) -> list[RegionFile]:
    """`<folder>/<pod uid>_<container>/*.cache`, sorted; a folder that is not there holds none."""
    files = []
    for path in sorted(folder.glob("*/*.cache")):
        uid, mark, container = path.parent.name.partition("_")
        if mark and uid and container:
            files.append(RegionFile(uid, container, path))
    return files


class Monitor:
    """The metrics of one node. Each call reads all regions again."""

    def __init__(
        self,
        folder: Path,
        node: str,
        *,
        now: Callable[[], float],
        pods: Callable[[], Mapping[str, Owner]] | None = None,
        cards: Callable[[], Sequence[HostCard]] = tuple,
    ) -> None:
        """`pods`: the node's pods by uid; without it all folders count, and uids are used as names."""
        self._folder, self._node, self._now = folder, node, now
        self._pods, self._cards = pods, cards

    def samples(self) -> list[Sample]:
        """The cards first, then containers by the names of their folders."""
        samples = [sample for card in self._cards() for sample in self._host(card)]
        pods = self._pods() if self._pods is not None else None
        for file in region_files(self._folder):
            owner = Owner("", file.pod_uid) if pods is None else pods.get(file.pod_uid)
            if owner is not None:
                samples += self._container(file, owner)
        return samples

    def page(self) -> str:
        """The page that is served under /metrics."""
        return exposition(self.samples(), HELPS)

    def _host(self, card: HostCard) -> Iterator[Sample]:
        labels = {**ZONE, "nodeid": self._node, "deviceidx": str(card.index), "deviceuuid": card.uuid[:UUID_LENGTH]}
        if card.memory is not None:
            yield Sample("HostGPUMemoryUsage", labels, card.memory)
        if card.cores is not None:
            yield Sample("HostCoreUtilization", labels, card.cores)

    def _container(self, file: RegionFile, owner: Owner) -> Iterator[Sample]:
        labels = {**ZONE, "podnamespace": owner.namespace, "podname": owner.pod, "ctrname": file.container}
        try:
            region = read_region(file.path)
        except RegionError as error:
            log.warning("region unreadable pod=%s/%s container=%s why=%s", *_names(owner), file.container, error)
            yield Sample(UNREADABLE, labels, 1)
            return
        for number, card in enumerate(region.cards):
            if len(card.uuid) >= UUID_LENGTH:
                own = {**labels, "vdeviceid": str(number), "deviceuuid": card.uuid[:UUID_LENGTH]}
                yield from self._card(region, number, own)

    def _card(self, region: Region, number: int, labels: Mapping[str, str]) -> Iterator[Sample]:
        parts = region.parts(number)
        kinds = {
            "context": str(parts.context),
            "module": str(parts.module),
            "data": str(parts.data),
            "offset": str(parts.offset),
        }
        yield Sample("vGPU_device_memory_usage_in_bytes", labels, parts.total)
        yield Sample("vGPU_device_memory_limit_in_bytes", labels, region.cards[number].memory_limit)
        yield Sample("Device_memory_desc_of_container", {**labels, **kinds}, parts.total)
        yield Sample("Device_utilization_desc_of_container", labels, region.cores(number))
        if region.last_kernel > 0:
            yield Sample(LAST_KERNEL, labels, max(0, int(self._now()) - region.last_kernel))


def _names(owner: Owner) -> tuple[str, str]:
    return owner.namespace or "?", owner.pod


@contextmanager
def serving(monitor: Monitor, host: str, port: int) -> Iterator[str]:
    """Serve /metrics in threads until the block ends; yields the address. Port 0 takes a free port.

    Raises:
        UsageError: the address cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is served")
                return
            body = monitor.page().encode()
            self.send_response(200)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base's name
            log.debug(format, *args)

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    thread = Thread(target=server.serve_forever, args=(0.1,), name="vgpu-monitor", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
