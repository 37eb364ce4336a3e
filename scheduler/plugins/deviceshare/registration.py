"""What DeviceShare adds to the scheduler: Device objects, ConfigMaps with slice sizes, routes about devices."""

from functools import partial

from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.device import GROUP_VERSION, Device
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.slices import SliceRegistry
from seatrial.scheduler.plugins.deviceshare.summary import summaries, summary_of
from seatrial.scheduler.serving.routes import Answer, RequestContext, json, missing

PLUGIN = "DeviceShare"


def register(handle: Handle) -> None:
    """Register watches and routes. Call after the plugins of all profiles are built."""
    devices = DeviceCache.of(handle)

    def set_device(name: str, device: Device | None) -> None:
        handle.complain(*devices.set_device(name, device))
        handle.request_wake()

    handle.watch(
        Watch(
            f"/apis/{GROUP_VERSION}/devices",
            Device,
            lambda device: set_device(device.metadata.name, device),
            lambda device: set_device(device.metadata.name, None),
        )
    )
    slices = handle.shared(SliceRegistry, SliceRegistry)
    for source in sorted(slices.read):
        _watch_sizes(handle, slices, source)
    handle.serve(f"plugins/{PLUGIN}/nodeDeviceSummaries", lambda _: json(summaries(devices, handle.cache)))
    handle.serve(f"plugins/{PLUGIN}/nodeDeviceSummaries/:name", partial(_summary, handle, devices))


def _watch_sizes(handle: Handle, slices: SliceRegistry, source: str) -> None:
    namespace, name = source.split("/")

    def replace(config_map: ConfigMap | None) -> None:
        changed, wrong = slices.replace(source, config_map)
        handle.complain(*wrong)
        if changed:
            handle.invalidate_class_scores()
            handle.request_wake()

    handle.watch(
        Watch(
            f"/api/v1/namespaces/{namespace}/configmaps",
            ConfigMap,
            replace,
            lambda _: replace(None),
            selector={"fieldSelector": f"metadata.name={name}"},
        )
    )


def _summary(handle: Handle, devices: DeviceCache, request: RequestContext) -> Answer:
    name = request.parameters["name"]
    summary = summary_of(devices, handle.cache, name)
    return missing(f"cannot find node {name}") if summary is None else json(summary)
