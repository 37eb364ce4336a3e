"""Annotations and labels for vendors' device plugins; upstream's feature gate DevicePluginAdaption."""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_ISOLATION_PROVIDER, GPU_MODEL_LABEL, GPU_VENDOR_LABEL, HAMI_CORE
from seatrial.scheduler.framework.extension_points import MetadataChanges
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.cache import NodeDevices
from seatrial.scheduler.plugins.deviceshare.nodelock import LockedError, NodeLocks
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.shares import Holding
from seatrial.scheduler.plugins.deviceshare.vendors import (
    BIND_TIMESTAMP,
    GPU_MINORS,
    VGPU_NODE_LABEL,
    Grant,
    RefusedError,
    adapt,
    minors,
)


class Adaption:
    """Computes what else is written when a pod is bound to devices."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._locks = NodeLocks.of(handle)

    def marks(
        self, request: DeviceRequest, holding: Holding, pod: Pod, devices: NodeDevices
    ) -> MetadataChanges | Status:
        """Annotations and labels besides the allocation, or why the vendor's plugin cannot serve the pod now."""
        now = self._handle.clock.now()
        stamp = int(now * 1_000_000_000)
        annotations = {BIND_TIMESTAMP: str(stamp)}
        gpu = request.get("gpu")
        if gpu is None or devices.device is None:
            return MetadataChanges(annotations, {})
        annotations[GPU_MINORS] = minors(holding.shares)
        isolated = pod.metadata.labels.get(GPU_ISOLATION_PROVIDER, "") == HAMI_CORE
        cards = [share for share in holding.shares if share.type == "gpu"]
        device_labels = devices.device.metadata.labels
        vendor = device_labels.get(GPU_VENDOR_LABEL, "")
        ids = [devices.id_of("gpu", card.minor) for card in cards]
        try:
            adapted = adapt(vendor, Grant(cards, ids, device_labels.get(GPU_MODEL_LABEL, ""), gpu.shared, stamp))
            lock = adapted.lock
            locks = {lock: self._locks.take(self._handle.cache.nodes[devices.name], lock, pod, now)} if lock else {}
        except (RefusedError, LockedError) as error:
            return Status.error(f'failed to adapt for GPU device plugin of vendor "{vendor}": {error}')
        return MetadataChanges(
            {**annotations, **adapted.annotations}, {VGPU_NODE_LABEL: devices.name} if isolated else {}, locks
        )
