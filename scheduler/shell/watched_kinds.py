"""Kinds of object that plugins read besides nodes, pods and devices, and where the core keeps them.

All are optional: where the server does not have a kind, or does not allow to read it, it has no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.api.storage import (
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.api.workloads import Namespace, ReplicationController, Service, Workload
from seatrial.scheduler.core.cycle import Core


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a kind is served, as what it is read, and what to do when one is there or gone."""

    path: str
    type: type[Any]  # has metadata
    note: Callable[..., None]  # core, object, there=


def _namespace(core: Core, namespace: Namespace, *, there: bool) -> None:
    core.intake.set_namespace(namespace.metadata.name, namespace.metadata.labels if there else None)


def _service(core: Core, service: Service, *, there: bool) -> None:
    metadata = service.metadata
    core.cache.owners.set_service(metadata.namespace, metadata.name, service.spec.selector if there else None)


def _controller(kind: str) -> Callable[..., None]:
    def note(core: Core, work: Workload | ReplicationController, *, there: bool) -> None:
        selector = work.spec.selector
        if not isinstance(selector, LabelSelector | None):
            selector = LabelSelector(selector) if selector else None
        metadata = work.metadata
        core.cache.owners.set_controller(kind, metadata.namespace, metadata.name, selector if there else None)

    return note


def _claim(core: Core, claim: PersistentVolumeClaim, *, there: bool) -> None:
    core.cache.volumes.set_claim(claim, gone=not there)
    core.intake.storage_changed()


def _volume(core: Core, volume: PersistentVolume, *, there: bool) -> None:
    core.cache.volumes.set_volume(volume, gone=not there)
    core.intake.storage_changed()


def _class(core: Core, storage_class: StorageClass, *, there: bool) -> None:
    core.cache.volumes.set_class(storage_class, gone=not there)
    core.intake.storage_changed()


def _csi_node(core: Core, csi_node: CsiNode, *, there: bool) -> None:
    core.cache.volumes.set_csi_node(csi_node, gone=not there)
    core.intake.storage_changed()


def _attachment(core: Core, volume_attachment: VolumeAttachment, *, there: bool) -> None:
    core.cache.volumes.set_attachment(volume_attachment, gone=not there)
    core.intake.storage_changed()


KINDS = (
    Kind("/api/v1/namespaces", Namespace, _namespace),
    Kind("/api/v1/services", Service, _service),
    Kind("/api/v1/replicationcontrollers", ReplicationController, _controller("ReplicationController")),
    Kind("/apis/apps/v1/replicasets", Workload, _controller("ReplicaSet")),
    Kind("/apis/apps/v1/statefulsets", Workload, _controller("StatefulSet")),
    Kind("/api/v1/persistentvolumeclaims", PersistentVolumeClaim, _claim),
    Kind("/api/v1/persistentvolumes", PersistentVolume, _volume),
    Kind("/apis/storage.k8s.io/v1/storageclasses", StorageClass, _class),
    Kind("/apis/storage.k8s.io/v1/csinodes", CsiNode, _csi_node),
    Kind("/apis/storage.k8s.io/v1/volumeattachments", VolumeAttachment, _attachment),
)
