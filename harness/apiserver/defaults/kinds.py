"""kube-apiserver's defaults, by kind.

`default` is called for every written object, after its shape was checked and before admission. It modifies the object
in place and is idempotent. Follows `pkg/apis/*/v1/defaults.go`, and the strategies' `PrepareForCreate` for fields that
users see (phases, finalizers, a Job's selector). Not set here: cluster IPs and IP families of Services, priority of
pods, tokens.
"""

from base64 import b64encode
from collections.abc import Callable

from seatrial.harness.apiserver.defaults.pods import (
    Object,
    canonical_list,
    default_claim_spec,
    default_pod,
    default_template,
    default_volume_source,
    fill,
)
from seatrial.harness.apiserver.defaults.policy import POLICY
from seatrial.harness.apiserver.defaults.workloads import WORKLOADS

_NAME_LABEL = "kubernetes.io/metadata.name"
_EXTERNAL_TYPES = frozenset({"NodePort", "LoadBalancer"})


def default(group: str, kind: str, obj: Object) -> None:
    """Set the defaults of `obj` in place. `group` is "" for the core group; a kind without defaults is unchanged."""
    write = _BY_KIND.get((group, kind))
    if write is not None:
        write(obj)


def _namespace(obj: Object) -> None:
    metadata = obj.setdefault("metadata", {})
    if name := metadata.get("name"):
        labels = metadata.get("labels") or {}
        metadata["labels"] = labels
        labels.setdefault(_NAME_LABEL, name)
    spec = obj.setdefault("spec", {})
    # else finalization would never complete
    if spec.get("finalizers") is None and not metadata.get("deletionTimestamp"):
        spec["finalizers"] = ["kubernetes"]
    fill(obj.setdefault("status", {}), phase="Active")


def _node(obj: Object) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    if capacity := status.get("capacity"):
        canonical_list(capacity)
        if not status.get("allocatable"):
            status["allocatable"] = dict(capacity)
    if allocatable := status.get("allocatable"):
        canonical_list(allocatable)


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        spec["sessionAffinityConfig"] = config
        client = config.get("clientIP") or {}
        config["clientIP"] = client
        fill(client, timeoutSeconds=10800)
    for port in spec.get("ports") or ():
        fill(port, protocol="TCP")
        if port.get("targetPort") in (None, "", 0):
            port["targetPort"] = port.get("port")
    if spec["type"] in _EXTERNAL_TYPES or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] != "ExternalName":
        fill(spec, internalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        fill(spec, allocateLoadBalancerNodePorts=True)
    status = obj.setdefault("status", {})
    status.setdefault("loadBalancer", {})


def _endpoints(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            fill(port, protocol="TCP")


def _claim(obj: Object) -> None:
    default_claim_spec(obj.setdefault("spec", {}))
    fill(obj.setdefault("status", {}), phase="Pending")


def _volume(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    default_volume_source(spec)
    if capacity := spec.get("capacity"):
        canonical_list(capacity)
    fill(obj.setdefault("status", {}), phase="Pending")


def _quota(obj: Object) -> None:
    for part in (obj.setdefault("spec", {}), obj.setdefault("status", {})):
        for name in ("hard", "used"):
            if part.get(name):
                canonical_list(part[name])


def _limit_range(obj: Object) -> None:
    for item in (obj.get("spec") or {}).get("limits") or ():
        for name in ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio"):
            if item.get(name):
                canonical_list(item[name])
        if item.get("type") != "Container":
            continue
        limits = (item.get("max") or {}) | (item.get("default") or {})
        requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def _secret(obj: Object) -> None:
    fill(obj, type="Opaque")
    for name, value in (obj.pop("stringData", None) or {}).items():
        data = obj.get("data") or {}
        data[name] = b64encode(value.encode()).decode()
        obj["data"] = data


def _pod_template(obj: Object) -> None:
    default_template(obj.setdefault("template", {}))


_BY_KIND: dict[tuple[str, str], Callable[[Object], None]] = {
    ("", "Pod"): default_pod,
    ("", "PodTemplate"): _pod_template,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "PersistentVolume"): _volume,
    ("", "ResourceQuota"): _quota,
    ("", "LimitRange"): _limit_range,
    ("", "Secret"): _secret,
    **WORKLOADS,
    **POLICY,
}
