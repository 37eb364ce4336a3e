"""Printers of volumes, claims, and the kinds of storage.k8s.io."""

from collections.abc import Iterable

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Cells,
    Object,
    Printer,
    age_of,
    flag,
    name_of,
    number,
    part,
    text,
    wide,
)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _access(modes: Iterable[str] | None) -> str:
    """Access modes by their short names, in a fixed order."""
    values = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in values)


def _class(obj: Object) -> str:
    old = part(obj, "metadata", "annotations").get(_OLD_CLASS)
    return part(obj, "spec").get("storageClassName") or "" if old is None else old


def _phase(obj: Object) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else part(obj, "status").get("phase", "")


_ACCESS_MODES = text("Access Modes", "How many nodes or pods may use it, and how.")
_STORAGE_CLASS = text("StorageClass", "The storage class.")
_ATTRIBUTES_CLASS = text("VolumeAttributesClass", "The class of the volume's further attributes.")
_VOLUME_MODE = wide("VolumeMode", "Filesystem or Block.")


def _volume(obj: Object, now: float) -> Cells:
    spec, claim = part(obj, "spec"), part(obj, "spec", "claimRef")
    return [
        name_of(obj),
        part(spec, "capacity").get("storage", "0"),
        _access(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        part(obj, "status").get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


PERSISTENT_VOLUMES = Printer(
    (
        NAME,
        text("Capacity", "The volume's size."),
        _ACCESS_MODES,
        text("Reclaim Policy", "What happens to the volume when its claim is deleted."),
        text("Status", "Whether the volume is bound."),
        text("Claim", "The claim that has the volume."),
        _STORAGE_CLASS,
        _ATTRIBUTES_CLASS,
        text("Reason", "Why the volume failed."),
        AGE,
        _VOLUME_MODE,
    ),
    _volume,
)


def _claim(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    volume = spec.get("volumeName") or ""
    return [
        name_of(obj),
        _phase(obj),
        volume,
        part(status, "capacity").get("storage", "0") if volume else "",
        _access(status.get("accessModes")) if volume else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


PERSISTENT_VOLUME_CLAIMS = Printer(
    (
        NAME,
        text("Status", "Whether the claim has a volume."),
        text("Volume", "The volume that the claim has."),
        text("Capacity", "The volume's size."),
        _ACCESS_MODES,
        _STORAGE_CLASS,
        _ATTRIBUTES_CLASS,
        AGE,
        _VOLUME_MODE,
    ),
    _claim,
)


def _storage_class(obj: Object, now: float) -> Cells:
    annotations = part(obj, "metadata", "annotations")
    default = any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return [
        name_of(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


STORAGE_CLASSES = Printer(
    (
        NAME,
        text("Provisioner", "The provisioner of the volumes."),
        text("ReclaimPolicy", "What happens to a volume when its claim is deleted."),
        text("VolumeBindingMode", "Whether a volume is bound at once or when a pod needs it."),
        text("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ),
    _storage_class,
)

VOLUME_ATTRIBUTES_CLASSES = Printer(
    (NAME, text("DriverName", "The driver that the attributes are for."), AGE),
    lambda o, now: [name_of(o), o.get("driverName", ""), age_of(o, now)],
)


def _attachment(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("attacher", ""),
        part(spec, "source").get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool(part(obj, "status").get("attached")),
        age_of(obj, now),
    ]


VOLUME_ATTACHMENTS = Printer(
    (
        NAME,
        text("Attacher", "The driver that attaches it.")._replace(format="name"),
        text("PV", "The volume."),
        text("Node", "The node that it is attached to."),
        flag("Attached", "Whether it is attached."),
        AGE,
    ),
    _attachment,
)

CSI_NODES = Printer(
    (NAME, number("Drivers", "How many drivers the node has."), AGE),
    lambda o, now: [name_of(o), len(part(o, "spec").get("drivers") or ()), age_of(o, now)],
)


def _driver(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    tokens, attach = spec.get("tokenRequests"), spec.get("attachRequired")
    return [
        name_of(obj),
        True if attach is None else attach,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age_of(obj, now),
    ]


CSI_DRIVERS = Printer(
    (
        NAME,
        flag("AttachRequired", "Whether volumes are attached before they are mounted."),
        flag("PodInfoOnMount", "Whether the driver gets information about the pod."),
        flag("StorageCapacity", "Whether the driver reports how much room is left."),
        text("TokenRequests", "The audiences of the tokens that the driver asks for."),
        flag("RequiresRepublish", "Whether volumes are republished periodically."),
        text("Modes", "Whether volumes outlive their pods."),
        AGE,
    ),
    _driver,
)
