"""The process: devices, plugin, report and the API server together, until SIGTERM."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from seatrial.fake_devices import mailbox
from seatrial.harness.clusters.access import renew_token
from seatrial.harness.clusters.agents import ThreadedTransport
from seatrial.harness.clusters.kubeconfig import Access
from seatrial.harness.deviceplugin.cdi import FOLDER as FOLDER_OF_CDI
from seatrial.harness.deviceplugin.dra import Claims, DraPlugin, Place
from seatrial.harness.deviceplugin.kubelet import KubeletFolder
from seatrial.harness.deviceplugin.node_report import NodeReport
from seatrial.harness.deviceplugin.plugin import DevicePlugin, Pods
from seatrial.harness.deviceplugin.slices import FOLDER, PodSlices
from seatrial.harness.devices.hami_release import SHIPPED, HamiHost
from seatrial.harness.devices.stand_in import stand_in
from seatrial.harness.devices.survey import real_providers
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import ApiRefused, DeviceError, UsageError
from seatrial.harness.nodes.device_daemon import DeviceDaemon
from seatrial.harness.nodes.devices import reported
from seatrial.harness.nodes.local import LOOK_EVERY, LocalHardware
from seatrial.harness.nodes.local_agent import ThreadRunner
from seatrial.harness.nodes.pods import BoundPod
from seatrial.harness.nodes.slices import Way
from seatrial.harness.nodes.stand_in_faults import StandInFaults
from seatrial.harness.nodes.writer import NODES, Writer, pod_path
from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.resourceclaims import CLAIMS_PATH, GROUP_PATH, ResourceClaim
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.api.wire import Wire, decoder

log = logging.getLogger(__name__)

RENEW_TOKEN_EVERY = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Options:
    """How the process runs."""

    node: str
    kubelet: Path
    fake: str = ""
    report: bool = True  # write the Device object, labels and bytes
    xpu_file: Path | None = None  # koord-device-daemon's file, for koordlet
    dev_root: Path = Path("/")  # has the machine's /dev, where a container has it mounted elsewhere
    in_cluster: bool = False
    dra: Way | None = None  # how devices are offered to ResourceClaims
    cdi: Path = FOLDER_OF_CDI


class _List(Wire, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


_decode_list = decoder(_List)
_decode_pod = decoder(BoundPod)
_decode_claim = decoder(ResourceClaim)


async def serve(options: Options, access: Access, ready: Callable[[], object] = lambda: None) -> None:
    """Run until SIGTERM or SIGINT; `ready` is called when the devices have been read.

    Raises:
        DeviceError: no devices, or kubelet's folder cannot be used.
        UsageError: the stand-in's name is unknown, or the cards cannot be offered in that way.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clock = WallClock(loop)
    with ExitStack() as stack:
        kubelet = KubeletFolder(options.kubelet)
        cards = stack.enter_context(stand_in(options.fake)) if options.fake else None
        hardware = stack.enter_context(LocalHardware(cards.providers() if cards is not None else real_providers()))
        if not hardware.devices():
            why = "; ".join(f"{vendor}: {reason}" for vendor, reason in hardware.missing.items())
            raise DeviceError(f"this machine has no devices for a plugin: {why}; --fake MODEL:COUNT simulates some")
        if options.dra == "partitions":
            sliced = {each.vendor for each in hardware.devices() if VENDORS[each.vendor].claim_driver.cut(each)}
            if whole := sorted(sliced - hardware.cutters()):
                raise UsageError(
                    f"--dra-offer partitions: expected cards that this program cuts, found those of {', '.join(whole)};"
                    " use --dra-offer whole or shares"
                )
        run_blocking = ThreadRunner()
        stack.callback(run_blocking.close)
        transport = ThreadedTransport(access, loop)
        stack.callback(transport.close)
        faults = None
        if cards is not None:
            faults = StandInFaults(options.node, cards, hardware, clock, run_blocking, on_node=_ignore_node_fault)
        report = NodeReport(
            transport,
            clock,
            options.node,
            hardware,
            on_annotations=faults.follow if faults is not None else lambda _: None,
            writes=options.report or options.dra is not None,
            dra=options.dra,
        )
        daemon: DeviceDaemon | None = None
        if options.xpu_file is not None:
            daemon = DeviceDaemon(options.xpu_file, clock, lambda: (hardware.devices(), hardware.links()))
            daemon.start()
            stack.callback(daemon.stop)
        writer = Writer(transport, clock)
        stack.callback(writer.close)
        root = cards.root if cards is not None else options.dev_root
        plugin: DevicePlugin | DraPlugin
        if options.dra:
            plugin = DraPlugin(
                lambda: reported(hardware.devices(), daemon=False),
                Place(
                    options.node,
                    kubelet,
                    options.cdi,
                    hardware,
                    run_blocking.run,
                    root,
                    simulated=cards is not None,
                    way=options.dra,
                ),
                _claims(transport, loop),
                report.refresh,
            )
        else:
            plugin = DevicePlugin(
                hardware.devices,
                kubelet,
                _pods_of(transport, options.node, loop),
                root=root,
                simulated=cards is not None,
                hami=lambda: HamiHost(hardware.driver("nvidia").driver, SHIPPED),
                slices=PodSlices(kubelet.plugins / FOLDER, hardware, run_blocking.run),
                answer=lambda pod, annotations: answer_on_pod(writer, options.node, pod, annotations),
            )
        report.start()
        ready()

        def look() -> None:
            run_blocking(hardware.look, looked)

        def looked(changed: bool) -> None:
            clock.call_later(LOOK_EVERY, look)
            if changed:
                report.refresh()
                if daemon is not None:
                    daemon.reload()

        def attend() -> None:
            if cards is not None:
                clock.call_later(mailbox.POLL_INTERVAL, attend)
                cards.attend()

        def renew() -> None:
            clock.call_later(RENEW_TOKEN_EVERY, renew)
            renew_token(access)

        look()
        attend()
        if options.in_cluster:
            renew()
        try:
            while not stopped.is_set():
                with clock.faults.guard("DevicePlugin.tick"):
                    await plugin.tick()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), LOOK_EVERY)
        finally:
            report.stop()
            if faults is not None:
                faults.close()
            await plugin.stop()


def _pods_of(transport: ThreadedTransport, node: str, loop: asyncio.AbstractEventLoop) -> Pods:
    """Reads the node's pods from the API server anew: the allocation is written before kubelet sees the pod."""
    path = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"

    async def read() -> Sequence[BoundPod]:
        body = await _read(transport, loop, path, f"list pods of node {node!r}")
        return [_decode_pod(item) for item in _decode_list(body or b"{}").items]

    return read


def _claims(transport: ThreadedTransport, loop: asyncio.AbstractEventLoop) -> Claims:
    async def read(namespace: str, name: str) -> ResourceClaim | None:
        body = await _read(
            transport,
            loop,
            f"{GROUP_PATH}/namespaces/{namespace}/resourceclaims/{name}",
            f"read ResourceClaim {namespace}/{name}",
        )
        return _decode_claim(body) if body is not None else None

    async def every() -> Sequence[ResourceClaim]:
        body = await _read(transport, loop, CLAIMS_PATH, "list ResourceClaims")
        return [_decode_claim(item) for item in _decode_list(body or b"{}").items]

    return Claims(read, every)


async def _read(transport: ThreadedTransport, loop: asyncio.AbstractEventLoop, path: str, what: str) -> bytes | None:
    """The answer to a GET; None if there is no such object.

    Raises:
        ApiRefused: the API server refuses or does not answer.
    """
    answered: asyncio.Future[Response] = loop.create_future()
    transport.send(Request("GET", path), lambda response: None if answered.done() else answered.set_result(response))
    response = await answered
    if response.code == 404:
        return None
    if not response.ok:
        raise ApiRefused(what, code=response.code, reason="", message=response.body.decode(errors="replace")[:200])
    return response.body


def answer_on_pod(writer: Writer, node: str, pod: BoundPod, annotations: Mapping[str, str]) -> None:
    """Write to the pod and unlock the node, as the vendor's plugin does that creates slices; once for each pod."""
    metadata = pod.metadata
    for vendor in VENDORS.values():
        plugin = vendor.shared_plugin
        if plugin is None or plugin.assigned not in annotations or metadata.annotations.get(plugin.assigned) == "true":
            continue
        writer.merge(pod_path(metadata.namespace, metadata.name), {"metadata": {"annotations": dict(annotations)}})
        writer.merge(f"{NODES}/{node}", {"metadata": {"annotations": {plugin.lock: None}}})


def _ignore_node_fault(verb: str, on: bool) -> None:
    log.warning("fault ignored verb=%s on=%s why=the node is kubelet's", verb, on)
