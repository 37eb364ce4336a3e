"""Validation of PersistentVolumes and their claims, CSIDrivers, CSINodes and VolumeAttributesClasses.

Follows `pkg/apis/{core,storage}/validation`.
"""

from typing import Any

from seatrial.harness.apiserver.field_errors import (
    Causes,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, qualified, subdomain
from seatrial.harness.apiserver.validation.placement import check_label_selector, check_node_selector
from seatrial.harness.apiserver.validation.resources import POSITIVE, check_list, milli

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_MAX_PARAMETERS, _MAX_PARAMETERS_SIZE = 512, 256 * 1024  # of a VolumeAttributesClass; size in bytes
_LIFECYCLE = ("Ephemeral", "Persistent")
_FS_GROUP = ("File", "None", "ReadWriteOnceWithFSType")
_SOURCES = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "csi",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "glusterfs",
        "hostPath",
        "iscsi",
        "local",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_FROZEN_CLAIM = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def check_volume(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a PersistentVolume to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    _check_access_modes(spec.get("accessModes") or (), causes)
    _check_capacity(spec.get("capacity") or {}, causes)
    sources = [name for name in spec if name in _SOURCES and spec[name] is not None]
    if not sources:
        causes.append(required("spec", "must specify a volume type"))
    for extra in sources[1:]:
        causes.append(forbidden(f"spec.{extra}", "may not specify more than 1 volume type"))
    if sources:
        _check_source(sources[0], spec, causes)
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy and policy not in _RECLAIM:
        causes.append(unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
    elif policy == "Recycle" and (spec.get("hostPath") or {}).get("path") == "/":
        problem = "may not be 'recycle' for a hostPath mount of '/'"
        causes.append(forbidden("spec.persistentVolumeReclaimPolicy", problem))
    _check_class_and_mode(spec, causes)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            causes.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        else:
            check_node_selector(affinity["required"], "spec.nodeAffinity.required", causes)
    if old is not None:
        before = old.get("spec") or {}
        if any(spec.get(name) != before.get(name) for name in _SOURCES):
            problem = "spec.persistentvolumesource is immutable after creation"
            causes.append(forbidden("spec.persistentvolumesource", problem))
        causes.extend(immutable("spec.volumeMode", spec.get("volumeMode"), before.get("volumeMode")))
        if before.get("nodeAffinity"):
            causes.extend(immutable("spec.nodeAffinity", affinity, before.get("nodeAffinity")))


def _check_access_modes(modes: Any, causes: Causes) -> None:
    if not modes:
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    for mode in modes:
        if mode not in _ACCESS_MODES:
            causes.append(unsupported("spec.accessModes", mode, _ACCESS_MODES))
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        causes.append(forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes"))


def _check_capacity(capacity: Object, causes: Causes) -> None:
    if not capacity:
        causes.append(required("spec.capacity"))
    if capacity.keys() != {"storage"}:
        causes.append(unsupported("spec.capacity", list(capacity), ("storage",)))
    for name, value in capacity.items():
        amount = milli(value)
        if amount is None or amount <= 0:
            causes.append(invalid(f"spec.capacity[{name}]", str(value), POSITIVE))


def _check_source(name: str, spec: Object, causes: Causes) -> None:
    source = spec[name] or {}
    if name == "hostPath":
        path = source.get("path") or ""
        if not path:
            causes.append(required("spec.hostPath.path"))
        elif ".." in path.split("/"):
            causes.append(invalid("spec.hostPath.path", path, "must not contain '..'"))
        if source.get("type") is not None and source["type"] not in _HOST_PATH_TYPES:
            causes.append(unsupported("spec.hostPath.type", source["type"], _HOST_PATH_TYPES))
    elif name == "local":
        if not source.get("path"):
            causes.append(required("spec.local.path"))
        if spec.get("nodeAffinity") is None:
            causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    elif name == "nfs":
        if not source.get("server"):
            causes.append(required("spec.nfs.server"))
        path = source.get("path") or ""
        if not path:
            causes.append(required("spec.nfs.path"))
        elif not path.startswith("/"):
            causes.append(invalid("spec.nfs.path", path, "must be an absolute path"))
    elif name == "csi":
        driver = source.get("driver") or ""
        if not driver:
            causes.append(required("spec.csi.driver"))
        else:
            causes.extend(invalid("spec.csi.driver", driver, problem) for problem in subdomain(driver.lower()))
        if not source.get("volumeHandle"):
            causes.append(required("spec.csi.volumeHandle"))


def _check_class_and_mode(spec: Object, causes: Causes) -> None:
    name, mode = spec.get("storageClassName"), spec.get("volumeMode")
    if name:
        causes.extend(invalid("spec.storageClassName", name, problem) for problem in subdomain(name))
    if mode is not None and mode not in _MODES:
        causes.append(unsupported("spec.volumeMode", mode, _MODES))


def check_claim(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a PersistentVolumeClaim to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    _check_access_modes(spec.get("accessModes") or (), causes)
    if spec.get("selector"):
        check_label_selector(spec["selector"], "spec.selector", causes)
    requests = (spec.get("resources") or {}).get("requests") or {}
    storage = milli(requests["storage"]) if "storage" in requests else None
    if "storage" not in requests:
        causes.append(required("spec.resources[storage]"))
    elif storage is not None and storage <= 0:
        causes.append(invalid("spec.resources[storage]", str(requests["storage"]), POSITIVE))
    others = {name: value for name, value in requests.items() if name != "storage" or storage is None}
    check_list(others, "spec.resources.requests", causes)
    _check_class_and_mode(spec, causes)
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            for part in ("kind", "name"):
                if not spec[field].get(part):
                    causes.append(required(f"spec.{field}.{part}"))
                    if field == "dataSource" and spec.get("dataSourceRef") is None:  # upstream copies it
                        causes.append(required(f"spec.dataSourceRef.{part}"))
    if old is not None:
        _check_claim_update(spec, old, causes)


def _check_claim_update(spec: Object, old: Object, causes: Causes) -> None:
    """Only the binder sets volumeName, once; the request of a bound claim may grow."""
    before = old.get("spec") or {}
    status = old.get("status") or {}
    was, new = (milli(_storage(entry)) or 0 for entry in (before, spec))
    free = {"storageClassName"} if not before.get("storageClassName") else set()
    if not before.get("volumeName"):
        free.add("volumeName")
    if status.get("phase") == "Bound":
        free |= {"resources", "volumeAttributesClassName"}
        actual = milli((status.get("capacity") or {}).get("storage")) or 0
        if new < was and new <= actual:
            problem = "field can not be less than status.capacity"
            causes.append(forbidden("spec.resources.requests.storage", problem))
    if any(spec.get(field) != before.get(field) for field in spec.keys() | before.keys() if field not in free):
        causes.append(forbidden("spec", _FROZEN_CLAIM))


def _storage(spec: Object) -> Any:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")


def check_attributes_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a VolumeAttributesClass to `causes`; driver and parameters may not change."""
    driver, parameters = obj.get("driverName") or "", obj.get("parameters") or {}
    if old is not None:
        for field, value in (("driverName", driver), ("parameters", parameters)):
            if value != (old.get(field) or type(value)()):
                causes.append(forbidden(field, f"updates to {field} are forbidden."))
    if not driver:
        causes.append(required("driverName"))
    else:
        causes.extend(invalid("driverName", driver, problem) for problem in qualified(driver.lower()))
    if len(parameters) > _MAX_PARAMETERS:
        causes.append(too_long("parameters", _MAX_PARAMETERS))
        return
    if "" in parameters:
        causes.append(invalid("parameters", "", "field can not be empty."))
    if sum(len(key) + len(value or "") for key, value in parameters.items()) > _MAX_PARAMETERS_SIZE:
        causes.append(too_long("parameters", _MAX_PARAMETERS_SIZE))
    if not parameters:
        causes.append(required("parameters", "must contain at least one key/value pair"))


def check_csi_driver(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a CSIDriver to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in _LIFECYCLE:
            causes.append(unsupported("spec.volumeLifecycleModes", mode, _LIFECYCLE))
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _FS_GROUP:
        causes.append(unsupported("spec.fsGroupPolicy", policy, _FS_GROUP))
    if old is not None:
        before = old.get("spec") or {}
        for field in ("attachRequired", "volumeLifecycleModes"):
            causes.extend(immutable(f"spec.{field}", spec.get(field), before.get(field)))


def check_csi_node(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a CSINode to `causes`."""
    names: set[str] = set()
    for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        path, name = f"spec.drivers[{index}]", driver.get("name") or ""
        if not name:
            causes.append(required(f"{path}.name"))
        if not driver.get("nodeID"):
            causes.append(required(f"{path}.nodeID"))
        if name in names:
            causes.append(invalid(f"{path}.name", name, "must be unique"))
        names.add(name)
        for key in driver.get("topologyKeys") or ():
            if not key:
                causes.append(required(path))
            causes.extend(invalid(path, key, problem) for problem in subdomain(key.partition("/")[0]))
